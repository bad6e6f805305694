"""The schema of a SQLite file: created when it is opened, changed by later versions."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine

from chimes.errors import SchemaMismatch, StoreUnavailable
from chimes.failpoints import Injected
from chimes.store.sql import migrations, open_sqlite
from chimes.store.sql.migrations import baseline
from chimes.store.sql.tables import metadata
from tests.builders import a_schedule

Schema = dict[str, str]
NEXT = str(int(migrations.HEAD) + 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chimes.db"


def schema_of(connection: Connection) -> Schema:
    """Every table and index as SQLite stores it, without line breaks and quotes."""
    rows = connection.exec_driver_sql(
        "SELECT name, sql FROM sqlite_master"
        " WHERE sql IS NOT NULL AND type <> 'view' AND name <> 'alembic_version'"
    )
    return {name: re.sub(r'[\s"]+', " ", sql) for name, sql in rows}


def test_the_created_schema_is_that_of_the_tables(tmp_path: Path) -> None:
    found: list[Schema] = []
    for name in ("created", "expected"):
        engine = create_engine(f"sqlite:///{tmp_path / name}.db")
        with engine.begin() as connection:
            if name == "created":
                migrations.upgrade(connection)
                # Repeated, it changes nothing.
                migrations.upgrade(connection)
            else:
                metadata.create_all(connection)
            found.append(schema_of(connection))
        engine.dispose()
    assert found[0] == found[1]
    assert len(found[0]) > 40


def content(path: Path) -> bytes:
    return path.read_bytes()


def fill(path: Path, data: bytes) -> None:
    path.write_bytes(data)


async def test_an_empty_file_is_set_up(path: Path) -> None:
    fill(path, b"")
    store = open_sqlite(path)
    await store.open()
    status = await store.status()
    await store.close()
    assert (status.kind, status.location, status.schema) == ("sqlite", str(path), migrations.HEAD)


async def test_the_command_sets_up_a_file_once(path: Path) -> None:
    assert await open_sqlite(path).migrate() == (None, migrations.HEAD)
    assert await open_sqlite(path).migrate() == (migrations.HEAD, migrations.HEAD)


def query(path: Path, statement: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    found = connection.execute(statement).fetchall()
    connection.commit()
    connection.close()
    return found


def as_next_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes this code that of a later version, whose schema has one table more."""

    def step(connection: Connection) -> None:
        connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS later (id INTEGER)")

    revisions = (*migrations.REVISIONS, NEXT)
    for module in ("migrations", "database.sqlite"):
        monkeypatch.setattr(f"chimes.store.sql.{module}.REVISIONS", revisions)
        monkeypatch.setattr(f"chimes.store.sql.{module}.HEAD", NEXT)
    monkeypatch.setattr(migrations, "CHANGES", (*migrations.CHANGES, (NEXT, step)))


async def test_later_versions_change_a_file_when_they_open_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_sqlite(path)
    await store.open()
    schedule = await store.add_schedule(a_schedule())
    await store.close()
    as_next_version(monkeypatch)
    store = open_sqlite(path)
    await store.open()
    assert await store.get_schedule(schedule.id) == schedule
    await store.close()
    assert query(path, "SELECT version_num FROM alembic_version") == [(NEXT,)]
    assert query(path, "SELECT * FROM later") == []


@pytest.mark.parametrize("turn", [1, 2, 40, 60])
async def test_a_set_up_that_fails_leaves_the_file_empty(
    path: Path, monkeypatch: pytest.MonkeyPatch, turn: int
) -> None:
    passed = 0

    def fail_at_turn(_name: str) -> None:
        nonlocal passed
        passed += 1
        if passed == turn:
            raise Injected("no further")

    with monkeypatch.context() as patch:
        patch.setattr(baseline, "hit", fail_at_turn)
        with pytest.raises(Injected):
            await open_sqlite(path).open()
    assert query(path, "SELECT count(*) FROM sqlite_master") == [(0,)]
    store = open_sqlite(path)
    await store.open()
    await store.close()


def test_files_opened_concurrently_are_set_up_once(path: Path) -> None:
    """Threads with their own event loops, as processes that start together."""
    failed: list[BaseException] = []

    async def use() -> None:
        store = open_sqlite(path)
        await store.open()
        await store.add_schedule(a_schedule())
        await store.close()

    def run() -> None:
        try:
            asyncio.run(use())
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert query(path, "SELECT count(*) FROM schedules") == [(6,)]
    assert query(path, "SELECT version_num FROM alembic_version") == [(migrations.HEAD,)]


async def test_newer_schema_is_rejected_unchanged(path: Path) -> None:
    store = open_sqlite(path)
    await store.open()
    await store.close()
    query(path, "UPDATE alembic_version SET version_num = '9999'")
    before = content(path)
    for call in (open_sqlite(path).open, open_sqlite(path).migrate):
        with pytest.raises(SchemaMismatch, match="9999"):
            await call()
    assert content(path) == before


async def test_database_of_another_application_is_rejected(path: Path) -> None:
    query(path, "CREATE TABLE songs (title TEXT)")
    for call in (open_sqlite(path).open, open_sqlite(path).migrate):
        with pytest.raises(SchemaMismatch, match="something else"):
            await call()


async def test_file_that_is_not_a_database_is_rejected(path: Path) -> None:
    fill(path, b"dear diary, " * 1000)
    for call in (open_sqlite(path).open, open_sqlite(path).migrate):
        with pytest.raises(StoreUnavailable, match="not a database"):
            await call()
    assert content(path) == b"dear diary, " * 1000


def test_an_open_file_does_not_need_the_conversion(path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from chimes.store.sql import open_sqlite\n"
        "async def main():\n"
        "    store = open_sqlite(sys.argv[1])\n"
        "    await store.open()\n"
        "    await store.close()\n"
        "asyncio.run(main())\n"
        "print('chimes.store.sql.migrations.conversion' in sys.modules)\n"
    )
    command = [sys.executable, "-c", program, str(path)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
