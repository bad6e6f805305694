"""Keeps the state that a task sends, in order, while the task goes on."""

from __future__ import annotations

import asyncio

from chimes.targets.base import State


class Keeper:
    """Of states that come faster than the store takes them only the newest is written."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._newest: str | None = None
        self._writing: asyncio.Task[None] | None = None
        self._error: Exception | None = None
        #: Resolved when the run turns out to belong to somebody else.
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def put(self, value: str) -> None:
        self._newest = value
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())

    async def finished(self) -> None:
        """Everything is in the store, or the run is lost. Raises what the store has raised."""
        if self._writing is not None:
            await self._writing
        if self._error is not None:
            raise self._error

    async def settled(self, within: float) -> None:
        """The same for a task that has not ended well: what it kept before counts, but nobody
        waits long for it. Nothing is written after this."""
        if self._writing is not None:
            await asyncio.wait((self._writing,), timeout=within)
            self._writing.cancel()

    async def _write(self) -> None:
        while self._newest is not None and not self.lost.done():
            value, self._newest = self._newest, None
            try:
                kept = await self._state.keep(value)
            except Exception as error:
                self._error = error
                return
            if not kept:
                self.lost.set_result(None)
