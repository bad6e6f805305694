"""The batcher: concurrent calls share a round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from chimes.store.redis.context import Batcher


class FakeServer:
    """Responds once per release of `turn`."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.turn = asyncio.Semaphore(0)
        self.fails: set[int] = set()

    async def call(self, calls: Sequence[int]) -> list[str]:
        self.calls.append(list(calls))
        await self.turn.acquire()
        if self.fails & {*calls}:
            raise ValueError(f"refused {calls}")
        return [str(number) for number in calls]


async def start_calls(batcher: Batcher[int, str], *numbers: int) -> list[asyncio.Task[str]]:
    tasks = [asyncio.ensure_future(batcher(number)) for number in numbers]
    await asyncio.sleep(0)
    return tasks


async def test_calls_made_during_a_round_trip_are_batched() -> None:
    server = FakeServer()
    batcher = Batcher(server.call, most=3)
    tasks = await start_calls(batcher, 1, 2, 3, 4, 5)
    assert server.calls == [[1]]
    for _ in range(3):
        server.turn.release()
    assert await asyncio.gather(*tasks) == ["1", "2", "3", "4", "5"]
    assert server.calls == [[1], [2, 3, 4], [5]]
    server.turn.release()
    assert await batcher(6) == "6"


async def test_error_fails_only_the_calls_of_its_batch() -> None:
    server = FakeServer()
    server.fails = {1, 3}
    batcher = Batcher(server.call, most=2)
    tasks = await start_calls(batcher, 1, 2, 3, 4)
    for _ in range(3):
        server.turn.release()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(each, ValueError) for each in found] == [True, True, True, False]
    assert found[3] == "4"


async def test_canceled_call_does_not_affect_others() -> None:
    server = FakeServer()
    batcher = Batcher(server.call, most=10)
    first, second, third = await start_calls(batcher, 1, 2, 3)
    first.cancel()
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    server.turn.release()
    assert await third == "3"
    assert server.calls == [[1], [3]]


def test_each_event_loop_has_its_own_queue() -> None:
    async def call(calls: Sequence[int]) -> list[int]:
        return [2 * number for number in calls]

    batcher = Batcher(call, most=10)
    assert [asyncio.run(batcher(number)) for number in (1, 2)] == [2, 4]
