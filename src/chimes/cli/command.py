"""The `chimes` command: base classes of commands, exit codes, table of subcommands, entry point.

A subcommand is imported when it is called. Every error becomes an exit code and a message on
stderr, or a problem document with `--json`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from copy import copy
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import click
from click.shell_completion import CompletionItem

from chimes import __version__, errors
from chimes.cli.output import (
    Formatter,
    current_language,
    language_option,
    localize,
    localize_help,
    use_language,
)
from chimes.errors import ChimesError
from chimes.i18n import _, joined, translate
from chimes.redaction import Redactor, escape_control

HasHelp = TypeVar("HasHelp", click.Command, click.Option)
_HELP = _("Show this message and exit.")


class LazyCommand(NamedTuple):
    """Where a command is defined, and its help line, shown without importing it."""

    module: str
    name: str
    help: str


class _Context(click.Context):
    formatter_class = Formatter


class LocalizedCommand(click.Command):
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


class Command(LocalizedCommand):
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


#: Other spellings, for groups that have the one and not the other.
_SPELLINGS = {"ls": "list", "list": "ls", "rm": "remove", "remove": "rm"}


class LazyGroup(LocalizedCommand, click.Group):
    """A group that imports a command when it is called. `ls` and `list`, and `rm` and `remove`, are
    the same in every group."""

    command_class = Command

    def __init__(
        self, name: str | None = None, *, lazy: Mapping[str, LazyCommand], **attrs: Any
    ) -> None:
        super().__init__(name, **attrs)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = self._lazy.get(self._spelling(cmd_name))
        if found is None:
            return None
        command = getattr(import_module(found.module), found.name)
        assert isinstance(command, click.Command)
        if "_CHIMES_COMPLETE" in os.environ:
            from chimes.cli.completion import add_value_types

            add_value_types(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self._spelling(args[0]) not in self._lazy and not args[0].startswith("-"):
            raise click.UsageError(self._unknown(args[0]), ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """From the table, without importing the commands."""
        return [
            *(
                CompletionItem(name, help=localize_help(found.help))
                for name, found in self._lazy.items()
                if name.startswith(incomplete)
            ),
            *click.Command.shell_complete(self, ctx, incomplete),
        ]

    def _spelling(self, name: str) -> str:
        return name if name in self._lazy else _SPELLINGS.get(name, name)

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
INCONCLUSIVE = 10
TIMED_OUT = 124
INTERRUPTED = 130

#: `type` of the problems that a command finds itself, by exit code.
_PROBLEM_TYPES = {
    USAGE: "usage",
    NOT_FOUND: "not_found",
    NOT_ALLOWED: "not_allowed",
    CONFLICT: "conflict",
    INVALID: "invalid_input",
    UNREACHABLE: "unreachable",
    RUN_FAILED: "run_failed",
    PROBLEMS: "problems_found",
    INCONCLUSIVE: "inconclusive",
    TIMED_OUT: "timed_out",
}
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
    (errors.StoreIncomplete, PROBLEMS),
    (errors.StoreLost, PROBLEMS),
    (errors.SecretUnreadable, PROBLEMS),
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
            return {**self._problem, "exit_code": self.code}
        kind = _PROBLEM_TYPES.get(self.code, "failure")
        document: dict[str, object] = {
            "type": f"urn:chimes:command:{kind}",
            "title": self.message,
            "exit_code": self.code,
        }
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
    found = problem.get("errors")
    for position, each in enumerate(found if isinstance(found, list) else []):
        if isinstance(each, dict):
            where = str(each.get("pointer") or each.get("parameter") or "")
            detail = str(each.get("detail", ""))
            line = f"{where}: {detail}" if where else detail
            # The first one is the detail of the problem; others may have its words at other fields.
            if detail and line not in parts and (position or detail not in parts[0]):
                parts.append(line)
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


# --- the command and its subcommands --------------------------------------------------------------
#: The most used commands first, then grouped by topic.
COMMANDS = {
    "serve": LazyCommand("chimes.cli.operations.serve", "serve", "Start the server."),
    "add": LazyCommand("chimes.cli.schedules", "add", "Create a schedule."),
    "next": LazyCommand(
        "chimes.cli.time", "next_fires", "Show when an expression fires (no server needed)."
    ),
    "explain": LazyCommand("chimes.cli.time", "explain", "Explain an expression in words."),
    "ls": LazyCommand("chimes.cli.schedules", "ls", "List schedules."),
    "show": LazyCommand("chimes.cli.schedules", "show", "Show one schedule or run."),
    "edit": LazyCommand("chimes.cli.changesets", "edit", "Edit a schedule as YAML."),
    "set": LazyCommand("chimes.cli.changesets", "set_fields", "Set fields of a schedule."),
    "duplicate": LazyCommand("chimes.cli.changesets", "duplicate", "Copy a schedule."),
    "pause": LazyCommand("chimes.cli.schedules", "pause", "Pause schedules."),
    "resume": LazyCommand("chimes.cli.schedules", "resume", "Resume paused schedules."),
    "run": LazyCommand("chimes.cli.schedules", "run_now", "Run a schedule now."),
    "skip": LazyCommand("chimes.cli.schedules", "skip", "Skip the next run of a schedule."),
    "move": LazyCommand("chimes.cli.schedules", "move", "Move the next run of a schedule."),
    "backfill": LazyCommand("chimes.cli.schedules", "backfill", "Run past slots of a schedule."),
    "rm": LazyCommand("chimes.cli.schedules", "rm", "Delete schedules."),
    "runs": LazyCommand("chimes.cli.runs", "runs", "List runs."),
    "why": LazyCommand("chimes.cli.runs", "why", "Say why a slot ran or did not run."),
    "logs": LazyCommand("chimes.cli.runs", "logs", "Show the log of a run."),
    "cancel": LazyCommand("chimes.cli.runs", "cancel", "Cancel a run."),
    "retry": LazyCommand("chimes.cli.runs", "retry", "Run an ended run again."),
    "reply": LazyCommand("chimes.cli.runs", "reply", "Reply to the answer of an agent."),
    "known": LazyCommand(
        "chimes.cli.runs", "known", "Mark the latest failure of a schedule as known."
    ),
    "acknowledge": LazyCommand(
        "chimes.cli.runs", "acknowledge", "Acknowledge the failure of a run."
    ),
    "inbox": LazyCommand(
        "chimes.cli.notifications", "inbox", "List and read messages in the inbox."
    ),
    "deliveries": LazyCommand(
        "chimes.cli.notifications", "deliveries", "List notifications and their status."
    ),
    "routing": LazyCommand(
        "chimes.cli.notification_rules", "routing", "Route notifications by label and status."
    ),
    "silence": LazyCommand(
        "chimes.cli.notification_rules", "silence", "Send no notifications for a while."
    ),
    "message-templates": LazyCommand(
        "chimes.cli.notification_rules", "message_templates", "Write your own notifications."
    ),
    "worker": LazyCommand(
        "chimes.cli.operations.serve", "worker", "Start a worker for the tasks of an application."
    ),
    "maintenance": LazyCommand(
        "chimes.cli.operations.maintenance", "maintenance", "Stop all firing for a while."
    ),
    "apply": LazyCommand(
        "chimes.cli.changesets", "apply", "Apply the schedules and sources in files."
    ),
    "proposals": LazyCommand(
        "chimes.cli.proposals", "proposals", "Decide about changes that assistants propose."
    ),
    "approvals": LazyCommand(
        "chimes.cli.approvals", "approvals", "Decide about flows that wait for an approval."
    ),
    "approve": LazyCommand("chimes.cli.approvals", "approve", "Let a waiting flow go on."),
    "reject": LazyCommand("chimes.cli.approvals", "reject", "Reject the step of a waiting flow."),
    "send-event": LazyCommand(
        "chimes.cli.approvals", "send_event", "Send an event to waiting flows."
    ),
    "mcp": LazyCommand("chimes.cli.mcp", "mcp", "Serve an assistant over MCP."),
    "export": LazyCommand("chimes.cli.changesets", "export", "Write schedules to a file."),
    "import": LazyCommand(
        "chimes.cli.imports", "import_group", "Import schedules of cron and other systems."
    ),
    "connections": LazyCommand(
        "chimes.cli.operations.connections", "connections", "List and test engines and brokers."
    ),
    "nodes": LazyCommand(
        "chimes.cli.operations.admin", "nodes", "List the nodes that share the store."
    ),
    "drain": LazyCommand(
        "chimes.cli.operations.admin", "drain", "Stop a node from accepting new runs."
    ),
    "node": LazyCommand("chimes.cli.operations.admin", "node", "Resume and remove nodes."),
    "templates": LazyCommand(
        "chimes.cli.time", "templates", "List schedule templates (no server needed)."
    ),
    "upcoming": LazyCommand("chimes.cli.schedules", "upcoming", "Show upcoming runs."),
    "forecast": LazyCommand(
        "chimes.cli.forecast", "forecast", "Show the busiest minutes of the coming days."
    ),
    "suggest": LazyCommand("chimes.cli.forecast", "suggest", "Suggest a quieter minute."),
    "simulate": LazyCommand(
        "chimes.cli.forecast", "simulate", "Simulate what would run, wait, be skipped and missed."
    ),
    "feeds": LazyCommand("chimes.cli.feeds", "feeds", "Publish coming fires as calendars."),
    "store": LazyCommand(
        "chimes.cli.store.commands", "store", "Migrate, export, import and copy the store."
    ),
    "secret": LazyCommand(
        "chimes.cli.store.secret", "secret", "Manage named secrets and their encryption."
    ),
    "limits": LazyCommand(
        "chimes.cli.operations.limits", "limits", "Limit the concurrency and the rate of runs."
    ),
    "calendar": LazyCommand(
        "chimes.cli.operations.calendar", "calendar", "Manage calendars that schedules share."
    ),
    "monitor": LazyCommand(
        "chimes.cli.operations.monitor", "monitor", "Monitor jobs that run elsewhere."
    ),
    "key": LazyCommand("chimes.cli.operations.admin", "key", "Create, list and revoke API keys."),
    "user": LazyCommand(
        "chimes.cli.operations.admin", "user", "Manage the users of the dashboard."
    ),
    "audit": LazyCommand("chimes.cli.operations.admin", "audit", "Show and verify the audit log."),
    "telegram": LazyCommand(
        "chimes.cli.notifications", "telegram", "Link Telegram chats to your account."
    ),
    "config": LazyCommand("chimes.cli.operations.config", "config", "Show the configuration."),
    "demo": LazyCommand("chimes.cli.operations.serve", "demo", "Remove the example schedules."),
    "doctor": LazyCommand("chimes.cli.operations.doctor", "doctor", "Diagnose the installation."),
    "torture": LazyCommand(
        "chimes.cli.operations.torture", "torture", "Certify a database by injecting faults."
    ),
    "completion": LazyCommand(
        "chimes.cli.completion", "completion", "Print the completion script of a shell."
    ),
    "help": LazyCommand("chimes.cli.help", "help_", "Show the help of a command."),
    "version": LazyCommand("chimes.cli.help", "version", "Show the version."),
}


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "CHIMES"},
)
@click.version_option(
    __version__,
    message="chimes %(version)s",
    allow_from_autoenv=False,
    help="Show the version and exit.",
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Chimes runs jobs on schedule: one run per slot, one result per run.

    \b
    Examples:
      chimes serve                                  start the server
      chimes add "0 9 * * 1-5" --http URL           call a URL every weekday at nine
      chimes next "30 2 * * *" --tz Asia/Bangkok    show when it fires

    Client commands use the server at CHIMES_URL (default http://127.0.0.1:7100) and the key in
    CHIMES_API_KEY.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run(arguments: Sequence[str]) -> int:
    """Runs a command and returns its exit code."""
    with use_language(arguments):
        return _run(arguments)


def _run(arguments: Sequence[str]) -> int:
    if "_CHIMES_COMPLETE" in os.environ:
        import_module("chimes.cli.completion")
        cli.main(list(arguments), prog_name="chimes")
    try:
        # Not through main(), which treats a closed pipe as a failure.
        with cli.make_context("chimes", list(arguments)) as ctx:
            code = cli.invoke(ctx)
            _flush()
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except (click.Abort, KeyboardInterrupt):
        _print_error(_("Interrupted."))
        return INTERRUPTED
    except click.UsageError as error:
        if _wants_json(arguments):
            return _fail(CommandError(error.format_message(), USAGE), arguments)
        _usage(error)
        return USAGE
    except click.ClickException as error:
        return _fail(CommandError(error.format_message(), USAGE), arguments)
    except BrokenPipeError:
        _drop_stdout()
        return OK
    except CommandError as failure:
        return _fail(failure, arguments)
    except ChimesError as error:
        return _fail(from_error(error), arguments)
    except TimeoutError as error:
        message = next((each for each in error.args if isinstance(each, str)), _("Timed out"))
        return _fail(CommandError(message, TIMED_OUT), arguments)
    return code if isinstance(code, int) else OK


def _wants_json(arguments: Sequence[str]) -> bool:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    names = {each.partition("=")[0] for each in arguments[:end]}
    return not names.isdisjoint(("--json", "--ndjson", "--jq"))


def _fail(failure: CommandError, arguments: Sequence[str]) -> int:
    if _wants_json(arguments):
        _print_error(
            json.dumps(translate(failure.problem(), current_language()), ensure_ascii=False)
        )
    else:
        _print_error(_("Error: {message}", message=failure.message))
        if failure.hint:
            _print_error(_("Hint: {hint}", hint=failure.hint))
    return failure.code or FAILED


def _usage(error: click.UsageError) -> None:
    if error.ctx is not None:
        _print_error(error.ctx.get_usage())
        _print_error(_("Try '{command} --help'.", command=error.ctx.command_path))
    _print_error(_("Error: {message}", message=error.format_message()))


def _print_error(text: str) -> None:
    lines = "\n".join(escape_control(line) for line in Redactor().text(localize(text)).splitlines())
    try:
        click.echo(lines, err=True)
    except OSError:
        _drop(sys.stderr.fileno())


def _flush() -> None:
    """Flushes while a closed pipe can still be handled, not at interpreter exit."""
    sys.stdout.flush()


def _drop_stdout() -> None:
    _drop(sys.stdout.fileno())


def _drop(descriptor: int) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
