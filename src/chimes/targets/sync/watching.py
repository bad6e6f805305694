"""Finds a task that shows no sign of life (R4.9: what was started must end)."""

from __future__ import annotations

import asyncio

from chimes.clock import Clock
from chimes.targets.sync.liveness import processor_time

#: Between two looks, as a share of the time after which a task has stalled.
SHARE = 6
LONGEST_BEAT = 10.0


def beat_of(stall_after: float) -> float:
    """Seconds between two signs of life."""
    return min(stall_after / SHARE, LONGEST_BEAT)


class Watch:
    """Signs of life are what a process sends by itself and, where `by_work` is true, the time that
    the processor spends on it: a function that holds the interpreter cannot send anything."""

    def __init__(self, pid: int, stall_after: float, clock: Clock, *, by_work: bool) -> None:
        self._pid = pid
        self._stall_after = stall_after
        self._clock = clock
        self._by_work = by_work
        self._work: int | None = None
        self._last = clock.monotonic()

    def heard(self) -> None:
        self._last = self._clock.monotonic()

    async def stalled(self) -> None:
        """Returns when there was none for too long."""
        pause = beat_of(self._stall_after)
        looked = self._clock.monotonic()
        while True:
            await asyncio.sleep(pause)
            now = self._clock.monotonic()
            if now - looked > 2 * pause + 1:
                # It was us who stood still: what it sent meanwhile is yet to be read.
                self._last = now
            looked = now
            if self._at_work():
                self._last = now
            if now - self._last >= self._stall_after:
                return

    def _at_work(self) -> bool:
        if not self._by_work:
            return False
        before, self._work = self._work, processor_time(self._pid)
        return before != self._work
