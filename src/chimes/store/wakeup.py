"""A counter that event loops can wait on; the in-process part of `wait_for_work`."""

from __future__ import annotations

import asyncio
import contextlib
import threading


class Wakeup:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._waiting: dict[asyncio.Future[None], asyncio.AbstractEventLoop] = {}

    @property
    def count(self) -> int:
        return self._count

    def wake(self) -> None:
        with self._lock:
            self._count += 1
            waiting, self._waiting = self._waiting, {}
        for future, loop in waiting.items():
            with contextlib.suppress(RuntimeError):  # that loop has been closed
                loop.call_soon_threadsafe(_resolve, future)

    async def wait(self, since: int, seconds: float | None) -> bool:
        """Whether the count rose above `since` before the timeout."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            if self._count > since:
                return True
            self._waiting[future] = loop
        try:
            await asyncio.wait_for(future, seconds)
        except TimeoutError:
            return False
        finally:
            with self._lock:
                self._waiting.pop(future, None)
        return True


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
