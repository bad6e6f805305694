"""Rate limits, where keys are on: a bucket of tokens for each caller, shared by all nodes."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import timedelta

from chimes.clock import Clock
from chimes.errors import RateLimited, StoreError
from chimes.store.messages import Taken
from chimes.store.port import Store

_MOST_CALLERS = 10_000
#: For how long a node may spend what it has fetched: what is left then is lost, not saved up.
_SPEND_WITHIN = 1.0
#: The share of a burst that a node fetches at once, at most.
_SHARE = 8
_log = logging.getLogger("chimes.access")


@dataclass(frozen=True, kw_only=True, slots=True)
class Allowance:
    """What is left after a call, for the rate-limit headers."""

    limit: int
    remaining: int
    reset: float


class RateLimiter:
    """`rate` calls a second on average, `burst` at once."""

    def __init__(self, clock: Clock, *, rate: float, burst: int) -> None:
        self._clock = clock
        self._rate = rate
        self._burst = burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> Allowance:
        now = self._clock.monotonic()
        tokens, at = self._buckets.pop(caller, (float(self._burst), now))
        tokens = min(float(self._burst), tokens + (now - at) * self._rate)
        allowed = tokens >= 1
        self._buckets[caller] = (tokens - 1 if allowed else tokens, now)
        while len(self._buckets) > _MOST_CALLERS:
            self._buckets.popitem(last=False)
        if not allowed:
            raise RateLimited(retry_after=timedelta(seconds=(1 - tokens) / self._rate))
        left = tokens - 1
        return Allowance(
            limit=self._burst, remaining=int(left), reset=(self._burst - left) / self._rate
        )

    def check(self, caller: str) -> None:
        """Raise if the caller has used up its allowance, without using any."""
        now = self._clock.monotonic()
        tokens, at = self._buckets.get(caller, (float(self._burst), now))
        if tokens + (now - at) * self._rate < 1:
            wait = (1 - tokens - (now - at) * self._rate) / self._rate
            raise RateLimited(retry_after=timedelta(seconds=wait))


@dataclass(slots=True)
class _Purse:
    """What a node has fetched for a caller and not spent yet."""

    tokens: int = 0
    fetched_at: float = float("-inf")
    #: How many were fetched. As many as were spent of them come next; twice as many if that was
    #: all of them, and soon.
    size: int = 0
    #: In the bucket after that.
    remaining: int = 0
    #: The bucket is empty until then.
    empty_until: float = float("-inf")
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class SharedLimiter:
    """The same limit on all nodes together. A node fetches tokens from the store in small amounts
    and spends them by itself, so that a busy caller costs a fraction of a write per request; it
    fetches more only for those who have used what they got. What it cannot ask the store for, it
    counts alone, by the same rate."""

    def __init__(self, store: Store, clock: Clock, *, rate: float, burst: int) -> None:
        self._store = store
        self._clock = clock
        self._rate = rate
        self._burst = burst
        self._alone = RateLimiter(clock, rate=rate, burst=burst)
        self._purses: OrderedDict[str, _Purse] = OrderedDict()

    async def take(self, caller: str) -> Allowance:
        purse = self._purses.setdefault(caller, _Purse())
        self._purses.move_to_end(caller)
        while len(self._purses) > _MOST_CALLERS:
            self._purses.popitem(last=False)
        if not self._has_some(purse):
            # One fetches for all that wait for it.
            async with purse.lock:
                if not self._has_some(purse):
                    try:
                        await self._fetch(caller, purse)
                    except StoreError:
                        _log.debug("the store keeps no limits at the moment")
                        return self._alone.take(caller)
                purse.tokens -= 1
        else:
            purse.tokens -= 1
        left = purse.tokens + purse.remaining
        return Allowance(limit=self._burst, remaining=left, reset=(self._burst - left) / self._rate)

    def _has_some(self, purse: _Purse) -> bool:
        fresh = self._clock.monotonic() - purse.fetched_at < _SPEND_WITHIN
        return purse.tokens > 0 and fresh

    async def _fetch(self, caller: str, purse: _Purse) -> None:
        now = self._clock.monotonic()
        if now < purse.empty_until:
            raise self._limited(purse.empty_until - now)
        spent = purse.size - purse.tokens
        used_up = not purse.tokens and now - purse.fetched_at < _SPEND_WITHIN
        wanted = 2 * spent if used_up else spent
        count = max(1, min(wanted, self._burst // _SHARE))
        taken = await self._ask(caller, count)
        if not taken.granted and count > 1:
            count, taken = 1, await self._ask(caller, 1)
        if not taken.granted:
            wait = taken.wait.total_seconds()
            purse.tokens = purse.size = 0
            purse.empty_until = now + wait
            raise self._limited(wait)
        purse.tokens = purse.size = count
        purse.remaining, purse.fetched_at = taken.remaining, now

    async def _ask(self, caller: str, count: int) -> Taken:
        return await self._store.take_tokens(
            f"requests:{caller}", rate=self._rate, burst=self._burst, count=count
        )

    def _limited(self, seconds: float) -> RateLimited:
        return RateLimited(retry_after=timedelta(seconds=seconds))
