"""`runs`, `logs`, `cancel`, `retry`, `known` and `reply`."""

from __future__ import annotations

import click

from chimes.cli.backend import (
    Backend,
    api_path,
    delete,
    find_run,
    find_schedule,
    log_lines,
    paginate,
    post,
)
from chimes.cli.command import NOT_FOUND, Command, CommandError
from chimes.cli.options import WholeNumber, client_options, output_options
from chimes.cli.output import RUN_COLUMNS, Column, Json, Output, echo, echo_err, getter
from chimes.cli.schedules import read_text_argument
from chimes.i18n import _
from chimes.model.insights import FAILED_STATUSES
from chimes.redaction import escape_control

_LEVELS = ("debug", "info", "warning", "error", "critical")


@click.command("runs", cls=Command)
@click.argument("schedule", required=False)
@click.option("--status", multiple=True, help="Only runs with this status; repeatable.")
@click.option("--parent", metavar="RUN", help="Only steps of this flow run.")
@click.option("--since", metavar="TIME", help="Planned at or after this time.")
@click.option("--until", metavar="TIME", help="Planned before this time.")
@click.option("-n", "--limit", type=WholeNumber(1), default=50, show_default=True)
@output_options
@client_options
def runs(
    backend: Backend,
    output: Output,
    schedule: str | None,
    status: tuple[str, ...],
    parent: str | None,
    since: str | None,
    until: str | None,
    limit: int,
) -> None:
    """List runs, newest first; of one SCHEDULE, or of all.

    \b
    Examples:
      chimes runs
      chimes runs "Morning report" --status failed --since 2026-01-01T00:00:00Z
      chimes runs --parent 0199ab
      chimes runs -q --status queued | xargs -n 1 chimes cancel
    """
    path = "/runs"
    if schedule is not None:
        path = api_path("schedules", find_schedule(backend, schedule)["id"], "runs")
    query = {
        "status": ",".join(status),
        "parent_id": None if parent is None else find_run(backend, parent)["id"],
        "since": since,
        "until": until,
    }
    rows = paginate(backend, path, limit, **query)
    output.rows(rows, RUN_COLUMNS)


@click.command("logs", cls=Command)
@click.argument("run")
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the run has ended.")
@click.option("--level", type=click.Choice(_LEVELS), default="debug", help="This level and above.")
@click.option("--grep", metavar="TEXT", help="Only lines that contain this text.")
@output_options
@client_options
def logs(
    backend: Backend, output: Output, run: str, follow: bool, level: str, grep: str | None
) -> None:
    """Show the log of a run. RUN is a run, or a schedule, which means its latest run.

    \b
    Examples:
      chimes logs 0199ab
      chimes logs "Morning report" -f
      chimes logs 0199ab --level error --ndjson
    """
    least = _LEVELS.index(level)
    for entry in log_lines(backend, str(_find_run_or_latest(backend, run)["id"]), follow=follow):
        severity = str(entry.get("level", "info"))
        if _LEVELS.index(severity) < least if severity in _LEVELS else False:
            continue
        if grep and grep not in str(entry.get("message", "")):
            continue
        if output.format in ("json", "ndjson"):
            Output(format="ndjson", fields=output.fields).one(entry, [])
        else:
            at = output.format_time(str(entry.get("at", "")))
            echo(f"{at}\t{severity}\t{escape_control(str(entry.get('message', '')))}")


def _find_run_or_latest(backend: Backend, reference: str) -> Json:
    try:
        return find_run(backend, reference)
    except CommandError as failure:
        if failure.code != NOT_FOUND:
            raise
        schedule = find_schedule(backend, reference)
    latest = list(paginate(backend, api_path("schedules", schedule["id"], "runs"), 1))
    if not latest:
        raise CommandError(
            _("{schedule} has no runs yet", schedule=schedule.get("name")), NOT_FOUND
        )
    return latest[0]


@click.command("cancel", cls=Command)
@click.argument("run")
@output_options
@client_options
def cancel(backend: Backend, output: Output, run: str) -> None:
    """Cancel a run. A queued run ends at once; a running one is requested to stop.

    \b
    Examples:
      chimes cancel 0199ab
    """
    found = find_run(backend, run)
    output.rows([post(backend, api_path("runs", found["id"], "cancel"), {})], RUN_COLUMNS)


@click.command("retry", cls=Command)
@click.argument("run")
@output_options
@client_options
def retry(backend: Backend, output: Output, run: str) -> None:
    """Run an ended run again as a new run, which refers to the old one.

    \b
    Examples:
      chimes retry 0199ab
    """
    found = find_run(backend, run)
    output.rows([post(backend, api_path("runs", found["id"], "retry"), {})], RUN_COLUMNS)


_KNOWN_COLUMNS = (
    Column(_("run"), getter("run_id")),
    Column(_("schedule"), getter("schedule_id")),
    Column(_("reason"), getter("reason")),
    Column(_("by"), getter("by")),
    Column(_("at"), getter("at"), time=True),
)


@click.command("known", cls=Command)
@click.argument("schedule")
@click.option("--reason", default="", help="Reason, shown to other users.")
@click.option("--forget", is_flag=True, help="Remove the mark, so that failures count again.")
@output_options
@client_options
def known(backend: Backend, output: Output, schedule: str, reason: str, forget: bool) -> None:
    """Mark the latest failure of a schedule as known. The same error then needs no attention,
    until the schedule succeeds or fails with another error.

    \b
    Examples:
      chimes known "Morning report" --reason "the bank is closed until Monday"
      chimes known "Morning report" --forget
    """
    if forget and reason:
        raise click.UsageError(_("Give either --reason or --forget, not both."))
    found = find_schedule(backend, schedule)
    path = api_path("runs", _latest_failure(backend, found)["id"], "known")
    if forget:
        delete(backend, path)
        echo_err(_("Failures of {schedule} need attention again.", schedule=found.get("name")))
        return
    output.rows([post(backend, path, {"reason": reason})], _KNOWN_COLUMNS)


def _latest_failure(backend: Backend, schedule: Json) -> Json:
    statuses = ",".join(status.value for status in FAILED_STATUSES)
    latest = list(
        paginate(backend, api_path("schedules", schedule["id"], "runs"), 1, status=statuses)
    )
    if not latest:
        raise CommandError(_("{schedule} has not failed", schedule=schedule.get("name")), NOT_FOUND)
    return latest[0]


@click.command("reply", cls=Command)
@click.argument("run")
@click.argument("text")
@output_options
@client_options
def reply(backend: Backend, output: Output, run: str, text: str) -> None:
    """Reply to the answer of an agent. Starts a new run with the conversation so far. TEXT is the
    reply; @FILE reads a file, - reads stdin.

    \b
    Examples:
      chimes reply 0199ab "And in French?"
      chimes reply 0199ab @questions.txt
    """
    found = find_run(backend, run)
    answer = post(
        backend, api_path("runs", found["id"], "reply"), {"text": read_text_argument(text)}
    )
    output.rows([answer], RUN_COLUMNS)
