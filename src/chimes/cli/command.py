"""Base classes of commands, exit codes, and the mapping of errors to exit codes."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import click

from chimes import errors
from chimes.cli.locale import language_option, localize, localize_help
from chimes.cli.output import Formatter
from chimes.i18n import _, joined

HasHelp = TypeVar("HasHelp", click.Command, click.Option)
_HELP = _("Show this message and exit.")


class LazyCommand(NamedTuple):
    """Where a command is defined, and its help line, shown without importing it."""

    module: str
    name: str
    help: str


class _Context(click.Context):
    formatter_class = Formatter


class _LocalizedCommand(click.Command):
    """A command with `--lang`, whose help is translated when it is shown."""

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
        click.Command.format_help_text(_localized(self), ctx, formatter)

    def get_short_help_str(self, limit: int = 45) -> str:
        return click.Command.get_short_help_str(_localized(self), limit)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = [
            _localized(each).get_help_record(ctx)
            for each in self.get_params(ctx)
            if isinstance(each, click.Option)
        ]
        with formatter.section(localize(_("Options"))):
            formatter.write_dl([each for each in records if each is not None])


def _localized(item: HasHelp) -> HasHelp:
    """A copy with its help in the language of the command."""
    localized = copy(item)
    if item.help:
        localized.help = localize_help(item.help)
    return localized


class Command(_LocalizedCommand):
    """A command that takes `--json` with or without a value and rejects `--api-key`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        options = args[:end]
        if any(each == "--api-key" or each.startswith("--api-key=") for each in options):
            raise click.UsageError(
                _(
                    "Other users of this machine can see a key on the command line. "
                    "Set CHIMES_API_KEY, or use --api-key-file."
                ),
                ctx,
            )
        # Otherwise click takes the argument after a bare --json as its value.
        options = ["--json=" if each == "--json" else each for each in options]
        return super().parse_args(ctx, [*options, *args[end:]])


class LazyGroup(_LocalizedCommand, click.Group):
    """A group that imports a command when it is called."""

    command_class = Command

    def __init__(
        self, name: str | None = None, *, lazy: Mapping[str, LazyCommand], **attrs: Any
    ) -> None:
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
        from chimes.triggers.values import suggest_name

        hint = suggest_name(name, self._lazy)
        if hint is None:
            return _("Unknown command {name!r}.", name=name)
        return _(
            "Unknown command {name!r}. Did you mean {nearest}?",
            name=name,
            nearest=hint.values["name"],
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, localize_help(found.help)) for name, found in self._lazy.items()]
        with formatter.section(localize(_("Commands"))):
            formatter.write_dl(rows)


# --- exit codes -----------------------------------------------------------------------------------
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

#: The first class that matches decides.
_ERROR_CODES: tuple[tuple[type[errors.ChimesError], int], ...] = (
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
_STATUS_CODES = {
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


class CommandError(Exception):
    """Ends a command with a message, an exit code and a hint on what to do."""

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
        """As a problem document (RFC 9457)."""
        if self._problem is not None:
            return dict(self._problem)
        document: dict[str, object] = {"title": self.message, "exit_code": self.code}
        return document | ({"hint": self.hint} if self.hint else {})


def from_error(error: errors.ChimesError) -> CommandError:
    code = next((code for kind, code in _ERROR_CODES if isinstance(error, kind)), FAILED)
    if isinstance(error, errors.ConfigError) and error.details.get("code") == "unsafe_file":
        code = INVALID
    if isinstance(error, errors.NeedsClarification):
        return _from_clarification(error)
    hint = error.hint if isinstance(error, errors.InvalidInput) else None
    return CommandError(error.message, code, hint=hint)


def _from_clarification(error: errors.NeedsClarification) -> CommandError:
    clarification = {
        "missing": list(error.missing),
        "message": error.message,
        "examples": list(error.examples),
    }
    return CommandError(
        error.message,
        INVALID,
        hint=joined("; ", error.examples) if error.examples else None,
        problem={"title": error.message, "exit_code": INVALID, "clarification": clarification},
    )


def from_problem(status: int, problem: Mapping[str, object]) -> CommandError:
    """From an error response of the API, which is in the language of the request."""
    detail = str(problem.get("detail") or problem.get("title") or "")
    parts = [detail or _("The server returned status {status}", status=status)]
    hints: list[str] = []
    field_errors = problem.get("errors")
    for each in field_errors if isinstance(field_errors, list) else []:
        if isinstance(each, dict):
            where = str(each.get("pointer") or each.get("parameter") or "")
            detail = str(each.get("detail", ""))
            if detail and not any(detail in part for part in parts):
                parts.append(f"{where}: {detail}" if where else detail)
            if each.get("hint"):
                hints.append(str(each["hint"]))
    if status == 401:
        hints.append(_("set CHIMES_API_KEY, or use --api-key-file"))
    return CommandError(
        joined("; ", parts),
        _STATUS_CODES.get(status, FAILED),
        hint=joined("; ", hints) if hints else None,
        problem=problem,
    )
