"""Waiting in tests of targets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], bool]) -> None:
    """Waits for the other end of a socket or for another process, which give no signal."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.005)


def pass_time(seconds: float) -> None:
    """Moves the clock of the event loop, so that its timers are due. How far an attempt comes
    within a fixed time depends on the load of the machine."""
    loop = asyncio.get_running_loop()
    now = loop.time
    loop.time = lambda: now() + seconds  # type: ignore[method-assign]
