"""What becomes of a due schedule: which runs its slots turn into, and where its cursor goes.

Pure: the store calls `plan` inside its transaction and writes down what it says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from chimes.model.change import replace
from chimes.model.ids import RunId, ScheduleId, manual_run_id, slot_run_id
from chimes.model.policy import UNLIMITED, Misfire, Overlap
from chimes.model.run import Origin, Reason, Run, RunStatus
from chimes.model.schedule import Schedule, at_slot, due_time, runs_left

#: On-time slots that one pass turns into runs for one schedule; the rest follow in the next pass.
ON_TIME_LIMIT = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class FireContext:
    """What the store knows about a due schedule besides the schedule itself."""

    #: Runs of its concurrency key that count against the limit, oldest first.
    admitted: tuple[RunId, ...] = ()
    #: When the schedule it depends on last succeeded.
    dependency_succeeded_at: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Firing:
    """The schedule with its cursor moved, the rows to insert, and runs to cancel."""

    schedule: Schedule
    runs: tuple[Run, ...]
    cancel: tuple[RunId, ...] = ()


def plan(schedule: Schedule, context: FireContext, now: datetime) -> Firing:
    """C1 for slots that are late, C6 for slots that overlap, R2.39 for dependencies."""
    schedule = _above_purge_mark(schedule)
    if schedule.next_slot is None or schedule.next_run_at is None or schedule.next_run_at > now:
        return Firing(schedule=schedule, runs=())
    late, first = _late_slots(schedule, now)
    rows: list[Run] = []
    if late.missed_count:
        rows.append(_missed(schedule, late, now))
    on_time: list[datetime] = []
    cursor = first
    if not late.more:
        on_time, cursor = _on_time(schedule, first, now, fired=len(late.run))
    to_run = [(slot, True) for slot in late.run] + [(slot, False) for slot in on_time]
    passed = max((slot for slot, _ in to_run), default=late.missed_until or schedule.next_slot)
    admission = _Admission(schedule, context, now)
    rows.extend(admission.decide(slot, catch_up=catch_up) for slot, catch_up in to_run)
    fired = sum(not row.status.terminal for row in rows)
    moved = replace(
        schedule,
        fired_count=schedule.fired_count + fired,
        last_slot=max(passed, late.missed_until or passed),
        last_enqueued_at=now if fired else schedule.last_enqueued_at,
    )
    for row in rows:
        if row.status.terminal:
            moved = replace(moved, last_status=row.status, last_error=row.error)
    if cursor is not None and not runs_left(moved):
        cursor = None
    return Firing(schedule=at_slot(moved, cursor), runs=tuple(rows), cancel=admission.cancel)


@dataclass(frozen=True, slots=True)
class _Late:
    run: tuple[datetime, ...] = ()
    missed_from: datetime | None = None
    missed_until: datetime | None = None
    missed_count: int = 0
    #: The limit of one pass is reached and late slots are left: nothing behind them goes first.
    more: bool = False


def _above_purge_mark(schedule: Schedule) -> Schedule:
    """A cursor that was set back below the mark would make slots anew whose rows are forgotten."""
    mark, slot = schedule.purged_until, schedule.next_slot
    if mark is None or slot is None or slot > mark:
        return schedule
    return at_slot(schedule, schedule.trigger.next_after(mark))


def _late_slots(schedule: Schedule, now: datetime) -> tuple[_Late, datetime | None]:
    """The slots beyond the grace, by policy, and the first slot that is not among them."""
    head = schedule.next_slot
    assert head is not None
    assert schedule.next_run_at is not None
    policy = schedule.policy
    bound = now - policy.misfire_grace
    if schedule.next_run_at >= bound:
        return _Late(), head
    if policy.misfire is Misfire.ALL:
        chosen: list[datetime] = []
        for slot in _slots(schedule, head):
            due = schedule.next_run_at if slot == head else due_time(schedule, slot)
            assert due is not None
            if due >= bound:
                return _Late(run=tuple(chosen)), slot
            if len(chosen) >= policy.catch_up_limit or not runs_left(schedule, len(chosen)):
                return _Late(run=tuple(chosen), more=True), slot
            chosen.append(slot)
        return _Late(run=tuple(chosen)), None
    trigger = schedule.trigger
    last = _last_late(schedule, head, bound)
    following, second = trigger.next_after(last), trigger.next_after(head)
    # The head is counted by itself: rescheduled by hand, it may lie beside the trigger's slots.
    behind = 0
    if second is not None and second <= last:
        behind = trigger.count_between(second, last)
    if policy.misfire is Misfire.SKIP:
        return _Late(missed_from=head, missed_until=last, missed_count=behind + 1), following
    if not behind:
        return _Late(run=(head,)), following
    return _Late((head,), second, last, behind), following


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


def _on_time(
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


class _Admission:
    """Decides slot by slot, in order, what the overlap policy makes of it."""

    def __init__(self, schedule: Schedule, context: FireContext, now: datetime) -> None:
        self._schedule = schedule
        self._now = now
        self._limit = schedule.policy.concurrency_limit
        self._admitted = len(context.admitted)
        self._cancelable = list(context.admitted)
        self._started_one = False
        self._context = context
        self.cancel: tuple[RunId, ...] = ()

    def decide(self, slot: datetime, *, catch_up: bool) -> Run:
        run = slot_run(self._schedule, slot, self._now, catch_up=catch_up)
        if self._dependency_unmet():
            return ended_at_once(run, RunStatus.SKIPPED, Reason.DEPENDENCY, self._now)
        if self._admitted < self._limit:
            self._admitted += 1
            self._started_one = True
            return run
        overlap = self._schedule.policy.overlap
        # Slots that one late pass brings together did not overlap by themselves: they wait for
        # each other instead of being dropped.
        if catch_up or self._started_one or overlap in (Overlap.QUEUE, Overlap.ALLOW):
            return replace(run, blocked=True)
        if overlap is Overlap.CANCEL_OLD:
            if self._cancelable:
                self.cancel = (*self.cancel, self._cancelable.pop(0))
            return replace(run, blocked=True)
        return ended_at_once(run, RunStatus.SKIPPED, Reason.OVERLAP, self._now)

    def _dependency_unmet(self) -> bool:
        depends_on = self._schedule.depends_on
        if depends_on is None:
            return False
        succeeded_at = self._context.dependency_succeeded_at
        return succeeded_at is None or succeeded_at < self._now - depends_on.within


def _missed(schedule: Schedule, late: _Late, now: datetime) -> Run:
    assert late.missed_from is not None
    row = slot_run(schedule, late.missed_from, now)
    return replace(
        ended_at_once(row, RunStatus.MISSED, Reason.MISFIRE, now),
        missed_count=late.missed_count,
        missed_until=late.missed_until,
    )


def slot_run(schedule: Schedule, slot: datetime, now: datetime, *, catch_up: bool = False) -> Run:
    """The run of a slot, waiting to be claimed."""
    planned_at = schedule.next_run_at if slot == schedule.next_slot else due_time(schedule, slot)
    assert planned_at is not None
    return replace(
        _run(schedule, slot_run_id(schedule.id, slot), Origin.SCHEDULE, planned_at, now),
        slot=slot,
        available_at=now if catch_up else planned_at,
        catch_up=catch_up,
        reason=Reason.CATCH_UP if catch_up else "",
    )


def manual_run(schedule: Schedule, now: datetime, *, beside_others: bool = False) -> Run:
    """C7: no slot, and nothing about the schedule changes. `beside_others`: at once, even while
    the schedule's limit is reached."""
    run = _run(schedule, manual_run_id(now), Origin.MANUAL, now, now)
    return replace(run, concurrency_key=None) if beside_others else run


