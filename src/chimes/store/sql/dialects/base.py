"""The questions whose answers differ from database to database.

The store is written once against this; it never asks which database it has.
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

# @@ Where databases differ in how they count; each dialect has one of these.

# ruff: noqa: S608 - what is put into statements here are the names of our own columns.


#: What SQLite calls `bracket_of_micros`, and calls back for.
BRACKET_FUNCTION = "chimes_bracket"
_LAG = "runs.started_at - runs.planned_at"
_BOUNDS = ", ".join(map(str, BOUNDS))

NEWEST = "schedule_id, id, status, origin, created_at, planned_at, started_at, finished_at"
_NEWEST_FIRST = "ORDER BY created_at DESC, id DESC LIMIT"


def _words(statuses: Iterable[str]) -> str:
    return ", ".join(f"'{status}'" for status in sorted(statuses))


#: Of the newest runs that were judged, newest first: when those that ended badly were planned.
_JUDGED = (
    "FROM runs WHERE runs.schedule_id = schedules.id"
    f" AND runs.status IN ({_words(CONCLUSIVE_STATUSES)}) {_NEWEST_FIRST}"
)
_IF_BAD = f"CASE WHEN status IN ({_words(FAILED_STATUSES)}) THEN planned_at ELSE '' END"
_NEWEST_JUDGED = f"(SELECT status, planned_at {_JUDGED} {FAILING_STREAK}) AS judged"
#: How many schedules a statement is made for, so that there are few of them to be prepared.
_SIZES = (1, 10, 25, 50, 100, MAX_SCHEDULES)

Sums = Sequence[tuple[str | int, ...]]


class Counting(ABC):
    #: Of a run that has begun: the bracket of its lag (`bracket_of`).
    bracket: ColumnElement[int]
    #: Who began a run (`first_node`): the node of its first attempt that has ended, or who holds
    #: it. What is no JSON reads as no attempt.
    node: ColumnElement[str]
    #: Of a schedule, its `FAILING_STREAK` newest runs that were judged (`CONCLUSIVE_STATUSES`), newest first: when each
    #: was planned, or nothing if it ended well; parted by commas. All of them in one walk through
    #: the index, where a database can.
    judged: ColumnElement[str]

    @abstractmethod
    def newest(
        self, connection: Connection, ids: Sequence[str], each: int, owner: tuple[str, str] | None
    ) -> Sequence[Row[Any]]:
        """Of each schedule its newest runs, so many at most: a walk through the index for each,
        and never further than asked for. Numbering the rows of all of them would read their whole
        past. Columns are `NEWEST`; `owner`: only runs of that type and id."""

    @abstractmethod
    def add(self, connection: Connection, table: Table, rows: Sums) -> None:
        """Rows of a table of sums, each with a key of its own: one that is there already is added
        to by its `number`."""


class SqliteCounting(Counting):
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

    def add(self, connection: Connection, table: Table, rows: Sums) -> None:
        connection.exec_driver_sql(_sqlite_add(table), list(rows))


class PostgresCounting(Counting):
    bracket = literal_column(f"width_bucket({_LAG}, ARRAY[{_BOUNDS}]::bigint[])", Integer)
    # Not as JSON: one damaged row would fail the whole statement.
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
        given = (list(ids), each, *(owner or ()))
        return connection.exec_driver_sql(_postgres_newest(owner is not None), given).all()

    def add(self, connection: Connection, table: Table, rows: Sums) -> None:
        connection.exec_driver_sql(_postgres_add(table), tuple(map(list, zip(*rows, strict=True))))


class MariadbCounting(Counting):
    bracket = literal_column(f"INTERVAL({_LAG}, {_BOUNDS})", Integer)
    node = literal_column(
        "coalesce(JSON_VALUE(runs.attempts, '$[0].node'), runs.holder, '?')", Text
    )
    # A walk for each: what is in FROM cannot look at the schedule here.
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

    def add(self, connection: Connection, table: Table, rows: Sums) -> None:
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
    given = tuple(value for one in padded for value in (one, *(owner or ()), each))
    return connection.exec_driver_sql(_parts(size, owner is not None, mark), given).all()


@cache
def _parts(size: int, owned: bool, mark: str) -> str:
    """One part for each schedule, for want of LATERAL."""
    mine = f" AND owner_type = {mark} AND owner_id = {mark}" if owned else ""
    return " UNION ALL ".join(
        f"SELECT * FROM (SELECT {NEWEST} FROM runs WHERE schedule_id = {mark}{mine}"
        f" {_NEWEST_FIRST} {mark}) AS part{place}"
        for place in range(size)
    )


@cache
def _postgres_newest(owned: bool) -> str:
    mine = " AND owner_type = $3 AND owner_id = $4" if owned else ""
    return (
        f"SELECT newest.* FROM unnest($1::text[]) AS wanted(id) CROSS JOIN LATERAL (SELECT {NEWEST}"
        f" FROM runs WHERE schedule_id = wanted.id{mine} {_NEWEST_FIRST} $2) AS newest"
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


# One statement for all of them: one for each would be a round trip for each.
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
    #: As StoreStatus.kind says it.
    name: str
    #: Whether transactions run side by side, so that rows have to be locked.
    locks_rows: bool
    #: How it counts.
    counting: Counting
    #: Whether a standby that takes over begins a history of its own, which has a number.
    forks: bool = False

    #: Whether `fire_plain`, `take`, `finish_plain`, `coming` and `confirm` are there; otherwise the
    #: store goes the long way, and does not look ahead.
    fast: bool = False

    # --- time and errors ----------------------------------------------------------------------
    @abstractmethod
    def now(self, connection: Connection, clock: Clock | None) -> datetime:
        """The store's clock: the database's own where it has one, unless a clock is given."""

    @abstractmethod
    def unavailable(self, error: Exception) -> str | None:
        """Why the database cannot answer or write now; None if the error is of another kind."""

    def lock_timed_out(self, error: Exception) -> bool:
        """Whether somebody else held a row for as long as a session waits."""
        return False

    def end_stalled(self, connection: Connection, seconds: float) -> int:
        """End our sessions that have waited so long in the middle of a statement for a client
        which stands still, where the limits of a session do not: how many (F17)."""
        return 0

    # --- expressions --------------------------------------------------------------------------
    @abstractmethod
    def among(self, column: Column[Any], name: str) -> ColumnElement[bool]:
        """Whether the column's value is in the list bound as `name`; the statement's text does
        not depend on the length of the list."""

    @abstractmethod
    def listed(self, values: Collection[str]) -> object:
        """A list as the parameter that `among` reads."""

    @abstractmethod
    def contains(self, column: Column[Any], text: str) -> ColumnElement[bool]:
        """Literal, case-sensitive substring."""

    @abstractmethod
    def has_entry(self, column: Column[Any], key: str, value: str | None) -> ColumnElement[bool]:
        """Whether the JSON object in the column has the key, and under it this value, if given."""

    @abstractmethod
    def insert_new(self, table: Table) -> Insert:
        """An insert that leaves rows out whose key exists; the row count tells."""

    @abstractmethod
    def for_update(self, statement: Select[Any], *, skip: bool = False) -> Select[Any]:
        """The rows stay as they are read until the transaction ends; `skip` leaves out those that
        somebody else holds. Only asked where `locks_rows`."""

    # --- the hot statements -------------------------------------------------------------------
    @abstractmethod
    def next_due(self, connection: Connection) -> int | None:
        """The earliest due time of all schedules that wait for one."""

    @abstractmethod
    def due(self, connection: Connection, now: int, limit: int) -> Rows:
        """Due schedules, earliest first, held until the transaction ends."""

    @abstractmethod
    def admitted(self, connection: Connection, keys: Collection[str]) -> Rows:
        """(concurrency_key, id) of the active runs that are not blocked, oldest first."""

    @abstractmethod
    def oldest_active(self, connection: Connection, key: str) -> Row[Any] | None:
        """The run of this concurrency key that was created first, of those that have not ended."""

    @abstractmethod
    def blocked_keys(self, connection: Connection, keys: Collection[str]) -> Sequence[str]:
        """Those of the concurrency keys that have blocked runs."""

    @abstractmethod
    def find_slot_runs(self, connection: Connection, pairs: Collection[tuple[str, int]]) -> Rows:
        """(id, schedule_id, slot) of the runs that have one of these (schedule_id, slot)."""

    @abstractmethod
    def move_cursors(self, connection: Connection, values: Sequence[dict[str, Value]]) -> None:
        """`cursor_values` with the schedule's id, for many schedules."""

    @abstractmethod
    def insert_many(
        self, connection: Connection, table: Table, values: Sequence[dict[str, Value]]
    ) -> None:
        """Rows whose keys are known to be free, each with a value for every column."""

    @abstractmethod
    def claimable(
        self, connection: Connection, now: int, capabilities: Collection[str], limit: int
    ) -> Rows:
        """Claimable runs in queue order, held until the transaction ends."""

    @abstractmethod
    def next_available(self, connection: Connection) -> int | None:
        """The earliest available_at of the claimable runs."""

    @abstractmethod
    def write_states(self, connection: Connection, values: Sequence[dict[str, Value]]) -> None:
        """`state_values` with the run's id, for many runs."""

    # --- what is told to people, and limits -----------------------------------------------------
    @abstractmethod
    def pending(
        self,
        connection: Connection,
        now: int,
        overdue: int,
        channels: Collection[str],
        limit: int,
    ) -> Rows:
        """Pending deliveries of these channels that are available by `now`, and any that have
        been since `overdue`, oldest first; held until the transaction ends."""

    @abstractmethod
    def next_delivery(self, connection: Connection) -> int | None:
        """The earliest available_at of the pending deliveries."""

    @abstractmethod
    def write_deliveries(self, connection: Connection, values: Sequence[dict[str, Value]]) -> None:
        """`progress_values` with the delivery's id, for many of them."""

    @abstractmethod
    def take_tokens(
        self, connection: Connection, now: int | None, asked: Asked
    ) -> tuple[float, int]:
        """How many tokens are left, and how many were granted (`store/tokens.py`). `now` None:
        what the database's clock says."""

    # --- shorter ways, where there are any ------------------------------------------------------
    def fire_plain(
        self, connection: Connection, batch: Batch, plain: Sequence[PlainFiring]
    ) -> Collection[str]:
        """Move the cursors of schedules that are held and insert their runs, copied from them;
        write down the batch. The ids of the runs that were inserted: a slot that has its row
        keeps it."""
        raise NotImplementedError

    def coming(self, connection: Connection, until: int, most: int) -> Sequence[int]:
        """The earliest due times up to `until`, not more than `most` of them."""
        raise NotImplementedError

    def next_prefetch(
        self, connection: Connection, until: int, each: int, most: int
    ) -> Row[Any] | None:
        """Of the earliest `most` due times up to `until`, with each one `each` later in line than
        the one before: (number, due, begin_by) of the one that must begin first."""
        raise NotImplementedError

    def unconfirmed(
        self, connection: Connection, closed: int | None, claims: Sequence[tuple[str, int]]
    ) -> Rows:
        """All of the runs (id, fence) but those that are held, not asked to stop, planned for
        `closed` or earlier, and not just being changed by anybody. Whoever wants to change one of
        those afterwards waits until this is committed. `closed` None: what the database's clock
        says."""
        raise NotImplementedError

    def take(
        self,
        connection: Connection,
        now: int | None,
        capabilities: Collection[str],
        limit: int,
        node_id: str,
    ) -> Rows:
        """`claimable`, and written down as `claim` by this node, in one statement; in any order.
        None where its lease has ended. `now` None: what the database's clock says."""
        raise NotImplementedError

    def finish_plain(
        self,
        connection: Connection,
        now: int | None,
        completions: Sequence[tuple[Value, ...]],
        *,
        recording: bool,
    ) -> Rows:
        """Write verdicts (`PLAIN_VERDICT`) whose fence is the current one of a running run.
        (id, when, cancel_requested, whether its key has blocked runs) of those that were accepted;
        when is `now`, or what the database's clock says. `recording`: the schedules hear of the
        ends, of which each has one at most."""
        raise NotImplementedError


class PlainFiring(NamedTuple):
    """`Firing.plain`: what cannot be copied from the schedule's row."""

    schedule_id: str
    run_id: str
    next_slot: int | None
    next_run_at: int | None
    planned_at: int
    concurrency_limit: int
    needs: str
    fence: int


class Batch(NamedTuple):
    """A pass of a scheduler; the first `claim` of its runs are claimed for its node."""

    id: int
    node_id: str
    now: int
    #: When it is written down; None: the database's clock says it.
    done: int | None
    claimed: int


class Asked(NamedTuple):
    """Tokens of a bucket."""

    name: str
    rate: float
    burst: int
    wanted: int
    #: The answer, and what is left, where the bucket is new.
    first_granted: int
    first_tokens: float
    #: Microseconds in which an empty one is full again.
    fills_in: int


#: The order of the values of a verdict.
PLAIN_VERDICT = ("id", "attempt", "fence", "status", "retry_in", "result", "error", "reason")
