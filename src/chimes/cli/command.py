"""Groups that import a command when it is called, and commands with our habits."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import click

from chimes import errors
from chimes.cli.locale import language_option, said, said_of_help
from chimes.cli.output import Formatter
from chimes.i18n import _, joined

Helpful = TypeVar("Helpful", click.Command, click.Option)
_HELP = _("Show this message and exit.")


class Lazy(NamedTuple):
    """Where a command is, and the line that help shows without loading it."""

    module: str
    name: str
    help: str


class _Context(click.Context):
    formatter_class = Formatter


class _Spoken(click.Command):
    """`--lang`; and help in the language of the command, put into it when it is shown: start-up
    pays for no word that nobody reads."""

    context_class = _Context

    def __init__(self, *args: Any, **attrs: Any) -> None:
        super().__init__(*args, **attrs)
        self.params.append(language_option())

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        found = super().get_help_option(ctx)
        if found is not None:
            found.help = _HELP
        return found

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        click.Command.format_help_text(_with_help(self), ctx, formatter)

    def get_short_help_str(self, limit: int = 45) -> str:
        return click.Command.get_short_help_str(_with_help(self), limit)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = [
            _with_help(each).get_help_record(ctx)
            for each in self.get_params(ctx)
            if isinstance(each, click.Option)
        ]
        with formatter.section(said(_("Options"))):
            formatter.write_dl([each for each in records if each is not None])


def _with_help(found: Helpful) -> Helpful:
    """The same with its help in the language of the command."""
    shown = copy(found)
    if found.help:
        shown.help = said_of_help(found.help)
    return shown


class Command(_Spoken):
    """`--json` may stand alone or have a value; a key may not be on the command line (S64)."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        options = args[:end]
        if any(each == "--api-key" or each.startswith("--api-key=") for each in options):
            raise click.UsageError(
                _(
                    "A key on the command line can be seen by every user of this machine. "
                    "Put it into CHIMES_API_KEY, or into a file for --api-key-file."
                ),
                ctx,
            )
        # Else click would take the argument behind a bare --json for its value.
        options = ["--json=" if each == "--json" else each for each in options]
        return super().parse_args(ctx, [*options, *args[end:]])


class LazyGroup(_Spoken, click.Group):
    """Commands by name; nothing is imported until one is called."""

    command_class = Command

    def __init__(self, name: str | None = None, *, lazy: Mapping[str, Lazy], **attrs: Any) -> None:
        super().__init__(name, **attrs)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = self._lazy.get(cmd_name)
        if found is None:
            return None
        command = getattr(import_module(found.module), found.name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self._lazy and not args[0].startswith("-"):
            raise click.UsageError(self._unknown(args[0]), ctx)
        return super().resolve_command(ctx, args)

    def _unknown(self, name: str) -> str:
        from chimes.triggers.json_values import nearest

        hint = nearest(name, self._lazy)
        if hint is None:
            return _("There is no command {name!r}.", name=name)
        return _(
            "There is no command {name!r}. Did you mean {nearest}?",
            name=name,
            nearest=hint.values["name"],
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, said_of_help(found.help)) for name, found in self._lazy.items()]
        with formatter.section(said(_("Commands"))):
            formatter.write_dl(rows)


# @@ What a command can end with, and how an error becomes an exit code (UX.md B).

OK = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
NOT_ALLOWED = 4
CONFLICT = 5
INVALID = 6
UNREACHABLE = 7
RUN_FAILED = 8
PROBLEMS = 9
TIMED_OUT = 124
INTERRUPTED = 130

#: Most specific first.
_ERRORS: tuple[tuple[type[errors.ChimesError], int], ...] = (
    (errors.InvalidInput, INVALID),
    (errors.NotFound, NOT_FOUND),
    (errors.Conflict, CONFLICT),
    (errors.NotAllowed, NOT_ALLOWED),
    (errors.NotAuthenticated, NOT_ALLOWED),
    (errors.ConfigError, USAGE),
    (errors.StoreLocked, CONFLICT),
    (errors.SchemaMismatch, PROBLEMS),
    (errors.StoreUnsafe, PROBLEMS),
    (errors.StoreLost, PROBLEMS),
    (errors.StoreUnavailable, UNREACHABLE),
)
_STATUSES = {
    400: INVALID,
    401: NOT_ALLOWED,
    403: NOT_ALLOWED,
    404: NOT_FOUND,
    409: CONFLICT,
    412: CONFLICT,
    413: INVALID,
    415: INVALID,
    421: USAGE,
    422: INVALID,
    503: UNREACHABLE,
}


class Failure(Exception):
    """A command cannot do what was asked: what happened, and what to do next."""

    def __init__(
        self,
        message: str,
        code: int = FAILED,
        *,
        hint: str | None = None,
        problem: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint
        self._problem = problem

    def problem(self) -> dict[str, object]:
        """RFC 9457, as the API would say it."""
        if self._problem is not None:
            return dict(self._problem)
        found: dict[str, object] = {"title": self.message, "exit_code": self.code}
        return found | ({"hint": self.hint} if self.hint else {})


def from_error(error: errors.ChimesError) -> Failure:
    code = next((code for kind, code in _ERRORS if isinstance(error, kind)), FAILED)
    if isinstance(error, errors.ConfigError) and error.details.get("code") == "unsafe_file":
        code = INVALID
    if isinstance(error, errors.NeedsClarification):
        return _question(error)
    hint = error.hint if isinstance(error, errors.InvalidInput) else None
    return Failure(error.message, code, hint=hint)


def _question(error: errors.NeedsClarification) -> Failure:
    """What has to be said as well, and how it could be."""
    asked = {
        "missing": list(error.missing),
        "message": error.message,
        "examples": list(error.examples),
    }
    return Failure(
        error.message,
        INVALID,
        hint=joined("; ", error.examples) if error.examples else None,
        problem={"title": error.message, "exit_code": INVALID, "clarification": asked},
    )


def from_problem(status: int, problem: Mapping[str, object]) -> Failure:
    """An error answer of the API, in the language in which it was asked for."""
    told = str(problem.get("detail") or problem.get("title") or "")
    parts = [told or _("The server answered {status}", status=status)]
    hints: list[str] = []
    listed = problem.get("errors")
    for each in listed if isinstance(listed, list) else []:
        if isinstance(each, dict):
            where = str(each.get("pointer") or each.get("parameter") or "")
            detail = str(each.get("detail", ""))
            if detail and not any(detail in part for part in parts):
                parts.append(f"{where}: {detail}" if where else detail)
            if each.get("hint"):
                hints.append(str(each["hint"]))
    if status == 401:
        hints.append(_("set CHIMES_API_KEY, or name a file with --api-key-file"))
    return Failure(
        joined("; ", parts),
        _STATUSES.get(status, FAILED),
        hint=joined("; ", hints) if hints else None,
        problem=problem,
    )
