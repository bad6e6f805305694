"""`store import-kweaver`: imports an existing table of action schedules."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import click

from chimes.cli.command import CONFLICT, INVALID, USAGE, Command, Failure
from chimes.cli.options import form_options
from chimes.cli.output import Column, Json, Output, pick, tell
from chimes.cli.store import opened_store, store_options
from chimes.config import Settings, StoreLocation, store_location
from chimes.errors import InvalidInput
from chimes.i18n import _, counted, joined
from chimes.model.access import Owner
from chimes.model.ids import ScheduleId
from chimes.model.policy import Policy
from chimes.model.schedule import Schedule, set_cursor, plan_after
from chimes.model.target import ActionTarget
from chimes.model.validation import check_target
from chimes.store.sql.database.kweaver_table import ActionRow, ActionTable
from chimes.triggers import Cron
from chimes.triggers.moment import LAST_MICROSECOND
from chimes.web.compat.kweaver import translate as facts
from chimes.web.compat.kweaver.translate import Account, with_expression, written_by

if TYPE_CHECKING:
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
    from chimes.store.sql.database.kweaver_table import read_table, set_aside

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
    from chimes.sdk.arguments import parse_owner
    from chimes.services.validation import action_policy
    from chimes.store.sql.database.kweaver_table import read_table
    from chimes.triggers.zones import parse_zone

    owner, zone = parse_owner(asked.owner), parse_zone(asked.timezone)
    policy = replace(action_policy(settings), misfire_grace=settings.misfire_grace)
    rows = await read_table(asked.source, table)
    found = read(rows, timezone=zone.name, owner=owner, policy=policy)
    _check(asked, found)
    return found


async def _taken_over(asked: _Asked, settings: Settings, into: StoreLocation, aside: str) -> int:
    from chimes.store.sql.database.kweaver_table import put_back, show_view

    try:
        new = await _load(into, await _read(asked, settings, aside))
    except BaseException:
        await put_back(asked.source, aside)
        raise
    await show_view(asked.source)
    return new


async def _load(into: StoreLocation, found: Read) -> int:
    from chimes.cli.store import load_all

    async with opened_store(into) as store:
        _unused, new = await load_all(store, _each(found))
    return new


def _check_take_over(asked: _Asked, into: StoreLocation) -> None:
    from chimes.store.sql.database.kweaver_table import TABLE, same_database

    if into.kind != "mariadb" or not same_database(asked.source, into.url):
        raise Failure(
            _("--take-over is for a table in the database of the store itself"),
            USAGE,
            hint=_("name the same database as URL and with --store, or leave --take-over out"),
        )
    if asked.table != TABLE:
        raise Failure(_("--take-over is for the table {table} only", table=TABLE), USAGE)


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
        Column(_("Rows"), pick("rows")),
        Column(_("Readable"), pick("readable")),
        Column(_("New"), pick("new")),
        Column(_("Times computed anew"), pick("times_computed_anew")),
        Column(_("The table is now"), pick("table_is_now")),
    ]
    output.one(row, columns)
    for each in found.refused:
        tell(_("{id} was left out: {why}", id=each.id, why=each.why))
    if asked.dry_run:
        tell(_("Nothing was imported."))


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

    if found.refused and not (asked.skip_unreadable or asked.dry_run):
        reasons = [_("{id}: {why}", id=each.id, why=each.why) for each in found.refused[:_SHOWN]]
        raise Failure(
            counted(
                "{count} row cannot be a schedule, so none was imported: {reasons}",
                "{count} rows cannot be schedules, so none was imported: {reasons}",
                len(found.refused),
                reasons=joined("; ", reasons),
            ),
            INVALID,
            hint=_("mend them, or leave them out with --skip-unreadable"),
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
            hint=_("stop the old workers and wait until they have let go, or --ignore-locks"),
        )
    if not (asked.new_times or same_clock(found)):
        raise Failure(
            _(
                "Most times are none that their crons have in {timezone}: {ids}",
                timezone=asked.timezone,
                ids=", ".join(found.elsewhere[:_SHOWN]),
            ),
            INVALID,
            hint=_(
                "name the zone of the host that computed them with --timezone,"
                " or have them computed anew with --new-times"
            ),
        )


# @@ Rows of `t_action_schedule` become schedules (R0.37): pure. All that a row says is kept but
# its lock, and a next time that its cron does not have.
#
# Where a row cannot be a schedule, because its cron never comes, its JSON is none or a time is
# beyond all calendars, it is refused with the reason; what it takes to import the others is for
# the caller to decide.

#: A lock that is older than this belongs to nobody any more (R0.21).
STALE: Final = timedelta(minutes=5)
STALE_MS: Final = STALE // timedelta(milliseconds=1)
_MINUTE = 60_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    id: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Read:
    """What a table holds."""

    schedules: tuple[Schedule, ...]
    refused: tuple[Refused, ...]
    #: Rows that a worker of the other system holds at this moment.
    held: tuple[str, ...]
    #: Rows that name a time which their cron does not have in this zone; it is computed anew.
    off_grid: tuple[str, ...]
    #: Those of them whose time may well be one of their cron, but in another zone.
    elsewhere: tuple[str, ...] = ()


def read(table: ActionTable, *, timezone: str, owner: Owner, policy: Policy) -> Read:
    now = moment(table.read_at, "now") or _EPOCH
    schedules: list[Schedule] = []
    refused: list[Refused] = []
    off_grid: list[ActionRow] = []
    for row in table.rows:
        try:
            schedule, on_grid = schedule_of(
                row, timezone=timezone, owner=owner, policy=policy, now=now
            )
        except InvalidInput as error:
            refused.append(Refused(id=row.id, why=error.message))
            continue
        schedules.append(schedule)
        if not on_grid:
            off_grid.append(row)
    return Read(
        schedules=tuple(schedules),
        refused=tuple(refused),
        held=tuple(row.id for row in table.rows if _held(row, table.read_at)),
        off_grid=tuple(row.id for row in off_grid),
        # Cron knows whole minutes: any other time was never computed from it.
        elsewhere=tuple(row.id for row in off_grid if row.next_run_time % _MINUTE == 0),
    )


def schedule_of(
    row: ActionRow, *, timezone: str, owner: Owner, policy: Policy, now: datetime
) -> tuple[Schedule, bool]:
    """The schedule, and whether its next time is one that the cron has."""
    target = ActionTarget(
        action_type_id=row.action_type_id,
        kn_id=row.kn_id,
        branch=row.branch or facts.MAIN,
        identities=_identities(row.identities),
        params=_params(row.params),
        account_id=row.creator,
        account_type=row.creator_type,
    )
    check_target(target)
    if row.status not in facts.STATUSES:
        raise InvalidInput(
            _("its status is {status!r}, neither active nor inactive", status=row.status)
        )
    trigger = facts.cron(row.cron_expression, timezone)
    if trigger.next_after(now) is None:
        raise InvalidInput(
            _("{cron!r} never comes: no moment matches it", cron=row.cron_expression)
        )
    created = moment(row.create_time, "f_create_time") or now
    schedule = Schedule(
        id=ScheduleId(row.id),
        namespace=facts.NAMESPACE,
        name=row.name,
        owner=owner,
        trigger=trigger,
        target=target,
        policy=policy,
        enabled=row.status == facts.ACTIVE,
        last_run_at=moment(row.last_run_time, "f_last_run_time"),
        created_at=created,
        created_by=row.creator,
        updated_at=moment(row.update_time, "f_update_time") or created,
        updated_by=row.updater or row.creator,
    )
    schedule = written_by(with_expression(schedule, row.cron_expression), _updater(row))
    next_run_at = moment(row.next_run_time, "f_next_run_time")
    if not schedule.enabled:
        return schedule, True
    return _with_next_time(schedule, trigger, next_run_at, now)


def _updater(row: ActionRow) -> Account:
    if row.updater:
        return Account(row.updater, row.updater_type)
    return Account(row.creator, row.creator_type)


def _with_next_time(
    schedule: Schedule, trigger: Cron, stored: datetime | None, now: datetime
) -> tuple[Schedule, bool]:
    """A time that is due already stays: what it owes is for the misfire policy to say (C1)."""
    if stored is None:
        return plan_after(schedule, now), True
    on_grid = trigger.next_after(stored - timedelta(microseconds=1)) == stored
    if on_grid:
        return set_cursor(schedule, stored), True
    return plan_after(schedule, min(stored, now)), False


def same_clock(found: Read) -> bool:
    """False: most times are none of their crons, so the zone is not the one they were made in."""
    active = sum(each.enabled for each in found.schedules)
    return not found.elsewhere or 2 * len(found.elsewhere) < active


def moment(milliseconds: int, column: str) -> datetime | None:
    """None: there is no such time yet. InvalidInput for one that no schedule can have (S23)."""
    if milliseconds > LAST_MICROSECOND // 1000:
        raise InvalidInput(
            _(
                "its {column} is {milliseconds} milliseconds, which is beyond the year 9998",
                column=column,
                milliseconds=milliseconds,
            )
        )
    return _EPOCH + timedelta(milliseconds=milliseconds) if milliseconds > 0 else None


def _held(row: ActionRow, now: int) -> bool:
    """In plain numbers: a lock may have any."""
    return bool(row.lock_holder) and row.lock_time > 0 and now - row.lock_time < STALE_MS


def _identities(text: str) -> tuple[Mapping[str, object], ...]:
    found = _json(text, "[]")
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise InvalidInput(_("its identities are not a JSON array of objects"))
    return tuple(found)


def _params(text: str) -> Mapping[str, object]:
    found = _json(text, "{}")
    if not isinstance(found, dict):
        raise InvalidInput(_("its dynamic_params are not a JSON object"))
    return found


def _json(text: str, empty: str) -> object:
    try:
        found: object = json.loads(text.strip() or empty)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(_("it holds JSON that cannot be read: {error}", error=error)) from None
    return json.loads(empty) if found is None else found
