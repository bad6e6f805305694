"""Enqueueing inside the caller's own transaction: if it commits, the run is there; if not, not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from chimes.app.enqueuing import wanted_run
from chimes.app.runtime import Runtime
from chimes.app.tasks import EnqueueOptions
from chimes.errors import InvalidInput
from chimes.model.ids import RunId
from chimes.model.run import Run
from chimes.service.orders import Order
from chimes.store.sql import SqlStore
from chimes.store.sql.joining import add_run_in

FORMS = (
    "a SQLAlchemy Connection, Session, AsyncConnection or AsyncSession, or an asyncpg connection"
)
#: How the dialects of SQLAlchemy are called here.
_SAME = {"mysql": "mariadb"}


async def enqueue_in(runtime: Runtime, order: Order, options: EnqueueOptions) -> RunId:
    """InvalidInput if the connection cannot take the run along."""
    store = runtime.services.store
    if not isinstance(store, SqlStore):
        raise _refused(f"the store ({runtime.location.kind}) is no SQL database")
    add = _Adding(store, runtime, partial(wanted_run, order, options))
    given = options.connection
    try:
        match given:
            case AsyncSession() | async_scoped_session():
                connection = await given.connection()
                return (await connection.run_sync(add)).id
            case AsyncConnection():
                _check_open(given.in_transaction())
                return (await given.run_sync(add)).id
            case Session() | scoped_session():
                return add(given.connection()).id
            case Connection():
                _check_open(given.in_transaction())
                return add(given).id
    except DBAPIError as error:
        raise _unknown_table(error) from error
    return await _in_asyncpg(runtime, given, add)


async def _in_asyncpg(runtime: Runtime, given: object, add: _Adding) -> RunId:
    from chimes.app.raw_asyncpg import in_transaction, is_asyncpg, with_raw

    if not is_asyncpg(given):
        raise _refused(f"it is {type(given).__name__}, not {FORMS}")
    if runtime.location.kind != "postgresql":
        raise _refused(f"the store is on {runtime.location.kind}, not on PostgreSQL")
    _check_open(in_transaction(given))
    return (await with_raw(given, add.checked)).id


class _Adding:
    def __init__(self, store: SqlStore, runtime: Runtime, make: Callable[[datetime], Run]) -> None:
        self._store = store
        # A server has a clock of its own (C21).
        self._clock = runtime.clock if runtime.location.kind == "sqlite" else None
        self._make = make

    def __call__(self, connection: Connection) -> Run:
        name = _SAME.get(connection.dialect.name, connection.dialect.name)
        if name != self._store.dialect.name:
            raise _refused(f"it is on {name}, and the store on {self._store.dialect.name}")
        if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
            raise _refused("it commits by itself (AUTOCOMMIT), so there is no transaction to join")
        return self.checked(connection)

    def checked(self, connection: Connection) -> Run:
        return add_run_in(connection, self._store.dialect, self._clock, self._make)


def _check_open(in_transaction: bool) -> None:
    if not in_transaction:
        raise _refused("no transaction is open on it")


def _unknown_table(error: DBAPIError) -> Exception:
    """The commonest mistake, in words."""
    text = str(error.orig).lower()
    if "runs" in text and ("exist" in text or "no such table" in text):
        return _refused(f"it does not reach the store: {error.orig}")
    return error


def _refused(why: str) -> InvalidInput:
    return InvalidInput(f"connection: {why}", field="connection", code="cannot_join")
