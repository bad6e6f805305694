"""Changes of schedules."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from chimes.model import replace
from chimes.model.run import Run, RunStatus
from chimes.model.schedule import (
    Schedule,
    apply_edit,
    delete_schedule,
    due_time,
    has_runs_left,
    move_next_run,
    pause_schedule,
    plan_after,
    record_run,
    reschedule_next,
    resume_schedule,
    set_cursor,
    skip_next_slot,
    stop_with_error,
)
from chimes.triggers import Every, Once
from tests.builders import HOUR, MINUTE, NOW, SECOND, a_run, a_schedule, due_schedule

LATER = NOW + 90 * SECOND


def changed(schedule: Schedule, **given: Any) -> Schedule:
    """The expected next version, changed by "me" at LATER."""
    return replace(
        schedule, version=schedule.version + 1, updated_at=LATER, updated_by="me", **given
    )


# --- the cursor -------------------------------------------------------------------------------
def test_plan_after_sets_the_cursor_to_the_next_slot() -> None:
    schedule = a_schedule(next_slot=None)
    after = plan_after(schedule, NOW)
    assert after == replace(schedule, next_slot=NOW + MINUTE, next_run_at=NOW + MINUTE)


def test_jitter_changes_the_due_time_and_not_the_slot() -> None:
    schedule = plan_after(a_schedule(trigger=Every("1m", anchor=NOW, jitter="30s")), NOW)
    assert schedule.next_slot == NOW + MINUTE
    assert schedule.next_run_at is not None
    jitter = schedule.next_run_at - NOW - MINUTE
    assert timedelta(0) <= jitter < 30 * SECOND
    assert due_time(schedule, NOW + MINUTE) == schedule.next_run_at
    assert due_time(schedule, None) is None


@pytest.mark.parametrize(
    "given",
    [
        {"enabled": False},
        {"deleted_at": NOW},
        {"trigger": Every("1m", anchor=NOW, max_runs=3), "fired_count": 3},
        {"trigger": Once(NOW)},
    ],
    ids=["paused", "deleted", "used up", "over"],
)
def test_schedules_without_a_next_slot(given: dict[str, Any]) -> None:
    schedule = replace(a_schedule(), **given)
    after = plan_after(schedule, NOW)
    assert (after.next_slot, after.next_run_at) == (None, None)


def test_has_runs_left_counts_fired_runs() -> None:
    endless = a_schedule(fired_count=10**9)
    assert has_runs_left(endless)
    limited = a_schedule(trigger=Every("1m", anchor=NOW, max_runs=3), fired_count=2)
    assert has_runs_left(limited)
    assert not has_runs_left(limited, fired=1)


# --- edits -------------------------------------------------------------------------------
def test_edit_of_other_fields_keeps_the_cursor() -> None:
    schedule = move_next_run(a_schedule(), NOW + HOUR, NOW, "me")
    after = apply_edit(schedule, replace(schedule, name="new"), LATER, "me")
    assert after == changed(schedule, name="new")


def test_new_trigger_is_planned_again() -> None:
    schedule = a_schedule()
    trigger = Every("7m", anchor=NOW)
    after = apply_edit(schedule, replace(schedule, trigger=trigger), LATER, "me")
    slot = NOW + 7 * MINUTE
    assert after == changed(schedule, trigger=trigger, next_slot=slot, next_run_at=slot)


def test_pause_clears_the_cursor() -> None:
    schedule = a_schedule()
    after = pause_schedule(schedule, LATER, "me", note="lunch", until=NOW + HOUR)
    assert after == changed(
        schedule,
        enabled=False,
        pause_note="lunch",
        pause_until=NOW + HOUR,
        next_slot=None,
        next_run_at=None,
    )


def test_resume_plans_after_now() -> None:
    asleep = pause_schedule(a_schedule(), NOW, "me", note="lunch", until=NOW + HOUR)
    after = resume_schedule(asleep, LATER, "me")
    slot = NOW + 2 * MINUTE
    assert after == changed(
        asleep, enabled=True, pause_note="", pause_until=None, next_slot=slot, next_run_at=slot
    )


def test_resume_of_an_enabled_schedule_keeps_the_slot() -> None:
    schedule = due_schedule()
    assert resume_schedule(schedule, LATER, "me") == changed(schedule)


def test_delete_disables_and_clears_the_cursor() -> None:
    schedule = a_schedule()
    assert delete_schedule(schedule, LATER, "me") == changed(
        schedule, enabled=False, deleted_at=LATER, next_slot=None, next_run_at=None
    )


def test_reschedule_sets_the_next_slot() -> None:
    schedule = a_schedule()
    to = NOW + HOUR + SECOND
    assert reschedule_next(schedule, to, LATER, "me") == changed(
        schedule, next_slot=to, next_run_at=to
    )
    past = reschedule_next(schedule, NOW - HOUR, LATER, "me")
    assert past == changed(schedule, next_slot=LATER, next_run_at=LATER)


def test_move_keeps_the_slot() -> None:
    schedule = a_schedule()
    to = NOW + HOUR
    assert move_next_run(schedule, to, LATER, "me") == changed(schedule, next_run_at=to)
    assert move_next_run(schedule, NOW - HOUR, LATER, "me") == changed(schedule, next_run_at=LATER)


def test_skip_advances_to_the_following_slot() -> None:
    schedule = a_schedule()
    assert skip_next_slot(schedule, LATER, "me") == changed(
        schedule,
        next_slot=NOW + 2 * MINUTE,
        next_run_at=NOW + 2 * MINUTE,
        last_slot=NOW + MINUTE,
    )
    last = due_schedule(trigger=Once(NOW))
    after = skip_next_slot(last, LATER, "me")
    assert (after.next_slot, after.last_slot) == (None, NOW)


def test_stop_with_error_clears_the_cursor() -> None:
    schedule = due_schedule()
    assert stop_with_error(schedule, "broken") == replace(
        schedule,
        next_slot=None,
        next_run_at=None,
        last_status=RunStatus.FAILED,
        last_error="broken",
    )


def test_set_cursor_accepts_any_time() -> None:
    schedule = set_cursor(a_schedule(), NOW - HOUR)
    assert (schedule.next_slot, schedule.next_run_at) == (NOW - HOUR, NOW - HOUR)


# --- the summary of the latest run -----------------------------------------------------
def ended(status: RunStatus, started: int | None, finished: int, error: str = "") -> Run:
    return a_run(
        status=status,
        started_at=None if started is None else NOW + started * SECOND,
        finished_at=NOW + finished * SECOND,
        error=error,
    )


def test_success_is_summarised() -> None:
    schedule = a_schedule(last_status=RunStatus.FAILED, last_error="old")
    assert record_run(schedule, ended(RunStatus.SUCCEEDED, 1, 5)) == replace(
        schedule,
        last_run_at=NOW + SECOND,
        last_status=RunStatus.SUCCEEDED,
        last_error="",
        last_success_at=NOW + 5 * SECOND,
    )


def test_a_failure_keeps_the_time_of_the_last_success() -> None:
    schedule = a_schedule(last_success_at=NOW - HOUR)
    after = record_run(schedule, ended(RunStatus.FAILED, 1, 5, "no"))
    assert after == replace(
        schedule, last_run_at=NOW + SECOND, last_status=RunStatus.FAILED, last_error="no"
    )


def test_an_older_run_that_ends_later_does_not_hide_the_newer_one() -> None:
    schedule = record_run(a_schedule(), ended(RunStatus.FAILED, 10, 11, "new"))
    after = record_run(schedule, ended(RunStatus.TIMEOUT, 2, 20, "old"))
    assert after == schedule
    succeeded = record_run(schedule, ended(RunStatus.SUCCEEDED, 2, 20))
    assert succeeded == replace(schedule, last_success_at=NOW + 20 * SECOND)
    # Successes that end out of order leave the latest one.
    assert record_run(succeeded, ended(RunStatus.SUCCEEDED, 1, 15)) == succeeded


def test_run_that_never_started_updates_the_last_status() -> None:
    schedule = a_schedule(last_run_at=NOW)
    after = record_run(schedule, ended(RunStatus.CANCELED, None, 3))
    assert after == replace(schedule, last_status=RunStatus.CANCELED)


def test_success_without_end_time_keeps_last_success_at() -> None:
    run = a_run(status=RunStatus.SUCCEEDED, started_at=NOW)
    after = record_run(a_schedule(last_success_at=NOW - HOUR), run)
    assert (after.last_success_at, after.last_run_at) == (NOW - HOUR, NOW)


def test_automatically_ended_pause_is_planned_from_its_end() -> None:
    # The slot at the end counts, and so do slots that came due before it was noticed.
    schedule = a_schedule()
    until = NOW + 5 * MINUTE
    off = pause_schedule(schedule, NOW, "me", until=until)
    late = until + 3 * MINUTE + SECOND
    assert resume_schedule(off, late, "chimes", since=until).next_slot == until
    assert resume_schedule(off, late, "me").next_slot == until + 4 * MINUTE
