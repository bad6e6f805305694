"""The store's time between two looks at it: its last answer plus what has passed since.

Only for values that need not be exact to the microsecond (outgoing timestamps, log lines, how long
to sleep); what is due or expired is always decided by the store itself.

Between two answers the store's clock must have gone on by what passed on the monotonic one here.
If it has not, somebody turned it, or this machine stood still (F51, F52).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from chimes.clock import Clock
from chimes.store.port import Store

#: Seconds by which the two clocks may differ before that counts as a jump.
TOLERATED = 5.0
#: Seconds for which an answer is good enough to sleep by.
RECENT = 5.0
#: The part of an interval that a look may be early without being repeated at once.
EARLY = 0.05


class StoreTime:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        #: What the store said, when that was here, and by how much that may be wrong.
        self._anchor = (clock.now(), clock.monotonic(), 0.0)
        #: The answer that says most about how late it is there at least, and when it had come.
        self._least = (clock.now(), clock.monotonic())
        self._seen = False
        self._began = clock.monotonic()
        self._jumps: list[float] = []

    async def ask(self) -> datetime:
        before = self._clock.monotonic()
        now = await self._store.now()
        self.observed(now, before)
        return now

    async def recent(self) -> datetime:
        """For deciding how long to sleep: asks only if nobody has lately."""
        age = self._clock.monotonic() - self._anchor[1]
        return self.now() if self._seen and age < RECENT else await self.ask()

    def observed(self, now: datetime, before: float) -> None:
        """The store said `now` in an answer to a question asked at `before`. The heartbeat's
        thread calls it too, so each change is a single one."""
        after = self._clock.monotonic()
        at, monotonic, doubt = self._anchor
        middle, doubt_now = (before + after) / 2, (after - before) / 2
        jump = (now - at).total_seconds() - (middle - monotonic)
        if self._seen and abs(jump) > TOLERATED + doubt + doubt_now:
            self._jumps.append(jump)
        self._anchor = (now, middle, doubt_now)
        if self._says_more(now, before, after):
            self._least = (now, after)
        self._seen = True

    def _says_more(self, now: datetime, before: float, after: float) -> bool:
        """An answer that took long says little: an earlier one is kept for a while, unless this
        one shows that the clock was put back."""
        least, at = self._least
        gained = (now - least).total_seconds()
        return not self._seen or after - at > RECENT or gained >= after - at or gained < before - at

    def seconds_until(self, moment: datetime) -> float:
        """Until the store's clock has come to that moment, however long answers were on their
        way: what waits so long is not early."""
        least, at = self._least
        return (moment - least).total_seconds() - (self._clock.monotonic() - at)

    def take_jumps(self) -> list[float]:
        """Seconds by which the store's clock has jumped since the last call; back is negative."""
        jumps, self._jumps = self._jumps, []
        return jumps

    def now(self) -> datetime:
        return self.at(self._clock.monotonic())

    def rest_of(self, every: timedelta) -> float:
        """Seconds until those look again who look so often whatever happens: all of this node at
        the same moment, because waking up costs more than looking."""
        period = every.total_seconds()
        rest = period - (self._clock.monotonic() - self._began) % period
        return rest if rest > period * EARLY else rest + period

    def at(self, moment: float) -> datetime:
        """What time it was there, or will be, at a moment of the monotonic clock."""
        at, monotonic, _ = self._anchor
        return at + timedelta(0, 0, round((moment - monotonic) * 1_000_000))
