"""The batcher: concurrent calls share a round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from chimes.store.redis.base import Batcher


class Server:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.turn = asyncio.Semaphore(0)
        self.fails: set[int] = set()

    async def call(self, asked: Sequence[int]) -> list[str]:
        self.asked.append(list(asked))
        await self.turn.acquire()
        if self.fails & {*asked}:
            raise ValueError(f"refused {asked}")
        return [str(number) for number in asked]


async def asking(together: Batcher[int, str], *numbers: int) -> list[asyncio.Task[str]]:
    tasks = [asyncio.ensure_future(together(number)) for number in numbers]
    await asyncio.sleep(0)
    return tasks


async def test_those_who_come_meanwhile_go_together() -> None:
    server = Server()
    together = Batcher(server.call, most=3)
    tasks = await asking(together, 1, 2, 3, 4, 5)
    assert server.asked == [[1]]
    for _ in range(3):
        server.turn.release()
    assert await asyncio.gather(*tasks) == ["1", "2", "3", "4", "5"]
    assert server.asked == [[1], [2, 3, 4], [5]]
    server.turn.release()
    assert await together(6) == "6"


async def test_an_error_is_told_to_those_it_concerns() -> None:
    server = Server()
    server.fails = {1, 3}
    together = Batcher(server.call, most=2)
    tasks = await asking(together, 1, 2, 3, 4)
    for _ in range(3):
        server.turn.release()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(each, ValueError) for each in found] == [True, True, True, False]
    assert found[3] == "4"


async def test_who_gives_up_takes_nobody_along() -> None:
    server = Server()
    together = Batcher(server.call, most=10)
    first, second, third = await asking(together, 1, 2, 3)
    first.cancel()
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    server.turn.release()
    assert await third == "3"
    assert server.asked == [[1], [3]]


def test_every_loop_has_its_own_line() -> None:
    async def call(asked: Sequence[int]) -> list[int]:
        return [2 * number for number in asked]

    together = Batcher(call, most=10)
    assert [asyncio.run(together(number)) for number in (1, 2)] == [2, 4]
