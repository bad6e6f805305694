"""MariaDB server: connections, sessions, error mapping, wake-ups, set-up and migration."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any, Self

import asyncmy.errors
from asyncmy.constants import CR
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from chimes.errors import ConfigError, SchemaMismatch, StoreUnavailable
from chimes.i18n import _
from chimes.store.sql.database.server import (
    CONNECT_SECONDS,
    IDLE_SECONDS,
    LOCK_SECONDS,
    POOL_SECONDS,
    STATEMENT_SECONDS,
    DatabaseErrorKind,
    Server,
)
from chimes.store.sql.dialects.mariadb import MariadbDialect, error_number, is_driver_error

# Error codes of MariaDB and its driver.

#: Deadlock, lock wait (also for a table that is being altered), a row that changed under a snapshot
#: (from 11.6.2), a duplicate key, a table that changed since the transaction began.
_CONFLICT = {1213, 1205, 1020, 1062, 1412}
#: `read_only`, a read-only transaction, a server in read-only mode.
_READ_ONLY = {1290, 1792, 1836}
#: Gone, lost, killed, shutting down, broken packets, closed for being idle.
_LOST = {2006, 2013, 2014, 2027, 2055, 1053, 1152, 1184, 1927, 1156, 1157, 1158, 1159, 1160, 1161}
_REFUSED = {
    # Not reachable, or not in time.
    *(2002, 2003, 2005, 1042, 1043, 1129, 1130),
    # Too many connections, no memory, over a quota.
    *(1040, 1203, 1226, 1037, 1038, 1041),
    # Wrong user, password or database, missing rights.
    *(1044, 1045, 1049, 1142, 1143, 1227, 1370, 1698),
    # Disk full or broken, not ready (Galera).
    *(1021, 1026, 1030, 1114, 1047),
    # Took too long, or was killed manually.
    *(1317, 1969, 3024, 1028, 1078),
}


def error_kind_of(error: BaseException) -> DatabaseErrorKind | None:
    """Also checks the causes of the error."""
    cause: BaseException | None = error
    while cause is not None:
        found = _error_kind_of_one(cause)
        if found is not None:
            return found
        cause = getattr(cause, "orig", None) or cause.__cause__
    return None


def _error_kind_of_one(error: BaseException) -> DatabaseErrorKind | None:
    match error:
        case TimeoutError() | ConnectionRefusedError() | socket.gaierror():
            return DatabaseErrorKind.REFUSED
        case OSError() | EOFError():
            return DatabaseErrorKind.LOST
        case RuntimeError() if "ransport" in str(error):
            return DatabaseErrorKind.LOST  # raised by an event loop for a closed connection
    number = error_number(error)
    if number in _CONFLICT:
        return DatabaseErrorKind.CONFLICT
    if number in _READ_ONLY:
        return DatabaseErrorKind.READ_ONLY
    if number in _LOST or (number == 0 and is_driver_error(error)):
        # The driver uses number 0 for a connection that is closed or out of step.
        return DatabaseErrorKind.LOST
    return DatabaseErrorKind.REFUSED if number in _REFUSED else None


# Wake-ups between processes on MariaDB, which has no LISTEN and NOTIFY.
#
# A counter row is incremented by processes that created work for others, and is read by all
# processes five times a second: reading one row by its key takes the server a tenth of a
# millisecond. The increment happens after the commit, on the polling connection, and at most once
# per poll, so that no transaction waits for that row and a busy node adds only a few commits a
# second. Changes through the view are in `sql_changes`, whose last number is read in the same
# statement.

#: Polling interval.
POLL_SECONDS = 0.2
#: A server that does not answer for this long counts as gone.
ANSWER_SECONDS = 10.0

_READ_COUNTERS = (
    "SELECT (SELECT `count` FROM wakeups WHERE id = 1), (SELECT MAX(id) FROM sql_changes)"
)
#: LAST_INSERT_ID returns the new number with the answer.
_INCREMENT = "UPDATE wakeups SET `count` = LAST_INSERT_ID(`count` + 1) WHERE id = 1"

WakeState = tuple[int, int | None]


class MariadbWakeConnection:
    def __init__(self, connection: Any, on_wake: Callable[[], None], state: WakeState) -> None:
        self.lost = asyncio.Event()
        self._connection = connection
        self._on_wake = on_wake
        self._state = state
        self._pending = asyncio.Event()
        self._poll_task = asyncio.create_task(self._poll(), name="chimes wake-ups")

    @classmethod
    async def open(cls, connection: Any, on_wake: Callable[[], None]) -> Self:
        try:
            return cls(connection, on_wake, await _read_counters(connection))
        except BaseException:
            connection.close()
            raise

    async def notify(self) -> None:
        """Sends immediately, or with the next poll."""
        self._pending.set()

    async def close(self) -> None:
        self._poll_task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._poll_task
        self._connection.close()

    async def _poll(self) -> None:
        try:
            while True:
                # Not wait_for, which may swallow a cancellation.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS):
                        await self._pending.wait()
                if self._pending.is_set():
                    self._pending.clear()
                    await self._increment()
                    await asyncio.sleep(POLL_SECONDS)
                state = await _read_counters(self._connection)
                if state != self._state:
                    self._state = state
                    self._on_wake()
        except Exception:
            self.lost.set()

    async def _increment(self) -> None:
        """A process does not wake itself by its own increment."""
        async with asyncio.timeout(ANSWER_SECONDS), self._connection.cursor() as cursor:
            await cursor.execute(_INCREMENT)
            number = int(cursor.lastrowid)
        if number == self._state[0] + 1:
            self._state = (number, self._state[1])


async def _read_counters(connection: Any) -> WakeState:
    async with asyncio.timeout(ANSWER_SECONDS), connection.cursor() as cursor:
        await cursor.execute(_READ_COUNTERS)
        count, last = await cursor.fetchone()
    return int(count), last


_log = logging.getLogger(__name__)

_SCHEMES = ("mariadb", "mysql", "mariadb+asyncmy", "mysql+asyncmy")
#: The oldest version with SKIP LOCKED and JSON_TABLE.
OLDEST_SERVER = (10, 6)

# Limits how long a session may hold resources, and rejects text and numbers that cannot be stored
# exactly. `lock_wait_timeout` applies to tables that are being altered; its default is a day.
_SESSION = (
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET NAMES utf8mb4 COLLATE utf8mb4_nopad_bin",
    "SET SESSION time_zone = '+00:00', sql_notes = 0,"
    " sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION',"
    f" idle_transaction_timeout = {IDLE_SECONDS}, max_statement_time = {STATEMENT_SECONDS},"
    f" innodb_lock_wait_timeout = {LOCK_SECONDS}, lock_wait_timeout = {LOCK_SECONDS}",
)
GALERA = _(
    "the store is a Galera cluster: all nodes have to use the same one of its servers, for with"
    " several writers it may lose updates"
)
#: Applies to the next transaction only, so that nothing has to be reset.
_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
#: Named locks are server-wide, so the name contains the database; a name has at most 64 characters.
_LOCK = "CONCAT('chimes.', MD5(DATABASE()))"
_LONGEST_SET_UP = 120


class MariadbServer(Server):
    def __init__(self, url: str) -> None:
        """The query part of the URL goes to the driver."""
        self.dialect = MariadbDialect()
        self._url = normalized(url)
        shown = URL.create(
            "mariadb", self._url.username, None, self._url.host, self._url.port, self._url.database
        )
        self.location = shown.render_as_string()
        self._checked = False

    # --- connections --------------------------------------------------------------------------
    def engine(self, *, size: int, overflow: int) -> Engine:
        engine = create_engine(
            self._url,
            # Without read_timeout: the driver implements it with wait_for, which may swallow a
            # cancellation. Transactions have a timeout as a whole.
            connect_args={"async_creator_fn": _connect},
            pool_size=size,
            max_overflow=overflow,
            pool_timeout=POOL_SECONDS,
            # LIFO, so that the least used connections expire when there is little to do.
            pool_use_lifo=True,
        )
        # Before SQLAlchemy inspects the server, and after it has set the charset.
        event.listen(engine, "connect", self._check_server, insert=True)
        event.listen(engine, "connect", _begin_session)
        return engine

    def reading(self, engine: Engine) -> Engine:
        reading = engine.execution_options()
        event.listen(reading, "begin", _use_snapshot)
        return reading

    def _check_server(self, driver: Any, _record: object) -> None:
        if self._checked:
            return
        cursor = driver.cursor()
        try:
            cursor.execute("SELECT VERSION()")
            check_version(cursor.fetchone()[0])
            cursor.execute("SELECT @@wsrep_on, @@wsrep_provider")
            on, provider = cursor.fetchone()
        finally:
            cursor.close()
        if on and provider not in ("", "none"):
            _log.warning(GALERA)
        self._checked = True

    # --- errors -------------------------------------------------------------------------------
    def error_kind(self, error: BaseException) -> DatabaseErrorKind | None:
        return error_kind_of(error)

    # --- set-up and migration -----------------------------------------------------------------
    def lock_set_up(self, connection: Connection) -> None:
        """`upgrade` takes the lock: a named lock of MariaDB would stay with the pooled
        connection."""

    def lock_migration(self, connection: Connection) -> bool:
        return connection.exec_driver_sql(f"SELECT GET_LOCK({_LOCK}, 0)").scalar() == 1

    def prepare_migration(self, connection: Connection) -> None:
        connection.exec_driver_sql(
            "SET SESSION max_statement_time = 0,"
            " lock_wait_timeout = 2, innodb_lock_wait_timeout = 2"
        )

    def upgrade(self, connection: Connection) -> None:
        """Every statement commits by itself and can be repeated."""
        with _locked(connection):
            limit = connection.exec_driver_sql("SELECT @@SESSION.max_statement_time").scalar()
            connection.exec_driver_sql("SET SESSION max_statement_time = 0")
            super().upgrade(connection)
            connection.commit()
            connection.exec_driver_sql(f"SET SESSION max_statement_time = {limit}")

    def identity(self, connection: Connection) -> str:
        row = connection.exec_driver_sql("SELECT @@hostname, @@port, @@server_id").one()
        return "/".join(str(each) for each in row)

    # --- waking -------------------------------------------------------------------------------
    async def wake_connection(self, on_wake: Callable[[], None]) -> MariadbWakeConnection:
        connection = await open_connection(
            self._url,
            autocommit=True,
            init_command=f"SET SESSION max_statement_time = {LOCK_SECONDS}",
        )
        return await MariadbWakeConnection.open(connection, on_wake)


def normalized(url: str) -> URL:
    """Parses the URL with SQLAlchemy; `mysql://` means a MariaDB server as well."""
    scheme, _unused, rest = url.partition("://")
    if scheme not in _SCHEMES or not rest:
        raise ConfigError(
            _("{scheme}:// is not a MariaDB URL; write mariadb://host/database", scheme=scheme)
        )
    try:
        parsed = make_url(f"mariadb+asyncmy://{rest}")
    except (ArgumentError, ValueError) as error:
        raise ConfigError(_("store: not a MariaDB URL: {error}", error=str(error))) from None
    if not parsed.database:
        raise ConfigError(
            _("store: the MariaDB URL names no database; write mariadb://host/database")
        )
    return parsed


def check_version(version: str) -> None:
    """Raises SchemaMismatch for a server that does not support the statements."""
    # A replica with an old protocol returns "5.5.5-10.6.12-MariaDB".
    numbers = re.search(r"(\d+)\.(\d+)\.\d+-MariaDB", version, re.IGNORECASE)
    if numbers is None:
        raise SchemaMismatch(
            _(
                "the server is not MariaDB but {version}; Chimes needs MariaDB 10.6",
                version=version,
            )
        )
    if (int(numbers[1]), int(numbers[2])) < OLDEST_SERVER:
        raise SchemaMismatch(
            _("the server is MariaDB {version}; Chimes needs 10.6 or newer", version=version)
        )


async def open_connection(url: URL, **options: Any) -> Any:
    """Opens a connection of the driver outside of any pool."""
    at = url.translate_connect_args(username="user", database="db")
    return await _connect(**at, **url.query, **options)


async def _connect(**options: Any) -> Any:
    """The driver limits only the first step of connecting, and raises internal errors when the
    server hangs up immediately."""
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await asyncmy.connect(**options)
    except (RuntimeError, AttributeError, IndexError) as error:
        message = _("the server closed a new connection ({error})", error=str(error))
        raise asyncmy.errors.OperationalError(CR.CR_SERVER_LOST, message) from error


def _begin_session(driver: Any, _record: object) -> None:
    cursor = driver.cursor()
    try:
        for statement in _SESSION:
            cursor.execute(statement)
    finally:
        cursor.close()


def _use_snapshot(connection: Connection) -> None:
    connection.exec_driver_sql(_SNAPSHOT)


@contextlib.contextmanager
def _locked(connection: Connection) -> Iterator[None]:
    """Only one process sets up the database at a time. The lock is reentrant, so that a migrator
    may hold it already."""
    got = connection.exec_driver_sql(f"SELECT GET_LOCK({_LOCK}, {_LONGEST_SET_UP})").scalar()
    if got != 1:
        raise StoreUnavailable(_("another process is still setting up this store; try later"))
    try:
        yield
    finally:
        connection.exec_driver_sql(f"SELECT RELEASE_LOCK({_LOCK})")
