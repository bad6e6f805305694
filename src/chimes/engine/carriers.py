"""The tasks that carry out attempts, one attempt after another.

Most attempts end without ever waiting, and a task for each would cost as much as they do. One that
waits has its task to itself from then on, and others go on with those behind it: twice as many
whenever all of them were found waiting, so that a crowd of attempts that wait is soon under way.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

from chimes.engine.hold import Hold

#: Attempts in a row that one task carried out without waiting, after which one is enough.
ENOUGH = 20


class Carriers:
    def __init__(self, carry_out: Callable[[Hold], Awaitable[None]]) -> None:
        self._carry_out = carry_out
        #: In the order in which they begin.
        self._line: deque[Hold] = deque()
        #: How many start at once; more than one where attempts usually wait.
        self._width = 1
        self._relief: asyncio.Handle | None = None
        #: A task that nobody refers to may be collected.
        self._tasks: set[asyncio.Task[None]] = set()
        #: Every carrier begins with this one, whoever starts it.
        self._context = contextvars.copy_context()

    def put(self, holds: Iterable[Hold]) -> None:
        self._line.extend(holds)
        self._start()

    def _start(self) -> None:
        for _ in range(min(self._width, len(self._line))):
            task = asyncio.create_task(self._carry(), context=self._context.copy())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._line:
            if self._relief is not None:
                self._relief.cancel()
            # Behind the first steps of those.
            self._relief = asyncio.get_running_loop().call_soon(self._relieve)

    def _relieve(self) -> None:
        self._relief = None
        if self._line:
            self._width = min(self._width * 2, len(self._line))
            self._start()

    async def _carry(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        waited = Flag()
        # Comes to its turn as soon as this task waits for anything.
        asyncio.get_running_loop().call_soon(waited.set)
        in_a_row = 0
        while self._line:
            hold = self._line.popleft()
            if hold.handed_over:
                continue
            hold.task = task
            try:
                await self._carry_out(hold)
            except Exception:
                self._start()
                raise
            if waited.is_set or task.cancelling():
                # Who waited may have left something behind in its task, above all that it was
                # told to stop: nobody else is to find it.
                self._start()
                return
            in_a_row += 1
            if in_a_row == ENOUGH:
                self._width = 1


class Flag:
    __slots__ = ("is_set",)

    def __init__(self) -> None:
        self.is_set = False

    def set(self) -> None:
        self.is_set = True
