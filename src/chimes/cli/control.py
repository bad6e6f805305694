"""`pause`, `resume`, `run`, `skip`, `move`, `backfill`."""

from __future__ import annotations

import click

from chimes.cli.backend import Backend, pages, path_of, post
from chimes.cli.failure import UNREACHABLE, Failure
from chimes.cli.finding import find_schedule
from chimes.cli.lazy import Command
from chimes.cli.options import client_options, output_options
from chimes.cli.output import Json, Output, echo, tell
from chimes.cli.shapes import RUN_COLUMNS, piped_schedule_columns, schedule_columns
from chimes.cli.targets import overrides
from chimes.cli.waiting import exit_code_of, wait_for
from chimes.clock import SystemClock
from chimes.wording import counted, say


def _chosen(backend: Backend, references: tuple[str, ...], matching: str | None) -> list[Json]:
    if bool(references) == bool(matching):
        raise click.UsageError(say("Name schedules, or give --all-matching TEXT."))
    if matching:
        return list(pages(backend, "/schedules", q=matching))
    return [find_schedule(backend, each) for each in references]


def _act(backend: Backend, schedule: Json, verb: str, body: Json) -> Json:
    return post(backend, path_of("schedules", schedule["id"], verb), body)


def _show(output: Output, schedules: list[Json]) -> None:
    people = output.for_people
    columns = schedule_columns(SystemClock().now()) if people else piped_schedule_columns()
    output.rows(schedules, columns)


@click.command("pause", cls=Command)
@click.argument("schedules", nargs=-1)
@click.option("--all-matching", "matching", metavar="TEXT", help="All whose name has this text.")
@click.option("--reason", default="", help="Kept with the schedule.")
@click.option("--until", metavar="TIME", help="Resume by itself then.")
@output_options
@client_options
def pause(
    backend: Backend,
    output: Output,
    schedules: tuple[str, ...],
    matching: str | None,
    reason: str,
    until: str | None,
) -> None:
    """Pause schedules: nothing fires until they are resumed.

    \b
    Examples:
      chimes pause "Morning report" --reason "maintenance"
      chimes pause --all-matching report --until 2030-01-01T00:00:00Z
    """
    body: Json = {"reason": reason} if reason else {}
    if until:
        body["until"] = until
    found = _chosen(backend, schedules, matching)
    _show(
        output, [post(backend, path_of("schedules", each["id"], "pause"), body) for each in found]
    )


@click.command("resume", cls=Command)
@click.argument("schedules", nargs=-1)
@click.option("--all-matching", "matching", metavar="TEXT", help="All whose name has this text.")
@output_options
@client_options
def resume(
    backend: Backend, output: Output, schedules: tuple[str, ...], matching: str | None
) -> None:
    """Resume paused schedules, from the next slot on.

    \b
    Examples:
      chimes resume "Morning report"
      chimes resume --all-matching report
    """
    found = _chosen(backend, schedules, matching)
    _show(output, [_act(backend, each, "resume", {}) for each in found])


@click.command("run", cls=Command)
@click.argument("schedule")
@click.option("--wait", is_flag=True, help="Until the run has ended; exit 8 if it failed.")
@click.option("--timeout", default="1h", show_default=True, help="How long to wait; exit 124.")
@click.option("--param", multiple=True, metavar="NAME=VALUE", help="Another one, this once.")
@click.option("--body", metavar="TEXT", help="Of the call, this once; @FILE reads a file.")
@click.option("--prompt", metavar="TEXT", help="Of the agent, this once; @FILE reads a file.")
@click.option("--message", metavar="TEXT", help="What to tell, this once; @FILE reads a file.")
@output_options
@client_options
@click.pass_context
def run_now(
    ctx: click.Context,
    backend: Backend,
    output: Output,
    schedule: str,
    wait: bool,
    timeout: str,
    param: tuple[str, ...],
    body: str | None,
    prompt: str | None,
    message: str | None,
) -> None:
    """Run a schedule now; its next regular run stays where it is.

    \b
    Examples:
      chimes run "Morning report"
      chimes run 0199 --wait --timeout 5m
      chimes run "Morning report" --param day=monday --param copies=2
    """
    given = overrides(param, body, prompt, message)
    found = find_schedule(backend, schedule)
    if wait and not backend.live:
        raise Failure(
            say("Nobody would carry the run out: no server is running"),
            UNREACHABLE,
            hint=say("start one with `chimes serve`, or leave --wait out"),
        )
    run = _act(backend, found, "run", given)
    if not backend.live:
        tell(say("The run is queued; it starts when a server does."))
    if wait:
        run = wait_for(backend, str(run["id"]), timeout)
    output.rows([run], RUN_COLUMNS)
    ctx.exit(exit_code_of(run) if wait else 0)


