"""A look at a Redis server for `doctor`; nothing is set up."""

from __future__ import annotations

from dataclasses import dataclass

from chimes.clock import Clock
from chimes.store.redis.address import address_of
from chimes.store.redis.connections import Connections
from chimes.store.redis.durability import checked, version_of
from chimes.store.redis.identity import LAYOUT, present


@dataclass(frozen=True, kw_only=True, slots=True)
class RedisInspection:
    location: str
    version: str
    #: What may be lost there; empty: nothing that was acknowledged.
    durability: str
    #: The layout of the store that is there; None: there is none.
    layout: str | None
    head: str = LAYOUT
    #: Seconds that this machine's clock is ahead of the server's.
    clock_offset: float


async def inspect_redis(url: str, clock: Clock, *, allow_volatile: bool) -> RedisInspection:
    """Raises StoreUnsafe, SchemaMismatch or StoreUnavailable."""
    connections = Connections(address_of(url))
    connections.open()
    try:
        note = await checked(connections, allow_volatile=allow_volatile)
        found = await present(connections)
        seconds, micros = _time(await connections.command("TIME"))
        offset = clock.now().timestamp() - seconds - micros / 1_000_000
        return RedisInspection(
            location=connections.address.shown,
            version=await version_of(connections),
            durability=note,
            layout=found.layout if found else None,
            clock_offset=offset,
        )
    finally:
        await connections.close()


def _time(answer: object) -> tuple[int, int]:
    assert isinstance(answer, list)
    seconds, micros = answer
    return int(seconds), int(micros)
