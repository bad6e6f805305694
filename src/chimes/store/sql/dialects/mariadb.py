"""MariaDB dialect.

Rows are locked one by one under READ COMMITTED, which has no gap locks; the store's clock is the
server's. Lists are passed as one JSON text that JSON_TABLE turns into rows, or as a plain IN list
where the optimizer must see the values to use an index. STRAIGHT_JOIN and FORCE INDEX keep it from
scanning all runs while it estimates that there are few.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Insert,
    Select,
    String,
    Table,
    bindparam,
    exists,
    func,
    insert,
    literal,
    select,
    tuple_,
)

from chimes.clock import MICROSECOND, Clock
from chimes.store.port import MAX_CLOCK_STEP_BACK
from chimes.store.sql.dialects.base import MOST_OWNERS, Dialect, Rows, TokenRequest
from chimes.store.sql.dialects.statistics import MariadbStatistics
from chimes.store.sql.rows.values import Value, Values
from chimes.store.sql.tables import BLOCKED, CLAIMABLE, PENDING, deliveries, queue

# ruff: noqa: S608 - what is put into statements here are the names of our own columns.


_LOCK_WAIT = 1205
#: Characters per packet. A server accepts 16 MB (`max_allowed_packet`), and one character may need
#: four bytes or as many escapes; a larger row is sent without JSON around it.
_PACKET = 1_000_000
_COLLATE = "CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"


def _names(columns: Iterable[Column[Any]]) -> str:
    return ", ".join(f"`{each.name}`" for each in columns)


NOW = "SELECT UTC_TIMESTAMP(6)"

BLOCKED_KEYS = f"""
SELECT wanted.number
FROM JSON_TABLE(%(numbers)s, '$[*]' COLUMNS (number BIGINT PATH '$')) AS wanted
WHERE (
  SELECT 1 FROM queue FORCE INDEX (queue_by_concurrency)
  WHERE queue.concurrency = wanted.number AND {BLOCKED} LIMIT 1
) = 1
"""

SLOT_RUNS = """
SELECT runs.id, runs.schedule, runs.slot
FROM JSON_TABLE(
  %(slots)s, '$[*]' COLUMNS (`key` BIGINT PATH '$[0]', at BIGINT PATH '$[1]')
) AS wanted STRAIGHT_JOIN runs FORCE INDEX (runs_by_slot)
ON runs.schedule = wanted.`key` AND runs.slot = wanted.at
"""

# MariaDB does not jump from owner to owner within one statement: grouping reads every run.
_OWNER = f"""
SELECT owner FROM queue FORCE INDEX (queue_turns)
WHERE {CLAIMABLE} AND `rank` = %(rank)s AND owner > %(after)s ORDER BY owner {{}} LIMIT 1
"""
NEXT_OWNER = _OWNER.format("")
ENDS = f"({_OWNER.format('')}) UNION ALL ({_OWNER.format('DESC')})"

# In the order of the index; other channels are filtered out, and rows that another node has locked
# are skipped.
PENDING_DELIVERIES = f"""
SELECT {_names(deliveries.c)} FROM deliveries FORCE INDEX (deliveries_pending)
WHERE {PENDING} AND available_at <= %(now)s
AND (available_at <= %(overdue)s OR channel IN %(channels)s)
ORDER BY available_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
"""

NEXT_DELIVERY = f"""
SELECT available_at FROM deliveries FORCE INDEX (deliveries_pending)
WHERE {PENDING} ORDER BY available_at LIMIT 1
"""

# Assignments are evaluated in order and see earlier ones, so the time is last. Numbers with an
# exponent are DOUBLE; without one they would be decimal, and rounded.
_THERE = """
LEAST(CAST(%(burst)s AS DOUBLE), tokens
  + CAST(GREATEST(0, VALUES(`at`) - `at`) AS DOUBLE) / 1e6 * CAST(%(rate)s AS DOUBLE))
