"""Simulates schedules under a virtual clock: what would run, wait, be skipped and be missed.

Slots become runs by the planner of the scheduler itself (`model.planning`), and runs change by the
functions of `model.run`. What is assumed: every attempt succeeds after its expected time, nodes
start runs at once while they have free permits, and named limits, timeouts and events play no part.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model import replace
from chimes.model.forecast import as_it_will_fire
from chimes.model.ids import NodeId, RunId, ScheduleId
from chimes.model.planning import (
    FireContext,
    MaintenanceWindow,
    RunTemplate,
    cancels_only_own_runs,
    concurrency_key,
    may_wait_behind_backlog,
    plan,
    run_template,
    with_maintenance,
)
from chimes.model.policy import OnLost
from chimes.model.run import (
    NO_TURNS,
    Reason,
    Run,
    RunStatus,
    advance_turns,
    cancel,
    claim,
    mark_lost,
    mark_started,
    owner_number,
    queue_order,
    unblock,
)
from chimes.model.schedule import Schedule, count_successes, counts_as_success, plan_after
from chimes.triggers.values import format_moment, parse_duration, parse_time

#: Runs that a simulation makes at most; it ends earlier then.
MAX_SIMULATED = 2_000_000
#: Parts of the timeline at most.
_MAX_PARTS = 250
_COUNTED = (
    *(RunStatus.SUCCEEDED, RunStatus.SKIPPED, RunStatus.MISSED, RunStatus.CANCELED),
    *(RunStatus.FAILED, RunStatus.UNKNOWN, RunStatus.RUNNING, RunStatus.QUEUED),
)
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NODE = NodeId("simulated")
_STEPS = tuple(timedelta(minutes=each) for each in (5, 15, 30, 60, 180, 360, 720, 1440, 10080))


class Outage(Struct, frozen=True, kw_only=True):
    """A period in which no node is up."""

    since: datetime
    until: datetime


class SimulatedRun(Struct, frozen=True, kw_only=True, gc=False):
    schedule_id: ScheduleId
    name: str
    slot: datetime | None
    planned_at: datetime
    #: As of a run in the history; `queued` and `running` if it had not ended yet.
    status: RunStatus
    #: Start of the first attempt.
    started_at: datetime | None
    finished_at: datetime | None
    reason: str
    #: The slots that a missed or skipped row covers.
    slots: int

    @property
    def lateness(self) -> timedelta | None:
        return None if self.started_at is None else self.started_at - self.planned_at


class Part(Struct, frozen=True, kw_only=True):
    """One bar of the timeline."""

    at: datetime
    started: int
    #: Started after their planned time.
    late: int
    skipped: int
    missed: int
    #: Most runs at once.
    concurrent: int
    #: The longest wait of those that started.
    lateness: timedelta


class Simulation(Struct, frozen=True, kw_only=True):
    since: datetime
    #: Earlier than requested if there are more runs than are simulated.
    until: datetime
    #: By start or decision, the first one first.
    runs: tuple[SimulatedRun, ...]
    #: Most runs at once, and most that waited for a permit or a run of their key.
    concurrent: int
    waiting: int
    step: timedelta
    timeline: tuple[Part, ...]

    @property
    def counts(self) -> Counter[str]:
        """Rows by status; missed and skipped ones by the slots they cover."""
        found: Counter[str] = Counter()
        for each in self.runs:
            found[each.status.value] += each.slots
        return found


def summary_of(simulation: Simulation) -> dict[str, object]:
    """The totals, as JSON."""
    late = [each.lateness for each in simulation.runs if each.lateness]
    counts = simulation.counts
    seconds = [each.total_seconds() for each in late if each is not None]
    return {
        "since": format_moment(simulation.since),
        "until": format_moment(simulation.until),
        "slots": sum(counts.values()),
        **{status.value: counts[status.value] for status in _COUNTED},
        "late": len(late),
        "max_lateness_seconds": max(seconds, default=0.0),
        "mean_lateness_seconds": round(sum(seconds) / len(seconds), 3) if seconds else 0.0,
        "max_concurrent": simulation.concurrent,
        "max_waiting": simulation.waiting,
    }


def parse_outage(text: str, now: datetime, zone: str) -> Outage:
    """`Mon 02:00 3h`: the first such time after now, and how long; any time of `parse_time`."""
    when, _space, length = text.strip().rpartition(" ")
    if not when:
        raise InvalidInput(
            _("an outage is a time and a duration, such as 'Mon 02:00 3h'"),
            field="outage",
            code="bad_outage",
        )
    lasts = parse_duration(length, field="outage")
    first, _space, rest = when.partition(" ")
    weekday = next((each for each in _WEEKDAYS if each[:3] == first.casefold()), None)
    if weekday is not None:
        when = f"{weekday} {rest}"
    since = parse_time(when, now=now, zone=zone, field="outage")
    if now - timedelta(days=1) < since < now:
        # A weekday or a clock time means the next one.
        since += timedelta(days=7 if when[0].isalpha() else 1)
    return Outage(since=since, until=since + lasts)


def simulate(
    schedules: Iterable[Schedule],
    since: datetime,
    until: datetime,
    *,
    capacity: int,
    durations: Mapping[ScheduleId, timedelta],
    default_duration: timedelta,
    outages: Sequence[Outage] = (),
    windows: Sequence[MaintenanceWindow] = (),
    keep_cursors: bool = False,
    most: int = MAX_SIMULATED,
) -> Simulation:
    """Simulates the schedules from `since` to `until`.

    `capacity`: runs that all nodes together execute at once. `keep_cursors`: `since` is now, so
    overdue and moved slots count; otherwise every schedule begins with its first slot after
    `since`. `most`: runs after which it ends early."""
    begun = [as_it_will_fire(each, since) for each in schedules]
    planned = [each if keep_cursors else plan_after(each, since) for each in begun]
    world = _World(planned, since, until, capacity, durations, default_duration, outages, windows)
    world.run(most)
    return world.result()


class _World:
    """The clock jumps to the next due slot or end of a run. An outage stops all nodes."""

    def __init__(
        self,
        schedules: Sequence[Schedule],
        since: datetime,
        until: datetime,
        capacity: int,
        durations: Mapping[ScheduleId, timedelta],
        default_duration: timedelta,
        outages: Sequence[Outage],
        windows: Sequence[MaintenanceWindow],
    ) -> None:
        self._since, self._until = since, until
        self._capacity = capacity
        self._durations, self._default = durations, default_duration
        self._outages = sorted(outages, key=lambda each: each.since)
        self._plan = with_maintenance(plan, windows)
        self._schedules = {each.id: each for each in schedules}
        self._templates: dict[ScheduleId, RunTemplate] = {}
        #: Disabled because enough of their runs succeeded.
        self._ended: set[ScheduleId] = set()
        self._succeeded = {each.id: each.last_success_at for each in schedules}
        self._due = [
            (each.next_run_at, each.id) for each in schedules if each.next_run_at is not None
        ]
        heapq.heapify(self._due)
        #: Runs that have not ended, and those of each key in the order of their creation.
        self._active: dict[RunId, Run] = {}
        self._by_key: dict[str, dict[RunId, None]] = {}
        self._running: dict[RunId, None] = {}
        #: When running runs end, with their fence: an entry with an older fence is ignored.
        self._ends: list[tuple[datetime, int, RunId, int]] = []
        #: Claimable runs by rank and owner.
        self._ready: dict[int, dict[int, list[tuple[tuple[int, datetime, datetime, str], RunId]]]]
        self._ready = {}
        self._ready_count = 0
        self._turns: Mapping[int, int] = NO_TURNS
        self._rows: list[SimulatedRun] = []
        self._number = 0
        self.concurrent = self.waiting = 0
        self._peaks: list[tuple[datetime, int]] = []

    # --- time ---------------------------------------------------------------------------------
    def run(self, most: int) -> None:
        outages = iter(self._outages)
        outage = next(outages, None)
        while True:
            now = self._next_moment()
            if outage is not None and (now is None or outage.since <= now):
                if outage.since > self._until:
                    return
                self._stop(outage.since)
                back = outage.until
                outage = next(outages, None)
                while outage is not None and outage.since <= back:
                    back = max(back, outage.until)
                    outage = next(outages, None)
                if back > self._until:
                    return
                self._restart(back)
                continue
            if now is None or now > self._until:
                return
            if len(self._rows) + len(self._active) > most:
                self._until = now
                return
            self._pass(now)

    def _next_moment(self) -> datetime | None:
        due = self._due[0][0] if self._due else None
        end = self._ends[0][0] if self._ends else None
        if due is None or end is None:
            return due or end
        return min(due, end)

    def _pass(self, now: datetime) -> None:
        """Ends the runs that are over, fires what is due, and starts what has a permit."""
        while True:
            self._end_runs(now)
            self._fire(now)
            self._start_runs(now)
            following = self._next_moment()
            # Repeated for runs that take no time, and schedules with more slots than a pass fires.
            if following is None or following > now:
                break
        self._peaks.append((now, len(self._running)))
        self.concurrent = max(self.concurrent, len(self._running))
        self.waiting = max(self.waiting, len(self._active) - len(self._running))

    def _stop(self, now: datetime) -> None:
        """All nodes are gone: what ran before this moment is interrupted."""
        self._end_runs(now)
        self._ends.clear()
        self._peaks.append((now, 0))

    def _restart(self, now: datetime) -> None:
        """Nodes are back: runs of lost nodes start again or end, then overdue slots follow."""
        lost = [self._active[run_id] for run_id in self._running]
        self._running.clear()
        for run in lost:
            started = mark_started(run) if run.policy.on_lost is OnLost.STOP else run
            after = mark_lost(started, now)
            if after.status.terminal:
                self._finish(after)
            else:
                self._active[run.id] = after
                self._make_ready(after)
        self._pass(now)

    # --- firing -------------------------------------------------------------------------------
    def _fire(self, now: datetime) -> None:
        due = self._due
        while due and due[0][0] <= now:
            _at, schedule_id = heapq.heappop(due)
            if schedule_id in self._ended:
                continue
            schedule = self._schedules[schedule_id]
            firing = self._plan(schedule, self._context(schedule), now)
            self._schedules[schedule_id] = firing.schedule
            if firing.schedule.next_run_at is not None:
                heapq.heappush(due, (firing.schedule.next_run_at, schedule_id))
            for run in firing.runs:
                self._insert(run)
            for run_id in firing.cancel:
                replaced = self._active.get(run_id)
                if replaced is not None:
                    self._running.pop(run_id, None)
                    self._finish(cancel(replaced, Reason.REPLACED, now))

    def _context(self, schedule: Schedule) -> FireContext:
        template = self._templates.get(schedule.id)
        if template is None:
            template = self._templates[schedule.id] = run_template(schedule)
        depends_on = schedule.depends_on
        in_key = self._by_key.get(concurrency_key(schedule), ())
        runs = [self._active[run_id] for run_id in in_key]
        admitted = tuple(run.id for run in runs if run.admitted)
        others: frozenset[RunId] = frozenset()
        if runs and cancels_only_own_runs(schedule):
            others = frozenset(run.id for run in runs if run.schedule_id != schedule.id)
        return FireContext(
            template=template,
            admitted=admitted,
            others=others,
            dependency_succeeded_at=self._succeeded.get(depends_on.schedule_id)
            if depends_on
            else None,
            backlog=bool(runs)
            and may_wait_behind_backlog(schedule, len(admitted))
            and any(
                run.blocked and run.catch_up and run.rank < schedule.priority * 2 for run in runs
            ),
        )

    def _insert(self, run: Run) -> None:
        if run.status.terminal:
            self._record(run)
            return
        self._active[run.id] = run
        if run.concurrency_key is not None:
            self._by_key.setdefault(run.concurrency_key, {})[run.id] = None
        if not run.blocked:
            self._make_ready(run)

    # --- executing ----------------------------------------------------------------------------
    def _make_ready(self, run: Run) -> None:
        owners = self._ready.setdefault(run.rank, {})
        waiting = owners.setdefault(owner_number(str(run.owner)), [])
        heapq.heappush(waiting, (queue_order(run), run.id))
        self._ready_count += 1

    def _start_runs(self, now: datetime) -> None:
        while self._ready_count and len(self._running) < self._capacity:
            run_id = self._take()
            run = self._active.get(run_id)
            if run is None or run_id in self._running:
                continue
            self._number += 1
            started = claim(run, _NODE, now)
            self._active[run_id] = started
            self._running[run_id] = None
            assert run.schedule_id is not None
            length = self._durations.get(run.schedule_id, self._default)
            heapq.heappush(self._ends, (now + length, self._number, run_id, started.fence))

    def _take(self) -> RunId:
        """The next run of the queue: by rank, and within a rank in turn between owners."""
        rank = max(self._ready)
        owners = self._ready[rank]
        last = self._turns.get(rank, 0)
        number = min(owners, key=lambda each: (each <= last, each))
        _order, run_id = heapq.heappop(owners[number])
        self._ready_count -= 1
        if len(owners) > 1:
            self._turns = advance_turns(self._turns, [(rank, number)])
        if not owners[number]:
            del owners[number]
            if not owners:
                del self._ready[rank]
        return run_id

    def _end_runs(self, now: datetime) -> None:
        ends = self._ends
        while ends and ends[0][0] <= now:
            at, _number, run_id, fence = heapq.heappop(ends)
            run = self._active.get(run_id)
            if run is None or run.fence != fence or run_id not in self._running:
                continue
            del self._running[run_id]
            # As on a node: the permit is free while the end is recorded, which unblocks runs.
            self._start_runs(now)
            assert run.schedule_id is not None
            self._succeeded[run.schedule_id] = at
            ended = replace(run, status=RunStatus.SUCCEEDED, reason="", finished_at=at)
            self._finish(ended)
            if counts_as_success(ended):
                schedule = count_successes(self._schedules[run.schedule_id], 1, at)
                self._schedules[run.schedule_id] = schedule
                if not schedule.enabled:
                    self._ended.add(schedule.id)

    def _finish(self, run: Run) -> None:
        self._active.pop(run.id, None)
        self._record(run)
        key = run.concurrency_key
        in_key = self._by_key.get(key) if key is not None else None
        if key is None or in_key is None:
            return
        in_key.pop(run.id, None)
        if not in_key:
            del self._by_key[key]
            return
        runs = [self._active[run_id] for run_id in in_key]
        admitted = sum(each.admitted for each in runs)
        for each in sorted((each for each in runs if each.blocked), key=queue_order):
            if admitted < each.concurrency_limit:
                free = self._active[each.id] = unblock(each)
                self._make_ready(free)
                admitted += 1

    # --- result -------------------------------------------------------------------------------
    def _record(self, run: Run) -> None:
        assert run.schedule_id is not None
        self._rows.append(
            SimulatedRun(
                schedule_id=run.schedule_id,
                name=run.schedule_name,
                slot=run.slot,
                planned_at=run.planned_at,
                status=run.status,
                started_at=run.started_at,
                finished_at=run.finished_at,
                reason=run.reason,
                slots=max(1, run.missed_count),
            )
        )

    def result(self) -> Simulation:
        for run in self._active.values():
            self._record(run)
        rows = sorted(
            self._rows, key=lambda row: (row.started_at or row.planned_at, row.name, row.planned_at)
        )
        step = next(
            (each for each in _STEPS if (self._until - self._since) / each <= _MAX_PARTS),
            _STEPS[-1],
        )
        return Simulation(
            since=self._since,
            until=self._until,
            runs=tuple(rows),
            concurrent=self.concurrent,
            waiting=self.waiting,
            step=step,
            timeline=self._timeline(rows, step),
        )

    def _timeline(self, rows: Sequence[SimulatedRun], step: timedelta) -> tuple[Part, ...]:
        number = max(1, -((self._since - self._until) // step))
        started, late, skipped, missed, concurrent = ([0] * number for _each in range(5))
        lateness = [timedelta(0)] * number

        def place(at: datetime) -> int:
            return min(max(0, (at - self._since) // step), number - 1)

        for row in rows:
            if row.started_at is not None:
                part = place(row.started_at)
                started[part] += 1
                waited = row.started_at - row.planned_at
                if waited:
                    late[part] += 1
                    lateness[part] = max(lateness[part], waited)
            elif row.status is RunStatus.SKIPPED:
                skipped[place(row.planned_at)] += row.slots
            elif row.status is RunStatus.MISSED:
                missed[place(row.planned_at)] += row.slots
        # A number of runs lasts until the next moment at which it changes.
        for index, (at, running) in enumerate(self._peaks):
            end = self._peaks[index + 1][0] if index + 1 < len(self._peaks) else self._until
            for part in range(place(at), place(end) + 1 if running else place(at) + 1):
                concurrent[part] = max(concurrent[part], running)
        return tuple(
            Part(
                at=self._since + index * step,
                started=started[index],
                late=late[index],
                skipped=skipped[index],
                missed=missed[index],
                concurrent=concurrent[index],
                lateness=lateness[index],
            )
            for index in range(number)
        )
