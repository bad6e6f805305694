"""What may be taken ahead of its time, and what comes back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from chimes.model.ids import NodeId
from chimes.model.planning import (
    CLOSED,
    FireContext,
    OnTime,
    can_be_taken_back,
    may_be_ahead,
    maybe_ahead,
    plan,
    taken_ahead,
    taken_back,
)
from chimes.model.policy import Policy
from chimes.model.run import Origin, Run, RunStatus, canceled, lost, released
from chimes.model.schedule import Dependency, Schedule
from chimes.triggers import Every
from tests.builders import KINDS, MINUTE, NOW, SECOND, due_schedule

SLOT = NOW + SECOND
TICK = timedelta(microseconds=1)


def early(schedule: Schedule, now: Any = NOW) -> Run:
    firing = plan(schedule, FireContext(), SLOT)
    assert isinstance(firing, OnTime)
    return taken_ahead(firing, now).run(NodeId("node-1"))


def test_a_run_taken_ahead_starts_when_it_is_planned() -> None:
    run = early(due_schedule(SLOT))
    assert (run.created_at, run.claimed_at, run.started_at) == (NOW, NOW, SLOT)
    assert (run.planned_at, run.available_at, run.attempt) == (SLOT, SLOT, 1)
    assert run.ahead
    assert not replace(run, claimed_at=SLOT).ahead
    assert not released(run).ahead


def test_no_two_claims_of_a_slot_have_the_same_fence() -> None:
    schedule = due_schedule(SLOT)
    on_time = plan(schedule, FireContext(), SLOT)
    assert isinstance(on_time, OnTime)
    fences = [early(schedule, NOW + number * TICK).fence for number in range(5)]
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
def test_what_may_be_ahead(given: dict[str, Any], expected: bool) -> None:
    schedule = due_schedule(SLOT, **given)
    assert may_be_ahead(schedule, KINDS, NOW) is expected
    assert not may_be_ahead(schedule, frozenset(), NOW)


def test_until_when_it_can_be_taken_back() -> None:
    run = early(due_schedule(SLOT))
    closed = SLOT - CLOSED
    assert can_be_taken_back(run, closed - TICK)
    assert not can_be_taken_back(run, closed)
    assert can_be_taken_back(released(run), closed - TICK)
    assert not can_be_taken_back(canceled(run, "x", NOW), NOW)
    assert not can_be_taken_back(replace(run, origin=Origin.BACKFILL), NOW)
    assert not can_be_taken_back(replace(run, slot=None), NOW)


def test_the_schedule_is_as_it_was() -> None:
    before = due_schedule(SLOT, fired_count=3, last_slot=NOW - MINUTE)
    run = early(before)
    firing = plan(before, FireContext(), SLOT)
    assert isinstance(firing, OnTime)
    after = replace(firing, now=NOW).schedule
    assert maybe_ahead(after, NOW)
    assert not maybe_ahead(before, NOW)
    assert not maybe_ahead(due_schedule(SLOT), NOW)
    back = taken_back(after, run, NOW - MINUTE)
    assert back == replace(before, last_enqueued_at=NOW)
    purged = replace(after, purged_until=NOW - SECOND)
    assert taken_back(purged, run, NOW - MINUTE).last_slot == NOW - SECOND
    assert taken_back(after, run, None).last_slot is None


# F04: a node that is gone before the time has come cannot have begun
def test_lost_before_its_time_it_waits_for_it() -> None:
    run = early(due_schedule(SLOT, trigger=Every("1m", anchor=SLOT)))
    assert lost(run, NOW) == released(run)
    after = lost(run, SLOT)
    assert (after.status, after.available_at, after.crashes) == (RunStatus.QUEUED, SLOT, 1)
