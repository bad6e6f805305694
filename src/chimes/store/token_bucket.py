"""The arithmetic of a bucket of tokens; stores that compute it themselves do just this."""

from __future__ import annotations

from datetime import datetime, timedelta

from chimes.store.port import TokenGrant

#: Callers on several nodes are a moment apart: what one has counted, the next must not count
#: again. A clock that went back further was set back, and is counted from anew.
MAX_CLOCK_STEP_BACK = timedelta(minutes=1)


def take_from(
    tokens: float, elapsed: float, *, rate: float, burst: int, count: int
) -> tuple[float, TokenGrant]:
    """What is in the bucket afterwards, and the answer. `elapsed` seconds ago it held `tokens`; a
    clock that went back adds none."""
    there = min(float(burst), tokens + max(0.0, elapsed) * rate)
    granted = count if there >= count else 0
    return there - granted, grant_tokens(there - granted, granted=granted, rate=rate, count=count)


def grant_tokens(left: float, *, granted: int, rate: float, count: int) -> TokenGrant:
    """`left` are in the bucket after the answer."""
    wait = timedelta() if granted == count else timedelta(seconds=(count - left) / rate)
    return TokenGrant(granted=granted, remaining=int(left), wait=wait)


def refilled_until(at: datetime, now: datetime) -> datetime:
    """Up to when the tokens that came are in the bucket, which was `at` before."""
    return at if timedelta() < at - now < MAX_CLOCK_STEP_BACK else now
