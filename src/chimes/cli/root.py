"""`chimes`: the table of commands, and how every command ends."""

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
    Failure,
    Lazy,
    LazyGroup,
    from_error,
)
from chimes.cli.locale import said, speaking, spoken
from chimes.errors import ChimesError
from chimes.i18n import _, translate
from chimes.redaction import Redactor, escaped

#: The three most useful first; then by duty.
COMMANDS = {
    "serve": Lazy("chimes.cli.serve", "serve", "Start the server."),
    "add": Lazy("chimes.cli.schedules", "add", "Create a schedule."),
    "next": Lazy("chimes.cli.time", "next_fires", "Show when an expression fires; no server."),
    "explain": Lazy("chimes.cli.time", "explain", "Say in words what an expression means."),
    "ls": Lazy("chimes.cli.schedules", "ls", "List schedules."),
    "show": Lazy("chimes.cli.schedules", "show", "Show one schedule."),
    "pause": Lazy("chimes.cli.schedules", "pause", "Pause schedules."),
    "resume": Lazy("chimes.cli.schedules", "resume", "Resume paused schedules."),
    "run": Lazy("chimes.cli.schedules", "run_now", "Run a schedule now."),
    "skip": Lazy("chimes.cli.schedules", "skip", "Skip the next run of a schedule."),
    "move": Lazy("chimes.cli.schedules", "move", "Move the next run of a schedule."),
    "backfill": Lazy("chimes.cli.schedules", "backfill", "Run slots that have passed."),
    "rm": Lazy("chimes.cli.schedules", "rm", "Delete schedules."),
    "runs": Lazy("chimes.cli.runs", "runs", "List runs."),
    "logs": Lazy("chimes.cli.runs", "logs", "Show the log of a run."),
    "cancel": Lazy("chimes.cli.runs", "cancel", "Cancel a run."),
    "retry": Lazy("chimes.cli.runs", "retry", "Run a run that has ended once more."),
    "reply": Lazy("chimes.cli.runs", "reply", "Answer an agent that has answered."),
    "known": Lazy("chimes.cli.runs", "known", "Mark the failure of a schedule as known."),
    "inbox": Lazy("chimes.cli.notifications", "inbox", "Read what schedules delivered."),
    "deliveries": Lazy("chimes.cli.notifications", "deliveries", "List what was told to whom."),
    "worker": Lazy("chimes.cli.serve", "worker", "Carry out an application's tasks."),
    "apply": Lazy("chimes.cli.config", "apply", "Put the sources of chimes.yaml into force."),
    "nodes": Lazy("chimes.cli.nodes", "nodes", "List the nodes that share the store."),
    "drain": Lazy("chimes.cli.nodes", "drain", "Let a node take nothing new."),
    "node": Lazy("chimes.cli.nodes", "node", "Resume and forget nodes."),
    "templates": Lazy("chimes.cli.time", "templates", "List ready-made times; no server."),
    "upcoming": Lazy("chimes.cli.schedules", "upcoming", "Show what comes next."),
    "store": Lazy("chimes.cli.store", "store", "Migrate, export, import and copy the store."),
    "key": Lazy("chimes.cli.access", "key", "Create, list and revoke API keys."),
    "user": Lazy("chimes.cli.access", "user", "Let people sign in at the dashboard."),
    "audit": Lazy("chimes.cli.access", "audit", "Show who did what, and verify the trail."),
    "telegram": Lazy("chimes.cli.notifications", "telegram", "Link chats to you, and try one out."),
    "config": Lazy("chimes.cli.config", "config", "Show the configuration."),
    "demo": Lazy("chimes.cli.serve", "demo", "Remove the example schedules."),
    "doctor": Lazy("chimes.cli.doctor", "doctor", "Check that everything is in order."),
    "version": Lazy("chimes.cli.serve", "version", "Show the version."),
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
    """Chimes runs things on time: one run per slot, one result per run.

    \b
    Most useful:
      chimes serve                                  start the server here
      chimes add "0 9 * * 1-5" --http URL           call a URL every weekday at nine
      chimes next "30 2 * * *" --tz Asia/Bangkok    when does this fire?

    Clients talk to CHIMES_URL (http://127.0.0.1:7100), with the key in CHIMES_API_KEY.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run(arguments: Sequence[str]) -> int:
    """Run a command; the exit code of UX.md B, whatever happens."""
    with speaking(arguments):
        return _run(arguments)


def _run(arguments: Sequence[str]) -> int:
    if "_CHIMES_COMPLETE" in os.environ:
        cli.main(list(arguments), prog_name="chimes")
    try:
        # Not through main(), which would answer a closed pipe with a failure.
        with cli.make_context("chimes", list(arguments)) as ctx:
            code = cli.invoke(ctx)
            _flush()
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except (click.Abort, KeyboardInterrupt):
        _say(_("Interrupted."))
        return INTERRUPTED
    except click.UsageError as error:
        _usage(error)
        return USAGE
    except click.ClickException as error:
        _say(error.format_message())
        return USAGE
    except BrokenPipeError:
        _drop_stdout()
        return OK
    except Failure as failure:
        return _fail(failure, arguments)
    except ChimesError as error:
        return _fail(from_error(error), arguments)
    except TimeoutError as error:
        told = next((each for each in error.args if isinstance(each, str)), _("Timed out"))
        return _fail(Failure(told, TIMED_OUT), arguments)
    return code if isinstance(code, int) else OK


def _fail(failure: Failure, arguments: Sequence[str]) -> int:
    if any(each.startswith(("--json", "--ndjson")) for each in arguments):
        _say(json.dumps(translate(failure.problem(), spoken()), ensure_ascii=False))
    else:
        _say(_("Error: {message}", message=failure.message))
        if failure.hint:
            _say(_("Hint: {hint}", hint=failure.hint))
    return failure.code or FAILED


def _usage(error: click.UsageError) -> None:
    if error.ctx is not None:
        _say(error.ctx.get_usage())
        _say(_("Try '{command} --help'.", command=error.ctx.command_path))
    _say(_("Error: {message}", message=error.format_message()))


def _say(text: str) -> None:
    shown = "\n".join(escaped(line) for line in Redactor().text(said(text)).splitlines())
    try:
        click.echo(shown, err=True)
    except OSError:
        _drop(sys.stderr.fileno())


def _flush() -> None:
    """Here, where a closed pipe can still be handled, rather than when the interpreter ends."""
    sys.stdout.flush()


def _drop_stdout() -> None:
    _drop(sys.stdout.fileno())


def _drop(descriptor: int) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
