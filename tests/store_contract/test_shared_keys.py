"""Schedules that share a concurrency key."""

from __future__ import annotations

import pytest

from chimes.model.access import Owner
from chimes.model.ids import ScheduleId
from chimes.model.listing import RunQuery
from chimes.model.planning import concurrency_key, manual_run, plan
from chimes.model.policy import Overlap, Policy
from chimes.model.run import Reason, RunStatus, own_key, request_cancel
from chimes.model.schedule import pause_schedule
from chimes.model.target import TaskTarget
from chimes.services.runs import RunRequest, build_run
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import (
    ALICE,
    BOB,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    TARGET,
    a_completion,
    a_run,
    claim_request,
    due_schedule,
)
from tests.store_contract.scenes import all_runs, joined

REPLACING = Policy(overlap=Overlap.CANCEL_OLD, concurrency_key="shared", max_concurrent_runs=3)


@pytest.mark.parametrize("begun", [False, True])
async def test_cancel_old_cancels_only_runs_of_its_own_schedule(
    store: Store, clock: SettableClock, begun: bool
) -> None:
    await joined(store, lease=HOUR)
    other = await store.add_schedule(due_schedule(policy=REPLACING))
    mine = await store.add_schedule(due_schedule(NOW + SECOND, policy=REPLACING))
    of_key = {"concurrency_key": "system:default/shared", "concurrency_limit": 3}
    (by_hand,) = await store.add_runs([a_run(created_at=NOW - HOUR, **of_key)])
    (theirs,) = (await store.fire_due(plan, limit=10)).others
    clock.advance(1)
    (own,) = (await store.fire_due(plan, limit=10)).others
    if begun:
        taken = await store.claim(claim_request())
        by_hand, theirs, own = sorted(taken, key=lambda run: run.created_at)
    await store.change_schedule(other.id, lambda s, now: pause_schedule(s, now, "me"))
    now = clock.advance(MINUTE)
    (new,) = (await store.fire_due(plan, limit=10)).others
    assert (new.schedule_id, new.blocked) == (mine.id, begun)
    stopped = request_cancel(own, Reason.REPLACED, now)
    assert await all_runs(store) == {run.id: run for run in (by_hand, theirs, stopped, new)}


async def test_cancel_old_blocks_behind_runs_of_other_schedules(store: Store) -> None:
    one_at_a_time = Policy(overlap=Overlap.CANCEL_OLD, concurrency_key="shared")
    await store.add_schedule(due_schedule(policy=one_at_a_time, id=ScheduleId("a")))
    await store.add_schedule(due_schedule(policy=one_at_a_time, id=ScheduleId("b")))
    # In one pass, the first schedule takes the only permit of the key.
    first, second = (await store.fire_due(plan, limit=10)).others
    assert (first.schedule_id, first.blocked, second.blocked) == ("a", False, True)
    assert await all_runs(store) == {first.id: first, second.id: second}


# --- keys belong to an owner ------------------------------------------------------------------
NIGHTLY = Policy(overlap=Overlap.QUEUE, concurrency_key="nightly")


async def _of_key(store: Store, key: str) -> set[str]:
    page = await store.list_runs(RunQuery(concurrency_key=key, limit=None))
    return {run.id for run in page.items}


@pytest.mark.parametrize("second", [ALICE, BOB])
async def test_a_key_is_shared_by_the_schedules_and_runs_of_its_owner(
    store: Store, clock: SettableClock, second: Owner
) -> None:
    shares = second == ALICE
    await joined(store, lease=HOUR)
    await store.add_schedule(due_schedule(policy=NIGHTLY, owner=ALICE, id=ScheduleId("a")))
    schedule = due_schedule(policy=NIGHTLY, owner=second, id=ScheduleId("b"))
    await store.add_schedule(schedule)
    fired = (await store.fire_due(plan, limit=10)).others
    assert [run.blocked for run in fired] == [False, shares]
    # In a later pass.
    clock.advance(MINUTE)
    later = (await store.fire_due(plan, limit=10)).others
    assert [run.blocked for run in later] == [True, True]
    # Runs of a schedule and runs without one.
    request = RunRequest(target=TARGET, policy=NIGHTLY)
    alone = build_run(request, second, a_run().id, clock.now())
    by_hand = manual_run(schedule, clock.now())
    added = await store.add_runs([alone, by_hand])
    assert [run.blocked for run in added] == [True, True]
    every = [*fired, *later, *added]
    for owner in {ALICE, second}:
        expected = {run.id for run in every if run.owner == owner}
        assert await _of_key(store, f"{owner}/nightly") == expected
    assert await _of_key(store, "nightly") == set()
    # All of them run in the end, one at a time for each owner.
    rounds: list[set[Owner]] = []
    while claimed := await store.claim(claim_request()):
        rounds.append({run.owner for run in claimed})
        assert len(rounds[-1]) == len(claimed)
        await store.finish([a_completion(run, clock.now()) for run in claimed])
    both = {ALICE, second}
    assert rounds == ([both] * 6 if shares else [both, both, {second}, {second}])


