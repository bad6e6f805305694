"""SQLite dialect.

One writer at a time (BEGIN IMMEDIATE) makes reading and then writing atomic, so rows need no locks
of their own, and the store's clock is that of the host.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Insert,
    Row,
    Select,
    Table,
    bindparam,
    func,
    select,
)
from sqlalchemy.dialects.sqlite import insert

from chimes.clock import MICROSECOND, Clock
from chimes.store.sql.dialects.base import Dialect, Rows, SqliteStatistics, TokenRequest
from chimes.store.sql.rows.values import Value
from chimes.store.sql.tables import (
    ACTIVE,
    BLOCKED,
    CLAIMABLE,
    DUE,
    PENDING,
    deliveries,
    runs,
    schedules,
)
from chimes.store.token_bucket import MAX_CLOCK_STEP_BACK

# ruff: noqa: S608 - what is put into statements here are the names of our own columns.


def _names(columns: Iterable[Column[Any]], prefix: str = "") -> str:
    return ", ".join(f'{prefix}"{each.name}"' for each in columns)


# INDEXED BY everywhere: the planner does not know how few rows a partial index holds and would
# sometimes read all runs of a status. A statement that cannot use its index then fails in the tests
# instead of becoming slow later.

# The first entry of the index is the result.
NEXT_DUE = f"SELECT min(next_run_at) FROM schedules INDEXED BY schedules_due WHERE {DUE}"

# The partial index holds the waiting schedules in due order, so the rows come without a sort and
# the cost depends on how many are due, not on how many there are.
DUE_SCHEDULES = f"""
SELECT {_names(schedules.c)} FROM schedules INDEXED BY schedules_due
WHERE {DUE} AND next_run_at <= :now ORDER BY next_run_at, id LIMIT :limit
"""

# All keys of a batch in one statement; the index returns them in order.
ADMITTED = f"""
SELECT concurrency_key, id FROM runs INDEXED BY runs_active_by_key
WHERE concurrency_key IN (SELECT value FROM json_each(:keys)) AND {ACTIVE} AND blocked = 0
ORDER BY concurrency_key, created_at, id
"""

# The first entry of the index is the result.
OLDEST_ACTIVE = f"""
SELECT {_names(runs.c)} FROM runs INDEXED BY runs_active_by_key
WHERE concurrency_key = :key AND {ACTIVE} ORDER BY created_at, id LIMIT 1
"""

# One lookup per key, because a key may have tens of thousands of blocked runs and one is enough.
BLOCKED_KEYS = f"""
SELECT value AS concurrency_key FROM json_each(:keys) WHERE EXISTS (
  SELECT 1 FROM runs INDEXED BY runs_blocked WHERE {BLOCKED} AND concurrency_key = value
)
"""

# CROSS JOIN makes the list the outer loop: one lookup in the unique index for each pair.
SLOTS_TAKEN = """
SELECT runs.id, runs.schedule_id, runs.slot FROM json_each(:pairs) AS pair CROSS JOIN runs
ON runs.schedule_id = json_extract(pair.value, '$[0]')
AND runs.slot = json_extract(pair.value, '$[1]')
"""

# Rank comes first in queue order, so a plain scan would step over every retry that waits for its
# time in a high rank. Jumping from rank to rank and reading the due head of each reads only the
# claimed rows plus one entry per rank.
_HIGHEST = f"""
SELECT runs.rank FROM runs INDEXED BY runs_claimable
WHERE {CLAIMABLE} AND runs.rank < coalesce(%s, {2**63 - 1}) ORDER BY runs.rank DESC LIMIT 1
"""
_RANKS = f"""
WITH RECURSIVE ranks(rank) AS (
  SELECT ({_HIGHEST % "NULL"})
  UNION ALL
  SELECT ({_HIGHEST % "ranks.rank"}) FROM ranks WHERE ranks.rank IS NOT NULL
)
"""
RANKS = f"{_RANKS} SELECT rank FROM ranks WHERE rank IS NOT NULL"

CLAIMABLE_OF_RANK = f"""
SELECT {_names(runs.c)} FROM runs INDEXED BY runs_claimable
WHERE {CLAIMABLE} AND rank = :rank AND available_at <= :now
AND needs IN (SELECT value FROM json_each(:offers))
ORDER BY available_at, planned_at, id LIMIT :limit
"""

NEXT_AVAILABLE = f"""
{_RANKS}
SELECT min((
  SELECT available_at FROM runs INDEXED BY runs_claimable
  WHERE {CLAIMABLE} AND runs.rank = ranks.rank ORDER BY available_at LIMIT 1
)) FROM ranks WHERE rank IS NOT NULL
"""

# In the order of the index; other channels are filtered out within it.
PENDING_DELIVERIES = f"""
SELECT {_names(deliveries.c)} FROM deliveries INDEXED BY deliveries_pending
WHERE {PENDING} AND available_at <= :now
AND (available_at <= :overdue OR channel IN (SELECT value FROM json_each(:channels)))
ORDER BY available_at, id LIMIT :limit
"""

NEXT_DELIVERY = f"""
SELECT min(available_at) FROM deliveries INDEXED BY deliveries_pending WHERE {PENDING}
"""

_THERE = """
min(:burst, buckets.tokens + max(0, excluded.at - buckets.at) / 1000000.0 * :rate)
"""
_STEP_BACK = MAX_CLOCK_STEP_BACK // MICROSECOND
TAKE_TOKENS = f"""
INSERT INTO buckets (name, tokens, at, granted, full_at)
VALUES (:name, :first_tokens, :now, :first_granted, :now + :fills_in)
ON CONFLICT (name) DO UPDATE SET
  tokens = {_THERE} - iif({_THERE} >= :wanted, :wanted, 0),
  granted = iif({_THERE} >= :wanted, :wanted, 0),
  at = iif(excluded.at < buckets.at AND excluded.at > buckets.at - {_STEP_BACK},
    buckets.at, excluded.at),
  full_at = excluded.full_at
