"""How the store reaches its database: verbs are plain functions over a transaction.

A verb's work is written without `await` and handed to the `Database`, which runs it where its
driver wants it: on SQLite in the writer thread or in a reading one, on a server in a greenlet, out
of which the driver awaits. That keeps the port written once, lets SQLite do a whole batch without
hopping between threads for each statement, and leaves the event loop free meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Protocol, TypeVar

from sqlalchemy import Column, Connection, Executable, Row, Select

from chimes.clock import Clock
from chimes.store.sql.dialects.base import Dialect, Rows
from chimes.store.sql.rows.values import micros

T = TypeVar("T")
Parameters = Mapping[str, object]


class Tx:
    """One verb's share of a transaction."""

    __slots__ = ("_clock", "_locking", "connection", "dialect", "schedules_usable", "wakes")

    def __init__(
        self,
        connection: Connection,
        dialect: Dialect,
        clock: Clock | None,
        *,
        reading: bool = False,
    ) -> None:
        """Without a clock the database's own is asked."""
        self.connection = connection
        self.dialect = dialect
        self._clock = clock
        self._locking = dialect.locks_rows and not reading
        #: False: do without their table, it is broken (`without_schedules`).
        self.schedules_usable = True
        #: Whether `wait_for_work` has to return once this is committed.
        self.wakes = False

    def now(self) -> datetime:
        return self.dialect.now(self.connection, self._clock)

    def set_clock(self) -> int | None:
        """The time that a test has set; None: the database says what time it is."""
        return None if self._clock is None else micros(self._clock.now())

    def held(self, statement: Select[Any], by: Column[Any], *, skip: bool = False) -> Select[Any]:
        """The rows stay as they are read until the transaction ends. They are taken in the order
        of `by`, so that two who want the same rows cannot each have the other's. `skip`: rows
        that somebody else holds are left out instead of waited for."""
        if not self._locking:
            return statement
        return self.dialect.for_update(statement.order_by(by), skip=skip)

    def rows(self, statement: Executable, given: Parameters | None = None) -> Rows:
        return self.connection.execute(statement, given).all()

    def first(self, statement: Executable, given: Parameters | None = None) -> Row[Any] | None:
        return self.connection.execute(statement, given).first()

    def run(self, statement: Executable, given: Parameters | list[Any] | None = None) -> int:
        """How many rows it touched."""
        return self.connection.execute(statement, given).rowcount


Work = Callable[[Tx], T]


class Reader(Protocol):
    async def __call__(self, work: Work[T]) -> T: ...


class Database(Protocol):
    """Every method raises StoreUnavailable when the database cannot answer; nothing has then
    happened. All may be called from any thread and any event loop."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def one_writer(self) -> bool:
        """Whether writers wait for each other, so that it pays to ask first whether there is
        anything to write."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def migrate(self) -> tuple[str | None, str]:
        """Instead of `open`: bring the schema up to date; from which revision to which."""

    def identity(self, connection: Connection) -> str:
        """Which server and which of its histories this is; empty where that cannot change."""

    def troubles(self) -> Mapping[str, int]:
        """How often what went wrong; for the metrics."""

    @property
    def location(self) -> str: ...

    @property
    def degraded(self) -> str: ...

    def changes(self) -> int: ...

    def wake(self) -> None: ...

    async def wait(self, since: int, seconds: float | None) -> None: ...

    async def now(self) -> datetime: ...

    async def about_now(self) -> datetime:
        """Near enough to sleep by, and cheaper than `now`."""

    async def read(self, work: Work[T]) -> T:
        """In a transaction that sees one state of the database and never waits for a writer."""

    async def look(self, work: Work[T]) -> T:
        """As `read`, but each statement may see a state of its own; for questions of one
        statement, or whose answer is only a hint."""

    async def write(self, work: Work[T], *, urgent: bool = False) -> T:
        """Returns once the work is durable. It may be called more than once, so it keeps no
        state outside the transaction; what it raises undoes it and nothing else. `urgent` goes
        ahead of what waits already."""

    async def write_alone(self, work: Work[T]) -> T:
        """As `write`, for work that is a single statement: where the database commits that by
        itself, it is the only message that is sent."""

    def snapshot(self) -> AbstractAsyncContextManager[Reader]:
        """Several reads of one and the same state."""
