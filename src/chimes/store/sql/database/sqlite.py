"""Database over SQLite: one writer thread with group commit, a few reader threads.

Several processes of one host may share the file. It uses threads instead of an async driver:
sqlite3 blocks anyway, and a batch of statements costs one thread switch instead of two per
statement.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import sqlite3
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.pool import NullPool

from chimes.clock import Clock, SystemClock
from chimes.errors import SchemaMismatch, StoreError, StoreUnavailable
from chimes.failpoints import file_transaction
from chimes.i18n import _
from chimes.model.insights import bracket_of_micros
from chimes.store.port import Wakeup
from chimes.store.sql.database.base import KnownRows, Reader, Tx, Work
from chimes.store.sql.dialects.base import Dialect
from chimes.store.sql.dialects.sqlite import SqliteDialect, is_busy
from chimes.store.sql.dialects.statistics import BRACKET_FUNCTION
from chimes.store.sql.migrations import (
    FILE_VERSIONS,
    HEAD,
    REVISIONS,
    Progress,
    check_is_known,
    check_is_recent,
    is_convertible,
    no_progress,
    upgrade,
)
from chimes.store.sql.rows.values import micros

# The database file: permissions and file system.

#: Shared memory and byte-range locks do not work across hosts there.
_NETWORK = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs", "lustre")
_MOUNTS = Path("/proc/self/mounts")


def prepare_file(path: Path) -> None:
    """Creates the file and its folder for this user alone. SQLite gives its -wal and -shm files the
    mode of the database."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        with contextlib.suppress(FileNotFoundError, PermissionError):
            if file.stat().st_mode & 0o077:
                file.chmod(0o600)


def network_warning(path: Path, mounts: Path = _MOUNTS) -> str:
    """Returns a warning for a network file system; empty where processes of this host may share the
    file."""
    kind = _file_system(path, mounts)
    if not kind.startswith(_NETWORK):
        return ""
    return _(
        "{path} is on a network file system ({kind}), on which SQLite's locks cannot be trusted;"
        " keep it on a local disk",
        path=path,
        kind=kind,
    )


def _file_system(path: Path, mounts: Path) -> str:
    """Returns the type of the mount with the longest matching path; empty if unknown."""
    resolved, best, kind = path.resolve(), -1, ""
    with contextlib.suppress(OSError):
        for line in mounts.read_text(errors="replace").splitlines():
            fields = line.split(" ")
            if len(fields) < 3:
                continue
            # Spaces and the like are written in octal there.
            at = Path(fields[1].encode("latin-1", "replace").decode("unicode_escape"))
            if resolved.is_relative_to(at) and len(at.parts) > best:
                best, kind = len(at.parts), fields[2]
    return kind


# Group commit: one writer per process commits small writes that arrive together in one transaction.
#
# A commit on SQLite waits for the disk (`synchronous=FULL`), a few milliseconds in which nothing
# else can be written. Work that arrives meanwhile is collected and becomes one transaction, each in
# a SAVEPOINT of its own, so that an exception rolls back only its own work (work that is alone
# needs none); every caller gets its answer after the common COMMIT. Callers may be on any thread
# and any event loop, such as the heartbeat thread: urgent work goes to the front, so it waits at
# most for the current group.
#
# The write lock is taken with BEGIN IMMEDIATE and retried after a random 0-4 ms: SQLite's own busy
# handler backs off further and further, and lets one of several processes starve.

T = TypeVar("T")

#: No caller waits longer for the lock.
LOCK_SECONDS = 5.0
#: How often to check for commits of other processes while there is nothing to write.
POLL_SECONDS = 0.2
LARGEST_GROUP = 256
#: The write-ahead log is copied into the database while nothing is written, once so many rows have
#: changed; under constant load when it has so many pages (40 MB), and then a writer waits for it.
CHECKPOINT_ROWS, CHECKPOINT_PAGES = 1_000, 10_000


class _Job:
    __slots__ = ("answer", "deadline", "error", "result", "work")

    def __init__(self, work: Work[Any], deadline: float) -> None:
        self.work = work
        self.deadline = deadline
        self.answer: Future[Any] = Future()
        self.result: Any = None
        self.error: Exception | None = None

    def resolve(self) -> None:
        if self.error is None:
            self.answer.set_result(self.result)
        else:
            self.answer.set_exception(self.error)


