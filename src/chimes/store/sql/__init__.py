"""Stores on SQL databases: SQLite, PostgreSQL and MariaDB."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from chimes.clock import Clock
from chimes.envelope import KEY_FILE, NO_KEYS, Keyring
from chimes.errors import ConfigError
from chimes.i18n import _
from chimes.store.sql.store import SqlStore

__all__ = ["SqlStore", "open_mariadb", "open_postgres", "open_sqlite"]


def open_sqlite(
    path: str | Path, *, clock: Clock | None = None, keyring: Keyring | None = None
) -> SqlStore:
    """Creates a store in a SQLite file, shared by the processes of one host. Call `open()` before
    use. Without a keyring the keys are in a file beside it."""
    # Imported here, because a node needs only one dialect and its driver.
    from chimes.store.sql.database.sqlite import SqliteDatabase

    keyring = keyring or Keyring(file=Path(path).absolute().parent / KEY_FILE)
    return SqlStore(SqliteDatabase(Path(path), clock), keyring)


def open_postgres(url: str, *, clock: Clock | None = None, keyring: Keyring = NO_KEYS) -> SqlStore:
    """Creates a store on a PostgreSQL server, shared by all nodes. Call `open()` before use. The
    server's clock decides, unless a test passes a clock."""
    _need("asyncpg", extra="postgres")
    from chimes.store.sql.database.postgres import PostgresServer
    from chimes.store.sql.database.server import ServerDatabase

    return SqlStore(ServerDatabase(PostgresServer(url), clock), keyring)


def open_mariadb(url: str, *, clock: Clock | None = None, keyring: Keyring = NO_KEYS) -> SqlStore:
    """Creates a store on a MariaDB server, 10.6 or newer. Call `open()` before use."""
    _need("asyncmy", extra="mysql")
    from chimes.store.sql.database.mariadb import MariadbServer
    from chimes.store.sql.database.server import ServerDatabase

    return SqlStore(ServerDatabase(MariadbServer(url), clock), keyring)


def _need(driver: str, *, extra: str) -> None:
    if find_spec(driver) is None:
        raise ConfigError(
            _(
                "store: its driver, {driver}, is not installed: pip install 'chimes[{extra}]'",
                driver=driver,
                extra=extra,
            ),
            key="store",
        )
