"""An event loop with virtual time that interleaves simulated nodes by a seed.

Nothing waits: when no callback is ready, the time jumps to the next timer. Every callback belongs
to a node, by a context variable that tasks inherit. Each node has its own queue; which one goes
next is drawn. A suspended node keeps its callbacks, a dead one loses them, so a node can end
between any two steps.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import random
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar, cast

T = TypeVar("T")
#: What is not part of a node: clients, faults.
WORLD = 0
_node: ContextVar[int] = ContextVar("simulated node", default=WORLD)
#: Callbacks of one node in a row, at most.
_IN_A_ROW = 3


def context_of(node: int) -> Context:
    context = copy_context()
    context.run(_node.set, node)
    return context


def current_node() -> int:
    return _node.get()


class VirtualLoop:
    """The part of `asyncio.AbstractEventLoop` that the engine uses; no files, no threads."""

    def __init__(self, seed: int) -> None:
        self._loop = cast(asyncio.AbstractEventLoop, self)
        self._tasks: list[asyncio.Task[Any]] = []
        self._rng = random.Random(seed)  # noqa: S311
        self._time = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle, int]] = []
        self._count = 0
        self._ready: dict[int, deque[asyncio.Handle]] = {}
        self._suspended: set[int] = set()
        self._dead: set[int] = set()
        self._closed = False
        self.steps = 0
        #: Errors that no task handled.
        self.errors: list[str] = []

    # --- nodes --------------------------------------------------------------------------------
    def suspend(self, node: int) -> None:
        self._suspended.add(node)

    def resume(self, node: int) -> None:
        self._suspended.discard(node)

    def kill(self, node: int) -> None:
        self._dead.add(node)
        self._ready.pop(node, None)

    # --- execution ----------------------------------------------------------------------------
    def run(self, main: Coroutine[Any, Any, T]) -> T:
        task: asyncio.Task[T] = self.create_task(main)
        before = events._get_running_loop()
        events._set_running_loop(self._loop)
        try:
            while not task.done():
                self._step()
        finally:
            self._close_tasks()
            events._set_running_loop(before)
        return task.result()

    def _close_tasks(self) -> None:
        """Ends what is left of the nodes while there is a loop: their clean-up may need one."""
        self._closed = True
        for task in self._tasks:
            coroutine = task.get_coro()
            if not task.done() and isinstance(coroutine, Coroutine):
                with contextlib.suppress(BaseException):
                    coroutine.close()
        self._tasks.clear()
        self._ready.clear()

    def _step(self) -> None:
        ready = [node for node in self._ready if node not in self._suspended]
        if not ready:
            self._advance()
            return
        node = ready[0] if len(ready) == 1 else self._rng.choice(ready)
        queue = self._ready[node]
        for _ in range(self._rng.randint(1, _IN_A_ROW)):
            handle = queue.popleft()
            self.steps += 1
            if not handle.cancelled():
                handle._run()
            if node in self._dead or node in self._suspended:
                return
            if not queue:
                del self._ready[node]
                return

    def _advance(self) -> None:
        if not self._timers:
            raise RuntimeError("the simulation waits for nothing")
        self._time = max(self._time, self._timers[0][0])
        while self._timers and self._timers[0][0] <= self._time:
            _, _, handle, node = heapq.heappop(self._timers)
            if not handle.cancelled():
                self._enqueue(handle, node)

    def _enqueue(self, handle: asyncio.Handle, node: int) -> None:
        if not self._closed and node not in self._dead:
            self._ready.setdefault(node, deque()).append(handle)

    # --- the interface of an event loop -------------------------------------------------------
    def time(self) -> float:
        return self._time

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self._loop, context)
        self._enqueue(handle, _node.get() if context is None else context.get(_node, WORLD))
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._time + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self._loop, context)
        self._count += 1
        node = _node.get() if context is None else context.get(_node, WORLD)
        heapq.heappush(self._timers, (when, self._count, handle, node))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self._loop)

    def create_task(
        self, coro: Any, *, name: object = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        named = None if name is None else str(name)
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self._loop, name=named, context=context)
        self._tasks.append(task)
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None:
            self.errors.append(f"{context.get('message')}: {error!r}")
