"""What a MariaDB server may do to its clients (F17, F21-F27), with a server of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncmy.errors
import pytest

from chimes.errors import StoreUnavailable
from chimes.model.planning import plan
from chimes.store.sql import SqlStore, open_mariadb, server_database
from chimes.store.sql.database import Tx
from chimes.store.sql.mariadb_errors import error_number, trouble_of
from chimes.store.sql.server import IDLE_SECONDS, LOCK_SECONDS, STATEMENT_SECONDS, Trouble
from tests.builders import a_node, a_schedule, a_verdict, due_schedule, places
from tests.servers import start_mariadb
from tests.servers.server import PrivateServer
from tests.store.mariadb_rig import connect, database_of, name_of, opened, rows_of, sql
from tests.store_contract.scenes import all_runs

LONG = timedelta(minutes=10)


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    """With the settings of production: what is acknowledged is on the disk."""
    with start_mariadb(durable=True) as server:
        assert server.admin("SELECT @@innodb_flush_log_at_trx_commit") == [(1,)]
        yield server


@pytest.fixture
def url(server: PrivateServer) -> Iterator[str]:
    url = server.new_database()
    yield url
    server.drop_database(url)


@pytest.fixture
async def store(url: str) -> AsyncIterator[SqlStore]:
    async with opened(url) as store:
        yield store


async def until_it_answers(store: SqlStore) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await store.now()
            except StoreUnavailable:
                await asyncio.sleep(0.1)  # a node would do its round
            else:
                return


# F21
@pytest.mark.parametrize("mode", ["fast", "crash"])
async def test_acknowledged_rows_are_back_after_a_restart(
    server: PrivateServer, store: SqlStore, mode: str
) -> None:
    acknowledged: list[str] = []
    progress = asyncio.Condition()
    refused = 0
    stop = asyncio.Event()

    async def so_many(number: int) -> None:
        async with asyncio.timeout(60), progress:
            await progress.wait_for(lambda: len(acknowledged) >= number)

    async def write(writer: int) -> None:
        nonlocal refused
        number = 0
        while not stop.is_set():
            number += 1
            schedule = a_schedule(id=f"w{writer}-{number}")
            try:
                await store.add_schedule(schedule)
            except StoreUnavailable:
                refused += 1
                await asyncio.sleep(0.05)
            else:
                async with progress:
                    acknowledged.append(schedule.id)
                    progress.notify_all()

    async with asyncio.TaskGroup() as writers:
        for writer in range(4):
            writers.create_task(write(writer))
        await so_many(40)
        # In a thread, so that the writers go on meanwhile.
        await asyncio.to_thread(server.restart, mode)  # type: ignore[arg-type]
        await so_many(len(acknowledged) + 40)
        stop.set()
    assert refused > 0
    there = {row[0] for row in await sql(database_url(store), "SELECT id FROM schedules")}
    assert set(acknowledged) <= there


def database_url(store: SqlStore) -> str:
    return database_of(store).location


# F21, F23: a verdict that was accepted stands, and is accepted again.
async def test_a_verdict_survives_kill_9(server: PrivateServer, store: SqlStore) -> None:
    await store.join(a_node(), LONG)
    now = await store.now()
    await store.add_schedule(due_schedule(now, created_at=now, updated_at=now))
    (run,) = (await store.fire_due(plan, limit=1, places=places())).claimed
    verdict = a_verdict(run, await store.now())
    (before,) = (await store.finish([verdict])).accepted
    await asyncio.to_thread(server.restart, "crash")
    await until_it_answers(store)
    (after,) = (await all_runs(store)).values()
    assert after == before
    assert (await store.finish([verdict])).accepted == (before,)


# F22
async def test_a_unit_whose_connection_is_killed_is_done_again_as_a_whole(
    server: PrivateServer, store: SqlStore, url: str
) -> None:
    calls = 0

    def work(tx: Tx) -> None:
        nonlocal calls
        calls += 1
        count = "UPDATE wakeups SET `count` = `count` + 1000 WHERE id = 1"
        tx.connection.exec_driver_sql(count)
        if calls == 1:
            me = tx.connection.exec_driver_sql("SELECT CONNECTION_ID()").scalar_one()
            server.admin(f"KILL CONNECTION {me}")
        tx.connection.exec_driver_sql(count)

    ((before,),) = await sql(url, "SELECT `count` FROM wakeups")
    await database_of(store).write(work)
    ((after,),) = await sql(url, "SELECT `count` FROM wakeups")
    assert calls == 2
    assert after - before == 2000
    assert database_of(store).counters.lost == 1


# F22: everything at once, as after a fail-over of a proxy.
async def test_losing_every_connection_is_not_noticed(
    server: PrivateServer, store: SqlStore
) -> None:
    await asyncio.gather(*(store.now() for _ in range(8)))
    for (connection,) in server.admin(
        "SELECT id FROM information_schema.processlist WHERE user = 'chimes'"
    ):
        server.admin(f"KILL SOFT CONNECTION {connection}")
    schedules = [a_schedule() for _ in range(8)]
    await asyncio.gather(*(store.add_schedule(schedule) for schedule in schedules))
    for schedule in schedules:
        assert await store.get_schedule(schedule.id) == schedule


# F23: COMMIT is sent, and the answer does not come.
async def test_a_lost_answer_to_a_commit_is_told_and_not_repeated(
    server: PrivateServer, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = a_schedule()
    calls = 0

    def work(tx: Tx) -> None:
        nonlocal calls
        calls += 1
        me = tx.connection.exec_driver_sql("SELECT CONNECTION_ID()").scalar_one()
        real = tx.connection.commit

        def commit_and_die() -> None:
            server.admin(f"KILL CONNECTION {me}")
            real()

        monkeypatch.setattr(tx.connection, "commit", commit_and_die)

    with pytest.raises(StoreUnavailable) as caught:
        await database_of(store).write(work)
    assert caught.value.details["code"] == "commit_unknown"
    assert calls == 1
    assert database_of(store).counters.ambiguous == 1
    assert await store.add_schedule(schedule) == schedule


# F24
async def test_a_server_that_does_not_answer_is_given_up(
    server: PrivateServer, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.now()
    monkeypatch.setattr(server_database, "UNIT_SECONDS", 1.0)
    server.pause()
    try:
        begun = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await store.now()
        assert time.monotonic() - begun < 10
    finally:
        server.resume()
    await until_it_answers(store)


# F27
async def test_a_read_only_server_reads_and_refuses_writes(
    server: PrivateServer, store: SqlStore
) -> None:
    schedule = await store.add_schedule(a_schedule())
    server.admin("SET GLOBAL read_only = 1")
    try:
        with pytest.raises(StoreUnavailable, match=r"read.only"):
            await store.add_schedule(a_schedule())
        assert await store.get_schedule(schedule.id) == schedule
    finally:
        server.admin("SET GLOBAL read_only = 0")
    await store.add_schedule(a_schedule())


# Database.read: one state, and nothing is changed.
async def test_a_reading_sees_one_state(server: PrivateServer, store: SqlStore, url: str) -> None:
    count = "SELECT COUNT(*) FROM concurrency_keys"

    def work(tx: Tx) -> tuple[int, int]:
        before = tx.connection.exec_driver_sql(count).scalar_one()
        server.admin(f"INSERT INTO {name_of(url)}.concurrency_keys VALUES ('x')")
        return before, tx.connection.exec_driver_sql(count).scalar_one()

    assert await database_of(store).read(work) == (0, 0)
    assert (
        await database_of(store).write(lambda tx: tx.connection.exec_driver_sql(count).scalar_one())
        == 1
    )


async def test_a_reading_that_failed_leaves_nothing_on_its_connection(store: SqlStore) -> None:
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


# R2.33, C12: what is claimed goes on to its end.
async def test_runs_go_on_without_the_table_of_schedules(store: SqlStore, url: str) -> None:
    await store.join(a_node(), LONG)
    now = await store.now()
    for _ in range(2):
        await store.add_schedule(due_schedule(now, created_at=now, updated_at=now))
    await store.fire_due(plan, limit=10)
    await sql(url, "RENAME TABLE schedules TO schedules_elsewhere")
    claimed = await store.claim(places())
    assert len(claimed) == 2
    verdicts = [a_verdict(run, await store.now()) for run in claimed]
    assert len((await store.finish(verdicts)).accepted) == 2
    with pytest.raises(Exception, match="schedules"):
        await store.fire_due(plan, limit=10)
    await sql(url, "RENAME TABLE schedules_elsewhere TO schedules")
    assert (await store.fire_due(plan, limit=10)).broken == ()


# F31
async def test_too_many_connections_are_refused_and_forgotten(
    server: PrivateServer, store: SqlStore, url: str
) -> None:
    await store.now()
    server.admin("SET GLOBAL max_connections = 10")
    held = []
    try:
        while len(held) < 20:
            try:
                held.append(await connect(url))
            except asyncmy.errors.MySQLError:
                break
        assert len(held) < 20
        other = open_mariadb(url)
        with pytest.raises(StoreUnavailable, match="Too many connections"):
            await other.open()
        # Who has a connection goes on.
        await store.add_schedule(a_schedule())
    finally:
        for connection in held:
            await connection.ensure_closed()
        server.admin("SET GLOBAL max_connections = 500")
    async with opened(url):
        pass


async def test_a_server_that_is_not_there(url: str) -> None:
    host, _, _ = url.rpartition(":")
    store = open_mariadb(f"{host}:1/nowhere")
    with pytest.raises(StoreUnavailable, match="cannot open"):
        await store.open()


async def test_a_wrong_password_is_told_plainly(url: str, store: SqlStore) -> None:
    with pytest.raises(StoreUnavailable, match="Access denied") as caught:
        await open_mariadb(url.replace("chimes@", "nobody:s3cret@")).open()
    assert "s3cret" not in str(caught.value)


# F17
async def test_sessions_hold_on_to_nothing_for_long(store: SqlStore) -> None:
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


# F17: a client that has stopped in the middle loses its transaction and its locks.
async def test_a_transaction_that_idles_is_undone(store: SqlStore, url: str) -> None:
    calls = 0

    def work(tx: Tx) -> None:
        nonlocal calls
        calls += 1
        tx.connection.exec_driver_sql("SET SESSION idle_transaction_timeout = 1")
        tx.connection.exec_driver_sql("UPDATE wakeups SET `count` = `count` + 1000 WHERE id = 1")
        if calls == 1:
            time.sleep(2)  # as if the process had been stopped
        tx.connection.exec_driver_sql("SELECT 1")

    ((before,),) = await sql(url, "SELECT `count` FROM wakeups")
    await database_of(store).write(work)
    ((after,),) = await sql(url, "SELECT `count` FROM wakeups")
    assert calls == 2
    assert after - before == 1000


async def test_a_statement_that_takes_too_long_is_refused(store: SqlStore) -> None:
    def work(tx: Tx) -> None:
        tx.connection.exec_driver_sql("SET SESSION max_statement_time = 0.3")
        tx.connection.exec_driver_sql("SELECT SLEEP(20)")

    begun = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await database_of(store).write(work)
    assert time.monotonic() - begun < 10


# C21
async def test_the_servers_clock_decides(store: SqlStore, url: str) -> None:
    ((then,),) = await sql(url, "SET time_zone = '+07:00'", "SELECT UTC_TIMESTAMP(6)")
    now = await store.now()
    assert timedelta(0) <= now - then.replace(tzinfo=UTC) < timedelta(seconds=10)
    assert abs(now - datetime.now(UTC)) < timedelta(seconds=10)


# F26: from 11.6.2 this is the default; the whole transaction is gone.
async def test_a_row_that_changed_under_a_snapshot_is_a_conflict(store: SqlStore, url: str) -> None:
    await store.add_schedule(a_schedule())
    one = await connect(url, autocommit=False)
    try:
        await rows_of(one, "SET SESSION innodb_snapshot_isolation = ON")
        await rows_of(one, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await rows_of(one, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        await sql(url, "UPDATE schedules SET fired_count = 5")
        with pytest.raises(asyncmy.errors.MySQLError) as caught:
            await rows_of(one, "SELECT id FROM schedules FOR UPDATE")
    finally:
        await one.ensure_closed()
    assert error_number(caught.value) == 1020
    assert trouble_of(caught.value) is Trouble.CONFLICT


@pytest.mark.parametrize(
    ("number", "trouble"),
    [
        (1213, Trouble.CONFLICT),
        (1205, Trouble.CONFLICT),
        (1062, Trouble.CONFLICT),
        (1290, Trouble.READ_ONLY),
        (1792, Trouble.READ_ONLY),
        (2006, Trouble.LOST),
        (2013, Trouble.LOST),
        (1053, Trouble.LOST),
        (1927, Trouble.LOST),
        (2003, Trouble.REFUSED),
        (1040, Trouble.REFUSED),
        (1021, Trouble.REFUSED),
        # Mistakes of ours are not the server's trouble.
        (1064, None),
        (1406, None),
        (1146, None),
    ],
)
def test_what_errors_mean(number: int, trouble: Trouble | None) -> None:
    error = RuntimeError("wrapped")
    error.__cause__ = asyncmy.errors.OperationalError(number, "x")
    assert trouble_of(error) is trouble


async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def talk_nonsense(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await writer.drain()
    writer.close()


async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


# F24: what answers on the port is no server, or one that is just going down.
@pytest.mark.parametrize("manner", [hang_up, talk_nonsense, say_nothing])
async def test_a_port_without_a_working_server(manner: Any) -> None:
    listener = await asyncio.start_server(manner, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    begun = time.monotonic()
    try:
        with pytest.raises(StoreUnavailable, match="cannot open"):
            await open_mariadb(f"mariadb://me@127.0.0.1:{port}/db").open()
    finally:
        listener.close()
    assert time.monotonic() - begun < 15
