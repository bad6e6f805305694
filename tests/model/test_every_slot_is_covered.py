"""With any policy, outage and tick pattern every slot has exactly one row or lies in exactly one
missed range. The expected slots are computed without triggers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from chimes.model.ids import RunId
from chimes.model.planning import ON_TIME_LIMIT, FireContext, plan, runs_to_insert
from chimes.model.policy import Misfire, Overlap, Policy
from chimes.model.run import Run, RunStatus
from chimes.model.schedule import Schedule, set_cursor
from chimes.triggers import Cron, Every
from tests.builders import NOW, SECOND, a_schedule
from tests.examples import examples

ENOUGH_PASSES = 2000


@dataclass
class ScheduleSimulation:
    """A minimal store of one schedule."""

    schedule: Schedule
    rows: dict[RunId, Run] = field(default_factory=dict)
    admitted: list[RunId] = field(default_factory=list)
    waiting: list[RunId] = field(default_factory=list)
    limit: int = 1

    def tick(self, now: datetime) -> None:
        for _ in range(ENOUGH_PASSES):
            due = self.schedule.next_run_at
            if due is None or due > now:
                return
            firing = plan(self.schedule, FireContext(admitted=tuple(self.admitted)), now)
            free = [run.id for run in firing.runs if run.id not in self.rows]
            for run in runs_to_insert(firing.runs, free):
                self.rows[run.id] = run
                if not run.status.terminal:
                    (self.waiting if run.blocked else self.admitted).append(run.id)
            assert len(firing.runs) <= ON_TIME_LIMIT + self.schedule.policy.catch_up_limit + 1
            assert firing.schedule.next_slot != self.schedule.next_slot, (
                "the cursor does not advance"
            )
            self.schedule = firing.schedule
            for run_id in firing.cancel:
                self.end(run_id)
            assert len(self.admitted) <= self.limit
        raise AssertionError("the schedule stays due")

    def end(self, run_id: RunId) -> None:
        self.admitted.remove(run_id)
        if self.waiting:
            self.admitted.append(self.waiting.pop(0))


seconds = st.integers(1, 90)
policies = st.builds(
    Policy,
    misfire=st.sampled_from(Misfire),
    misfire_grace=st.sampled_from([0, 1, 30, 300]).map(lambda each: each * SECOND),
    catch_up_limit=st.integers(1, 5),
    overlap=st.sampled_from(Overlap),
    max_concurrent_runs=st.sampled_from([None, 1, 2, 5]),
    burst_allowed=st.booleans(),
)
#: Seconds until the next tick, and number of runs that end before it.
ticks = st.lists(
    st.tuples(
        st.one_of(st.floats(0.001, 5), st.floats(5, 120), st.floats(120, 1500)), st.integers(0, 3)
    ),
    min_size=1,
    max_size=12,
)


def check(simulation: ScheduleSimulation, slots: list[datetime]) -> None:
    """Asserts that every slot is covered once and that missed rows count their slots."""
    covered: Counter[datetime] = Counter()
    for run in simulation.rows.values():
        assert run.slot is not None
        if run.status is RunStatus.MISSED:
            assert run.missed_until is not None
            within = [slot for slot in slots if run.slot <= slot <= run.missed_until]
            assert run.missed_count == len(within)
            assert within[0] == run.slot
            assert within[-1] == run.missed_until
            covered.update(within)
        else:
            assert run.missed_count == 0
            covered[run.slot] += 1
    assert covered == Counter(slots)


def run_pattern(simulation: ScheduleSimulation, pattern: list[tuple[float, int]]) -> datetime:
    now = NOW
    for wait, ending in pattern:
        now += timedelta(seconds=wait)
        for run_id in simulation.admitted[:ending]:
            simulation.end(run_id)
        simulation.tick(now)
    return now


@examples(300)
@given(
    interval=seconds,
    jitter=st.floats(0, 1),
    policy=policies,
    pattern=ticks,
    offset=st.integers(0, 9),
)
def test_every_slot_of_an_interval_is_covered(
    interval: int, jitter: float, policy: Policy, pattern: list[tuple[float, int]], offset: int
) -> None:
    first = NOW + offset * SECOND
    trigger = Every(
        timedelta(seconds=interval), anchor=first, jitter=timedelta(seconds=interval * jitter)
    )
    schedule = set_cursor(a_schedule(trigger=trigger, policy=policy), first)
    simulation = ScheduleSimulation(schedule, limit=policy.concurrency_limit)
    now = run_pattern(simulation, pattern)
    count = int((now - first) / timedelta(seconds=interval)) + 1 if now >= first else 0
    grid = [first + number * timedelta(seconds=interval) for number in range(count)]
    # The newest slot may still wait for its jitter.
    due = [slot for slot in grid if slot + trigger.jitter_for(schedule.id, slot) <= now]
    check(simulation, due)
    assert simulation.schedule.last_slot == (due[-1] if due else None)


@examples(100)
@given(step=st.sampled_from([5, 15, 30]), policy=policies, pattern=ticks)
def test_every_slot_of_a_cron_is_covered(
    step: int, policy: Policy, pattern: list[tuple[float, int]]
) -> None:
    schedule = a_schedule(trigger=Cron(f"*/{step} * * * * *"), policy=policy)
    simulation = ScheduleSimulation(set_cursor(schedule, NOW), limit=policy.concurrency_limit)
    now = run_pattern(simulation, pattern)
    count = int((now - NOW) / timedelta(seconds=step)) + 1
    check(simulation, [NOW + number * timedelta(seconds=step) for number in range(count)])


@examples(100)
@given(interval=seconds, policy=policies, pattern=ticks, most=st.integers(1, 6))
def test_every_slot_up_to_max_runs_is_covered(
    interval: int, policy: Policy, pattern: list[tuple[float, int]], most: int
) -> None:
    """No run follows the last one that `max_runs` allows."""
    trigger = Every(timedelta(seconds=interval), anchor=NOW, max_runs=most)
    schedule = set_cursor(a_schedule(trigger=trigger, policy=policy), NOW)
    simulation = ScheduleSimulation(schedule, limit=policy.concurrency_limit)
    now = run_pattern(simulation, pattern)
    ran = [row for row in simulation.rows.values() if row.status is not RunStatus.MISSED]
    fired = [row for row in ran if row.status is not RunStatus.SKIPPED]
    assert len(fired) == simulation.schedule.fired_count <= most
    if len(fired) < most:
        count = int((now - NOW) / timedelta(seconds=interval)) + 1
        check(simulation, [NOW + number * timedelta(seconds=interval) for number in range(count)])
    else:
        assert simulation.schedule.next_slot is None
        end = simulation.schedule.last_slot
        assert end is not None
        count = (end - NOW) // timedelta(seconds=interval) + 1
        check(simulation, [NOW + number * timedelta(seconds=interval) for number in range(count)])


@examples(100)
@given(interval=seconds, policy=policies, pattern=ticks, back=st.integers(1, 5))
def test_setting_the_cursor_back_creates_no_duplicates(
    interval: int, policy: Policy, pattern: list[tuple[float, int]], back: int
) -> None:
    """Existing rows are kept and none is created twice."""
    trigger = Every(timedelta(seconds=interval), anchor=NOW)
    schedule = set_cursor(a_schedule(trigger=trigger, policy=policy), NOW)
    simulation = ScheduleSimulation(schedule, limit=policy.concurrency_limit)
    now = run_pattern(simulation, pattern)
    before = dict(simulation.rows)
    slot = simulation.schedule.next_slot
    assert slot is not None
    simulation.schedule = set_cursor(
        simulation.schedule, max(NOW, slot - back * timedelta(seconds=interval))
    )
    simulation.tick(now)
    assert {run_id: simulation.rows[run_id] for run_id in before} == before
    while simulation.admitted:
        simulation.end(simulation.admitted[0])
    assert simulation.waiting == []
