"""Failures of a PostgreSQL server: lost connections, restarts, refusals and missing answers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import datetime, timedelta

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.util import greenlet_spawn

from chimes.clock import SystemClock
from chimes.errors import ConfigError, StoreUnavailable
from chimes.model import replace
from chimes.model.listing import AuditQuery, RunQuery
from chimes.model.node import HeartbeatResult
from chimes.model.planning import FireContext, FirePlan, plan
from chimes.model.run import RunStatus
from chimes.model.schedule import Schedule
from chimes.store.port import ClaimRequest
from chimes.store.sql import SqlStore, open_postgres
from chimes.store.sql.database import postgres as postgres_server
from chimes.store.sql.database.base import Tx
from chimes.store.sql.database.postgres import normalized
from chimes.store.sql.database.server import UNIT_SECONDS, ServerDatabase
from chimes.store.sql.rows.values import schedule_number
from chimes.triggers import Every
from tests.builders import LEASE, a_completion, a_node, a_run, a_schedule, an_entry
from tests.engine.rig import eventually
from tests.servers import Server, start_postgres
from tests.store.server_rig import until_listening
from tests.system.link import Link

NODE = a_node("node-1")
CLAIM_REQUEST = ClaimRequest(node_id=NODE.id, capabilities=frozenset({"http"}), free=5)


async def opened(url: str) -> SqlStore:
    store = open_postgres(url)
    await store.open()
    return store


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[SqlStore]:
    store = await opened(postgres_url)
    yield store
    await store.close()


@pytest.fixture
async def admin(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A separate connection."""
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


@pytest.fixture
def link(postgres_url: str) -> Iterator[Link]:
    link = Link(postgres_url)
    yield link
    link.close()


async def due_now(store: SqlStore) -> Schedule:
    now = await store.now()
    trigger = Every("1m", anchor=now)
    return await store.add_schedule(a_schedule(trigger=trigger, next_slot=now, next_run_at=now))


# --- connecting ---------------------------------------------------------------------------------
@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+asyncpg"])
async def test_every_spelling_of_the_scheme_connects(postgres_url: str, scheme: str) -> None:
    store = await opened(postgres_url.replace("postgresql", scheme))
    status = await store.status()
    await store.close()
    assert (status.kind, status.location) == ("postgresql", postgres_url)


@pytest.mark.parametrize("url", ["mysql://h/d", "postgresql+psycopg://h/d", "postgresql:"])
def test_an_unknown_scheme_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="not a PostgreSQL URL"):
        normalized(url)


def test_no_password_is_shown() -> None:
    server = open_postgres("postgresql://me:secret@h:5/d?sslmode=require")._database
    assert server.location == "postgresql://me@h:5/d"


async def test_an_unknown_pooler_is_refused() -> None:
    with pytest.raises(ConfigError, match="pooler=session"):
        open_postgres("postgresql://h/d?pooler=session")


async def test_sessions_behind_a_pooler_keep_no_state(postgres_url: str) -> None:
    store = await opened(f"{postgres_url}?pooler=transaction")
    await due_now(store)
    assert len((await store.fire_due(plan, limit=5)).others) == 1
    names = await store._database.read(
        lambda tx: tx.connection.exec_driver_sql("SELECT name FROM pg_prepared_statements").all()
    )
    await store.close()
    assert len(names) <= 1


async def test_sessions_have_their_limits(store: SqlStore) -> None:
    def limits(tx: Tx) -> dict[str, str]:
        rows = tx.connection.exec_driver_sql("SELECT name, setting FROM pg_settings")
        return {row[0]: row[1] for row in rows}

    found = await store._database.read(limits)
    assert found["idle_in_transaction_session_timeout"] == "10000"
    assert found["statement_timeout"] == "15000"
    assert found["lock_timeout"] == "5000"
    assert found["client_connection_check_interval"] == "500"
    assert found["application_name"] == "chimes"


async def test_an_unreachable_server_is_reported_immediately() -> None:
    store = open_postgres("postgresql://chimes@127.0.0.1:1/nothing")
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(store.open(), 60)


async def test_operation_on_an_unopened_store_is_an_error(postgres_url: str) -> None:
    store = open_postgres(postgres_url)
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.counts()


# --- losing connections -------------------------------------------------------------------------
async def kill_backends(admin: asyncpg.Connection) -> None:
    await admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        # Autovacuum may be at work in the database, too.
        " AND backend_type = 'client backend'"
    )


