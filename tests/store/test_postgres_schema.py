"""Schema on a shared server: set up by the first node, migrated manually, safe while nodes run."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine

from chimes.errors import SchemaMismatch
from chimes.model.listing import RunQuery
from chimes.model.planning import plan
from chimes.model.policy import Policy
from chimes.model.run import RunStatus
from chimes.store.epoch import Epoch, describe_rollback
from chimes.store.sql import SqlStore, migrations, open_postgres
from chimes.store.sql.migrations import HEAD, SERVER_VERSIONS
from chimes.store.sql.tables import metadata
from chimes.triggers import Every
from tests.builders import INBOX, SYNC, a_node, a_run, a_schedule, a_sync_run, an_entry
from tests.servers import POSTGRES, shared
from tests.store_contract.scenes import all_deliveries

REPOSITORY = Path(__file__).parents[2]


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


def first_release(connection: Connection) -> None:
    migrations.upgrade(connection, "0001", versions=SERVER_VERSIONS)


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


async def test_the_migrations_end_where_the_tables_are(postgres_url: str) -> None:
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


async def test_older_schema_is_rejected_until_migrated(postgres_url: str) -> None:
    await apply(postgres_url, first_release)
    with pytest.raises(SchemaMismatch, match="chimes store migrate"):
        await opened(postgres_url)
    assert await open_postgres(postgres_url).migrate() == ("0001", HEAD)
    assert await open_postgres(postgres_url).migrate() == (HEAD, HEAD)
    store = await opened(postgres_url)
    await store.append_audit(an_entry())
    await store.close()


async def test_migrated_schema_equals_a_new_one(postgres_url: str) -> None:
    server = shared(POSTGRES)
    old = server.new_database()
    try:
        await apply(old, first_release)
        await open_postgres(old).migrate()
        await (await opened(postgres_url)).close()
        assert await schema(old) == await schema(postgres_url)
    finally:
        server.drop_database(old)


# The code of an earlier release continues during and after the migration; the newest code waits for
# it.
@pytest.mark.parametrize("release", [pytest.param("0002", marks=pytest.mark.long), "0003"])
async def test_nodes_of_an_earlier_schema_continue_on_the_newest(
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    release: str,
) -> None:
    def made_by_release(connection: Connection) -> None:
        migrations.upgrade(connection, release, versions=SERVER_VERSIONS)

    await apply(postgres_url, made_by_release)
    with pytest.raises(SchemaMismatch, match="chimes store migrate"):
        await opened(postgres_url)
    with of_release(release, monkeypatch):
        old = await opened(postgres_url)
    now = await old.now()
    schedule = a_schedule(trigger=Every("1h", anchor=now), next_slot=now, next_run_at=now)
    await old.add_schedule(schedule)
    assert await open_postgres(postgres_url).migrate() == (release, HEAD)
    assert len((await old.fire_due(plan, limit=10)).others) == 1
    with of_release(release, monkeypatch):
        another = await opened(postgres_url)
    assert "newer than this version" in caplog.text
    new = await opened(postgres_url)
    assert (await new.add_unless_active(a_sync_run()))[1]
    await new.set_checkpoint(SYNC.key, "1")
    assert len((await another.list_runs(RunQuery())).items) == 2
    assert await new.get_schedule(schedule.id) == await old.get_schedule(schedule.id)
    assert (await new.take_tokens("a", rate=1, burst=1)).granted == 1
    told = a_run(policy=Policy(delivery=(INBOX,)), status=RunStatus.FAILED, finished_at=now)
    await new.add_runs([told])
    assert [row.run_id for row in (await all_deliveries(new)).values()] == [told.id]
    for store in (old, another, new):
        await store.close()


@contextmanager
def of_release(release: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Checks the schema like the code of that release."""
    revisions = tuple(each for each in migrations.REVISIONS if each <= release)
    with monkeypatch.context() as patched:
        for name, value in (("REVISIONS", revisions), ("HEAD", release), ("OLDEST", release)):
            patched.setattr(f"chimes.store.sql.database.server.{name}", value)
        yield


