"""How many schedules a node fires in a tick (R1.38, C13)."""

from __future__ import annotations

from collections import deque

from chimes.clock import Clock


class DispatchCap:
    """In any stretch of time as long as a tick at most `most`, wherever it begins; 0: no cap."""

    def __init__(self, clock: Clock, *, most: int, tick: float) -> None:
        self._clock = clock
        self._most = most
        self._tick = tick
        self._fired: deque[tuple[float, int]] = deque()

    def room(self, batch: int) -> int:
        """How many of a batch may be fired now."""
        if not self._most:
            return batch
        since = self._clock.monotonic() - self._tick
        while self._fired and self._fired[0][0] <= since:
            self._fired.popleft()
        return max(0, min(batch, self._most - sum(count for _, count in self._fired)))

    def fired(self, count: int) -> None:
        if self._most and count:
            self._fired.append((self._clock.monotonic(), count))

    def wait(self) -> float:
        """Seconds until there is room again, where there is none."""
        oldest = self._fired[0][0] if self._fired else self._clock.monotonic()
        return max(0.0, oldest + self._tick - self._clock.monotonic())
