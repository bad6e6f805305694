"""Overlap policies and dependencies."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from chimes.model import replace
from chimes.model.ids import RunId, ScheduleId
from chimes.model.planning import BLOCKING_RUN, FireContext, cancels_only_own_runs, plan
from chimes.model.policy import Misfire, Overlap, Policy
from chimes.model.run import Reason, RunStatus
from chimes.model.schedule import Dependency
from chimes.triggers import Every
from tests.builders import HOUR, MINUTE, NOW, SECOND, due_schedule
from tests.model.fire_plans import FREE, QUEUED, SKIPPED, planned_runs, with_active_runs


# --- overlap ------------------------------------------------------------------------------
def test_overlap_skip_records_a_skipped_row() -> None:
    firing = plan(due_schedule(), with_active_runs(1), NOW)
    (row,) = firing.runs
    assert (row.status, row.reason, row.finished_at) == (SKIPPED, Reason.OVERLAP, NOW)
    assert (firing.schedule.last_status, firing.schedule.last_slot) == (SKIPPED, NOW)
    assert firing.schedule.last_enqueued_at is None
    assert firing.cancel == ()
    assert row.result == {BLOCKING_RUN: with_active_runs(1).admitted[-1]}


def test_blocking_run_of_a_shared_key_is_not_recorded() -> None:
    shared = due_schedule(policy=Policy(concurrency_key="db"))
    (row,) = plan(shared, with_active_runs(1), NOW).runs
    assert (row.reason, row.result) == (Reason.OVERLAP, None)


def test_overlap_queue_blocks_the_run() -> None:
    firing = plan(due_schedule(policy=Policy(overlap=Overlap.QUEUE)), with_active_runs(1), NOW)
    assert planned_runs(firing) == [(QUEUED, NOW, True)]


def test_overlap_cancel_old_cancels_the_oldest_run() -> None:
    policy = Policy(overlap=Overlap.CANCEL_OLD, max_concurrent_runs=2)
    firing = plan(due_schedule(policy=policy), with_active_runs(2), NOW)
    assert planned_runs(firing) == [(QUEUED, NOW, True)]
    assert firing.cancel == ("active-0",)


def test_overlap_cancel_old_cancels_each_run_once() -> None:
    policy = Policy(overlap=Overlap.CANCEL_OLD)
    schedule = due_schedule(trigger=Every("20s", anchor=NOW), policy=policy)
    firing = plan(schedule, with_active_runs(1), NOW + 40 * SECOND)
    assert [run.blocked for run in firing.runs] == [True, True, True]
    assert firing.cancel == ("active-0",)


def test_overlap_cancel_old_cancels_no_run_of_another_schedule() -> None:
    policy = Policy(overlap=Overlap.CANCEL_OLD, max_concurrent_runs=2, concurrency_key="shared")
    schedule = due_schedule(policy=policy)
    theirs = frozenset({RunId("active-0")})
    firing = plan(schedule, replace(with_active_runs(2), others=theirs), NOW)
    assert (planned_runs(firing), firing.cancel) == ([(QUEUED, NOW, True)], ("active-1",))
    alone = plan(schedule, replace(with_active_runs(2), others=theirs | {RunId("active-1")}), NOW)
    assert (planned_runs(alone), alone.cancel) == ([(QUEUED, NOW, True)], ())


@pytest.mark.parametrize(
    ("policy", "matters"),
    [
        (Policy(overlap=Overlap.CANCEL_OLD, concurrency_key="shared"), True),
        (Policy(overlap=Overlap.CANCEL_OLD), False),
        (Policy(overlap=Overlap.QUEUE, concurrency_key="shared"), False),
    ],
)
def test_cancels_only_own_runs_under_a_shared_key(policy: Policy, matters: bool) -> None:
    assert cancels_only_own_runs(due_schedule(policy=policy)) is matters


def test_overlap_allow_has_no_limit_unless_one_is_given() -> None:
    allow = Policy(overlap=Overlap.ALLOW)
    firing = plan(due_schedule(policy=allow), with_active_runs(50), NOW)
    assert planned_runs(firing) == [(QUEUED, NOW, False)]
    assert firing.runs[0].concurrency_key is None
    capped = due_schedule(policy=replace(allow, max_concurrent_runs=2))
    assert planned_runs(plan(capped, with_active_runs(1), NOW)) == [(QUEUED, NOW, False)]
    assert planned_runs(plan(capped, with_active_runs(2), NOW)) == [(QUEUED, NOW, True)]


def test_burst_allowed_lifts_only_the_default_limit() -> None:
    burst = Policy(burst_allowed=True)
    assert planned_runs(plan(due_schedule(policy=burst), with_active_runs(9), NOW)) == [
        (QUEUED, NOW, False)
    ]
    capped = due_schedule(policy=replace(burst, max_concurrent_runs=2))
    assert planned_runs(plan(capped, with_active_runs(2), NOW)) == [(SKIPPED, NOW, False)]


def test_max_concurrent_runs_admits_that_many_runs() -> None:
    policy = Policy(max_concurrent_runs=3)
    schedule = due_schedule(trigger=Every("10s", anchor=NOW), policy=policy)
    firing = plan(schedule, with_active_runs(1), NOW + 30 * SECOND)
    assert [run.blocked for run in firing.runs] == [False, False, True, True]
    assert {run.concurrency_limit for run in firing.runs} == {3}


# Slots planned together because the node was late do not count as overlapping.
def test_slots_of_one_pass_block_each_other() -> None:
    schedule = due_schedule(trigger=Every("20s", anchor=NOW))
    firing = plan(schedule, FREE, NOW + 40 * SECOND)
    assert [(run.status, run.blocked) for run in firing.runs] == [
        (QUEUED, False),
        (QUEUED, True),
        (QUEUED, True),
    ]


def test_late_slots_are_queued_while_a_run_is_active() -> None:
    policy = Policy(misfire=Misfire.ALL, misfire_grace=SECOND)
    firing = plan(due_schedule(policy=policy), with_active_runs(1), NOW + MINUTE)
    # The slot on time is blocked by the late one of the same pass.
    assert planned_runs(firing) == [(QUEUED, NOW, True), (QUEUED, NOW + MINUTE, True)]


# --- dependencies ----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("succeeded_at", "status"),
    [
        (None, SKIPPED),
        (NOW - HOUR - timedelta(microseconds=1), SKIPPED),
        (NOW - HOUR, QUEUED),
        (NOW, QUEUED),
    ],
)
def test_dependency_must_have_succeeded_within_its_period(
    succeeded_at: datetime | None, status: RunStatus
) -> None:
    depends_on = Dependency(schedule_id=ScheduleId("other"), within=HOUR)
    context = FireContext(dependency_succeeded_at=succeeded_at)
    firing = plan(due_schedule(depends_on=depends_on), context, NOW)
    (run,) = firing.runs
    assert run.status is status
    assert run.reason == (Reason.DEPENDENCY if status is SKIPPED else "")
    assert firing.schedule.fired_count == (status is QUEUED)
