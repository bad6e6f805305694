"""Helpers for tests of the MariaDB store: plain connections, and stores that are closed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncmy

from chimes.store.sql import SqlStore, open_mariadb
from chimes.store.sql.database.server import ServerDatabase


def name_of(url: str) -> str:
    return urlsplit(url).path[1:]


async def connect(url: str, *, autocommit: bool = True) -> Any:
    at = urlsplit(url)
    return await asyncmy.connect(
        host=at.hostname,
        port=at.port,
        user=at.username,
        db=name_of(url),
        autocommit=autocommit,
        init_command="SET sql_notes = 0, lock_wait_timeout = 10",
    )


async def rows_of(connection: Any, statement: str) -> list[tuple[Any, ...]]:
    async with connection.cursor() as cursor:
        await cursor.execute(statement)
        return [tuple(row) for row in await cursor.fetchall() or ()]


async def sql(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """Executes the statements on a separate connection. Returns the rows of the last one."""
    connection = await connect(url)
    found: list[tuple[Any, ...]] = []
    try:
        for statement in statements:
            found = await rows_of(connection, statement)
    finally:
        await connection.ensure_closed()
    return found


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[SqlStore]:
    store = open_mariadb(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def database_of(store: SqlStore) -> ServerDatabase:
    database = store._database
    assert isinstance(database, ServerDatabase)
    return database
