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
    Row,
    Select,
    String,
    Table,
    bindparam,
    exists,
    func,
    insert,
    literal,
    select,
)

from chimes.clock import MICROSECOND, Clock
from chimes.store.sql.dialects.base import Dialect, MariadbStatistics, Rows, TokenRequest
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


_ABOVE_ALL = 2**63 - 1
_LOCK_WAIT = 1205
#: Characters per packet. A server accepts 16 MB (`max_allowed_packet`), and one character may need
#: four bytes or as many escapes; a larger row is sent without JSON around it.
_PACKET = 1_000_000
_COLLATE = "CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"


def _names(columns: Iterable[Column[Any]]) -> str:
    return ", ".join(f"`{each.name}`" for each in columns)


NOW = "SELECT UTC_TIMESTAMP(6)"

# The first entry of the index is the result.
NEXT_DUE = f"""
SELECT next_run_at FROM schedules FORCE INDEX (schedules_due)
WHERE {DUE} ORDER BY next_run_at LIMIT 1
"""

# The columns of the condition lead the index, so due rows come in order without a sort, and the
# cost depends on how many are due. Rows that another node has locked are skipped.
DUE_SCHEDULES = f"""
SELECT {_names(schedules.c)} FROM schedules FORCE INDEX (schedules_due)
WHERE {DUE} AND next_run_at <= %(now)s
ORDER BY next_run_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
"""

# Status and `blocked` follow the key in the index: ended runs of a key are not read. The few
# remaining rows are sorted.
ADMITTED = f"""
SELECT concurrency_key, id FROM runs FORCE INDEX (runs_by_key)
WHERE concurrency_key IN %(keys)s AND {ACTIVE} AND blocked = 0
ORDER BY concurrency_key, created_at, id
"""

OLDEST_ACTIVE = f"""
SELECT {_names(runs.c)} FROM runs FORCE INDEX (runs_by_key)
WHERE concurrency_key = %(key)s AND {ACTIVE} ORDER BY created_at, id LIMIT 1
"""

# One lookup per key, because a key may have tens of thousands of blocked runs and one is enough.
BLOCKED_KEYS = f"""
SELECT wanted.concurrency_key
FROM JSON_TABLE(%(keys)s, '$[*]' COLUMNS (
  concurrency_key VARCHAR(300) {_COLLATE} PATH '$'
)) AS wanted
WHERE (
  SELECT 1 FROM runs FORCE INDEX (runs_by_key)
  WHERE runs.concurrency_key = wanted.concurrency_key AND {BLOCKED} LIMIT 1
) = 1
"""

SLOTS_TAKEN = f"""
SELECT STRAIGHT_JOIN runs.id, runs.schedule_id, runs.slot
FROM JSON_TABLE(%(pairs)s, '$[*]' COLUMNS (
  schedule_id VARCHAR(255) {_COLLATE} PATH '$[0]', slot BIGINT PATH '$[1]'
)) AS pair
JOIN runs FORCE INDEX (runs_one_per_slot)
ON runs.schedule_id = pair.schedule_id AND runs.slot = pair.slot
"""

# Rank comes first in queue order, so a plain scan would step over every retry that waits for its
# time in a high rank. Jumping from rank to rank and reading the due head of each reads only the
# claimed rows plus one entry per rank. One jump is one statement: in a recursive query MariaDB
# would read every queued run.
NEXT_RANK = f"""
SELECT `rank` FROM runs FORCE INDEX (runs_claimable)
WHERE {CLAIMABLE} AND `rank` < %(below)s ORDER BY `rank` DESC LIMIT 1
"""

CLAIMABLE_OF_RANK = f"""
SELECT {_names(runs.c)} FROM runs FORCE INDEX (runs_claimable)
WHERE {CLAIMABLE} AND `rank` = %(rank)s AND available_at <= %(now)s AND needs IN %(offers)s
ORDER BY available_at, planned_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
"""

