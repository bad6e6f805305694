"""Which schedules somebody should look at, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from chimes.model.ids import RunId, ScheduleId
from chimes.model.run import RunStatus
from chimes.model.schedule import Schedule, runs_left

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Who pauses a schedule whose receiver wants no more calls.
ENGINE = "chimes"
#: How far back missed and late slots are looked for.
MISSED_WITHIN, LATE_WITHIN = timedelta(hours=24), timedelta(hours=1)


class Cause(StrEnum):
    """Why somebody should look at a schedule, the gravest first."""

    #: It could not be planned, or its receiver wants no more calls: nothing happens any more.
    STOPPED = "stopped"
    #: A secret or token is not accepted, by its receiver or by who is told of its results.
    REFUSED = "refused"
    FAILING = "failing"
    MISSED = "missed"
    LATE = "late"
    #: Its end has passed, and nobody has ended it.
    PAUSE_OVER = "pause_over"
    #: A change of the clocks is near, and moves or repeats one of its fires.
    CLOCK_CHANGE = "clock_change"


_GRAVITY = {cause: place for place, cause in enumerate(Cause)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Sign:
    """That a schedule needs attention."""

    schedule_id: ScheduleId
    cause: Cause
    #: When it was last seen.
    at: datetime
    #: How often: runs, slots; for FAILING in a row, as far as a glance goes.
    count: int = 1
    #: The longest, of LATE.
    lag: timedelta | None = None
    #: The newest run that shows it.
    run_id: RunId | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Attention:
    """A schedule with the gravest of its signs."""

    schedule: Schedule
    sign: Sign


@dataclass(frozen=True, kw_only=True, slots=True)
class Attentions:
    #: Schedules in all.
    total: int = 0
    items: tuple[Attention, ...] = ()


def gravest(signs: Iterable[Sign]) -> list[Sign]:
    """One for each schedule, the gravest; then the newest first."""
    best: dict[ScheduleId, Sign] = {}
    for sign in signs:
        known = best.get(sign.schedule_id)
        if known is None or _GRAVITY[sign.cause] < _GRAVITY[known.cause]:
            best[sign.schedule_id] = sign
    return sorted(
        best.values(),
        key=lambda sign: (_GRAVITY[sign.cause], -(sign.at - _EPOCH), sign.schedule_id),
    )


def joined(found: Attentions, more: Iterable[Attention]) -> Attentions:
    """With signs that the store does not look for. A schedule is there once, with its gravest."""
    known = {each.schedule.id: each for each in found.items}
    new = 0
    for each in more:
        before = known.get(each.schedule.id)
        new += before is None
        if before is None or _GRAVITY[each.sign.cause] < _GRAVITY[before.sign.cause]:
            known[each.schedule.id] = each
    order = gravest(each.sign for each in known.values())
    items = tuple(known[sign.schedule_id] for sign in order)
    return Attentions(total=found.total + new, items=items)


def stopped_by_error(schedule: Schedule) -> bool:
    """Nothing will come of it any more, and nobody wanted that: it was set aside because it could
    not be planned, or paused because its receiver is gone."""
    if not schedule.enabled:
        by_receiver = schedule.updated_by == ENGINE and schedule.pause_until is None
        return by_receiver and bool(schedule.pause_note)
    if schedule.next_run_at is not None or not schedule.last_error:
        return False
    if schedule.last_status is not RunStatus.FAILED or not runs_left(schedule):
        return False
    try:
        return schedule.trigger.next_after(schedule.last_slot or schedule.created_at) is not None
    except Exception:
        # What cannot be planned is what was set aside.
        return True
