"""The memory store: the reference for all other stores.

Each method changes one `State` under one lock without awaiting, so it is atomic. Nothing survives
the process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from chimes.i18n import _
from chimes.model.listing import Counts
from chimes.store.memory.insights import MemoryInsights
from chimes.store.memory.notifications import MemoryMessageStore
from chimes.store.memory.records import MemoryNodeStore, MemoryRecords
from chimes.store.memory.runs import MemoryRuns
from chimes.store.memory.schedules import MemorySchedules
from chimes.store.port import Item, StoreStatus


class MemoryStore(
    MemorySchedules,
    MemoryRuns,
    MemoryRecords,
    MemoryMessageStore,
    MemoryInsights,
    MemoryNodeStore,
):
    async def open(self) -> None:
        return None

    async def close(self) -> None:
        self.wake()

    async def status(self) -> StoreStatus:
        return StoreStatus(kind="memory", location=_("this process"), schema="-")

    async def now(self) -> datetime:
        return self._clock.now()

    def changes(self) -> int:
        return self._wakeup.count

    async def wait_for_work(self, since: int, until: datetime | None) -> None:
        seconds = None
        if until is not None:
            seconds = max(0.0, (until - self._clock.now()).total_seconds())
        await self._wakeup.wait(since, seconds)

    async def counts(self) -> Counts:
        with self._lock:
            return self._state.counts(self._clock.now())

    async def dump(self) -> AsyncIterator[Item]:
        with self._lock:
            items = self._state.items()
        for item in items:
            yield item

    async def load(self, items: Sequence[Item]) -> int:
        with self._lock:
            count = sum(self._state.adopt(item) for item in items)
        await self._commit()
        self.wake()
        return count
