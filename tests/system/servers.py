"""Direct access of fault tests to a database."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import asyncmy
import asyncpg

from chimes.store.sql.rows.values import schedule_number
from tests.servers.server import wait_for

Row = Sequence[Any]


def sql(url: str, *statements: str) -> list[Row]:
    """Executes statements in autocommit and returns the rows of the last."""
    return wait_for(_postgres(url, statements) if _is_postgres(url) else _mariadb(url, statements))


def cut_connections(url: str) -> int:
    """Terminates all other connections to this database and returns their number."""
    name = urlsplit(url).path[1:]
    if _is_postgres(url):
        return len(
            sql(
                url,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                f" WHERE datname = '{name}' AND pid <> pg_backend_pid()"
                " AND backend_type = 'client backend'",
            )
        )
    found = sql(
        url,
        "SELECT id FROM information_schema.processlist"
        f" WHERE db = '{name}' AND id <> connection_id()",
    )
    ended = 0
    for (connection,) in found:
        try:
            sql(url, f"KILL CONNECTION {connection}")
            ended += 1
        except asyncmy.errors.OperationalError:
            continue  # it closed by itself
    return ended


def hold_row_lock(url: str, schedule_id: str, seconds: float, held: threading.Event) -> None:
    """Locks the cursor of a schedule for `seconds`; sets `held` once it is locked."""
    key = schedule_number(schedule_id)
    row = f"SELECT schedule FROM cursors WHERE schedule = {key} FOR UPDATE"
    wait_for(_hold(url, row, seconds, held))


async def _hold(url: str, row: str, seconds: float, held: threading.Event) -> None:
    if _is_postgres(url):
        connection = await asyncpg.connect(url, ssl=False, timeout=10)
        try:
            async with connection.transaction():
                await connection.fetch(row)
                held.set()
                await asyncio.sleep(seconds)
        finally:
            await connection.close(timeout=10)
        return
    parts = urlsplit(url)
    given = {"host": parts.hostname, "port": parts.port, "user": parts.username}
    other = await asyncmy.connect(**given, db=parts.path[1:], autocommit=False)
    try:
        async with other.cursor() as cursor:
            await cursor.execute(row)
            held.set()
            await asyncio.sleep(seconds)
        await other.rollback()
    finally:
        await other.ensure_closed()


def quoted(url: str, name: str) -> str:
    return f'"{name}"' if _is_postgres(url) else f"`{name}`"


def _is_postgres(url: str) -> bool:
    return url.startswith("postgresql")


async def _postgres(url: str, statements: Sequence[str]) -> list[Row]:
    connection = await asyncpg.connect(url, ssl=False, timeout=10)
    rows: list[Row] = []
    try:
        for statement in statements:
            rows = [tuple(row) for row in await connection.fetch(statement, timeout=30)]
    finally:
        await connection.close(timeout=10)
    return rows


async def _mariadb(url: str, statements: Sequence[str]) -> list[Row]:
    parts = urlsplit(url)
    connection = await asyncmy.connect(
        host=parts.hostname,
        port=parts.port,
        user=parts.username,
        db=parts.path[1:],
        autocommit=True,
        connect_timeout=10,
    )
    rows: list[Row] = []
    try:
        async with connection.cursor() as cursor:
            for statement in statements:
                await cursor.execute(statement)
                rows = [tuple(row) for row in await cursor.fetchall() or ()]
    finally:
        await connection.ensure_closed()
    return rows
