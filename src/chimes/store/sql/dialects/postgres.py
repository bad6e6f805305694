# ruff: noqa: S608 - what is put into statements here are the names of our own columns.
"""PostgreSQL. Transactions run side by side at READ COMMITTED, so rows that are read to be changed
are locked; a list goes as one array, so that a statement's text, and with it its plan, does not
depend on how long the list is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Float,
    Insert,
    Integer,
    Select,
    SmallInteger,
    Table,
    Text,
    any_,
    bindparam,
    func,
)
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.sql.expression import cast

from chimes.clock import Clock
from chimes.store.sql.dialects.base import Dialect, Rows
from chimes.store.sql.rows.parts import Value, moment_of
from chimes.store.sql.tables import ACTIVE, BLOCKED, CLAIMABLE, DUE, runs, schedules


def _names(columns: Iterable[Column[Any]], prefix: str = "") -> str:
    return ", ".join(f'{prefix}"{each.name}"' for each in columns)


# clock_timestamp, because now() stands still during a transaction.
NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

# The first entry of the index is the answer.
NEXT_DUE = f"SELECT min(next_run_at) FROM schedules WHERE {DUE}"

# The partial index holds the waiting schedules in due order, so the rows come without a sort and
# the cost depends on how many are due, not on how many there are. Those that another node is just
# firing are skipped: nobody waits for anybody. NO KEY UPDATE is the weakest lock that two of us
# cannot both have. LIMIT is written out: as a parameter it would be planned for a guess.
DUE_SCHEDULES = f"""
SELECT {_names(schedules.c)} FROM schedules
WHERE {DUE} AND next_run_at <= $1 ORDER BY next_run_at, id LIMIT %d
FOR NO KEY UPDATE SKIP LOCKED
"""

# All keys of a batch in one statement, one look into the index for each.
ADMITTED = f"""
SELECT concurrency_key, id FROM runs
WHERE concurrency_key = ANY ($1::text[]) AND {ACTIVE} AND blocked = 0
ORDER BY concurrency_key, created_at, id
"""

# Asked per key, because a key may have tens of thousands of blocked runs and one says enough.
BLOCKED_KEYS = f"""
SELECT key FROM unnest($1::text[]) AS wanted(key) WHERE EXISTS (
  SELECT 1 FROM runs WHERE {BLOCKED} AND concurrency_key = key
)
"""

# The list is the outer loop: one look into the unique index for each pair.
SLOTS_TAKEN = """
SELECT runs.id, runs.schedule_id, runs.slot
FROM unnest($1::text[], $2::bigint[]) AS pair(schedule_id, slot)
JOIN runs ON runs.schedule_id = pair.schedule_id AND runs.slot = pair.slot
"""

# Rank comes first in queue order, so a plain scan would step over every retry that waits for its
# time in a high rank. Jumping from rank to rank and asking each for its due head reads only what
# is handed out, plus one entry per rank.
_HIGHEST = f"""
SELECT runs.rank FROM runs WHERE {CLAIMABLE} AND runs.rank < %s ORDER BY runs.rank DESC LIMIT 1
"""
RANKS = f"""
WITH RECURSIVE ranks(rank) AS (
  SELECT ({_HIGHEST % f"{2**63 - 1}"})
  UNION ALL
  SELECT ({_HIGHEST % "ranks.rank"}) FROM ranks WHERE ranks.rank IS NOT NULL
)
"""

# The inner LIMIT stands in each rank, the outer one over all; rows are locked one by one as they
# are handed out, so that not more are locked than are taken.
CLAIMABLE_RUNS = f"""
{RANKS}
SELECT {_names(runs.c, "found.")} FROM ranks CROSS JOIN LATERAL (
  SELECT {_names(runs.c)} FROM runs
  WHERE {CLAIMABLE} AND runs.rank = ranks.rank AND available_at <= $1
  AND needs = ANY ($2::text[])
  ORDER BY available_at, planned_at, id LIMIT %d
  FOR NO KEY UPDATE SKIP LOCKED
) AS found WHERE ranks.rank IS NOT NULL LIMIT %d
"""

NEXT_AVAILABLE = f"""
{RANKS}
SELECT min((
  SELECT available_at FROM runs
  WHERE {CLAIMABLE} AND runs.rank = ranks.rank ORDER BY available_at LIMIT 1
)) FROM ranks WHERE rank IS NOT NULL
"""


class PostgresDialect(Dialect):
    name = "postgresql"
    locks_rows = True

    def now(self, connection: Connection, clock: Clock | None) -> datetime:
        if clock is not None:
            return clock.now()
        micros = _integer(connection.exec_driver_sql(NOW).scalar())
        assert micros is not None
        return moment_of(micros)

    def unavailable(self, error: Exception) -> str | None:
        return None  # the server says what an error means (`server.Trouble`)

    def among(self, column_: Column[Any], name: str) -> ColumnElement[bool]:
        return column_ == any_(cast(bindparam(name, type_=ARRAY(Text)), ARRAY(Text)))

    def listed(self, values: Collection[str]) -> object:
        return list(values)

    def contains(self, column_: Column[Any], text_: str) -> ColumnElement[bool]:
        return func.strpos(column_, text_) > 0

    def has_entry(self, column_: Column[Any], key: str, value: str | None) -> ColumnElement[bool]:
        entries = cast(column_, JSONB)
        found: ColumnElement[bool] = entries.has_key(key)
        if value is not None:
            found = entries[key].astext == value
        return found

    def insert_new(self, table: Table) -> Insert:
        return _insert_new(table)

    def for_update(self, statement: Select[Any], *, skip: bool = False) -> Select[Any]:
        return statement.with_for_update(key_share=True, skip_locked=skip)

    def next_due(self, connection: Connection) -> int | None:
        return _integer(connection.exec_driver_sql(NEXT_DUE).scalar())

    def due(self, connection: Connection, now: int, limit: int) -> Rows:
        return connection.exec_driver_sql(DUE_SCHEDULES % limit, (now,)).all()

    def admitted(self, connection: Connection, keys: Collection[str]) -> Rows:
        return connection.exec_driver_sql(ADMITTED, (list(keys),)).all()

    def blocked_keys(self, connection: Connection, keys: Collection[str]) -> Sequence[str]:
        return connection.exec_driver_sql(BLOCKED_KEYS, (list(keys),)).scalars().all()

    def slots_taken(self, connection: Connection, pairs: Collection[tuple[str, int]]) -> Rows:
        given = ([pair[0] for pair in pairs], [pair[1] for pair in pairs])
        return connection.exec_driver_sql(SLOTS_TAKEN, given).all()

    def move_cursors(self, connection: Connection, values: Sequence[dict[str, Value]]) -> None:
        _update_many(connection, schedules, values)

    def insert_many(
        self, connection: Connection, table: Table, values: Sequence[dict[str, Value]]
    ) -> None:
        if values:
            names = tuple(values[0])
            connection.exec_driver_sql(_insert_all(table, names), _arrays(names, values))

    def claimable(
        self, connection: Connection, now: int, offers: Collection[str], limit: int
    ) -> Rows:
        given = (now, list(offers))
        return connection.exec_driver_sql(CLAIMABLE_RUNS % (limit, limit), given).all()

    def next_available(self, connection: Connection) -> int | None:
        return _integer(connection.exec_driver_sql(NEXT_AVAILABLE).scalar())

    def write_states(self, connection: Connection, values: Sequence[dict[str, Value]]) -> None:
        _update_many(connection, runs, values)


# --- many rows in one statement -----------------------------------------------------------------
def _arrays(names: Sequence[str], values: Sequence[dict[str, Value]]) -> tuple[list[Value], ...]:
    return tuple([row[name] for row in values] for name in names)


def array_types(table: Table, names: Sequence[str]) -> str:
    """`$1::text[], $2::bigint[], …`: one array for each column."""
    return ", ".join(
        f"${place}::{_array_type(table.c[name])}[]" for place, name in enumerate(names, 1)
    )


def _array_type(column: Column[Any]) -> str:
    match column.type:
        case SmallInteger():
            return "smallint"
        case BigInteger():
            return "bigint"
        case Integer():
            return "integer"
        case Float():
            return "float8"
        case _:
            return "text"


@cache
def _insert_all(table: Table, names: tuple[str, ...]) -> str:
    columns = ", ".join(f'"{name}"' for name in names)
    return f"INSERT INTO {table.name} ({columns}) SELECT * FROM unnest({array_types(table, names)})"


@cache
def _insert_new(table: Table) -> Insert:
    return insert(table).on_conflict_do_nothing()


@cache
def _update_all(table: Table, names: tuple[str, ...]) -> str:
    changes = ", ".join(f'"{name}" = new."{name}"' for name in names if name != "id")
    columns = ", ".join(f'"{name}"' for name in names)
    return (
        f"UPDATE {table.name} AS old SET {changes}"
        f" FROM unnest({array_types(table, names)}) AS new({columns}) WHERE old.id = new.id"
    )


def _update_many(connection: Connection, table: Table, values: Sequence[dict[str, Value]]) -> None:
    """Rows by their ids, each with the same columns."""
    if values:
        names = tuple(values[0])
        connection.exec_driver_sql(_update_all(table, names), _arrays(names, values))


def _integer(value: object) -> int | None:
    assert value is None or isinstance(value, int)
    return value
