"""Planning of moved slots, reset cursors and manual runs."""

from __future__ import annotations

import pytest

from chimes.model import replace
from chimes.model.ids import RunId, slot_run_id
from chimes.model.planning import (
    FirePlan,
    backfill_run,
    end_immediately,
    manual_run,
    plan,
    retry_run,
    runs_to_insert,
    slot_run,
)
from chimes.model.policy import Misfire, Policy
from chimes.model.run import Origin, Reason, RunStatus
from chimes.model.schedule import Schedule, move_next_run, reschedule_next, set_cursor
from chimes.triggers import Every, Once
from tests.builders import HOUR, MINUTE, NOW, SECOND, a_run, a_schedule, due_schedule, full_schedule
from tests.model.fire_plans import FREE, MISSED, QUEUED, planned_runs


# --- moved and rescheduled --------------------------------------------------------------------
def test_a_moved_slot_keeps_its_identity() -> None:
    schedule = move_next_run(a_schedule(), NOW + 20 * SECOND, NOW, "me")
    slot, moment = NOW + MINUTE, NOW + 20 * SECOND
    firing = plan(schedule, FREE, moment)
    (run,) = firing.runs
    assert (run.slot, run.planned_at, run.available_at) == (slot, moment, moment)
    assert run.id == slot_run_id(schedule.id, slot)
    assert firing.schedule.next_run_at == NOW + 2 * MINUTE


# Slots that passed while the moved one waited are late by their own times.
@pytest.mark.parametrize("misfire", Misfire)
def test_slots_after_a_moved_slot_follow_the_misfire_policy(misfire: Misfire) -> None:
    policy = Policy(misfire=misfire, misfire_grace=SECOND)
    schedule = move_next_run(a_schedule(policy=policy), NOW + 4 * MINUTE, NOW, "me")
    now = NOW + 4 * MINUTE
    first = plan(schedule, FREE, now)
    assert planned_runs(first) == [(QUEUED, NOW + MINUTE, False)]
    assert not first.runs[0].catch_up
    assert first.schedule.next_slot == NOW + 2 * MINUTE
    rest = plan(first.schedule, FREE, now)
    expected = {
        Misfire.SKIP: [(MISSED, 2, 2), (QUEUED, 4, 0)],
        Misfire.ONE: [(MISSED, 3, 1), (QUEUED, 2, 0), (QUEUED, 4, 0)],
        Misfire.LATEST: [(MISSED, 2, 1), (QUEUED, 3, 0), (QUEUED, 4, 0)],
        Misfire.ALL: [(QUEUED, 2, 0), (QUEUED, 3, 0), (QUEUED, 4, 0)],
    }[misfire]
    assert [(run.status, run.slot, run.missed_count) for run in rest.runs] == [
        (status, NOW + number * MINUTE, count) for status, number, count in expected
    ]


def test_moved_slot_can_be_missed() -> None:
    policy = Policy(misfire=Misfire.SKIP, misfire_grace=SECOND)
    schedule = move_next_run(a_schedule(policy=policy), NOW + 3 * MINUTE, NOW, "me")
    (missed,) = plan(schedule, FREE, NOW + 3.5 * MINUTE).runs
    assert (missed.slot, missed.missed_count) == (NOW + MINUTE, 3)
    assert missed.planned_at == NOW + 3 * MINUTE


# The slot is not on the trigger's grid.
@pytest.mark.parametrize("misfire", Misfire)
def test_a_rescheduled_slot_that_is_late_is_not_lost(misfire: Misfire) -> None:
    policy = Policy(misfire=misfire, misfire_grace=SECOND)
    slot = NOW + 30 * SECOND
    schedule = reschedule_next(a_schedule(policy=policy), slot, NOW, "me")
    firing = plan(schedule, FREE, slot + 5 * SECOND)
    (row,) = firing.runs
    assert row.slot == slot
    assert row.status is (MISSED if misfire is Misfire.SKIP else QUEUED)
    assert row.missed_count == (misfire is Misfire.SKIP)
    assert firing.schedule.next_slot == NOW + MINUTE


def test_a_rescheduled_slot_is_counted_among_the_missed() -> None:
    policy = Policy(misfire=Misfire.SKIP, misfire_grace=SECOND)
    schedule = reschedule_next(a_schedule(policy=policy), NOW + 30 * SECOND, NOW, "me")
    (row,) = plan(schedule, FREE, NOW + 3.5 * MINUTE).runs
    assert (row.slot, row.missed_count) == (NOW + 30 * SECOND, 4)
    assert row.missed_until == NOW + 3 * MINUTE


