"""`store import-kweaver`: imports the table of action schedules of KWeaver."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import click

from chimes.cli.command import CONFLICT, INVALID, USAGE, Command, CommandError
from chimes.cli.options import output_format_options, store_options
from chimes.cli.output import Column, Json, Output, echo_err, getter
from chimes.cli.store.commands import load_all, open_store
from chimes.clock import EPOCH
from chimes.config import Settings, StoreLocation, store_location
from chimes.errors import InvalidInput
from chimes.i18n import _, counted, joined
from chimes.model import replace
from chimes.model.access import Owner
from chimes.model.ids import ScheduleId
from chimes.model.policy import Policy
from chimes.model.schedule import Schedule, plan_after, set_cursor
from chimes.model.target import ActionTarget
from chimes.model.validation import check_target
from chimes.store.sql.database.kweaver_table import ActionRow, ActionTable
from chimes.triggers import Cron
from chimes.triggers.values import LAST_MICROSECOND
from chimes.web.compat.kweaver import translate as kweaver
from chimes.web.compat.kweaver.translate import Account, with_expression, written_by

if TYPE_CHECKING:
    from chimes.store.port import Item


_SHOWN_IDS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class _ImportOptions:
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
@click.option("--table", default="t_action_schedule", show_default=True, help="Name of the table.")
@click.option(
    "--timezone",
    default="UTC",
    show_default=True,
    help="Time zone of the host whose worker computed the stored times.",
)
@click.option(
    "--owner",
    default="system:default",
    show_default=True,
    metavar="TYPE:ID",
    help="Owner of the imported schedules.",
)
@click.option("--skip-unreadable", is_flag=True, help="Skip rows that cannot be imported.")
@click.option("--ignore-locks", is_flag=True, help="Import rows that are locked by a worker, too.")
@click.option(
    "--new-times",
    is_flag=True,
    help="Recompute stored times that do not match their cron expression.",
)
@click.option(
    "--take-over",
    is_flag=True,
    help="Rename the table in the database of the store, and replace it with the view.",
)
@click.option("--dry-run", is_flag=True, help="Show the result without importing.")
@output_format_options
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

    Ids, times and accounts are kept. Existing schedules are not changed, so the import can be
    repeated. Stop the old workers first: a schedule must not be run by both systems.

    \b
    Examples:
      chimes store import-kweaver mariadb://reader@db/kweaver --dry-run
      chimes store import-kweaver mariadb://reader@db/kweaver --timezone Asia/Shanghai
    """
    options = _ImportOptions(
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
    asyncio.run(_import(options, settings, output))


async def _import(options: _ImportOptions, settings: Settings, output: Output) -> None:
    from chimes.store.sql.database.kweaver_table import read_table, rename_aside

    destination = store_location(settings)
    if options.take_over:
        _check_take_over(options, destination)
    plan = await _plan(options, settings, options.table)
    renamed_to: str | None = None
    if options.dry_run:
        new = await _count_new(destination, plan)
    elif options.take_over:
        # The renamed table has no other writers, so it is read once more: rows may have changed.
        renamed_to = await rename_aside(options.source)
        new = await _take_over(options, settings, destination, renamed_to)
    else:
        new = await _import_plan(destination, plan)
    rows = len((await read_table(options.source, renamed_to or options.table)).rows)
    _print_report(options, output, plan, rows=rows, new=new, renamed_to=renamed_to)


async def _plan(options: _ImportOptions, settings: Settings, table: str) -> ImportPlan:
    from chimes.sdk.arguments import parse_owner
    from chimes.services.schedules.rules import action_policy
    from chimes.store.sql.database.kweaver_table import read_table
    from chimes.triggers.zones import parse_zone

    owner, zone = parse_owner(options.owner), parse_zone(options.timezone)
    policy = replace(action_policy(settings), misfire_grace=settings.misfire_grace)
    rows = await read_table(options.source, table)
    plan = plan_import(rows, timezone=zone.name, owner=owner, policy=policy)
    _check_plan(options, plan)
    return plan


async def _take_over(
    options: _ImportOptions, settings: Settings, destination: StoreLocation, renamed_to: str
) -> int:
    from chimes.store.sql.database.kweaver_table import create_view, restore_table

    try:
        new = await _import_plan(destination, await _plan(options, settings, renamed_to))
    except BaseException:
        await restore_table(options.source, renamed_to)
        raise
    await create_view(options.source)
    return new


async def _import_plan(destination: StoreLocation, plan: ImportPlan) -> int:
    async with open_store(destination) as store:
        _count, new = await load_all(store, _items(plan))
    return new


def _check_take_over(options: _ImportOptions, destination: StoreLocation) -> None:
    from chimes.store.sql.database.kweaver_table import TABLE, same_database

    if destination.kind != "mariadb" or not same_database(options.source, destination.url):
        raise CommandError(
            _("--take-over needs a table in the database of the store"),
            USAGE,
            hint=_("give the same database as URL and --store, or omit --take-over"),
        )
    if options.table != TABLE:
        raise CommandError(_("--take-over works only for the table {table}", table=TABLE), USAGE)


def _print_report(
    options: _ImportOptions,
    output: Output,
    plan: ImportPlan,
    *,
    rows: int,
    new: int,
    renamed_to: str | None,
) -> None:
    row: Json = {
        "id": options.table,
        "rows": rows,
        "readable": len(plan.schedules),
        "new": new,
        "refused": [{"id": each.id, "why": str(each.why)} for each in plan.rejected],
        "times_computed_anew": list(plan.off_schedule),
        "table_is_now": renamed_to,
    }
    columns = [
        Column(_("Rows"), getter("rows")),
        Column(_("Readable"), getter("readable")),
        Column(_("New"), getter("new")),
        Column(_("Recomputed times"), getter("times_computed_anew")),
        Column(_("Table renamed to"), getter("table_is_now")),
    ]
    output.one(row, columns)
    for each in plan.rejected:
        echo_err(_("Skipped {id}: {why}", id=each.id, why=each.why))
    if options.dry_run:
        echo_err(_("Nothing was imported."))


async def _count_new(destination: StoreLocation, plan: ImportPlan) -> int:
    """How many schedules would be new; does not create a store."""
    if not destination.server and (destination.path is None or not destination.path.exists()):
        return len(plan.schedules)
    async with open_store(destination) as store:
        existing = [await store.get_schedule(each.id) for each in plan.schedules]
    return existing.count(None)


async def _items(plan: ImportPlan) -> AsyncIterator[Item]:
    for schedule in plan.schedules:
        yield schedule


def _check_plan(options: _ImportOptions, plan: ImportPlan) -> None:
    """CommandError if the import would lose rows or run schedules twice."""
    if plan.rejected and not (options.skip_unreadable or options.dry_run):
        reasons = [
            _("{id}: {why}", id=each.id, why=each.why) for each in plan.rejected[:_SHOWN_IDS]
        ]
        raise CommandError(
            counted(
                "{count} row cannot be imported, so nothing was imported: {reasons}",
                "{count} rows cannot be imported, so nothing was imported: {reasons}",
                len(plan.rejected),
                reasons=joined("; ", reasons),
            ),
            INVALID,
            hint=_("correct them, or skip them with --skip-unreadable"),
        )
    if plan.locked and not (options.ignore_locks or options.dry_run):
        raise CommandError(
            counted(
                "{count} row is locked by a worker: {ids}",
                "{count} rows are locked by a worker: {ids}",
                len(plan.locked),
                ids=", ".join(plan.locked[:_SHOWN_IDS]),
            ),
            CONFLICT,
            hint=_(
                "stop the old workers and wait for their locks to expire, or use --ignore-locks"
            ),
        )
    if not (options.new_times or zone_matches(plan)):
        raise CommandError(
            _(
                "Most stored times do not match their cron expressions in {timezone}: {ids}",
                timezone=options.timezone,
                ids=", ".join(plan.other_zone[:_SHOWN_IDS]),
            ),
            INVALID,
            hint=_(
                "give the time zone of the host that computed them with --timezone,"
                " or recompute them with --new-times"
            ),
        )


# --- rows to schedules ----------------------------------------------------------------------------
# A schedule keeps everything in its row, except the lock and a next time that does not match its
# cron expression.

#: Locks older than this have been abandoned.
LOCK_TIMEOUT: Final = timedelta(minutes=5)
LOCK_TIMEOUT_MS: Final = LOCK_TIMEOUT // timedelta(milliseconds=1)
_MINUTE_MS = 60_000


@dataclass(frozen=True, kw_only=True, slots=True)
class RejectedRow:
    id: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportPlan:
    """What an import would do with the rows of a table."""

    schedules: tuple[Schedule, ...]
    rejected: tuple[RejectedRow, ...]
    #: Ids of rows that a worker of the other system has locked.
    locked: tuple[str, ...]
    #: Ids of rows whose time does not match their cron expression in this zone; it is recomputed.
    off_schedule: tuple[str, ...]
    #: Of these, the rows whose time may match in another zone.
    other_zone: tuple[str, ...] = ()


def plan_import(table: ActionTable, *, timezone: str, owner: Owner, policy: Policy) -> ImportPlan:
    now = time_from_ms(table.read_at, "now") or EPOCH
    schedules: list[Schedule] = []
    rejected: list[RejectedRow] = []
    off_schedule: list[ActionRow] = []
    for row in table.rows:
        try:
            schedule, on_schedule = schedule_from_row(
                row, timezone=timezone, owner=owner, policy=policy, now=now
            )
        except InvalidInput as error:
            rejected.append(RejectedRow(id=row.id, why=error.message))
            continue
        schedules.append(schedule)
        if not on_schedule:
            off_schedule.append(row)
    return ImportPlan(
        schedules=tuple(schedules),
        rejected=tuple(rejected),
        locked=tuple(row.id for row in table.rows if _is_locked(row, table.read_at)),
        off_schedule=tuple(row.id for row in off_schedule),
        # Cron has whole minutes: any other time was not computed from it in any zone.
        other_zone=tuple(row.id for row in off_schedule if row.next_run_time % _MINUTE_MS == 0),
    )


def schedule_from_row(
    row: ActionRow, *, timezone: str, owner: Owner, policy: Policy, now: datetime
) -> tuple[Schedule, bool]:
    """The schedule, and whether its next time matches the cron expression."""
    target = ActionTarget(
        action_type_id=row.action_type_id,
        kn_id=row.kn_id,
        branch=row.branch or kweaver.MAIN,
        identities=_identities(row.identities),
        params=_params(row.params),
        account_id=row.creator,
        account_type=row.creator_type,
    )
    check_target(target)
    if row.status not in kweaver.STATUSES:
        raise InvalidInput(
            _("unknown status {status!r}, expected active or inactive", status=row.status)
        )
    trigger = kweaver.cron(row.cron_expression, timezone)
    if trigger.next_after(now) is None:
        raise InvalidInput(_("{cron!r} never fires: no time matches it", cron=row.cron_expression))
    created = time_from_ms(row.create_time, "f_create_time") or now
    schedule = Schedule(
        id=ScheduleId(row.id),
        namespace=kweaver.NAMESPACE,
        name=row.name,
        owner=owner,
        trigger=trigger,
        target=target,
        policy=policy,
        enabled=row.status == kweaver.ACTIVE,
        last_run_at=time_from_ms(row.last_run_time, "f_last_run_time"),
        created_at=created,
        created_by=row.creator,
        updated_at=time_from_ms(row.update_time, "f_update_time") or created,
        updated_by=row.updater or row.creator,
    )
    schedule = written_by(with_expression(schedule, row.cron_expression), _updater(row))
    next_run_at = time_from_ms(row.next_run_time, "f_next_run_time")
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
    """The schedule with its stored next time if that matches the cron expression, else with the
    next one that does. A past time is kept, so that the misfire policy decides about it."""
    if stored is None:
        return plan_after(schedule, now), True
    on_schedule = trigger.next_after(stored - timedelta(microseconds=1)) == stored
    if on_schedule:
        return set_cursor(schedule, stored), True
    return plan_after(schedule, min(stored, now)), False


def zone_matches(plan: ImportPlan) -> bool:
    """Whether most stored times match their cron expressions, i.e. the zone is right."""
    active = sum(each.enabled for each in plan.schedules)
    return not plan.other_zone or 2 * len(plan.other_zone) < active


def time_from_ms(milliseconds: int, column: str) -> datetime | None:
    """None if there is no time. InvalidInput beyond the last supported year."""
    if milliseconds > LAST_MICROSECOND // 1000:
        raise InvalidInput(
            _(
                "{column} is {milliseconds} milliseconds, beyond the year 9998",
                column=column,
                milliseconds=milliseconds,
            )
        )
    return EPOCH + timedelta(milliseconds=milliseconds) if milliseconds > 0 else None


def _is_locked(row: ActionRow, now: int) -> bool:
    """Compares numbers, because lock times may be out of range for a datetime."""
    return bool(row.lock_holder) and row.lock_time > 0 and now - row.lock_time < LOCK_TIMEOUT_MS


def _identities(text: str) -> tuple[Mapping[str, object], ...]:
    found = _json(text, "[]")
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise InvalidInput(_("identities is not a JSON array of objects"))
    return tuple(found)


def _params(text: str) -> Mapping[str, object]:
    found = _json(text, "{}")
    if not isinstance(found, dict):
        raise InvalidInput(_("dynamic_params is not a JSON object"))
    return found


def _json(text: str, empty: str) -> object:
    try:
        found: object = json.loads(text.strip() or empty)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(_("invalid JSON: {error}", error=error)) from None
    return json.loads(empty) if found is None else found
