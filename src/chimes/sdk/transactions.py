"""Enqueues and completes runs inside a transaction of the caller."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections import namedtuple
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib import import_module
from typing import Any, Generic, TypeVar, cast

from sqlalchemy import Connection
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.util import await_only, greenlet_spawn

from chimes.clock import Clock
from chimes.errors import Conflict, InvalidInput
from chimes.i18n import _
from chimes.model.ids import NodeId, RunId
from chimes.model.run import Attempt, AttemptEnd, Completion, Run, RunStatus
from chimes.runtime.composition import Runtime
from chimes.store.sql import SqlStore
from chimes.store.sql.dialects.base import Dialect
from chimes.store.sql.joined_transaction import add_run_in, complete_run_in
from chimes.store.sql.tables import concurrency_keys, definitions, runs
from chimes.targets.base import Call

T = TypeVar("T")


# --- connections of drivers -----------------------------------------------------------------------
async def run_on_asyncpg(raw: Any, work: Callable[[Connection], T]) -> T:
    """Runs synchronous `work` whose statements go to the asyncpg connection."""
    connection = cast(Connection, _AsyncpgConnection(raw, _dialect("asyncpg")))
    return cast(T, await greenlet_spawn(work, connection))


class _DriverConnection(ABC):
    """A connection of a driver with the methods of a SQLAlchemy connection that the store uses.

    SQLAlchemy could adopt the connection, but would then change it (type codecs, a rollback at the
    first use), and the connection belongs to the caller. So SQLAlchemy only compiles the
    statements.
    """

    def __init__(self, raw: Any, dialect: Any) -> None:
        self._raw = raw
        self._dialect = dialect

    def execute(self, statement: Any, given: Any = None) -> _Result:
        if isinstance(given, list):
            results = [self.execute(statement, each) for each in given]
            return _Result([], sum(result.rowcount for result in results))
        columns = list(given) if given else None
        compiled = statement.compile(dialect=self._dialect, column_keys=columns)
        values = compiled.construct_params(given, escape_names=False)
        processors = compiled._bind_processors
        bound = {
            name: processors[name](value) if name in processors else value
            for name, value in values.items()
        }
        if not compiled.positional:
            return self._send(str(compiled), bound)
        return self._send(str(compiled), [bound[name] for name in compiled.positiontup or ()])

    def exec_driver_sql(self, statement: str, given: Sequence[object] = ()) -> _Result:
        return self._send(statement, given)

    @abstractmethod
    def _send(self, statement: str, given: Sequence[object] | Mapping[str, object]) -> _Result: ...


class _DbapiConnection(_DriverConnection):
    """A connection of sqlite3 or psycopg, for example that of Django."""

    def __init__(self, raw: Any, driver: str) -> None:
        super().__init__(raw, _dialect(driver))
        self._error: type[Exception] = import_module(driver).Error
        self._numbered = driver != "sqlite3"

    def exec_driver_sql(self, statement: str, given: Sequence[object] = ()) -> _Result:
        if not self._numbered or not given:
            return super().exec_driver_sql(statement, given)
        # Statements of the store number their parameters, as asyncpg does.
        named = re.sub(r"\$(\d+)", r"%(p\1)s", statement.replace("%", "%%"))
        return self._send(named, {f"p{at}": value for at, value in enumerate(given, 1)})

    def _send(self, statement: str, given: Sequence[object] | Mapping[str, object]) -> _Result:
        cursor = self._raw.cursor()
        try:
            # Without parameters psycopg would still read `%` as a placeholder.
            cursor.execute(statement, given) if given else cursor.execute(statement)
            names = tuple(column[0] for column in cursor.description or ())
            rows = [_row_type(names)(*row) for row in cursor.fetchall()] if names else []
            return _Result(rows, cursor.rowcount)
        except self._error as error:
            # The store expects the errors of SQLAlchemy.
            wrapped = DBAPIError.instance(statement, cast(Any, given), error, self._error)
            raise wrapped from error
        finally:
            cursor.close()


class _AsyncpgConnection(_DriverConnection):
    def _send(self, statement: str, given: Sequence[object] | Mapping[str, object]) -> _Result:
        prepared = await_only(self._raw.prepare(statement))
        rows = await_only(prepared.fetch(*given))
        # The status is such as `INSERT 0 1`: the last word is the number of rows.
        count = prepared.get_statusmsg().rpartition(" ")[2]
        return _Result([_row(row) for row in rows], int(count) if count.isdigit() else len(rows))


class _Result:
    def __init__(self, rows: list[tuple[Any, ...]], rowcount: int) -> None:
        self._rows = rows
        self.rowcount = rowcount

    def all(self) -> list[tuple[Any, ...]]:
        return self._rows

    def first(self) -> tuple[Any, ...] | None:
        return self._rows[0] if self._rows else None

    @property
    def cursor(self) -> _Result:
        """The rows as the driver returns them."""
        return self

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows

    def close(self) -> None:
        """All rows are read already."""

    def scalars(self) -> _Result:
        return _Result([row[0] for row in self._rows], self.rowcount)

    def scalar(self) -> object:
        return self._rows[0][0] if self._rows else None


def _row(record: Mapping[str, object]) -> tuple[Any, ...]:
    return cast("tuple[Any, ...]", _row_type(tuple(record.keys()))(*record.values()))


@cache
def _row_type(names: tuple[str, ...]) -> Any:
    return namedtuple("Row", names, rename=True)


@cache
def _dialect(driver: str) -> Any:
    """The SQLAlchemy dialect that compiles for the driver."""
    untyped: Any = {
        "asyncpg": PGDialect_asyncpg,
        "psycopg": PGDialect_psycopg,
        "psycopg2": PGDialect_psycopg2,
        "sqlite3": SQLiteDialect_pysqlite,
    }[driver]
    return untyped()


# --- joining a transaction of the caller ----------------------------------------------------------
async def enqueue_in_transaction(
    runtime: Runtime, connection: object, build_run: Callable[[datetime], Run]
) -> RunId:
    """Inserts the run in the transaction of the connection. InvalidInput if it cannot be joined."""

    def insert(connection: Connection, dialect: Dialect, clock: Clock | None) -> RunId:
        return add_run_in(connection, dialect, clock, build_run).id

    return await run_in_transaction(runtime, connection, insert)


FORMS = _(
    "a SQLAlchemy Connection, Session, AsyncConnection or AsyncSession, or a connection of "
    "asyncpg, psycopg or sqlite3"
)
#: SQLAlchemy's dialect names where they differ from ours.
_DIALECT_NAMES = {"mysql": "mariadb"}
#: Work on the connection, with the store's dialect and clock.
Work = Callable[[Connection, Dialect, Clock | None], T]


def run_in_transaction(
    runtime: Runtime, given: object, work: Work[T], *, own_driver: bool = False
) -> Awaitable[T]:
    """Runs the work on the caller's connection: at once on a synchronous one, else when awaited.

    `own_driver`: the work has statements that only the store's own driver supports.
    """
    store = runtime.services.store
    if not isinstance(store, SqlStore):
        raise _cannot_join(
            _("the store ({kind}) is not a SQL database", kind=runtime.location.kind)
        )
    # On a database server, its clock decides.
    clock = runtime.clock if runtime.location.kind == "sqlite" else None
    bound = _BoundWork(store.dialect, clock, work, own_driver=own_driver)
    match given:
        case Session() | scoped_session():
            return _Completed(bound(given.connection()))
        case Connection():
            _check_open(given.in_transaction())
            return _Completed(bound(given))
        case AsyncConnection():
            _check_open(given.in_transaction())
            return given.run_sync(bound)
        case AsyncSession() | async_scoped_session():
            return _run_in_session(given, bound)
    # By module name: a connection may be a proxy, and the driver may not be installed.
    driver = type(given).__module__.partition(".")[0]
    if driver in _DBAPI_KINDS and not own_driver:
        return _Completed(_run_on_dbapi(runtime, driver, given, bound))
    return _run_in_asyncpg(runtime, given, bound)


#: Kinds of stores by the drivers with the synchronous DB-API.
_DBAPI_KINDS = {"sqlite3": "sqlite", "psycopg": "postgresql", "psycopg2": "postgresql"}


def _run_on_dbapi(runtime: Runtime, driver: str, given: Any, bound: _BoundWork[T]) -> T:
    kind = runtime.location.kind
    if _DBAPI_KINDS[driver] != kind:
        raise _cannot_join(
            _("it is a connection of {name}, but the store is on {other}", name=driver, other=kind)
        )
    # psycopg begins a transaction with the first statement.
    _check_open(given.in_transaction if driver == "sqlite3" else not given.autocommit)
    connection = cast(Connection, _DbapiConnection(given, driver))
    try:
        return bound.run(connection)
    except DBAPIError as error:
        raise _explain(error) from error


async def _run_in_session(
    session: AsyncSession | async_scoped_session[AsyncSession], bound: _BoundWork[T]
) -> T:
    connection = await session.connection()
    return await connection.run_sync(bound)


async def _run_in_asyncpg(runtime: Runtime, given: Any, bound: _BoundWork[T]) -> T:
    if type(given).__module__.partition(".")[0] != "asyncpg":
        raise _cannot_join(
            _("expected {forms}, not {type}", forms=FORMS, type=type(given).__name__)
        )
    if runtime.location.kind != "postgresql":
        raise _cannot_join(
            _("the store is on {kind}, not on PostgreSQL", kind=runtime.location.kind)
        )
    _check_open(bool(given.is_in_transaction()))
    return await run_on_asyncpg(given, bound.run)


class _BoundWork(Generic[T]):
    """Work with the store's dialect and clock; checks that the connection fits them."""

    def __init__(
        self, dialect: Dialect, clock: Clock | None, work: Work[T], *, own_driver: bool
    ) -> None:
        self._dialect = dialect
        self._clock = clock
        self._work = work
        self._own_driver = own_driver

    def __call__(self, connection: Connection) -> T:
        theirs = connection.dialect
        name = _DIALECT_NAMES.get(theirs.name, theirs.name)
        if name != self._dialect.name:
            raise _cannot_join(
                _(
                    "it is connected to {name}, but the store is on {other}",
                    name=name,
                    other=self._dialect.name,
                )
            )
        if self._own_driver and name == "postgresql" and theirs.driver != "asyncpg":
            raise _cannot_join(_("its driver is {driver}; use asyncpg", driver=theirs.driver))
        if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
            raise _cannot_join(_("it is in AUTOCOMMIT mode, so there is no transaction to join"))
        if name == "postgresql" and theirs.driver in _DBAPI_KINDS:
            raw = connection.connection.dbapi_connection
            connection = cast(Connection, _DbapiConnection(raw, theirs.driver))
        try:
            return self.run(connection)
        except DBAPIError as error:
            raise _explain(error) from error

    def run(self, connection: Connection) -> T:
        return self._work(connection, self._dialect, self._clock)


