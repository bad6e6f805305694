"""Rows of `t_action_schedule` become schedules (R0.37): pure. All that a row says is kept but its
lock, and a next time that its cron does not have.

Where a row cannot be a schedule, because its cron never comes, its JSON is none or a time is
beyond all calendars, it is refused with the reason; what it takes to import the others is for the
caller to decide.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from chimes.doors.compat.kweaver import facts
from chimes.doors.compat.kweaver.wire import Account, with_expression, written_by
from chimes.errors import InvalidInput
from chimes.model.access import Owner
from chimes.model.ids import ScheduleId
from chimes.model.policy import Policy
from chimes.model.schedule import Schedule, at_slot, planned
from chimes.model.target import ActionTarget
from chimes.model.target_rules import check_target
from chimes.store.sql.kweaver_table import ActionRow, ActionTable
from chimes.triggers import Cron
from chimes.triggers.moment import LAST_MICROSECOND
from chimes.wording import say

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
            say("its status is {status!r}, neither active nor inactive", status=row.status)
        )
    trigger = facts.cron(row.cron_expression, timezone)
    if trigger.next_after(now) is None:
        raise InvalidInput(
            say("{cron!r} never comes: no moment matches it", cron=row.cron_expression)
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
        return planned(schedule, now), True
    on_grid = trigger.next_after(stored - timedelta(microseconds=1)) == stored
    if on_grid:
        return at_slot(schedule, stored), True
    return planned(schedule, min(stored, now)), False


def same_clock(found: Read) -> bool:
    """False: most times are none of their crons, so the zone is not the one they were made in."""
    active = sum(each.enabled for each in found.schedules)
    return not found.elsewhere or 2 * len(found.elsewhere) < active


def moment(milliseconds: int, column: str) -> datetime | None:
    """None: there is no such time yet. InvalidInput for one that no schedule can have (S23)."""
    if milliseconds > LAST_MICROSECOND // 1000:
        raise InvalidInput(
            say(
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
        raise InvalidInput(say("its identities are not a JSON array of objects"))
    return tuple(found)


def _params(text: str) -> Mapping[str, object]:
    found = _json(text, "{}")
    if not isinstance(found, dict):
        raise InvalidInput(say("its dynamic_params are not a JSON object"))
    return found


def _json(text: str, empty: str) -> object:
    try:
        found: object = json.loads(text.strip() or empty)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(say("it holds JSON that cannot be read: {error}", error=error)) from None
    return json.loads(empty) if found is None else found
