"""Fixtures of the Redis store tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import redis

from chimes.clock import Clock
from chimes.store.redis import RedisStore, open_redis


@asynccontextmanager
async def opened(
    url: str, clock: Clock | None = None, **given: object
) -> AsyncIterator[RedisStore]:
    store = open_redis(url, clock=clock, **given)  # type: ignore[arg-type]
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@contextmanager
def plain_client(url: str) -> Iterator[redis.Redis]:
    """A client without knowledge of Chimes."""
    client = redis.Redis.from_url(url.partition("?")[0], decode_responses=True)
    try:
        yield client
    finally:
        client.close()


def all_keys(client: redis.Redis) -> dict[str, object]:
    """All keys with their values, for comparison."""
    found: dict[str, object] = {}
    for key in client.scan_iter(count=1000):
        match client.type(key):
            case "hash":
                found[key] = client.hgetall(key)
            case "zset":
                found[key] = client.zrange(key, 0, -1, withscores=True)
            case "list":
                found[key] = client.lrange(key, 0, -1)
            case "set":
                found[key] = client.smembers(key)
            case other:
                found[key] = other
    return found