def retry_run(run: Run, now: datetime) -> Run:
    """A run repeated by hand is a new run that names the old one."""
    return Run(
        id=manual_run_id(now),
        schedule_id=run.schedule_id,
        schedule_name=run.schedule_name,
        schedule_version=run.schedule_version,
        namespace=run.namespace,
        owner=run.owner,
        origin=Origin.MANUAL,
        retry_of=run.id,
        target=run.target,
        policy=run.policy,
        priority=run.priority,
        concurrency_key=run.concurrency_key,
        concurrency_limit=run.concurrency_limit,
        created_at=now,
        planned_at=now,
        available_at=now,
    )


def backfill_run(schedule: Schedule, slot: datetime, taken_by: Run | None, now: datetime) -> Run:
    """A past slot made up for. Where the slot has its record already (missed, skipped), that
    record stays, and the new run names it instead of taking the slot (C5)."""
    run_id = slot_run_id(schedule.id, slot)
    if taken_by is not None:
        run_id = slot_run_id(ScheduleId(f"{schedule.id}:backfill"), slot)
    return replace(
        _run(schedule, run_id, Origin.BACKFILL, slot, now),
        slot=None if taken_by else slot,
        retry_of=taken_by.id if taken_by else None,
        available_at=now,
        catch_up=True,
    )


def _run(
    schedule: Schedule, run_id: RunId, origin: Origin, planned_at: datetime, now: datetime
) -> Run:
    limit = schedule.policy.concurrency_limit
    return Run(
        id=run_id,
        schedule_id=schedule.id,
        schedule_name=schedule.name,
        schedule_version=schedule.version,
        namespace=schedule.namespace,
        owner=schedule.owner,
        origin=origin,
        target=schedule.target,
        policy=schedule.policy,
        priority=schedule.priority,
        concurrency_key=f"schedule:{schedule.id}" if limit < UNLIMITED else None,
        concurrency_limit=limit,
        created_at=now,
        planned_at=planned_at,
        available_at=planned_at,
    )


def ended_at_once(run: Run, status: RunStatus, reason: str, now: datetime) -> Run:
    return replace(run, status=status, reason=reason, finished_at=now)
