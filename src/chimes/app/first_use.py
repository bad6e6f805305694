"""Ways out over HTTP that are loaded when something first goes out.

aiohttp with what it brings along is a tenth of the memory of a node, and many nodes only ever call
functions. Loading it takes longer than a schedule may be late, so it happens in a thread: only the
first call waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from chimes.delivery.base import Letter, Result, Sender
from chimes.model.recipient import Channel
from chimes.model.run import Outcome
from chimes.targets.base import Call, TargetRunner


class _Opened(Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None: ...


Way = TypeVar("Way", bound=_Opened)


class _FirstUse(Generic[Way]):
    """Loaded and opened once, however many come at the same time."""

    def __init__(self, load: Callable[[], Way]) -> None:
        """`load` imports and builds; it is called in a thread."""
        self._load = load
        self._way: Way | None = None
        self._one_at_a_time = asyncio.Lock()

    async def way(self) -> Way:
        if self._way is None:
            async with self._one_at_a_time:
                if self._way is None:
                    loaded = await asyncio.to_thread(self._load)
                    await loaded.open()
                    self._way = loaded
        return self._way

    async def open(self) -> None:
        """Nothing, until it is used."""

    async def close(self) -> None:
        if self._way is not None:
            await self._way.close()


class HttpCallbacks(_FirstUse[TargetRunner]):
    kind = "http"
    resumable = False
    places = None
    offers = frozenset({"http"})

    async def execute(self, call: Call) -> Outcome:
        return await (await self.way()).execute(call)


class Webhooks(_FirstUse[Sender]):
    channel = Channel.WEBHOOK
    places = 16

    async def send(self, letter: Letter) -> Result:
        return await (await self.way()).send(letter)
