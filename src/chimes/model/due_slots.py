"""Which slots of a schedule are due now, and which of them are late (C1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from chimes.model.policy import Misfire
from chimes.model.schedule import Schedule, at_slot, due_time, runs_left

#: On-time slots that one pass turns into runs for one schedule; the rest follow in the next pass.
ON_TIME_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class Late:
    run: tuple[datetime, ...] = ()
    missed_from: datetime | None = None
    missed_until: datetime | None = None
    missed_count: int = 0
    #: The limit of one pass is reached and late slots are left: nothing behind them goes first.
    more: bool = False


def above_purge_mark(schedule: Schedule) -> Schedule:
    """A cursor that was set back below the mark would make slots anew whose rows are forgotten."""
    mark, slot = schedule.purged_until, schedule.next_slot
    if mark is None or slot is None or slot > mark:
        return schedule
    return at_slot(schedule, schedule.trigger.next_after(mark))


def late_slots(schedule: Schedule, now: datetime) -> tuple[Late, datetime | None]:
    """The slots beyond the grace, by policy, and the first slot that is not among them."""
    head = schedule.next_slot
    assert head is not None
    assert schedule.next_run_at is not None
    policy = schedule.policy
    bound = now - policy.misfire_grace
    if schedule.next_run_at >= bound:
        return Late(), head
    if policy.misfire is Misfire.ALL:
        chosen: list[datetime] = []
        for slot in _slots(schedule, head):
            due = schedule.next_run_at if slot == head else due_time(schedule, slot)
            assert due is not None
            if due >= bound:
                return Late(run=tuple(chosen)), slot
            if len(chosen) >= policy.catch_up_limit or not runs_left(schedule, len(chosen)):
                return Late(run=tuple(chosen), more=True), slot
            chosen.append(slot)
        return Late(run=tuple(chosen)), None
    trigger = schedule.trigger
    last = _last_late(schedule, head, bound)
    following, second = trigger.next_after(last), trigger.next_after(head)
    # The head is counted by itself: rescheduled by hand, it may lie beside the trigger's slots.
    behind = 0
    if second is not None and second <= last:
        behind = trigger.count_between(second, last)
    if policy.misfire is Misfire.SKIP:
        return Late(missed_from=head, missed_until=last, missed_count=behind + 1), following
    if not behind:
        return Late(run=(head,)), following
    return Late((head,), second, last, behind), following


def _last_late(schedule: Schedule, head: datetime, bound: datetime) -> datetime:
    """The newest slot whose due time lies before `bound`: by stepping back, so that a gap of a
    month costs no more than a gap of a minute (F46)."""
    slot = schedule.trigger.previous_before(bound)
    while slot is not None and slot > head:
        due = due_time(schedule, slot)
        assert due is not None
        if due < bound:
            return slot
        slot = schedule.trigger.previous_before(slot)
    return head


def on_time_slots(
    schedule: Schedule, first: datetime | None, now: datetime, *, fired: int
) -> tuple[list[datetime], datetime | None]:
    """The slots that are due within the grace, and the first one after them."""
    chosen: list[datetime] = []
    for slot in _slots(schedule, first):
        # Slots behind one that was moved may be late by themselves: the next pass judges them.
        if chosen == [schedule.next_slot] and _head_moved(schedule):
            return chosen, slot
        due = schedule.next_run_at if slot == schedule.next_slot else due_time(schedule, slot)
        assert due is not None
        full = len(chosen) >= ON_TIME_LIMIT or not runs_left(schedule, fired + len(chosen))
        if due > now or full:
            return chosen, slot
        chosen.append(slot)
    return chosen, None


def _head_moved(schedule: Schedule) -> bool:
    return schedule.next_run_at != due_time(schedule, schedule.next_slot)


def _slots(schedule: Schedule, first: datetime | None) -> Iterator[datetime]:
    slot = first
    while slot is not None:
        yield slot
        slot = schedule.trigger.next_after(slot)
