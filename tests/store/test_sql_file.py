"""The SQLite file: permissions and file system."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chimes.errors import StoreUnavailable
from chimes.store.sql import open_sqlite
from chimes.store.sql.database import sqlite as sqlite_file
from chimes.store.sql.database.base import Tx
from tests.builders import a_schedule


def modes(directory: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mode & 0o777 for file in directory.iterdir()}


def make(path: Path, mode: int) -> None:
    path.touch(mode)
    path.chmod(mode)


async def test_files_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = open_sqlite(tmp_path / "data" / "chimes.db")
        await store.open()
        await store.add_schedule(a_schedule())
        found = modes(tmp_path / "data")
        await store.close()
    finally:
        os.umask(before)
    assert found == {"chimes.db": 0o600, "chimes.db-wal": 0o600, "chimes.db-shm": 0o600}
    assert modes(tmp_path) == {"data": 0o700}


async def test_permissions_of_an_existing_file_are_tightened(tmp_path: Path) -> None:
    make(tmp_path / "chimes.db", 0o644)
    store = open_sqlite(tmp_path / "chimes.db")
    await store.open()
    found = modes(tmp_path)
    await store.close()
    assert set(found.values()) == {0o600}


async def test_a_path_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    make(tmp_path / "file", 0o600)
    with pytest.raises(StoreUnavailable, match="cannot open"):
        await open_sqlite(tmp_path / "file" / "chimes.db").open()


def test_a_network_file_system_causes_a_warning(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/vda / ext4 rw 0 0\n"
        "server:/x /srv/my\\040data nfs4 rw 0 0\n"
        "tmpfs /srv/my\\040data/local tmpfs rw 0 0\n"
        "broken\n"
    )
    warning = sqlite_file.network_warning(Path("/srv/my data/chimes.db"), mounts)
    assert "nfs4" in warning
    for near in ("/srv/chimes.db", "/srv/my data/local/chimes.db", "/srv/my database/chimes.db"):
        assert sqlite_file.network_warning(Path(near), mounts) == ""
    assert sqlite_file.network_warning(Path("/srv/x.db"), tmp_path / "missing") == ""


async def test_the_warning_is_in_the_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite_file, "_file_system", lambda path, mounts: "nfs4")
    store = open_sqlite(tmp_path / "chimes.db")
    await store.open()
    status = await store.status()
    await store.close()
    assert "network file system" in status.degraded
    assert status.degraded in caplog.text


# Killing a process cannot show this, because the page cache survives it.
async def test_a_commit_is_on_the_disk_when_it_is_acknowledged(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path / "chimes.db")
    await store.open()

    def look(tx: Tx) -> list[object]:
        pragmas = ("journal_mode", "synchronous", "foreign_keys")
        return [tx.connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in pragmas]

    found = await store._database.write(look)
    await store.close()
    assert found == ["wal", 2, 0]