async def test_a_transaction_whose_connection_is_killed_is_retried(
    store: SqlStore, admin: asyncpg.Connection
) -> None:
    await due_now(store)
    asked = threading.Event()
    answered = threading.Event()
    times = 0

    def slow_plan(schedule: Schedule, context: FireContext, now: datetime) -> FirePlan:
        nonlocal times
        times += 1
        if times == 1:
            # In the middle of a transaction, with the schedule locked.
            loop.call_soon_threadsafe(asked.set)
            answered.wait(60)
        return plan(schedule, context, now)

    # The planner blocks its event loop, so it gets a separate one.
    loop = asyncio.get_running_loop()

    async def fire() -> int:
        own = await opened(store._database.location)
        try:
            return len((await own.fire_due(slow_plan, limit=5)).others)
        finally:
            await own.close()

    firing = loop.run_in_executor(None, lambda: asyncio.run(fire()))
    async with asyncio.timeout(60):
        while not asked.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # set from another thread
    await kill_backends(admin)
    answered.set()
    assert await firing == 1
    assert times == 2
    assert len((await store.list_runs(RunQuery())).items) == 1


async def test_dead_idle_connections_cause_no_error(
    store: SqlStore, admin: asyncpg.Connection
) -> None:
    await asyncio.gather(*(store.counts() for _ in range(5)))
    await kill_backends(admin)
    await store.counts()
    await store.add_schedule(a_schedule())
    assert store.counters()["lost"] >= 1


async def test_dead_idle_connections_leave_no_unknown_claim(
    store: SqlStore, admin: asyncpg.Connection
) -> None:
    """A claim is one message, so the test is whether it was sent."""
    await store.join(NODE, LEASE)
    now = await store.now()
    (run,) = await store.add_runs([a_run(available_at=now, created_at=now)])
    await asyncio.gather(*(store.counts() for _ in range(5)))
    await kill_backends(admin)
    await eventually(lambda: _closed(store), bool)
    assert [each.id for each in await store.claim(CLAIM_REQUEST)] == [run.id]
    assert store.counters()["ambiguous"] == 0
    assert store.counters()["lost"] >= 1


async def _closed(store: SqlStore) -> bool:
    """Waits until this process knows that the connection is closed: before, it would send the
    message."""
    pool = store._database._pools.current().engine.pool  # type: ignore[attr-defined]
    return all(
        record.dbapi_connection.driver_connection.is_closed() for record in pool._pool._queue._queue
    )


async def test_a_commit_with_a_lost_answer_is_reported_and_not_repeated(link: Link) -> None:
    store = await opened(link.url)
    await store.join(NODE, LEASE)
    link.set("ambiguous")
    with pytest.raises(StoreUnavailable, match="may have happened") as caught:
        await store.append_audit(an_entry())
    assert caught.value.details["code"] == "commit_unknown"
    link.set("pass")
    assert link.ambiguous >= 1
    assert store.counters()["ambiguous"] == 1
    # It did happen, once, and the caller may repeat it. After a lost answer, the server may still
    # be executing it.
    async with asyncio.timeout(60):
        while not (entries := await store.list_audit(AuditQuery())):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert len(entries) == 1
    await store.close()


# One message, which commits by itself.
async def test_a_claim_with_a_lost_answer_is_reported_and_committed(link: Link) -> None:
    store = await opened(link.url)
    await store.join(NODE, LEASE)
    now = await store.now()
    (run,) = await store.add_runs([a_run(available_at=now, created_at=now)])
    link.set("ambiguous")
    with pytest.raises(StoreUnavailable, match="may have happened"):
        await store.claim(CLAIM_REQUEST)
    link.set("pass")
    held = await eventually(lambda: store.get_run(run.id), lambda found: found and found.holder)
    assert held is not None
    assert (held.holder, held.fence) == (NODE.id, 1)
    await store.close()


# The same completion is accepted again.
@pytest.mark.parametrize("planned", [True, False], ids=["of a schedule", "of nobody"])
async def test_a_completion_is_repeated_after_a_lost_answer(link: Link, planned: bool) -> None:
    store = await opened(link.url)
    await store.join(NODE, LEASE)
    if planned:
        await due_now(store)
        (run,) = (await store.fire_due(plan, limit=1, request=CLAIM_REQUEST)).claimed
    else:
        now = await store.now()
        await store.add_runs([a_run(available_at=now, created_at=now)])
        (run,) = await store.claim(CLAIM_REQUEST)
    completion = replace(a_completion(run, await store.now()), run=run)
    link.set("ambiguous")
    with pytest.raises(StoreUnavailable):
        await store.finish([completion])
    link.set("pass")
    again = await store.finish([completion])
    assert [each.status for each in again.accepted] == [RunStatus.SUCCEEDED]
    assert again.refused == ()
    await store.close()


