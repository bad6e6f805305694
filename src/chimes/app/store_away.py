"""A node that starts while its server is being started again waits for it: whoever restarts both
at once, or a node in the middle of a fail-over, would have to get the order right (F21)."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from chimes.clock import Clock
from chimes.config import StoreLocation
from chimes.errors import StoreLost, StoreUnavailable, told

T = TypeVar("T")
logger = logging.getLogger("chimes.app")

#: A crashed server needs some seconds to recover; who has mistyped its address is told at once.
PATIENCE = 20.0
#: Seconds between two tries.
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0


async def once_there(location: StoreLocation, clock: Clock, work: Callable[[], Awaitable[T]]) -> T:
    """What the work answers; it is done again while a server is away. What is wrong with a file
    does not pass by waiting."""
    patience = PATIENCE if location.server else 0.0
    began, pause = clock.monotonic(), FIRST_PAUSE
    while True:
        try:
            return await work()
        except StoreLost:
            raise
        except StoreUnavailable as error:
            if clock.monotonic() - began + pause > patience:
                raise
            if pause == FIRST_PAUSE:
                logger.warning(
                    "the store cannot be used yet; trying again",
                    extra={"error": told(error), "seconds": patience},
                )
        await asyncio.sleep(random.uniform(pause / 2, pause))  # noqa: S311 spreads, hides nothing
        pause = min(pause * 1.5, LONGEST_PAUSE)
