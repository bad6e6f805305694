"""wait_for_work misses no change."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from chimes.model import replace
from chimes.model.ids import NodeId
from chimes.model.planning import plan
from chimes.model.schedule import resume_schedule
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import (
    HOUR,
    LEASE,
    NOW,
    SECOND,
    a_completion,
    a_retry,
    a_run,
    a_schedule,
    due_schedule,
)
from tests.store_contract.scenes import joined, running_run
from tests.store_contract.stores import Home

#: Reached only if a wake-up is lost.
PATIENCE = 20.0


async def _add_schedule(store: Store, clock: SettableClock) -> Callable[[], Awaitable[object]]:
    return lambda: store.add_schedule(a_schedule())


async def _resume(store: Store, clock: SettableClock) -> Callable[[], Awaitable[object]]:
    schedule = await store.add_schedule(a_schedule(enabled=False))
    return lambda: store.change_schedule(schedule.id, lambda s, now: resume_schedule(s, now, "me"))


async def _fire(store: Store, clock: SettableClock) -> Callable[[], Awaitable[object]]:
    await store.add_schedule(due_schedule())
    return lambda: store.fire_due(plan, limit=10)


async def _add_runs(store: Store, clock: SettableClock) -> Callable[[], Awaitable[object]]:
    return lambda: store.add_runs([a_run()])


async def _retry(store: Store, clock: SettableClock) -> Callable[[], Awaitable[object]]:
    run = await running_run(store)
    return lambda: store.finish([a_retry(run, clock.now(), SECOND)])


async def _unblock(store: Store, clock: SettableClock) -> Callable[[], Awaitable[object]]:
    run = await running_run(store, a_run(concurrency_key="k"))
    await store.add_runs([a_run(concurrency_key="k")])
    return lambda: store.finish([a_completion(run, clock.now())])


async def _release(store: Store, clock: SettableClock) -> Callable[[], Awaitable[object]]:
    run = await running_run(store)
    return lambda: store.release([(run.id, run.fence)])


async def _cancel(store: Store, clock: SettableClock) -> Callable[[], Awaitable[object]]:
    run = await running_run(store)
    return lambda: store.cancel_run(run.id, "x")


async def _leave(store: Store, clock: SettableClock) -> Callable[[], Awaitable[object]]:
    await running_run(store)
    return lambda: store.leave(NodeId("node-1"))


async def _rescue(store: Store, clock: SettableClock) -> Callable[[], Awaitable[object]]:
    await running_run(store)
    clock.advance(LEASE)
    return lambda: store.rescue(limit=10)


async def _load(store: Store, clock: SettableClock) -> Callable[[], Awaitable[object]]:
    return lambda: store.load([a_run()])


CHANGES = [
    _add_schedule,
    _resume,
    _fire,
    _add_runs,
    _retry,
    _unblock,
    _release,
    _cancel,
    _leave,
    _rescue,
    _load,
]
by_change = pytest.mark.parametrize("prepare", CHANGES, ids=lambda f: f.__name__.strip("_"))
Prepare = Callable[[Store, SettableClock], Awaitable[Callable[[], Awaitable[object]]]]


@by_change
async def test_every_change_that_creates_work_ends_the_wait(
    store: Store, clock: SettableClock, prepare: Prepare
) -> None:
    change = await prepare(store, clock)
    before = store.changes()
    waiting = [asyncio.create_task(store.wait_for_work(before, None)) for _ in range(2)]
    await asyncio.sleep(0)
    await change()
    assert store.changes() > before
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*waiting)


@by_change
async def test_change_before_the_wait_ends_it_immediately(
    store: Store, clock: SettableClock, prepare: Prepare
) -> None:
    change = await prepare(store, clock)
    seen = store.changes()
    await change()
    async with asyncio.timeout(PATIENCE):
        await store.wait_for_work(seen, None)


async def test_wait_ends_at_the_given_time(store: Store, clock: SettableClock) -> None:
    async with asyncio.timeout(PATIENCE):
        await store.wait_for_work(store.changes(), clock.now() - HOUR)
        await store.wait_for_work(store.changes(), clock.now())
        await store.wait_for_work(store.changes(), clock.now() + SECOND / 50)


async def test_wake_ends_every_wait_from_any_thread(store: Store) -> None:
    before = store.changes()
    waiting = [asyncio.create_task(store.wait_for_work(before, NOW + HOUR)) for _ in range(3)]
    await asyncio.sleep(0)
    thread = threading.Thread(target=store.wake)
    thread.start()
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*waiting)
    thread.join()
    assert store.changes() > before


async def test_wait_on_another_event_loop_is_woken(store: Store) -> None:
    """The heartbeat thread of a worker has its own event loop."""
    before = store.changes()
    ready, done = threading.Event(), threading.Event()

    async def wait() -> None:
        ready.set()
        await store.wait_for_work(before, None)

    def in_thread() -> None:
        asyncio.run(wait())
        done.set()

    thread = threading.Thread(target=in_thread)
    thread.start()
    await asyncio.to_thread(ready.wait, PATIENCE)
    store.wake()
    assert await asyncio.to_thread(done.wait, PATIENCE)
    thread.join()


async def test_canceled_wait_leaves_no_waiter(store: Store) -> None:
    waiting = asyncio.create_task(store.wait_for_work(store.changes(), None))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    store.wake()
    async with asyncio.timeout(PATIENCE):
        await store.wait_for_work(0, None)


# A store may notice changes of other processes with a short delay.
async def test_change_of_another_process_ends_the_wait(
    shared_home: Home, clock: SettableClock
) -> None:
    mine, theirs = await shared_home.open(), await shared_home.open()
    await joined(mine)
    seen = mine.changes()
    waiting = asyncio.create_task(mine.wait_for_work(seen, None))
    await asyncio.sleep(0)
    await theirs.add_runs([replace(a_run(), priority=1)])
    async with asyncio.timeout(PATIENCE):
        await waiting
