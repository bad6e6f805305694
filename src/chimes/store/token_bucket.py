"""Token bucket arithmetic; stores that compute it in the database use the same rules."""

from __future__ import annotations

from datetime import datetime, timedelta

from chimes.store.port import TokenGrant

#: Clocks of nodes differ: a small step back must not refill the bucket twice. A larger one means
#: that the clock was set back, and refilling restarts from there.
MAX_CLOCK_STEP_BACK = timedelta(minutes=1)


def take_from(
    tokens: float, elapsed: float, *, rate: float, burst: int, count: int
) -> tuple[float, TokenGrant]:
    """The tokens left and the grant. `elapsed` seconds ago the bucket held `tokens`; a clock that
    went back adds none."""
    available = min(float(burst), tokens + max(0.0, elapsed) * rate)
    granted = count if available >= count else 0
    left = min(float(burst), available - granted)
    return left, grant_tokens(left, granted=granted, rate=rate, count=count)


def grant_tokens(left: float, *, granted: int, rate: float, count: int) -> TokenGrant:
    """The grant, with `left` tokens in the bucket afterwards."""
    wait = timedelta() if granted == count else timedelta(seconds=(count - left) / rate)
    return TokenGrant(granted=granted, remaining=int(left), wait=wait)


def refilled_until(at: datetime, now: datetime) -> datetime:
    """The time up to which the bucket is refilled; `at` is the previous one."""
    return at if timedelta() < at - now < MAX_CLOCK_STEP_BACK else now
