"""Redis store, shared by all nodes; task keys are compatible with EventNative."""

from __future__ import annotations

from pathlib import Path

from chimes.clock import Clock
from chimes.envelope import NO_KEYS, Keyring
from chimes.store.redis.connection import parse_address
from chimes.store.redis.store import RedisStore

__all__ = ["RedisStore", "open_redis"]


def open_redis(
    url: str,
    *,
    clock: Clock | None = None,
    allow_volatile: bool = False,
    marker: Path | None = None,
    keyring: Keyring = NO_KEYS,
) -> RedisStore:
    """A store that is not opened yet. `marker`: file with the id of the store that was used."""
    return RedisStore(
        parse_address(url),
        clock=clock,
        allow_volatile=allow_volatile,
        marker=marker,
        keyring=keyring,
    )
