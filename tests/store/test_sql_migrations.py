"""Migrations on SQLite: they end at `tables`, and a file is migrated when it is opened."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine

from chimes.errors import SchemaMismatch, StoreUnavailable
from chimes.model import replace
from chimes.model.access import ApiKey, Scope
from chimes.model.checkpoint import Checkpoint
from chimes.model.notification import Delivery, InboxItem
from chimes.model.policy import Policy
from chimes.model.run import RunStatus
from chimes.store.port import Item
from chimes.store.sql import migrations, open_sqlite
from chimes.store.sql.tables import metadata
from chimes.testing import SettableClock
from tests.builders import INBOX, NOW, SYNC, a_key, a_run, a_schedule, a_sync_run, an_entry
from tests.store_contract.scenes import all_deliveries, contents, populate

Schema = dict[str, str]


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


def test_the_migrations_end_where_the_tables_are(tmp_path: Path) -> None:
    found: list[Schema] = []
    for name in ("migrated", "made"):
        engine = create_engine(f"sqlite:///{tmp_path / name}.db")
        with engine.begin() as connection:
            if name == "migrated":
                migrations.upgrade(connection)
            else:
                metadata.create_all(connection)
            found.append(schema_of(connection))
        engine.dispose()
    assert found[0] == found[1]
    assert len(found[0]) > 20


def test_every_revision_is_listed_in_order() -> None:
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(Path(migrations.__file__).parent))
    known = [script.revision for script in scripts.walk_revisions()]
    assert tuple(reversed(known)) == migrations.REVISIONS
    assert scripts.get_current_head() == migrations.HEAD


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


def stored(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


async def test_an_older_schema_is_migrated(path: Path) -> None:
    """A file of the first release, with an audit log that has to continue where it ended."""
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        migrations.upgrade(connection, "0001")
        connection.exec_driver_sql(
            "INSERT INTO audit VALUES"
            " (7, 1, 'a', 'd', 'v', 'k', 'i', 'o', '{}', '', '', 1, 'x', 'y')"
        )
    engine.dispose()
    store = open_sqlite(path)
    await store.open()
    await store.add_schedule(a_schedule())
    entry = await store.append_audit(an_entry())
    await store.close()
    assert (entry.number, entry.previous_hash) == (8, "y")


#: What older releases did not have: kinds of items, and attributes of the others.
NEWER_KINDS = {"0002": (Checkpoint, Delivery, InboxItem), "0003": (Delivery, InboxItem)}


def without_newer_fields(item: Item) -> Item:
    return replace(item, scopes=()) if isinstance(item, ApiKey) else item


# Existing rows stay, and new code works on them.
@pytest.mark.parametrize("revision", NEWER_KINDS)
async def test_an_older_file_is_migrated_with_its_data(
    path: Path, tmp_path: Path, revision: str
) -> None:
    now, clock = tmp_path / "now.db", SettableClock()
    store = open_sqlite(now, clock=clock)
    await store.open()
    await populate(store, clock)
    items = [
        without_newer_fields(item)
        for item in await contents(store)
        if not isinstance(item, NEWER_KINDS[revision])
    ]
    await store.close()
    write_older_file(revision, now, path)
    store = open_sqlite(path)
    await store.open()
    assert await contents(store) == items
    await store.set_checkpoint(SYNC.key, "1")
    assert (await store.add_unless_active(a_sync_run()))[1] is False
    key = await store.add_key(a_key(scopes=(Scope.READ,)))
    assert await store.get_key(key.id) == key
    run = a_run(policy=Policy(delivery=(INBOX,)), status=RunStatus.FAILED, finished_at=NOW)
    await store.add_runs([run])
    assert [row.run_id for row in (await all_deliveries(store)).values()] == [run.id]
    await store.close()


def write_older_file(revision: str, source: Path, path: Path) -> None:
    """Puts the rows of a current store into a file of an earlier release."""
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        migrations.upgrade(connection, revision)
    engine.dispose()
    connection = sqlite3.connect(path)
    connection.execute("ATTACH ? AS source", (str(source),))
    tables = connection.execute(
        "SELECT name FROM main.sqlite_master WHERE type = 'table' AND name NOT LIKE 'alembic%'"
    ).fetchall()
    for (table,) in tables:
        rows = connection.execute(f"SELECT name FROM pragma_table_info('{table}')").fetchall()
        columns = ", ".join(f'"{name}"' for (name,) in rows)
        connection.execute(f"DELETE FROM main.{table}")
        connection.execute(
            f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM source.{table}"
        )
    connection.commit()
    connection.close()


async def test_a_migration_that_fails_leaves_the_file_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def upgrade(connection: Connection) -> None:
        migrations.upgrade(connection)
        raise RuntimeError("no further")

    with monkeypatch.context() as patch:
        patch.setattr("chimes.store.sql.database.sqlite.upgrade", upgrade)
        with pytest.raises(RuntimeError, match="no further"):
            await open_sqlite(path).open()
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    connection.close()
    store = open_sqlite(path)
    await store.open()
    await store.close()


async def test_newer_schema_is_rejected_unchanged(path: Path) -> None:
    store = open_sqlite(path)
    await store.open()
    await store.close()
    stored(path, "UPDATE alembic_version SET version_num = '9999'")
    before = content(path)
    with pytest.raises(SchemaMismatch, match="9999"):
        await open_sqlite(path).open()
    assert content(path) == before


async def test_database_of_another_application_is_rejected(path: Path) -> None:
    stored(path, "CREATE TABLE songs (title TEXT)")
    with pytest.raises(SchemaMismatch, match="something else"):
        await open_sqlite(path).open()


async def test_file_that_is_not_a_database_is_rejected(path: Path) -> None:
    fill(path, b"dear diary, " * 1000)
    with pytest.raises(StoreUnavailable, match="not a database"):
        await open_sqlite(path).open()
    assert content(path) == b"dear diary, " * 1000


def test_alembic_is_not_imported_without_a_migration(path: Path) -> None:
    """It takes most of a second to import."""
    program = (
        "import asyncio, sys\n"
        "from chimes.store.sql import open_sqlite\n"
        "async def main():\n"
        "    store = open_sqlite(sys.argv[1])\n"
        "    await store.open()\n"
        "    await store.close()\n"
        "asyncio.run(main())\n"
        "print('alembic' in sys.modules)\n"
    )
    answers = [
        subprocess.run(
            [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
        ).stdout.strip()
        for _ in range(2)
    ]
    assert answers == ["True", "False"]
