"""One pool of connections for each event loop, gone with the loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass

from sqlalchemy import Engine
from sqlalchemy.util import greenlet_spawn

from chimes.store.sql.server import Server

#: The engine's loop. Together with the heartbeat and the wake-up: 14 connections at the most.
SIZE, OVERFLOW = 8, 4


@dataclass(frozen=True, slots=True)
class Pool:
    engine: Engine
    #: The same connections, in transactions that see one state and change nothing.
    reading: Engine
    #: The same connections, without transactions where that is cheaper.
    looking: Engine
    #: Disposes of the pool when its loop ends.
    guard: asyncio.Task[None]


class LoopPools:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._pools: dict[asyncio.AbstractEventLoop, Pool] = {}
        #: The loop that gets the large pool.
        self.main: asyncio.AbstractEventLoop | None = None

    def here(self) -> Pool:
        """The pool of the running loop."""
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            pool = self._made(main=loop is self.main)
            with self._lock:
                self._pools[loop] = pool
        return pool

    async def close(self) -> None:
        """Of all loops that still run; those of others are told to."""
        with self._lock:
            pools, self._pools = self._pools, {}
        here = asyncio.get_running_loop()
        for loop, pool in pools.items():
            if loop is here:
                pool.guard.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await pool.guard
            else:
                with contextlib.suppress(RuntimeError):  # that loop has ended
                    loop.call_soon_threadsafe(pool.guard.cancel)

    def _made(self, *, main: bool) -> Pool:
        size, overflow = (SIZE, OVERFLOW) if main else (1, 0)
        engine = self._server.engine(size=size, overflow=overflow)
        guard = asyncio.get_running_loop().create_task(self._guard(engine), name="chimes pool")
        return Pool(
            engine=engine,
            reading=self._server.reading(engine),
            looking=self._server.looking(engine),
            guard=guard,
        )

    async def _guard(self, engine: Engine) -> None:
        """The end of a loop cancels its tasks and waits for them, which is when the connections
        have to be closed."""
        loop = asyncio.get_running_loop()
        try:
            await loop.create_future()
        finally:
            with self._lock:
                self._pools.pop(loop, None)
            await greenlet_spawn(engine.dispose)
