"""A few threads that read, each with its own connection, so that reads never wait for writes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from sqlalchemy import Connection

from chimes.clock import Clock
from chimes.errors import StoreUnavailable
from chimes.store.sql.database import Reader, Tx, Work
from chimes.store.sql.dialects.base import Dialect
from chimes.store.sql.group_commit import driver_of
from chimes.wording import say

T = TypeVar("T")

READERS = 3


class Readers:
    def __init__(self, connect: Callable[[], Connection], dialect: Dialect, clock: Clock) -> None:
        self._connect = connect
        self._dialect = dialect
        self._clock = clock
        self._own = threading.local()
        self._connections: list[Connection] = []
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="chimes-reader")
        self._closed = False

    async def stop(self) -> None:
        self._closed = True
        await asyncio.to_thread(self._pool.shutdown)
        while self._connections:
            self._connections.pop().close()

    async def read(self, work: Work[T]) -> T:
        return await self._in_thread(self._transact, work)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Reader]:
        connection = await self._in_thread(self._connect)
        await self._in_thread(lambda: driver_of(connection).execute("BEGIN"))

        async def read(work: Work[T]) -> T:
            return await self._in_thread(self._carry_out, connection, work)

        try:
            yield read
        finally:
            await asyncio.to_thread(connection.close)

    async def _in_thread(self, call: Callable[..., T], *given: object) -> T:
        if self._closed:
            raise StoreUnavailable(say("the store is closed"))
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *given)

    # --- in a reading thread ------------------------------------------------------------------
    def _transact(self, work: Work[T]) -> T:
        connection = self._connection()
        driver = driver_of(connection)
        driver.execute("BEGIN")
        try:
            return self._carry_out(connection, work)
        finally:
            driver.execute("ROLLBACK")

    def _carry_out(self, connection: Connection, work: Work[T]) -> T:
        try:
            return work(Tx(connection, self._dialect, self._clock, reading=True))
        except Exception as error:
            reason = self._dialect.unavailable(error)
            if reason is None:
                raise
            raise StoreUnavailable(say("cannot read: {reason}", reason=reason)) from error

    def _connection(self) -> Connection:
        connection: Connection | None = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = self._connect()
            self._connections.append(connection)
        return connection
