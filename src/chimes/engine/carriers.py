"""The tasks that carry out attempts, one attempt after another.

Most attempts end without ever waiting, and a task for each would cost as much as they do. One that
waits keeps its task to itself until it ends, and others go on with those behind it: twice as many
whenever all of them were found waiting, so that a crowd of attempts that wait is soon under way.
"""

from __future__ import annotations

import asyncio
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
        self._relieving = False
        #: A task that nobody refers to may be collected.
        self._tasks: set[asyncio.Task[None]] = set()

    def put(self, holds: Iterable[Hold]) -> None:
        self._line.extend(holds)
        self._start()

    def _start(self) -> None:
        for _ in range(min(self._width, len(self._line))):
            task = asyncio.create_task(self._carry())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._line and not self._relieving:
            # Behind the first steps of those.
            self._relieving = True
            asyncio.get_running_loop().call_soon(self._relieve)

    def _relieve(self) -> None:
        self._relieving = False
        if self._line:
            self._width *= 2
            self._start()

    async def _carry(self) -> None:
        task = asyncio.current_task()
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
            if hold.stop is not None:
                # It was told to stop, and may not have listened: nobody else is to hear of it.
                self._start()
                return
            in_a_row += 1
            if in_a_row == ENOUGH:
                self._width = 1
