"""Sessions on MariaDB: limits, isolation and error mapping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncmy.errors
import pytest

from chimes.errors import StoreUnavailable
from chimes.store.sql import SqlStore, open_mariadb
from chimes.store.sql.database.base import Tx
from chimes.store.sql.database.mariadb import error_kind_of
from chimes.store.sql.database.server import (
    IDLE_SECONDS,
    LOCK_SECONDS,
    STATEMENT_SECONDS,
    DatabaseErrorKind,
)
from chimes.store.sql.dialects.mariadb import error_number
from tests.builders import a_schedule
from tests.servers import MARIADB, shared
from tests.store.mariadb_rig import connect, database_of, name_of, opened, rows_of, sql
from tests.tables import each_row


@pytest.fixture
async def store(mariadb_url: str) -> AsyncIterator[SqlStore]:
    async with opened(mariadb_url) as store:
        yield store


# Database.read: one snapshot, and nothing is changed.
async def test_a_read_sees_one_snapshot(store: SqlStore, mariadb_url: str) -> None:
    count = "SELECT COUNT(*) FROM concurrency_keys"

    def work(tx: Tx) -> tuple[int, int]:
        before = tx.connection.exec_driver_sql(count).scalar_one()
        shared(MARIADB).admin(
            f"INSERT INTO {name_of(mariadb_url)}.concurrency_keys VALUES (1, 'x')"
        )
        return before, tx.connection.exec_driver_sql(count).scalar_one()

    assert await database_of(store).read(work) == (0, 0)
    assert (
        await database_of(store).write(lambda tx: tx.connection.exec_driver_sql(count).scalar_one())
        == 1
    )


async def test_a_failed_read_leaves_nothing_on_its_connection(store: SqlStore) -> None:
    def write(tx: Tx) -> None:
        tx.connection.exec_driver_sql("DELETE FROM concurrency_keys")

    def mistake(tx: Tx) -> None:
        tx.connection.exec_driver_sql("SELECT %s, %s", (1,))

    for _ in range(3):
        with pytest.raises(StoreUnavailable, match=r"read.only|READ ONLY"):
            await database_of(store).read(write)
        with pytest.raises(Exception, match=r"."):
            await database_of(store).read(mistake)
        await database_of(store).write(write)


async def test_unreachable_server_is_unavailable(mariadb_url: str) -> None:
    host, _, _ = mariadb_url.rpartition(":")
    store = open_mariadb(f"{host}:1/nowhere")
    with pytest.raises(StoreUnavailable, match="cannot open"):
        await store.open()


async def test_a_wrong_password_is_reported(mariadb_url: str, store: SqlStore) -> None:
    with pytest.raises(StoreUnavailable, match="Access denied") as caught:
        await open_mariadb(mariadb_url.replace("chimes@", "nobody:s3cret@")).open()
    assert "s3cret" not in str(caught.value)


async def test_sessions_have_timeouts(store: SqlStore) -> None:
    names = (
        "idle_transaction_timeout",
        "max_statement_time",
        "innodb_lock_wait_timeout",
        "lock_wait_timeout",
        "time_zone",
        "collation_connection",
        "tx_isolation",
    )
    columns = ", ".join(f"@@{name}" for name in names)

    def settings(tx: Tx) -> tuple[object, ...]:
        return tuple(tx.connection.exec_driver_sql(f"SELECT {columns}").one())

    assert await database_of(store).write(settings) == (
        IDLE_SECONDS,
        float(STATEMENT_SECONDS),
        LOCK_SECONDS,
        LOCK_SECONDS,
        "+00:00",
        "utf8mb4_nopad_bin",
        "READ-COMMITTED",
    )


# A client that stopped in the middle loses its transaction and its locks.
async def test_an_idle_transaction_is_rolled_back(store: SqlStore, mariadb_url: str) -> None:
    calls = 0

    def work(tx: Tx) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            tx.connection.exec_driver_sql("SET SESSION idle_transaction_timeout = 1")
        tx.connection.exec_driver_sql("UPDATE wakeups SET `count` = `count` + 1000 WHERE id = 1")
        if calls == 1:
            time.sleep(2)  # as if the process were stopped
        tx.connection.exec_driver_sql("SELECT 1")

    ((before,),) = await sql(mariadb_url, "SELECT `count` FROM wakeups")
    await database_of(store).write(work)
    ((after,),) = await sql(mariadb_url, "SELECT `count` FROM wakeups")
    assert calls == 2
    assert after - before == 1000


async def test_slow_statement_is_terminated(store: SqlStore) -> None:
    def work(tx: Tx) -> None:
        tx.connection.exec_driver_sql("SET SESSION max_statement_time = 0.3")
        tx.connection.exec_driver_sql("SELECT SLEEP(600)")

    with pytest.raises(StoreUnavailable, match="max_statement_time"):
        await database_of(store).write(work)


async def test_store_time_is_the_server_clock(store: SqlStore, mariadb_url: str) -> None:
    ((then,),) = await sql(mariadb_url, "SET time_zone = '+07:00'", "SELECT UTC_TIMESTAMP(6)")
    now = await store.now()
    assert timedelta(0) <= now - then.replace(tzinfo=UTC) < timedelta(seconds=10)
    assert abs(now - datetime.now(UTC)) < timedelta(seconds=10)


# From 11.6.2 this is the default; the whole transaction is rolled back.
async def test_a_row_that_changed_under_a_snapshot_is_a_conflict(
    store: SqlStore, mariadb_url: str
) -> None:
    await store.add_schedule(a_schedule())
    one = await connect(mariadb_url, autocommit=False)
    try:
        await rows_of(one, "SET SESSION innodb_snapshot_isolation = ON")
        await rows_of(one, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await rows_of(one, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        await sql(mariadb_url, "UPDATE cursors SET fired_count = 5")
        with pytest.raises(asyncmy.errors.MySQLError) as caught:
            await rows_of(one, "SELECT schedule FROM cursors FOR UPDATE")
    finally:
        await one.ensure_closed()
    assert error_number(caught.value) == 1020
    assert error_kind_of(caught.value) is DatabaseErrorKind.CONFLICT


@each_row(
    ("number", "trouble"),
    [
        (1213, DatabaseErrorKind.CONFLICT),
        (1205, DatabaseErrorKind.CONFLICT),
        (1062, DatabaseErrorKind.CONFLICT),
        (1290, DatabaseErrorKind.READ_ONLY),
        (1792, DatabaseErrorKind.READ_ONLY),
        (2006, DatabaseErrorKind.LOST),
        (2013, DatabaseErrorKind.LOST),
        (1053, DatabaseErrorKind.LOST),
        (1927, DatabaseErrorKind.LOST),
        (2003, DatabaseErrorKind.REFUSED),
        (1040, DatabaseErrorKind.REFUSED),
        (1021, DatabaseErrorKind.REFUSED),
        # Programming errors are not errors of the server.
        (1064, None),
        (1406, None),
        (1146, None),
    ],
)
def test_errors_are_mapped_to_kinds(number: int, trouble: DatabaseErrorKind | None) -> None:
    error = RuntimeError("wrapped")
    error.__cause__ = asyncmy.errors.OperationalError(number, "x")
    assert error_kind_of(error) is trouble


async def close_connection(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def send_garbage(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await writer.drain()
    writer.close()


async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


# The port is open, but the server does not work or is shutting down.
@pytest.mark.parametrize("behaviour", [close_connection, send_garbage, stay_silent])
async def test_port_without_a_working_server_is_unavailable(behaviour: Any) -> None:
    listener = await asyncio.start_server(behaviour, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    try:
        with pytest.raises(StoreUnavailable, match="cannot open"):
            await asyncio.wait_for(open_mariadb(f"mariadb://me@127.0.0.1:{port}/db").open(), 60)
    finally:
        listener.close()
