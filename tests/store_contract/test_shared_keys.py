"""Schedules that share a concurrency key."""

from __future__ import annotations

import pytest

from chimes.model.ids import ScheduleId
from chimes.model.planning import plan
from chimes.model.policy import Overlap, Policy
from chimes.model.run import Reason, request_cancel
from chimes.model.schedule import pause_schedule
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import HOUR, MINUTE, NOW, SECOND, a_run, claim_request, due_schedule
from tests.store_contract.scenes import all_runs, joined

REPLACING = Policy(overlap=Overlap.CANCEL_OLD, concurrency_key="shared", max_concurrent_runs=3)


@pytest.mark.parametrize("begun", [False, True])
async def test_cancel_old_cancels_only_runs_of_its_own_schedule(
    store: Store, clock: SettableClock, begun: bool
) -> None:
    await joined(store, lease=HOUR)
    other = await store.add_schedule(due_schedule(policy=REPLACING))
    mine = await store.add_schedule(due_schedule(NOW + SECOND, policy=REPLACING))
    of_key = {"concurrency_key": "shared", "concurrency_limit": 3}
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
