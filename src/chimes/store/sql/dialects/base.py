"""Dialect interface: the operations whose SQL differs between databases.

The store is written once against this interface and never checks which database it uses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Insert,
    Integer,
    Row,
    Select,
    Table,
    Text,
    literal_column,
)

from chimes.clock import Clock
from chimes.model.insights import (
    BOUNDS,
    CONCLUSIVE_STATUSES,
    FAILED_STATUSES,
    FAILING_STREAK,
    MAX_SCHEDULES,
)
from chimes.store.sql.rows.values import Value

# Counting: SQL for statistics that differs between databases; each dialect has one implementation.

# ruff: noqa: S608 - what is put into statements here are the names of our own columns.


#: Name of the SQLite function that calls `bracket_of_micros`.
BRACKET_FUNCTION = "chimes_bracket"
_LAG = "runs.started_at - runs.planned_at"
_BOUNDS = ", ".join(map(str, BOUNDS))

NEWEST = "schedule_id, id, status, origin, created_at, planned_at, started_at, finished_at"
_NEWEST_FIRST = "ORDER BY created_at DESC, id DESC LIMIT"


def _words(statuses: Iterable[str]) -> str:
    return ", ".join(f"'{status}'" for status in sorted(statuses))


#: Of the newest conclusive runs, newest first: planned times of those that failed.
_JUDGED = (
    "FROM runs WHERE runs.schedule_id = schedules.id"
    f" AND runs.status IN ({_words(CONCLUSIVE_STATUSES)}) {_NEWEST_FIRST}"
)
_IF_BAD = f"CASE WHEN status IN ({_words(FAILED_STATUSES)}) THEN planned_at ELSE '' END"
_NEWEST_JUDGED = f"(SELECT status, planned_at {_JUDGED} {FAILING_STREAK}) AS judged"
#: Numbers of schedules that a statement is built for, so that few statements have to be prepared.
_SIZES = (1, 10, 25, 50, 100, MAX_SCHEDULES)

RollupRows = Sequence[tuple[str | int, ...]]


class StatisticsDialect(ABC):
    #: The bracket of the lag of a started run (`bracket_of`).
    bracket: ColumnElement[int]
    #: The node that started a run (`first_node`): that of its first ended attempt, or the current
    #: holder. Corrupt JSON reads as no attempt.
    node: ColumnElement[str]
    #: Of a schedule, its `FAILING_STREAK` newest conclusive runs (`CONCLUSIVE_STATUSES`), newest
    #: first: the planned time of each, or nothing if it succeeded, separated by commas. Uses one
    #: index scan for all of them where the database can.
    judged: ColumnElement[str]

    @abstractmethod
    def newest(
        self, connection: Connection, ids: Sequence[str], each: int, owner: tuple[str, str] | None
    ) -> Sequence[Row[Any]]:
        """Returns the newest runs of each schedule, with one bounded index scan per schedule. A
        window function over all rows would read the whole history. The columns are `NEWEST`;
        `owner` restricts to runs of that type and id."""

    @abstractmethod
    def add(self, connection: Connection, table: Table, rows: RollupRows) -> None:
        """Adds rows to a rollup table, each with a distinct key: `number` is added to an existing
        row."""


class SqliteStatistics(StatisticsDialect):
    bracket = literal_column(f"{BRACKET_FUNCTION}({_LAG})", Integer)
    node = literal_column(
        "coalesce(CASE WHEN json_valid(runs.attempts)"
        " THEN json_extract(runs.attempts, '$[0].node') END, runs.holder, '?')",
        Text,
    )
    judged = literal_column(f"(SELECT group_concat({_IF_BAD}) FROM {_NEWEST_JUDGED})", Text)

    def newest(
        self, connection: Connection, ids: Sequence[str], each: int, owner: tuple[str, str] | None
    ) -> Sequence[Row[Any]]:
        return _newest_parts(connection, ids, each, owner, "?")

    def add(self, connection: Connection, table: Table, rows: RollupRows) -> None:
        connection.exec_driver_sql(_sqlite_add(table), list(rows))


class PostgresStatistics(StatisticsDialect):
    bracket = literal_column(f"width_bucket({_LAG}, ARRAY[{_BOUNDS}]::bigint[])", Integer)
    # Not parsed as JSON: one corrupt row would fail the whole statement.
    node = literal_column(
        "coalesce(nullif(split_part(split_part(runs.attempts, '\"node\":\"', 2), '\"', 1), ''),"
        " runs.holder, '?')",
        Text,
    )
    judged = literal_column(
        f"(SELECT string_agg({_IF_BAD.replace('planned_at', 'planned_at::text')}, ',')"
        f" FROM {_NEWEST_JUDGED})",
        Text,
    )

    def newest(
        self, connection: Connection, ids: Sequence[str], each: int, owner: tuple[str, str] | None
    ) -> Sequence[Row[Any]]:
        parameters = (list(ids), each, *(owner or ()))
        return connection.exec_driver_sql(_postgres_newest(owner is not None), parameters).all()

    def add(self, connection: Connection, table: Table, rows: RollupRows) -> None:
        connection.exec_driver_sql(_postgres_add(table), tuple(map(list, zip(*rows, strict=True))))


class MariadbStatistics(StatisticsDialect):
    bracket = literal_column(f"INTERVAL({_LAG}, {_BOUNDS})", Integer)
    node = literal_column(
        "coalesce(JSON_VALUE(runs.attempts, '$[0].node'), runs.holder, '?')", Text
    )
    # One scan each: a derived table cannot refer to the schedule here.
    judged = literal_column(
        "concat_ws(',', {})".format(
            ", ".join(
                f"(SELECT {_IF_BAD} {_JUDGED} 1 OFFSET {place})" for place in range(FAILING_STREAK)
            )
        ),
        Text,
    )

    def newest(
        self, connection: Connection, ids: Sequence[str], each: int, owner: tuple[str, str] | None
    ) -> Sequence[Row[Any]]:
        return _newest_parts(connection, ids, each, owner, "%s")

    def add(self, connection: Connection, table: Table, rows: RollupRows) -> None:
        connection.exec_driver_sql(_mariadb_add(table), list(rows))


def _newest_parts(
    connection: Connection,
    ids: Sequence[str],
    each: int,
    owner: tuple[str, str] | None,
    mark: str,
) -> Sequence[Row[Any]]:
    size = next(size for size in _SIZES if size >= len(ids))
    padded = (*ids, *[""] * (size - len(ids)))
    parameters = tuple(value for one in padded for value in (one, *(owner or ()), each))
    return connection.exec_driver_sql(_parts(size, owner is not None, mark), parameters).all()


@cache
def _parts(size: int, owned: bool, mark: str) -> str:
    """One part for each schedule, because there is no LATERAL."""
    condition = f" AND owner_type = {mark} AND owner_id = {mark}" if owned else ""
    return " UNION ALL ".join(
        f"SELECT * FROM (SELECT {NEWEST} FROM runs WHERE schedule_id = {mark}{condition}"
        f" {_NEWEST_FIRST} {mark}) AS part{place}"
        for place in range(size)
    )


@cache
def _postgres_newest(owned: bool) -> str:
    condition = " AND owner_type = $3 AND owner_id = $4" if owned else ""
    return (
        f"SELECT newest.* FROM unnest($1::text[]) AS wanted(id) CROSS JOIN LATERAL (SELECT {NEWEST}"
        f" FROM runs WHERE schedule_id = wanted.id{condition} {_NEWEST_FIRST} $2) AS newest"
    )


def _key(table: Table) -> str:
    return ", ".join(column.name for column in table.primary_key.columns)


@cache
def _sqlite_add(table: Table) -> str:
    marks = ", ".join("?" * len(table.c))
    return (
        f"INSERT INTO {table.name} VALUES ({marks}) ON CONFLICT ({_key(table)})"
        " DO UPDATE SET number = number + excluded.number"
    )


# One statement for all rows: one for each would be a round trip for each.
@cache
def _postgres_add(table: Table) -> str:
    types = ("bigint" if isinstance(each.type, Integer) else "text" for each in table.c)
    lists = ", ".join(f"${place}::{type_}[]" for place, type_ in enumerate(types, 1))
    return (
        f"INSERT INTO {table.name} SELECT * FROM unnest({lists}) ON CONFLICT ({_key(table)})"
        f" DO UPDATE SET number = {table.name}.number + excluded.number"
    )


@cache
def _mariadb_add(table: Table) -> str:
    marks = ", ".join(["%s"] * len(table.c))
    return (
        f"INSERT INTO {table.name} VALUES ({marks})"
        " ON DUPLICATE KEY UPDATE number = number + VALUES(number)"
    )


Rows = Sequence[Row[Any]]


class Dialect(ABC):
    #: The same as StoreStatus.kind.
    name: str
    #: Whether transactions run concurrently, so that rows must be locked.
    locks_rows: bool
    statistics: StatisticsDialect
    #: Whether a standby that takes over starts a new, numbered history (timeline).
    forks: bool = False

    #: Whether `fire_plain`, `claim_plain`, `finish_plain`, `due_times` and `unconfirmed` are
    #: implemented. Otherwise the store uses the general statements and does not prefetch.
    fast: bool = False

    # --- time and errors ----------------------------------------------------------------------
    @abstractmethod
    def now(self, connection: Connection, clock: Clock | None) -> datetime:
        """The store's clock: the database's own where it has one, unless a clock is given."""

    @abstractmethod
    def unavailable(self, error: Exception) -> str | None:
        """Returns why the database cannot answer or write now; None if the error is of another
        kind."""

    def lock_timed_out(self, error: Exception) -> bool:
        """Returns whether a lock wait timed out."""
        return False

    def end_stalled(self, connection: Connection, seconds: float) -> int:
        """Terminates our sessions that have waited this long in the middle of a statement for a
        stopped client, where session timeouts do not apply. Returns their number."""
        return 0

    # --- expressions --------------------------------------------------------------------------
    @abstractmethod
    def among(self, column: Column[Any], name: str) -> ColumnElement[bool]:
        """Whether the column's value is in the list bound as `name`; the statement's text does not
        depend on the length of the list."""

    @abstractmethod
    def listed(self, values: Collection[str]) -> object:
        """Returns the list as the parameter that `among` reads."""

    @abstractmethod
    def contains(self, column: Column[Any], text: str) -> ColumnElement[bool]:
        """Literal, case-sensitive substring."""

    @abstractmethod
    def has_entry(self, column: Column[Any], key: str, value: str | None) -> ColumnElement[bool]:
        """Whether the JSON object in the column has the key, and under it this value, if given."""

    @abstractmethod
    def insert_new(self, table: Table) -> Insert:
        """An insert that skips rows whose key exists; the row count tells how many were
        inserted."""

    @abstractmethod
    def for_update(self, statement: Select[Any], *, skip: bool = False) -> Select[Any]:
        """Locks the rows until the transaction ends; `skip` leaves out rows that another
        transaction has locked. Only called where `locks_rows`."""

    # --- the hot statements -------------------------------------------------------------------
    @abstractmethod
    def next_due(self, connection: Connection) -> int | None:
        """Returns the earliest due time of all schedules."""

    @abstractmethod
    def due(self, connection: Connection, now: int, limit: int) -> Rows:
        """Returns due schedules, earliest first, locked until the transaction ends."""

    @abstractmethod
    def admitted(self, connection: Connection, keys: Collection[str]) -> Rows:
        """Returns (concurrency_key, id) of the active runs that are not blocked, oldest first."""

    @abstractmethod
    def oldest_active(self, connection: Connection, key: str) -> Row[Any] | None:
        """Returns the oldest active run of this concurrency key."""

    @abstractmethod
    def blocked_keys(self, connection: Connection, keys: Collection[str]) -> Sequence[str]:
        """Returns those of the concurrency keys that have blocked runs."""

    @abstractmethod
    def find_slot_runs(self, connection: Connection, pairs: Collection[tuple[str, int]]) -> Rows:
        """Returns (id, schedule_id, slot) of the runs that have one of these (schedule_id,
        slot)."""

    @abstractmethod
    def move_cursors(self, connection: Connection, values: Sequence[dict[str, Value]]) -> None:
        """Writes `cursor_values` with the schedule's id, for many schedules."""

    @abstractmethod
    def insert_many(
        self, connection: Connection, table: Table, values: Sequence[dict[str, Value]]
    ) -> None:
        """Inserts rows whose keys are known to be free, each with a value for every column."""

    @abstractmethod
    def claimable(
        self, connection: Connection, now: int, capabilities: Collection[str], limit: int
    ) -> Rows:
        """Returns claimable runs in queue order, locked until the transaction ends."""

    @abstractmethod
    def next_available(self, connection: Connection) -> int | None:
        """Returns the earliest available_at of the claimable runs."""

    @abstractmethod
    def write_states(self, connection: Connection, values: Sequence[dict[str, Value]]) -> None:
        """Writes `state_values` with the run's id, for many runs."""

    # --- deliveries and limits ------------------------------------------------------------------
    @abstractmethod
    def pending(
        self,
        connection: Connection,
        now: int,
        overdue: int,
        channels: Collection[str],
        limit: int,
    ) -> Rows:
        """Returns pending deliveries of these channels that are available by `now`, and any that
        have been available since `overdue`, oldest first; locked until the transaction ends."""

    @abstractmethod
    def next_delivery(self, connection: Connection) -> int | None:
        """Returns the earliest available_at of the pending deliveries."""

    @abstractmethod
    def write_deliveries(self, connection: Connection, values: Sequence[dict[str, Value]]) -> None:
        """Writes `progress_values` with the delivery's id, for many deliveries."""

    @abstractmethod
    def take_tokens(
        self, connection: Connection, now: int | None, request: TokenRequest
    ) -> tuple[float, int]:
        """Returns how many tokens are left, and how many were granted. `now` None: the database's
        clock."""

    # --- optional fast paths --------------------------------------------------------------------
    def fire_plain(
        self, connection: Connection, batch: Batch, plain: Sequence[PlainFiring]
    ) -> Collection[str]:
        """Moves the cursors of locked schedules, inserts their runs, copied from them, and records
        the batch. Returns the ids of the inserted runs: an existing run of a slot stays."""
        raise NotImplementedError

    def due_times(self, connection: Connection, until: int, limit: int) -> Sequence[int]:
        """Returns the earliest due times up to `until`, at most `limit` of them."""
        raise NotImplementedError

    def next_prefetch(
        self, connection: Connection, until: int, each: int, limit: int
    ) -> Row[Any] | None:
        """Of the earliest `limit` due times up to `until`, where each takes `each` longer than the
        one before: returns (number, due, begin_by) of the one that must begin first."""
        raise NotImplementedError

    def unconfirmed(
        self, connection: Connection, closed: int | None, claims: Sequence[tuple[str, int]]
    ) -> Rows:
        """Confirms prefetched runs (id, fence), so that none can be withdrawn; returns the others.
        Confirmed are runs that are claimed, not requested to cancel, planned for `closed` or
        earlier, and not locked by another transaction.
        `closed` None: by the database's clock."""
        raise NotImplementedError

    def claim_plain(
        self,
        connection: Connection,
        now: int | None,
        capabilities: Collection[str],
        limit: int,
        node_id: str,
    ) -> Rows:
        """`claimable` and `claim` for this node in one statement; in any order. Returns nothing if
        the node's lease has ended. `now` None: the database's clock."""
        raise NotImplementedError

    def finish_plain(
        self,
        connection: Connection,
        now: int | None,
        completions: Sequence[tuple[Value, ...]],
        *,
        recording: bool,
    ) -> Rows:
        """Stores completions (`PLAIN_COMPLETION`) whose fence is the current one of a running run.
        Returns (id, time, cancel_requested, whether its key has blocked runs) of those that were
        accepted; the time is `now` or that of the database's clock. `recording`: updates the
        schedules, each of which has at most one of the runs."""
        raise NotImplementedError


class PlainFiring(NamedTuple):
    """Values of a single-slot plan that cannot be copied from the schedule's row."""

    schedule_id: str
    run_id: str
    next_slot: int | None
    next_run_at: int | None
    planned_at: int
    concurrency_limit: int
    needs: str
    fence: int


class Batch(NamedTuple):
    """A scheduler pass; the first `claimed` of its runs are claimed for its node."""

    id: int
    node_id: str
    now: int
    #: When it is recorded; None: by the database's clock.
    done: int | None
    claimed: int


class TokenRequest(NamedTuple):
    """A request for tokens of a bucket."""

    name: str
    rate: float
    burst: int
    wanted: int
    #: Granted and remaining tokens if the bucket is new.
    first_granted: int
    first_tokens: float
    #: Microseconds in which an empty bucket fills.
    fills_in: int


#: The order of the values of a completion.
PLAIN_COMPLETION = ("id", "attempt", "fence", "status", "retry_in", "result", "error", "reason")