# --- sessions of a stalled node -----------------------------------------------------------------
async def test_a_session_stalled_in_a_statement_is_terminated(
    store: SqlStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Prepared and not executed, the session is neither idle nor executing, and no timeout ends it;
    # its rows would stay locked for as long as its node is stalled.
    held = await store.add_schedule(a_schedule())
    stopped = await asyncpg.connect(postgres_url, server_settings={"application_name": "chimes"})
    other = await asyncpg.connect(postgres_url, server_settings={"application_name": "other"})
    for connection in (stopped, other):
        await connection.execute("BEGIN")
    await stopped.execute("SELECT FROM cursors FOR UPDATE")
    for connection in (stopped, other):
        await connection.prepare("SELECT 1 AS unheard_of")
    monkeypatch.setattr("chimes.store.sql.nodes.IDLE_SECONDS", 600)
    await store.rescue(limit=1)
    assert not stopped.is_closed(), "it is not terminated before its timeout"
    monkeypatch.setattr("chimes.store.sql.nodes.IDLE_SECONDS", 0)
    await store.rescue(limit=1)
    await store.change_schedule(held.id, lambda schedule, _: replace(schedule, name="new"))
    assert not other.is_closed(), "the session of another user"
    await other.fetchval("SELECT 1")
    await other.close()
    stopped.terminate()


# --- a server that stops ------------------------------------------------------------------------
@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    with start_postgres(durable=True, settings={"max_connections": "16"}) as server:
        yield server


@pytest.mark.parametrize("mode", ["fast", pytest.param("crash", marks=pytest.mark.long)])
async def test_a_store_recovers_after_a_server_restart(own_server: Server, mode: str) -> None:
    store = await opened(own_server.new_database())
    added = [await store.add_schedule(a_schedule()) for _ in range(20)]
    own_server.shut_down() if mode == "fast" else own_server.kill9()
    begun = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await store.add_schedule(a_schedule())
    assert time.monotonic() - begun < UNIT_SECONDS
    await asyncio.to_thread(own_server.restart)
    for schedule in added:
        assert await store.get_schedule(schedule.id) == schedule
    await store.add_schedule(a_schedule())
    await store.close()


async def test_a_read_only_server_is_recognised(own_server: Server) -> None:
    store = await opened(own_server.new_database())
    own_server.admin(
        "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"
    )
    try:
        await until_read_only(store)
        with pytest.raises(StoreUnavailable, match="store_read_only") as caught:
            await store.add_schedule(a_schedule())
        assert caught.value.details["code"] == "store_read_only"
        assert (await store.counts()).schedules == 0
    finally:
        own_server.admin(
            "SET default_transaction_read_only = off",
            "ALTER SYSTEM RESET default_transaction_read_only",
            "SELECT pg_reload_conf()",
        )
        await store.close()


async def until_read_only(store: SqlStore) -> None:
    """Sessions apply a reload a moment later."""

    async def is_read_only() -> bool:
        show = "SHOW default_transaction_read_only"
        read = store._database.read
        return await read(lambda tx: tx.connection.exec_driver_sql(show).scalar()) == "on"

    await until(is_read_only)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """For states that the server does not announce."""
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


# The pool waits, then raises an error; the heartbeat has its own connection.
async def test_a_heartbeat_gets_through_when_every_connection_is_taken(
    own_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chimes.store.sql.database.postgres.POOL_SECONDS", 0.5)
    store = await opened(own_server.new_database())
    await store.join(NODE, timedelta(minutes=5))
    with _HeartbeatThread(store) as heart:
        assert heart.heartbeat().alive
        async with _AllConnectionsTaken(own_server, store) as refused:
            assert "cannot" in refused or "in use" in refused
            assert heart.heartbeat().alive
    await store.close()


class _HeartbeatThread:
    """Sends heartbeats in a thread with its own loop, like the engine."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            self._stop = asyncio.Event()
            runner.run(self._stop.wait())

    def __enter__(self) -> _HeartbeatThread:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)

    def heartbeat(self) -> HeartbeatResult:
        beating = self._store.heartbeat(NODE.id, timedelta(minutes=5), clock=SystemClock().now())
        return asyncio.run_coroutine_threadsafe(beating, self._loop).result(60)


class _AllConnectionsTaken:
    """Takes all connections of the server."""

    def __init__(self, server: Server, store: SqlStore) -> None:
        self._url = store._database.location
        self._store = store
        self._taken: list[asyncpg.Connection] = []

    async def __aenter__(self) -> str:
        try:
            while True:
                self._taken.append(await asyncpg.connect(self._url))
        except asyncpg.TooManyConnectionsError:
            pass
        answers = await asyncio.gather(
            *(self._store.counts() for _ in range(14)), return_exceptions=True
        )
        refused = [each for each in answers if isinstance(each, StoreUnavailable)]
        assert len(refused) + sum(not isinstance(each, Exception) for each in answers) == 14
        assert refused
        return str(refused[0])

    async def __aexit__(self, *_: object) -> None:
        for connection in self._taken:
            await connection.close()


# A client that stopped in the middle of a transaction holds its rows, but not for ever.
async def test_rows_of_a_stopped_client_are_unlocked(
    store: SqlStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = await due_now(store)
    await store._database.close()
    monkeypatch.setitem(postgres_server._SESSION, "idle_in_transaction_session_timeout", "700ms")
    stopped = await opened(postgres_url)
    database = stopped._database
    assert isinstance(database, ServerDatabase)
    held = database._pools.current().engine
    await store.open()
    connection = await greenlet_spawn(held.connect)
    locking = text("SELECT 1 FROM cursors WHERE schedule = :key FOR UPDATE")
    await greenlet_spawn(connection.execute, locking, {"key": schedule_number(schedule.id)})
    try:
        async with asyncio.timeout(60):
            while not (fired := await store.fire_due(plan, limit=5)).others:
                assert fired.more
    finally:
        await greenlet_spawn(connection.invalidate)
        await greenlet_spawn(connection.close)
    await stopped.close()


# A claim that is executing when its node dies is stopped.
@pytest.mark.long
async def test_a_claim_of_a_dead_process_is_not_committed(
    store: SqlStore, postgres_url: str, admin: asyncpg.Connection
) -> None:
    await store.join(NODE, timedelta(minutes=5))
    now = await store.now()
    (run,) = await store.add_runs(
        [replace(a_run(), created_at=now, planned_at=now, available_at=now)]
    )
    await admin.execute(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM pg_sleep(600); RETURN NEW; END';"
        "CREATE TRIGGER slow BEFORE INSERT ON claims FOR EACH ROW EXECUTE FUNCTION slow()"
    )
    claiming = subprocess.Popen(  # noqa: ASYNC220 it returns at once
        [sys.executable, "-c", CLAIM, postgres_url]
    )
    try:
        await until_sleeping(admin, 1)
    finally:
        claiming.kill()
        claiming.wait(60)
    await until_sleeping(admin, 0)
    await admin.execute("DROP TRIGGER slow ON claims")
    (claimed,) = await store.claim(CLAIM_REQUEST)
    assert (claimed.id, claimed.fence, claimed.attempt) == (run.id, 1, 1)


CLAIM = """
import asyncio, sys
from chimes.store.port import ClaimRequest
from chimes.store.sql import open_postgres
from chimes.store.sql.database import postgres
postgres._SESSION["statement_timeout"] = "0"
async def main():
    store = open_postgres(sys.argv[1])
    await store.open()
    await store.claim(ClaimRequest(node_id="node-1", capabilities=frozenset({"http"}), free=5))
asyncio.run(main())
"""


async def until_sleeping(admin: asyncpg.Connection, count: int) -> None:
    """Waits until so many sessions execute the slow statement."""

    async def asleep() -> bool:
        statement = (
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE wait_event = 'PgSleep' AND datname = current_database()"
        )
        return bool(await admin.fetchval(statement) == count)

    await until(asleep)


# --- waking -------------------------------------------------------------------------------------
async def test_another_node_is_woken_and_again_after_its_connection_was_lost(
    store: SqlStore, postgres_url: str, admin: asyncpg.Connection
) -> None:
    other = await opened(postgres_url)
    try:
        for round_ in range(2):
            await until_two_listen(admin)
            since = other.changes()
            waiting = asyncio.ensure_future(other.wait_for_work(since, None))
            await store.add_runs([a_run()])
            await asyncio.wait_for(waiting, 60)
            if round_ == 0:
                await kill_backends(admin)
    finally:
        await other.close()


async def until_two_listen(admin: asyncpg.Connection) -> None:

    async def listening() -> bool:
        count = await admin.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND (query LIKE 'LISTEN%' OR query LIKE '%pg_notify%') AND pid <> pg_backend_pid()"
        )
        return bool(count >= 2)

    await until(listening)


async def test_schemas_of_one_database_do_not_wake_each_other(
    postgres_url: str, admin: asyncpg.Connection
) -> None:
    await admin.execute("CREATE SCHEMA one; CREATE SCHEMA two")
    one = await opened(f"{postgres_url}?search_path=one")
    two = await opened(f"{postgres_url}?search_path=two")
    try:
        await until_listening(one, two)
        notified = asyncio.Event()
        await admin.add_listener("chimes_one", lambda *_: notified.set())
        since = two.changes()
        await one.add_runs([a_run()])
        assert (await one.counts()).runs == {RunStatus.QUEUED: 1}
        assert (await two.counts()).runs == {}
        await asyncio.wait_for(notified.wait(), 60)
        await asyncio.sleep(0.1)  # two sessions receive a notification at different times
        assert two.changes() == since
    finally:
        await one.close()
        await two.close()
