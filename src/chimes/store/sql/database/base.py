"""The database interface: store operations are plain functions over a transaction.

The work of an operation is written without `await` and passed to the `Database`, which runs it
where its driver needs it: on SQLite in the writer thread or a reader thread, on a server in a
greenlet from which the driver awaits. So the port is written once, SQLite executes a whole batch
without a thread switch per statement, and the event loop stays free.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct
from sqlalchemy import Column, Connection, Executable, Row, Select, Table

from chimes.clock import Clock
from chimes.model.planning import FireContext
from chimes.model.run import RunDefinition
from chimes.model.schedule import Schedule
from chimes.store.port import LastTurns
from chimes.store.sql.dialects.base import Dialect, Rows
from chimes.store.sql.migrations import Progress
from chimes.store.sql.rows.values import Value, micros

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
Parameters = Mapping[str, object]

#: Characters of the texts that one memory keeps.
MOST_CHARACTERS = 16 * 1024 * 1024


class Memory(Generic[K, V]):
    """A dictionary of limited size: when it is full it starts again. Several threads use it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._characters = 0
        self._entries: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        return self._entries.get(key)

    def put(self, key: K, value: V, characters: int = 0) -> None:
        """`characters`: the length of the texts in the value that people choose."""
        if len(self._entries) >= self._most or self._characters + characters > MOST_CHARACTERS:
            self.clear()
        self._characters += characters
        self._entries[key] = value

    def clear(self) -> None:
        self._entries.clear()
        self._characters = 0


class StoredDefinition(NamedTuple):
    value: RunDefinition
    #: Why it cannot be read; the value is a placeholder then.
    error: str = ""


class KnownSchedule(Struct, frozen=True, kw_only=True, gc=False):
    """A schedule as of a revision; cursor and last run are those of the time when it was read."""

    key: int
    value: Schedule
    #: The key of the definition of its runs.
    definition: int
    #: The concurrency key that its policy names; None: its own.
    shared_key: str | None
    #: Its concurrency key as a number.
    concurrency: int
    revision: int
    #: For a plan while none of its runs is active.
    context: FireContext
    #: Whether a plan depends on nothing else than the schedule and its own active runs.
    independent: bool


class KnownRows:
    """What a process remembers of rows that never change, or whose version it can check."""

    def __init__(self) -> None:
        self.definitions: Memory[int, StoredDefinition] = Memory(20_000)
        #: Key and mark of use by digest.
        self.digests: Memory[str, tuple[int, int]] = Memory(20_000)
        self.schedules: Memory[int, KnownSchedule] = Memory(20_000)
        self.turns = LastTurns()

    def clear(self) -> None:
        for each in (self.definitions, self.digests, self.schedules):
            each.clear()


