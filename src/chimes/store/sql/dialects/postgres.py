"""PostgreSQL dialect.

Transactions run concurrently at READ COMMITTED, so rows that are read to be changed are locked. A
list is passed as one array, so that the text of a statement, and with it its plan, does not depend
on the length of the list.
"""

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
from chimes.store.sql.dialects.base import (
    PLAIN_COMPLETION,
    Batch,
    Dialect,
    PlainFiring,
    PostgresStatistics,
    Rows,
    TokenRequest,
)
from chimes.store.sql.dialects.postgres_statements import (
    ADMITTED,
    BLOCKED_KEYS,
    CLAIM,
    CLAIMABLE_RUNS,
    DUE_SCHEDULES,
    DUE_TIMES,
    END_STALLED,
    FINISH_PLAIN,
    FINISH_UNIFORM,
    FIRE_PLAIN,
    FIRE_UNIFORM,
    NEXT_AVAILABLE,
    NEXT_DELIVERY,
    NEXT_DUE,
    NEXT_PREFETCH,
    NOW,
    OLDEST_ACTIVE,
    PENDING_DELIVERIES,
    SLOTS_TAKEN,
    TAKE_TOKENS,
    UNCONFIRMED,
)
from chimes.store.sql.rows.values import Value, moment_of
from chimes.store.sql.tables import deliveries, runs, schedules

# ruff: noqa: S608 - what is put into statements here are the names of our own columns.


_LOCK_NOT_AVAILABLE = "55P03"


class PostgresDialect(Dialect):
    name = "postgresql"
    locks_rows = True
    statistics = PostgresStatistics()
    fast = True
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

    def oldest_active(self, connection: Connection, key: str) -> Row[Any] | None:
        return connection.exec_driver_sql(OLDEST_ACTIVE, (key,)).first()

    def blocked_keys(self, connection: Connection, keys: Collection[str]) -> Sequence[str]:
        return connection.exec_driver_sql(BLOCKED_KEYS, (list(keys),)).scalars().all()

    def find_slot_runs(self, connection: Connection, pairs: Collection[tuple[str, int]]) -> Rows:
        parameters = ([pair[0] for pair in pairs], [pair[1] for pair in pairs])
        return connection.exec_driver_sql(SLOTS_TAKEN, parameters).all()

    def move_cursors(self, connection: Connection, values: Sequence[dict[str, Value]]) -> None:
        _update_many(connection, schedules, values)

    def insert_many(
        self, connection: Connection, table: Table, values: Sequence[dict[str, Value]]
    ) -> None:
        if values:
            names = tuple(values[0])
            connection.exec_driver_sql(_insert_all(table, names), _arrays(names, values))

    def claimable(
        self, connection: Connection, now: int, capabilities: Collection[str], limit: int
    ) -> Rows:
        parameters = (now, list(capabilities))
        return connection.exec_driver_sql(CLAIMABLE_RUNS % (limit, limit), parameters).all()

    def claim_plain(
        self,
        connection: Connection,
        now: int | None,
        capabilities: Collection[str],
        limit: int,
        node_id: str,
    ) -> Rows:
        parameters = (now, list(capabilities), node_id)
        return connection.exec_driver_sql(CLAIM % (limit, limit), parameters).all()

    def next_available(self, connection: Connection) -> int | None:
        return _integer(connection.exec_driver_sql(NEXT_AVAILABLE).scalar())

    def fire_plain(
        self, connection: Connection, batch: Batch, plain: Sequence[PlainFiring]
    ) -> Collection[str]:
        uniform, columns = _columns(plain, PlainFiring._fields.index("planned_at"))
        parameters = (
            *columns,
            batch.now,
            batch.claimed,
            batch.id,
            batch.node_id,
            batch.done,
        )
        statement = FIRE_UNIFORM if uniform else FIRE_PLAIN
        return set(connection.exec_driver_sql(statement, parameters).scalars())

    def due_times(self, connection: Connection, until: int, limit: int) -> Sequence[int]:
        return connection.exec_driver_sql(DUE_TIMES % limit, (until,)).scalars().all()

    def next_prefetch(
        self, connection: Connection, until: int, each: int, limit: int
    ) -> Row[Any] | None:
        return connection.exec_driver_sql(NEXT_PREFETCH % limit, (until, each)).first()

    def unconfirmed(
        self, connection: Connection, closed: int | None, claims: Sequence[tuple[str, int]]
    ) -> Rows:
        parameters = ([run_id for run_id, _ in claims], [fence for _, fence in claims], closed)
        return connection.exec_driver_sql(UNCONFIRMED, parameters).all()

    def finish_plain(
        self,
        connection: Connection,
        now: int | None,
        completions: Sequence[tuple[Value, ...]],
        *,
        recording: bool,
    ) -> Rows:
        uniform, columns = _columns(completions, PLAIN_COMPLETION.index("fence"))
        statement = FINISH_UNIFORM if uniform else FINISH_PLAIN
        return connection.exec_driver_sql(statement, (*columns, now, recording)).all()

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

    def write_deliveries(self, connection: Connection, values: Sequence[dict[str, Value]]) -> None:
        _update_many(connection, deliveries, values)

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
    """Updates rows by their ids, all with the same columns."""
    if values:
        names = tuple(values[0])
        connection.exec_driver_sql(_update_all(table, names), _arrays(names, values))


def _columns(rows: Sequence[tuple[Value, ...]], common: int) -> tuple[bool, Iterable[object]]:
    """Returns whether all rows have the same values from column `common` on, and the columns; equal
    columns are reduced to their value, because the driver inspects every value of a list."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    uniform = all(column.count(column[0]) == len(column) for column in columns[common:])
    return uniform, columns[:common] + [
        column[0] if uniform else column for column in columns[common:]
    ]


def _integer(value: object) -> int | None:
    assert value is None or isinstance(value, int)
    return value