"""
TAKE_TOKENS = f"""
INSERT INTO buckets (name, tokens, `at`, granted, full_at)
SELECT %(name)s, %(first_tokens)s, clock.now, %(first_granted)s, clock.now + %(fills_in)s
FROM (SELECT COALESCE(
  %(now)s, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
) AS now) AS clock
ON DUPLICATE KEY UPDATE
  granted = IF({_THERE} >= %(wanted)s, %(wanted)s, 0),
  tokens = {_THERE} - IF({_THERE} >= %(wanted)s, %(wanted)s, 0),
  full_at = VALUES(full_at),
  `at` = IF(VALUES(`at`) < `at` AND VALUES(`at`) > `at` - {MAX_CLOCK_STEP_BACK // MICROSECOND},
    `at`, VALUES(`at`))
RETURNING tokens, granted
"""

#: Rows of a table that is emptied that one statement deletes.
_MOST_DELETED = 5_000


class MariadbDialect(Dialect):
    name = "mariadb"
    locks_rows = True
    statistics = MariadbStatistics()

    def now(self, connection: Connection, clock: Clock | None) -> datetime:
        if clock is not None:
            return clock.now()
        moment = connection.exec_driver_sql(NOW).scalar_one()
        assert isinstance(moment, datetime)
        return moment.replace(tzinfo=UTC)

    def unavailable(self, error: Exception) -> str | None:
        return None  # `Server` maps errors of the server

    def lock_timed_out(self, error: Exception) -> bool:
        original = getattr(error, "orig", None)
        return original is not None and error_number(original) == _LOCK_WAIT

    def among(self, column_: Column[Any], name: str) -> ColumnElement[bool]:
        return column_.in_(bindparam(name, expanding=True))

    def listed(self, values: Collection[Any]) -> object:
        return list(values)

    def contains(self, column_: Column[Any], text_: str) -> ColumnElement[bool]:
        return func.instr(column_, text_) > 0

    def has_entry(self, column_: Column[Any], key: str, value: str | None) -> ColumnElement[bool]:
        if value is None:
            return func.json_contains(func.json_keys(column_), _plain(key)) == 1
        return func.json_contains(column_, _plain({key: value})) == 1

    def empty(self, connection: Connection, table: Table) -> bool:
        # TRUNCATE needs the right to drop tables.
        deleted = connection.exec_driver_sql(f"DELETE FROM `{table.name}` LIMIT {_MOST_DELETED}")
        return deleted.rowcount == _MOST_DELETED

    def insert_new(self, table: Table) -> Insert:
        return _insert_new(table)

    def for_update(self, statement: Select[Any], *, skip: bool = False) -> Select[Any]:
        return statement.with_for_update(skip_locked=skip)

    def insert_many(
        self, connection: Connection, table: Table, names: Sequence[str], rows: Sequence[Values]
    ) -> None:
        if rows:
            # The driver combines them into one statement, or a few where they are large.
            connection.exec_driver_sql(_insert_all(table, tuple(names)), list(rows))

    def insert_missing(
        self,
        connection: Connection,
        table: Table,
        names: Sequence[str],
        rows: Sequence[Values],
        *,
        unique: str,
    ) -> Collection[Value]:
        """Looks first. Not INSERT IGNORE, which also truncates texts that are too long. If another
        transaction inserts the same key meanwhile, this one gets a duplicate key error and is
        repeated; with a single row it waits for the other one instead, also in a transaction of the
        caller."""
        place = list(names).index(unique)
        if len(rows) == 1:
            (row,) = rows
            own = [row[list(names).index(name)] for each in _unique_keys(table) for name in each]
            insert_one = _insert_one_missing(table, tuple(names))
            inserted = connection.exec_driver_sql(insert_one, (*row, *own)).rowcount
            return [row[place]] if inserted else []
        new = list(rows)
        for columns in _unique_keys(table):
            places = [list(names).index(name) for name in columns]
            keys = [tuple(row[place] for place in places) for row in new]
            wanted = [key for key in keys if None not in key]
            if wanted:
                statement = select(*(table.c[name] for name in columns)).where(
                    tuple_(*(table.c[name] for name in columns)).in_(wanted)
                )
                taken = {tuple(row) for row in connection.execute(statement)}
                new = [row for row, key in zip(new, keys, strict=True) if key not in taken]
        self.insert_many(connection, table, names, new)
        return [row[place] for row in new]

    def update_many(
        self, connection: Connection, table: Table, names: Sequence[str], rows: Sequence[Values]
    ) -> None:
        _update_many(connection, table, tuple(names), rows)

    def owners(self, connection: Connection, rank: int, last: int) -> Sequence[int]:
        """One round trip if there is one owner."""
        given = {"rank": rank, "after": -1}
        ends = connection.exec_driver_sql(ENDS, given).scalars().all()
        found = sorted(set(ends))
        if len(found) < 2:
            return found
        first, final = found
        # In a circle, from the last owner until the circle is closed.
        found, after = [], last
        while len(found) <= MOST_OWNERS:
            owner = first
            if after < final:
                given = {"rank": rank, "after": after}
                owner = connection.exec_driver_sql(NEXT_OWNER, given).scalar() or final
            if found and owner == found[0]:
                break
            found.append(owner)
            after = owner
        return found

    def with_index(self, statement: Select[Any], index: str) -> Select[Any]:
        name = "queue_claimable" if index == "queue_order" else index
        return statement.with_hint(queue, f"FORCE INDEX ({name})")

    def blocked_keys(self, connection: Connection, numbers: Collection[int]) -> Sequence[int]:
        parameters = {"numbers": _plain(list(numbers))}
        return connection.exec_driver_sql(BLOCKED_KEYS, parameters).scalars().all()

    def slot_runs(self, connection: Connection, slots: Sequence[tuple[int, int]]) -> Rows:
        return connection.exec_driver_sql(SLOT_RUNS, {"slots": _plain(slots)}).all()

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
            # MariaDB rejects an empty list.
            "channels": tuple(channels) or ("",),
            "limit": limit,
        }
        return connection.exec_driver_sql(PENDING_DELIVERIES, parameters).all()

    def next_delivery(self, connection: Connection) -> int | None:
        return _integer(connection.exec_driver_sql(NEXT_DELIVERY).scalar())

    def take_tokens(
        self, connection: Connection, now: int | None, request: TokenRequest
    ) -> tuple[float, int]:
        parameters = request._asdict() | {"now": now}
        tokens, granted = connection.exec_driver_sql(TAKE_TOKENS, parameters).one()
        return float(tokens), int(granted)


def _plain(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


@cache
def _unique_keys(table: Table) -> list[tuple[str, ...]]:
    found = [tuple(each.name for each in table.primary_key.columns)]
    unique = [index for index in table.indexes if index.unique]
    return found + [tuple(each.name for each in index.columns) for index in unique]


@cache
def _insert_one_missing(table: Table, names: tuple[str, ...]) -> str:
    columns = ", ".join(f"`{name}`" for name in names)
    marks = ", ".join(["%s"] * len(names))
    conditions = " AND ".join(
        f"NOT EXISTS (SELECT 1 FROM `{table.name}` WHERE "
        + " AND ".join(f"`{name}` = %s" for name in key)
        + ")"
        for key in _unique_keys(table)
    )
    return f"INSERT INTO `{table.name}` ({columns}) SELECT {marks} FROM DUAL WHERE {conditions}"


@cache
def _insert_all(table: Table, names: tuple[str, ...]) -> str:
    columns = ", ".join(f"`{name}`" for name in names)
    marks = ", ".join(["%s"] * len(names))
    return f"INSERT INTO `{table.name}` ({columns}) VALUES ({marks})"


@cache
def _insert_new(table: Table) -> Insert:
    """Not INSERT IGNORE, which also truncates texts that are too long. Not ON DUPLICATE KEY UPDATE:
    the driver requests found rows, which makes it count an existing row. Of two concurrent inserts
    of the same key, the second gets a duplicate key error and its transaction is repeated."""
    parameters = [bindparam(each.name, type_=each.type) for each in table.c]
    same = [each == bindparam(each.name) for each in table.primary_key.columns]
    return insert(table).from_select(
        [each.name for each in table.c],
        select(*parameters).where(~exists(select(literal(1)).select_from(table).where(*same))),
    )


def _update_many(
    connection: Connection, table: Table, names: tuple[str, ...], rows: Sequence[Values]
) -> None:
    small: list[str] = []
    for row in rows:
        text = _plain(row) if len(rows) > 1 else ""
        if not text or len(text) > _PACKET:
            connection.exec_driver_sql(_update_one(table, names), (*row[1:], row[0]))
        else:
            small.append(text)
    for some in _packets(small):
        parameters = {"rows": f"[{','.join(some)}]"}
        connection.exec_driver_sql(_update_all(table, names), parameters)


def _packets(rows: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yields as many rows at a time as certainly fit into one packet."""
    first = size = 0
    for place, row in enumerate(rows):
        if place > first and size + len(row) > _PACKET:
            yield rows[first:place]
            first, size = place, 0
        size += len(row)
    if rows:
        yield rows[first:]


@cache
def _update_one(table: Table, names: tuple[str, ...]) -> str:
    changes = ", ".join(f"`{name}` = %s" for name in names[1:])
    return f"UPDATE `{table.name}` SET {changes} WHERE `{names[0]}` = %s"


@cache
def _update_all(table: Table, names: tuple[str, ...]) -> str:
    """One statement for all rows takes half the time of one for each."""
    cells = ", ".join(
        f"`{name}` {_type(table.c[name])} PATH '$[{place}]'" for place, name in enumerate(names)
    )
    changes = ", ".join(f"this.`{name}` = new.`{name}`" for name in names[1:])
    return (
        f"UPDATE JSON_TABLE(%(rows)s, '$[*]' COLUMNS ({cells})) AS new"
        f" STRAIGHT_JOIN `{table.name}` AS this ON this.`{names[0]}` = new.`{names[0]}`"
        f" SET {changes}"
    )


def _type(column: Column[Any]) -> str:
    if isinstance(column.type, String):
        size = column.type.length
        return f"LONGTEXT {_COLLATE}" if size is None else f"VARCHAR({size}) {_COLLATE}"
    return "BIGINT"


def _integer(value: object) -> int | None:
    assert value is None or isinstance(value, int)
    return value


def error_number(error: BaseException) -> int | None:
    if not is_driver_error(error) or not error.args:
        return None
    number = error.args[0]
    return number if isinstance(number, int) else 0


def is_driver_error(error: BaseException) -> bool:
    return type(error).__module__.startswith("asyncmy")
