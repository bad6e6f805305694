"""Working inside the caller's own transaction: if it commits, it has happened; if not, not."""

from __future__ import annotations

import uuid
from collections import namedtuple
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from typing import Any, Generic, TypeVar, cast

from sqlalchemy import Connection
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.util import await_only, greenlet_spawn

from chimes.clock import Clock
from chimes.errors import Conflict, InvalidInput
from chimes.i18n import _
from chimes.model.access import SYSTEM_OWNER
from chimes.model.ids import NodeId, RunId, manual_run_id
from chimes.model.run import Attempt, AttemptEnd, Completion, Run, RunStatus
from chimes.runtime.composition import Runtime
from chimes.sdk.tasks import EnqueueOptions
from chimes.services.run_requests import RunRequest, ordered_run
from chimes.store.sql import SqlStore
from chimes.store.sql.dialects.base import Dialect
from chimes.store.sql.joined_transaction import add_run_in
from chimes.targets.base import Call

# @@ An asyncpg connection as far as `store.sql.joining` uses a SQLAlchemy one.
#
# SQLAlchemy could adopt the connection itself, but then it would install its own type codecs on
# it, which are the caller's. So statements are only compiled by it and sent as they are.

T = TypeVar("T")


async def with_raw(raw: Any, work: Callable[[Connection], T]) -> T:
    """`work` is plain code; its statements run on the asyncpg connection."""
    connection = cast(Connection, _RawConnection(raw))
    return cast(T, await greenlet_spawn(work, connection))


def is_asyncpg(connection: object) -> bool:
    """Also one that a pool handed out, which is a proxy."""
    return type(connection).__module__.partition(".")[0] == "asyncpg"


def in_transaction(connection: Any) -> bool:
    return bool(connection.is_in_transaction())


class _RawConnection:
    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def execute(self, statement: Any, given: Any = None) -> _Result:
        if isinstance(given, list):
            results = [self.execute(statement, each) for each in given]
            return _Result([], sum(result.rowcount for result in results))
        compiled = statement.compile(dialect=_dialect(), column_keys=list(given) if given else None)
        values = compiled.construct_params(given, escape_names=False)
        processors = compiled._bind_processors
        ordered = [
            processors[name](values[name]) if name in processors else values[name]
            for name in compiled.positiontup or ()
        ]
        return self._send(str(compiled), ordered)

    def exec_driver_sql(self, statement: str, given: Sequence[object] = ()) -> _Result:
        return self._send(statement, given)

    def _send(self, statement: str, given: Sequence[object]) -> _Result:
        prepared = await_only(self._raw.prepare(statement))
        rows = await_only(prepared.fetch(*given))
        # Such as `INSERT 0 1`: the last word is the number of rows.
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
def _dialect() -> Any:
    untyped: Any = PGDialect_asyncpg
    return untyped()


# @@ Runs that a program puts into the queue, alone or as part of its own transaction.

KEY_NAMESPACE = uuid.UUID("5f0d2d5e-0e0b-5e7c-8f43-6a0f2b0c9d21")


def keyed_run_id(namespace: str, needs: str, key: str) -> RunId:
    """The same key for the same task means the same run, on every node, for as long as the run
    is kept."""
    return RunId(str(uuid.uuid5(KEY_NAMESPACE, f"{namespace}\0{needs}\0{key}")))


def wanted_run(order: RunRequest, options: EnqueueOptions, now: datetime) -> Run:
    if options.priority is not None:
        order = replace(order, priority=options.priority)
    if options.at is not None:
        order = replace(order, at=options.at)
    if options.delay is not None:
        order = replace(order, at=now + options.delay)
    run_id = manual_run_id(now)
    if options.key is not None:
        run_id = keyed_run_id(order.namespace, order.target.needs, options.key)
    return ordered_run(order, options.owner or order.owner or SYSTEM_OWNER, run_id, now)


async def enqueue(runtime: Runtime, order: RunRequest, options: EnqueueOptions) -> RunId:
    """The id of the run; of the one that is there already, where the key says so."""
    if options.connection is not None:
        return await enqueue_in(runtime, order, options)
    store = runtime.services.store
    run = wanted_run(order, options, await store.now())
    return (await store.add_runs([run]))[0].id


FORMS = _(
    "a SQLAlchemy Connection, Session, AsyncConnection or AsyncSession, or an asyncpg connection"
)
#: How the dialects of SQLAlchemy are called here.
_SAME = {"mysql": "mariadb"}
#: What is done on the connection, with the store's dialect and clock.
Work = Callable[[Connection, Dialect, Clock | None], T]


async def enqueue_in(runtime: Runtime, order: RunRequest, options: EnqueueOptions) -> RunId:
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
        raise _refused(_("the store ({kind}) is no SQL database", kind=runtime.location.kind))
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

    if not is_asyncpg(given):
        raise _refused(_("it is {type}, not {forms}", type=type(given).__name__, forms=FORMS))
    if runtime.location.kind != "postgresql":
        raise _refused(_("the store is on {kind}, not on PostgreSQL", kind=runtime.location.kind))
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
                _(
                    "it is on {name}, and the store on {other}",
                    name=name,
                    other=self._dialect.name,
                )
            )
        if self._own_driver and name == "postgresql" and theirs.driver != "asyncpg":
            raise _refused(
                _("its driver is {driver}; here only asyncpg will do", driver=theirs.driver)
            )
        if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
            raise _refused(
                _("it commits by itself (AUTOCOMMIT), so there is no transaction to join")
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
        raise _refused(_("no transaction is open on it"))


def _unknown_table(error: DBAPIError) -> Exception:
    """The commonest mistake, in words."""
    text = str(error.orig).lower()
    if "runs" in text and ("exist" in text or "no such table" in text):
        return _refused(_("it does not reach the store: {error}", error=str(error.orig)))
    return error


def _refused(why: str) -> InvalidInput:
    return InvalidInput(_("connection: {why}", why=why), field="connection", code="cannot_join")


# @@ Tasks that end their run in a transaction of their own (`context.complete_in`).
#
# Their effect and the end of the run are then one commit. What the worker says afterwards about
# the attempt is a repetition of what stands there, and is accepted as such (F23).


class TaskCompletion:
    def __init__(self, call: Call, runtime: Runtime) -> None:
        self._call = call
        self._runtime = runtime
        self.verdict: Completion | None = None

    def complete(self, connection: object, result: object) -> Awaitable[None]:

        if self.verdict is not None:
            raise Conflict(_("this attempt has completed its run already"), code="completed")
        plain = _plain(result)
        if self._call.completing is not None:
            self._call.completing()
        return joined(self._runtime, connection, _Ending(self, plain), own_driver=True)

    def ended(
        self, connection: Connection, dialect: Dialect, clock: Clock | None, value: object
    ) -> None:
        from chimes.store.sql.joined_transaction import complete_run_in

        run, log = self._call.run, self._call.unwritten()

        def verdict(now: datetime) -> Completion:
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

        self.verdict = complete_run_in(
            connection, dialect, clock, run.id, run.fence, verdict, logged=log.last
        )


class _Ending:
    def __init__(self, completion: TaskCompletion, value: object) -> None:
        self._completion = completion
        self._value = value

    def __call__(self, connection: Connection, dialect: Dialect, clock: Clock | None) -> None:
        self._completion.ended(connection, dialect, clock, self._value)


def _plain(result: object) -> object:
    import json

    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        plain: object = json.loads(json.dumps(to_jsonable_python(result), allow_nan=False))
    except (PydanticSerializationError, TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            _("the result has no form in JSON: {error}", error=str(error)), field="result"
        ) from None
    return plain
