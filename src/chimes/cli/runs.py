"""`runs`, `logs`, `cancel`, `retry`."""

from __future__ import annotations

import click

from chimes.cli.backend import (
    Backend,
    delete,
    find_run,
    find_schedule,
    log_lines,
    pages,
    path_of,
    post,
)
from chimes.cli.command import NOT_FOUND, Command, Failure
from chimes.cli.options import Whole, client_options, output_options
from chimes.cli.output import RUN_COLUMNS, Column, Json, Output, echo, pick, tell
from chimes.cli.schedules import text_in
from chimes.i18n import _
from chimes.model.insights import FAILED_STATUSES
from chimes.redaction import escaped

_LEVELS = ("debug", "info", "warning", "error", "critical")


@click.command("runs", cls=Command)
@click.argument("schedule", required=False)
@click.option("--status", multiple=True, help="Only these; may be given more than once.")
@click.option("--parent", metavar="RUN", help="Only the steps of this run of a flow.")
@click.option("--since", metavar="TIME", help="Planned at or after this moment.")
@click.option("--until", metavar="TIME", help="Planned before this moment.")
@click.option("-n", "--limit", type=Whole(1), default=50, show_default=True)
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
        path = path_of("schedules", find_schedule(backend, schedule)["id"], "runs")
    query = {
        "status": ",".join(status),
        "parent_id": None if parent is None else find_run(backend, parent)["id"],
        "since": since,
        "until": until,
    }
    rows = pages(backend, path, limit, **query)
    output.rows(rows, RUN_COLUMNS)


@click.command("logs", cls=Command)
@click.argument("run")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended.")
@click.option("--level", type=click.Choice(_LEVELS), default="debug", help="This level and above.")
@click.option("--grep", metavar="TEXT", help="Only lines that hold this text.")
@output_options
@client_options
def logs(
    backend: Backend, output: Output, run: str, follow: bool, level: str, grep: str | None
) -> None:
    """Show the log of a run; RUN is a run, or a schedule, whose latest run it then is.

    \b
    Examples:
      chimes logs 0199ab
      chimes logs "Morning report" -f
      chimes logs 0199ab --level error --ndjson
    """
    least = _LEVELS.index(level)
    for entry in log_lines(backend, str(_run_of(backend, run)["id"]), follow=follow):
        severity = str(entry.get("level", "info"))
        if _LEVELS.index(severity) < least if severity in _LEVELS else False:
            continue
        if grep and grep not in str(entry.get("message", "")):
            continue
        if output.form in ("json", "ndjson"):
            Output(form="ndjson", fields=output.fields).one(entry, [])
        else:
            at = output.moment(str(entry.get("at", "")))
            echo(f"{at}\t{severity}\t{escaped(str(entry.get('message', '')))}")


def _run_of(backend: Backend, reference: str) -> Json:
    try:
        return find_run(backend, reference)
    except Failure as failure:
        if failure.code != NOT_FOUND:
            raise
        schedule = find_schedule(backend, reference)
    latest = list(pages(backend, path_of("schedules", schedule["id"], "runs"), 1))
    if not latest:
        raise Failure(_("{schedule} has no runs yet", schedule=schedule.get("name")), NOT_FOUND)
    return latest[0]


@click.command("cancel", cls=Command)
@click.argument("run")
@output_options
@client_options
def cancel(backend: Backend, output: Output, run: str) -> None:
    """Cancel a run: a waiting one ends at once, a running one is asked to stop.

    \b
    Examples:
      chimes cancel 0199ab
    """
    found = find_run(backend, run)
    output.rows([post(backend, path_of("runs", found["id"], "cancel"), {})], RUN_COLUMNS)


@click.command("retry", cls=Command)
@click.argument("run")
@output_options
@client_options
def retry(backend: Backend, output: Output, run: str) -> None:
    """Run a run that has ended once more; the new run names the old one.

    \b
    Examples:
      chimes retry 0199ab
    """
    found = find_run(backend, run)
    output.rows([post(backend, path_of("runs", found["id"], "retry"), {})], RUN_COLUMNS)


# @@ `known`, `reply`: what people say about a run.

_KNOWN = (
    Column(_("run"), pick("run_id")),
    Column(_("schedule"), pick("schedule_id")),
    Column(_("reason"), pick("reason")),
    Column(_("by"), pick("by")),
    Column(_("at"), pick("at"), time=True),
)


@click.command("known", cls=Command)
@click.argument("schedule")
@click.option("--reason", default="", help="Stands beside it, for others.")
@click.option("--forget", is_flag=True, help="It counts again.")
@output_options
@client_options
def known(backend: Backend, output: Output, schedule: str, reason: str, forget: bool) -> None:
    """Mark the latest failure of a schedule as known: it needs no attention for the same error
    again, until it fails in another way or works.

    \b
    Examples:
      chimes known "Morning report" --reason "the bank is closed until Monday"
      chimes known "Morning report" --forget
    """
    if forget and reason:
        raise click.UsageError(_("Give --reason or --forget, not both."))
    found = find_schedule(backend, schedule)
    path = path_of("runs", _latest_failure(backend, found)["id"], "known")
    if forget:
        delete(backend, path)
        tell(_("The failures of {schedule} count again.", schedule=found.get("name")))
        return
    output.rows([post(backend, path, {"reason": reason})], _KNOWN)


def _latest_failure(backend: Backend, schedule: Json) -> Json:
    statuses = ",".join(status.value for status in FAILED_STATUSES)
    latest = list(pages(backend, path_of("schedules", schedule["id"], "runs"), 1, status=statuses))
    if not latest:
        raise Failure(_("{schedule} has not failed", schedule=schedule.get("name")), NOT_FOUND)
    return latest[0]


@click.command("reply", cls=Command)
@click.argument("run")
@click.argument("text")
@output_options
@client_options
def reply(backend: Backend, output: Output, run: str, text: str) -> None:
    """Answer an agent: a new run of it, which is told what it was asked and what it answered.
    TEXT is what to say; @FILE reads a file, - reads stdin.

    \b
    Examples:
      chimes reply 0199ab "And in French?"
      chimes reply 0199ab @questions.txt
    """
    found = find_run(backend, run)
    answer = post(backend, path_of("runs", found["id"], "reply"), {"text": text_in(text)})
    output.rows([answer], RUN_COLUMNS)
