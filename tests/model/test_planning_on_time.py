"""The plan of one on-time slot equals the general plan; a due time without a slot."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from chimes.model import replace
from chimes.model.ids import RunId
from chimes.model.planning import (
    FireContext,
    _plan_by_policy,
    _plan_single_slot,
    plan,
)
from chimes.model.policy import Misfire, Overlap, Policy
from chimes.triggers import Cron, Every
from tests.builders import HOUR, MINUTE, NOW, SECOND, a_schedule

TRIGGERS = st.sampled_from(
    [
        Every("1m", anchor=NOW),
        Every("1m", anchor=NOW, jitter="30s"),
        Every("1s", anchor=NOW),
        Every("1m", anchor=NOW, max_runs=3),
        Every("1m", anchor=NOW, end_at=NOW + MINUTE),
        Cron("*/5 * * * *"),
    ]
)
POLICIES = st.builds(
    Policy,
    misfire=st.sampled_from(Misfire),
    overlap=st.sampled_from(Overlap),
    misfire_grace=st.sampled_from([SECOND, MINUTE]),
    max_concurrent_runs=st.sampled_from([None, 1, 2]),
)


@given(
    trigger=TRIGGERS,
    policy=POLICIES,
    late=st.sampled_from([timedelta(0), SECOND / 2, SECOND, MINUTE, HOUR]),
    admitted=st.integers(0, 2),
    fired=st.integers(0, 3),
    moved=st.booleans(),
)
def test_on_time_plan_equals_the_general_plan(
    trigger: Every | Cron,
    policy: Policy,
    late: timedelta,
    admitted: int,
    fired: int,
    moved: bool,
) -> None:
    slot = trigger.next_after(NOW - SECOND)
    assert slot is not None
    due = slot + trigger.jitter_for("s", slot) + (MINUTE if moved else timedelta(0))
    schedule = a_schedule(
        id="s",
        trigger=trigger,
        policy=policy,
        next_slot=slot,
        next_run_at=due,
        fired_count=fired,
    )
    context = FireContext(admitted=tuple(RunId(f"r{n}") for n in range(admitted)))
    now = due + late
    short = _plan_single_slot(schedule, context, now)
    general = _plan_by_policy(schedule, context, now)
    assert not general.on_time
    if short is None:
        assert plan(schedule, context, now) == general
        return
    assert replace(short, on_time=False) == general
    assert plan(schedule, context, now) == short
    (run,) = short.runs
    assert short.on_time
    assert (run.slot, run.claimable, short.cancel) == (slot, True, ())


def test_only_a_single_admitted_slot_within_the_grace_is_on_time() -> None:
    schedule = a_schedule(next_slot=NOW, next_run_at=NOW)
    assert plan(schedule, FireContext(), NOW).on_time
    assert not plan(schedule, FireContext(), NOW - SECOND).on_time
    assert not plan(schedule, FireContext(), NOW + MINUTE).on_time
    assert not plan(schedule, FireContext(), NOW + schedule.policy.misfire_grace + SECOND).on_time
    assert not plan(schedule, FireContext(admitted=(RunId("r"),)), NOW).on_time


def test_due_time_without_a_slot_is_planned_without_a_run() -> None:
    schedule = a_schedule(next_slot=None, next_run_at=NOW + SECOND)
    firing = plan(schedule, FireContext(), NOW + 10 * SECOND)
    assert firing.runs == ()
    assert firing.schedule == replace(schedule, next_slot=NOW + MINUTE, next_run_at=NOW + MINUTE)


def test_due_time_without_a_slot_is_planned_from_that_time() -> None:
    """All slots since that time are due, however late it is planned."""
    schedule = a_schedule(next_slot=None, next_run_at=NOW + SECOND)
    firing = plan(schedule, FireContext(), NOW + HOUR)
    assert firing.schedule.next_slot == NOW + MINUTE
