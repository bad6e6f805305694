"""State of the store, for operators."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime

from chimes.clock import Clock
from chimes.errors import NotAllowed
from chimes.model.access import Actor
from chimes.model.listing import Counts
from chimes.store.port import Store, StoreStatus


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreHealth:
    status: StoreStatus
    counts: Counts
    #: Bytes; None if the store cannot tell.
    size: int | None
    #: Seconds of one round trip.
    latency: float


class SystemService:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def get_store_health(self, actor: Actor) -> StoreHealth:
        _only_operators(actor)
        started = self._clock.monotonic()
        await self._store.now()
        latency = self._clock.monotonic() - started
        status, counts, size = await asyncio.gather(
            self._store.status(), self._store.counts(), self._store.size()
        )
        return StoreHealth(status=status, counts=counts, size=size, latency=latency)

    async def get_store_status(self, actor: Actor) -> StoreStatus:
        _only_operators(actor)
        return await self._store.status()

    async def count_prunable(self, actor: Actor, before: datetime, *, limit: int) -> int:
        """How many runs retention would delete; counts at most `limit`."""
        _only_operators(actor)
        return await self._store.count_prunable(before, most=limit)


def _only_operators(actor: Actor) -> None:
    if not actor.sees_everything:
        raise NotAllowed()
