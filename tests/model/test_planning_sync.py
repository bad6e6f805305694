"""Planning of sync schedules: a queued run counts as the active run of its pair."""

from __future__ import annotations

from chimes.model.planning import plan
from chimes.model.run import Reason
from chimes.model.sync import task_policy
from chimes.model.target import SyncTarget
from chimes.triggers import Every
from tests.builders import NOW, SECOND, due_schedule
from tests.model.fire_plans import FREE, QUEUED, SKIPPED, planned_runs, with_active_runs

PAIR = SyncTarget(source="shop", collection="orders")


def test_sync_slots_of_one_late_pass_are_skipped() -> None:
    schedule = due_schedule(
        trigger=Every("1s", anchor=NOW), target=PAIR, policy=task_policy(PAIR), priority=200
    )
    firing = plan(schedule, FREE, NOW + 2 * SECOND)
    assert planned_runs(firing) == [
        (QUEUED, NOW, False),
        (SKIPPED, NOW + SECOND, False),
        (SKIPPED, NOW + 2 * SECOND, False),
    ]
    assert {run.reason for run in firing.runs[1:]} == {Reason.OVERLAP}
    assert firing.runs[0].concurrency_key == PAIR.key
    assert firing.runs[0].priority == 200


def test_slot_of_a_busy_pair_is_skipped() -> None:
    schedule = due_schedule(target=PAIR, policy=task_policy(PAIR))
    assert planned_runs(plan(schedule, with_active_runs(1), NOW)) == [(SKIPPED, NOW, False)]
