"""Working inside the caller's own transaction: if it commits, it has happened; if not, not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from chimes.app.enqueuing import wanted_run
from chimes.app.runtime import Runtime
from chimes.app.tasks import EnqueueOptions
from chimes.clock import Clock
from chimes.errors import InvalidInput
from chimes.model.ids import RunId
from chimes.service.orders import Order
from chimes.store.sql import SqlStore
from chimes.store.sql.dialects.base import Dialect
from chimes.store.sql.joining import add_run_in
from chimes.wording import say

T = TypeVar("T")
FORMS = say(
    "a SQLAlchemy Connection, Session, AsyncConnection or AsyncSession, or an asyncpg connection"
)
#: How the dialects of SQLAlchemy are called here.
_SAME = {"mysql": "mariadb"}
#: What is done on the connection, with the store's dialect and clock.
Work = Callable[[Connection, Dialect, Clock | None], T]


async def enqueue_in(runtime: Runtime, order: Order, options: EnqueueOptions) -> RunId:
    """InvalidInput if the connection cannot take the run along."""
    make = partial(wanted_run, order, options)

    def add(connection: Connection, dialect: Dialect, clock: Clock | None) -> RunId:
        return add_run_in(connection, dialect, clock, make).id

    return await joined(runtime, options.connection, add)


def joined(
    runtime: Runtime, given: object, work: Work[T], *, own_driver: bool = False
) -> Awaitable[T]:
    """The work on the caller's connection: at once where it blocks, else when awaited.
    `own_driver`: the work has statements that only the store's own driver takes."""
    store = runtime.services.store
    if not isinstance(store, SqlStore):
        raise _refused(say("the store ({kind}) is no SQL database", kind=runtime.location.kind))
    # A server has a clock of its own (C21).
    clock = runtime.clock if runtime.location.kind == "sqlite" else None
    on = _On(store.dialect, clock, work, own_driver=own_driver)
    match given:
        case Session() | scoped_session():
            return _Done(on(given.connection()))
        case Connection():
            _check_open(given.in_transaction())
            return _Done(on(given))
        case AsyncConnection():
            _check_open(given.in_transaction())
            return given.run_sync(on)
        case AsyncSession() | async_scoped_session():
            return _in_session(given, on)
    return _in_asyncpg(runtime, given, on)


async def _in_session(session: AsyncSession | async_scoped_session[AsyncSession], on: _On[T]) -> T:
    connection = await session.connection()
    return await connection.run_sync(on)


async def _in_asyncpg(runtime: Runtime, given: object, on: _On[T]) -> T:
    from chimes.app.raw_asyncpg import in_transaction, is_asyncpg, with_raw

    if not is_asyncpg(given):
        raise _refused(say("it is {type}, not {forms}", type=type(given).__name__, forms=FORMS))
    if runtime.location.kind != "postgresql":
        raise _refused(say("the store is on {kind}, not on PostgreSQL", kind=runtime.location.kind))
    _check_open(in_transaction(given))
    return await with_raw(given, on.work_on)


class _On(Generic[T]):
    def __init__(
        self, dialect: Dialect, clock: Clock | None, work: Work[T], *, own_driver: bool
    ) -> None:
        self._dialect = dialect
        self._clock = clock
        self._work = work
        self._own_driver = own_driver

    def __call__(self, connection: Connection) -> T:
        theirs = connection.dialect
        name = _SAME.get(theirs.name, theirs.name)
        if name != self._dialect.name:
            raise _refused(
                say(
                    "it is on {name}, and the store on {other}",
                    name=name,
                    other=self._dialect.name,
                )
            )
        if self._own_driver and name == "postgresql" and theirs.driver != "asyncpg":
            raise _refused(
                say("its driver is {driver}; here only asyncpg will do", driver=theirs.driver)
            )
        if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
            raise _refused(
                say("it commits by itself (AUTOCOMMIT), so there is no transaction to join")
            )
        try:
            return self.work_on(connection)
        except DBAPIError as error:
            raise _unknown_table(error) from error

    def work_on(self, connection: Connection) -> T:
        return self._work(connection, self._dialect, self._clock)


@dataclass(frozen=True, slots=True)
class _Done(Generic[T]):
    """What is done already may be awaited or not."""

    answer: T

    def __await__(self) -> Generator[None, None, T]:
        yield from ()
        return self.answer


def _check_open(in_transaction: bool) -> None:
    if not in_transaction:
        raise _refused(say("no transaction is open on it"))


def _unknown_table(error: DBAPIError) -> Exception:
    """The commonest mistake, in words."""
    text = str(error.orig).lower()
    if "runs" in text and ("exist" in text or "no such table" in text):
        return _refused(say("it does not reach the store: {error}", error=str(error.orig)))
    return error


def _refused(why: str) -> InvalidInput:
    return InvalidInput(say("connection: {why}", why=why), field="connection", code="cannot_join")
