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
from chimes.model.policy import UNLIMITED
from chimes.model.run import Origin, RunStatus
from chimes.store.sql.dialects.base import PLAIN_VERDICT, Batch, Dialect, PlainFiring, Rows
from chimes.store.sql.rows.parts import Value, moment_of
from chimes.store.sql.tables import ACTIVE, BLOCKED, CLAIMABLE, DUE, runs, schedules


def _names(columns: Iterable[Column[Any]], prefix: str = "") -> str:
    return ", ".join(f'{prefix}"{each.name}"' for each in columns)


_LOCK_NOT_AVAILABLE = "55P03"

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

# Materialized, or the planner might walk all runs from the oldest on until one fits.
OLDEST_ACTIVE = f"""
WITH active AS MATERIALIZED (
  SELECT id, created_at FROM runs WHERE concurrency_key = $1 AND {ACTIVE}
)
SELECT {_names(runs.c)} FROM runs
WHERE id = (SELECT id FROM active ORDER BY created_at, id LIMIT 1)
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

# `claimed` of all of them without sending them back and forth. The inner statement is the one
# above; the rows it locked are found again by their ids.
TAKE = f"""
WITH found AS MATERIALIZED ({CLAIMABLE_RUNS.replace(_names(runs.c, "found."), "found.id")})
UPDATE runs SET
  status = '{RunStatus.RUNNING}', attempt = runs.attempt + 1, fence = runs.fence + 1,
  holder = $3::text, started = 0, claimed_at = $1::bigint,
  started_at = coalesce(runs.started_at, $1::bigint)
FROM found WHERE runs.id = found.id
RETURNING {_names(runs.c, "runs.")}
"""

NEXT_AVAILABLE = f"""
{RANKS}
SELECT min((
  SELECT available_at FROM runs
  WHERE {CLAIMABLE} AND runs.rank = ranks.rank ORDER BY available_at LIMIT 1
)) FROM ranks WHERE rank IS NOT NULL
"""


# One statement moves the cursors by id and inserts the runs. What a run copies from its schedule
# is copied here and never sent; the slot is where the cursor stood. A slot that has its row keeps
# it. The batch is written down along with it.
_COPIED = "name, version, namespace, owner_type, owner_id, kind, target, policy, priority"
FIRE_PLAIN = f"""
WITH new AS (
  SELECT * FROM unnest(
    $1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[]
  ) WITH ORDINALITY
  AS new(id, run_id, planned_at, next_slot, next_run_at, run_limit, needs, place)
), moved AS (
  UPDATE schedules SET
    last_slot = schedules.next_slot, next_slot = new.next_slot, next_run_at = new.next_run_at,
    last_enqueued_at = $8, fired_count = fired_count + 1
  FROM new WHERE schedules.id = new.id
  RETURNING schedules.id, schedules.last_slot AS slot, {_COPIED},
    new.run_id, new.planned_at, new.run_limit, new.needs, new.place <= $9 AS mine
), batch AS (
  INSERT INTO fire_batches (id, node_id, claimed_at, enqueued_at, duration_ms)
  SELECT $10, $11, $8, done.at, (done.at - $8) / 1000.0
  FROM (SELECT coalesce($12::bigint, ({NOW})) AS at) AS done
  ON CONFLICT DO NOTHING
)
INSERT INTO runs (
  id, schedule_id, schedule_name, schedule_version, namespace, owner_type, owner_id, slot, origin,
  step, kind, target, policy, priority, catch_up, rank, concurrency_key, concurrency_limit,
  blocked, status, attempt, fence, holder, started, cancel_requested, created_at, planned_at,
  available_at, claimed_at, started_at, error, reason, missed_count, attempts, needs, batch_id
)
SELECT
  run_id, id, name, version, namespace, owner_type, owner_id, slot, '{Origin.SCHEDULE}',
  '', kind, target, policy, priority, 0, priority * 2,
  CASE WHEN run_limit < {UNLIMITED} THEN 'schedule:' || id END, run_limit,
  0, CASE WHEN mine THEN '{RunStatus.RUNNING}' ELSE '{RunStatus.QUEUED}' END,
  mine::integer, mine::integer, CASE WHEN mine THEN $11::text END, 0, 0, $8, planned_at,
  planned_at, CASE WHEN mine THEN $8 END, CASE WHEN mine THEN $8 END, '', '', 0, '[]', needs, $10
