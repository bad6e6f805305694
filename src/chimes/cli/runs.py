"""`runs`, `logs`, `cancel`, `retry`."""

from __future__ import annotations

import click

from chimes.cli.backend import Backend, pages, path_of, post
from chimes.cli.failure import NOT_FOUND, Failure
from chimes.cli.finding import find_run, find_schedule
from chimes.cli.lazy import Command
from chimes.cli.options import Whole, client_options, output_options
from chimes.cli.output import Json, Output, echo
from chimes.cli.shapes import RUN_COLUMNS
from chimes.cli.waiting import log_lines
from chimes.redaction import escaped
from chimes.wording import say

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
        raise Failure(say("{schedule} has no runs yet", schedule=schedule.get("name")), NOT_FOUND)
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
