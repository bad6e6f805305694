"""The `chimes` command: the table of subcommands, and exit codes for every outcome."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

import click

from chimes import __version__
from chimes.cli.command import (
    FAILED,
    INTERRUPTED,
    OK,
    TIMED_OUT,
    USAGE,
    CommandError,
    LazyCommand,
    LazyGroup,
    from_error,
)
from chimes.cli.locale import current_language, localize, use_language
from chimes.errors import ChimesError
from chimes.i18n import _, translate
from chimes.redaction import Redactor, escape_control

#: The most used commands first, then grouped by topic.
COMMANDS = {
    "serve": LazyCommand("chimes.cli.serve", "serve", "Start the server."),
    "add": LazyCommand("chimes.cli.schedules", "add", "Create a schedule."),
    "next": LazyCommand(
        "chimes.cli.time", "next_fires", "Show when an expression fires (no server needed)."
    ),
    "explain": LazyCommand("chimes.cli.time", "explain", "Explain an expression in words."),
    "ls": LazyCommand("chimes.cli.schedules", "ls", "List schedules."),
    "show": LazyCommand("chimes.cli.schedules", "show", "Show one schedule."),
    "pause": LazyCommand("chimes.cli.schedules", "pause", "Pause schedules."),
    "resume": LazyCommand("chimes.cli.schedules", "resume", "Resume paused schedules."),
    "run": LazyCommand("chimes.cli.schedules", "run_now", "Run a schedule now."),
    "skip": LazyCommand("chimes.cli.schedules", "skip", "Skip the next run of a schedule."),
    "move": LazyCommand("chimes.cli.schedules", "move", "Move the next run of a schedule."),
    "backfill": LazyCommand("chimes.cli.schedules", "backfill", "Run past slots of a schedule."),
    "rm": LazyCommand("chimes.cli.schedules", "rm", "Delete schedules."),
    "runs": LazyCommand("chimes.cli.runs", "runs", "List runs."),
    "logs": LazyCommand("chimes.cli.runs", "logs", "Show the log of a run."),
    "cancel": LazyCommand("chimes.cli.runs", "cancel", "Cancel a run."),
    "retry": LazyCommand("chimes.cli.runs", "retry", "Run an ended run again."),
    "reply": LazyCommand("chimes.cli.runs", "reply", "Reply to the answer of an agent."),
    "known": LazyCommand(
        "chimes.cli.runs", "known", "Mark the latest failure of a schedule as known."
    ),
    "inbox": LazyCommand(
        "chimes.cli.notifications", "inbox", "List and read messages in the inbox."
    ),
    "deliveries": LazyCommand(
        "chimes.cli.notifications", "deliveries", "List notifications and their status."
    ),
    "worker": LazyCommand(
        "chimes.cli.serve", "worker", "Start a worker for the tasks of an application."
    ),
    "apply": LazyCommand("chimes.cli.config", "apply", "Apply the sources in chimes.yaml."),
    "nodes": LazyCommand("chimes.cli.nodes", "nodes", "List the nodes that share the store."),
    "drain": LazyCommand("chimes.cli.nodes", "drain", "Stop a node from accepting new runs."),
    "node": LazyCommand("chimes.cli.nodes", "node", "Resume and remove nodes."),
    "templates": LazyCommand(
        "chimes.cli.time", "templates", "List schedule templates (no server needed)."
    ),
    "upcoming": LazyCommand("chimes.cli.schedules", "upcoming", "Show upcoming runs."),
    "store": LazyCommand(
        "chimes.cli.store", "store", "Migrate, export, import and copy the store."
    ),
    "key": LazyCommand("chimes.cli.access", "key", "Create, list and revoke API keys."),
    "user": LazyCommand("chimes.cli.access", "user", "Manage the users of the dashboard."),
    "audit": LazyCommand("chimes.cli.access", "audit", "Show and verify the audit log."),
    "telegram": LazyCommand(
        "chimes.cli.notifications", "telegram", "Link Telegram chats to your account."
    ),
    "config": LazyCommand("chimes.cli.config", "config", "Show the configuration."),
    "demo": LazyCommand("chimes.cli.serve", "demo", "Remove the example schedules."),
    "doctor": LazyCommand("chimes.cli.doctor", "doctor", "Diagnose the installation."),
    "version": LazyCommand("chimes.cli.serve", "version", "Show the version."),
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
        _usage(error)
        return USAGE
    except click.ClickException as error:
        _print_error(error.format_message())
        return USAGE
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


def _fail(failure: CommandError, arguments: Sequence[str]) -> int:
    if any(each.startswith(("--json", "--ndjson")) for each in arguments):
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