RETURNING tokens, granted
"""

#: Primary result codes after which nothing has happened and a later try may succeed.
_UNAVAILABLE = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
}


def primary_code(error: BaseException) -> int | None:
    """Returns the result code of the underlying driver error."""
    original = getattr(error, "orig", error)
    code = getattr(original, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else None


def is_busy(error: BaseException) -> bool:
    """Returns whether another connection holds the lock; a retry may succeed."""
    return primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class SqliteDialect(Dialect):
    name = "sqlite"
    locks_rows = False
    statistics = SqliteStatistics()

    def now(self, connection: Connection, clock: Clock | None) -> datetime:
        assert clock is not None
        return clock.now()

    def unavailable(self, error: Exception) -> str | None:
        return str(getattr(error, "orig", error)) if primary_code(error) in _UNAVAILABLE else None

    def among(self, column_: Column[Any], name: str) -> ColumnElement[bool]:
        values = func.json_each(bindparam(name)).table_valued("value")
        return column_.in_(select(values.c.value))

    def listed(self, values: Collection[str]) -> object:
        return json.dumps(list(values))

    def contains(self, column_: Column[Any], text_: str) -> ColumnElement[bool]:
        return func.instr(column_, text_) > 0

    def has_entry(self, column_: Column[Any], key: str, value: str | None) -> ColumnElement[bool]:
        entries = func.json_each(column_).table_valued("key", "value")
        found = select(entries.c.key).where(entries.c.key == key)
        return (found if value is None else found.where(entries.c.value == value)).exists()

    def insert_new(self, table: Table) -> Insert:
        return _insert_new(table)

    def for_update(self, statement: Select[Any], *, skip: bool = False) -> Select[Any]:
        return statement

    def next_due(self, connection: Connection) -> int | None:
        return _integer(connection.exec_driver_sql(NEXT_DUE).scalar())

    def due(self, connection: Connection, now: int, limit: int) -> Rows:
        parameters = {"now": now, "limit": limit}
        return connection.exec_driver_sql(DUE_SCHEDULES, parameters).all()

    def admitted(self, connection: Connection, keys: Collection[str]) -> Rows:
        return connection.exec_driver_sql(ADMITTED, {"keys": self.listed(keys)}).all()

    def oldest_active(self, connection: Connection, key: str) -> Row[Any] | None:
        return connection.exec_driver_sql(OLDEST_ACTIVE, {"key": key}).first()

    def blocked_keys(self, connection: Connection, keys: Collection[str]) -> Sequence[str]:
        parameters = {"keys": self.listed(keys)}
        return connection.exec_driver_sql(BLOCKED_KEYS, parameters).scalars().all()

    def find_slot_runs(self, connection: Connection, pairs: Collection[tuple[str, int]]) -> Rows:
        parameters = {"pairs": json.dumps([list(pair) for pair in pairs])}
        return connection.exec_driver_sql(SLOTS_TAKEN, parameters).all()

    def move_cursors(self, connection: Connection, values: Sequence[dict[str, Value]]) -> None:
        _update_many(connection, "schedules", values)

    def insert_many(
        self, connection: Connection, table: Table, values: Sequence[dict[str, Value]]
    ) -> None:
        if values:
            connection.exec_driver_sql(_insert_all(table), list(values))

    def claimable(
        self, connection: Connection, now: int, capabilities: Collection[str], limit: int
    ) -> Rows:
        found: list[Any] = []
        for rank in connection.exec_driver_sql(RANKS).scalars().all():
            if len(found) >= limit:
                break
            parameters = {
                "rank": rank,
                "now": now,
                "offers": self.listed(capabilities),
                "limit": limit - len(found),
            }
            found.extend(connection.exec_driver_sql(CLAIMABLE_OF_RANK, parameters).all())
        return found

    def next_available(self, connection: Connection) -> int | None:
        return _integer(connection.exec_driver_sql(NEXT_AVAILABLE).scalar())

    def pending(
        self,
        connection: Connection,
        now: int,
        overdue: int,
        channels: Collection[str],
        limit: int,
    ) -> Rows:
        parameters = {
            "now": now,
            "overdue": overdue,
            "channels": self.listed(channels),
            "limit": limit,
        }
        return connection.exec_driver_sql(PENDING_DELIVERIES, parameters).all()

    def next_delivery(self, connection: Connection) -> int | None:
        return _integer(connection.exec_driver_sql(NEXT_DELIVERY).scalar())

    def write_deliveries(self, connection: Connection, values: Sequence[dict[str, Value]]) -> None:
        _update_many(connection, "deliveries", values)

    def take_tokens(
        self, connection: Connection, now: int | None, request: TokenRequest
    ) -> tuple[float, int]:
        parameters = request._asdict() | {"now": now, "burst": float(request.burst)}
        tokens, granted = connection.exec_driver_sql(TAKE_TOKENS, parameters).one()
        return float(tokens), int(granted)

    def write_states(self, connection: Connection, values: Sequence[dict[str, Value]]) -> None:
        _update_many(connection, "runs", values)


@cache
def _insert_all(table: Table) -> str:
    """One prepared statement that the driver executes for all rows of a batch."""
    marks = ", ".join(f":{each.name}" for each in table.c)
    return f"INSERT INTO {table.name} ({_names(table.c)}) VALUES ({marks})"


@cache
def _insert_new(table: Table) -> Insert:
    return insert(table).on_conflict_do_nothing()


def _update_many(connection: Connection, table: str, values: Sequence[dict[str, Value]]) -> None:
    """Updates rows by their ids, all with the same columns: one prepared statement for all."""
    if not values:
        return
    changes = ", ".join(f'"{name}" = :{name}' for name in values[0] if name != "id")
    connection.exec_driver_sql(
        f"UPDATE {table} SET {changes} WHERE id = :id",
        list(values),
    )


def _integer(value: object) -> int | None:
    assert value is None or isinstance(value, int)
    return value
