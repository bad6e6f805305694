"""MariaDB behind a `ServerDatabase`: connections, sessions, set-up and migration."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import asyncmy.errors
from asyncmy.constants import CR
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from chimes.errors import ConfigError, SchemaMismatch, StoreUnavailable
from chimes.store.sql.dialects.mariadb import MariadbDialect
from chimes.store.sql.mariadb_errors import trouble_of
from chimes.store.sql.mariadb_migration import bring_up_to_date
from chimes.store.sql.mariadb_wakeups import MariadbNotices
from chimes.store.sql.server import (
    CONNECT_SECONDS,
    IDLE_SECONDS,
    LOCK_SECONDS,
    POOL_SECONDS,
    STATEMENT_SECONDS,
    Server,
    Trouble,
)
from chimes.wording import say

_log = logging.getLogger(__name__)

_SCHEMES = ("mariadb", "mysql", "mariadb+asyncmy", "mysql+asyncmy")
#: SKIP LOCKED and JSON_TABLE.
OLDEST_SERVER = (10, 6)

# F17, S18: what a session may hold on to, and that text and numbers are taken as they are or not
# at all. `lock_wait_timeout` is for tables that are just being changed; a day is its default.
_SESSION = (
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET NAMES utf8mb4 COLLATE utf8mb4_nopad_bin",
    "SET SESSION time_zone = '+00:00', sql_notes = 0,"
    " sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION',"
    f" idle_transaction_timeout = {IDLE_SECONDS}, max_statement_time = {STATEMENT_SECONDS},"
    f" innodb_lock_wait_timeout = {LOCK_SECONDS}, lock_wait_timeout = {LOCK_SECONDS}",
)
GALERA = say(
    "the store is a Galera cluster: all nodes have to use the same one of its servers, for with"
    " several writers it may lose updates"
)
#: For the next transaction only, so that nothing has to be set back.
_ONE_STATE = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
#: Server-wide, so the database is in its name; a name has at most 64 characters.
_LOCK = "CONCAT('chimes.', MD5(DATABASE()))"
_LONGEST_SET_UP = 120


class MariadbServer(Server):
    def __init__(self, url: str) -> None:
        """What the query of the URL says goes to the driver."""
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
            # Without its read_timeout: that waits with wait_for, which may swallow being canceled,
            # and units are bounded as a whole (F24).
            connect_args={"async_creator_fn": _connect},
            pool_size=size,
            max_overflow=overflow,
            pool_timeout=POOL_SECONDS,
            # Those least used are the ones that a lull lets go cold.
            pool_use_lifo=True,
        )
        # Before SQLAlchemy looks at the server in its own way, and after it has named the charset.
        event.listen(engine, "connect", self._look_at_server, insert=True)
        event.listen(engine, "connect", _begin_session)
        return engine

    def reading(self, engine: Engine) -> Engine:
        reading = engine.execution_options()
        event.listen(reading, "begin", _see_one_state)
        return reading

    def _look_at_server(self, driver: Any, _record: object) -> None:
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
    def trouble(self, error: BaseException) -> Trouble | None:
        return trouble_of(error)

    # --- set-up and migration -----------------------------------------------------------------
    def lock_set_up(self, connection: Connection) -> None:
        """`upgrade` does it: a lock of MariaDB would stay with the connection in its pool."""

    def lock_migration(self, connection: Connection) -> bool:
        return connection.exec_driver_sql(f"SELECT GET_LOCK({_LOCK}, 0)").scalar() == 1

    def prepare_migration(self, connection: Connection) -> None:
        connection.exec_driver_sql(
            "SET SESSION max_statement_time = 0,"
            " lock_wait_timeout = 2, innodb_lock_wait_timeout = 2"
        )

    def upgrade(self, connection: Connection, *, online: bool = False) -> None:
        with _locked(connection):
            if not online:
                connection.exec_driver_sql("SET SESSION max_statement_time = 0")
            bring_up_to_date(connection)
            if not online:
                limit = f"SET SESSION max_statement_time = {STATEMENT_SECONDS}"
                connection.exec_driver_sql(limit)

    def identity(self, connection: Connection) -> str:
        row = connection.exec_driver_sql("SELECT @@hostname, @@port, @@server_id").one()
        return "/".join(str(each) for each in row)

    # --- waking -------------------------------------------------------------------------------
    async def notices(self, heard: Callable[[], None]) -> MariadbNotices:
        connection = await connected(
            self._url,
            autocommit=True,
            init_command=f"SET SESSION max_statement_time = {LOCK_SECONDS}",
        )
        return await MariadbNotices.over(connection, heard)


def normalized(url: str) -> URL:
    """The URL as SQLAlchemy reads it; `mysql://` means a MariaDB all the same."""
    scheme, _, rest = url.partition("://")
    if scheme not in _SCHEMES or not rest:
        raise ConfigError(
            say("{scheme}:// is not a MariaDB URL; write mariadb://host/database", scheme=scheme)
        )
    try:
        made = make_url(f"mariadb+asyncmy://{rest}")
    except (ArgumentError, ValueError) as error:
        raise ConfigError(say("store: not a MariaDB URL: {error}", error=str(error))) from None
    if not made.database:
        raise ConfigError(
            say("store: the MariaDB URL names no database; write mariadb://host/database")
        )
    return made


def check_version(version: str) -> None:
    """Raises SchemaMismatch for a server that cannot do what the statements need."""
    # A replica of old protocols says "5.5.5-10.6.12-MariaDB".
    numbers = re.search(r"(\d+)\.(\d+)\.\d+-MariaDB", version, re.IGNORECASE)
    if numbers is None:
        raise SchemaMismatch(
            say(
                "the server is not MariaDB but {version}; Chimes needs MariaDB 10.6",
                version=version,
            )
        )
    if (int(numbers[1]), int(numbers[2])) < OLDEST_SERVER:
        raise SchemaMismatch(
            say("the server is MariaDB {version}; Chimes needs 10.6 or newer", version=version)
        )


async def connected(url: URL, **given: Any) -> Any:
    """A connection of the driver itself, outside of any pool."""
    at = url.translate_connect_args(username="user", database="db")
    return await _connect(**at, **url.query, **given)


async def _connect(**given: Any) -> Any:
    """The driver bounds only the first step of it (F24), and where the server hangs up at once it
    stumbles in its own code."""
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await asyncmy.connect(**given)
    except (RuntimeError, AttributeError, IndexError) as error:
        message = say("the server hung up on a new connection ({error})", error=str(error))
        raise asyncmy.errors.OperationalError(CR.CR_SERVER_LOST, message) from error


def _begin_session(driver: Any, _record: object) -> None:
    cursor = driver.cursor()
    try:
        for statement in _SESSION:
            cursor.execute(statement)
    finally:
        cursor.close()


def _see_one_state(connection: Connection) -> None:
    connection.exec_driver_sql(_ONE_STATE)


@contextlib.contextmanager
def _locked(connection: Connection) -> Iterator[None]:
    """One at a time sets this database up; the lock is counted, so that a migrator may have it
    already."""
    got = connection.exec_driver_sql(f"SELECT GET_LOCK({_LOCK}, {_LONGEST_SET_UP})").scalar()
    if got != 1:
        raise StoreUnavailable(say("somebody else has been setting up this store for long"))
    try:
        yield
    finally:
        connection.exec_driver_sql(f"SELECT RELEASE_LOCK({_LOCK})")
