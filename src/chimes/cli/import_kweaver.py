"""`store import-kweaver`: an existing table of action schedules, with nothing lost (R0.37)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from chimes.cli.failure import CONFLICT, INVALID, USAGE, Failure
from chimes.cli.lazy import Command
from chimes.cli.options import form_options
from chimes.cli.output import Column, Json, Output, pick, tell
from chimes.cli.store import opened_store, store_options
from chimes.config import Settings, StoreLocation, store_location
from chimes.wording import counted, joined, say

if TYPE_CHECKING:
    from chimes.app.kweaver_import import Read
    from chimes.store.port import Item

_SHOWN = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    source: str
    table: str
    timezone: str
    owner: str
    skip_unreadable: bool
    ignore_locks: bool
    new_times: bool
    take_over: bool
    dry_run: bool


@click.command("import-kweaver", cls=Command)
@click.argument("source", metavar="URL")
@click.option("--table", default="t_action_schedule", show_default=True, help="Its name.")
@click.option(
    "--timezone",
    default="UTC",
    show_default=True,
    help="The zone of the host whose worker computed the times so far.",
)
@click.option(
    "--owner",
    default="system:default",
    show_default=True,
    metavar="TYPE:ID",
    help="Who the schedules belong to.",
)
@click.option("--skip-unreadable", is_flag=True, help="Import the others where rows are refused.")
@click.option("--ignore-locks", is_flag=True, help="Also rows that a worker holds right now.")
@click.option("--new-times", is_flag=True, help="Compute times anew that are none of their crons.")
@click.option(
    "--take-over",
    is_flag=True,
    help="Rename the table in the store's own database afterwards, so that the view can be there.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be imported, and stop.")
@form_options
@store_options
def import_kweaver(
    settings: Settings,
    output: Output,
    source: str,
    table: str,
    timezone: str,
    owner: str,
    skip_unreadable: bool,
    ignore_locks: bool,
    new_times: bool,
    take_over: bool,
    dry_run: bool,
) -> None:
    """Import a table of action schedules from the MariaDB database at URL.

    Ids, times and accounts stay as they are; what is in the store already stays, too, so that it
    can be repeated. Stop the old workers first: the same schedule must not have two masters.

    \b
    Examples:
      chimes store import-kweaver mariadb://reader@db/kweaver --dry-run
      chimes store import-kweaver mariadb://reader@db/kweaver --timezone Asia/Shanghai
    """
    asked = _Asked(
        source=source,
        table=table,
        timezone=timezone,
        owner=owner,
        skip_unreadable=skip_unreadable,
        ignore_locks=ignore_locks,
        new_times=new_times,
        take_over=take_over,
        dry_run=dry_run,
    )
    asyncio.run(_import(asked, settings, output))


async def _import(asked: _Asked, settings: Settings, output: Output) -> None:
    from chimes.store.sql.kweaver_table import read_table, set_aside

    into = store_location(settings)
    if asked.take_over:
        _check_take_over(asked, into)
    found = await _read(asked, settings, asked.table)
    new, aside = 0, None
    if asked.dry_run:
        new = await _unknown(into, found)
    elif asked.take_over:
        # From here on nobody can write to it any more, so it is read again.
        aside = await set_aside(asked.source)
        new = await _taken_over(asked, settings, into, aside)
    else:
        new = await _load(into, found)
    rows = len((await read_table(asked.source, aside or asked.table)).rows)
    _tell(asked, output, found, rows=rows, new=new, aside=aside)


async def _read(asked: _Asked, settings: Settings, table: str) -> Read:
    from chimes.app.kweaver_import import read
    from chimes.app.tasks import owner_of
    from chimes.service.targets import action_policy
    from chimes.store.sql.kweaver_table import read_table
    from chimes.triggers.zone import parse_zone

    owner, zone = owner_of(asked.owner), parse_zone(asked.timezone)
    policy = replace(action_policy(settings), misfire_grace=settings.misfire_grace)
    rows = await read_table(asked.source, table)
    found = read(rows, timezone=zone.name, owner=owner, policy=policy)
    _check(asked, found)
    return found


async def _taken_over(asked: _Asked, settings: Settings, into: StoreLocation, aside: str) -> int:
    from chimes.store.sql.kweaver_table import put_back, show_view

    try:
        new = await _load(into, await _read(asked, settings, aside))
    except BaseException:
        await put_back(asked.source, aside)
        raise
    await show_view(asked.source)
    return new


async def _load(into: StoreLocation, found: Read) -> int:
    from chimes.cli.transfer import load_all

    async with opened_store(into) as store:
        _, new = await load_all(store, _each(found))
    return new


def _check_take_over(asked: _Asked, into: StoreLocation) -> None:
    from chimes.store.sql.kweaver_table import TABLE, same_database

    if into.kind != "mariadb" or not same_database(asked.source, into.url):
        raise Failure(
            say("--take-over is for a table in the database of the store itself"),
            USAGE,
            hint=say("name the same database as URL and with --store, or leave --take-over out"),
        )
    if asked.table != TABLE:
        raise Failure(say("--take-over is for the table {table} only", table=TABLE), USAGE)


def _tell(
    asked: _Asked, output: Output, found: Read, *, rows: int, new: int, aside: str | None
) -> None:
    row: Json = {
        "id": asked.table,
        "rows": rows,
        "readable": len(found.schedules),
        "new": new,
        "refused": [{"id": each.id, "why": str(each.why)} for each in found.refused],
        "times_computed_anew": list(found.off_grid),
        "table_is_now": aside,
    }
    columns = [
        Column(say("Rows"), pick("rows")),
        Column(say("Readable"), pick("readable")),
        Column(say("New"), pick("new")),
        Column(say("Times computed anew"), pick("times_computed_anew")),
        Column(say("The table is now"), pick("table_is_now")),
    ]
    output.one(row, columns)
    for each in found.refused:
        tell(say("{id} was left out: {why}", id=each.id, why=each.why))
    if asked.dry_run:
        tell(say("Nothing was imported."))


async def _unknown(into: StoreLocation, found: Read) -> int:
    """How many would be new; looking must not make a store."""
    if not into.server and (into.path is None or not into.path.exists()):
        return len(found.schedules)
    async with opened_store(into) as store:
        known = [await store.get_schedule(each.id) for each in found.schedules]
    return known.count(None)


async def _each(found: Read) -> AsyncIterator[Item]:
    for schedule in found.schedules:
        yield schedule


def _check(asked: _Asked, found: Read) -> None:
    """Nothing is imported where something would be lost or done twice."""
    from chimes.app.kweaver_import import same_clock

    if found.refused and not (asked.skip_unreadable or asked.dry_run):
        reasons = [say("{id}: {why}", id=each.id, why=each.why) for each in found.refused[:_SHOWN]]
        raise Failure(
            counted(
                "{count} row cannot be a schedule, so none was imported: {reasons}",
                "{count} rows cannot be schedules, so none was imported: {reasons}",
                len(found.refused),
                reasons=joined("; ", reasons),
            ),
            INVALID,
            hint=say("mend them, or leave them out with --skip-unreadable"),
        )
    if found.held and not (asked.ignore_locks or asked.dry_run):
        raise Failure(
            counted(
                "A worker holds {count} row at this moment: {ids}",
                "A worker holds {count} rows at this moment: {ids}",
                len(found.held),
                ids=", ".join(found.held[:_SHOWN]),
            ),
            CONFLICT,
            hint=say("stop the old workers and wait until they have let go, or --ignore-locks"),
        )
    if not (asked.new_times or same_clock(found)):
        raise Failure(
            say(
                "Most times are none that their crons have in {timezone}: {ids}",
                timezone=asked.timezone,
                ids=", ".join(found.elsewhere[:_SHOWN]),
            ),
            INVALID,
            hint=say(
                "name the zone of the host that computed them with --timezone,"
                " or have them computed anew with --new-times"
            ),
        )
