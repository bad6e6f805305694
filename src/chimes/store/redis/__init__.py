"""Redis as a store: shared by all nodes, with the keys that seed 4 names (R4.7, R4.10-R4.12)."""

from __future__ import annotations

from pathlib import Path

from chimes.clock import Clock
from chimes.store.redis.connection import address_of
from chimes.store.redis.store import RedisStore

__all__ = ["RedisStore", "open_redis"]


def open_redis(
    url: str,
    *,
    clock: Clock | None = None,
    allow_volatile: bool = False,
    marker: Path | None = None,
) -> RedisStore:
    """Not opened yet. `marker`: the file that remembers which store was used."""
    return RedisStore(address_of(url), clock=clock, allow_volatile=allow_volatile, marker=marker)
