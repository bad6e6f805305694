"""The arithmetic of a bucket of tokens; stores that compute it themselves do just this."""

from __future__ import annotations

from datetime import timedelta

from chimes.store.port import Taken


def taken_from(
    tokens: float, elapsed: float, *, rate: float, burst: int, count: int
) -> tuple[float, Taken]:
    """What is in the bucket afterwards, and the answer. `elapsed` seconds ago it held `tokens`; a
    clock that went back adds none."""
    there = min(float(burst), tokens + max(0.0, elapsed) * rate)
    if there >= count:
        there -= count
        return there, Taken(granted=count, remaining=int(there), wait=timedelta())
    wait = timedelta(seconds=(count - there) / rate)
    return there, Taken(granted=0, remaining=int(there), wait=wait)
