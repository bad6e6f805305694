"""`ls`, `show`, `rm`, `upcoming`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import click

from chimes.cli.backend import Backend, delete, get, items_of, pages, path_of
from chimes.cli.failure import FAILED
from chimes.cli.finding import find_schedule
from chimes.cli.lazy import Command
from chimes.cli.options import Whole, client_options, output_options, yes_option
from chimes.cli.output import Column, Json, Output, countdown, echo, parsed, pick, tell
from chimes.cli.shapes import piped_schedule_columns, schedule_columns, schedule_details
from chimes.clock import SystemClock
from chimes.redaction import escaped
from chimes.wording import say

_SORTS = {
    "next": "next_run_at",
    "name": "name",
    "created": "created_at",
    "updated": "updated_at",
}
_BAR = 48


@click.command("ls", cls=Command)
@click.argument("text", required=False)
@click.option("--paused", "enabled", flag_value=False, type=bool, default=None, help="Only paused.")
@click.option("--active", "enabled", flag_value=True, type=bool, help="Only active.")
@click.option("--label", metavar="NAME[=VALUE]", help="Only with this label.")
@click.option("--sort", type=click.Choice(list(_SORTS)), default="next", show_default=True)
@click.option("-n", "--limit", type=Whole(1), default=None, help="At most this many.")
@output_options
@client_options
def ls(
    backend: Backend,
    output: Output,
    text: str | None,
    enabled: bool | None,
    label: str | None,
    sort: str,
    limit: int | None,
) -> None:
    """List schedules; TEXT is part of a name.

    \b
    Examples:
      chimes ls
      chimes ls report --active --sort name
      chimes ls --json=id,name,next_run_at
      chimes ls -q --paused | xargs chimes resume
    """
    query = {
        "q": text,
        "enabled": None if enabled is None else str(enabled).lower(),
        "label": label,
        "sort": _SORTS[sort],
    }
    rows = pages(backend, "/schedules", limit, **query)
    columns = schedule_columns(SystemClock().now())
    output.rows(rows, columns if output.for_people else piped_schedule_columns())


@click.command("show", cls=Command)
@click.argument("schedule")
@output_options
@client_options
def show(backend: Backend, output: Output, schedule: str) -> None:
    """Show one schedule; SCHEDULE is an id, its beginning, or a name.

    \b
    Examples:
      chimes show "Morning report"
      chimes show 0199 --json
    """
    output.one(find_schedule(backend, schedule), schedule_details(SystemClock().now()))


@click.command("rm", cls=Command)
@click.argument("schedules", nargs=-1, required=True)
@yes_option
@client_options
@click.pass_context
def rm(
    ctx: click.Context, backend: Backend, ask: Callable[..., bool], schedules: tuple[str, ...]
) -> None:
    """Delete schedules. Runs that are under way go on to their end.

    \b
    Examples:
      chimes rm "Morning report"
      chimes rm 0199aa 0199bb --yes
    """
    found = [find_schedule(backend, each) for each in schedules]
    names = ", ".join(str(each.get("name") or each["id"]) for each in found)
    if not ask(say("Delete {names}?", names=names), careful=True):
        tell(say("Nothing was deleted; --yes would do it without asking."))
        ctx.exit(FAILED)
    for each in found:
        delete(backend, path_of("schedules", each["id"]))
        echo(escaped(str(each["id"])))


@click.command("upcoming", cls=Command)
@click.option("--for", "span", default="24h", show_default=True, metavar="DURATION")
@output_options
@client_options
def upcoming(backend: Backend, output: Output, span: str) -> None:
    """Show what comes next, as bars on a terminal.

    \b
    Examples:
      chimes upcoming
      chimes upcoming --for 2h --utc
    """
    from chimes.triggers import parse_duration

    length = parse_duration(span, field="--for")
    hours = length / timedelta(hours=1)
    now = SystemClock().now()
    items = items_of(get(backend, "/upcoming", hours=hours, limit=1000))
    if output.form == "ids":
        rows: list[Json] = [item | {"id": item.get("schedule_id")} for item in items]
        output.rows(rows, [])
        return
    columns = [
        Column(say("at"), pick("at"), time=True),
        Column(say("schedule"), pick("name")),
        Column(say("id"), pick("schedule_id"), rank=2),
    ]
    if output.for_people:
        columns += [
            Column(say("in"), lambda item: countdown(parsed(str(item["at"])), now), rank=1),
            Column("", lambda item: _bar(parsed(str(item["at"])) - now, length), rank=3),
        ]
    output.rows(items, columns)


def _bar(left: timedelta, length: timedelta) -> str:
    place = min(_BAR - 1, max(0, int(left / length * _BAR)))
    return "·" * place + "█" + "·" * (_BAR - 1 - place)
