"""Inspects a database server for `chimes doctor` without changing anything."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, text
from sqlalchemy.util import greenlet_spawn

from chimes.clock import SystemClock
from chimes.errors import StoreError, StoreUnavailable
from chimes.i18n import _, joined
from chimes.store.sql.database.server import Server, stored_revision
from chimes.store.sql.migrations import CONVERTING, HEAD

_SECONDS = 10.0
_POSTGRES = text(
    "SELECT version(), current_setting('default_transaction_isolation'),"
    " current_setting('transaction_read_only') = 'on', now() AT TIME ZONE 'UTC'"
)
_MARIADB = text("SELECT VERSION(), @@tx_isolation, @@global.read_only <> 0, UTC_TIMESTAMP(6)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Inspection:
    #: Without a password.
    location: str
    version: str
    isolation: str
    read_only: bool
    #: None: the database is empty.
    revision: str | None
    head: str
    #: A conversion of the tables is not complete.
    converting: bool
    #: By how much this machine's clock is ahead of the server's.
    clock_offset: float


async def inspect_server(server: Server) -> Inspection:
    """Raises SchemaMismatch for tables of another application, StoreUnavailable without an
    answer."""
    engine = server.engine(size=1, overflow=0)

    def run() -> Inspection:
        with engine.connect() as connection:
            return _inspect(connection, server)

    try:
        async with asyncio.timeout(_SECONDS):
            return await greenlet_spawn(run)
    except StoreError:
        raise
    except TimeoutError:
        raise StoreUnavailable(
            _("{location} has not answered in time", location=server.location)
        ) from None
    except Exception as error:
        if server.error_kind(error) is None:
            raise
        reason = getattr(error, "orig", None) or error
        raise StoreUnavailable(joined(": ", (server.location, str(reason)))) from None
    finally:
        await greenlet_spawn(engine.dispose)


def _inspect(connection: Connection, server: Server) -> Inspection:
    statement = _POSTGRES if connection.dialect.name == "postgresql" else _MARIADB
    before = SystemClock().now()
    version, isolation, read_only, server_time = connection.execute(statement).one()
    after = SystemClock().now()
    assert isinstance(server_time, datetime)
    middle = before + (after - before) / 2
    return Inspection(
        location=server.location,
        version=str(version).partition(" on ")[0],
        isolation=str(isolation).lower().replace("-", " "),
        read_only=bool(read_only),
        revision=(revision := stored_revision(connection)),
        head=HEAD,
        converting=revision == CONVERTING,
        clock_offset=(middle - server_time.replace(tzinfo=UTC)).total_seconds(),
    )
