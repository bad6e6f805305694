"""Databases with the schema already created, reused by many tests.

Creating the tables takes much longer than deleting their rows. So each worker keeps a few
databases, gives them to tests in turn and empties each one before its next use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Any, Protocol
from urllib.parse import urlsplit

from tests.servers.kinds import HOST, POSTGRES, Kind
from tests.servers.session import shared

#: A test that copies a store to another of the same kind uses two at once.
IN_TURN = 3

SetUp = Callable[[str], Coroutine[Any, Any, None]]


class _Session(Protocol):
    async def run(self, statements: list[str]) -> None: ...

    async def tables(self) -> list[str]: ...

    async def holds_rows(self, table: str) -> bool: ...


class Prepared:
    """The databases of one kind in this worker. `set_up` creates the tables in an empty one."""

    def __init__(self, kind: Kind, set_up: SetUp) -> None:
        self._kind = kind
        self._set_up = set_up
        self._made: list[_Database] = []
        self._turn = cycle(range(IN_TURN))
        # In a thread with its own event loop, because each test has another one.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"prepared-{kind.name}")
        self._loop = asyncio.new_event_loop()

    def take(self) -> str:
        """Returns the URL of an empty database with all tables."""
        return self._thread.submit(self._loop.run_until_complete, self._take()).result(60)

    async def _take(self) -> str:
        place = next(self._turn)
        if place == len(self._made):
            url = shared(self._kind).new_database()
            await self._set_up(url)
            session = await _connected(self._kind, url)
            self._made.append(_Database(url, session, await _emptying(session)))
        database = self._made[place]
        await database.session.run(database.emptying)
        return database.url


class _Database:
    def __init__(self, url: str, session: _Session, emptying: list[str]) -> None:
        self.url = url
        self.session = session
        self.emptying = emptying


async def _emptying(session: _Session) -> list[str]:
    """The statements that empty a database. Rows that the set-up wrote stay, except the head of the
    audit chain and the time up to which runs are rolled up."""
    unused = [each for each in await session.tables() if not await session.holds_rows(each)]
    head = "UPDATE audit_head SET number = 0, hash = ''"
    mark = "UPDATE store_facts SET value = 0 WHERE name = 'counted_until'"
    return [head, mark, *(f"DELETE FROM {table}" for table in unused)]


async def _connected(kind: Kind, url: str) -> _Session:
    at = urlsplit(url)
    assert at.port is not None
    if kind is POSTGRES:
        import asyncpg

        return _Postgres(
            await asyncpg.connect(
                host=HOST, port=at.port, user=at.username, database=at.path[1:], ssl=False
            )
        )
    import asyncmy

    return _Mariadb(
        await asyncmy.connect(
            host=HOST, port=at.port, user=at.username, db=at.path[1:], autocommit=True
        )
    )


class _Postgres:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def run(self, statements: list[str]) -> None:
        await self._connection.execute("; ".join(statements), timeout=30)

    async def tables(self) -> list[str]:
        statement = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        return [row[0] for row in await self._connection.fetch(statement)]

    async def holds_rows(self, table: str) -> bool:
        return bool(await self._connection.fetchval(f"SELECT EXISTS (SELECT 1 FROM {table})"))


class _Mariadb:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def run(self, statements: list[str]) -> None:
        async with self._connection.cursor() as cursor:
            for statement in statements:
                await cursor.execute(statement)

    async def tables(self) -> list[str]:
        async with self._connection.cursor() as cursor:
            await cursor.execute("SHOW FULL TABLES WHERE table_type = 'BASE TABLE'")
            return [row[0] for row in await cursor.fetchall()]

    async def holds_rows(self, table: str) -> bool:
        async with self._connection.cursor() as cursor:
            await cursor.execute(f"SELECT EXISTS (SELECT 1 FROM {table})")
            return bool((await cursor.fetchone())[0])
