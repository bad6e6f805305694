"""SQLite as a Database: one writer thread with group commit, a few reading threads.

Several processes of one host may share the file. Threads rather than an async driver: sqlite3
blocks anyway, and with it a batch of statements costs one hop between threads instead of two for
each statement.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.pool import NullPool

from chimes.clock import Clock, SystemClock
from chimes.errors import StoreError, StoreUnavailable
from chimes.model.lags import bracket_of_micros
from chimes.store.sql.database import Reader, Work
from chimes.store.sql.dialects.counting import BRACKET_FUNCTION
from chimes.store.sql.dialects.sqlite import SqliteDialect, is_busy
from chimes.store.sql.group_commit import LOCK_SECONDS, GroupCommit, driver_of
from chimes.store.sql.migrations import HEAD
from chimes.store.sql.readers import Readers
from chimes.store.sql.sqlite_file import network_warning, prepare_file
from chimes.store.sql.sqlite_migration import migrate
from chimes.store.wakeup import Wakeup
from chimes.wording import say

T = TypeVar("T")

_log = logging.getLogger(__name__)

#: Kilobytes of pages that the writer and each reader keep.
_WRITER_CACHE, _READER_CACHE = 16_000, 16_000
#: How long to wait for another process that is migrating.
_MIGRATION_MILLISECONDS = 60_000


class SqliteDatabase:
    one_writer = True

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self.dialect = SqliteDialect()
        self._path = path
        self._clock = clock or SystemClock()
        self._wakeup = Wakeup()
        self._degraded = ""
        self._writer: GroupCommit | None = None
        self._readers: Readers | None = None
        self._engine = create_engine(
            URL.create("sqlite", database=str(path)),
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",
            # Connections move from the thread that opens them to the one that uses them.
            connect_args={"check_same_thread": False, "timeout": LOCK_SECONDS},
        )
        event.listen(self._engine, "connect", _set_up)

    async def open(self) -> None:
        try:
            await asyncio.to_thread(self._open)
        except StoreError:
            raise
        except Exception as error:
            reason = self.dialect.unavailable(error)
            if reason is None and not isinstance(error, OSError):
                raise
            raise StoreUnavailable(
                say("cannot open {path}: {reason}", path=self._path, reason=reason or str(error))
            ) from error

    def _open(self) -> None:
        prepare_file(self._path)
        self._degraded = network_warning(self._path)
        if self._degraded:
            _log.warning(self._degraded)
        connection = self._connect(_WRITER_CACHE)
        try:
            self._switch_to_wal(driver_of(connection))
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {_MIGRATION_MILLISECONDS}")
            migrate(connection, self._path)
            # From now on the writer waits in its own way (F39).
            connection.exec_driver_sql("PRAGMA busy_timeout = 0")
        except BaseException:
            connection.close()
            raise
        self._readers = Readers(self._connect, self.dialect, self._clock)
        self._writer = GroupCommit(connection, self.dialect, self._clock, self.wake)
        self._writer.start()

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        readers, self._readers = self._readers, None
        if readers is not None:
            await readers.stop()
        if writer is not None:
            await writer.stop()
        self.wake()

    async def migrate(self) -> tuple[str | None, str]:
        """A file migrates itself when it is opened."""
        await self.open()
        await self.close()
        return None, HEAD

    def identity(self, connection: Connection) -> str:
        return ""

    def troubles(self) -> Mapping[str, int]:
        return {}

    @property
    def location(self) -> str:
        return str(self._path)

    @property
    def degraded(self) -> str:
        return self._degraded

    def changes(self) -> int:
        return self._wakeup.count

    def wake(self) -> None:
        self._wakeup.wake()

    async def wait(self, since: int, seconds: float | None) -> None:
        await self._wakeup.wait(since, seconds)

    async def now(self) -> datetime:
        return self._clock.now()

    async def about_now(self) -> datetime:
        return self._clock.now()

    async def look(self, work: Work[T]) -> T:
        return await self.read(work)

    async def read(self, work: Work[T]) -> T:
        return await _there(self._readers).read(work)

    async def write(self, work: Work[T], *, urgent: bool = False) -> T:
        return await _there(self._writer).write(work, urgent=urgent)

    async def write_alone(self, work: Work[T]) -> T:
        return await self.write(work)

    def snapshot(self) -> AbstractAsyncContextManager[Reader]:
        return _there(self._readers).snapshot()

    def _switch_to_wal(self, driver: sqlite3.Connection) -> None:
        """Readers then go on while somebody writes. The file remembers it; only the first time
        there is something to do, and then SQLite asks its busy handler for nothing: of two
        processes that start at once, one has to try again by itself."""
        elapsed = SystemClock()
        deadline = elapsed.monotonic() + LOCK_SECONDS
        while True:
            try:
                mode = driver.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            except sqlite3.OperationalError as error:
                if not is_busy(error) or elapsed.monotonic() > deadline:
                    raise
                time.sleep(0.01)
            else:
                break
        if mode != "wal":
            raise StoreUnavailable(
                say("{path} is where SQLite cannot keep a write-ahead log", path=self._path)
            )

    def _connect(self, cache: int = _READER_CACHE) -> Connection:
        connection = self._engine.connect()
        connection.exec_driver_sql(f"PRAGMA cache_size = -{cache}")
        return connection


def _set_up(driver: sqlite3.Connection, _record: Any) -> None:
    for pragma in (
        # A commit is on the disk when it is acknowledged (F40).
        "synchronous = FULL",
        # Rows refer to each other by value; a run outlives its schedule.
        "foreign_keys = OFF",
        "journal_size_limit = 67108864",
    ):
        driver.execute(f"PRAGMA {pragma}").close()
    driver.create_function(BRACKET_FUNCTION, 1, bracket_of_micros, deterministic=True)


def _there(part: T | None) -> T:
    if part is None:
        raise StoreUnavailable(say("the store is not open"))
    return part
