"""Helpers for tests of stores on servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import asyncpg

from chimes.store.port import Store
from chimes.store.sql import SqlStore, open_mariadb, open_postgres
from chimes.store.sql.rows.values import schedule_number
from tests.store import mariadb_rig

SERVERS = ("postgresql", "mariadb")


async def until_listening(*stores: Store) -> None:
    """Waits until new stores receive wake-ups: they wake once when they begin to listen."""
    for store in stores:
        await asyncio.wait_for(store.wait_for_work(0, None), 60)


@dataclass(frozen=True)
class Rig:
    """A server, and the stores of several nodes on it."""

    url: str
    opener: Callable[[str], SqlStore]
    stack: AsyncExitStack

    async def store(self) -> SqlStore:
        store = self.opener(self.url)
        await store.open()
        self.stack.push_async_callback(store.close)
        return store

    async def stores(self, count: int) -> list[SqlStore]:
        return [await self.store() for _ in range(count)]

    def held(self, statement: str) -> AbstractAsyncContextManager[None]:
        """Holds the locks of this statement in a separate transaction."""
        on_postgres = self.opener is open_postgres
        return (
            _on_postgres(self.url, statement) if on_postgres else _on_mariadb(self.url, statement)
        )

    def schedule_held(self, schedule_id: str) -> AbstractAsyncContextManager[None]:
        """Holds the lock of a schedule, which is its cursor."""
        key = schedule_number(schedule_id)
        return self.held(f"SELECT schedule FROM cursors WHERE schedule = {key} FOR UPDATE")

    def keys_held(self) -> AbstractAsyncContextManager[None]:
        """Holds the locks of all existing concurrency keys."""
        column = '"key"' if self.opener is open_postgres else "`key`"
        return self.held(f"SELECT {column} FROM concurrency_keys FOR UPDATE")

    def batches_held(self) -> AbstractAsyncContextManager[None]:
        """Stops a scheduler pass after its runs are inserted, before it commits."""
        if self.opener is open_postgres:
            return self.held("LOCK TABLE fire_batches IN SHARE MODE")
        return self.held("LOCK TABLES fire_batches READ")


@asynccontextmanager
async def rig_at(name: str, url: str) -> AsyncIterator[Rig]:
    async with AsyncExitStack() as stack:
        yield Rig(url, open_postgres if name == "postgresql" else open_mariadb, stack)


@asynccontextmanager
async def _on_postgres(url: str, statement: str) -> AsyncIterator[None]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute(statement)
            yield
    finally:
        await connection.close()


@asynccontextmanager
async def _on_mariadb(url: str, statement: str) -> AsyncIterator[None]:
    connection = await mariadb_rig.connect(url, autocommit=False)
    try:
        await mariadb_rig.rows_of(connection, statement)
        yield
        await connection.rollback()
    finally:
        await connection.ensure_closed()