# --- reset cursors ----------------------------------------------------------------------------
def test_purged_slots_are_not_created_again() -> None:
    schedule = due_schedule(purged_until=NOW + 2 * MINUTE)
    firing = plan(schedule, FREE, NOW + 3 * MINUTE)
    assert planned_runs(firing) == [(QUEUED, NOW + 3 * MINUTE, False)]
    idle = plan(schedule, FREE, NOW + MINUTE)
    assert idle == FirePlan(schedule=set_cursor(schedule, NOW + 3 * MINUTE), runs=())
    over = due_schedule(trigger=Once(NOW), purged_until=NOW)
    assert plan(over, FREE, NOW) == FirePlan(schedule=set_cursor(over, None), runs=())


# A run must not be blocked by a run that was not inserted.
def test_permit_of_an_existing_slot_goes_to_the_next_run() -> None:
    schedule = due_schedule(trigger=Every("10s", anchor=NOW), policy=Policy(max_concurrent_runs=2))
    runs = plan(schedule, FREE, NOW + 40 * SECOND).runs
    assert [run.blocked for run in runs] == [False, False, True, True, True]
    everything = [run.id for run in runs]
    assert runs_to_insert(runs, everything) == runs
    without_first = runs_to_insert(runs, everything[1:])
    assert [run.slot for run in without_first] == [run.slot for run in runs[1:]]
    assert [run.blocked for run in without_first] == [False, False, True, True]
    assert [run.blocked for run in runs_to_insert(runs, everything[2:])] == [False, False, True]
    assert [run.blocked for run in runs_to_insert(runs, everything[:3])] == [False, False, True]
    assert runs_to_insert(runs, []) == ()


# --- other runs -------------------------------------------------------------------------------
def test_a_manual_run_has_no_slot() -> None:
    schedule = full_schedule()
    run = manual_run(schedule, NOW)
    assert run == replace(
        slot_run(schedule, NOW, NOW),
        id=run.id,
        slot=None,
        origin=Origin.MANUAL,
        planned_at=NOW,
        available_at=NOW,
    )
    assert run.id != manual_run(schedule, NOW).id
    assert run.concurrency_key == f"user:alice/{schedule.policy.concurrency_key}"
    assert manual_run(schedule, NOW, beside_others=True).concurrency_key is None


def test_retried_run_references_the_original() -> None:
    schedule = full_schedule()
    first = replace(
        slot_run(schedule, NOW, NOW, catch_up=True),
        status=RunStatus.FAILED,
        attempt=3,
        fence=4,
        error="x",
    )
    again = retry_run(first, NOW + HOUR)
    assert again == replace(manual_run(schedule, NOW + HOUR), id=again.id, retry_of=first.id)


def test_backfill_uses_a_free_slot() -> None:
    schedule = full_schedule()
    slot = NOW - HOUR
    run = backfill_run(schedule, slot, None, NOW)
    assert (run.id, run.slot) == (slot_run_id(schedule.id, slot), slot)
    assert (run.origin, run.catch_up, run.retry_of) == (Origin.BACKFILL, True, None)
    assert (run.planned_at, run.available_at) == (slot, NOW)


# The row of a slot is not changed: the backfill is another run.
def test_backfill_of_a_recorded_slot_is_another_run() -> None:
    schedule = full_schedule()
    slot = NOW - HOUR
    row = end_immediately(slot_run(schedule, slot, NOW), MISSED, Reason.MISFIRE, NOW)
    run = backfill_run(schedule, slot, row, NOW)
    assert (run.slot, run.retry_of, run.planned_at) == (None, row.id, slot)
    assert run.id != row.id
    # A repeated request creates no second run.
    assert backfill_run(schedule, slot, row, NOW + HOUR).id == run.id
    other = a_run(id=RunId("another row"))
    assert backfill_run(schedule, slot, other, NOW).retry_of == other.id


def test_run_id_of_a_slot_is_independent_of_time() -> None:
    schedule: Schedule = a_schedule()
    assert slot_run(schedule, NOW, NOW).id == slot_run(schedule, NOW, NOW + HOUR).id
    assert slot_run(schedule, NOW, NOW).id != slot_run(schedule, NOW + SECOND, NOW).id
    assert slot_run(schedule, NOW, NOW).id != slot_run(a_schedule(), NOW, NOW).id
