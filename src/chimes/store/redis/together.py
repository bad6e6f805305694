"""Calls that come while another of their kind is under way go together in the next one.

A trip to the server costs the same for one as for many. Nobody waits for company: the first goes
at once, and those who come meanwhile would have waited for the server anyway.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Together(Generic[Asked, Answer]):
    """`call` answers many at once, in their order."""

    def __init__(
        self, call: Callable[[Sequence[Asked]], Awaitable[Sequence[Answer]]], *, most: int
    ) -> None:
        self._call = call
        self._most = most
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Line[Asked, Answer]]
        self._loops = WeakKeyDictionary()

    async def __call__(self, asked: Asked) -> Answer:
        loop = asyncio.get_running_loop()
        line = self._loops.setdefault(loop, _Line())
        if line.under_way:
            future: asyncio.Future[Answer] = loop.create_future()
            line.waiting.append((asked, future))
            return await future
        line.under_way = True
        try:
            (answer,) = await self._call([asked])
        finally:
            if line.waiting:
                # In a task of its own: whoever asked first may go, or be canceled.
                line.task = loop.create_task(self._go_on(line), name="chimes redis batch")
            else:
                line.under_way = False
        return answer

    async def _go_on(self, line: _Line[Asked, Answer]) -> None:
        while line.waiting:
            together = [line.waiting.popleft() for _ in range(min(self._most, len(line.waiting)))]
            wanted = [(asked, future) for asked, future in together if not future.done()]
            if not wanted:
                continue
            try:
                answers = await self._call([asked for asked, _ in wanted])
            except asyncio.CancelledError:
                for _, future in [*wanted, *line.waiting]:
                    future.cancel()
                line.waiting.clear()
                line.under_way = False
                raise
            except Exception as error:
                for _, future in wanted:
                    if not future.done():
                        future.set_exception(error)
            else:
                for (_, future), answer in zip(wanted, answers, strict=True):
                    if not future.done():
                        future.set_result(answer)
        line.under_way = False


class _Line(Generic[Asked, Answer]):
    """Those of one event loop."""

    def __init__(self) -> None:
        self.under_way = False
        self.waiting: deque[tuple[Asked, asyncio.Future[Answer]]] = deque()
        self.task: asyncio.Task[None] | None = None