# A newer schema that is marked as compatible is used; another one is refused.
async def test_a_newer_schema_names_its_oldest_compatible_release(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    await (await opened(postgres_url)).close()
    newer = f"UPDATE {SERVER_VERSIONS} SET version_num = '{int(HEAD) + 1:04d}'"
    await apply(postgres_url, newer)
    store = await opened(postgres_url)
    await store.add_schedule(a_schedule())
    await store.close()
    assert "newer than this version" in caplog.text
    stricter = f"UPDATE store_facts SET value = {int(HEAD) + 1} WHERE name = 'min_revision'"
    await apply(postgres_url, stricter)
    with pytest.raises(SchemaMismatch, match="update Chimes"):
        await opened(postgres_url)
    with pytest.raises(SchemaMismatch, match="migrate with the newer one"):
        await open_postgres(postgres_url).migrate()


# Nodes continue while the same migration runs again on a store in use.
@pytest.mark.long
async def test_nodes_fire_while_a_migration_runs(postgres_url: str) -> None:
    store = await opened(postgres_url)
    now = await store.now()
    made = 0
    stop = asyncio.Event()

    async def work() -> int:
        fired = 0
        while not stop.is_set():
            await store.add_schedule(
                a_schedule(trigger=Every("1h", anchor=now), next_slot=now, next_run_at=now)
            )
            fired += len((await store.fire_due(plan, limit=10)).others)
        return fired

    working = asyncio.ensure_future(work())
    # As after a migrator that was killed before it recorded its progress.
    await apply(postgres_url, f"UPDATE {SERVER_VERSIONS} SET version_num = '0001'")
    assert await open_postgres(postgres_url).migrate() == ("0001", HEAD)
    stop.set()
    made = await working
    assert made > 0
    assert len((await store.list_runs(RunQuery(limit=None))).items) == made
    await store.close()


MIGRATE = """
import asyncio, sys
from chimes.store.sql import open_postgres
asyncio.run(open_postgres(sys.argv[1]).migrate())
"""


# Killed at any step, and started again.
@pytest.mark.parametrize(
    ("survived", "found"),
    [
        *(pytest.param(each, "0001", marks=pytest.mark.long) for each in (0, 1, 12, 28)),
        (5, "0001"),
        *(pytest.param(each, "0003", marks=pytest.mark.long) for each in (36, 44)),
    ],
)
async def test_killed_migrator_can_be_restarted(
    postgres_url: str, survived: int, found: str
) -> None:
    await apply(postgres_url, first_release)
    program = (
        "from chimes.store.sql.migrations import steps\n"
        "import os, signal\n"
        "left = int(os.environ['STEPS'])\n"
        "def hit(name):\n"
        "    global left\n"
        "    left -= 1\n"
        "    if left < 0: os.kill(os.getpid(), signal.SIGKILL)\n"
        "steps.hit = hit\n"
    )
    killed = await asyncio.to_thread(
        subprocess.run,
        # Alembic's operations exist only during a migration, so the steps are imported late.
        [sys.executable, "-c", program + MIGRATE, postgres_url],
        env={**os.environ, "STEPS": str(survived)},
        cwd=REPOSITORY,
        timeout=60,
    )
    assert killed.returncode == -9
    await until_gone(postgres_url)
    assert await open_postgres(postgres_url).migrate() == (found, HEAD)
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
    await apply(postgres_url, first_release)

    def chimes(verb: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "chimes", "store", verb, "--store", postgres_url]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=REPOSITORY)

    refused = await asyncio.to_thread(chimes, "status")
    assert (refused.returncode, "chimes store migrate" in refused.stderr) == (9, True)
    done = await asyncio.to_thread(chimes, "migrate")
    assert (done.returncode, f"from 0001 to {HEAD}" in done.stderr + done.stdout) == (0, True)


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


async def test_invalid_index_is_rebuilt(postgres_url: str) -> None:
    await apply(postgres_url, first_release)
    await apply(postgres_url, "CREATE INDEX runs_created_at ON runs (created_at)")
    name = postgres_url.rsplit("/", 1)[1]
    # What an interrupted CREATE INDEX CONCURRENTLY leaves behind; only a superuser can fake it.
    port = shared(POSTGRES).port
    connection = await asyncpg.connect(
        host="127.0.0.1", port=port, user="postgres", database=name, ssl=False
    )
    await connection.execute(
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'runs_created_at'::regclass"
    )
    await open_postgres(postgres_url).migrate()
    valid = await connection.fetchval(
        "SELECT indisvalid FROM pg_index WHERE indexrelid = 'runs_created_at'::regclass"
    )
    await connection.close()
    assert valid is True


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
