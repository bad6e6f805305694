"""Slots of schedules, past and to come, as the services show and use them."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from chimes.errors import Conflict, InvalidInput
from chimes.model.planning import ended_at_once, slot_run
from chimes.model.policy import Overlap
from chimes.model.run import Reason, Run, RunStatus
from chimes.model.schedule import Schedule, due_time, runs_left
from chimes.model.target import SyncTarget
from chimes.wording import say

BACKFILL_LIMIT = 1000
#: What a backfill can do about other runs of its schedule; to skip or stop them would undo what it
#: is there for.
BACKFILL_OVERLAPS = (Overlap.QUEUE, Overlap.ALLOW)
UPCOMING_LIMIT = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Upcoming:
    schedule: Schedule
    at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Backfill:
    """The slots of a range, those that are recorded already, and the runs made for the rest."""

    slots: tuple[datetime, ...]
    runs: tuple[Run, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """How the runs of a backfill go together."""

    #: At most so many at a time; None: as the schedule has it, or any number beside it.
    concurrency: int | None = None
    #: `queue`: they and other runs of the schedule share its places; `allow`: beside those.
    overlap: Overlap = Overlap.QUEUE


AS_THE_SCHEDULE = Pace()


def check_pace(pace: Pace) -> None:
    if pace.overlap not in BACKFILL_OVERLAPS:
        raise InvalidInput(
            say(
                "a backfill waits for other runs of the schedule (queue) or runs beside them "
                "(allow), it does not {overlap}",
                overlap=pace.overlap.value,
            ),
            field="overlap",
            code="not_for_backfill",
        )
    if pace.concurrency is not None and not 1 <= pace.concurrency <= BACKFILL_LIMIT:
        raise InvalidInput(
            say("between {least} and {most}", least=1, most=BACKFILL_LIMIT),
            field="concurrency",
            code="out_of_range",
        )


def paced(run: Run, pace: Pace, group: str) -> Run:
    """`group`: a key that only runs of this backfill have."""
    beside = pace.overlap is Overlap.ALLOW or run.concurrency_key is None
    if pace.concurrency is None:
        return replace(run, concurrency_key=None) if beside else run
    if beside:
        return replace(run, concurrency_key=group, concurrency_limit=pace.concurrency)
    # A limit that others share is not this backfill's to lift.
    shared = run.concurrency_key != f"schedule:{run.schedule_id}"
    limit = min(pace.concurrency, run.concurrency_limit) if shared else pace.concurrency
    return replace(run, concurrency_limit=limit)


def upcoming_fires(
    schedules: Iterable[Schedule], until: datetime, *, limit: int = UPCOMING_LIMIT
) -> list[Upcoming]:
    """Soonest first, at most `limit`; no more fires are computed than are answered."""
    waiting = [
        (schedule.next_run_at, schedule.id, schedule.next_slot, schedule)
        for schedule in schedules
        if schedule.next_run_at is not None and schedule.next_slot is not None
    ]
    heapq.heapify(waiting)
    found: list[Upcoming] = []
    fired: Counter[str] = Counter()
    while waiting and waiting[0][0] <= until and len(found) < limit:
        at, schedule_id, slot, schedule = waiting[0]
        found.append(Upcoming(schedule=schedule, at=at))
        fired[schedule_id] += 1
        following = schedule.trigger.next_after(slot)
        due = due_time(schedule, following)
        if following is None or due is None or not runs_left(schedule, fired[schedule_id]):
            heapq.heappop(waiting)
        else:
            heapq.heapreplace(waiting, (due, schedule_id, following, schedule))
    return found


class SlotIsDue(Exception):
    """A change that moves the cursor has to wait until the slot it stands on is fired."""


def left_behind(
    before: Schedule, after: Schedule, now: datetime, *, held: bool = False
) -> list[Run]:
    """F55: a slot belongs to the version that was current at its instant. A change that moves the
    cursor away from a slot whose instant has passed must leave a row for it: one that is due is
    fired first; one that only waits for its jitter becomes a run that waits as long, or, if the
    schedule is switched off, a skipped one. `held`: it was not to be fired yet, by what the
    schedulers were told, and is left as skipped (R1.38)."""
    slot, due = before.next_slot, before.next_run_at
    if slot is None or due is None or slot > now:
        return []
    if due <= now and not held:
        raise SlotIsDue
    run = replace(slot_run(before, slot, now), concurrency_key=None)
    if held or not after.enabled:
        return [ended_at_once(run, RunStatus.SKIPPED, Reason.PAUSED, now)]
    if isinstance(run.target, SyncTarget):
        # Without its key it could be the second of its pair; with it, nobody would look (R4.18).
        return [ended_at_once(run, RunStatus.SKIPPED, Reason.SKIPPED_BY_HAND, now)]
    return [run]


def planned_slot(schedule: Schedule) -> datetime:
    if schedule.next_slot is None:
        raise Conflict(say("nothing is planned for this schedule"), code="nothing_planned")
    return schedule.next_slot


def past_slots(schedule: Schedule, start: datetime, end: datetime) -> list[datetime]:
    if schedule.purged_until is not None:
        start = max(start, schedule.purged_until + timedelta(microseconds=1))
    slots: list[datetime] = []
    slot = schedule.trigger.next_after(start - timedelta(microseconds=1))
    while slot is not None and slot <= end:
        if len(slots) == BACKFILL_LIMIT:
            raise InvalidInput(
                say(
                    "more than {most} slots lie in this range; take a shorter one",
                    most=BACKFILL_LIMIT,
                ),
                field="to",
                code="too_many",
            )
        slots.append(slot)
        slot = schedule.trigger.next_after(slot)
    return slots
