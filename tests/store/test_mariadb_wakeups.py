"""Wake-ups between nodes on MariaDB, and their cost while idle."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from chimes.store.sql import SqlStore
from chimes.store.sql.database import mariadb as mariadb_wakeups
from chimes.store.sql.database.mariadb import POLL_SECONDS
from tests.builders import a_schedule
from tests.engine.rig import eventually
from tests.servers import MARIADB, shared
from tests.store.mariadb_rig import name_of, opened, sql
from tests.store.server_rig import until_listening


@pytest.fixture
async def pair(mariadb_url: str) -> AsyncIterator[tuple[SqlStore, SqlStore]]:
    async with opened(mariadb_url) as one, opened(mariadb_url) as other:
        await until_listening(one, other)
        yield one, other


async def counter(url: str) -> int:
    ((count,),) = await sql(url, "SELECT `count` FROM wakeups")
    return int(count)


async def test_new_work_wakes_the_other_node_soon(pair: tuple[SqlStore, SqlStore]) -> None:
    one, other = pair
    waiting = asyncio.create_task(other.wait_for_work(other.changes(), None))
    await one.add_schedule(a_schedule())
    await asyncio.wait_for(waiting, 60)


async def test_a_node_does_not_wake_itself(pair: tuple[SqlStore, SqlStore]) -> None:
    one, other = pair
    since = other.changes()
    await one.add_schedule(a_schedule())
    woken = one.changes()
    await asyncio.wait_for(other.wait_for_work(since, None), 60)
    await asyncio.sleep(3 * POLL_SECONDS)  # until it has read its own increment, too
    assert one.changes() == woken


# At most one more commit per poll, however much is written.
async def test_a_busy_node_increments_the_counter_rarely(
    pair: tuple[SqlStore, SqlStore], mariadb_url: str
) -> None:
    one, _ = pair
    before = await counter(mariadb_url)
    begun = time.monotonic()
    for _ in range(60):
        await one.add_schedule(a_schedule())
    after = await eventually(lambda: counter(mariadb_url), lambda count: count > before)
    looks = (time.monotonic() - begun) / POLL_SECONDS
    assert after - before <= looks + 1


async def test_an_idle_node_sends_one_small_query_per_poll(
    pair: tuple[SqlStore, SqlStore], mariadb_url: str
) -> None:
    """Two nodes; the server counts all queries, so other connections may add to them."""
    server = shared(MARIADB)
    listening = (
        "SELECT id FROM information_schema.processlist"
        f" WHERE db = '{name_of(mariadb_url)}' AND command = 'Sleep'"
    )
    assert len(server.admin(listening)) >= 2
    statement = mariadb_wakeups._READ_COUNTERS
    read = await sql(mariadb_url, f"EXPLAIN {statement}")
    assert all(row[3] in (None, "const", "system") for row in read), read


# A node whose connection was cut receives wake-ups again.
async def test_a_lost_connection_is_reopened(
    pair: tuple[SqlStore, SqlStore], mariadb_url: str
) -> None:
    one, other = pair
    server = shared(MARIADB)
    using = f"SELECT id FROM information_schema.processlist WHERE db = '{name_of(mariadb_url)}'"
    since = {store: store.changes() for store in pair}
    for (connection,) in server.admin(using):
        server.admin(f"KILL SOFT CONNECTION {connection}")
    # A node that listens again wakes once, because it may have missed something.
    for store in pair:
        await asyncio.wait_for(store.wait_for_work(since[store], None), 60)
    seen = other.changes()
    await one.add_schedule(a_schedule())
    await asyncio.wait_for(other.wait_for_work(seen, None), 60)


async def test_the_epoch_rises_and_names_the_server(pair: tuple[SqlStore, SqlStore]) -> None:
    one, other = pair
    first, second = await one.epoch(), await other.epoch()
    assert second.counter == first.counter + 1
    assert first.history == second.history != ""