class GroupCommit:
    def __init__(
        self,
        connection: Connection,
        dialect: SqliteDialect,
        clock: Clock,
        known: KnownRows,
        wake: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._driver = driver_of(connection)
        self._dialect = dialect
        self._clock = clock
        self._known = known
        self._wake = wake
        # Waiting for a lock takes real time, also under a clock that a test sets.
        self._elapsed = SystemClock()
        self._queue: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._seen_version = self._version()
        self._others_write = False
        #: Of the connection, at the last checkpoint.
        self._checkpointed_changes = 0
        self._thread = threading.Thread(target=self._run, name="chimes-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        """Work that was submitted before is still written."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        await asyncio.to_thread(self._thread.join)

    async def write(self, work: Work[T], *, urgent: bool = False) -> T:
        job = _Job(work, self._elapsed.monotonic() + LOCK_SECONDS)
        with self._changed:
            if self._closing:
                raise StoreUnavailable(_("the store is closed"))
            if urgent:
                self._queue.appendleft(job)
            else:
                self._queue.append(job)
            self._changed.notify()
        answer: T = await asyncio.wrap_future(job.answer)
        return answer

    # --- in the writer thread -----------------------------------------------------------------
    def _run(self) -> None:
        try:
            while self._wait_for_jobs():
                with file_transaction:
                    self._write_group()
        finally:
            with self._changed:
                self._closing = True
            self._fail_jobs(StoreUnavailable(_("the store is closed")))
            self._connection.close()

    def _wait_for_jobs(self) -> bool:
        """Returns False at the end."""
        while True:
            with self._changed:
                if not self._queue and not self._closing:
                    self._changed.wait(POLL_SECONDS)
                if self._queue:
                    return True
                if self._closing:
                    return False
            self._check_other_commits()
            self._checkpoint()

    def _check_other_commits(self) -> None:
        """The version stays the same when this connection commits, so only commits of other
        connections wake this process. Reading it is a read of shared memory."""
        try:
            version = self._version()
        except sqlite3.Error:
            return
        self._others_write = version != self._seen_version
        if self._others_write:
            self._seen_version = version
            self._wake()

    def _checkpoint(self) -> None:
        """Does as much as is possible without waiting for others."""
        changes = self._driver.total_changes
        if changes - self._checkpointed_changes >= CHECKPOINT_ROWS:
            self._checkpointed_changes = changes
            with contextlib.suppress(sqlite3.Error):
                self._driver.execute("PRAGMA wal_checkpoint(PASSIVE)").close()

    def _version(self) -> int:
        return int(self._driver.execute("PRAGMA data_version").fetchone()[0])

    def _write_group(self) -> None:
        if not self._lock_database():
            return
        self._check_other_commits()
        jobs = self._take()
        wakes = False
        try:
            for job in jobs:
                tx = Tx(self._connection, self._dialect, self._clock, self._known)
                self._execute(job, tx, alone=len(jobs) == 1)
                wakes |= tx.wakes and job.error is None
            if self._driver.in_transaction:
                self._driver.execute("COMMIT")
        except sqlite3.Error as error:
            # The whole transaction is rolled back, and with it all work of the group.
            wakes = False
            for job in jobs:
                job.error = StoreUnavailable(_("cannot write: {reason}", reason=str(error)))
            self._known.clear()
            if self._driver.in_transaction:
                self._driver.execute("ROLLBACK")
        if wakes:
            self._wake()
        for job in jobs:
            job.resolve()

    def _lock_database(self) -> bool:
        """Returns False if no job is waiting any more."""
        if self._others_write:
            # After our own commit other processes would hardly get the lock without a pause.
            self._back_off()
        while True:
            try:
                self._driver.execute("BEGIN IMMEDIATE")
            except sqlite3.Error as error:
                if not is_busy(error):
                    self._fail_jobs(self._translate(error))
                    return False
                message = _(
                    "the database has been locked for {seconds:.0f} s", seconds=LOCK_SECONDS
                )
                self._fail_jobs(StoreUnavailable(message), until=self._elapsed.monotonic())
                if not self._queue:
                    return False
                self._back_off()
            else:
                return True

    @staticmethod
    def _back_off() -> None:
        time.sleep(random.uniform(0, 0.004))  # noqa: S311 spreads processes, hides nothing

    def _take(self) -> list[_Job]:
        with self._changed:
            count = min(len(self._queue), LARGEST_GROUP)
            jobs = [self._queue.popleft() for _unused in range(count)]
        return [job for job in jobs if job.answer.set_running_or_notify_cancel()]

    def _fail_jobs(self, error: Exception, until: float | None = None) -> None:
        """Fails the jobs whose deadline has passed (None: all)."""
        with self._changed:
            refused = [job for job in self._queue if until is None or job.deadline <= until]
            for job in refused:
                self._queue.remove(job)
        for job in refused:
            if job.answer.set_running_or_notify_cancel():
                job.answer.set_exception(error)

    def _execute(self, job: _Job, tx: Tx, *, alone: bool) -> None:
        """Work that is `alone` in its transaction needs no SAVEPOINT, which costs a copy of every
        page that is changed."""
        if not alone:
            self._driver.execute("SAVEPOINT job")
        try:
            job.result = job.work(tx)
        except Exception as error:
            if not self._driver.in_transaction:
                raise sqlite3.OperationalError(str(getattr(error, "orig", error))) from error
            job.error = self._translate(error)
            self._driver.execute("ROLLBACK" if alone else "ROLLBACK TO job")
        if not alone:
            self._driver.execute("RELEASE job")

    def _translate(self, error: Exception) -> Exception:
        reason = self._dialect.unavailable(error)
        return (
            error
            if reason is None
            else StoreUnavailable(_("cannot write: {reason}", reason=reason))
        )


def driver_of(connection: Connection) -> sqlite3.Connection:
    """Transactions are controlled on the driver connection: SQLAlchemy sees autocommit."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


# Reader threads, each with its own connection, so that reads never wait for writes.

READERS = 3


class Readers:
    def __init__(
        self,
        connect: Callable[[], Connection],
        dialect: Dialect,
        clock: Clock,
        known: KnownRows,
    ) -> None:
        self._connect = connect
        self._dialect = dialect
        self._clock = clock
        self._known = known
        self._own = threading.local()
        self._connections: list[Connection] = []
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="chimes-reader")
        self._closed = False

    async def stop(self) -> None:
        self._closed = True
        await asyncio.to_thread(self._pool.shutdown)
        while self._connections:
            self._connections.pop().close()

    async def read(self, work: Work[T]) -> T:
        return await self._in_thread(self._transact, work)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Reader]:
        connection = await self._in_thread(self._connect)
        await self._in_thread(lambda: driver_of(connection).execute("BEGIN"))

        async def read(work: Work[T]) -> T:
            return await self._in_thread(self._execute, connection, work)

        try:
            yield read
        finally:
            await asyncio.to_thread(connection.close)

    async def _in_thread(self, call: Callable[..., T], *arguments: object) -> T:
        if self._closed:
            raise StoreUnavailable(_("the store is closed"))
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *arguments)

    # --- in a reading thread ------------------------------------------------------------------
    def _transact(self, work: Work[T]) -> T:
        connection = self._connection()
        driver = driver_of(connection)
        driver.execute("BEGIN")
        try:
            return self._execute(connection, work)
        finally:
            driver.execute("ROLLBACK")

    def _execute(self, connection: Connection, work: Work[T]) -> T:
        try:
            return work(Tx(connection, self._dialect, self._clock, self._known, reading=True))
        except Exception as error:
            reason = self._dialect.unavailable(error)
            if reason is None:
                raise
            raise StoreUnavailable(_("cannot read: {reason}", reason=reason)) from error

    def _connection(self) -> Connection:
        connection: Connection | None = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = self._connect()
            self._connections.append(connection)
        return connection


# A SQLite file is set up and upgraded when it is opened; only the tables of an earlier version are
# converted by command.


def migrate(connection: Connection, path: Path) -> None:
    """Of two processes that start concurrently the second waits for the lock, and then finds
    nothing to do."""
    stored = stored_revision(connection, path)
    check_is_recent(stored)
    if stored == HEAD:
        return
    connection.exec_driver_sql("BEGIN IMMEDIATE")
    try:
        if stored_revision(connection, path) != HEAD:
            upgrade(connection)
        connection.exec_driver_sql("COMMIT")
    except BaseException:
        connection.exec_driver_sql("ROLLBACK")
        raise


def stored_revision(connection: Connection, path: Path) -> str | None:
    """Returns None if the file is empty. Raises SchemaMismatch for a schema that this code cannot
    upgrade."""
    tables = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'")
    names = set(tables.scalars())
    if not names:
        return None
    revision = None
    if "alembic_version" in names:
        revision = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    if not isinstance(revision, str):
        raise SchemaMismatch(_("{path} is a database of something else, not of Chimes", path=path))
    check_is_known(revision)
    if revision not in REVISIONS and not is_convertible(revision):
        raise SchemaMismatch(
            _(
                "{path} has schema {revision}, which this version of Chimes (schema {head}) does"
                " not know: update Chimes if a newer one wrote it",
                path=path,
                revision=revision,
                head=HEAD,
            )
        )
    return revision


_log = logging.getLogger(__name__)

#: Page cache of the writer and of each reader, in kilobytes.
_WRITER_CACHE, _READER_CACHE = 16_000, 16_000
#: How long to wait for another process that is migrating.
_MIGRATION_MILLISECONDS = 60_000


class SqliteDatabase:
    has_single_writer = True

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self.dialect = SqliteDialect()
        self._path = path
        self._clock = clock or SystemClock()
        self._known = KnownRows()
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
        await self._in_thread(self._open)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except StoreError:
            raise
        except Exception as error:
            reason = self.dialect.unavailable(error)
            if reason is None and not isinstance(error, OSError):
                raise
            raise StoreUnavailable(
                _("cannot open {path}: {reason}", path=self._path, reason=reason or str(error))
            ) from error

    def _open(self) -> None:
        prepare_file(self._path)
        self._degraded = network_warning(self._path)
        if self._degraded:
            _log.warning(self._degraded)
        connection = self._connect_to_migrate()
        try:
            migrate(connection, self._path)
            # From here on the writer waits with its own back-off.
            connection.exec_driver_sql("PRAGMA busy_timeout = 0")
            # The pages that a statement or SAVEPOINT needs for its rollback are kept in memory
            # instead of in a file.
            connection.exec_driver_sql("PRAGMA temp_store = MEMORY")
        except BaseException:
            connection.close()
            raise
        self._readers = Readers(self._connect, self.dialect, self._clock, self._known)
        self._writer = GroupCommit(connection, self.dialect, self._clock, self._known, self.wake)
        self._writer.start()

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        readers, self._readers = self._readers, None
        if readers is not None:
            await readers.stop()
        if writer is not None:
            await writer.stop()
        self.wake()

    async def migrate(self, progress: Progress | None = None) -> tuple[str | None, str]:
        return await self._in_thread(lambda: self._migrate(progress))

    def _migrate(self, progress: Progress | None) -> tuple[str | None, str]:
        prepare_file(self._path)
        connection = self._connect_to_migrate()
        try:
            before = stored_revision(connection, self._path)
            if is_convertible(before):
                from chimes.store.sql.migrations.conversion import convert

                now = micros(self._clock.now())
                convert(connection, FILE_VERSIONS, now, progress or no_progress)
            else:
                migrate(connection, self._path)
        finally:
            connection.close()
        return before, HEAD

    def _connect_to_migrate(self) -> Connection:
        connection = self._connect(_WRITER_CACHE)
        try:
            self._switch_to_wal(driver_of(connection))
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {_MIGRATION_MILLISECONDS}")
        except BaseException:
            connection.close()
            raise
        return connection

    def forget_known(self) -> None:
        self._known.clear()

    def identity(self, connection: Connection) -> str:
        return ""

    def error_counts(self) -> Mapping[str, int]:
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

    async def approximate_now(self) -> datetime:
        return self._clock.now()

    async def query(self, work: Work[T]) -> T:
        return await self.read(work)

    async def read(self, work: Work[T]) -> T:
        return await _require_open(self._readers).read(work)

    async def write(self, work: Work[T], *, urgent: bool = False) -> T:
        return await _require_open(self._writer).write(work, urgent=urgent)

    async def write_alone(self, work: Work[T]) -> T:
        return await self.write(work)

    def snapshot(self) -> AbstractAsyncContextManager[Reader]:
        return _require_open(self._readers).snapshot()

    def _switch_to_wal(self, driver: sqlite3.Connection) -> None:
        """In WAL mode readers continue during a write. The file stores the mode, so only the first
        switch has an effect; it does not use the busy handler: of two processes that start
        concurrently, one must retry."""
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
                _("{path} is where SQLite cannot keep a write-ahead log", path=self._path)
            )

    def _connect(self, cache: int = _READER_CACHE) -> Connection:
        connection = self._engine.connect()
        connection.exec_driver_sql(f"PRAGMA cache_size = -{cache}")
        return connection


def _set_up(driver: sqlite3.Connection, _record: Any) -> None:
    for pragma in (
        # A commit is on the disk when it is acknowledged.
        "synchronous = FULL",
        # Rows refer to each other by value; a run outlives its schedule.
        "foreign_keys = OFF",
        f"wal_autocheckpoint = {CHECKPOINT_PAGES}",
        "journal_size_limit = 67108864",
    ):
        driver.execute(f"PRAGMA {pragma}").close()
    driver.create_function(BRACKET_FUNCTION, 1, bracket_of_micros, deterministic=True)


def _require_open(part: T | None) -> T:
    if part is None:
        raise StoreUnavailable(_("the store is not open"))
    return part