@dataclass(frozen=True, slots=True)
class _Completed(Generic[T]):
    """An awaitable whose result is already there."""

    result: T

    def __await__(self) -> Generator[None, None, T]:
        yield from ()
        return self.result


def _check_open(in_transaction: bool) -> None:
    if not in_transaction:
        raise _cannot_join(_("it has no open transaction; begin one first"))


def _explain(error: DBAPIError) -> Exception:
    """A missing table means that the connection is to another database."""
    text = str(error.orig).lower()
    ours = any(each.name in text for each in (runs, definitions, concurrency_keys))
    if ours and ("exist" in text or "no such table" in text):
        return _cannot_join(
            _("it is not connected to the database of the store: {error}", error=str(error.orig))
        )
    return error


def _cannot_join(why: str) -> InvalidInput:
    return InvalidInput(_("connection: {why}", why=why), field="connection", code="cannot_join")


# --- completion -----------------------------------------------------------------------------------
class TaskCompletion:
    """Completes the run of a task in a transaction of the task (`context.complete_in`).

    The effect of the task and the end of its run are then one commit. The completion that the
    worker records afterwards repeats the stored one and is accepted as such.
    """

    def __init__(self, call: Call, runtime: Runtime) -> None:
        self._call = call
        self._runtime = runtime
        self.recorded: Completion | None = None

    def complete(self, connection: object, result: object) -> Awaitable[None]:
        if self.recorded is not None:
            raise Conflict(_("this attempt has completed its run already"), code="completed")
        value = _json_value(result)
        if self._call.completing is not None:
            self._call.completing()

        def record(connection: Connection, dialect: Dialect, clock: Clock | None) -> None:
            self._record(connection, dialect, clock, value)

        return run_in_transaction(self._runtime, connection, record, own_driver=True)

    def _record(
        self, connection: Connection, dialect: Dialect, clock: Clock | None, value: object
    ) -> None:
        run, log = self._call.run, self._call.unwritten()

        def completion(now: datetime) -> Completion:
            attempt = Attempt(
                number=run.attempt,
                fence=run.fence,
                node=run.holder or NodeId(""),
                started_at=self._call.triggered_at,
                finished_at=now,
                end=AttemptEnd.SUCCEEDED,
            )
            return Completion(
                run_id=run.id,
                fence=run.fence,
                attempt=attempt,
                status=RunStatus.SUCCEEDED,
                result={"value": value},
                logs=log.entries,
            )

        self.recorded = complete_run_in(
            connection, dialect, clock, run.id, run.fence, completion, logged=log.last
        )


def _json_value(result: object) -> object:
    """The result as the store will return it. InvalidInput if it is not JSON."""
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        value: object = json.loads(json.dumps(to_jsonable_python(result), allow_nan=False))
    except (PydanticSerializationError, TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            _("the result cannot be represented as JSON: {error}", error=str(error)), field="result"
        ) from None
    return value
