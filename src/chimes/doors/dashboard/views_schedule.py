"""What the page of one schedule shows, from values to what a template needs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from chimes.doors.dashboard import times
from chimes.doors.dashboard.look import Look
from chimes.model.schedule import Schedule, runs_left
from chimes.triggers import Fire as Slot
from chimes.triggers import Note
from chimes.wording import Wording, say

SHOWN_FIRES = 5
_MICROSECOND = timedelta(microseconds=1)
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class NextFire:
    at: datetime
    #: By the schedule's clock, and by the reader's (or UTC, where they are the same).
    there: str
    here: str
    note: Note | None


def next_slots(schedule: Schedule, now: datetime, count: int = SHOWN_FIRES) -> list[Slot]:
    """The slots to come, from the cursor on, by the function that the scheduler and the preview
    use; of a paused one, what would come if it went on now."""
    trigger = schedule.trigger
    if trigger.max_runs is not None:
        count = min(count, max(0, trigger.max_runs - schedule.fired_count))
    if schedule.next_slot is None:
        return trigger.fires(now, count) if not schedule.enabled and runs_left(schedule) else []
    first = schedule.next_slot
    on_grid = trigger.next_after(first - _MICROSECOND) == first
    if on_grid:
        return trigger.fires(first - _MICROSECOND, count)
    return [Slot(first, trigger.local(first), None), *trigger.fires(first, count - 1)]


def second_clock(zone: str, look: Look) -> str:
    """Beside the schedule's own: the reader's, or UTC where that is the same one."""
    return look.zone if look.zone != zone else "UTC"


def next_fires(schedule: Schedule, look: Look, now: datetime) -> tuple[NextFire, ...]:
    zone = schedule.trigger.zone
    other = second_clock(zone, look)
    return tuple(
        NextFire(
            at=slot.at,
            there=times.absolute(slot.at, zone, look, now=now),
            here=times.absolute(slot.at, other, look, now=now),
            note=slot.note,
        )
        for slot in next_slots(schedule, now)
    )


def in_your_zone(schedule: Schedule, look: Look, now: datetime) -> Wording | None:
    """The next time by the reader's clock; None: both clocks agree, or nothing comes."""
    zone = schedule.trigger.zone
    slots = next_slots(schedule, now, 1)
    if not slots or look.zone == zone or not schedule.enabled:
        return None
    at = slots[0].at
    info, own = times.zone_info(zone), times.zone_info(look.zone)
    if at.astimezone(info).utcoffset() == at.astimezone(own).utcoffset():
        return None
    here = times.absolute(at, look.zone, look, now=now)
    return say("In your zone ({zone}) the next one is {here}.", zone=look.zone, here=here)
