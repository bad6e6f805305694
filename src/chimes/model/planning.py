"""Plans a due schedule: which runs its slots become, and where its cursor moves; and maintenance
windows, in which no schedule fires.

Pure: the store calls `plan` inside its transaction and writes the result.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace as replace_struct

from chimes.errors import Conflict, InvalidInput
from chimes.i18n import _
from chimes.model import replace
from chimes.model.ids import (
    RunId,
    ScheduleId,
    canonical_namespace,
    event_run_id,
    manual_run_id,
    slot_run_id,
)
from chimes.model.policy import UNLIMITED, Misfire, Overlap
from chimes.model.run import (
    Cause,
    Origin,
    Reason,
    Run,
    RunDefinition,
    RunStatus,
    own_key,
    shared_key,
    unblock,
)
from chimes.model.schedule import (
    Schedule,
    due_time,
    has_runs_left,
    plan_after,
    run_definition,
    set_cursor,
)
from chimes.triggers.values import format_moment, parse_moment

# --- maintenance ----------------------------------------------------------------------------------
# Periods in which no schedule of the instance, or of a namespace, fires (ADR 61). One document in
# the store holds the windows. Whatever fires schedules reads it in the transaction that moves their
# cursors, so that the state of the schedules themselves never changes.

#: Name of the checkpoint that holds the document.
MAINTENANCE_CHECKPOINT = "maintenance"
#: How long ended windows are remembered: slots in them that no node has fired yet are skipped.
WINDOW_RETENTION = timedelta(days=90)
MAX_WINDOWS = 100


class MaintenanceWindow(Struct, frozen=True, kw_only=True):
    #: Empty: every namespace.
    namespace: str = ""
    since: datetime
    #: The end, planned or past; None: until it is ended.
    until: datetime | None = None
    reason: str = ""
    by: str = ""
    #: Whether notifications are not sent meanwhile.
    silence: bool = False

    def covers(self, namespace: str, at: datetime) -> bool:
        return (
            self.namespace in ("", canonical_namespace(namespace))
            and self.since <= at
            and (self.until is None or at < self.until)
        )

    def is_active(self, now: datetime) -> bool:
        return self.since <= now and (self.until is None or now < self.until)


def find_window(
    windows: Iterable[MaintenanceWindow], namespace: str, at: datetime
) -> MaintenanceWindow | None:
    """The window that a schedule of this namespace is in at this time."""
    return next((each for each in windows if each.covers(namespace, at)), None)


def begin_window(
    windows: Sequence[MaintenanceWindow], new: MaintenanceWindow
) -> tuple[MaintenanceWindow, ...]:
    """A window that is active for the same namespace is extended or shortened, and keeps its
    begin. Of more than MAX_WINDOWS the ones that ended first are dropped; Conflict if none has
    ended."""
    now = new.since
    for each in windows:
        if each.namespace == new.namespace and each.is_active(now):
            changed = replace(
                each, until=new.until, reason=new.reason, by=new.by, silence=new.silence
            )
            return tuple(changed if one is each else one for one in windows)
    active = [each for each in windows if each.until is None or each.until > now]
    room = MAX_WINDOWS - 1 - len(active)
    if room < 0:
        raise Conflict(
            _(
                "{count} maintenance windows are on, which is the maximum; end one of them first",
                count=len(active),
            ),
            code="too_many_windows",
        )
    ended = sorted(
        (each.until, number)
        for number, each in enumerate(windows)
        if each.until is not None and now - WINDOW_RETENTION < each.until <= now
    )
    kept = [windows[number] for _until, number in ended[max(0, len(ended) - room) :]]
    return (*kept, *active, new)


def end_windows(
    windows: Sequence[MaintenanceWindow], namespace: str, now: datetime
) -> tuple[MaintenanceWindow, ...]:
    """Ends the active windows of this namespace; equal if there is none."""
    return tuple(
        replace(each, until=now) if each.namespace == namespace and each.is_active(now) else each
        for each in windows
    )


def windows_to_document(windows: Iterable[MaintenanceWindow]) -> dict[str, object]:
    return {
        "windows": [
            {
                "namespace": each.namespace,
                "since": format_moment(each.since),
                "until": None if each.until is None else format_moment(each.until),
                "reason": each.reason,
                "by": each.by,
            }
            | ({"silence": True} if each.silence else {})
            for each in windows
        ]
    }


def windows_from_document(document: object) -> tuple[MaintenanceWindow, ...]:
    """Rows that cannot be read are left out."""
    rows = document.get("windows") if isinstance(document, dict) else None
    found = []
    for row in rows if isinstance(rows, list) else ():
        try:
            until = row["until"]
            found.append(
                MaintenanceWindow(
                    namespace=str(row["namespace"]),
                    since=parse_moment(row["since"]),
                    until=None if until is None else parse_moment(until),
                    reason=str(row["reason"]),
                    by=str(row["by"]),
                    silence=row.get("silence") is True,
                )
            )
        except (KeyError, TypeError, InvalidInput):
            continue
    return tuple(found)


def windows_from_text(text: str | None) -> tuple[MaintenanceWindow, ...]:
    """From the value of the checkpoint."""
    if not text:
        return ()
    try:
        return windows_from_document(json.loads(text))
    except ValueError:
        return ()


# --- slots ----------------------------------------------------------------------------------------
#: On-time slots per schedule and pass; the rest follow in the next pass.
ON_TIME_LIMIT = 1000


class LateSlots(Struct, frozen=True, gc=False):
    run: tuple[datetime, ...] = ()
    missed_from: datetime | None = None
    missed_until: datetime | None = None
    missed_count: int = 0
    #: Late slots are left, because the limit of one pass or a maintenance window is reached; they
    #: come before on-time slots.
    more: bool = False


def skip_purged_slots(schedule: Schedule) -> Schedule:
    """Keep the cursor above `purged_until`: slots whose runs were pruned must not fire again."""
    mark, slot = schedule.purged_until, schedule.next_slot
    if mark is None or slot is None or slot > mark:
        return schedule
    return set_cursor(schedule, schedule.trigger.next_after(mark))


def select_late_slots(
    schedule: Schedule, now: datetime, windows: Sequence[MaintenanceWindow] = ()
) -> tuple[LateSlots, datetime | None]:
    """Apply the misfire policy to slots beyond the grace; also return the first slot after them.

    Missed slots may include slots of `windows` (`FireContext.windows`), slots to run do not."""
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
            full = len(chosen) >= policy.catch_up_limit or not has_runs_left(schedule, len(chosen))
            if full or (slot != head and find_window(windows, schedule.namespace, due)):
                return LateSlots(run=tuple(chosen), more=True), slot
            chosen.append(slot)
        return LateSlots(run=tuple(chosen)), None
    trigger = schedule.trigger
    last = _last_late(schedule, head, bound)
    following, second = trigger.next_after(last), trigger.next_after(head)
    # The head is counted separately: if rescheduled, it may not be a slot of the trigger.
    behind = 0
    if second is not None and second <= last:
        behind = trigger.count_between(second, last)
    if policy.misfire is Misfire.SKIP:
        return LateSlots(missed_from=head, missed_until=last, missed_count=behind + 1), following
    if not behind:
        return LateSlots(run=(head,)), following
    if policy.misfire is Misfire.LATEST:
        return _latest_late(schedule, head, last, windows)
    return LateSlots((head,), second, last, behind), following


def _latest_late(
    schedule: Schedule, head: datetime, last: datetime, windows: Sequence[MaintenanceWindow]
) -> tuple[LateSlots, datetime | None]:
    """The newest late slot that no window covers runs; those before it are missed. Slots of
    windows after it are skipped in the next pass."""
    trigger, newest = schedule.trigger, last
    while newest > head:
        due = due_time(schedule, newest)
        assert due is not None
        window = find_window(windows, schedule.namespace, due)
        if window is None:
            break
        newest = trigger.previous_before(min(newest, window.since)) or head
    following = trigger.next_after(newest)
    more = newest < last
    if newest <= head:
        return LateSlots(run=(head,), more=more), trigger.next_after(head)
    before = max(trigger.previous_before(newest) or head, head)
    second = trigger.next_after(head)
    count = 1
    if second is not None and second <= before:
        count += trigger.count_between(second, before)
    late = LateSlots(
        run=(newest,), missed_from=head, missed_until=before, missed_count=count, more=more
    )
    return late, following


def _last_late(schedule: Schedule, head: datetime, bound: datetime) -> datetime:
    """The newest slot due before `bound`. Steps backwards, so that a gap of a month costs no more
    than a gap of a minute."""
    slot = schedule.trigger.previous_before(bound)
    while slot is not None and slot > head:
        due = due_time(schedule, slot)
        assert due is not None
        if due < bound:
            return slot
        slot = schedule.trigger.previous_before(slot)
    return head


def select_on_time_slots(
    schedule: Schedule,
    first: datetime | None,
    now: datetime,
    *,
    fired: int,
    windows: Sequence[MaintenanceWindow] = (),
) -> tuple[list[datetime], datetime | None]:
    """The slots due within the grace, up to the first one in `windows`, and the first slot after
    them."""
    chosen: list[datetime] = []
    for slot in _slots(schedule, first):
        # Slots after a moved one may be late themselves: the next pass decides.
        if chosen == [schedule.next_slot] and _head_moved(schedule):
            return chosen, slot
        due = schedule.next_run_at if slot == schedule.next_slot else due_time(schedule, slot)
        assert due is not None
        full = len(chosen) >= ON_TIME_LIMIT or not has_runs_left(schedule, fired + len(chosen))
        in_window = slot != schedule.next_slot and find_window(windows, schedule.namespace, due)
        if due > now or full or in_window:
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


#: Key in the result of a run skipped for an overlap: the run that was active.
BLOCKING_RUN = "in_the_way"


class RunTemplate(Struct, frozen=True, kw_only=True, gc=False):
    """What the runs of one version of a schedule have in common."""

    definition: RunDefinition
    #: None: without a limit.
    concurrency_key: str | None
    concurrency_limit: int


def run_template(schedule: Schedule) -> RunTemplate:
    limit = schedule.policy.concurrency_limit
    return RunTemplate(
        definition=run_definition(schedule),
        concurrency_key=concurrency_key(schedule) if limit < UNLIMITED else None,
        concurrency_limit=limit,
    )


class FireContext(Struct, frozen=True, kw_only=True, gc=False):
    """State outside the schedule that a plan depends on."""

    #: `run_template` of the schedule, from a store that remembers it; None: the plan makes it.
    template: RunTemplate | None = None
    #: Runs of its concurrency key that count against the limit, oldest first.
    admitted: tuple[RunId, ...] = ()
    #: Those of `admitted` that belong to other schedules; only set if `cancels_only_own_runs`.
    others: frozenset[RunId] = frozenset()
    #: When the schedule it depends on last succeeded.
    dependency_succeeded_at: datetime | None = None
    #: Whether a catch-up slot of the schedule is blocked and ranks behind its on-time slots; only
    #: set if `may_wait_behind_backlog`.
    backlog: bool = False
    #: Ended maintenance windows of its namespace in which slots after the next one may lie.
    windows: tuple[MaintenanceWindow, ...] = ()


class FirePlan(Struct, frozen=True, kw_only=True, gc=False):
    """The updated schedule, the runs to insert and the runs to cancel."""

    schedule: Schedule
    runs: tuple[Run, ...]
    cancel: tuple[RunId, ...] = ()
    #: One slot, on time and admitted: the common case.
    on_time: bool = False


def plan(schedule: Schedule, context: FireContext, now: datetime) -> FirePlan:
    """Apply misfire policy, overlap policy and dependency to the due slots.

    A due time without a slot means that the schedule was resumed by SQL, which cannot compute
    slots: it is planned from that time and makes no run."""
    schedule = skip_purged_slots(schedule)
    if schedule.next_run_at is None or schedule.next_run_at > now:
        return FirePlan(schedule=schedule, runs=())
    if schedule.next_slot is None:
        return FirePlan(schedule=plan_after(schedule, schedule.next_run_at), runs=())
    return _plan_single_slot(schedule, context, now) or _plan_by_policy(schedule, context, now)


def _plan_single_slot(schedule: Schedule, context: FireContext, now: datetime) -> FirePlan | None:
    """None: the general plan is needed."""
    head, due, trigger = schedule.next_slot, schedule.next_run_at, schedule.trigger
    assert head is not None
    assert due is not None
    template = context.template or run_template(schedule)
    if (
        due < now - schedule.policy.misfire_grace
        or schedule.depends_on is not None
        or len(context.admitted) >= template.concurrency_limit
        or due != due_time(schedule, head)
    ):
        return None
    if trigger.max_runs is not None and not has_runs_left(schedule):
        return None
    following = trigger.next_after(head)
    following_due = due_time(schedule, following)
    if following_due is not None and following_due <= now:
        return None
    if trigger.max_runs is not None and not has_runs_left(schedule, 1):
        following = following_due = None
    run = slot_run(schedule, head, now, template=template)
    moved = replace_struct(
        schedule,
        fired_count=schedule.fired_count + 1,
        last_slot=head,
        last_enqueued_at=now,
        next_slot=following,
        next_run_at=following_due,
    )
    return FirePlan(schedule=moved, runs=(run,), on_time=True)


def _plan_by_policy(schedule: Schedule, context: FireContext, now: datetime) -> FirePlan:
    assert schedule.next_slot is not None
    windows = context.windows
    late, first = select_late_slots(schedule, now, windows)
    rows = _missed(schedule, late, windows, now) if late.missed_count else []
    on_time: list[datetime] = []
    cursor = first
    if not late.more:
        on_time, cursor = select_on_time_slots(
            schedule, first, now, fired=len(late.run), windows=windows
        )
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
    return FirePlan(schedule=set_cursor(moved, cursor), runs=tuple(rows), cancel=admission.cancel)


# --- maintenance: slots that are due in a window are recorded as skipped
Planner = Callable[[Schedule, FireContext, datetime], FirePlan]


def with_maintenance(plan: Planner, windows: Sequence[MaintenanceWindow]) -> Planner:
    """The planner that a store uses: `plan`, unless maintenance is on or was on."""
    if not windows:
        return plan

    def planned(schedule: Schedule, context: FireContext, now: datetime) -> FirePlan:
        skipped = _plan_in_maintenance(schedule, windows, now)
        if skipped is not None:
            return skipped
        due, namespace = schedule.next_run_at, schedule.namespace
        later = tuple(
            each
            for each in windows
            if due and each.until and due < each.until and each.covers(namespace, each.since)
        )
        return plan(schedule, replace_struct(context, windows=later) if later else context, now)

    return planned


def _plan_in_maintenance(
    schedule: Schedule, windows: Sequence[MaintenanceWindow], now: datetime
) -> FirePlan | None:
    """While maintenance is on, every due slot is skipped, also one from before. After it, the slots
    in its window are, which nodes that were stopped have not fired; later ones follow in the next
    pass. None: the next slot is not concerned."""
    schedule = skip_purged_slots(schedule)
    head, due = schedule.next_slot, schedule.next_run_at
    if head is None or due is None or due > now:
        return None
    window = find_window(windows, schedule.namespace, now)
    last = now
    if window is None:
        window = find_window(windows, schedule.namespace, due)
        if window is None or window.until is None:
            return None
        last = window.until - _MICROSECOND
    rows: list[Run] = []
    passed, slot = head, head
    late = min(last + _MICROSECOND, now - schedule.policy.misfire_grace)
    if due < late and not _head_moved(schedule):
        # One row for all of them, as for missed slots: a node may have been stopped for long.
        passed = _last_late(schedule, head, late)
        second = schedule.trigger.next_after(head)
        if second is not None and second <= passed:
            count = schedule.trigger.count_between(second, passed) + 1
            row = _skip_for_maintenance(schedule, head, now)
            rows.append(replace(row, missed_count=count, missed_until=passed))
            following = schedule.trigger.next_after(passed)
        else:
            following = head
    else:
        following = head
    while following is not None and len(rows) < ON_TIME_LIMIT:
        slot = following
        moment = due if slot == head else due_time(schedule, slot)
        if moment is None or moment > last:
            break
        rows.append(_skip_for_maintenance(schedule, slot, now))
        passed = slot
        following = schedule.trigger.next_after(slot)
        if slot == head and _head_moved(schedule):
            break
    moved = replace(
        schedule,
        last_slot=passed,
        last_status=RunStatus.SKIPPED,
        last_error="",
    )
    return FirePlan(schedule=set_cursor(moved, following), runs=tuple(rows))


def _skip_for_maintenance(schedule: Schedule, slot: datetime, now: datetime) -> Run:
    row = slot_run(schedule, slot, now)
    return end_immediately(row, RunStatus.SKIPPED, Reason.MAINTENANCE, now)


def runs_to_insert(runs: Sequence[Run], free: Collection[RunId]) -> tuple[Run, ...]:
    """The planned runs whose slot has no run yet.

    A cursor that was set back passes slots that have runs. A permit planned for such a slot is
    unused and unblocks the next planned run, since no completion would ever do that."""
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
    """Applies the overlap policy slot by slot."""

    def __init__(self, schedule: Schedule, context: FireContext, now: datetime) -> None:
        self._schedule = schedule
        self._now = now
        self._limit = schedule.policy.concurrency_limit
        self._admitted = len(context.admitted)
        self._cancelable = [each for each in context.admitted if each not in context.others]
        self._in_line = False
        self._owns_key = schedule.policy.concurrency_key is None
        #: A slot that waits now does so behind catch-up slots.
        self._behind_backlog = context.backlog
        self._context = context
        self.cancel: tuple[RunId, ...] = ()

    def decide(self, slot: datetime, *, catch_up: bool) -> Run:
        template = self._context.template
        run = slot_run(self._schedule, slot, self._now, catch_up=catch_up, template=template)
        if self._dependency_unmet():
            return end_immediately(run, RunStatus.SKIPPED, Reason.DEPENDENCY, self._now)
        if self._admitted < self._limit:
            self._admitted += 1
            self._in_line = True
            return run
        overlap = self._schedule.policy.overlap
        # Slots that a late pass fires together did not overlap when planned: they queue instead of
        # being skipped. Not sync runs: a queued one counts as the active run of its pair.
        waits = (catch_up or self._in_line) and self._schedule.target.kind != "sync"
        if waits or overlap in (Overlap.QUEUE, Overlap.ALLOW):
            self._in_line = True
            return self._block(run)
        if overlap is Overlap.CANCEL_OLD:
            if self._cancelable:
                self.cancel = (*self.cancel, self._cancelable.pop(0))
            return self._block(run)
        skipped = end_immediately(run, RunStatus.SKIPPED, Reason.OVERLAP, self._now)
        if self._schedule.policy.concurrency_key is not None or not self._context.admitted:
            # Under the key of a task the active run may belong to another owner: do not reveal it.
            return skipped
        return replace(skipped, result={BLOCKING_RUN: self._context.admitted[-1]})

    def _block(self, run: Run) -> Run:
        """Slots that wait for their own schedule start in slot order: one behind a catch-up slot
        takes its rank."""
        if self._owns_key:
            if self._behind_backlog and not run.catch_up:
                run = replace(run, catch_up=True, available_at=self._now)
            self._behind_backlog |= run.catch_up
        return replace(run, blocked=True)

    def _dependency_unmet(self) -> bool:
        depends_on = self._schedule.depends_on
        if depends_on is None:
            return False
        succeeded_at = self._context.dependency_succeeded_at
        return succeeded_at is None or succeeded_at < self._now - depends_on.within


def _missed(
    schedule: Schedule, late: LateSlots, windows: Sequence[MaintenanceWindow], now: datetime
) -> list[Run]:
    """One row for all missed slots; if maintenance was on in between, one for each part of them,
    and the slots of its windows are skipped instead."""
    first, end, trigger = late.missed_from, late.missed_until, schedule.trigger
    assert first is not None
    assert end is not None
    rows: list[Run] = []
    while first is not None:
        row = slot_run(schedule, first, now)
        window = find_window(windows, schedule.namespace, row.planned_at)
        last, count = end, late.missed_count
        if windows:
            bounds = [window.until] if window else [each.since for each in windows]
            bound = min((each for each in bounds if each and each > row.planned_at), default=None)
            if first == schedule.next_slot and _head_moved(schedule):
                # The slots after it may be due earlier.
                last = first
            elif bound is not None:
                last = min(end, _last_late(schedule, first, bound))
            count = 1
            if first < last:
                count += trigger.count_between(first + _MICROSECOND, last)
        if window is not None:
            row = end_immediately(row, RunStatus.SKIPPED, Reason.MAINTENANCE, now)
        else:
            row = end_immediately(row, RunStatus.MISSED, Reason.MISFIRE, now)
        rows.append(replace(row, missed_count=count, missed_until=last))
        first = trigger.next_after(last) if last < end else None
    return rows


def slot_run(
    schedule: Schedule,
    slot: datetime,
    now: datetime,
    *,
    catch_up: bool = False,
    template: RunTemplate | None = None,
) -> Run:
    """The queued run of a slot."""
    planned_at = schedule.next_run_at if slot == schedule.next_slot else due_time(schedule, slot)
    assert planned_at is not None
    template = template or run_template(schedule)
    return Run(
        id=slot_run_id(schedule.id, slot),
        definition=template.definition,
        slot=slot,
        origin=Origin.SCHEDULE,
        priority=schedule.priority,
        catch_up=catch_up,
        concurrency_key=template.concurrency_key,
        concurrency_limit=template.concurrency_limit,
        fence=_first_fence(schedule, slot) - 1,
        created_at=now,
        planned_at=planned_at,
        available_at=now if catch_up else planned_at,
        reason=Reason.CATCH_UP if catch_up else "",
    )


def manual_run(schedule: Schedule, now: datetime, *, beside_others: bool = False) -> Run:
    """A run without a slot; the schedule does not change. `beside_others`: start even if the
    concurrency limit is reached."""
    run = _run(schedule, manual_run_id(now), Origin.MANUAL, now, now)
    return replace(run, concurrency_key=None) if beside_others else run


def event_run(schedule: Schedule, cause: Cause, now: datetime) -> Run:
    """The run that an event starts."""
    run = _run(schedule, event_run_id(schedule.id, cause.delivery_id), Origin.EVENT, now, now)
    return replace(run, definition=replace(run.definition, cause=cause))


def retry_run(run: Run, now: datetime) -> Run:
    """A manual retry: a new run that refers to the old one."""
    key = run.concurrency_key
    if key is not None and key == run.policy.concurrency_key:
        # Runs of earlier versions have the key as it is in the policy.
        key = shared_key(run.policy, run.target, run.owner)
    return Run(
        id=manual_run_id(now),
        definition=run.definition,
        origin=Origin.MANUAL,
        retry_of=run.id,
        priority=run.priority,
        concurrency_key=key,
        concurrency_limit=run.concurrency_limit,
        created_at=now,
        planned_at=now,
        available_at=now,
    )


def backfill_run(schedule: Schedule, slot: datetime, taken_by: Run | None, now: datetime) -> Run:
    """The run of a past slot. If the slot already has a run (missed, skipped), that run stays and
    the new one refers to it instead of using the slot."""
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
) -> Run:
    """A run that no slot plans."""
    template = run_template(schedule)
    return Run(
        id=run_id,
        definition=template.definition,
        origin=origin,
        priority=schedule.priority,
        concurrency_key=template.concurrency_key,
        concurrency_limit=template.concurrency_limit,
        created_at=now,
        planned_at=planned_at,
        available_at=planned_at,
    )


def cancels_only_own_runs(schedule: Schedule) -> bool:
    """Whether the plan needs to know which runs of the key are its own: `cancel_old` must not stop
    runs of other schedules that share the key."""
    policy = schedule.policy
    return policy.overlap is Overlap.CANCEL_OLD and policy.concurrency_key is not None


def may_wait_behind_backlog(schedule: Schedule, admitted: int) -> bool:
    """Whether the plan needs to know `FireContext.backlog`: its slots may have to wait for earlier
    ones of the same schedule."""
    policy = schedule.policy
    return (
        policy.concurrency_key is None
        and policy.overlap is not Overlap.SKIP
        and admitted >= policy.concurrency_limit
    )


def concurrency_key(schedule: Schedule) -> str:
    """The key of its runs that have a limit."""
    return shared_key(schedule.policy, schedule.target, schedule.owner) or own_key(schedule.id)


def end_immediately(run: Run, status: RunStatus, reason: str, now: datetime) -> Run:
    return replace(run, status=status, reason=reason, finished_at=now)


# --- prefetch: when many schedules are due at once, a node claims their runs shortly before and
# starts them on time. Until PREFETCH_CUTOFF a change of the schedule withdraws such a run.

#: Schedules that must be due together for a prefetch to pay off.
PREFETCH_MINIMUM = 50
#: From this long before its due time a prefetched run counts as started.
PREFETCH_CUTOFF = timedelta(milliseconds=100)

_MICROSECOND = timedelta(microseconds=1)
#: Longer than any prefetch.
_LONG_BEFORE = timedelta(days=1)
#: Fences of prefetched runs are below; those of runs whose slot was withdrawn before are above.
WITHDRAWN_FENCE = 2 + _LONG_BEFORE // _MICROSECOND
#: Counted in microseconds of `last_enqueued_at`; see `withdraw_prefetched`.
MAX_WITHDRAWALS = 999
_WITHDRAWN = (MAX_WITHDRAWALS + 1) * _MICROSECOND


def can_prefetch(schedule: Schedule, capabilities: Collection[str], now: datetime) -> bool:
    """Whether the next slot may be prefetched. At most one slot per schedule, and only without
    jitter or a moved run: then `last_slot` tells whether one is prefetched already."""
    return (
        schedule.next_slot is not None
        and schedule.next_slot == schedule.next_run_at
        and _withdrawals(schedule, schedule.next_slot) < MAX_WITHDRAWALS
        and (schedule.last_slot is None or schedule.last_slot <= now)
        and schedule.policy.concurrency_key is None
        and schedule.depends_on is None
        and schedule.target.requirement in capabilities
    )


def prefetch_plan(firing: FirePlan, now: datetime) -> FirePlan:
    """The plan for the due time, executed at `now`.

    A withdrawn slot fires again under the same run id, so each prefetch needs its own fence: the
    first one is derived from the time of the claim."""
    (run,) = firing.runs
    fence = run.fence
    if fence == 0:
        fence = WITHDRAWN_FENCE + (now - run.planned_at) // _MICROSECOND - 1
    return replace(
        firing,
        runs=(replace(run, created_at=now, fence=fence),),
        schedule=replace(firing.schedule, last_enqueued_at=now),
    )


def _withdrawals(schedule: Schedule, slot: datetime) -> int:
    """The count in the mark that `withdraw_prefetched` left; 0: no run of the slot was
    withdrawn."""
    mark = schedule.last_enqueued_at
    if mark is None or not slot - _WITHDRAWN < mark < slot:
        return 0
    return (mark - slot + _WITHDRAWN) // _MICROSECOND


def _first_fence(schedule: Schedule, slot: datetime) -> int:
    """The fence of the slot's first claim: higher than those of withdrawn runs of the slot."""
    count = _withdrawals(schedule, slot)
    return WITHDRAWN_FENCE + count if count else 1


