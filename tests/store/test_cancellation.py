"""A cancellation that arrives together with what was waited for is not lost.

`asyncio.wait_for` returns the result in that case before Python 3.12, and the canceled task
continues."""

from __future__ import annotations

import asyncio

from chimes.store.port import Wakeup
from chimes.store.redis.connection import _Pool, parse_address
from tests.servers.redis_places import empty_redis_url

#: More passes of the event loop than a waiting task needs to receive what it waits for.
PASSES = range(8)


async def canceled_after(passes: int, task: asyncio.Task[object]) -> bool:
    """Cancels the task after so many passes of the event loop. Returns whether it was still
    waiting; it must then end as canceled."""
    for _ in range(passes):
        await asyncio.sleep(0)
    if not task.cancel():
        return False
    await asyncio.wait([task])
    assert task.cancelled(), f"the cancellation after {passes} passes was lost"
    return True


async def test_waiting_for_a_connection_to_redis() -> None:
    pool = _Pool(parse_address(empty_redis_url()), 1)
    waited = []
    for passes in PASSES:
        connection = await pool.take()
        task: asyncio.Task[object] = asyncio.create_task(pool.take())
        await asyncio.sleep(0)
        await pool.give_back(connection)
        waited.append(await canceled_after(passes, task))
        if not waited[-1]:
            await pool.give_back(await task)
        assert not pool._request.locked(), f"the permit was lost after {passes} passes"
    await pool.close()
    assert waited[0]
    assert not waited[-1]


async def test_waiting_for_work() -> None:
    wakeup, waited = Wakeup(), []
    for passes in PASSES:
        task: asyncio.Task[object] = asyncio.create_task(wakeup.wait(wakeup.count, 60))
        await asyncio.sleep(0)
        wakeup.wake()
        waited.append(await canceled_after(passes, task))
    assert waited[0]
    assert not waited[-1]
