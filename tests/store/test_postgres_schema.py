"""Schema on a shared server: set up by the first node, migrated manually, safe while nodes run."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine

from chimes.errors import SchemaMismatch, StoreUnavailable
from chimes.store.epoch import Epoch, describe_rollback
from chimes.store.sql import SqlStore, migrations, open_postgres
from chimes.store.sql.migrations import HEAD, SERVER_VERSIONS, baseline
from chimes.store.sql.tables import metadata
from tests.builders import a_node, a_schedule, an_entry
from tests.servers import POSTGRES, shared
from tests.store import old_databases

REPOSITORY = Path(__file__).parents[2]

NEXT = str(int(HEAD) + 1)


async def opened(url: str) -> SqlStore:
    store = open_postgres(url)
    await store.open()
    return store


async def apply(url: str, *changes: object) -> None:
    """Calls or statements in one transaction of a plain connection."""
    engine = create_async_engine(url.replace("postgresql", "postgresql+asyncpg"))
    async with engine.begin() as connection:
        for change in changes:
            if callable(change):
                await connection.run_sync(change)
            else:
                await connection.exec_driver_sql(str(change))
    await engine.dispose()


async def schema(url: str) -> dict[str, object]:
    """Tables with their columns, and indexes."""
    connection = await asyncpg.connect(url)
    columns = await connection.fetch(
        "SELECT table_name, column_name, data_type, is_nullable, collation_name"
        " FROM information_schema.columns WHERE table_schema = 'public'"
        " AND table_name NOT LIKE 'cb_%' AND table_name <> $1",
        SERVER_VERSIONS,
    )
    indexes = await connection.fetch(
        "SELECT indexname, indexdef FROM pg_indexes"
        " WHERE schemaname = 'public' AND tablename <> $1",
        SERVER_VERSIONS,
    )
    await connection.close()
    found: dict[str, object] = {f"{row[0]}.{row[1]}": tuple(row)[2:] for row in columns}
    return found | {row[0]: row[1] for row in indexes}


async def test_the_created_schema_is_that_of_the_tables(postgres_url: str) -> None:
    server = shared(POSTGRES)
    made = server.new_database()
    try:
        await (await opened(postgres_url)).close()
        await apply(made, metadata.create_all)
        assert await schema(postgres_url) == await schema(made)
    finally:
        server.drop_database(made)


async def test_nodes_that_start_concurrently_set_up_once(postgres_url: str) -> None:
    stores = await asyncio.gather(*(opened(postgres_url) for _ in range(5)))
    await stores[0].add_schedule(a_schedule())
    assert [(await store.counts()).schedules for store in stores] == [1] * 5
    for store in stores:
        await store.close()


async def test_tables_of_another_application_are_rejected(postgres_url: str) -> None:
    await apply(postgres_url, "CREATE TABLE runs (id int)", "CREATE TABLE alembic_version (v int)")
    with pytest.raises(SchemaMismatch, match="tables runs that are not of Chimes"):
        await opened(postgres_url)


async def test_the_command_sets_up_a_database_once(postgres_url: str) -> None:
    assert await open_postgres(postgres_url).migrate() == (None, HEAD)
    created = await schema(postgres_url)
    assert await open_postgres(postgres_url).migrate() == (HEAD, HEAD)
    assert await schema(postgres_url) == created
    store = await opened(postgres_url)
    await store.append_audit(an_entry())
    await store.close()


# Changes of later versions wait for the command, and are made while nodes run.
async def test_an_older_schema_is_rejected_until_migrated(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await opened(postgres_url)
    as_next_version(monkeypatch)
    with pytest.raises(SchemaMismatch, match="chimes store migrate"):
        await opened(postgres_url)
    assert await open_postgres(postgres_url).migrate() == (HEAD, NEXT)
    assert await open_postgres(postgres_url).migrate() == (NEXT, NEXT)
    new = await opened(postgres_url)
    schedule = await running.add_schedule(a_schedule())
    assert await new.get_schedule(schedule.id) == schedule
    await running.close()
    await new.close()


def as_next_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes this code that of a later version, whose schema has one table more."""

    def step(connection: Connection) -> None:
        connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS later (id INTEGER)")

    for module in ("migrations", "database.server"):
        monkeypatch.setattr(f"chimes.store.sql.{module}.REVISIONS", (*migrations.REVISIONS, NEXT))
        monkeypatch.setattr(f"chimes.store.sql.{module}.HEAD", NEXT)
        monkeypatch.setattr(f"chimes.store.sql.{module}.OLDEST", NEXT)
    monkeypatch.setattr(migrations, "CHANGES", (*migrations.CHANGES, (NEXT, step)))


