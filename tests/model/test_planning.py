"""Planning of due schedules: on time, late, limited."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from chimes.model import replace
from chimes.model.ids import ScheduleId, slot_run_id
from chimes.model.planning import ON_TIME_LIMIT, FireContext, FirePlan, MaintenanceWindow, plan
from chimes.model.policy import Misfire, Overlap, Policy
from chimes.model.run import Origin, Reason, Run, RunStatus
from chimes.model.schedule import Dependency, run_definition, set_cursor
from chimes.triggers import Cron, Every, Once
from tests.builders import HOUR, MINUTE, NOW, SECOND, a_schedule, due_schedule, full_schedule
from tests.model.fire_plans import (
    FREE,
    MISSED,
    QUEUED,
    SKIPPED,
    minutes,
    planned_runs,
    with_active_runs,
)


def late_by(now: datetime, **given: Any) -> FirePlan:
    """Plan of a minutely schedule whose cursor is still on NOW."""
    return plan(due_schedule(policy=Policy(**given)), FREE, now)


# --- maintenance that has ended -----------------------------------------------------------------
def planned_around(*spans: tuple[int, int], **given: Any) -> FirePlan:
    """Plan at NOW + 20 minutes of a minutely schedule whose cursor is still on NOW, after windows
    from one minute to another."""
    windows = tuple(
        MaintenanceWindow(since=NOW + since * MINUTE, until=NOW + until * MINUTE)
        for since, until in spans
    )
    schedule = due_schedule(policy=Policy(**{"misfire_grace": SECOND, **given}))
    return plan(schedule, FireContext(windows=windows), NOW + 20 * MINUTE)


def rows_of(firing: FirePlan) -> list[tuple[RunStatus, str, datetime | None, int]]:
    return [(run.status, run.reason, run.slot, run.missed_count) for run in firing.runs]


def test_missed_slots_are_counted_without_those_of_windows() -> None:
    missed, skipped = (MISSED, Reason.MISFIRE), (SKIPPED, Reason.MAINTENANCE)
    at = [NOW + number * MINUTE for number in range(22)]
    # Windows may overlap, touch and contain no slot.
    firing = planned_around((2, 5), (4, 8), (12, 15), (15, 20), misfire=Misfire.SKIP)
    assert rows_of(firing) == [
        (*missed, at[0], 2),
        (*skipped, at[2], 3),
        (*skipped, at[5], 3),
        (*missed, at[8], 4),
        (*skipped, at[12], 3),
        (*skipped, at[15], 5),
        (QUEUED, "", at[20], 0),
    ]
    assert (firing.schedule.next_slot, firing.schedule.fired_count) == (at[21], 1)
    firing = planned_around((1, 19), misfire=Misfire.ONE)
    assert rows_of(firing) == [
        (*skipped, at[1], 18),
        (*missed, at[19], 1),
        (QUEUED, Reason.CATCH_UP, at[0], 0),
        (QUEUED, "", at[20], 0),
    ]


def test_a_pass_ends_before_a_window() -> None:
    """Late slots and slots within a long grace: the next pass skips those of the window."""
    for given in ({"misfire": Misfire.ALL}, {"misfire_grace": HOUR}):
        firing = planned_around((3, 6), max_concurrent_runs=100, **given)
        assert [run.slot for run in firing.runs] == minutes(0, 1, 2)
        assert {run.status for run in firing.runs} == {QUEUED}
        assert (firing.schedule.next_slot, firing.schedule.fired_count) == (NOW + 3 * MINUTE, 3)


def test_a_moved_slot_does_not_hide_a_window() -> None:
    """The first slot was moved behind the window; those after it are due earlier."""
    window = MaintenanceWindow(since=NOW + 2 * MINUTE, until=NOW + 5 * MINUTE)
    policy = Policy(misfire=Misfire.SKIP, misfire_grace=SECOND)
    moved = replace(due_schedule(policy=policy), next_run_at=NOW + 8 * MINUTE)
    firing = plan(moved, FireContext(windows=(window,)), NOW + 10 * MINUTE)
    assert rows_of(firing)[:4] == [
        (MISSED, Reason.MISFIRE, NOW, 1),
        (MISSED, Reason.MISFIRE, NOW + MINUTE, 1),
        (SKIPPED, Reason.MAINTENANCE, NOW + 2 * MINUTE, 3),
        (MISSED, Reason.MISFIRE, NOW + 5 * MINUTE, 5),
    ]


# --- on time ----------------------------------------------------------------------------------
def test_a_due_slot_becomes_its_run() -> None:
    schedule = replace(full_schedule(), enabled=True, depends_on=None)
    slot, due = schedule.next_slot, schedule.next_run_at
    assert slot is not None
    assert due is not None
    now = due + SECOND / 2
    firing = plan(schedule, FREE, now)
    assert firing.runs == (
        Run(
            id=slot_run_id(schedule.id, slot),
            definition=run_definition(schedule),
            slot=slot,
            origin=Origin.SCHEDULE,
            priority=-5,
            concurrency_key=f"user:alice/{schedule.policy.concurrency_key}",
            concurrency_limit=3,
            created_at=now,
            planned_at=due,
            available_at=due,
        ),
    )
    own = replace(schedule, policy=replace(schedule.policy, concurrency_key=None))
    assert plan(own, FREE, now).runs[0].concurrency_key == "schedule:full"
    following = schedule.trigger.next_after(slot)
    assert following is not None
    jitter = schedule.trigger.jitter_for(schedule.id, following)
    assert firing.schedule == replace(
        schedule,
        next_slot=following,
        next_run_at=following + jitter,
        last_slot=slot,
        last_enqueued_at=now,
        fired_count=43,
    )
    assert firing.cancel == ()


def test_schedule_that_is_not_due_is_unchanged() -> None:
    waiting = a_schedule()
    assert plan(waiting, FREE, NOW) == FirePlan(schedule=waiting, runs=())
    unplanned = set_cursor(waiting, None)
    assert plan(unplanned, FREE, NOW) == FirePlan(schedule=unplanned, runs=())


# A slot late within the grace period is on time under any policy.
@pytest.mark.parametrize("misfire", Misfire)
def test_grace_period_is_inclusive(misfire: Misfire) -> None:
    firing = late_by(NOW + MINUTE, misfire=misfire, misfire_grace=MINUTE)
    assert planned_runs(firing) == [(QUEUED, NOW, False), (QUEUED, NOW + MINUTE, True)]
    assert [run.catch_up for run in firing.runs] == [False, False]
    assert firing.schedule.next_slot == NOW + 2 * MINUTE


def test_many_slots_within_the_grace_period_need_several_passes() -> None:
    trigger = Every("1s", anchor=NOW)
    policy = Policy(misfire_grace=HOUR, overlap=Overlap.ALLOW)
    now = NOW + (ON_TIME_LIMIT + 9) * SECOND
    firing = plan(due_schedule(trigger=trigger, policy=policy), FREE, now)
    assert len(firing.runs) == ON_TIME_LIMIT
    assert firing.schedule.next_slot == NOW + ON_TIME_LIMIT * SECOND
    rest = plan(firing.schedule, FREE, now)
    assert len(rest.runs) == 10
    assert rest.schedule.next_slot == now + SECOND


# --- misfires -----------------------------------------------------------------------------
def test_misfire_skip_records_one_row_for_all_missed_slots() -> None:
    firing = late_by(NOW + 10.5 * MINUTE, misfire=Misfire.SKIP, misfire_grace=SECOND)
    (row,) = firing.runs
    assert (row.status, row.reason, row.slot) == (MISSED, Reason.MISFIRE, NOW)
    assert (row.missed_count, row.missed_until) == (11, NOW + 10 * MINUTE)
    assert row.finished_at == NOW + 10.5 * MINUTE
    assert row.id == slot_run_id(row.schedule_id or ScheduleId(""), NOW)
    after = firing.schedule
    assert (after.next_slot, after.last_slot) == (NOW + 11 * MINUTE, NOW + 10 * MINUTE)
    assert (after.last_status, after.fired_count, after.last_enqueued_at) == (MISSED, 0, None)


def test_misfire_skip_runs_slots_within_the_grace_period() -> None:
    firing = late_by(NOW + 10 * MINUTE, misfire=Misfire.SKIP, misfire_grace=SECOND)
    missed, run = firing.runs
    assert (missed.missed_count, missed.missed_until) == (10, NOW + 9 * MINUTE)
    assert (run.status, run.slot) == (QUEUED, NOW + 10 * MINUTE)
    assert firing.schedule.last_slot == NOW + 10 * MINUTE


def test_misfire_one_runs_the_oldest_slot_and_records_the_rest() -> None:
    now = NOW + 10.5 * MINUTE
    missed, run = late_by(now, misfire=Misfire.ONE, misfire_grace=SECOND).runs
    assert (missed.slot, missed.missed_count) == (NOW + MINUTE, 10)
    assert missed.missed_until == NOW + 10 * MINUTE
    assert (run.status, run.slot, run.catch_up) == (QUEUED, NOW, True)
    assert (run.reason, run.planned_at, run.available_at) == (Reason.CATCH_UP, NOW, now)


def test_misfire_one_with_a_single_slot_records_no_missed_row() -> None:
    firing = late_by(NOW + 50 * SECOND, misfire=Misfire.ONE, misfire_grace=SECOND)
    assert planned_runs(firing) == [(QUEUED, NOW, False)]
    assert firing.runs[0].catch_up


def test_misfire_latest_runs_the_newest_slot_and_records_the_rest() -> None:
    now = NOW + 10.5 * MINUTE
    firing = late_by(now, misfire=Misfire.LATEST, misfire_grace=SECOND)
    missed, run = firing.runs
    assert (missed.slot, missed.missed_count) == (NOW, 10)
    assert missed.missed_until == NOW + 9 * MINUTE
    assert (run.status, run.slot, run.catch_up) == (QUEUED, NOW + 10 * MINUTE, True)
    assert (run.reason, run.available_at) == (Reason.CATCH_UP, now)
    assert firing.schedule.next_slot == NOW + 11 * MINUTE
    assert firing.schedule.fired_count == 1
    single = late_by(NOW + 50 * SECOND, misfire=Misfire.LATEST, misfire_grace=SECOND)
    assert planned_runs(single) == [(QUEUED, NOW, False)]
    # Slots of maintenance do not run: the newest one before it does, they follow as skipped.
    firing = planned_around((12, 30), misfire=Misfire.LATEST)
    at = [NOW + number * MINUTE for number in range(22)]
    assert rows_of(firing) == [
        (MISSED, Reason.MISFIRE, at[0], 11),
        (QUEUED, Reason.CATCH_UP, at[11], 0),
    ]
    assert firing.schedule.next_slot == at[12]
    firing = planned_around((1, 30), misfire=Misfire.LATEST)
    assert rows_of(firing) == [(QUEUED, Reason.CATCH_UP, at[0], 0)]
    assert firing.schedule.next_slot == at[1]


def test_misfire_all_runs_every_slot_oldest_first() -> None:
    firing = late_by(NOW + 3.5 * MINUTE, misfire=Misfire.ALL, misfire_grace=SECOND)
    assert [run.slot for run in firing.runs] == minutes(0, 1, 2, 3)
    assert [run.catch_up for run in firing.runs] == [True] * 4
    assert [run.blocked for run in firing.runs] == [False, True, True, True]
    assert firing.schedule.fired_count == 4


def test_misfire_all_is_limited_per_pass_and_keeps_the_order() -> None:
    policy = {"misfire": Misfire.ALL, "misfire_grace": SECOND, "catch_up_limit": 3}
    now = NOW + 7 * MINUTE
    firing = late_by(now, **policy)
    assert [run.slot for run in firing.runs] == minutes(0, 1, 2)
    assert firing.schedule.next_slot == NOW + 3 * MINUTE
    assert firing.schedule.next_run_at == NOW + 3 * MINUTE
    second = plan(firing.schedule, FREE, now)
    assert [run.slot for run in second.runs] == minutes(3, 4, 5)
    third = plan(second.schedule, FREE, now)
    # Slot 6 is late, slot 7 is due now.
    assert [(run.slot, run.catch_up) for run in third.runs] == list(
        zip(minutes(6, 7), [True, False], strict=True)
    )
    assert third.schedule.next_slot == NOW + 8 * MINUTE
    assert third.schedule.fired_count == 8


@pytest.mark.parametrize("key", [None, "shared"])
def test_on_time_slots_queue_behind_the_backlog_of_their_schedule(key: str | None) -> None:
    """Under a shared key they compete with other schedules by their rank."""
    policy = Policy(
        misfire=Misfire.ALL,
        misfire_grace=SECOND,
        overlap=Overlap.QUEUE,
        concurrency_key=key,
    )
    now = NOW + 2 * MINUTE
    firing = plan(due_schedule(policy=policy), FREE, now)
    assert [run.catch_up for run in firing.runs] == [True, True, key is None]
    assert firing.runs[-1].available_at == now
    context = FireContext(admitted=(firing.runs[0].id,), backlog=key is None)
    (run,) = plan(firing.schedule, context, now + MINUTE).runs
    assert (run.blocked, run.catch_up, run.reason) == (True, key is None, "")


# 30 days of minutes.
@pytest.mark.parametrize("misfire", [Misfire.SKIP, Misfire.ONE])
def test_missed_slots_of_a_month_are_counted(misfire: Misfire) -> None:
    trigger = Cron("* * * * *")
    schedule = due_schedule(trigger=trigger, policy=Policy(misfire=misfire))
    firing = plan(schedule, FREE, NOW + timedelta(days=30, seconds=90))
    head = 0 if misfire is Misfire.SKIP else 1
    missed = firing.runs[0]
    # Later slots are within the grace period of 60 seconds.
    assert missed.missed_count == 30 * 24 * 60 + 1 - head
    assert missed.missed_until == NOW + timedelta(days=30)


def test_overdue_once_with_misfire_skip_is_missed_and_finished() -> None:
    policy = Policy(misfire=Misfire.SKIP, misfire_grace=SECOND)
    schedule = due_schedule(trigger=Once(NOW), policy=policy)
    firing = plan(schedule, FREE, NOW + HOUR)
    (row,) = firing.runs
    assert (row.status, row.missed_count, row.missed_until) == (MISSED, 1, NOW)
    assert (firing.schedule.next_slot, firing.schedule.next_run_at) == (None, None)


@pytest.mark.parametrize("misfire", [Misfire.ONE, Misfire.LATEST, Misfire.ALL])
def test_an_overdue_once_runs_under_the_other_policies(misfire: Misfire) -> None:
    schedule = due_schedule(trigger=Once(NOW), policy=Policy(misfire=misfire))
    firing = plan(schedule, FREE, NOW + HOUR)
    assert planned_runs(firing) == [(QUEUED, NOW, False)]
    assert firing.schedule.next_slot is None


def test_once_on_time_runs_and_is_finished() -> None:
    firing = plan(due_schedule(trigger=Once(NOW)), FREE, NOW)
    assert planned_runs(firing) == [(QUEUED, NOW, False)]
    assert firing.schedule.next_slot is None


def test_interval_does_not_drift() -> None:
    schedule = due_schedule(trigger=Every("7s", anchor=NOW, jitter="5s"))
    now = NOW
    for step in range(50):
        assert schedule.next_run_at is not None
        now = max(now, schedule.next_run_at) + (step % 3) * timedelta(milliseconds=700)
        schedule = plan(schedule, FREE, now).schedule
        assert schedule.next_slot is not None
        assert (schedule.next_slot - NOW) % timedelta(seconds=7) == timedelta(0)
        jitter = schedule.trigger.jitter_for(schedule.id, schedule.next_slot)
        assert schedule.next_run_at == schedule.next_slot + jitter


# Jitter is added to the due time, not to the slot.
def test_lateness_counts_from_the_jittered_time() -> None:
    trigger = Every("1m", anchor=NOW, jitter="1m")
    schedule = a_schedule(
        trigger=trigger, policy=Policy(misfire=Misfire.SKIP, misfire_grace=SECOND)
    )
    schedule = set_cursor(schedule, NOW)
    due = schedule.next_run_at
    assert due is not None
    on_time = plan(schedule, FREE, due + SECOND)
    assert (QUEUED, NOW, False) in planned_runs(on_time)
    late = plan(schedule, FREE, due + SECOND * 1.001)
    assert (late.runs[0].status, late.runs[0].slot) == (MISSED, NOW)
    # Slots count as missed only after their own jittered time and the grace period.
    now = NOW + 10 * MINUTE
    (missed, *rest) = plan(schedule, FREE, now).runs
    for number in range(11):
        slot = NOW + number * MINUTE
        moment = slot + trigger.jitter_for(schedule.id, slot)
        among = missed.missed_until is not None and slot <= missed.missed_until
        assert among == (moment < now - SECOND)
        assert (slot in [run.slot for run in rest]) == (now - SECOND <= moment <= now)


def test_a_jittered_slot_exactly_at_the_grace_is_on_time() -> None:
    trigger = Every("1m", anchor=NOW, jitter="1m")
    policy = Policy(misfire=Misfire.SKIP, misfire_grace=SECOND)
    schedule = set_cursor(a_schedule(trigger=trigger, policy=policy), NOW)
    slot = NOW + 5 * MINUTE
    edge = slot + trigger.jitter_for(schedule.id, slot)
    missed, *rest = plan(schedule, FREE, edge + SECOND).runs
    assert missed.missed_until == slot - MINUTE
    assert slot in [run.slot for run in rest]


# --- max_runs ---------------------------------------------------------------------------------
def test_max_runs_ends_the_schedule() -> None:
    trigger = Every("1m", anchor=NOW, max_runs=2)
    firing = plan(due_schedule(trigger=trigger, fired_count=1), FREE, NOW)
    assert planned_runs(firing) == [(QUEUED, NOW, False)]
    assert (firing.schedule.fired_count, firing.schedule.next_slot) == (2, None)


def test_max_runs_limits_slots_of_one_pass() -> None:
    trigger = Every("10s", anchor=NOW, max_runs=3)
    firing = plan(due_schedule(trigger=trigger), FREE, NOW + 55 * SECOND)
    assert [run.slot for run in firing.runs] == [NOW + n * 10 * SECOND for n in range(3)]
    assert firing.schedule.next_slot is None


def test_max_runs_limits_catch_up() -> None:
    policy = Policy(misfire=Misfire.ALL, misfire_grace=SECOND)
    trigger = Every("1m", anchor=NOW, max_runs=3)
    firing = plan(due_schedule(trigger=trigger, policy=policy), FREE, NOW + HOUR)
    assert [run.slot for run in firing.runs] == minutes(0, 1, 2)
    assert (firing.schedule.fired_count, firing.schedule.next_slot) == (3, None)


def test_missed_and_skipped_slots_are_not_counted_as_runs() -> None:
    trigger = Every("1m", anchor=NOW, max_runs=1)
    policy = Policy(misfire=Misfire.SKIP, misfire_grace=SECOND)
    firing = plan(due_schedule(trigger=trigger, policy=policy), FREE, NOW + 90 * SECOND)
    assert (firing.schedule.fired_count, firing.schedule.next_slot) == (0, NOW + 2 * MINUTE)
    skipped = plan(due_schedule(trigger=trigger), with_active_runs(1), NOW)
    assert planned_runs(skipped) == [(SKIPPED, NOW, False)]
    assert skipped.schedule.next_slot == NOW + MINUTE


# A slot skipped for a dependency does not count towards max_runs.
def test_skipped_slots_of_a_catch_up_do_not_count_towards_max_runs() -> None:
    policy = Policy(misfire=Misfire.ALL, misfire_grace=SECOND)
    schedule = due_schedule(
        trigger=Every("1m", anchor=NOW, max_runs=2),
        policy=policy,
        depends_on=Dependency(schedule_id=ScheduleId("other")),
    )
    firing = plan(schedule, FREE, NOW + 5 * MINUTE)
    assert planned_runs(firing) == [(SKIPPED, slot, False) for slot in minutes(0, 1)]
    assert firing.schedule.next_slot == NOW + 2 * MINUTE