@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.QUEUE, Overlap.CANCEL_OLD])
async def test_a_key_of_another_owner_does_not_affect_a_schedule(
    store: Store, clock: SettableClock, overlap: Overlap
) -> None:
    policy = Policy(overlap=overlap, concurrency_key="nightly")
    other = await store.add_schedule(due_schedule(policy=policy, owner=BOB))
    mine = await store.add_schedule(due_schedule(NOW + MINUTE, policy=policy, owner=ALICE))
    (theirs,) = (await store.fire_due(plan, limit=10)).others
    await store.change_schedule(other.id, lambda s, now: pause_schedule(s, now, "me"))
    clock.advance(MINUTE)
    (own,) = (await store.fire_due(plan, limit=10)).others
    assert (own.schedule_id, own.status, own.blocked) == (mine.id, RunStatus.QUEUED, False)
    assert await all_runs(store) == {run.id: run for run in (theirs, own)}


# Stored by an earlier version: a policy can no longer name such keys.
@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.QUEUE])
@pytest.mark.parametrize("owner", [ALICE, BOB])
async def test_a_policy_that_names_the_own_key_of_a_schedule_does_not_block_it(
    store: Store, clock: SettableClock, overlap: Overlap, owner: Owner
) -> None:
    await joined(store, lease=HOUR)
    victim = due_schedule(
        NOW + MINUTE, owner=BOB, policy=Policy(overlap=overlap), id=ScheduleId("victim")
    )
    await store.add_schedule(victim)
    naming = Policy(overlap=Overlap.QUEUE, concurrency_key=own_key(victim.id))
    intruder = await store.add_schedule(
        due_schedule(policy=naming, owner=owner, id=ScheduleId("intruder"))
    )
    (held,) = (await store.fire_due(plan, limit=10, request=claim_request())).claimed
    assert (held.schedule_id, held.concurrency_key) == (
        intruder.id,
        f"{owner}/schedule:victim",
    )
    await store.change_schedule(intruder.id, lambda s, now: pause_schedule(s, now, "me"))
    clock.advance(MINUTE)
    (run,) = (await store.fire_due(plan, limit=10)).others
    assert (run.schedule_id, run.status, run.blocked) == (victim.id, RunStatus.QUEUED, False)
    # Nor does the victim release what the intruder holds back.
    (waiting,) = await store.add_runs([manual_run(intruder, clock.now())])
    assert waiting.blocked
    (taken,) = await store.claim(claim_request())
    assert taken.id == run.id
    await store.finish([a_completion(taken, clock.now())])
    assert await store.claim(claim_request()) == ()
    assert await _of_key(store, own_key(victim.id)) == {run.id}
    assert await _of_key(store, held.concurrency_key) == {held.id, waiting.id}
    await store.finish([a_completion(held, clock.now())])
    assert [run.id for run in await store.claim(claim_request())] == [waiting.id]


async def test_the_key_of_a_task_is_shared_by_all_owners(store: Store) -> None:
    """A task that limits its concurrency limits it for everybody."""
    target = TaskTarget(name="pay")
    policy = Policy(overlap=Overlap.QUEUE, concurrency_key="task:pay")
    for owner in (ALICE, BOB):
        schedule = due_schedule(policy=policy, owner=owner, target=target)
        assert concurrency_key(schedule) == "task:pay"
        await store.add_schedule(schedule)
    fired = (await store.fire_due(plan, limit=10)).others
    assert [run.blocked for run in fired] == [False, True]