# A newer schema that is marked as compatible is used; another one is refused.
async def test_a_newer_schema_names_its_oldest_compatible_release(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    await (await opened(postgres_url)).close()
    newer = f"UPDATE {SERVER_VERSIONS} SET version_num = '{int(HEAD) + 1}'"
    await apply(postgres_url, newer)
    store = await opened(postgres_url)
    await store.add_schedule(a_schedule())
    await store.close()
    assert "newer than this version" in caplog.text
    oldest = baseline.REVISION_OFFSET + int(NEXT)
    stricter = f"UPDATE store_facts SET value = {oldest} WHERE name = 'min_revision'"
    await apply(postgres_url, stricter)
    with pytest.raises(SchemaMismatch, match="update Chimes"):
        await opened(postgres_url)
    with pytest.raises(SchemaMismatch, match="migrate with the newer one"):
        await open_postgres(postgres_url).migrate()


SET_UP = """
import asyncio, sys
from chimes.store.sql import open_postgres
asyncio.run(getattr(open_postgres(sys.argv[1]), sys.argv[2])())
"""


# The set-up is one transaction, also by the command: a killed one leaves nothing.
@pytest.mark.parametrize(("verb", "step"), [("open", 1), ("open", 50), ("migrate", 20)])
async def test_a_killed_set_up_can_be_repeated(postgres_url: str, verb: str, step: int) -> None:
    faults = f"migrate.step@{step}:kill"
    killed = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", SET_UP, postgres_url, verb],
        env={**os.environ, "CHIMES_TEST": "1", "CHIMES_FAILPOINTS": faults},
        cwd=REPOSITORY,
        timeout=60,
        check=False,
    )
    assert killed.returncode == -9
    await until_gone(postgres_url)
    assert await schema(postgres_url) == {}
    await (await opened(postgres_url)).close()


async def until_gone(url: str) -> None:
    """The lock of a killed migrator ends with its session."""
    connection = await asyncpg.connect(url)
    count = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    async with asyncio.timeout(60):
        while await connection.fetchval(count):  # noqa: ASYNC110
            await asyncio.sleep(0.02)  # no signal announces it
    await connection.close()


# Exit code 9 for an incompatible schema, and the command that helps.
@pytest.mark.long
async def test_the_command_line_names_the_migration_and_runs_it(postgres_url: str) -> None:
    await old_databases.load_postgres(postgres_url)
    await apply(postgres_url, "UPDATE nodes SET lease_until = 0")

    def chimes(verb: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "chimes", "store", verb, "--store", postgres_url]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=REPOSITORY)

    refused = await asyncio.to_thread(chimes, "status")
    assert (refused.returncode, "chimes store migrate" in refused.stderr) == (9, True)
    done = await asyncio.to_thread(chimes, "migrate")
    assert (done.returncode, f"from 0009 to {HEAD}" in done.stderr + done.stdout) == (0, True)


async def test_missing_privileges_are_reported(postgres_url: str) -> None:
    """A user who may connect but not create tables."""
    name = postgres_url.rsplit("/", 1)[1]
    role = f"onlooker_{name}"
    server = shared(POSTGRES)
    server.admin(f"CREATE ROLE {role} LOGIN")
    try:
        server.admin(f"GRANT CONNECT ON DATABASE {name} TO {role}")
        with pytest.raises(StoreUnavailable, match=r"cannot open: .*permission denied"):
            await opened(postgres_url.replace("chimes@", f"{role}@"))
    finally:
        server.admin(f"REVOKE CONNECT ON DATABASE {name} FROM {role}", f"DROP ROLE {role}")


# Taking a token does not wait for the disk, and no bucket has to survive a crash.
async def test_token_buckets_are_unlogged(postgres_url: str) -> None:
    await (await opened(postgres_url)).close()
    connection = await asyncpg.connect(postgres_url)
    rows = await connection.fetch(
        "SELECT relname FROM pg_class WHERE relpersistence <> 'p' AND relkind = 'r'"
        " AND relnamespace = 'public'::regnamespace"
    )
    await connection.close()
    assert [row[0] for row in rows] == ["buckets"]


# --- epochs -------------------------------------------------------------------------------------
async def test_a_restored_older_store_is_detected(postgres_url: str) -> None:
    store = await opened(postgres_url)
    await store.join(a_node(), (await store.now()) - (await store.now()))
    before = await store.epoch()
    after = await store.epoch()
    assert (before.counter + 1, before.history) == (after.counter, after.history)
    assert before.history.count("/") == 1
    assert describe_rollback(before, after) == ""
    # As after a restore of an earlier dump.
    await apply(postgres_url, "UPDATE store_facts SET value = value - 1 WHERE name = 'epoch'")
    restored = await store.epoch()
    assert f"from epoch {after.counter} to {after.counter}" in describe_rollback(after, restored)
    await store.close()


def test_new_timeline_alone_is_no_regression() -> None:
    assert describe_rollback(Epoch(5, "1/00000001"), Epoch(6, "1/00000002")) == ""
    assert "1/00000002" in describe_rollback(Epoch(5, "1/00000001"), Epoch(5, "1/00000002"))


def test_use_of_the_old_server_after_a_fail_over_is_detected() -> None:
    # although the counter rose meanwhile
    began = datetime(2030, 1, 1, tzinfo=UTC)
    new = Epoch(9, "1/00000002", at=began + timedelta(minutes=1), begun=began)
    for seconds, why in ((-5, False), (1, False), (5, True)):
        at = began + timedelta(seconds=seconds)
        old = Epoch(5, "1/00000001", at=at, begun=began - timedelta(days=1))
        assert bool(describe_rollback(old, new)) is why
    assert describe_rollback(new, Epoch(10, "1/00000002", at=new.at, begun=began)) == ""
