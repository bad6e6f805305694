"""Schedules that need attention are the same on every store."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from chimes.model import replace
from chimes.model.insights import AttentionList, IssueCause, ScheduleAttention, ScheduleIssue
from chimes.model.planning import plan
from chimes.model.run import AttemptEnd, Origin, Run, RunStatus
from chimes.model.schedule import Schedule, pause_schedule, stop_with_error
from chimes.store.port import Store
from chimes.testing import SettableClock
from chimes.triggers import Once
from tests.builders import (
    ALICE,
    BOB,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    a_completion,
    a_run,
    a_schedule,
    claim_request,
)
from tests.ended_runs import ended
from tests.store_contract.scenes import joined, running_slot
from tests.store_contract.test_insights import FAILED, MISSED, OK, SKIPPED, TIMEOUT

DAY = timedelta(days=1)


async def attention(store: Store, **given: Any) -> AttentionList:
    return await store.needing_attention(**({"late": MINUTE, "limit": 50} | given))


def sign(schedule: Schedule, cause: IssueCause, **given: Any) -> ScheduleAttention:
    return ScheduleAttention(
        schedule=schedule, sign=ScheduleIssue(schedule_id=schedule.id, cause=cause, **given)
    )


def past(schedule: Schedule, *statuses: RunStatus) -> list[Run]:
    """Ended runs of a past day with these statuses, the newest last."""
    first = NOW - 3 * DAY
    return [ended(first + n * MINUTE, each, schedule) for n, each in enumerate(statuses)]


async def test_healthy_schedules_need_no_attention(store: Store) -> None:
    fine = a_schedule(last_status=OK)
    await store.load([fine, a_schedule(enabled=False), *past(fine, FAILED, FAILED, OK)])
    assert await attention(store) == AttentionList()


async def test_consecutive_failures_need_attention(store: Store) -> None:
    failing = a_schedule(owner=ALICE, last_status=TIMEOUT)
    skipped = a_schedule(owner=BOB, last_status=SKIPPED)
    off = a_schedule(enabled=False, last_status=FAILED)
    once = a_schedule(last_status=FAILED)
    gone = a_schedule(last_status=FAILED, deleted_at=NOW)
    runs = past(failing, OK, FAILED, FAILED, TIMEOUT)
    others = past(skipped, FAILED, FAILED, SKIPPED)
    await store.load([failing, skipped, off, once, gone, *runs, *others])
    await store.load([*past(off, FAILED, FAILED), *past(once, OK, FAILED)])
    await store.load(past(gone, FAILED, FAILED))
    first = sign(failing, IssueCause.FAILING, at=runs[3].planned_at, count=3, run_id=runs[3].id)
    second = sign(
        skipped, IssueCause.FAILING, at=others[1].planned_at, count=2, run_id=others[1].id
    )
    assert await attention(store) == AttentionList(total=2, items=(first, second))
    assert await attention(store, limit=1) == AttentionList(total=2, items=(first,))
    assert await attention(store, owner=BOB) == AttentionList(total=1, items=(second,))


async def test_failures_of_executed_runs_need_attention(store: Store, clock: SettableClock) -> None:
    """With runs that were fired, claimed and completed."""
    schedule, run = await running_slot(store)
    await store.finish([a_completion(run, clock.advance(1), AttemptEnd.FAILED)])
    assert (await attention(store)).total == 0
    clock.advance(59)
    await joined(store, "node-2")
    (run,) = (await store.fire_due(plan, limit=5, request=claim_request("node-2"))).claimed
    await store.finish([a_completion(run, clock.advance(1), AttemptEnd.FAILED)])
    (item,) = (await attention(store)).items
    expected = ScheduleIssue(
        schedule_id=schedule.id,
        cause=IssueCause.FAILING,
        at=run.planned_at,
        count=2,
        run_id=run.id,
    )
    assert item == ScheduleAttention(schedule=await _reload(store, schedule), sign=expected)


async def test_missed_slots_need_attention(store: Store) -> None:
    one, other, old = (a_schedule() for _ in range(3))
    recent = NOW - DAY
    many = ended(NOW - 2 * DAY, MISSED, one, created_at=NOW - HOUR, missed_count=7)
    single = ended(NOW - HOUR, MISSED, one, missed_count=0)
    edge = ended(recent, MISSED, other, missed_count=1)
    await store.load([one, other, old, many, single, edge])
    await store.load([ended(recent - SECOND, MISSED, old), ended(NOW - HOUR, MISSED)])
    assert await attention(store) == AttentionList(
        total=2,
        items=(
            sign(one, IssueCause.MISSED, at=single.planned_at, count=8, run_id=single.id),
            sign(other, IssueCause.MISSED, at=recent, count=1, run_id=edge.id),
        ),
    )


async def test_late_slots_need_attention(store: Store) -> None:
    begun, waiting, overdue, ok, off = (
        a_schedule(),
        a_schedule(),
        a_schedule(next_run_at=NOW - 3 * MINUTE),
        a_schedule(next_run_at=NOW - MINUTE),
        a_schedule(enabled=False),
    )
    late = ended(NOW - HOUR, schedule=begun, lag=2 * MINUTE)
    later = ended(NOW - HOUR / 2, FAILED, begun, lag=MINUTE + SECOND)
    queued = a_run(waiting, origin=Origin.SCHEDULE, planned_at=NOW - 2 * HOUR)
    await store.load([begun, waiting, overdue, ok, off, late, later, queued])
    await store.load(
        [
            ended(NOW - HOUR - SECOND, schedule=ok, lag=HOUR),
            ended(NOW - MINUTE, schedule=ok, lag=MINUTE),
            ended(NOW - 2 * MINUTE, schedule=ok, slot=None, lag=HOUR, origin=Origin.BACKFILL),
            ended(NOW - 3 * MINUTE, schedule=off, lag=HOUR),
            a_run(ok, origin=Origin.SCHEDULE, planned_at=NOW - HOUR, blocked=True),
            a_run(ok, planned_at=NOW - HOUR),
            a_run(ok, origin=Origin.SCHEDULE, planned_at=NOW - HOUR, started_at=NOW - HOUR),
        ]
    )
    assert await attention(store) == AttentionList(
        total=3,
        items=(
            sign(overdue, IssueCause.LATE, at=NOW - 3 * MINUTE, lag=3 * MINUTE),
            sign(
                begun,
                IssueCause.LATE,
                at=later.planned_at,
                count=2,
                lag=2 * MINUTE,
                run_id=later.id,
            ),
            sign(waiting, IssueCause.LATE, at=queued.planned_at, lag=2 * HOUR, run_id=queued.id),
        ),
    )
    assert (await attention(store, late=DAY)).total == 0


async def test_stopped_schedules_and_ended_pauses_need_attention(store: Store) -> None:
    broken = replace(stop_with_error(a_schedule(), "no such zone"), updated_at=NOW + SECOND)
    gone = pause_schedule(a_schedule(), NOW, "chimes", note="gone")
    by_hand = pause_schedule(a_schedule(), NOW, "user:alice", note="holidays")
    over = pause_schedule(a_schedule(), NOW, "user:alice", until=NOW - MINUTE)
    not_yet = pause_schedule(a_schedule(), NOW, "user:alice", until=NOW + MINUTE)
    had_its_turn = replace(
        stop_with_error(a_schedule(trigger=Once(NOW - HOUR)), "it failed"),
        last_slot=NOW - HOUR,
        fired_count=1,
    )
    await store.load([broken, gone, by_hand, over, not_yet, had_its_turn])
    assert await attention(store) == AttentionList(
        total=3,
        items=(
            sign(broken, IssueCause.STOPPED, at=NOW + SECOND),
            sign(gone, IssueCause.STOPPED, at=NOW),
            sign(over, IssueCause.PAUSE_OVER, at=NOW - MINUTE),
        ),
    )


async def test_most_severe_cause_is_reported(store: Store) -> None:
    both = a_schedule(last_status=FAILED, next_run_at=NOW - HOUR)
    missing = a_schedule(next_run_at=NOW - HOUR)
    runs = past(both, FAILED, FAILED)
    missed = ended(NOW - HOUR, MISSED, missing)
    await store.load([both, missing, *runs, missed, ended(NOW - HOUR, MISSED, both)])
    assert await attention(store) == AttentionList(
        total=2,
        items=(
            sign(both, IssueCause.FAILING, at=runs[1].planned_at, count=2, run_id=runs[1].id),
            sign(missing, IssueCause.MISSED, at=missed.planned_at, run_id=missed.id),
        ),
    )


async def _reload(store: Store, schedule: Schedule) -> Schedule:
    found = await store.get_schedule(schedule.id)
    assert found is not None
    return found
