"""Fixtures of the Redis store tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import redis

from chimes.clock import Clock
from chimes.store.redis import RedisStore, open_redis
from chimes.store.redis.connection import parse_address


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


@contextmanager
def published_wakeups(url: str) -> Iterator[Callable[[], list[str]]]:
    """Yields a function that returns the senders of the wake-ups since its last call."""
    channel = parse_address(url).channel
    with plain_client(url) as client, client.pubsub() as subscription:
        subscription.subscribe(channel)
        subscription.get_message(timeout=60)

        def published() -> list[str]:
            client.publish(channel, "marker")
            found = []
            while (sender := subscription.get_message(timeout=60)["data"]) != "marker":
                found.append(sender)
            return found

        yield published


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