def may_have_prefetched_run(schedule: Schedule, now: datetime) -> bool:
    """Whether a prefetched run of the schedule may still be withdrawn."""
    return schedule.last_slot is not None and schedule.last_slot > now + PREFETCH_CUTOFF


def can_withdraw(run: Run, now: datetime) -> bool:
    """Whether the run is prefetched, not confirmed and before the cutoff.

    The run itself shows the first two, so that a clock that is set back exposes no run that may
    have started: only a prefetched run was created before its slot and is planned for it (a moved
    one is planned for another time), and a confirmed one counts as claimed when it is due
    (`confirm`)."""
    unstarted = run.prefetched or (
        # Returned unstarted, and not claimed since.
        run.status is RunStatus.QUEUED
        and run.attempt == 0
        and run.fence > 0
        and run.started_at is None
    )
    return (
        unstarted
        and run.origin is Origin.SCHEDULE
        and run.slot == run.planned_at
        and run.created_at < run.planned_at
        and run.planned_at > now + PREFETCH_CUTOFF
    )


def withdraw_prefetched(schedule: Schedule, run: Run, last_slot: datetime | None) -> Schedule:
    """The schedule without that run; `last_slot` is the newest earlier slot that has a run.

    `last_enqueued_at` becomes a time less than a millisecond before the slot, whose microseconds
    count the withdrawals: the next run of the slot gets a higher fence, whatever the clock says."""
    assert run.slot is not None
    count = min(max(run.fence - WITHDRAWN_FENCE, 0) + 1, MAX_WITHDRAWALS)
    return replace(
        schedule,
        next_slot=run.slot,
        next_run_at=run.planned_at,
        last_slot=max(filter(None, (last_slot, schedule.purged_until)), default=None),
        last_enqueued_at=run.slot - _WITHDRAWN + count * _MICROSECOND,
        fired_count=schedule.fired_count - 1,
    )
