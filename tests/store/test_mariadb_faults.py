"""Failures of a MariaDB server, tested with a separate server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import asyncmy.errors
import pytest

from chimes.errors import StoreUnavailable
from chimes.model.listing import AuditQuery
from chimes.model.planning import plan
from chimes.store.sql import SqlStore, open_mariadb
from chimes.store.sql.database import server as server_database
from chimes.store.sql.database.base import Tx
from tests.builders import a_completion, a_node, a_schedule, claim_request, due_schedule
from tests.servers import start_mariadb
from tests.servers.server import PrivateServer
from tests.store.mariadb_rig import connect, database_of, opened, sql
from tests.store_contract.scenes import all_runs

LONG = timedelta(minutes=10)


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    """With production settings: what is acknowledged is on the disk."""
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


async def until_available(store: SqlStore) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await store.now()
            except StoreUnavailable:
                await asyncio.sleep(0.1)  # a node would retry in its next pass
            else:
                return


@pytest.mark.parametrize("mode", ["fast", "crash"])
async def test_acknowledged_rows_survive_a_restart(
    server: PrivateServer, store: SqlStore, mode: str
) -> None:
    acknowledged: list[str] = []
    progress = asyncio.Condition()
    refused = 0
    stop = asyncio.Event()

    async def acknowledged_at_least(number: int) -> None:
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
        await acknowledged_at_least(40)
        # In a thread, so that the writers continue meanwhile.
        await asyncio.to_thread(server.restart, mode)  # type: ignore[arg-type]
        await acknowledged_at_least(len(acknowledged) + 40)
        stop.set()
    assert refused > 0
    there = {row[0] for row in await sql(database_url(store), "SELECT id FROM schedules")}
    assert set(acknowledged) <= there


def database_url(store: SqlStore) -> str:
    return database_of(store).location


# An accepted completion is durable, and is accepted again.
async def test_a_completion_survives_kill_9(server: PrivateServer, store: SqlStore) -> None:
    await store.join(a_node(), LONG)
    now = await store.now()
    await store.add_schedule(due_schedule(now, created_at=now, updated_at=now))
    (run,) = (await store.fire_due(plan, limit=1, request=claim_request())).claimed
    completion = a_completion(run, await store.now())
    (before,) = (await store.finish([completion])).accepted
    await asyncio.to_thread(server.restart, "crash")
    await until_available(store)
    (after,) = (await all_runs(store)).values()
    assert after == before
    assert (await store.finish([completion])).accepted == (before,)


async def test_a_transaction_whose_connection_is_killed_is_retried(
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


# All connections at once, as after a fail-over of a proxy.
async def test_losing_every_connection_is_transparent(
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


# COMMIT is sent, and its answer is lost.
async def test_a_commit_with_a_lost_answer_is_reported_and_not_repeated(
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


async def test_unresponsive_server_times_out(
    server: PrivateServer, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.now()
    default = server_database.UNIT_SECONDS
    monkeypatch.setattr(server_database, "UNIT_SECONDS", 1.0)
    server.pause()
    try:
        begun = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await store.now()
        assert time.monotonic() - begun < default
    finally:
        server.resume()
    await until_available(store)


async def test_read_only_server_reads_and_rejects_writes(
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


# Claimed runs continue to their end.
async def test_runs_continue_without_the_table_of_schedules(store: SqlStore, url: str) -> None:
    await store.join(a_node(), LONG)
    now = await store.now()
    for _ in range(2):
        await store.add_schedule(due_schedule(now, created_at=now, updated_at=now))
    await store.fire_due(plan, limit=10)
    await sql(url, "RENAME TABLE schedules TO schedules_elsewhere")
    claimed = await store.claim(claim_request())
    assert len(claimed) == 2
    completions = [a_completion(run, await store.now()) for run in claimed]
    assert len((await store.finish(completions)).accepted) == 2
    with pytest.raises(Exception, match="schedules"):
        await store.add_schedule(a_schedule())
    await sql(url, "RENAME TABLE schedules_elsewhere TO schedules")
    assert (await store.fire_due(plan, limit=10)).broken == ()


# Changes by SQL, whose schedules the audit would read, do not prevent it either.
async def test_runs_are_rescued_without_the_table_of_schedules(store: SqlStore, url: str) -> None:
    await store.join(a_node(), LONG)
    now = await store.now()
    schedule = await store.add_schedule(due_schedule(now, created_at=now, updated_at=now))
    (run,) = (await store.fire_due(plan, limit=10, request=claim_request())).claimed
    await sql(
        url,
        "UPDATE t_action_schedule SET f_status = 'inactive'",
        "UPDATE nodes SET lease_until = 1",
        "RENAME TABLE schedules TO schedules_elsewhere",
    )
    assert [each.id for each in await store.rescue(limit=10)] == [run.id]
    await sql(url, "RENAME TABLE schedules_elsewhere TO schedules")
    await store.rescue(limit=10)
    (entry,) = await store.list_audit(AuditQuery())
    assert (entry.object_id, entry.owner) == (schedule.id, str(schedule.owner))


async def test_too_many_connections_are_rejected_and_recover(
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
        # Existing connections still work.
        await store.add_schedule(a_schedule())
    finally:
        for connection in held:
            await connection.ensure_closed()
        server.admin("SET GLOBAL max_connections = 500")
    async with opened(url):
        pass
