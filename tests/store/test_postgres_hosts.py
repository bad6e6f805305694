"""A store on a list of PostgreSQL servers: the one that accepts writes is used."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import text

from chimes.config import Settings, store_location
from chimes.errors import ConfigError, StoreUnavailable
from chimes.runtime.composition import inspect_server_store
from chimes.store.sql import SqlStore, open_postgres
from chimes.store.sql.database import postgres as postgres_server
from chimes.store.sql.database.base import Tx
from chimes.store.sql.database.server import CONNECT_SECONDS, UNIT_SECONDS
from tests.builders import a_run, a_schedule
from tests.forking import run_chimes
from tests.servers import start as start_server
from tests.servers.kinds import HOST, POSTGRES
from tests.servers.server import PrivateServer, free_port
from tests.store.server_rig import until_listening
from tests.system.node import wait_until
from tests.system.standby import FOLLOWED, Standby, promote
from tests.tables import each_row

SETTINGS = FOLLOWED | {"listen_addresses": "127.0.0.1,::1"}
READ_ONLY = ("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")


@dataclass(frozen=True)
class Pair:
    primary: PrivateServer
    standby: PrivateServer
    database: str

    def url(self, *hosts: str, user: str = "chimes", options: str = "") -> str:
        """Without hosts: the standby first."""
        given = hosts or tuple(f"{HOST}:{each.port}" for each in (self.standby, self.primary))
        return f"postgresql://{user}@{','.join(given)}/{self.database}{options}"

    def is_replicating(self) -> bool:
        rows = self.primary.admin("SELECT state FROM pg_stat_replication")
        return [state for (state,) in rows] == ["streaming"]


def start_pair() -> Iterator[Pair]:
    with start_server(POSTGRES, settings=SETTINGS) as primary:
        database = primary.new_database().rsplit("/", 1)[1]
        with start_server(Standby(primary.port), settings=SETTINGS) as standby:
            yield Pair(primary, standby, database)


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """Shared: no test changes who the primary is."""
    yield from start_pair()


@pytest.fixture
def own_pair() -> Iterator[Pair]:
    yield from start_pair()


@pytest.fixture
async def store(own_pair: Pair) -> AsyncIterator[SqlStore]:
    store = open_postgres(own_pair.url())
    await store.open()
    await until(own_pair.is_replicating)
    yield store
    await store.close()


async def until(look: Callable[[], bool]) -> None:
    await asyncio.to_thread(wait_until, look, "the servers")


async def port_of(store: SqlStore) -> int:
    def read(tx: Tx) -> int:
        found = tx.connection.execute(text("SELECT inet_server_port()")).scalar()
        assert isinstance(found, int)
        return found

    return await store._database.query(read)


async def fail_over(pair: Pair, store: SqlStore) -> None:
    """Promotes the standby after it has received what was written."""
    await store.add_schedule(a_schedule())
    # Of what was inserted: these servers write a moment after a commit.
    (end,) = pair.primary.admin("SELECT pg_current_wal_insert_lsn()::text")[0]
    received = f"SELECT pg_last_wal_replay_lsn() >= '{end}'"
    await until(lambda: pair.standby.admin(received) == [(True,)])
    await asyncio.to_thread(promote, pair.standby)


async def kill(server: PrivateServer) -> None:
    """Kills the server and waits for its sessions, which end a moment after it."""
    pids = [pid for (pid,) in server.admin("SELECT pid FROM pg_stat_activity")]
    server.kill9()
    await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


# --- connecting ---------------------------------------------------------------------------------
async def test_a_list_of_hosts_reaches_the_primary(pair: Pair) -> None:
    standby, primary = (f"{HOST}:{each.port}" for each in (pair.standby, pair.primary))
    vanished = f"{HOST}:{free_port()}"
    for url in (
        pair.url(standby, primary),
        pair.url(primary, standby),
        pair.url(standby, f"[::1]:{pair.primary.port}", user="chimes:p%40ss"),
        pair.url(f"[::1]:{pair.standby.port}", f"[::1]:{pair.primary.port}"),
        pair.url(vanished, standby, primary, options="?target_session_attrs=read-write"),
        pair.url(standby, vanished, primary, options="?target_session_attrs=primary"),
        pair.url(primary, options="?target_session_attrs=read-write"),
    ):
        location = store_location(Settings(store=url))
        store = open_postgres(location.server)
        await store.open()
        assert await port_of(store) == pair.primary.port, url
        await store.close()
        assert store._database.location == url.replace(":p%40ss", "").partition("?")[0]
        found = await inspect_server_store(location)
        assert not found.read_only


def test_the_command_line_takes_a_list_of_hosts(pair: Pair, tmp_path: Path) -> None:
    environment = {"CHIMES_STORE": pair.url(user="chimes:hush"), "PATH": os.environ["PATH"]}
    for command in (["store", "migrate"], ["store", "status", "--json"], ["doctor", "--json"]):
        done = run_chimes(command, cwd=tmp_path, env=environment)
        assert "hush" not in done.stdout + done.stderr
        shown = done
        assert command[0] == "doctor" or done.returncode == 0, done
    [store] = [each for each in json.loads(shown.stdout) if each["id"] == "store"]
    assert store["state"] == "ok"


async def test_the_password_is_sent_to_each_host(pair: Pair) -> None:
    role = f"secured_{pair.primary.port}"
    (path,) = pair.primary.admin("SHOW hba_file")[0]
    lines = f"('host all {role} all scram-sha-256'), ('host all all all trust')"
    trust = "('host all all all trust'), ('host replication all all trust')"
    pair.primary.admin(
        f"CREATE ROLE {role} LOGIN PASSWORD 'p@ss,word/1' IN ROLE chimes",
        f"COPY (VALUES {lines}) TO '{path}'",
        "SELECT pg_reload_conf()",
    )
    try:
        standby, primary = (f"{HOST}:{each.port}" for each in (pair.standby, pair.primary))
        good = pair.url(standby, primary, user=f"{role}:p%40ss%2Cword%2F1")
        found = await inspect_server_store(store_location(Settings(store=good)))
        assert not found.read_only
        wrong = pair.url(standby, primary, user=f"{role}:other")
        with pytest.raises(StoreUnavailable, match="password authentication failed") as caught:
            await inspect_server_store(store_location(Settings(store=wrong)))
        assert "other" not in str(caught.value)
    finally:
        pair.primary.admin(f"COPY (VALUES {trust}) TO '{path}'", "SELECT pg_reload_conf()")


async def test_an_error_names_the_reason_of_each_host(pair: Pair) -> None:
    port = free_port()
    standby = f"{HOST}:{pair.standby.port}"
    store = open_postgres(pair.url(standby, f"{HOST}:{port}"))
    with pytest.raises(StoreUnavailable, match="no server of the list accepts writes") as caught:
        await store.open()
    assert f"{standby}: it is a standby or read-only" in str(caught.value)
    assert f"{HOST}:{port}: " in str(caught.value)
    only = open_postgres(pair.url(standby, options="?target_session_attrs=read-write"))
    with pytest.raises(StoreUnavailable, match="target attribute"):
        await only.open()


async def test_a_host_without_an_answer_does_not_delay_the_others(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server((HOST, 0)) as silent:
        at = f"{HOST}:{silent.getsockname()[1]}"
        store = open_postgres(pair.url(at, f"{HOST}:{pair.primary.port}"))
        begun = time.monotonic()
        await store.open()
        assert await port_of(store) == pair.primary.port
        assert time.monotonic() - begun < CONNECT_SECONDS
        await store.close()
        monkeypatch.setattr(postgres_server, "CONNECT_SECONDS", 0.5)
        alone = open_postgres(pair.url(at, f"{HOST}:{pair.standby.port}"))
        with pytest.raises(StoreUnavailable, match=rf"{at}: no answer within 0\.5 s"):
            await alone.open()


@each_row(
    ("url", "message"),
    [
        ("postgresql://a,b/d?target_session_attrs=any", "target_session_attrs=any"),
        ("postgresql://a,b/d?target_session_attrs=read_write", "write target_session_attrs=read-w"),
        ("postgresql://a/d?target_session_attrs=standby", "target_session_attrs=standby"),
        ("postgresql://a:x,b/d", "not a number"),
    ],
)
def test_options_that_select_a_standby_are_refused(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_postgres(url)


# --- fail-over ----------------------------------------------------------------------------------
async def test_a_demoted_server_is_left_without_an_error(own_pair: Pair, store: SqlStore) -> None:
    other = open_postgres(own_pair.url())
    await other.open()
    await until_listening(store, other)
    await fail_over(own_pair, store)
    # Several idle connections to the former primary, which stay open.
    await asyncio.gather(*(store.counts() for _ in range(8)))
    own_pair.primary.admin(*READ_ONLY)
    await until(lambda: own_pair.primary.admin("SHOW transaction_read_only") == [("on",)])
    added = await store.add_schedule(a_schedule())
    assert await store.get_schedule(added.id) == added
    assert await port_of(store) == own_pair.standby.port
    # The other store learns it from its first write, and its wake-ups come from the new server.
    await other.add_schedule(a_schedule())
    assert await port_of(other) == own_pair.standby.port
    listening = (
        "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        " AND (query LIKE 'LISTEN%' OR query LIKE '%pg_notify%')"
    )
    await until(lambda: own_pair.standby.admin(listening) == [(2,)])
    waiting = asyncio.ensure_future(other.wait_for_work(other.changes(), None))
    await store.add_runs([a_run()])
    await asyncio.wait_for(waiting, 60)
    await other.close()


async def test_calls_to_a_paused_primary_are_retried_on_the_new_one(
    own_pair: Pair, store: SqlStore
) -> None:
    await fail_over(own_pair, store)
    own_pair.primary.pause()
    try:
        begun = time.monotonic()
        waiting = asyncio.ensure_future(store.add_schedule(a_schedule()))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        # A connection of another loop, such as the heartbeat's, finds the new primary.
        thread = threading.Thread(target=lambda: asyncio.run(store.now()))
        thread.start()
        await asyncio.to_thread(thread.join)
        await waiting
        assert time.monotonic() - begun < UNIT_SECONDS
        assert await port_of(store) == own_pair.standby.port
    finally:
        own_pair.primary.resume()


async def test_a_killed_primary_is_replaced(own_pair: Pair, store: SqlStore) -> None:
    await fail_over(own_pair, store)
    await kill(own_pair.primary)
    await store.add_schedule(a_schedule())
    assert (await store.counts()).schedules == 2
    with pytest.raises(OSError, match=r"."):
        await asyncpg.connect(host=HOST, port=own_pair.primary.port, user="chimes")


async def test_a_former_primary_is_not_used_again(own_pair: Pair, store: SqlStore) -> None:
    await fail_over(own_pair, store)
    await kill(own_pair.primary)
    await store.add_schedule(a_schedule())
    # It accepts writes, as a primary does that was cut off and does not know of the fail-over.
    await asyncio.to_thread(own_pair.primary.restart)
    own_pair.standby.shut_down()
    with pytest.raises(StoreUnavailable, match="it has timeline 1, but timeline 2 was in use"):
        await store.add_schedule(a_schedule())
    await asyncio.to_thread(own_pair.standby.restart)
    await store.add_schedule(a_schedule())
    assert await port_of(store) == own_pair.standby.port
