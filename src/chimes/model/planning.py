"""What becomes of a due schedule: which runs its slots turn into, and where its cursor goes.

Pure: the store calls `plan` inside its transaction and writes down what it says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

from chimes.model.change import fast_constructor, replace
from chimes.model.ids import NodeId, RunId, ScheduleId, manual_run_id, slot_run_id
from chimes.model.policy import UNLIMITED, Misfire, Overlap
from chimes.model.run import Origin, Reason, Run, RunStatus, unblock
from chimes.model.schedule import Schedule, due_time, has_runs_left, plan_after, set_cursor

# @@ Which slots of a schedule are due now, and which of them are late (C1).

#: On-time slots that one pass turns into runs for one schedule; the rest follow in the next pass.
ON_TIME_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class LateSlots:
    run: tuple[datetime, ...] = ()
    missed_from: datetime | None = None
    missed_until: datetime | None = None
    missed_count: int = 0
    #: The limit of one pass is reached and late slots are left: nothing behind them goes first.
    more: bool = False


def skip_purged_slots(schedule: Schedule) -> Schedule:
    """A cursor that was set back below the mark would make slots anew whose rows are forgotten."""
    mark, slot = schedule.purged_until, schedule.next_slot
    if mark is None or slot is None or slot > mark:
        return schedule
    return set_cursor(schedule, schedule.trigger.next_after(mark))


def select_late_slots(schedule: Schedule, now: datetime) -> tuple[LateSlots, datetime | None]:
    """The slots beyond the grace, by policy, and the first slot that is not among them."""
    head = schedule.next_slot
    assert head is not None
    assert schedule.next_run_at is not None
    policy = schedule.policy
    bound = now - policy.misfire_grace
    if schedule.next_run_at >= bound:
        return LateSlots(), head
    if policy.misfire is Misfire.ALL:
        chosen: list[datetime] = []
        for slot in _slots(schedule, head):
            due = schedule.next_run_at if slot == head else due_time(schedule, slot)
            assert due is not None
            if due >= bound:
                return LateSlots(run=tuple(chosen)), slot
            if len(chosen) >= policy.catch_up_limit or not has_runs_left(schedule, len(chosen)):
                return LateSlots(run=tuple(chosen), more=True), slot
            chosen.append(slot)
        return LateSlots(run=tuple(chosen)), None
    trigger = schedule.trigger
    last = _last_late(schedule, head, bound)
    following, second = trigger.next_after(last), trigger.next_after(head)
    # The head is counted by itself: rescheduled by hand, it may lie beside the trigger's slots.
    behind = 0
    if second is not None and second <= last:
        behind = trigger.count_between(second, last)
    if policy.misfire is Misfire.SKIP:
        return LateSlots(missed_from=head, missed_until=last, missed_count=behind + 1), following
    if not behind:
        return LateSlots(run=(head,)), following
    return LateSlots((head,), second, last, behind), following


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


def select_on_time_slots(
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
        full = len(chosen) >= ON_TIME_LIMIT or not has_runs_left(schedule, fired + len(chosen))
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


#: In the result of a run that was skipped for an overlap: the run of its schedule that stood in
#: its way.
BLOCKING_RUN = "in_the_way"

_new_run = fast_constructor(Run)


@dataclass(frozen=True, kw_only=True, slots=True)
class FireContext:
    """What the store knows about a due schedule besides the schedule itself."""

    #: Runs of its concurrency key that count against the limit, oldest first.
    admitted: tuple[RunId, ...] = ()
    #: Those of them that are not the schedule's own. Only filled where `cancels_only_own_runs`.
    others: frozenset[RunId] = frozenset()
    #: When the schedule it depends on last succeeded.
    dependency_succeeded_at: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyPlan:
    """The schedule with its cursor moved, the rows to insert, and runs to cancel."""

    schedule: Schedule
    runs: tuple[Run, ...]
    cancel: tuple[RunId, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SingleSlotPlan:
    """What nearly every firing comes to: one slot, on time and free to go. The run is a copy of
    the schedule, and the cursor is one slot further; both are made when somebody asks for them,
    for a store may write this down in a shorter way."""

    before: Schedule
    run_id: RunId
    next_slot: datetime | None
    next_run_at: datetime | None
    now: datetime
    #: Under which its run is claimed.
    fence: int = 1

    cancel: ClassVar[tuple[RunId, ...]] = ()

    @property
    def schedule(self) -> Schedule:
        return replace(
            self.before,
            fired_count=self.before.fired_count + 1,
            last_slot=self.before.next_slot,
            last_enqueued_at=self.now,
            next_slot=self.next_slot,
            next_run_at=self.next_run_at,
        )

    @property
    def runs(self) -> tuple[Run, ...]:
        return (self.run(),)

    def run(self, node: NodeId | None = None) -> Run:
        """Waiting, or already claimed for the node."""
        before = self.before
        assert before.next_slot is not None
        assert before.next_run_at is not None
        return _run(
            before,
            self.run_id,
            Origin.SCHEDULE,
            before.next_run_at,
            self.now,
            slot=before.next_slot,
            node=node,
            fence=self.fence,
        )


_new_single_slot_plan = fast_constructor(SingleSlotPlan)


FirePlan = PolicyPlan | SingleSlotPlan


def plan(schedule: Schedule, context: FireContext, now: datetime) -> FirePlan:
    """C1 for slots that are late, C6 for slots that overlap, R2.39 for dependencies.

    A due time without a slot means that somebody resumed the schedule who cannot compute slots
    (SQL, C27): it is planned from that moment on, and no run is made (C8)."""
    schedule = skip_purged_slots(schedule)
    if schedule.next_run_at is None or schedule.next_run_at > now:
        return PolicyPlan(schedule=schedule, runs=())
    if schedule.next_slot is None:
        return PolicyPlan(schedule=plan_after(schedule, schedule.next_run_at), runs=())
    return _plan_single_slot(schedule, context, now) or _plan_by_policy(schedule, context, now)


def _plan_single_slot(
    schedule: Schedule, context: FireContext, now: datetime
) -> SingleSlotPlan | None:
    """None: it is not as simple as that."""
    head, due, policy = schedule.next_slot, schedule.next_run_at, schedule.policy
    assert head is not None
    assert due is not None
    if (
        due < now - policy.misfire_grace
        or schedule.depends_on is not None
        or len(context.admitted) >= policy.concurrency_limit
        or not has_runs_left(schedule)
        or due != due_time(schedule, head)
    ):
        return None
    following = schedule.trigger.next_after(head)
    following_due = due_time(schedule, following)
    if following_due is not None and following_due <= now:
        return None
    if not has_runs_left(schedule, 1):
        following = following_due = None
    run_id = slot_run_id(schedule.id, head)
    return _new_single_slot_plan(schedule, run_id, following, following_due, now, 1)


def _plan_by_policy(schedule: Schedule, context: FireContext, now: datetime) -> PolicyPlan:
    assert schedule.next_slot is not None
    late, first = select_late_slots(schedule, now)
    rows: list[Run] = []
    if late.missed_count:
        rows.append(_missed(schedule, late, now))
    on_time: list[datetime] = []
    cursor = first
    if not late.more:
        on_time, cursor = select_on_time_slots(schedule, first, now, fired=len(late.run))
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
    if cursor is not None and not has_runs_left(moved):
        cursor = None
    return PolicyPlan(schedule=set_cursor(moved, cursor), runs=tuple(rows), cancel=admission.cancel)


def runs_to_insert(runs: Sequence[Run], free: Collection[RunId]) -> tuple[Run, ...]:
    """Of the rows of a firing those that are to be inserted: the ones whose slot has none yet.

    A cursor that was set back passes slots that have their rows. A place given to such a slot is
    not used, so it goes to the next that waits: nobody else would ever let that one go."""
    if all(run.id in free for run in runs):
        return tuple(runs)
    unused = sum(run.admitted for run in runs if run.id not in free)
    rows: list[Run] = []
    for run in runs:
        if run.id not in free:
            continue
        if run.blocked and unused:
            unused -= 1
            rows.append(unblock(run))
        else:
            rows.append(run)
    return tuple(rows)


class _Admission:
    """Decides slot by slot, in order, what the overlap policy makes of it."""

    def __init__(self, schedule: Schedule, context: FireContext, now: datetime) -> None:
        self._schedule = schedule
        self._now = now
        self._limit = schedule.policy.concurrency_limit
        self._admitted = len(context.admitted)
        self._cancelable = [each for each in context.admitted if each not in context.others]
        self._in_line = False
        self._context = context
        self.cancel: tuple[RunId, ...] = ()

    def decide(self, slot: datetime, *, catch_up: bool) -> Run:
        run = slot_run(self._schedule, slot, self._now, catch_up=catch_up)
        if self._dependency_unmet():
            return end_immediately(run, RunStatus.SKIPPED, Reason.DEPENDENCY, self._now)
        if self._admitted < self._limit:
            self._admitted += 1
            self._in_line = True
            return run
        overlap = self._schedule.policy.overlap
        # Slots that one late pass brings together did not overlap by themselves: they wait for
        # each other instead of being dropped. Not tasks: of a pair only one is active, and one
        # that waits is active too (R4.18).
        waits = (catch_up or self._in_line) and self._schedule.target.kind != "sync"
        if waits or overlap in (Overlap.QUEUE, Overlap.ALLOW):
            self._in_line = True
            return replace(run, blocked=True)
        if overlap is Overlap.CANCEL_OLD:
            if self._cancelable:
                self.cancel = (*self.cancel, self._cancelable.pop(0))
            return replace(run, blocked=True)
        skipped = end_immediately(run, RunStatus.SKIPPED, Reason.OVERLAP, self._now)
        if self._schedule.policy.concurrency_key is not None or not self._context.admitted:
            # Under a shared key it may be somebody else's, who is not to be named (S04).
            return skipped
        return replace(skipped, result={BLOCKING_RUN: self._context.admitted[-1]})

    def _dependency_unmet(self) -> bool:
        depends_on = self._schedule.depends_on
        if depends_on is None:
            return False
        succeeded_at = self._context.dependency_succeeded_at
        return succeeded_at is None or succeeded_at < self._now - depends_on.within


def _missed(schedule: Schedule, late: LateSlots, now: datetime) -> Run:
    assert late.missed_from is not None
    row = slot_run(schedule, late.missed_from, now)
    return replace(
        end_immediately(row, RunStatus.MISSED, Reason.MISFIRE, now),
        missed_count=late.missed_count,
        missed_until=late.missed_until,
    )


def slot_run(schedule: Schedule, slot: datetime, now: datetime, *, catch_up: bool = False) -> Run:
    """The run of a slot, waiting to be claimed."""
    planned_at = schedule.next_run_at if slot == schedule.next_slot else due_time(schedule, slot)
    assert planned_at is not None
    return _run(
        schedule,
        slot_run_id(schedule.id, slot),
        Origin.SCHEDULE,
        planned_at,
        now,
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
    schedule: Schedule,
    run_id: RunId,
    origin: Origin,
    planned_at: datetime,
    now: datetime,
    *,
    slot: datetime | None = None,
    available_at: datetime | None = None,
    catch_up: bool = False,
    reason: str = "",
    node: NodeId | None = None,
    fence: int = 1,
) -> Run:
    """In the order of the fields of a run (`fast_constructor`). With a node: as `claimed` leaves it; none
    starts before it is planned."""
    limit = schedule.policy.concurrency_limit
    taken = node is not None
    return _new_run(
        run_id,
        schedule.id,
        schedule.name,
        schedule.version,
        schedule.namespace,
        schedule.owner,
        slot,
        origin,
        None,  # parent_id
        "",  # step
        None,  # retry_of
        schedule.target,
        schedule.policy,
        schedule.priority,
        catch_up,
        concurrency_key(schedule) if limit < UNLIMITED else None,
        limit,
        False,  # blocked
        RunStatus.RUNNING if taken else RunStatus.QUEUED,
        int(taken),  # attempt
        fence if taken else 0,
        node,
        False,  # started
        False,  # cancel_requested
        now,
        planned_at,
        available_at or planned_at,
        now if taken else None,  # claimed_at
        max(now, planned_at) if taken else None,  # started_at
        None,  # finished_at
        None,  # result
        "",  # error
        reason,
        0,  # missed_count
        None,  # missed_until
        (),  # attempts
    )


def cancels_only_own_runs(schedule: Schedule) -> bool:
    """Whether it matters whose the runs of its key are: a schedule that makes place for its next
    run may stop the one before, never that of somebody else who shares the key (C6)."""
    policy = schedule.policy
    return policy.overlap is Overlap.CANCEL_OLD and policy.concurrency_key is not None


def concurrency_key(schedule: Schedule) -> str:
    return schedule.policy.concurrency_key or f"schedule:{schedule.id}"


def end_immediately(run: Run, status: RunStatus, reason: str, now: datetime) -> Run:
    return replace(run, status=status, reason=reason, finished_at=now)


# @@ Runs that are taken ahead of their time (PERFORMANCE: lateness of a crowd).
#
# A node may claim the run of a slot shortly before it is due, and begin at the very moment. Until
# the slot is closed, a change of the schedule takes the run back as if it had never been made.

#: So many schedules have to come due together for it to pay to take them ahead of their time.
PREFETCH_MINIMUM = 50
#: So long before its time a slot counts as begun: changes come too late for it.
PREFETCH_CUTOFF = timedelta(milliseconds=100)

_MICROSECOND = timedelta(microseconds=1)
#: Longer than anybody looks ahead.
_LONG_BEFORE = timedelta(days=1)


def can_prefetch(schedule: Schedule, capabilities: Collection[str], now: datetime) -> bool:
    """Whether it is worth asking what its next slot, which is not due, comes to. One slot ahead at
    most, at the very moment it stands for: then `last_slot` tells whether there is one."""
    return (
        schedule.next_slot is not None
        and schedule.next_slot == schedule.next_run_at
        and (schedule.last_slot is None or schedule.last_slot <= now)
        and schedule.policy.concurrency_key is None
        and schedule.depends_on is None
        and schedule.target.requirement in capabilities
    )


def prefetch_plan(firing: SingleSlotPlan, now: datetime) -> SingleSlotPlan:
    """What a plan for its due time comes to at `now`.

    A slot that is taken back is fired again, under the same run id. So that nobody takes the one
    for the other, each claim ahead has a fence that no other claim of that slot has: it tells the
    moment of the claim."""
    due = firing.before.next_run_at
    assert due is not None
    return replace(firing, now=now, fence=2 + (now - due + _LONG_BEFORE) // _MICROSECOND)


def may_have_prefetched_run(schedule: Schedule, now: datetime) -> bool:
    """Whether there may be a run that can still be taken back."""
    return schedule.last_slot is not None and schedule.last_slot > now + PREFETCH_CUTOFF


def can_withdraw(run: Run, now: datetime) -> bool:
    """Nothing begins before its time, so it has not begun; and it is not closed."""
    return (
        run.origin is Origin.SCHEDULE
        and run.slot is not None
        and not run.status.terminal
        and run.planned_at > now + PREFETCH_CUTOFF
    )


def withdraw_prefetched(schedule: Schedule, run: Run, last_slot: datetime | None) -> Schedule:
    """The schedule without that run of it; `last_slot` is the newest slot before that has a row.
    `last_enqueued_at` stays: something was put into the queue then."""
    return replace(
        schedule,
        next_slot=run.slot,
        next_run_at=run.planned_at,
        last_slot=max(filter(None, (last_slot, schedule.purged_until)), default=None),
        fired_count=schedule.fired_count - 1,
    )
