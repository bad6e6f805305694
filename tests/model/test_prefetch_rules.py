"""Which runs can be prefetched and withdrawn."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from chimes.model import replace
from chimes.model.ids import NodeId
from chimes.model.planning import (
    PREFETCH_CUTOFF,
    FireContext,
    SingleSlotPlan,
    can_prefetch,
    can_withdraw,
    may_have_prefetched_run,
    plan,
    prefetch_plan,
    withdraw_prefetched,
)
from chimes.model.policy import Policy
from chimes.model.run import Origin, Run, RunStatus, cancel, mark_lost, release
from chimes.model.schedule import Dependency, Schedule
from chimes.triggers import Every
from tests.builders import KINDS, MINUTE, NOW, SECOND, due_schedule

SLOT = NOW + SECOND
TICK = timedelta(microseconds=1)


def prefetched_run(schedule: Schedule, now: Any = NOW) -> Run:
    firing = plan(schedule, FireContext(), SLOT)
    assert isinstance(firing, SingleSlotPlan)
    return prefetch_plan(firing, now).run(NodeId("node-1"))


def test_prefetched_run_starts_at_its_planned_time() -> None:
    run = prefetched_run(due_schedule(SLOT))
    assert (run.created_at, run.claimed_at, run.started_at) == (NOW, NOW, SLOT)
    assert (run.planned_at, run.available_at, run.attempt) == (SLOT, SLOT, 1)
    assert run.prefetched
    assert not replace(run, claimed_at=SLOT).prefetched
    assert not release(run).prefetched


def test_every_claim_of_a_slot_has_its_own_fence() -> None:
    schedule = due_schedule(SLOT)
    on_time = plan(schedule, FireContext(), SLOT)
    assert isinstance(on_time, SingleSlotPlan)
    fences = [prefetched_run(schedule, NOW + number * TICK).fence for number in range(5)]
    assert fences == sorted(set(fences))
    assert on_time.run(NodeId("node-1")).fence == 1 < fences[0]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, True),
        ({"last_slot": NOW}, True),
        ({"last_slot": NOW + TICK}, False),
        ({"next_slot": None}, False),
        ({"next_slot": NOW}, False),
        ({"policy": Policy(concurrency_key="k")}, False),
        ({"depends_on": Dependency(schedule_id=due_schedule().id)}, False),
    ],
)
def test_can_prefetch(given: dict[str, Any], expected: bool) -> None:
    schedule = due_schedule(SLOT, **given)
    assert can_prefetch(schedule, KINDS, NOW) is expected
    assert not can_prefetch(schedule, frozenset(), NOW)


def test_prefetched_run_can_be_withdrawn_until_the_cutoff() -> None:
    run = prefetched_run(due_schedule(SLOT))
    closed = SLOT - PREFETCH_CUTOFF
    assert can_withdraw(run, closed - TICK)
    assert not can_withdraw(run, closed)
    assert can_withdraw(release(run), closed - TICK)
    assert not can_withdraw(cancel(run, "x", NOW), NOW)
    assert not can_withdraw(replace(run, origin=Origin.BACKFILL), NOW)
    assert not can_withdraw(replace(run, slot=None), NOW)


def test_withdrawing_restores_the_schedule() -> None:
    before = due_schedule(SLOT, fired_count=3, last_slot=NOW - MINUTE)
    run = prefetched_run(before)
    firing = plan(before, FireContext(), SLOT)
    assert isinstance(firing, SingleSlotPlan)
    after = replace(firing, now=NOW).schedule
    assert may_have_prefetched_run(after, NOW)
    assert not may_have_prefetched_run(before, NOW)
    assert not may_have_prefetched_run(due_schedule(SLOT), NOW)
    back = withdraw_prefetched(after, run, NOW - MINUTE)
    assert back == replace(before, last_enqueued_at=NOW)
    purged = replace(after, purged_until=NOW - SECOND)
    assert withdraw_prefetched(purged, run, NOW - MINUTE).last_slot == NOW - SECOND
    assert withdraw_prefetched(after, run, None).last_slot is None


# A node that is lost before the due time cannot have started the run.
def test_prefetched_run_lost_before_its_time_is_released() -> None:
    run = prefetched_run(due_schedule(SLOT, trigger=Every("1m", anchor=SLOT)))
    assert mark_lost(run, NOW) == release(run)
    after = mark_lost(run, SLOT)
    assert (after.status, after.available_at, after.crashes) == (RunStatus.QUEUED, SLOT, 1)
