"""How often somebody may guess: five times in a quarter of an hour, by address and name, on all
nodes together (RELIABILITY 8, S51). Only wrong guesses cost something."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from datetime import timedelta

from chimes.clock import Clock
from chimes.errors import RateLimited
from chimes.store.port import Store
from chimes.wording import say

TRIES = 5
WINDOW = timedelta(minutes=15)
#: Until there is one try more.
_EACH = WINDOW / TRIES
_MOST = 10_000


class LoginLimit:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        #: Who has guessed too often, as far as this node knows, and until when.
        self._closed: OrderedDict[str, float] = OrderedDict()

    def check(self, subject: str) -> None:
        """Before anything is looked at. RateLimited."""
        left = self._closed.get(subject, float("-inf")) - self._clock.monotonic()
        if left > 0:
            raise _too_many(timedelta(seconds=left))

    async def failed(self, subject: str) -> None:
        """RateLimited if other nodes have seen as many already."""
        name = hashlib.sha256(subject.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        rate = TRIES / WINDOW.total_seconds()
        taken = await self._store.take_tokens(f"login:{name}", rate=rate, burst=TRIES)
        if taken.remaining == 0:
            self._closed[subject] = self._clock.monotonic() + _EACH.total_seconds()
            self._closed.move_to_end(subject)
            if len(self._closed) > _MOST:
                self._closed.popitem(last=False)
        if taken.granted == 0:
            raise _too_many(taken.wait)


def _too_many(wait: timedelta) -> RateLimited:
    return RateLimited(say("Too many failed attempts to sign in"), retry_after=wait)
