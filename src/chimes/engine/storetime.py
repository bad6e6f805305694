"""The store's time between two looks at it: its last answer plus what has passed since.

Only for values that need not be exact to the microsecond (outgoing timestamps, log lines, how long
to sleep); what is due or expired is always decided by the store itself.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from chimes.clock import Clock
from chimes.store.port import Store


class StoreTime:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._anchor = (clock.now(), clock.monotonic())

    async def ask(self) -> datetime:
        before = self._clock.monotonic()
        now = await self._store.now()
        self.observed(now, before)
        return now

    def observed(self, now: datetime, before: float) -> None:
        """The store said `now` in an answer to a question asked at `before`. One assignment, so
        that the heartbeat's thread may call it too."""
        self._anchor = (now, (before + self._clock.monotonic()) / 2)

    def now(self) -> datetime:
        at, monotonic = self._anchor
        return at + timedelta(seconds=self._clock.monotonic() - monotonic)
