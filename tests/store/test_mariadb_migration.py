"""Set-up and migration of a MariaDB database, where changes of the schema cannot be rolled back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Connection

from chimes.errors import ConfigError, SchemaMismatch, StoreUnavailable
from chimes.failpoints import Injected
from chimes.store.sql import SqlStore, open_mariadb, open_postgres
from chimes.store.sql.database.mariadb import GALERA, MariadbServer, check_version
from chimes.store.sql.migrations import (
    CHANGES,
    HEAD,
    REVISIONS,
    SERVER_VERSIONS,
    baseline,
    mariadb_view,
)
from chimes.store.sql.tables import metadata
from tests.builders import a_schedule
from tests.servers import MARIADB, shared, start_mariadb
from tests.store.mariadb_rig import database_of, name_of, opened, sql

ROOT = Path(__file__).parents[2]
NEXT = str(int(HEAD) + 1)


async def schema(url: str) -> dict[str, list[tuple[object, ...]]]:
    """Returns all tables, views and triggers with their definitions."""
    where = f"= '{name_of(url)}' ORDER BY 1, 2"
    return {
        "tables": await sql(
            url,
            "SELECT table_name, table_type, table_collation FROM information_schema.tables"
            f" WHERE table_schema {where}",
        ),
        "columns": await sql(
            url,
            "SELECT table_name, ordinal_position, column_name, column_type, is_nullable"
            f" FROM information_schema.columns WHERE table_schema {where}",
        ),
        "indexes": await sql(
            url,
            "SELECT table_name, index_name, seq_in_index, column_name, collation"
            f" FROM information_schema.statistics WHERE table_schema {where}, 3",
        ),
        "triggers": await sql(
            url,
            "SELECT trigger_name, action_timing, event_manipulation"
            f" FROM information_schema.triggers WHERE trigger_schema {where}",
        ),
        "facts": await sql(url, "SELECT name, value FROM store_facts ORDER BY name"),
        "head": await sql(url, "SELECT id, number, hash FROM audit_head"),
        "wakeups": await sql(url, "SELECT COUNT(*), 0 FROM wakeups"),
        "version": await sql(url, f"SELECT version_num FROM {SERVER_VERSIONS}"),
    }


# The columns of the tables, and those of the view t_action_schedule.
async def test_the_schema_has_the_columns_of_the_tables(mariadb_url: str) -> None:
    async with opened(mariadb_url):
        found: dict[str, list[tuple[str, bool]]] = {}
        for table, _, column, _, nullable in (await schema(mariadb_url))["columns"]:
            found.setdefault(str(table), []).append((str(column), nullable == "YES"))
    for table in metadata.tables.values():
        wanted = [(column.name, bool(column.nullable)) for column in table.c]
        assert found[table.name][: len(wanted)] == wanted
    extra = set(found) - set(metadata.tables)
    views = {"t_action_schedule", "cb_schedule_metrics", "cb_schedule_templates"}
    assert extra == {SERVER_VERSIONS, "wakeups", *views}


async def test_text_is_compared_by_code_point_everywhere(mariadb_url: str) -> None:
    async with opened(mariadb_url):
        rows = await sql(
            mariadb_url,
            "SELECT table_name, column_name, collation_name FROM information_schema.columns"
            f" WHERE table_schema = '{name_of(mariadb_url)}' AND collation_name IS NOT NULL"
            f" AND table_name <> '{SERVER_VERSIONS}'",
        )
    assert {row[2] for row in rows} == {"utf8mb4_nopad_bin"}


async def test_interrupted_set_up_can_be_repeated_from_any_step(
    mariadb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = passed = 0

    def stop_at_turn(_name: str) -> None:
        nonlocal passed
        passed += 1
        if passed == turn:
            raise Injected(f"step {turn}")

    with monkeypatch.context() as patched:
        for module in (baseline, mariadb_view):
            patched.setattr(module, "hit", stop_at_turn)
        while passed == turn:
            turn, passed = turn + 1, 0
            with contextlib.suppress(Injected):
                store = open_mariadb(mariadb_url)
                await store.open()
                await store.close()
    assert turn > 60
    async with opened(mariadb_url) as store:
        assert (await store.add_schedule(a_schedule())).version == 1
        after = await schema(mariadb_url)
    assert after == await reference_schema()


async def reference_schema() -> dict[str, list[tuple[object, ...]]]:
    """Returns the schema after an undisturbed set-up."""
    url = shared(MARIADB).new_database()
    try:
        async with opened(url):
            return await schema(url)
    finally:
        shared(MARIADB).drop_database(url)


# A killed process leaves the same behind.
async def test_killed_migrator_leaves_no_lock(mariadb_url: str) -> None:
    code = (
        "import asyncio, sys; from chimes.store.sql import open_mariadb\n"
        "asyncio.run(open_mariadb(sys.argv[1]).open())"
    )
    environment = os.environ | {"CHIMES_TEST": "1", "CHIMES_FAILPOINTS": "migrate.step@9:kill"}
    ended = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", code, mariadb_url],
        cwd=ROOT,
        env=environment,
        timeout=60,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL
    assert 1 < len(await sql(mariadb_url, "SHOW TABLES")) < 9
    async with asyncio.timeout(30):
        async with opened(mariadb_url):
            assert await schema(mariadb_url) == await reference_schema()


# All nodes of a fleet start concurrently.
async def test_nodes_that_start_concurrently_set_up_once(mariadb_url: str) -> None:
    stores = [open_mariadb(mariadb_url) for _ in range(6)]
    try:
        await asyncio.gather(*(store.open() for store in stores))
        assert await schema(mariadb_url) == await reference_schema()
    finally:
        for store in stores:
            await store.close()


# Changes of later versions wait for the command, and are made while nodes run.
async def test_an_older_schema_is_rejected_until_migrated(
    mariadb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(connection: Connection) -> None:
        connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS later (id INTEGER)")

    async with opened(mariadb_url) as running:
        for module in ("migrations", "database.server"):
            monkeypatch.setattr(f"chimes.store.sql.{module}.REVISIONS", (*REVISIONS, NEXT))
            monkeypatch.setattr(f"chimes.store.sql.{module}.HEAD", NEXT)
            monkeypatch.setattr(f"chimes.store.sql.{module}.OLDEST", NEXT)
        monkeypatch.setattr("chimes.store.sql.migrations.CHANGES", (*CHANGES, (NEXT, step)))
        with pytest.raises(SchemaMismatch, match="chimes store migrate"):
            await open_mariadb(mariadb_url).open()
        assert await open_mariadb(mariadb_url).migrate() == (HEAD, NEXT)
        assert await open_mariadb(mariadb_url).migrate() == (NEXT, NEXT)
        async with opened(mariadb_url) as new:
            schedule = await running.add_schedule(a_schedule())
            assert await new.get_schedule(schedule.id) == schedule


async def test_migrating_a_current_schema_changes_nothing(mariadb_url: str) -> None:
    store = open_mariadb(mariadb_url)
    assert await database_of(store).migrate() == (None, HEAD)
    before = await schema(mariadb_url)
    assert await database_of(store).migrate() == (HEAD, HEAD)
    assert await schema(mariadb_url) == before


async def test_tables_of_another_application_are_rejected(mariadb_url: str) -> None:
    await sql(mariadb_url, "CREATE TABLE runs (distance DOUBLE)")
    with pytest.raises(SchemaMismatch, match="not of Chimes"):
        await open_mariadb(mariadb_url).open()
    assert await sql(mariadb_url, "SHOW TABLES") == [("runs",)]


async def test_unrelated_tables_are_ignored(mariadb_url: str) -> None:
    await sql(mariadb_url, "CREATE TABLE marathons (distance DOUBLE)")
    async with opened(mariadb_url) as store:
        assert (await store.counts()).schedules == 0


async def test_newer_schema_is_rejected_or_causes_a_warning(
    mariadb_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(mariadb_url):
        pass
    await sql(mariadb_url, f"UPDATE {SERVER_VERSIONS} SET version_num = '999'")
    async with opened(mariadb_url):
        assert "update this node soon" in caplog.text
    await sql(mariadb_url, "UPDATE store_facts SET value = 1999 WHERE name = 'min_revision'")
    with pytest.raises(SchemaMismatch, match="update Chimes on this node"):
        await open_mariadb(mariadb_url).open()


@pytest.mark.parametrize(
    "version",
    ["10.6.0-MariaDB", "5.5.5-10.6.12-MariaDB-log", "11.4.2-MariaDB-ubu", "12.0.1-mariadb"],
)
def test_supported_server_versions(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("10.5.27-MariaDB-1:10.5", "10.6 or newer"),
        ("5.5.5-10.4.8-MariaDB", "10.6 or newer"),
        ("8.0.36", "not MariaDB"),
        ("8.4.0-commercial", "not MariaDB"),
    ],
)
def test_unsupported_server_versions_are_rejected(version: str, why: str) -> None:
    with pytest.raises(SchemaMismatch, match=why):
        check_version(version)


async def test_too_old_server_is_rejected_at_open(
    mariadb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chimes.store.sql.database.mariadb.OLDEST_SERVER", (99, 0))
    with pytest.raises(SchemaMismatch, match=r"needs 10\.6"):
        await open_mariadb(mariadb_url).open()
    assert await sql(mariadb_url, "SHOW TABLES") == []


async def test_missing_privileges_are_reported(mariadb_url: str) -> None:
    """A user who may read but not create tables."""
    name = name_of(mariadb_url)
    user = f"onlooker_{name}"
    server = shared(MARIADB)
    server.admin(f"CREATE USER {user}@'%'", f"GRANT SELECT ON {name}.* TO {user}@'%'")
    try:
        with pytest.raises(StoreUnavailable, match=r"cannot open: .*CREATE command denied"):
            await open_mariadb(mariadb_url.replace("chimes@", f"{user}@")).open()
    finally:
        server.admin(f"DROP USER {user}@'%'")


async def test_binary_log_needs_trusted_function_creators() -> None:
    with start_mariadb(settings={"log_bin": "binlog", "server_id": "7"}) as server:
        url = server.new_database()
        with pytest.raises(SchemaMismatch, match="log_bin_trust_function_creators"):
            await open_mariadb(url).open()
        server.admin("SET GLOBAL log_bin_trust_function_creators = 1")
        async with opened(url):
            pass
        server.admin("SET GLOBAL log_bin_trust_function_creators = 0")
        async with opened(url) as store:
            schedule = await store.add_schedule(a_schedule())
            assert await store.get_schedule(schedule.id) == schedule


class FakeConnection:
    """A driver connection to a server that does not exist."""

    def __init__(self, **answers: tuple[object, ...]) -> None:
        self._answers = answers
        self._last = ""

    def cursor(self) -> FakeConnection:
        return self

    def execute(self, statement: str) -> None:
        self._last = "version" if "VERSION" in statement else "galera"

    def fetchone(self) -> tuple[object, ...]:
        return self._answers[self._last]

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("galera", "warned"),
    [((1, "/usr/lib/galera/libgalera_smm.so"), True), ((1, "none"), False), ((0, ""), False)],
)
def test_galera_causes_a_warning(
    galera: tuple[object, ...], warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server = MariadbServer("mariadb://host/database")
    server._check_server(FakeConnection(version=("10.11.6-MariaDB",), galera=galera), None)
    assert (GALERA in caplog.text) is warned


def test_mysql_is_rejected_before_other_checks() -> None:
    with pytest.raises(SchemaMismatch, match="not MariaDB"):
        MariadbServer("mysql://host/db")._check_server(FakeConnection(version=("8.4.3",)), None)


@pytest.mark.parametrize(
    "url",
    ["mariadb://host", "mariadb://host/", "mariadb:///", "oracle://h/d", "mariadb://h:port/d"],
)
def test_unusable_urls_are_rejected(url: str) -> None:
    with pytest.raises(ConfigError):
        open_mariadb(url)


@pytest.mark.parametrize("scheme", ["mariadb", "mysql", "mariadb+asyncmy", "mysql+asyncmy"])
def test_password_is_never_shown(scheme: str) -> None:
    server = MariadbServer(f"{scheme}://me:s3cret%40@db.example:3307/chimes")
    assert server.location == "mariadb://me@db.example:3307/chimes"
    assert server._url.password == "s3cret@"


@pytest.mark.parametrize(
    ("opener", "url", "extra"),
    [
        (open_mariadb, "mariadb://host/db", r"chimes\[mysql\]"),
        (open_postgres, "postgresql://host/db", r"chimes\[postgres\]"),
    ],
)
def test_a_missing_driver_is_reported(
    opener: Callable[[str], SqlStore], url: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chimes.store.sql.find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=extra):
        opener(url)
