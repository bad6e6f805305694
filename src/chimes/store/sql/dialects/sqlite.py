"""SQLite dialect.

One writer at a time (BEGIN IMMEDIATE) makes reading and then writing atomic, so rows need no locks
of their own, and the store's clock is that of the host.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from itertools import chain
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Insert,
    Select,
    Table,
    bindparam,
    func,
    select,
)
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import IntegrityError

from chimes.clock import MICROSECOND, Clock
from chimes.store.port import MAX_CLOCK_STEP_BACK
from chimes.store.sql.dialects.base import MOST_OWNERS, Dialect, Rows, TokenRequest
from chimes.store.sql.dialects.statistics import SqliteStatistics
from chimes.store.sql.rows.values import Value, Values
from chimes.store.sql.tables import BLOCKED, CLAIMABLE, PENDING, deliveries

# ruff: noqa: S608 - what is put into statements here are the names of our own columns.


def _names(columns: Iterable[Column[Any]], prefix: str = "") -> str:
    return ", ".join(f'{prefix}"{each.name}"' for each in columns)


BLOCKED_KEYS = f"""
SELECT value FROM json_each(:numbers) WHERE EXISTS (
  SELECT 1 FROM queue WHERE concurrency = value AND {BLOCKED}
)
"""

SLOT_RUNS = """
SELECT runs.id, runs.schedule, runs.slot FROM json_each(:slots) AS wanted
CROSS JOIN runs INDEXED BY runs_by_slot
ON runs.schedule = json_extract(wanted.value, '$[0]')
AND runs.slot = json_extract(wanted.value, '$[1]')
"""

_NEXT_OWNER = f"""
SELECT owner FROM queue INDEXED BY queue_turns
WHERE {CLAIMABLE} AND rank = :rank AND owner > %s ORDER BY owner LIMIT 1
"""
_OWNERS = f"""
%s(owner, place) AS (
  SELECT ({_NEXT_OWNER}), 1
  UNION ALL
  SELECT ({_NEXT_OWNER}), place + 1 FROM %s AS found
  WHERE found.owner IS NOT NULL AND place <= {MOST_OWNERS}
)
"""
OWNERS = f"""
WITH RECURSIVE {_OWNERS % ("later", ":last", "found.owner", "later")},
{_OWNERS % ("earlier", "-1", "found.owner", "earlier")}
SELECT owner FROM later WHERE owner IS NOT NULL
UNION ALL SELECT owner FROM earlier WHERE owner <= :last LIMIT {MOST_OWNERS + 1}
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

    def listed(self, values: Collection[Any]) -> object:
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

    def insert_many(
        self, connection: Connection, table: Table, names: Sequence[str], rows: Sequence[Values]
    ) -> None:
        for chunk in _chunks(rows):
            _execute(connection, _insert_all(table, tuple(names), len(chunk)), chunk)

    def insert_missing(
        self,
        connection: Connection,
        table: Table,
        names: Sequence[str],
        rows: Sequence[Values],
        *,
        unique: str,
    ) -> Collection[Value]:
        place = names.index(unique)
        inserted: list[Value] = []
        for chunk in _chunks(rows):
            # Usually none exists. A statement that fails has inserted nothing.
            try:
                _execute(connection, _insert_all(table, tuple(names), len(chunk)), chunk)
            except IntegrityError:
                one = f"{_insert_all(table, tuple(names), 1)} ON CONFLICT DO NOTHING"
                inserted += [row[place] for row in chunk if _execute(connection, one, [row])]
            else:
                inserted += [row[place] for row in chunk]
        return inserted

    def update_many(
        self, connection: Connection, table: Table, names: Sequence[str], rows: Sequence[Values]
    ) -> None:
        for chunk in _chunks(rows):
            _execute(connection, _update_all(table, tuple(names), len(chunk)), chunk)

    def owners(self, connection: Connection, rank: int, last: int) -> Sequence[int]:
        return connection.exec_driver_sql(OWNERS, {"rank": rank, "last": last}).scalars().all()

    def blocked_keys(self, connection: Connection, numbers: Collection[int]) -> Sequence[int]:
        parameters = {"numbers": self.listed(numbers)}
        return connection.exec_driver_sql(BLOCKED_KEYS, parameters).scalars().all()

    def slot_runs(self, connection: Connection, slots: Sequence[tuple[int, int]]) -> Rows:
        return connection.exec_driver_sql(SLOT_RUNS, {"slots": self.listed(slots)}).all()

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

    def take_tokens(
        self, connection: Connection, now: int | None, request: TokenRequest
    ) -> tuple[float, int]:
        parameters = request._asdict() | {"now": now, "burst": float(request.burst)}
        tokens, granted = connection.exec_driver_sql(TAKE_TOKENS, parameters).one()
        return float(tokens), int(granted)


#: Rows of one statement. Many rows in one statement, because the driver gives up the interpreter's
#: lock with each, and then waits for the event loop; few sizes, because each is compiled once.
_SIZES = (64, 16, 4, 1)


def _chunks(rows: Sequence[Values]) -> Iterator[Sequence[Values]]:
    start = 0
    for size in _SIZES:
        while len(rows) - start >= size:
            yield rows[start : start + size]
            start += size


def _execute(connection: Connection, statement: str, rows: Iterable[Values]) -> int:
    """Returns the number of rows affected."""
    return connection.exec_driver_sql(statement, tuple(chain.from_iterable(rows))).rowcount


@cache
def _insert_all(table: Table, names: tuple[str, ...], count: int) -> str:
    columns = ", ".join(f'"{name}"' for name in names)
    return f"INSERT INTO {table.name} ({columns}) {_values(len(names), count)}"


@cache
def _update_all(table: Table, names: tuple[str, ...], count: int) -> str:
    changes = ", ".join(
        f'"{name}" = new.column{place}' for place, name in enumerate(names[1:], start=2)
    )
    return (
        f"UPDATE {table.name} SET {changes} FROM ({_values(len(names), count)}) AS new"
        f' WHERE {table.name}."{names[0]}" = new.column1'
    )


def _values(columns: int, rows: int) -> str:
    row = f"({', '.join('?' * columns)})"
    return f"VALUES {', '.join([row] * rows)}"


@cache
def _insert_new(table: Table) -> Insert:
    return insert(table).on_conflict_do_nothing()


def _integer(value: object) -> int | None:
    assert value is None or isinstance(value, int)
    return value
