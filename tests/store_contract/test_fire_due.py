"""fire_due: due schedules become runs, each slot once, in one transaction."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from chimes.model import replace
from chimes.model.ids import ScheduleId
from chimes.model.planning import BLOCKING_RUN, FireContext, FirePlan, backfill_run, plan
from chimes.model.policy import Misfire, Overlap, Policy
from chimes.model.run import Reason, Run, RunStatus, cancel, claim
from chimes.model.schedule import Dependency, Schedule, delete_schedule, stop_with_error
from chimes.store.port import FireResult, Store
from chimes.testing import SettableClock
from chimes.triggers import Every, Once
from tests.builders import (
    HOUR,
    LEASE,
    MINUTE,
    NOW,
    SECOND,
    TARGET,
    a_completion,
    a_run,
    a_schedule,
    claim_request,
    due_schedule,
)
from tests.store_contract.scenes import NODE, all_runs, joined, running_slot


async def test_firing_without_due_schedules_does_nothing(store: Store) -> None:
    schedule = await store.add_schedule(a_schedule())
    assert await store.fire_due(plan, limit=10) == FireResult()
    assert await store.get_schedule(schedule.id) == schedule


async def test_due_schedule_makes_a_run_and_moves_its_cursor(
    store: Store, clock: SettableClock
) -> None:
    schedule = await store.add_schedule(due_schedule())
    now = clock.advance(0.25)
    expected = plan(schedule, FireContext(), now)
    fired = await store.fire_due(plan, limit=10)
    assert fired == FireResult(others=expected.runs, plans=((schedule, expected),))
    assert await all_runs(store) == {run.id: run for run in expected.runs}
    assert await store.get_schedule(schedule.id) == expected.schedule
    assert await store.fire_due(plan, limit=10) == FireResult()


async def test_only_due_enabled_undeleted_schedules_fire(store: Store) -> None:
    due = await store.add_schedule(due_schedule(NOW))
    await store.add_schedule(due_schedule(NOW + timedelta(microseconds=1)))
    await store.add_schedule(due_schedule(NOW, enabled=False))
    gone = await store.add_schedule(due_schedule(NOW))
    await store.change_schedule(gone.id, lambda s, now: delete_schedule(s, now, "me"))
    fired = await store.fire_due(plan, limit=10)
    assert [run.schedule_id for run in fired.others] == [due.id]


async def test_earliest_schedules_fire_first_up_to_the_limit(store: Store) -> None:
    offsets = [3, 0, 4, 1, 2]
    for offset in offsets:
        await store.add_schedule(
            due_schedule(NOW - offset * SECOND, id=ScheduleId(f"due {offset} s ago"))
        )
    order: list[str] = []

    def recording_plan(schedule: Schedule, context: FireContext, now: datetime) -> FirePlan:
        order.append(schedule.id)
        return plan(schedule, context, now)

    first = await store.fire_due(recording_plan, limit=3)
    assert order == ["due 4 s ago", "due 3 s ago", "due 2 s ago"]
    assert (len(first.others), first.more) == (3, True)
    second = await store.fire_due(recording_plan, limit=3)
    assert order[3:] == ["due 1 s ago", "due 0 s ago"]
    assert (len(second.others), second.more) == (2, False)


# The cursor is set back; the run of the slot stays and the cursor moves on.
async def test_refired_slot_keeps_its_run(store: Store, clock: SettableClock) -> None:
    schedule, run = await running_slot(store)
    (ended,) = (await store.finish([a_completion(run, clock.now())])).accepted
    await store.change_schedule(
        schedule.id, lambda s, now: replace(s, next_slot=NOW, next_run_at=NOW, priority=7)
    )
    fired = await store.fire_due(plan, limit=10, request=claim_request())
    assert (fired.claimed, fired.others, len(fired.plans)) == ((), (), 1)
    assert await all_runs(store) == {run.id: ended}
    after = await store.get_schedule(schedule.id)
    assert after is not None
    assert (after.next_slot, after.last_slot) == (NOW + MINUTE, NOW)


async def test_slot_taken_under_another_id_keeps_its_run(store: Store) -> None:
    schedule = await store.add_schedule(due_schedule())
    (taken,) = await store.add_runs([a_run(schedule, slot=NOW)])
    fired = await store.fire_due(plan, limit=10)
    assert (fired.claimed, fired.others, len(fired.plans)) == ((), (), 1)
    assert await all_runs(store) == {taken.id: taken}


async def test_taken_slot_keeps_no_other_schedule_of_the_pass_from_firing(store: Store) -> None:
    await joined(store)
    made = [await store.add_schedule(due_schedule()) for _ in range(5)]
    (taken,) = await store.add_runs([a_run(made[2], slot=NOW, status=RunStatus.SUCCEEDED)])
    fired = await store.fire_due(plan, limit=10, request=claim_request())
    others = {schedule.id for schedule in made} - {made[2].id}
    assert {run.schedule_id for run in fired.claimed} == others
    assert len(fired.plans) == len(made)
    found = await all_runs(store)
    assert found == {taken.id: taken} | {run.id: run for run in fired.claimed}


# The permit of a slot that already has a run goes to the next slot.
async def test_refired_slot_does_not_block_the_next_slot(
    store: Store, clock: SettableClock
) -> None:
    schedule, run = await running_slot(store)
    await store.finish([a_completion(run, clock.now())])
    clock.advance(MINUTE)
    await store.change_schedule(
        schedule.id, lambda s, now: replace(s, next_slot=NOW, next_run_at=NOW)
    )
    await joined(store, "node-2")
    (behind,) = (await store.fire_due(plan, limit=10, request=claim_request("node-2"))).claimed
    assert (behind.slot, behind.blocked) == (NOW + MINUTE, False)


async def test_raising_plan_stops_only_its_schedule(store: Store, clock: SettableClock) -> None:
    first, broken, last = [
        await store.add_schedule(due_schedule(NOW - offset * SECOND)) for offset in (3, 2, 1)
    ]

    def faulty(schedule: Schedule, context: FireContext, now: datetime) -> FirePlan:
        if schedule.id == broken.id:
            raise ValueError("this can never be planned")
        return plan(schedule, context, now)

    fired = await store.fire_due(faulty, limit=10)
    aside = stop_with_error(broken, "ValueError: this can never be planned")
    assert fired.broken == (aside,)
    assert [before for before, _ in fired.plans] == [first, last]
    assert await store.get_schedule(broken.id) == aside
    assert {run.schedule_id for run in fired.others} == {first.id, last.id}
    assert await store.fire_due(faulty, limit=10) == FireResult()


async def test_new_runs_are_claimed_for_a_node_with_free_permits(
    store: Store, clock: SettableClock
) -> None:
    await joined(store)
    schedule = await store.add_schedule(due_schedule())
    now = clock.advance(1)
    expected = plan(schedule, FireContext(), now)
    (run,) = expected.runs
    fired = await store.fire_due(plan, limit=10, request=claim_request())
    assert fired == FireResult(claimed=(claim(run, NODE, now),), plans=((schedule, expected),))
    assert await all_runs(store) == {run.id: claim(run, NODE, now)}
    assert await store.claim(claim_request()) == ()


async def test_no_more_runs_are_claimed_than_free_permits(store: Store) -> None:
    await joined(store)
    for priority, offset in ((0, 3), (5, 1), (0, 4), (5, 2), (-1, 9)):
        await store.add_schedule(
            due_schedule(
                NOW - offset * SECOND,
                id=ScheduleId(f"{priority} {offset}"),
                priority=priority,
            )
        )
    fired = await store.fire_due(plan, limit=10, request=claim_request(free=3))
    assert [run.schedule_id for run in fired.claimed] == ["5 2", "5 1", "0 4"]
    assert {run.schedule_id for run in fired.others} == {"0 3", "-1 9"}
    assert all(run.status is RunStatus.QUEUED for run in fired.others)
    rest = await store.claim(claim_request())
    assert [run.schedule_id for run in rest] == ["0 3", "-1 9"]


# Oldest first, even if all may run concurrently.
async def test_slots_of_one_catch_up_are_claimed_in_order(
    store: Store, clock: SettableClock
) -> None:
    policy = Policy(misfire=Misfire.ALL, misfire_grace=SECOND, overlap=Overlap.ALLOW)
    await store.add_schedule(due_schedule(policy=policy))
    clock.advance(HOUR - SECOND)
    await joined(store)
    fired = await store.fire_due(plan, limit=10, request=claim_request(free=20))
    rest = await store.claim(claim_request(free=100))
    handed_out = [run.slot for run in (*fired.claimed, *rest)]
    assert handed_out == [NOW + number * MINUTE for number in range(60)]


async def test_nothing_is_claimed_for_a_node_without_free_permits(store: Store) -> None:
    await joined(store)
    await store.add_schedule(due_schedule())
    fired = await store.fire_due(plan, limit=10, request=claim_request(free=0))
    assert (len(fired.claimed), len(fired.others)) == (0, 1)


async def test_nothing_is_claimed_for_an_unknown_node(store: Store) -> None:
    await store.add_schedule(due_schedule())
    fired = await store.fire_due(plan, limit=10, request=claim_request())
    assert (len(fired.claimed), len(fired.others)) == (0, 1)


# The lease excludes its last instant.
async def test_nothing_is_claimed_after_the_lease(store: Store, clock: SettableClock) -> None:
    await joined(store)
    clock.advance(LEASE)
    await store.add_schedule(due_schedule(clock.now()))
    fired = await store.fire_due(plan, limit=10, request=claim_request())
    assert (len(fired.claimed), len(fired.others)) == (0, 1)


async def test_only_runs_of_known_capabilities_are_claimed(store: Store) -> None:
    await joined(store)
    await store.add_schedule(due_schedule())
    fired = await store.fire_due(
        plan, limit=10, request=claim_request(capabilities=frozenset({"task"}))
    )
    assert (len(fired.claimed), len(fired.others)) == (0, 1)


async def test_run_available_later_is_not_claimed(store: Store) -> None:
    await joined(store)
    await store.add_schedule(due_schedule())

    def later(schedule: Schedule, context: FireContext, now: datetime) -> FirePlan:
        firing = plan(schedule, context, now)
        runs = tuple(replace(run, available_at=now + SECOND) for run in firing.runs)
        return FirePlan(schedule=firing.schedule, runs=runs)

    fired = await store.fire_due(later, limit=10, request=claim_request())
    assert (len(fired.claimed), len(fired.others)) == (0, 1)


# Two slots in one pass, with overlap `queue`.
async def test_queued_overlap_blocks_the_second_run(store: Store, clock: SettableClock) -> None:
    await joined(store)
    await store.add_schedule(due_schedule(NOW, trigger=Every("10s", anchor=NOW)))
    clock.advance(10)
    fired = await store.fire_due(plan, limit=10, request=claim_request())
    (first,), (second,) = fired.claimed, fired.others
    assert (first.slot, second.slot, second.blocked) == (NOW, NOW + 10 * SECOND, True)
    assert await store.claim(claim_request()) == ()
    await store.finish([a_completion(first, clock.now())])
    (next_one,) = await store.claim(claim_request())
    assert next_one == claim(replace(second, blocked=False), NODE, clock.now())


# Overlap `skip` is the default.
async def test_overlapping_slot_leaves_a_skipped_run(store: Store, clock: SettableClock) -> None:
    schedule, run = await running_slot(store)
    now = clock.advance(MINUTE)
    expected = plan(schedule, FireContext(admitted=(run.id,)), now)
    fired = await store.fire_due(plan, limit=10, request=claim_request())
    assert fired == FireResult(others=expected.runs, plans=((schedule, expected),))
    (skipped,) = fired.others
    assert (skipped.status, skipped.reason) == (RunStatus.SKIPPED, Reason.OVERLAP)
    # The blocking run is recorded.
    assert skipped.result == {BLOCKING_RUN: run.id}
    assert await store.get_run(skipped.id) == skipped
    assert await store.get_schedule(schedule.id) == expected.schedule


async def test_cancel_old_ends_a_queued_run_immediately(store: Store, clock: SettableClock) -> None:
    await joined(store, lease=HOUR)
    await store.add_schedule(due_schedule(policy=Policy(overlap=Overlap.CANCEL_OLD)))
    (old,) = (await store.fire_due(plan, limit=10)).others
    now = clock.advance(MINUTE)
    (new,) = (await store.fire_due(plan, limit=10, request=claim_request())).claimed
    assert await all_runs(store) == {old.id: cancel(old, Reason.REPLACED, now), new.id: new}
    assert (new.slot, new.status) == (NOW + MINUTE, RunStatus.RUNNING)


async def test_cancel_old_requests_the_cancel_of_a_running_run(
    store: Store, clock: SettableClock
) -> None:
    _, old = await running_slot(store, policy=Policy(overlap=Overlap.CANCEL_OLD))
    clock.advance(20)
    await store.heartbeat(NODE, MINUTE, clock=clock.now())
    clock.advance(40)
    before = store.changes()
    (new,) = (await store.fire_due(plan, limit=10, request=claim_request())).others
    assert store.changes() > before
    assert new.blocked
    asked = replace(old, cancel_requested=True, reason=Reason.REPLACED)
    assert await store.get_run(old.id) == asked
    assert (await store.heartbeat(NODE, LEASE, clock=clock.now())).cancel == (old.id,)
    await store.finish([a_completion(asked, clock.now())])
    assert [run.id for run in await store.claim(claim_request())] == [new.id]


async def test_plan_gets_the_active_runs_oldest_first(store: Store, clock: SettableClock) -> None:
    policy = Policy(overlap=Overlap.QUEUE, max_concurrent_runs=2)
    schedule = await store.add_schedule(due_schedule(policy=policy))
    key = f"schedule:{schedule.id}"
    rows = [
        a_run(schedule, concurrency_key=key, concurrency_limit=2, created_at=NOW - offset * SECOND)
        for offset in (1, 3, 2)
    ]
    await store.add_runs(rows)
    heard: list[FireContext] = []

    def recording_plan(schedule: Schedule, context: FireContext, now: datetime) -> FirePlan:
        heard.append(context)
        return plan(schedule, context, now)

    await store.fire_due(recording_plan, limit=10)
    # The third run is blocked and does not count.
    assert [context.admitted for context in heard] == [(rows[1].id, rows[0].id)]


async def test_plan_gets_the_last_success_of_the_dependency(
    store: Store, clock: SettableClock
) -> None:
    other, run = await running_slot(store)
    await store.finish([a_completion(run, clock.advance(5))])
    clock.advance(1)
    depends_on = Dependency(schedule_id=other.id, within=HOUR)
    schedule = await store.add_schedule(due_schedule(clock.now(), depends_on=depends_on))
    nobody = Dependency(schedule_id=ScheduleId("nobody"))
    orphan = await store.add_schedule(due_schedule(clock.now(), depends_on=nobody))
    heard: dict[str, datetime | None] = {}

    def recording_plan(each: Schedule, context: FireContext, now: datetime) -> FirePlan:
        heard[each.id] = context.dependency_succeeded_at
        return plan(each, context, now)

    fired = await store.fire_due(recording_plan, limit=10)
    assert heard == {schedule.id: NOW + 5 * SECOND, orphan.id: None}
    assert {run.schedule_id: run.status for run in fired.others} == {
        schedule.id: RunStatus.QUEUED,
        orphan.id: RunStatus.SKIPPED,
    }


async def test_missed_slot_leaves_a_missed_run(store: Store, clock: SettableClock) -> None:
    policy = Policy(misfire=Misfire.SKIP, misfire_grace=SECOND)
    schedule = await store.add_schedule(due_schedule(trigger=Once(NOW), policy=policy))
    now = clock.advance(HOUR)
    expected = plan(schedule, FireContext(), now)
    fired = await store.fire_due(plan, limit=10)
    assert fired == FireResult(others=expected.runs, plans=((schedule, expected),))
    assert [(run.status, run.missed_count) for run in fired.others] == [(RunStatus.MISSED, 1)]
    assert await store.get_schedule(schedule.id) == expected.schedule


async def test_every_run_of_a_plan_is_inserted(store: Store, clock: SettableClock) -> None:
    rows: list[Run] = []

    def many(schedule: Schedule, context: FireContext, now: datetime) -> FirePlan:
        rows.extend(a_run(schedule, slot=NOW + n * SECOND, target=TARGET) for n in range(50))
        done = replace(schedule, next_slot=None, next_run_at=None)
        return FirePlan(schedule=done, runs=tuple(rows))

    await store.add_schedule(due_schedule())
    fired = await store.fire_due(many, limit=10)
    assert sorted(fired.others, key=_id) == sorted(rows, key=_id)
    assert await all_runs(store) == {run.id: run for run in rows}


def _id(run: Run) -> str:
    return run.id


# Misfire `all` runs every missed slot, oldest first; blocked ones are unblocked in that order.
async def test_caught_up_slots_run_in_order(store: Store, clock: SettableClock) -> None:
    late = Policy(misfire=Misfire.ALL, misfire_grace=SECOND, overlap=Overlap.QUEUE)
    await store.add_schedule(due_schedule(policy=late))
    clock.advance(9 * MINUTE + 30 * SECOND)
    await joined(store)
    await store.fire_due(plan, limit=10)
    seen = []
    while claimed_now := await store.claim(claim_request()):
        (run,) = claimed_now
        seen.append(run.slot)
        await store.finish([a_completion(run, clock.now())])
    assert seen == [NOW + number * MINUTE for number in range(10)]


# --- slot order ---------------------------------------------------------------------------------
@pytest.mark.parametrize("concurrency", [1, 2])
@pytest.mark.parametrize("grace", [SECOND, 10 * SECOND])
async def test_new_slots_do_not_overtake_the_backlog_of_their_schedule(
    store: Store, clock: SettableClock, grace: timedelta, concurrency: int
) -> None:
    """Runs take longer than the interval, so that the backlog grows while it is worked off."""
    policy = Policy(
        misfire=Misfire.ALL,
        misfire_grace=grace,
        overlap=Overlap.QUEUE,
        max_concurrent_runs=concurrency,
    )
    trigger = Every("4s", anchor=NOW)
    await store.add_schedule(due_schedule(trigger=trigger, policy=policy))
    clock.advance(37)
    started: list[datetime | None] = []
    for _ in range(20):
        await joined(store)
        fired = await store.fire_due(plan, limit=10, request=claim_request(free=1))
        claimed = fired.claimed or await store.claim(claim_request(free=1))
        started += [run.slot for run in claimed]
        clock.advance(5)
        await store.finish([a_completion(run, clock.now()) for run in claimed])
    assert started == [NOW + number * 4 * SECOND for number in range(20)]


async def test_slots_behind_a_backlog_rank_behind_on_time_work_of_others(
    store: Store, clock: SettableClock
) -> None:
    policy = Policy(misfire=Misfire.ALL, misfire_grace=SECOND, overlap=Overlap.QUEUE)
    late = await store.add_schedule(due_schedule(policy=policy))
    clock.advance(2 * MINUTE)
    await joined(store)
    fired = await store.fire_due(plan, limit=10, request=claim_request())
    assert [(run.slot, run.blocked, run.catch_up) for run in fired.others] == [
        (NOW + MINUTE, True, True),
        (NOW + 2 * MINUTE, True, True),
    ]
    assert [run.reason for run in fired.others] == [Reason.CATCH_UP, ""]
    clock.advance(1)
    other = await store.add_schedule(due_schedule(clock.now()))
    await store.fire_due(plan, limit=10)
    await store.finish([a_completion(run, clock.now()) for run in fired.claimed])
    claimed = await store.claim(claim_request())
    assert [run.schedule_id for run in claimed] == [other.id, late.id]


async def test_backfill_does_not_delay_on_time_slots(store: Store, clock: SettableClock) -> None:
    policy = Policy(overlap=Overlap.QUEUE)
    schedule = await store.add_schedule(due_schedule(policy=policy))
    await joined(store)
    (running,) = (await store.fire_due(plan, limit=10, request=claim_request())).claimed
    await store.add_runs([backfill_run(schedule, NOW - HOUR, None, NOW)])
    clock.advance(MINUTE)
    await joined(store)
    (waiting,) = (await store.fire_due(plan, limit=10, request=claim_request())).others
    assert (waiting.blocked, waiting.catch_up) == (True, False)
    await store.finish([a_completion(running, clock.now())])
    assert [run.id for run in await store.claim(claim_request())] == [waiting.id]