AVAILABLE_IN_RANK = f"""
SELECT available_at FROM runs FORCE INDEX (runs_claimable)
WHERE {CLAIMABLE} AND `rank` = %(rank)s ORDER BY available_at LIMIT 1
"""


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

    def listed(self, values: Collection[str]) -> object:
        return list(values)

    def contains(self, column_: Column[Any], text_: str) -> ColumnElement[bool]:
        return func.instr(column_, text_) > 0

    def has_entry(self, column_: Column[Any], key: str, value: str | None) -> ColumnElement[bool]:
        if value is None:
            return func.json_contains(func.json_keys(column_), _plain(key)) == 1
        return func.json_contains(column_, _plain({key: value})) == 1

    def insert_new(self, table: Table) -> Insert:
        return _insert_new(table)

    def for_update(self, statement: Select[Any], *, skip: bool = False) -> Select[Any]:
        return statement.with_for_update(skip_locked=skip)

    def next_due(self, connection: Connection) -> int | None:
        return _integer(connection.exec_driver_sql(NEXT_DUE).scalar())

    def due(self, connection: Connection, now: int, limit: int) -> Rows:
        parameters = {"now": now, "limit": limit}
        return connection.exec_driver_sql(DUE_SCHEDULES, parameters).all()

    def admitted(self, connection: Connection, keys: Collection[str]) -> Rows:
        return connection.exec_driver_sql(ADMITTED, {"keys": tuple(keys)}).all()

    def oldest_active(self, connection: Connection, key: str) -> Row[Any] | None:
        return connection.exec_driver_sql(OLDEST_ACTIVE, {"key": key}).first()

    def blocked_keys(self, connection: Connection, keys: Collection[str]) -> Sequence[str]:
        parameters = {"keys": _plain(list(keys))}
        return connection.exec_driver_sql(BLOCKED_KEYS, parameters).scalars().all()

    def find_slot_runs(self, connection: Connection, pairs: Collection[tuple[str, int]]) -> Rows:
        return connection.exec_driver_sql(SLOTS_TAKEN, {"pairs": _plain(list(pairs))}).all()

    def move_cursors(self, connection: Connection, values: Sequence[dict[str, Value]]) -> None:
        _update_many(connection, schedules, values)

    def insert_many(
        self, connection: Connection, table: Table, values: Sequence[dict[str, Value]]
    ) -> None:
        if values:
            # The driver combines them into one statement, or a few where they are large.
            connection.exec_driver_sql(_insert_all(table, tuple(values[0])), list(values))

    def claimable(
        self, connection: Connection, now: int, capabilities: Collection[str], limit: int
    ) -> Rows:
        found: list[Any] = []
        if not capabilities:
            return found
        for rank in _ranks(connection):
            parameters = {
                "rank": rank,
                "now": now,
                "offers": tuple(capabilities),
                "limit": limit - len(found),
            }
            found.extend(connection.exec_driver_sql(CLAIMABLE_OF_RANK, parameters).all())
            if len(found) >= limit:
                break
        return found

    def next_available(self, connection: Connection) -> int | None:
        heads = (
            _integer(connection.exec_driver_sql(AVAILABLE_IN_RANK, {"rank": rank}).scalar())
            for rank in _ranks(connection)
        )
        return min((head for head in heads if head is not None), default=None)

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

    def write_deliveries(self, connection: Connection, values: Sequence[dict[str, Value]]) -> None:
        _update_many(connection, deliveries, values)

    def take_tokens(
        self, connection: Connection, now: int | None, request: TokenRequest
    ) -> tuple[float, int]:
        parameters = request._asdict() | {"now": now}
        tokens, granted = connection.exec_driver_sql(TAKE_TOKENS, parameters).one()
        return float(tokens), int(granted)

    def write_states(self, connection: Connection, values: Sequence[dict[str, Value]]) -> None:
        _update_many(connection, runs, values)


def _ranks(connection: Connection) -> Iterator[int]:
    """Yields the ranks of the claimable runs, highest first."""
    below = _ABOVE_ALL
    while True:
        rank = _integer(connection.exec_driver_sql(NEXT_RANK, {"below": below}).scalar())
        if rank is None:
            return
        yield rank
        below = rank


def _plain(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


@cache
def _insert_all(table: Table, columns: tuple[str, ...]) -> str:
    names = ", ".join(f"`{name}`" for name in columns)
    marks = ", ".join(f"%({name})s" for name in columns)
    return f"INSERT INTO `{table.name}` ({names}) VALUES ({marks})"


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


def _update_many(connection: Connection, table: Table, values: Sequence[dict[str, Value]]) -> None:
    """Updates rows by their ids, all with the same columns."""
    if not values:
        return
    columns = tuple(name for name in values[0] if name != "id")
    small: list[str] = []
    for row in values:
        text = _plain([row["id"], *(row[name] for name in columns)]) if len(values) > 1 else ""
        if not text or len(text) > _PACKET:
            connection.exec_driver_sql(_update_one(table, columns), row)
        else:
            small.append(text)
    for some in _packets(small):
        parameters = {"rows": f"[{','.join(some)}]"}
        connection.exec_driver_sql(_update_all(table, columns), parameters)


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
def _update_one(table: Table, columns: tuple[str, ...]) -> str:
    changes = ", ".join(f"`{name}` = %({name})s" for name in columns)
    return f"UPDATE `{table.name}` SET {changes} WHERE `id` = %(id)s"


@cache
def _update_all(table: Table, columns: tuple[str, ...]) -> str:
    """One statement for all rows takes half the time of one for each."""
    cells = ", ".join(
        f"`{name}` {_type(table.c[name])} PATH '$[{place}]'"
        for place, name in enumerate(("id", *columns))
    )
    changes = ", ".join(f"this.`{name}` = new.`{name}`" for name in columns)
    return (
        f"UPDATE JSON_TABLE(%(rows)s, '$[*]' COLUMNS ({cells})) AS new"
        f" STRAIGHT_JOIN `{table.name}` AS this ON this.`id` = new.`id` SET {changes}"
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
