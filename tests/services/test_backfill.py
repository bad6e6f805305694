"""Concurrency of backfill runs, among themselves and with other runs of the schedule."""

from __future__ import annotations

import pytest

from chimes.errors import InvalidInput
from chimes.model.access import Actor, Role
from chimes.model.listing import AuditQuery
from chimes.model.planning import plan
from chimes.model.policy import Overlap, Policy
from chimes.model.run import Reason, Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.services.manual_runs import BACKFILL_LIMIT, ManualRuns, Pace, check_pace, paced
from chimes.services.schedules.rules import ScheduleRules
from chimes.store.memory import MemoryStore
from chimes.testing import SettableClock
from chimes.triggers import Cron
from tests.builders import (
    HOUR,
    MINUTE,
    NOW,
    a_completion,
    a_node,
    a_run,
    claim_request,
    due_schedule,
)

ADMIN = Actor(role=Role.ADMIN)


async def backfill_of(
    policy: Policy, pace: Pace
) -> tuple[MemoryStore, SettableClock, tuple[Run, ...]]:
    clock = SettableClock()
    store = MemoryStore(clock)
    await store.join(a_node(), 24 * HOUR)
    schedule = due_schedule(
        NOW + HOUR, trigger=Cron("0 * * * *", timezone="UTC"), policy=policy, created_at=NOW
    )
    await store.add_schedule(schedule)
    manual_runs = ManualRuns(store, ScheduleRules(store, check_target=lambda target: None))
    found = await manual_runs.backfill(ADMIN, schedule.id, NOW - 4 * HOUR, NOW - MINUTE, pace=pace)
    return store, clock, found.runs


def a_scheduled_run(schedule: Schedule | None = None) -> Run:
    return a_run(schedule, concurrency_key="schedule:s", concurrency_limit=1)


@pytest.mark.parametrize(
    ("policy", "pace", "at_once"),
    [
        (Policy(), Pace(), 1),
        (Policy(max_concurrent_runs=3), Pace(), 3),
        (Policy(), Pace(concurrency=2), 2),
        # A shared limit can only be lowered.
        (Policy(concurrency_key="db", max_concurrent_runs=2), Pace(concurrency=4), 2),
        (Policy(concurrency_key="db", max_concurrent_runs=2), Pace(concurrency=1), 1),
        (Policy(), Pace(overlap=Overlap.ALLOW), 4),
        (Policy(), Pace(concurrency=3, overlap=Overlap.ALLOW), 3),
        (Policy(overlap=Overlap.ALLOW), Pace(concurrency=2), 2),
    ],
)
async def test_pace_limits_concurrent_backfill_runs(
    policy: Policy, pace: Pace, at_once: int
) -> None:
    store, clock, runs = await backfill_of(policy, pace)
    assert len(runs) == 4
    first = await store.claim(claim_request())
    assert len(first) == at_once
    clock.advance(MINUTE)
    ended = 0
    while held := (first if not ended else await store.claim(claim_request())):
        assert len(held) <= at_once
        await store.finish([a_completion(run, clock.now()) for run in held])
        ended += len(held)
    assert ended == 4


async def test_overlap_allow_does_not_skip_slots_of_the_schedule() -> None:
    for overlap, left_out in ((Overlap.QUEUE, True), (Overlap.ALLOW, False)):
        store, clock, _ = await backfill_of(Policy(), Pace(concurrency=1, overlap=overlap))
        clock.advance(HOUR)
        fired = await store.fire_due(plan, limit=10)
        (slot,) = fired.others
        assert (slot.status is RunStatus.SKIPPED) is left_out
        assert (slot.reason == Reason.OVERLAP) is left_out
        (note,) = await store.list_audit(AuditQuery(verb="backfill"))
        assert note.changes == {"slots": 4, "overlap": overlap.value, "concurrency": 1}


def test_invalid_paces_are_rejected() -> None:
    for overlap in (Overlap.SKIP, Overlap.CANCEL_OLD):
        with pytest.raises(InvalidInput) as refused:
            check_pace(Pace(overlap=overlap))
        assert refused.value.field == "overlap"
    for count in (0, -1, BACKFILL_LIMIT + 1):
        with pytest.raises(InvalidInput) as refused:
            check_pace(Pace(concurrency=count))
        assert refused.value.field == "concurrency"


def test_own_concurrency_key_only_with_overlap_allow() -> None:
    run = a_scheduled_run()
    assert paced(run, Pace(), "g") == run
    assert paced(run, Pace(concurrency=5), "g").concurrency_key == "schedule:s"
    assert paced(run, Pace(concurrency=5, overlap=Overlap.ALLOW), "g").concurrency_key == "g"
    assert paced(run, Pace(overlap=Overlap.ALLOW), "g").concurrency_key is None
