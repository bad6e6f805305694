"""Which runs can be prefetched and withdrawn."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from chimes.model import replace
from chimes.model.ids import NodeId
from chimes.model.planning import (
    MAX_WITHDRAWALS,
    PREFETCH_CUTOFF,
    WITHDRAWN_FENCE,
    FireContext,
    can_prefetch,
    can_withdraw,
    may_have_prefetched_run,
    plan,
    prefetch_plan,
    withdraw_prefetched,
)
from chimes.model.policy import Policy
from chimes.model.run import Origin, Run, RunStatus, cancel, claim, confirm, mark_lost, release
from chimes.model.schedule import Dependency, Schedule
from chimes.model.target import FlowTarget
from chimes.triggers import Every
from tests.builders import HOUR, KINDS, MINUTE, NOW, SECOND, due_schedule, with_definition

SLOT = NOW + SECOND
TICK = timedelta(microseconds=1)


def prefetched_run(schedule: Schedule, now: Any = NOW) -> Run:
    firing = plan(schedule, FireContext(), SLOT)
    assert firing.on_time
    return claim(prefetch_plan(firing, now).runs[0], NodeId("node-1"), now)


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
    assert on_time.on_time
    fences = [prefetched_run(schedule, NOW + number * TICK).fence for number in range(5)]
    assert fences == sorted(set(fences))
    assert claim(on_time.runs[0], NodeId("node-1"), SLOT).fence == 1 < fences[0]


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


# A clock that is set back changes nothing.
def test_only_unconfirmed_prefetched_runs_can_be_withdrawn() -> None:
    run = prefetched_run(due_schedule(SLOT))
    assert can_withdraw(run, NOW)
    assert not confirm(run).prefetched
    assert not can_withdraw(confirm(run), NOW)
    assert not can_withdraw(claim(release(run), NodeId("node-2"), SLOT), NOW)
    later = SLOT + 2 * MINUTE
    moved = replace(release(run), fence=0, planned_at=later, available_at=later)
    assert not can_withdraw(moved, NOW)
    flow = with_definition(run, target=FlowTarget(name="flow"))
    assert not can_withdraw(release(confirm(flow)), NOW)
    on_time = plan(due_schedule(SLOT), FireContext(), SLOT)
    assert on_time.on_time
    for each in (on_time.runs[0], claim(on_time.runs[0], NodeId("node-1"), SLOT)):
        assert not can_withdraw(each, NOW - HOUR)


def test_withdrawing_restores_the_schedule() -> None:
    before = due_schedule(SLOT, fired_count=3, last_slot=NOW - MINUTE)
    run = prefetched_run(before)
    firing = plan(before, FireContext(), SLOT)
    assert firing.on_time
    after = prefetch_plan(firing, NOW).schedule
    assert may_have_prefetched_run(after, NOW)
    assert not may_have_prefetched_run(before, NOW)
    assert not may_have_prefetched_run(due_schedule(SLOT), NOW)
    back = withdraw_prefetched(after, run, NOW - MINUTE)
    assert back.last_enqueued_at is not None
    assert timedelta(0) < SLOT - back.last_enqueued_at < timedelta(milliseconds=1)
    assert back == replace(before, last_enqueued_at=back.last_enqueued_at)
    purged = replace(after, purged_until=NOW - SECOND)
    assert withdraw_prefetched(purged, run, NOW - MINUTE).last_slot == NOW - SECOND
    assert withdraw_prefetched(after, run, None).last_slot is None


@pytest.mark.parametrize("back", [0 * SECOND, 2 * SECOND, HOUR])
def test_fence_of_a_slot_rises_with_every_withdrawal(back: timedelta) -> None:
    """Also if the clock is set back, if the slot fires on time at last, and if it was moved."""
    schedule, fences = due_schedule(SLOT), []
    for number in range(3):
        firing = plan(schedule, FireContext(), SLOT)
        assert firing.on_time
        now = NOW - number * back
        run = claim(prefetch_plan(firing, now).runs[0], NodeId("node-1"), now)
        fences.append(run.fence)
        schedule = withdraw_prefetched(firing.schedule, run, None)
    last = plan(schedule, FireContext(), SLOT)
    assert last.on_time
    fences.append(claim(last.runs[0], NodeId("node-1"), SLOT).fence)
    assert fences == sorted(set(fences))
    moved = plan(replace(schedule, next_run_at=SLOT + MINUTE), FireContext(), SLOT + MINUTE)
    assert moved.runs[0].fence == fences[-1] - 1
    following = plan(last.schedule, FireContext(), SLOT + MINUTE)
    assert following.runs[0].fence == 0


def test_slot_that_was_withdrawn_too_often_is_not_prefetched() -> None:
    run = replace(prefetched_run(due_schedule(SLOT)), fence=WITHDRAWN_FENCE + MAX_WITHDRAWALS - 1)
    after = replace(due_schedule(SLOT), last_slot=SLOT)
    assert not can_prefetch(withdraw_prefetched(after, run, None), KINDS, NOW)
    assert can_prefetch(withdraw_prefetched(after, prefetched_run(after), None), KINDS, NOW)


# A node that is lost before the due time cannot have started the run, unless it was confirmed.
def test_prefetched_run_lost_before_its_time_is_released() -> None:
    run = prefetched_run(due_schedule(SLOT, trigger=Every("1m", anchor=SLOT)))
    assert mark_lost(run, NOW) == release(run)
    after = mark_lost(run, SLOT)
    assert (after.status, after.available_at, after.crashes) == (RunStatus.QUEUED, SLOT, 1)
    assert mark_lost(confirm(run), NOW).crashes == 1
