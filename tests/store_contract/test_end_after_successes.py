"""`end_after_successes`: enough successful runs disable their schedule, in the completing
transaction."""

from __future__ import annotations

from chimes.model.policy import Policy
from chimes.model.run import AttemptEnd
from chimes.model.schedule import resume_schedule
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import a_completion, a_schedule
from tests.store_contract.scenes import joined
from tests.store_contract.test_auto_pause import end, pauses, started

FAILED, SUCCEEDED = AttemptEnd.FAILED, AttemptEnd.SUCCEEDED


async def test_enough_successes_disable_the_schedule(store: Store, clock: SettableClock) -> None:
    await joined(store)
    now = clock.now()
    policy = Policy(end_after_successes=3)
    schedule = await store.add_schedule(a_schedule(policy=policy, created_at=now, updated_at=now))
    found = await end(store, schedule, clock, SUCCEEDED, FAILED, SUCCEEDED, FAILED)
    assert found.enabled
    assert found.version == schedule.version
    # A repeated completion does not count again.
    (run,) = await started(store, schedule, clock, 1)
    ended = a_completion(run, clock.now(), FAILED)
    await store.finish([ended])
    await store.finish([ended])
    found = await end(store, schedule, clock, SUCCEEDED)
    assert not found.enabled
    assert (found.next_slot, found.next_run_at) == (None, None)
    assert found.pause_note == "ended after 3 successes"
    assert await pauses(store) == 1
    # Resumed, it counts from the start.
    clock.advance(0.001)
    await store.change_schedule(schedule.id, lambda before, at: resume_schedule(before, at, "me"))
    assert (await end(store, schedule, clock, SUCCEEDED, SUCCEEDED)).enabled
    # Several ends in one batch.
    runs = await started(store, schedule, clock, 2)
    await store.finish([a_completion(each, clock.now(), SUCCEEDED) for each in runs])
    assert not (await end(store, schedule, clock)).enabled
