"""Planning of sync schedules: a queued run counts as the active run of its pair."""

from __future__ import annotations

from chimes.model.definition import SyncTarget
from chimes.model.planning import plan
from chimes.model.run import Reason
from chimes.model.sync import task_policy
from chimes.triggers import Every
from tests.builders import NOW, SECOND, due_schedule
from tests.model.fire_plans import FREE, QUEUED, SKIPPED, busy, shown

PAIR = SyncTarget(source="shop", collection="orders")


def test_ticks_that_one_late_pass_brings_together_do_not_wait() -> None:
    schedule = due_schedule(
        trigger=Every("1s", anchor=NOW), target=PAIR, policy=task_policy(PAIR), priority=200
    )
    firing = plan(schedule, FREE, NOW + 2 * SECOND)
    assert shown(firing) == [
        (QUEUED, NOW, False),
        (SKIPPED, NOW + SECOND, False),
        (SKIPPED, NOW + 2 * SECOND, False),
    ]
    assert {run.reason for run in firing.runs[1:]} == {Reason.OVERLAP}
    assert firing.runs[0].concurrency_key == PAIR.key
    assert firing.runs[0].priority == 200


def test_a_tick_of_a_busy_pair_is_no_task() -> None:
    schedule = due_schedule(target=PAIR, policy=task_policy(PAIR))
    assert shown(plan(schedule, busy(1), NOW)) == [(SKIPPED, NOW, False)]
