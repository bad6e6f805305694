"""Database over a server: many nodes write concurrently, each operation in one short transaction.

Connections belong to an event loop, so each loop has its own small pool. The engine's loop has the
larger one; every other loop, such as that of the heartbeat thread, has a single connection that is
opened by its first call and not shared.

A transaction that certainly did not commit is retried as a whole. When the answer to COMMIT is
lost, the result is unknown and the transaction is not repeated here: the caller gets an error and
repeats the operation, which every operation of the port allows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Generic, Protocol, TypeVar

from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.util import greenlet_spawn

from chimes.clock import Clock, SystemClock
from chimes.errors import SchemaMismatch, StoreError, StoreReadOnly, StoreUnavailable
from chimes.failpoints import hit
from chimes.i18n import _
from chimes.store.port import Wakeup
from chimes.store.sql.database.base import KnownRows, Reader, Tx, Work
from chimes.store.sql.dialects.base import Dialect
from chimes.store.sql.migrations import (
    HEAD,
    OLDEST,
    REVISIONS,
    SERVER_VERSIONS,
    Progress,
    check_is_known,
    check_is_recent,
    is_convertible,
    no_progress,
    upgrade,
)
from chimes.store.sql.migrations.baseline import REVISION_OFFSET
from chimes.store.sql.rows.values import micros
from chimes.store.sql.tables import metadata

# What a `ServerDatabase` needs from a database server: one class for each product.

#: Timeouts for opening a connection, and for getting one from the pool.
CONNECT_SECONDS = 3.0
POOL_SECONDS = 5.0
#: Limits of a session, even if its client has stopped.
IDLE_SECONDS = 10
STATEMENT_SECONDS = 15
LOCK_SECONDS = 5
#: A connection without an answer for this long is closed.
SILENCE_SECONDS = 10


class DatabaseErrorKind(Enum):
    """Kinds of errors of a transaction. Nothing of it has happened, unless the connection was lost
    during the commit."""

    #: A concurrent transaction interfered (deadlock, serialization, lock wait, unique key): retry.
    CONFLICT = auto()
    #: The connection is gone: retry on another one.
    LOST = auto()
    #: The server accepts no writes.
    READ_ONLY = auto()
    #: The server is not available: full, starting, shutting down, too slow, or not reachable.
    REFUSED = auto()


class WakeConnection(Protocol):
    """A connection over which processes wake each other."""

    lost: asyncio.Event

    async def notify(self) -> None:
        """Wakes the other processes."""

    async def close(self) -> None: ...


class Server(ABC):
    dialect: Dialect
    #: Without a password.
    location: str

    @abstractmethod
    def engine(self, *, size: int, overflow: int) -> Engine:
        """Creates a connection pool for one event loop: `size` connections are kept, `overflow`
        more are opened when all are in use, and beyond that callers wait for POOL_SECONDS. Sessions
        have the limits above. Must be used inside `greenlet_spawn`."""

    def reading(self, engine: Engine) -> Engine:
        """The same pool, for read-only transactions with one snapshot."""
        return engine.execution_options(isolation_level="REPEATABLE READ")

    def querying(self, engine: Engine) -> Engine:
        """The same pool without transactions, where that saves a round trip."""
        return self.reading(engine)

    @abstractmethod
    def error_kind(self, error: BaseException) -> DatabaseErrorKind | None:
        """Returns None if the error does not come from the database."""

    def unwritten(self, error: BaseException) -> bool:
        """Returns whether the error shows that nothing was committed: the connection was known to
        be closed before anything was sent, or the server rejects writes."""
        return False

    def upgrade(self, connection: Connection) -> None:
        """Creates the schema, or upgrades it to HEAD; recorded in SERVER_VERSIONS."""
        upgrade(connection, versions=SERVER_VERSIONS)

    @abstractmethod
    def lock_set_up(self, connection: Connection) -> None:
        """Waits until no other process sets up this database. The lock lasts at least until the end
        of the transaction."""

    @abstractmethod
    def lock_migration(self, connection: Connection) -> bool:
        """Takes the migration lock for the lifetime of the connection. Returns False if another
        process holds it."""

    @abstractmethod
    def prepare_migration(self, connection: Connection) -> None:
        """Session settings under which a migration does not disturb nodes: no statement timeout,
        but a short lock timeout."""

    @abstractmethod
    def identity(self, connection: Connection) -> str:
        """Identifies the server and its history (timeline); changes at a fail-over."""

    async def wake_connection(self, on_wake: Callable[[], None]) -> WakeConnection | None:
        """Returns None if this server cannot send notifications; then polling must suffice."""
        return None


# One connection pool for each event loop, disposed with the loop.

#: For the engine's loop. With heartbeat and wake-up channel: 14 connections at most.
SIZE, OVERFLOW = 8, 4


@dataclass(frozen=True, slots=True)
class Pool:
    engine: Engine
    #: The same connections, for read-only transactions with one snapshot.
    reading: Engine
    #: The same connections, without transactions where that is cheaper.
    querying: Engine
    #: Disposes of the pool when its loop ends.
    guard: asyncio.Task[None]


class LoopPools:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._pools: dict[asyncio.AbstractEventLoop, Pool] = {}
        #: The loop that gets the large pool.
        self.main: asyncio.AbstractEventLoop | None = None

    def current(self) -> Pool:
        """Returns the pool of the running loop."""
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            pool = self._create(main=loop is self.main)
            with self._lock:
                self._pools[loop] = pool
        return pool

    async def close(self) -> None:
        """Closes the pools of all running loops; those of other loops through their own loop."""
        with self._lock:
            pools, self._pools = self._pools, {}
        current = asyncio.get_running_loop()
        for loop, pool in pools.items():
            if loop is current:
                pool.guard.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await pool.guard
            else:
                with contextlib.suppress(RuntimeError):  # that loop has ended
                    loop.call_soon_threadsafe(pool.guard.cancel)

    def _create(self, *, main: bool) -> Pool:
        size, overflow = (SIZE, OVERFLOW) if main else (1, 0)
        engine = self._server.engine(size=size, overflow=overflow)
        guard = asyncio.get_running_loop().create_task(self._guard(engine), name="chimes pool")
        return Pool(
            engine=engine,
            reading=self._server.reading(engine),
            querying=self._server.querying(engine),
            guard=guard,
        )

    async def _guard(self, engine: Engine) -> None:
        """The end of a loop cancels its tasks and waits for them; the connections must be closed
        then."""
        loop = asyncio.get_running_loop()
        try:
            await loop.create_future()
        finally:
            with self._lock:
                self._pools.pop(loop, None)
            await greenlet_spawn(engine.dispose)


# Error counters of a server store, for metrics.


@dataclass(slots=True)
class Counters:
    """Monotonic counters."""

    #: Transactions retried after a conflict.
    conflicts: int = 0
    #: Transactions retried after a lost connection.
    lost: int = 0
    #: Commits whose answer was lost.
    ambiguous: int = 0
    #: Transactions that got no connection in time.
    no_connection: int = 0


# Wake-ups between processes through the database, where it supports them.
#
# A notification in every commit would make commits two to four times slower. Notifications are
# therefore sent after the commit, over the listening connection, and those of a few milliseconds
# are combined. A notification may be lost with its connection: polling guarantees progress,
# notifications only make it prompt.

_log = logging.getLogger(__name__)

#: At most one notification in this time.
GAP_SECONDS = 0.005
_SHORTEST, _LONGEST = 0.1, 5.0


class WakeChannel:
    def __init__(self, server: Server, wake: Callable[[], None]) -> None:
        self._server = server
        self._wake = wake
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run(), name="chimes wake channel")

    async def stop(self) -> None:
        task, self._task = self._task, None
        while task is not None and not task.done():
            # Repeated, because wait_for, also in drivers, may swallow a cancellation.
            task.cancel()
            await asyncio.wait([task], timeout=0.1)

    def notify(self) -> None:
        """Schedules a notification, from any thread."""
        if self._loop is None or self._pending.is_set():
            return
        with contextlib.suppress(RuntimeError):  # that loop has ended
            self._loop.call_soon_threadsafe(self._pending.set)

    async def _run(self) -> None:
        delay = _SHORTEST
        while True:
            try:
                wake_connection = await self._server.wake_connection(self._wake)
            except Exception as error:
                _log.debug("no wake-ups from other nodes until reconnected: %s", error)
                await asyncio.sleep(random.uniform(delay / 2, delay))  # noqa: S311
                delay = min(delay * 2, _LONGEST)
                continue
            if wake_connection is None:
                return
            delay = _SHORTEST
            # Notifications sent before the connection was opened were not received.
            self._wake()
            try:
                await self._forward(wake_connection)
            except Exception as error:
                _log.debug("wake-up connection lost: %s", error)
            finally:
                await wake_connection.close()

    async def _forward(self, wake_connection: WakeConnection) -> None:
        lost = asyncio.ensure_future(wake_connection.lost.wait())
        try:
            while not lost.done():
                pending = asyncio.ensure_future(self._pending.wait())
                try:
                    await asyncio.wait((lost, pending), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    pending.cancel()
                if self._pending.is_set() and not lost.done():
                    self._pending.clear()
                    await wake_connection.notify()
                    await asyncio.sleep(GAP_SECONDS)
        finally:
            lost.cancel()


# Schema on a shared server: the first node sets up an empty database; an older schema waits for
# `chimes store migrate`.

_STORED = text(f"SELECT version_num FROM {SERVER_VERSIONS}")  # noqa: S608 our own name
_MIN_REVISION = text("SELECT value FROM store_facts WHERE name = 'min_revision'")
_NEEDED = HEAD if OLDEST == HEAD else _("{oldest} to {newest}", oldest=OLDEST, newest=HEAD)
#: A step that cannot get its lock is retried for this long.
PATIENCE_SECONDS = 120.0
_PAUSE_SECONDS = 0.5


def check_or_set_up(connection: Connection, server: Server) -> str:
    """Raises SchemaMismatch. Returns a warning, or an empty text."""
    stored = stored_revision(connection)
    if stored is None:
        server.lock_set_up(connection)
        stored = stored_revision(connection)
        if stored is None:
            server.upgrade(connection)
            hit("migrate.before_commit")
            stored = HEAD
    warning = _check_revision(connection, stored)
    connection.commit()
    return warning


def stored_revision(connection: Connection) -> str | None:
    """Returns None if there are no tables of Chimes yet."""
    names = set(inspect(connection).get_table_names())
    if SERVER_VERSIONS in names:
        found = connection.execute(_STORED).scalar()
        if isinstance(found, str):
            return found
    ours = names & set(metadata.tables)
    if ours and SERVER_VERSIONS not in names:
        raise SchemaMismatch(
            _(
                "the database has tables {tables} that are not of Chimes; give Chimes"
                " a database or schema of its own",
                tables=", ".join(sorted(ours)),
            )
        )
    return None


def _check_revision(connection: Connection, stored: str) -> str:
    check_is_recent(stored)
    if stored in REVISIONS:
        if REVISIONS.index(stored) < REVISIONS.index(OLDEST):
            raise SchemaMismatch(
                _(
                    "the store has schema {stored}, this version of Chimes needs {needed}:"
                    " run `chimes store migrate`",
                    stored=stored,
                    needed=_NEEDED,
                )
            )
        return ""
    oldest = connection.execute(_MIN_REVISION).scalar()
    if isinstance(oldest, int) and REVISION_OFFSET + int(HEAD) >= oldest:
        return _(
            "the store has schema {stored}, which is newer than this version of Chimes ({head})"
            " and still works with it; update this node soon",
            stored=stored,
            head=HEAD,
        )
    raise SchemaMismatch(
        _(
            "the store has schema {stored}, which this version of Chimes (schema {head}) is too old"
            " for: update Chimes on this node",
            stored=stored,
            head=HEAD,
        )
    )


async def migrate(
    engine: Engine, server: Server, progress: Progress, clock: Clock | None
) -> tuple[str | None, str]:
    """Each step is a transaction of its own that can be repeated, so that no lock is held for long
    and a migrator that was killed can be started again."""
    async with _connected(engine) as connection:
        await greenlet_spawn(_prepare, connection, server)
        before = await greenlet_spawn(_migratable_revision, connection)
        if before == HEAD:
            return before, HEAD
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_SECONDS
        await _wait_for_migration_lock(connection, server, deadline)
        while True:
            try:
                await greenlet_spawn(_migrate, connection, server, progress, clock)
            except Exception as error:
                late = loop.time() > deadline
                if (
                    server.error_kind(error) is not DatabaseErrorKind.CONFLICT
                    or _is_permanent(error)
                    or late
                ):
                    raise
                await greenlet_spawn(connection.rollback)
                _log.info("a migration step is waiting for a lock: %s", error)
                await asyncio.sleep(random.uniform(_PAUSE_SECONDS / 2, _PAUSE_SECONDS))  # noqa: S311
            else:
                return before, HEAD


def _prepare(connection: Connection, server: Server) -> None:
    server.prepare_migration(connection)
    connection.commit()


def _migratable_revision(connection: Connection) -> str | None:
    stored = stored_revision(connection)
    connection.commit()
    check_is_known(stored)
    if stored is not None and stored not in REVISIONS and not is_convertible(stored):
        raise SchemaMismatch(
            _(
                "the store has schema {before}, which this version of Chimes (schema {head})"
                " does not know: migrate with the newer one",
                before=stored,
                head=HEAD,
            )
        )
    return stored


def _migrate(
    connection: Connection, server: Server, progress: Progress, clock: Clock | None
) -> None:
    # Another process may have migrated while this one waited for the lock.
    stored = _migratable_revision(connection)
    if is_convertible(stored):
        from chimes.store.sql.migrations.conversion import convert

        now = micros(server.dialect.now(connection, clock))
        connection.commit()
        convert(connection, SERVER_VERSIONS, now, progress)
    elif stored != HEAD:
        server.upgrade(connection)
        connection.commit()


@asynccontextmanager
async def _connected(engine: Engine) -> AsyncIterator[Connection]:
    connection = await greenlet_spawn(engine.connect)
    try:
        yield connection
    finally:
        await greenlet_spawn(connection.close)


def _is_permanent(error: Exception) -> bool:
    """Returns whether a retry would fail again: a unique key conflict persists."""
    return isinstance(error, IntegrityError)


def _lock(connection: Connection, server: Server) -> bool:
    locked = server.lock_migration(connection)
    connection.commit()
    return locked


async def _wait_for_migration_lock(connection: Connection, server: Server, deadline: float) -> None:
    while not await greenlet_spawn(_lock, connection, server):
        if asyncio.get_running_loop().time() > deadline:
            raise StoreUnavailable(_("another process is still migrating this store; try later"))
        await asyncio.sleep(_PAUSE_SECONDS)


T = TypeVar("T")


#: Tries after a conflict, and after a lost connection.
CONFLICT_TRIES = 6
LOST_TRIES = 3
#: No retry starts after this time.
RETRY_SECONDS = 8.0
#: A transaction that takes longer is given up, so that no caller hangs on a server that does not
#: answer.
UNIT_SECONDS = 20.0
#: Maximum age of the cached server time that `approximate_now` uses.
RECENT_SECONDS = 30.0


class Phase(Enum):
    """The phase of a transaction in which its server failed."""

    OPENING = auto()
    READING = auto()
    WRITING = auto()


class ServerDatabase:
    has_single_writer = False

    def __init__(self, server: Server, clock: Clock | None = None) -> None:
        """Without a clock, the server's clock decides; a clock is for tests."""
        self._server = server
        self._clock = clock
        self.known = KnownRows()
        self._elapsed = SystemClock()
        self._wakeup = Wakeup()
        self._pools = LoopPools(server)
        self._channel: WakeChannel | None = None
        self._open = False
        #: The last time read from the server, and the local monotonic time of that.
        self._last_now: tuple[datetime, float] | None = None
        self.counters = Counters()

    async def open(self) -> None:
        self._pools.main = asyncio.get_running_loop()
        self._open = True
        try:
            await self._retry(Phase.OPENING, self._check_schema)
        except BaseException:
            self._open = False
            await self._pools.close()
            raise
        self._channel = WakeChannel(self._server, self.wake)
        self._channel.start()

    async def _check_schema(self) -> None:
        server = self._server
        warning = await self._with_connection(
            self._pools.current().engine,
            lambda connection: check_or_set_up(connection, server),
            bounded=False,
        )
        if warning:
            _log.warning(warning)

    async def migrate(self, progress: Progress | None = None) -> tuple[str | None, str]:
        """Returns the old and new revision. Safe to repeat."""
        self._pools.main = asyncio.get_running_loop()
        self._open = True
        try:
            engine = self._pools.current().engine
            return await migrate(engine, self._server, progress or no_progress, self._clock)
        except StoreError:
            raise
        except Exception as error:
            raise self._translate(error) from error
        finally:
            self._open = False
            await self._pools.close()

    async def close(self) -> None:
        self._open = False
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.stop()
        await self._pools.close()
        self.wake()

    @property
    def dialect(self) -> Dialect:
        return self._server.dialect

    @property
    def location(self) -> str:
        return self._server.location

    @property
    def degraded(self) -> str:
        return ""

    def forget_known(self) -> None:
        self.known.clear()

    def identity(self, connection: Connection) -> str:
        return self._server.identity(connection)

    def error_counts(self) -> Mapping[str, int]:
        return asdict(self.counters)

    # --- waking -------------------------------------------------------------------------------
    def changes(self) -> int:
        return self._wakeup.count

    def wake(self) -> None:
        self._wakeup.wake()

    async def wait(self, since: int, seconds: float | None) -> None:
        await self._wakeup.wait(since, seconds)

    # --- transactions -------------------------------------------------------------------------
    async def now(self) -> datetime:
        if self._clock is not None:
            return self._clock.now()
        before = self._elapsed.monotonic()
        now = await self.query(Tx.now)
        self._last_now = (now, (before + self._elapsed.monotonic()) / 2)
        return now

    async def approximate_now(self) -> datetime:
        if self._clock is None and self._last_now is not None:
            now, at = self._last_now
            passed = self._elapsed.monotonic() - at
            if passed < RECENT_SECONDS:
                return now + timedelta(seconds=passed)
        return await self.now()

    async def query(self, work: Work[T]) -> T:
        return await self._retry(Phase.READING, lambda: self._read(work, alone=True))

    async def read(self, work: Work[T]) -> T:
        return await self._retry(Phase.READING, lambda: self._read(work))

    async def write(self, work: Work[T], *, urgent: bool = False) -> T:
        return await self._commit(_Unit(work, self.dialect, self._clock, self.known))

    async def write_alone(self, work: Work[T]) -> T:
        return await self._commit(_Unit(work, self.dialect, self._clock, self.known, alone=True))

    async def _commit(self, unit: _Unit[T]) -> T:
        answer = await self._retry(Phase.WRITING, lambda: self._write(unit))
        if unit.wakes:
            self.wake()
            if self._channel is not None:
                self._channel.notify()
        return answer

    def snapshot(self) -> AbstractAsyncContextManager[Reader]:
        return self._snapshot()

    @asynccontextmanager
    async def _snapshot(self) -> AsyncIterator[Reader]:
        connection = await self._greenlet(self._pools.current().reading.connect)

        async def read(work: Work[T]) -> T:
            try:
                return await greenlet_spawn(self._run_read, connection, work)
            except Exception as error:
                raise self._translate(error) from error

        try:
            yield read
        finally:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(UNIT_SECONDS):
                    await greenlet_spawn(connection.close)

    async def _read(self, work: Work[T], *, alone: bool = False) -> T:
        pool = self._pools.current()
        engine = pool.querying if alone else pool.reading
        return await self._with_connection(
            engine, lambda connection: self._run_read(connection, work)
        )

    def _run_read(self, connection: Connection, work: Work[T]) -> T:
        return work(Tx(connection, self.dialect, self._clock, self.known, reading=True))

    async def _write(self, unit: _Unit[T]) -> T:
        unit.committing = False
        pool = self._pools.current()
        engine = pool.querying if unit.alone else pool.engine
        try:
            return await self._with_connection(engine, unit.execute)
        except Exception as error:
            if unit.committing and self._is_commit_unknown(error):
                self.counters.ambiguous += 1
                raise StoreUnavailable(
                    _("the answer to a commit was lost: it may have happened or not; repeat it"),
                    code="commit_unknown",
                ) from error
            raise

    def _is_commit_unknown(self, error: Exception) -> bool:
        """Returns whether COMMIT was sent and its result is unknown."""
        if isinstance(error, TimeoutError):
            return True
        lost = self._server.error_kind(error) is DatabaseErrorKind.LOST
        return lost and not self._server.unwritten(error)

    async def _with_connection(
        self,
        engine: Engine,
        use: Callable[[Connection], T],
        *,
        bounded: bool = True,
    ) -> T:
        """Runs everything in one greenlet: SQLAlchemy's asyncio extension creates one per step, and
        imports its ORM."""

        def unit() -> T:
            connection = engine.connect()
            try:
                return use(connection)
            finally:
                # Nothing is lost with a connection that cannot be returned.
                with contextlib.suppress(Exception):
                    connection.close()

        async with asyncio.timeout(UNIT_SECONDS if bounded else None):
            return await self._greenlet(unit)

    async def _greenlet(self, work: Callable[[], T]) -> T:
        if not self._open:
            raise StoreUnavailable(_("the store is not open"))
        try:
            return await greenlet_spawn(work)
        except PoolTimeout as error:
            self.counters.no_connection += 1
            raise StoreUnavailable(_("all connections to the store are in use")) from error

    async def _retry(self, phase: Phase, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retries the whole transaction from the start where it certainly did not commit."""
        started = self._elapsed.monotonic()
        conflicts = losses = 0
        while True:
            try:
                return await attempt()
            except StoreError:
                raise
            except Exception as error:
                error_kind = self._server.error_kind(error)
                if error_kind in (DatabaseErrorKind.LOST, DatabaseErrorKind.READ_ONLY):
                    # Another server may answer next, which lacks the last commits.
                    self.forget_known()
                late = self._elapsed.monotonic() - started > RETRY_SECONDS
                if (
                    error_kind is DatabaseErrorKind.CONFLICT
                    and conflicts < CONFLICT_TRIES - 1
                    and not late
                ):
                    conflicts += 1
                    self.counters.conflicts += 1
                elif error_kind is DatabaseErrorKind.LOST and losses < LOST_TRIES - 1 and not late:
                    losses += 1
                    self.counters.lost += 1
                elif error_kind is None:
                    raise
                else:
                    raise self._translate(error, phase) from error
            await asyncio.sleep(random.uniform(0, 0.01) * 2 ** (conflicts + losses))  # noqa: S311

    def _translate(self, error: Exception, phase: Phase = Phase.READING) -> Exception:
        error_kind = self._server.error_kind(error)
        if error_kind is None:
            return error
        reason = str(getattr(error, "orig", None) or error) or type(error).__name__
        if error_kind is DatabaseErrorKind.READ_ONLY:
            return StoreReadOnly(
                _("store_read_only: the store takes no writes: {reason}", reason=reason),
                code="store_read_only",
            )
        return StoreUnavailable(_unavailable(phase, reason))


def _unavailable(phase: Phase, reason: str) -> str:
    match phase:
        case Phase.OPENING:
            return _("cannot open: {reason}", reason=reason)
        case Phase.READING:
            return _("cannot read: {reason}", reason=reason)
        case Phase.WRITING:
            return _("cannot write: {reason}", reason=reason)


class _Unit(Generic[T]):
    """The transaction of one operation. May be executed several times, until it is committed."""

    def __init__(
        self,
        work: Work[T],
        dialect: Dialect,
        clock: Clock | None,
        known: KnownRows,
        *,
        alone: bool = False,
    ) -> None:
        """`alone`: a single statement that commits by itself."""
        self._work = work
        self._dialect = dialect
        self._clock = clock
        self._known = known
        self.alone = alone
        self.committing = False
        self.wakes = False
        self._tries = 0

    def execute(self, connection: Connection) -> T:
        self._tries += 1
        first = self._tries == 1
        tx = Tx(connection, self._dialect, self._clock, self._known, repeats_conflicts=first)
        self.committing = self.alone
        answer = self._work(tx)
        self.committing = True
        connection.commit()
        self.wakes = tx.wakes
        return answer
