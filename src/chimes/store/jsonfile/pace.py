"""Says so when a JSON file is the wrong store for what it is asked to do (F37)."""

from __future__ import annotations

import logging

from chimes.clock import Clock

PER_SECOND = 20
WINDOW = 10.0
#: Seconds before it is said again.
REPEAT = 600.0

_log = logging.getLogger("chimes.store")


class Pace:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock.monotonic()
        self._commits = 0
        self._said_at: float | None = None

    def count(self) -> None:
        self._commits += 1
        now = self._clock.monotonic()
        elapsed = now - self._since
        if elapsed < WINDOW:
            return
        rate = self._commits / elapsed
        self._since, self._commits = now, 0
        if rate > PER_SECOND and (self._said_at is None or now - self._said_at >= REPEAT):
            self._said_at = now
            _log.warning(
                "%.0f changes a second, each of which writes the whole of jobs.json: above %d a "
                "second the SQLite store is the better choice",
                rate,
                PER_SECOND,
            )
