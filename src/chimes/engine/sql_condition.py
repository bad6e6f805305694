"""Reads the rows of a SQL trigger through a named connection, read-only and with a time limit."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from chimes.config.connections import Connection
from chimes.model.access import Owner, OwnerType
from chimes.services.secrets import resolve_secrets
from chimes.store.port import Store
from chimes.triggers.event import is_single_query

#: Seconds until a query is given up.
TIMEOUT = 20.0
#: Rows that are read.
MAX_ROWS = 100
#: The owner of the secrets that chimes.yaml names.
_CONFIG_OWNER = Owner(type=OwnerType.SYSTEM, id="config")
Rows = list[dict[str, object]]


async def query_rows(store: Store, connection: Connection, query: str) -> Rows:
    """Raises ValueError for several statements, and for one that writes a file."""
    if not is_single_query(query):
        raise ValueError("the query is not a single SELECT")
    if connection.secret_names:
        resolved = await resolve_secrets(store, _CONFIG_OWNER, connection.secret_names)
        connection = connection.filled(resolved.values)
    scheme = connection.url.partition("://")[0].partition("+")[0]
    async with asyncio.timeout(TIMEOUT + 5):
        if scheme == "sqlite":
            return await asyncio.to_thread(_query_sqlite, connection.url, query)
        if scheme in ("postgresql", "postgres"):
            return await _query_postgres(connection.url, query)
        return await _query_mariadb(connection.url, query)


def _query_sqlite(url: str, query: str) -> Rows:
    path = unquote(url.partition("://")[2].partition("?")[0])
    path = path.removeprefix("/") if path.startswith("//") else path
    with closing(
        sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=TIMEOUT)
    ) as database:
        database.execute("PRAGMA query_only = ON")
        # Called after every 100,000 steps of the virtual machine; a large query ends by itself.
        steps = iter(range(2000))
        database.set_progress_handler(lambda: int(next(steps, None) is None), 100_000)
        cursor = database.execute(query)
        names = [each[0] for each in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchmany(MAX_ROWS)]


async def _query_postgres(url: str, query: str) -> Rows:
    import asyncpg

    scheme, _separator, rest = url.partition("://")
    database = await asyncpg.connect(
        f"{scheme.partition('+')[0]}://{rest}", timeout=TIMEOUT, command_timeout=TIMEOUT
    )
    try:
        async with database.transaction(readonly=True):
            if await database.fetchval("SHOW statement_timeout") == "0":
                await database.execute(f"SET LOCAL statement_timeout = {int(TIMEOUT * 1000)}")
            cursor = await database.cursor(query)
            return [dict(row) for row in await cursor.fetch(MAX_ROWS)]
    finally:
        await database.close(timeout=5)


async def _query_mariadb(url: str, query: str) -> Rows:
    import asyncmy
    from asyncmy.cursors import DictCursor

    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    database = await asyncmy.connect(
        host=parts.hostname or "localhost",
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        db=parts.path.lstrip("/"),
        unix_socket=options.get("unix_socket"),
        connect_timeout=int(TIMEOUT),
    )
    try:
        async with database.cursor(cursor=DictCursor) as cursor:
            # MySQL has no such variable.
            await cursor.execute("SHOW VARIABLES WHERE Variable_name = 'max_statement_time'")
            if any(float(row["Value"]) == 0 for row in await cursor.fetchall()):
                await cursor.execute(f"SET SESSION max_statement_time = {int(TIMEOUT)}")
            await cursor.execute("SET SESSION TRANSACTION READ ONLY")
            await cursor.execute("START TRANSACTION READ ONLY")
            async with asyncio.timeout(TIMEOUT):
                await cursor.execute(query)
                return [dict(row) for row in await cursor.fetchmany(MAX_ROWS)]
    finally:
        database.close()
