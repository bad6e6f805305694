"""How far ahead a node looks: the larger the crowd, the further (ADR 22).

A crowd has to be in hand before it closes. So what comes due is laid out in its order, each with
the time that taking it has cost here of late: that tells when to begin with it.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from chimes.clock import Clock
from chimes.model.ahead import CLOSED
from chimes.store.port import LookingAhead, Pressing

#: A crowd of any size is taken so long before its time; a large one earlier, but not more than
#: this.
AHEAD = timedelta(seconds=1.5)
FURTHEST = timedelta(seconds=5)
#: Seconds between two questions what is to come, however much changes.
ASK_AGAIN = 0.25
#: To be through before it closes, whatever else turns up.
TO_SPARE = timedelta(milliseconds=400)
#: So shortly before its time a crowd gets the places too that were left to what comes meanwhile:
#: hardly anything comes any more, and the rest of the crowd would be late.
LAST_CALL = timedelta(milliseconds=250)
#: Seconds that taking one schedule costs: before anything is known, and what is believed at all.
COST, LEAST_COST, MOST_COST = 200e-6, 20e-6, 2e-3
#: Fewer in one batch say little about what one costs.
TELLING = 50
#: How much of a new figure counts.
WEIGHT = 0.2
#: Crowds are not as even as the last one.
CAUTION = 1.25


class Outlook:
    def __init__(self, store: LookingAhead, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._cost = COST
        self._asked = -math.inf
        #: Until then there is nothing to be taken, as far as is known; whether somebody has asked
        #: meanwhile.
        self._pause_until = -math.inf
        self._put_off = False
        self._pressing: Pressing | None = None
        #: A part of a crowd found no place.
        self.left_over = False

    @property
    def furthest(self) -> timedelta:
        return max(AHEAD, FURTHEST)

    def took(self, schedules: int, seconds: float) -> None:
        """A batch of a crowd."""
        if schedules >= TELLING:
            cost = min(max(seconds / schedules, LEAST_COST), MOST_COST)
            self._cost += WEIGHT * (cost - self._cost)

    def in_vain(self) -> None:
        """Nothing of what was in sight could be taken: it is left alone for a moment."""
        self._pause_until = self._clock.monotonic() + ASK_AGAIN

    async def until(self, now: datetime) -> datetime:
        """What is due by then is to be taken now, if it is a crowd."""
        asked = self._clock.monotonic()
        self._put_off = asked < self._pause_until
        if self._put_off:
            return now
        if asked - self._asked >= ASK_AGAIN:
            each = timedelta(seconds=self._cost * CAUTION)
            self._pressing = await self._store.pressing(self.furthest, each)
            self._asked = asked
        pressing = self._pressing
        if pressing is None or now < self._begin(pressing):
            return now + AHEAD
        return max(now + AHEAD, pressing.due)

    def next_look(self, due: datetime, now: datetime) -> datetime:
        """When to look again, if the next is due then and nothing changes; `due`: no more before
        it."""
        times = [due - self.furthest, due - AHEAD]
        if self._pressing is not None:
            times.append(self._begin(self._pressing))
        if self.left_over:
            times.append(due - LAST_CALL)
        if self._put_off:
            times.append(now + timedelta(seconds=self._pause_until - self._clock.monotonic()))
        return min((each for each in times if each > now), default=due)

    @staticmethod
    def _begin(pressing: Pressing) -> datetime:
        return pressing.begin_by - CLOSED - TO_SPARE