class Tx:
    """The part of a transaction that belongs to one operation."""

    __slots__ = (
        "_clock",
        "_locking",
        "concurrency",
        "connection",
        "dialect",
        "joined",
        "known",
        "repeats_conflicts",
        "schedules_usable",
        "wakes",
        "wrote_definitions",
    )

    def __init__(
        self,
        connection: Connection,
        dialect: Dialect,
        clock: Clock | None,
        known: KnownRows,
        *,
        reading: bool = False,
        joined: bool = False,
        repeats_conflicts: bool = False,
    ) -> None:
        """Without a clock, the database's clock is used. `joined`: the transaction belongs to the
        caller and cannot be repeated."""
        self.connection = connection
        self.dialect = dialect
        self.known = known
        self.joined = joined
        #: Whether an insert that finds its key taken makes the database repeat the transaction,
        #: with False here: so the first try need not be prepared for it.
        self.repeats_conflicts = repeats_conflicts
        #: Whether definitions were added that are not committed yet and must not be relied on.
        self.wrote_definitions = False
        #: Numbers of the concurrency keys of active runs.
        self.concurrency: dict[str, int | None] = {}
        self._clock = clock
        self._locking = dialect.locks_rows and not reading
        #: False in degraded mode: the table of schedules is broken and not used.
        self.schedules_usable = True
        #: Whether `wait_for_work` has to return after the commit.
        self.wakes = False

    @property
    def locking(self) -> bool:
        """Whether rows that are read to be changed must be locked."""
        return self._locking

    def now(self) -> datetime:
        return self.dialect.now(self.connection, self._clock)

    def clock_override(self) -> int | None:
        """The time set by a test; None: use the database's clock."""
        return None if self._clock is None else micros(self._clock.now())

    def for_update(
        self, statement: Select[Any], by: Column[Any], *, skip: bool = False
    ) -> Select[Any]:
        """Locks the rows until the transaction ends. Rows are locked in the order of `by`, which
        prevents deadlocks. `skip` leaves out rows that another transaction has locked."""
        if not self._locking:
            return statement
        return self.dialect.for_update(statement.order_by(by), skip=skip)

    def rows(self, statement: Executable, parameters: Parameters | None = None) -> Rows:
        return self.connection.execute(statement, parameters).all()

    def tuples(
        self, statement: Executable, parameters: Parameters | None = None
    ) -> Sequence[Sequence[Any]]:
        """`rows`, for access by position: as the driver returns them, because building SQLAlchemy's
        takes longer than reading them. So no type of a column may convert its values."""
        result = self.connection.execute(statement, parameters)
        rows: Sequence[Sequence[Any]] = result.cursor.fetchall()
        result.close()
        return rows

    def first(self, statement: Executable, parameters: Parameters | None = None) -> Row[Any] | None:
        return self.connection.execute(statement, parameters).first()

    def run(self, statement: Executable, parameters: Parameters | list[Any] | None = None) -> int:
        """Returns the number of rows affected."""
        return self.connection.execute(statement, parameters).rowcount

    def insert(self, table: Table, values: Sequence[Mapping[str, Value]]) -> None:
        """Inserts rows with the same columns, whose keys are known to be free."""
        if values:
            names = tuple(values[0])
            rows = [tuple(row[name] for name in names) for row in values]
            self.dialect.insert_many(self.connection, table, names, rows)

    def update(self, table: Table, values: Sequence[Mapping[str, Value]]) -> None:
        """Writes rows by the first of their columns; all have the same columns."""
        if values:
            names = tuple(values[0])
            rows = [tuple(row[name] for name in names) for row in values]
            self.dialect.update_many(self.connection, table, names, rows)


Work = Callable[[Tx], T]


class Reader(Protocol):
    async def __call__(self, work: Work[T]) -> T: ...


class Database(Protocol):
    """Every method raises StoreUnavailable when the database cannot answer; nothing has happened
    then. All methods may be called from any thread and any event loop."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def has_single_writer(self) -> bool:
        """Whether writers wait for each other, so that a read should first check whether there is
        anything to write."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def migrate(self, progress: Progress | None = None) -> tuple[str | None, str]:
        """Use instead of `open`: upgrades the schema. Returns the old and new revision."""

    def identity(self, connection: Connection) -> str:
        """Identifies the server and its history (timeline); empty where that cannot change."""

    def error_counts(self) -> Mapping[str, int]:
        """Returns how often each kind of error occurred, for metrics."""

    def forget_known(self) -> None:
        """Forgets which rows exist: the store may have lost some of them."""

    @property
    def location(self) -> str: ...

    @property
    def degraded(self) -> str: ...

    def changes(self) -> int: ...

    def wake(self) -> None: ...

    async def wait(self, since: int, seconds: float | None) -> None: ...

    async def now(self) -> datetime: ...

    async def approximate_now(self) -> datetime:
        """Approximate time, cheaper than `now`; precise enough for sleeping."""

    async def read(self, work: Work[T]) -> T:
        """Runs in a transaction with one snapshot, which never waits for a writer."""

    async def query(self, work: Work[T]) -> T:
        """Like `read`, but each statement may see a different state. For single statements, or when
        the result is only a hint."""

    async def write(self, work: Work[T], *, urgent: bool = False) -> T:
        """Returns after the work is durable. The work may be called more than once, so it keeps no
        state outside the transaction; an exception rolls back this work only. `urgent` work
        precedes waiting work."""

    async def write_alone(self, work: Work[T]) -> T:
        """Like `write`, for work of a single statement: where the database commits a statement by
        itself, this is the only round trip."""

    def snapshot(self) -> AbstractAsyncContextManager[Reader]:
        """Several reads of the same snapshot."""
