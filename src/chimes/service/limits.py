"""Rate limits, where keys are on: a bucket of tokens for each caller."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from datetime import timedelta

from chimes.clock import Clock
from chimes.errors import RateLimited

_MOST_CALLERS = 10_000


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
