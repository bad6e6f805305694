"""PostgreSQL dialect.

Transactions run concurrently at READ COMMITTED, so rows that are read to be changed are locked. A
list is passed as one array, so that the text of a statement, and with it its plan, does not depend
on the length of the list.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
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
    Row,
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
from chimes.store.sql.dialects.base import Dialect, Rows, TokenRequest
from chimes.store.sql.dialects.postgres_statements import (
    BLOCKED_KEYS,
    CLAIM,
    CONFIRM_CLAIMS,
    DUE_TIMES,
    END_CLAIMED,
    END_STALLED,
    NEXT_AVAILABLE,
    NEXT_DELIVERY,
    NEXT_PREFETCH,
    NOW,
    PENDING_DELIVERIES,
    TAKE_CLAIMS,
    TAKE_TOKENS,
)
from chimes.store.sql.dialects.statistics import PostgresStatistics
from chimes.store.sql.rows.run import STATE
from chimes.store.sql.rows.values import Value, Values, moment_of
from chimes.store.sql.tables import runs

# ruff: noqa: S608 - what is put into statements here are the names of our own columns.


_LOCK_NOT_AVAILABLE = "55P03"


class PostgresDialect(Dialect):
    name = "postgresql"
    locks_rows = True
    statistics = PostgresStatistics()
    claims_at_once = True
    ends_at_once = True
    prefetches = True
    forks = True

    def now(self, connection: Connection, clock: Clock | None) -> datetime:
        if clock is not None:
            return clock.now()
        micros = _integer(connection.exec_driver_sql(NOW).scalar())
        assert micros is not None
        return moment_of(micros)

    def unavailable(self, error: Exception) -> str | None:
        return None  # `Server` maps errors of the server

    def lock_timed_out(self, error: Exception) -> bool:
        return getattr(getattr(error, "orig", None), "sqlstate", None) == _LOCK_NOT_AVAILABLE

    def end_stalled(self, connection: Connection, seconds: float) -> int:
        return _integer(connection.exec_driver_sql(END_STALLED, (seconds,)).scalar()) or 0

    def among(self, column_: Column[Any], name: str) -> ColumnElement[bool]:
        kind = ARRAY(BigInteger if isinstance(column_.type, Integer) else Text)
        return column_ == any_(cast(bindparam(name, type_=kind), kind))

    def listed(self, values: Collection[Any]) -> object:
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

    def insert_many(
        self, connection: Connection, table: Table, names: Sequence[str], rows: Sequence[Values]
    ) -> None:
        if rows:
            parameters, kinds = _columns(rows)
            statement = f"{_insert_all(table, tuple(names), kinds)}"
            connection.exec_driver_sql(statement, parameters)

    def insert_missing(
        self,
        connection: Connection,
        table: Table,
        names: Sequence[str],
        rows: Sequence[Values],
        *,
        unique: str,
    ) -> Collection[Value]:
        if not rows:
            return ()
        parameters, kinds = _columns(rows)
        statement = (
            f"{_insert_all(table, tuple(names), kinds)} ON CONFLICT DO NOTHING RETURNING {unique}"
        )
        return connection.exec_driver_sql(statement, parameters).scalars().all()

    def update_many(
        self, connection: Connection, table: Table, names: Sequence[str], rows: Sequence[Values]
    ) -> None:
        if rows:
            parameters, kinds = _columns(rows)
            statement = _update_all(table, tuple(names), kinds)
            connection.exec_driver_sql(statement, parameters)

    def next_available(self, connection: Connection) -> int | None:
        return _integer(connection.exec_driver_sql(NEXT_AVAILABLE).scalar())

    def claim(
        self,
        connection: Connection,
        now: int | None,
        capabilities: Collection[str],
        limit: int,
        node_id: str,
    ) -> Rows:
        parameters = (now, list(capabilities), node_id)
        return connection.exec_driver_sql(CLAIM % (limit, limit), parameters).all()

    def blocked_keys(self, connection: Connection, numbers: Collection[int]) -> Sequence[int]:
        return connection.exec_driver_sql(BLOCKED_KEYS, (list(numbers),)).scalars().all()

    def end_claimed(
        self, connection: Connection, now: int | None, rows: Sequence[Values]
    ) -> Sequence[tuple[str, int]]:
        parameters, kinds = _columns(rows)
        found = connection.exec_driver_sql(_end_claimed(kinds), (*parameters, now)).all()
        return [(row[0], row[1]) for row in found]

    def take_claims(self, connection: Connection, fences: Sequence[tuple[str, int]]) -> Rows:
        ids, numbers = zip(*fences, strict=True)
        return connection.exec_driver_sql(TAKE_CLAIMS, (list(ids), list(numbers))).all()

    def due_times(self, connection: Connection, until: int, limit: int) -> Sequence[int]:
        return connection.exec_driver_sql(DUE_TIMES % limit, (until,)).scalars().all()

    def next_prefetch(
        self, connection: Connection, until: int, each: int, limit: int
    ) -> Row[Any] | None:
        return connection.exec_driver_sql(NEXT_PREFETCH % limit, (until, each)).first()

    def confirm_claims(
        self, connection: Connection, closed: int | None, fences: Sequence[tuple[str, int]]
    ) -> Rows:
        ids, numbers = zip(*fences, strict=True)
        parameters = (list(ids), list(numbers), closed)
        return connection.exec_driver_sql(CONFIRM_CLAIMS, parameters).all()

    def pending(
        self,
        connection: Connection,
        now: int,
        overdue: int,
        channels: Collection[str],
        limit: int,
    ) -> Rows:
        parameters = (now, overdue, list(channels))
        return connection.exec_driver_sql(PENDING_DELIVERIES % limit, parameters).all()

    def next_delivery(self, connection: Connection) -> int | None:
        return _integer(connection.exec_driver_sql(NEXT_DELIVERY).scalar())

    def take_tokens(
        self, connection: Connection, now: int | None, request: TokenRequest
    ) -> tuple[float, int]:
        parameters = (
            request.name,
            float(request.burst),
            request.rate,
            request.wanted,
            request.first_tokens,
            request.first_granted,
            request.fills_in,
            now,
        )
        tokens, granted = connection.exec_driver_sql(TAKE_TOKENS, parameters).one()
        return float(tokens), int(granted)


# --- many rows in one statement -----------------------------------------------------------------
def _columns(rows: Sequence[Values]) -> tuple[tuple[object, ...], str]:
    """Returns the columns of the rows as parameters, and for each a letter: `l` for a list, `v` for
    one value that all rows share, because the driver inspects every value of a list."""
    parameters: list[object] = []
    kinds: list[str] = []
    number = len(rows)
    for column in zip(*rows, strict=True):
        first = column[0]
        # The key of the rows is the first column, and differs.
        if parameters and first == column[-1] and column.count(first) == number:
            parameters.append(first)
            kinds.append("v")
        else:
            parameters.append(list(column))
            kinds.append("l")
    return tuple(parameters), "".join(kinds)


def _values_sql(table: Table, names: tuple[str, ...], kinds: str) -> str:
    """A query that returns the rows of `_columns`."""
    lists = [(place, name) for place, name in enumerate(names) if kinds[place] == "l"]
    types = [_array_type(table.c[name]) for name in names]
    arrays = ", ".join(f"${place + 1}::{types[place]}[]" for place, _ in lists)
    listed = ", ".join(f'"{name}"' for _, name in lists)
    chosen = ", ".join(
        f'"{name}"' if kinds[place] == "l" else f'${place + 1}::{types[place]} AS "{name}"'
        for place, name in enumerate(names)
    )
    return f"SELECT {chosen} FROM unnest({arrays}) AS listed({listed})"


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
def _insert_all(table: Table, names: tuple[str, ...], kinds: str) -> str:
    columns = ", ".join(f'"{name}"' for name in names)
    return f"INSERT INTO {table.name} ({columns}) {_values_sql(table, names, kinds)}"


@cache
def _insert_new(table: Table) -> Insert:
    return insert(table).on_conflict_do_nothing()


@cache
def _update_all(table: Table, names: tuple[str, ...], kinds: str) -> str:
    key, *others = names
    changes = ", ".join(f'"{name}" = new."{name}"' for name in others)
    return (
        f"UPDATE {table.name} AS old SET {changes}"
        f' FROM ({_values_sql(table, names, kinds)}) AS new WHERE old."{key}" = new."{key}"'
    )


@cache
def _end_claimed(kinds: str) -> str:
    names = ("id", *STATE)
    return END_CLAIMED.format(
        now=f"${len(names) + 1}",
        NOW=NOW,
        values=_values_sql(runs, names, kinds),
        changes=", ".join(f'"{name}" = ending."{name}"' for name in STATE if name != "finished_at"),
    )


def _integer(value: object) -> int | None:
    assert value is None or isinstance(value, int)
    return value