@click.command("skip", cls=Command)
@click.argument("schedule")
@click.option("--reason", default="", help="Kept in the audit.")
@output_options
@client_options
def skip(backend: Backend, output: Output, schedule: str, reason: str) -> None:
    """Skip the next run of a schedule; the slot leaves a row that says so.

    \b
    Examples:
      chimes skip "Morning report" --reason "holiday"
    """
    found = find_schedule(backend, schedule)
    body: Json = {"reason": reason} if reason else {}
    _show(output, [_act(backend, found, "skip", body)])


@click.command("move", cls=Command)
@click.argument("schedule")
@click.option("--to", "to", required=True, metavar="TIME", help="RFC 3339, or local in its zone.")
@output_options
@client_options
def move(backend: Backend, output: Output, schedule: str, to: str) -> None:
    """Move the next run of a schedule to another time, once.

    \b
    Examples:
      chimes move "Morning report" --to 2030-02-10T10:30:00+07:00
    """
    found = find_schedule(backend, schedule)
    body: Json = {"to": to, "timezone": found.get("timezone") or "UTC"}
    _show(output, [_act(backend, found, "move", body)])


@click.command("backfill", cls=Command)
@click.argument("schedule")
@click.option("--from", "start", required=True, metavar="TIME", help="First moment, inclusive.")
@click.option("--to", "end", required=True, metavar="TIME", help="Last moment, inclusive.")
@click.option("--dry-run", is_flag=True, help="Only show which slots it would be.")
@click.option(
    "--concurrency",
    type=click.IntRange(1, 1000),
    help="At most so many of them at a time; otherwise as the schedule.",
)
@click.option(
    "--overlap",
    type=click.Choice(["queue", "allow"]),
    default="queue",
    show_default=True,
    help="Wait for other runs of the schedule, or run beside them.",
)
@output_options
@client_options
def backfill(
    backend: Backend,
    output: Output,
    schedule: str,
    start: str,
    end: str,
    dry_run: bool,
    concurrency: int | None,
    overlap: str,
) -> None:
    """Run the slots of a stretch of time that have no run yet.

    \b
    Examples:
      chimes backfill report --from 2026-01-01T00:00:00Z --to 2026-01-07T00:00:00Z --dry-run
    """
    found = find_schedule(backend, schedule)
    body: Json = {
        "from": start,
        "to": end,
        "timezone": found.get("timezone") or "UTC",
        "dry_run": dry_run,
        "overlap": overlap,
    }
    if concurrency is not None:
        body["concurrency"] = concurrency
    answer = _act(backend, found, "backfill", body)
    if output.form in ("json", "ndjson"):
        output.one(answer, [])
        return
    slots, runs = _objects(answer, "slots"), _objects(answer, "runs")
    if runs:
        output.rows([run for run in runs if isinstance(run, dict)], RUN_COLUMNS)
    else:
        for slot in slots:
            echo(output.moment(str(slot)))
    if dry_run:
        tell(counted("{count} slot would run.", "{count} slots would run.", len(slots)))
    else:
        tell(counted("{count} slot is run.", "{count} slots are run.", len(slots)))


def _objects(answer: Json, name: str) -> list[object]:
    found = answer.get(name)
    return found if isinstance(found, list) else []