FROM moved
ON CONFLICT DO NOTHING
RETURNING id
"""

# Fenced in the statement itself. A retry that somebody asked to stop is left to the long way, and
# so are flows and their steps, which follow from each other. The conditions stand in a CASE, so
# that rows are found by their id: without fresh statistics the planner takes running runs for
# few, and would walk all of them for each verdict. The schedules are told as `summarized` does it.
# The look for blocked runs is a later statement than the one that got the locks, as it has to be.
FINISH_PLAIN = f"""
WITH clock AS MATERIALIZED (SELECT coalesce($9::bigint, ({NOW})) AS at), done AS (
  UPDATE runs SET
    holder = NULL, started = 0, status = new.status, result = new.result, error = new.error,
    reason = new.reason, available_at = coalesce(clock.at + new.retry_in, runs.available_at),
    finished_at = CASE WHEN new.retry_in IS NULL THEN clock.at END,
    attempts = CASE WHEN runs.attempts = '[]' THEN '[' ELSE left(runs.attempts, -1) || ',' END
      || new.attempt || ']'
  FROM clock, unnest(
    $1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[],
    $8::text[]
  ) AS new({", ".join(PLAIN_VERDICT)})
  WHERE runs.id = new.id AND CASE WHEN runs.fence = new.fence THEN
    runs.status = '{RunStatus.RUNNING}' AND runs.kind <> 'flow' AND runs.parent_id IS NULL
    AND (new.retry_in IS NULL OR runs.cancel_requested = 0)
  ELSE false END
  RETURNING runs.id, runs.schedule_id, runs.status, runs.error, runs.started_at, runs.finished_at,
    runs.cancel_requested, runs.concurrency_key, clock.at,
    coalesce(runs.started_at, runs.finished_at) AS began
), told AS (
  UPDATE schedules SET
    last_run_at = CASE WHEN began < last_run_at THEN last_run_at
      ELSE coalesce(done.started_at, last_run_at) END,
    last_status = CASE WHEN began < last_run_at THEN last_status ELSE done.status END,
    last_error = CASE WHEN began < last_run_at THEN last_error ELSE done.error END,
    last_success_at = CASE WHEN done.status = '{RunStatus.SUCCEEDED}'
      THEN greatest(last_success_at, done.finished_at) ELSE last_success_at END
  FROM done WHERE $10 AND schedules.id = done.schedule_id AND done.finished_at IS NOT NULL
)
SELECT id, at, cancel_requested, EXISTS (
  SELECT 1 FROM runs AS waiting
  WHERE waiting.{BLOCKED.replace("AND ", "AND waiting.")}
  AND waiting.concurrency_key = done.concurrency_key
) FROM done
"""


class PostgresDialect(Dialect):
    name = "postgresql"
    locks_rows = True
    fast = True

    def now(self, connection: Connection, clock: Clock | None) -> datetime:
        if clock is not None:
            return clock.now()
        micros = _integer(connection.exec_driver_sql(NOW).scalar())
        assert micros is not None
        return moment_of(micros)

    def unavailable(self, error: Exception) -> str | None:
        return None  # the server says what an error means (`server.Trouble`)

    def lock_timed_out(self, error: Exception) -> bool:
        return getattr(getattr(error, "orig", None), "sqlstate", None) == _LOCK_NOT_AVAILABLE

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

    def take(
        self, connection: Connection, now: int, offers: Collection[str], limit: int, node_id: str
    ) -> Rows:
        given = (now, list(offers), node_id)
        return connection.exec_driver_sql(TAKE % (limit, limit), given).all()

    def next_available(self, connection: Connection) -> int | None:
        return _integer(connection.exec_driver_sql(NEXT_AVAILABLE).scalar())

    def fire_plain(
        self, connection: Connection, batch: Batch, plain: Sequence[PlainFiring]
    ) -> Collection[str]:
        given = (
            *(list(each) for each in zip(*plain, strict=True)),
            batch.now,
            batch.claimed,
            batch.id,
            batch.node_id,
            batch.done,
        )
        return set(connection.exec_driver_sql(FIRE_PLAIN, given).scalars())

    def finish_plain(
        self,
        connection: Connection,
        now: int | None,
        verdicts: Sequence[tuple[Value, ...]],
        *,
        recording: bool,
    ) -> Rows:
        given = (*(list(each) for each in zip(*verdicts, strict=True)), now, recording)
        return connection.exec_driver_sql(FINISH_PLAIN, given).all()

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
