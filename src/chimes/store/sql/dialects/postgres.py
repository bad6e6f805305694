"""PostgreSQL dialect.

Transactions run concurrently at READ COMMITTED, so rows that are read to be changed are locked. A
list is passed as one array, so that the text of a statement, and with it its plan, does not depend
on the length of the list.
"""

# ruff: noqa: S608 - what is put into statements here are the names of our own columns.

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from functools import cache, lru_cache
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
from chimes.model.planning import PREFETCH_CUTOFF
from chimes.model.run import NO_TURNS, Turns
from chimes.store.port import MAX_CLOCK_STEP_BACK
from chimes.store.sql.dialects.base import MOST_OWNERS, Dialect, Rows, TokenRequest, Write
from chimes.store.sql.dialects.statistics import PostgresStatistics
from chimes.store.sql.rows.run import CLAIMS, ENDING
from chimes.store.sql.rows.values import Value, Values, moment_of
from chimes.store.sql.tables import BLOCKED, CLAIMABLE, DUE, PENDING, deliveries, runs


# --- hot statements, each with the reason for its shape -------------------------------------------
def _names(columns: Iterable[Column[Any]], prefix: str = "") -> str:
    return ", ".join(f'{prefix}"{each.name}"' for each in columns)


# clock_timestamp, because now() stands still during a transaction.
NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

# A driver prepares and executes a statement in two messages. A client that stops between them is
# neither idle in a transaction nor executing a statement, so no session timeout ends it (before 17
# there is none for a whole transaction); the server only waits for the client.
END_STALLED = """
SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND usename = current_user AND application_name = 'chimes'
AND state = 'active' AND wait_event_type = 'Client' AND wait_event = 'ClientRead'
AND state_change < clock_timestamp() - make_interval(secs => $1)
"""

# Rank comes first in queue order, so a plain scan would step over every retry that waits for its
# time in a high rank. Jumping from rank to rank and reading the due head of each reads only the
# claimed rows plus one entry per rank.
_HIGHEST = f"""
SELECT queue.rank FROM queue WHERE {CLAIMABLE} AND queue.rank < %s ORDER BY queue.rank DESC LIMIT 1
"""
_RANKS = f"""
ranks(rank) AS (
  SELECT ({_HIGHEST % f"{2**63 - 1}"}) WHERE %s
  UNION ALL
  SELECT ({_HIGHEST % "ranks.rank"}) FROM ranks WHERE ranks.rank IS NOT NULL
)
"""

NEXT_AVAILABLE = f"""
WITH RECURSIVE {_RANKS % "true"}
SELECT min((
  SELECT available_at FROM queue
  WHERE {CLAIMABLE} AND queue.rank = ranks.rank ORDER BY available_at LIMIT 1
)) FROM ranks WHERE rank IS NOT NULL
"""

# Owners with claimable runs of a rank, in the order of their turns: after the last one, then from
# the first one on (`wrapped`). One entry of the index for each.
_LAST_OWNER = """
coalesce((
  SELECT last.owner FROM unnest($4::bigint[], $5::bigint[]) AS last(rank, owner)
  WHERE last.rank = ranks.rank
), 0)
"""
_OWNER = f"""
SELECT queue.owner, %s AS wrapped FROM queue
WHERE {CLAIMABLE} AND queue.rank = ranks.rank AND %s ORDER BY queue.owner LIMIT 1
"""
_LATER = "queue.owner > owners.owner AND queue.owner <= owners.until"
_FROM_START = "queue.owner <= owners.last AND NOT owners.wrapped"
_OWNERS = f"""
owners(owner, wrapped, place, last, until) AS (
  SELECT last, false, 0, last, {2**63 - 1} FROM (SELECT {_LAST_OWNER} AS last) AS start
  UNION ALL
  SELECT next.owner, next.wrapped, owners.place + 1, owners.last,
    CASE WHEN next.wrapped THEN owners.last ELSE {2**63 - 1} END
  FROM owners CROSS JOIN LATERAL (
    ({_OWNER % ("owners.wrapped", _LATER)}) UNION ALL ({_OWNER % ("true", _FROM_START)}) LIMIT 1
  ) AS next
  WHERE owners.place <= {MOST_OWNERS}
)
"""

# A claim is one message: it reads the clock, checks the node's lease, moves the runs from the queue
# to the claims and returns them. So it commits by itself, and the server executes it while the
# process executes its runs. In each rank every owner gets its share (`take_turns`), in `shares`;
# what is left goes to the owners in turn, or in queue order if there are too many of them. Rows are
# locked one by one as they are returned, so that no more are locked than are claimed. Rows that
# another node has locked are skipped without a wait. LIMIT is a literal: as a parameter it would be
# planned with a guess.
_FOUND = ("run_id", "available_at", "attempt", "fence", "concurrency")
_DUE = f"""
{CLAIMABLE} AND queue.rank = ranks.rank AND available_at <= (SELECT at FROM clock)
AND needs = ANY ($2::text[])
"""
_FIRST = f"""
SELECT {", ".join(_FOUND)} FROM queue WHERE {_DUE} AND %s
ORDER BY available_at, planned_at, run_id LIMIT %s FOR UPDATE SKIP LOCKED
"""
_NOT_SHARED = "run_id <> ALL (ARRAY(SELECT shares.run_id FROM shares))"
_ALL_FOUND = ", ".join(f"heads.{name}" for name in _FOUND)
CLAIM = f"""
WITH RECURSIVE clock AS MATERIALIZED (SELECT coalesce($1::bigint, ({NOW})) AS at), {
    _RANKS
    % "EXISTS (SELECT 1 FROM nodes, clock WHERE nodes.id = $3::text AND lease_until > clock.at)"
}, found AS MATERIALIZED (
  SELECT {_ALL_FOUND} FROM ranks CROSS JOIN LATERAL (
    WITH RECURSIVE {_OWNERS}, waiting AS MATERIALIZED (
      SELECT owners.owner, count(*) OVER () AS number FROM owners CROSS JOIN LATERAL (
        SELECT 1 FROM queue WHERE {_DUE} AND queue.owner = owners.owner LIMIT 1
      ) AS head WHERE owners.place > 0
    ), shares AS MATERIALIZED (
      SELECT {_ALL_FOUND} FROM waiting CROSS JOIN LATERAL (
        {
    _FIRST
    % (
        "queue.owner = waiting.owner",
        "(%(limit)d + waiting.number - 1) / waiting.number",
    )
}
      ) AS heads
    )
    SELECT {", ".join(_FOUND)} FROM shares
    UNION ALL
    SELECT {_ALL_FOUND} FROM waiting CROSS JOIN LATERAL (
      {_FIRST % (f"queue.owner = waiting.owner AND {_NOT_SHARED}", "%(limit)d")}
    ) AS heads WHERE waiting.number > 1
    UNION ALL
    SELECT {_ALL_FOUND} FROM (SELECT WHERE (SELECT count(*) FROM owners) > {
    MOST_OWNERS + 1
}) AS many
    CROSS JOIN LATERAL ({_FIRST % (_NOT_SHARED, "%(limit)d")}) AS heads
  ) AS heads WHERE ranks.rank IS NOT NULL LIMIT %(limit)d
), gone AS (
  DELETE FROM queue WHERE run_id = ANY (ARRAY(SELECT run_id FROM found))
), taken AS (
  INSERT INTO claims ({", ".join(CLAIMS)})
  SELECT run_id, $3, attempt + 1, fence + 1, 0, 0, clock.at, available_at, concurrency
  FROM found, clock
)
SELECT {_names(runs.c, "runs.")},
  NULL::bigint, NULL::integer, NULL::bigint, NULL::smallint,
  $3, found.attempt + 1, found.fence + 1, 0::smallint, 0::smallint, clock.at, found.available_at,
  found.concurrency
FROM found JOIN runs ON runs.id = found.run_id, clock
"""

BLOCKED_KEYS = f"""
SELECT number FROM unnest($1::bigint[]) AS wanted(number) WHERE EXISTS (
  SELECT 1 FROM queue WHERE concurrency = number AND {BLOCKED}
)
"""

SLOT_RUNS = """
SELECT id, schedule, slot FROM unnest($1::bigint[], $2::bigint[]) AS wanted(key, at)
CROSS JOIN LATERAL (
  SELECT id, schedule, slot FROM runs WHERE schedule = wanted.key AND slot = wanted.at OFFSET 0
) AS found
"""

# The fence of a row never changes: a run that is claimed again gets another row, which this
# statement does not see. A join with a table that was empty at its last ANALYZE would read the
# whole table for each id: so rows are looked up one by one (OFFSET keeps that from becoming a join)
# and deleted by a list of ids.
TAKE_CLAIMS = f"""
WITH found AS MATERIALIZED (
  SELECT held.id FROM unnest($1::text[], $2::bigint[]) AS held(id, fence) CROSS JOIN LATERAL (
    SELECT 1 FROM claims WHERE claims.run_id = held.id AND claims.fence = held.fence OFFSET 0
  ) AS owned
)
DELETE FROM claims WHERE run_id = ANY (ARRAY(SELECT id FROM found))
RETURNING {", ".join(f"claims.{name}" for name in CLAIMS)}
"""

# `TAKE_CLAIMS` and the update of the runs in one message, which commits by itself. What was taken
# decides which runs end; a cancellation that is requested meanwhile keeps the claim. What a claim
# knows of its run is not sent. IS TRUE makes a hash table of the taken ids: as a join, each would
# be compared with all others. The ids are returned as one value, which the driver decodes faster
# than rows.
END_CLAIMED = """
WITH clock AS MATERIALIZED (SELECT coalesce({now}::bigint, ({NOW})) AS at),
ending AS MATERIALIZED ({values}), found AS MATERIALIZED (
  SELECT ending.*, owned.* FROM ending CROSS JOIN LATERAL (
    SELECT node, attempt, claimed_at, available_at FROM claims
    WHERE claims.run_id = ending.id AND claims.fence = ending.fence OFFSET 0
  ) AS owned
), taken AS (
  DELETE FROM claims WHERE run_id = ANY (ARRAY(SELECT id FROM found)) AND cancel_requested = 0
  RETURNING run_id
), ended AS (
  UPDATE runs SET {changes}, problem = nullif(found.status, 'succeeded'), node = found.node,
    attempt = found.attempt, claimed_at = found.claimed_at, available_at = found.available_at,
    started_at = coalesce(runs.started_at, greatest(found.claimed_at, found.available_at)),
    finished_at = clock.at
  FROM found, clock
  WHERE runs.id = found.id AND (found.id IN (SELECT run_id FROM taken)) IS TRUE
)
SELECT ARRAY(SELECT run_id FROM taken), clock.at FROM clock
"""

# Reads only the index, and no more of it than is needed to decide whether to prefetch.
DUE_TIMES = f"""
SELECT next_run_at FROM cursors WHERE {DUE} AND next_run_at <= $1 ORDER BY next_run_at LIMIT %d
"""

# Numbered in the order of the index, without a sort.
NEXT_PREFETCH = f"""
SELECT count(*) OVER () AS number, next_run_at AS due, next_run_at - place * $2::bigint AS begin_by
FROM (
  SELECT next_run_at, row_number() OVER (ORDER BY next_run_at) AS place
  FROM cursors WHERE {DUE} AND next_run_at <= $1 ORDER BY next_run_at LIMIT %d
) AS line ORDER BY begin_by LIMIT 1
"""

# Confirms the runs (`confirm`) and returns the others, which are the shorter result, usually none.
# The lock makes it reliable: undoing a prefetch locks the claim before it reads it, so it has
# either happened by now, and the row is gone or skipped, or it finds the run confirmed.
CONFIRM_CLAIMS = f"""
WITH clock AS MATERIALIZED (
  SELECT coalesce($3::bigint, ({NOW}) + {PREFETCH_CUTOFF // timedelta(microseconds=1)}) AS closed
), found AS MATERIALIZED (
  SELECT held.id, held.fence
  FROM unnest($1::text[], $2::bigint[]) AS held(id, fence) CROSS JOIN LATERAL (
    SELECT 1 FROM claims
    WHERE claims.run_id = held.id AND claims.fence = held.fence AND claims.cancel_requested = 0
      AND claims.available_at <= (SELECT closed FROM clock)
    FOR NO KEY UPDATE SKIP LOCKED
  ) AS locked
), confirmed AS (
  UPDATE claims SET claimed_at = claims.available_at
  WHERE run_id = ANY (ARRAY(SELECT id FROM found))
)
SELECT id, fence FROM unnest($1::text[], $2::bigint[]) AS held(id, fence)
EXCEPT ALL SELECT id, fence FROM found
"""

# In the order of the index; other channels are filtered out, and rows that another node has locked
# are skipped.
PENDING_DELIVERIES = f"""
SELECT {_names(deliveries.c)} FROM deliveries
WHERE {PENDING} AND available_at <= $1 AND (available_at <= $2 OR channel = ANY ($3::text[]))
ORDER BY available_at, id LIMIT %d
FOR NO KEY UPDATE SKIP LOCKED
"""

NEXT_DELIVERY = f"SELECT min(available_at) FROM deliveries WHERE {PENDING}"

# `excluded` is the row that would have been inserted, and contains the current time. The existing
# row is locked by then: concurrent requests each see what the previous one left.
_THERE = """
least($2::float8, buckets.tokens
  + greatest(0, excluded.at - buckets.at)::float8 / 1000000::float8 * $3::float8)
"""
TAKE_TOKENS = f"""
INSERT INTO buckets (name, tokens, at, granted, full_at)
SELECT $1::text, $5::float8, clock.at, $6::bigint, clock.at + $7::bigint
FROM (SELECT coalesce($8::bigint, ({NOW})) AS at) AS clock
ON CONFLICT (name) DO UPDATE SET
  tokens = {_THERE} - CASE WHEN {_THERE} >= $4::bigint THEN $4::bigint ELSE 0 END,
  granted = CASE WHEN {_THERE} >= $4::bigint THEN $4::bigint ELSE 0 END,
  at = CASE WHEN excluded.at < buckets.at
    AND excluded.at > buckets.at - {MAX_CLOCK_STEP_BACK // timedelta(microseconds=1)}
    THEN buckets.at ELSE excluded.at END,
  full_at = excluded.full_at
RETURNING tokens, granted
"""


# --- the dialect ----------------------------------------------------------------------------------
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

    def empty(self, connection: Connection, table: Table) -> bool:
        connection.exec_driver_sql(f"TRUNCATE {table.name}")
        return False

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
            connection.exec_driver_sql(_insert_all(table, tuple(names), kinds), parameters)

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

    def write_all(self, connection: Connection, writes: Sequence[Write]) -> None:
        """One statement, which sends lists that several tables have in common once."""
        parameters: list[object] = []
        parts: list[_Part] = []
        for table, names, rows, inserts in writes:
            if not rows:
                continue
            columns, kinds = _columns(rows)
            places: list[int] = []
            for kind, column in zip(kinds, columns, strict=True):
                place = _place(parameters, column) if kind == "l" else None
                if place is None:
                    parameters.append(column)
                    place = len(parameters)
                places.append(place)
            parts.append((table, names, kinds, tuple(places), inserts))
        if parts:
            connection.exec_driver_sql(_write_all(tuple(parts)), tuple(parameters))

    def next_available(self, connection: Connection) -> int | None:
        return _integer(connection.exec_driver_sql(NEXT_AVAILABLE).scalar())

    def claim(
        self,
        connection: Connection,
        now: int | None,
        capabilities: Collection[str],
        limit: int,
        node_id: str,
        turns: Turns = NO_TURNS,
    ) -> Rows:
        ranks, owners = list(turns), list(turns.values())
        parameters = (now, list(capabilities), node_id, ranks, owners)
        result = connection.exec_driver_sql(CLAIM % {"limit": limit}, parameters)
        # The rows of the driver: building SQLAlchemy's takes longer than reading them.
        rows: Rows = result.cursor.fetchall()
        result.close()
        return rows

    def owners(self, connection: Connection, rank: int, last: int) -> Sequence[int]:
        raise NotImplementedError  # part of `claim`

    def blocked_keys(self, connection: Connection, numbers: Collection[int]) -> Sequence[int]:
        return connection.exec_driver_sql(BLOCKED_KEYS, (list(numbers),)).scalars().all()

    def slot_runs(self, connection: Connection, slots: Sequence[tuple[int, int]]) -> Rows:
        keys, times = zip(*slots, strict=True)
        return connection.exec_driver_sql(SLOT_RUNS, (list(keys), list(times))).all()

    def end_claimed(
        self, connection: Connection, now: int | None, rows: Sequence[Values]
    ) -> tuple[Sequence[str], int]:
        parameters, kinds = _columns(rows)
        ids, at = connection.exec_driver_sql(_end_claimed(kinds), (*parameters, now)).one()
        return ids, at

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


def _place(parameters: Sequence[object], column: object) -> int | None:
    """The number of the parameter that is this list. A list has values of one type, and equal ones
    of two tables are numbers or texts in both."""
    for number, other in enumerate(parameters, 1):
        if type(other) is list and other == column:
            return number
    return None


def _values_sql(
    table: Table, names: tuple[str, ...], kinds: str, places: Sequence[int] = ()
) -> str:
    """A query that returns the rows of `_columns`. `places`: the number of the parameter of each
    column, if they are not in order."""
    columns = list(
        zip(names, kinds, places or range(1, len(names) + 1), strict=True),
    )
    types = {name: _array_type(table.c[name]) for name in names}
    lists = [(name, place) for name, kind, place in columns if kind == "l"]
    arrays = ", ".join(f"${place}::{types[name]}[]" for name, place in lists)
    listed = ", ".join(f'"{name}"' for name, _ in lists)
    chosen = ", ".join(
        f'"{name}"' if kind == "l" else f'${place}::{types[name]} AS "{name}"'
        for name, kind, place in columns
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


#: Texts of statements that are kept; they differ by the columns and types of a batch.
MAX_STATEMENTS = 512


@lru_cache(maxsize=MAX_STATEMENTS)
def _insert_all(
    table: Table, names: tuple[str, ...], kinds: str, places: tuple[int, ...] = ()
) -> str:
    columns = ", ".join(f'"{name}"' for name in names)
    return f"INSERT INTO {table.name} ({columns}) {_values_sql(table, names, kinds, places)}"


@cache
def _insert_new(table: Table) -> Insert:
    return insert(table).on_conflict_do_nothing()


@lru_cache(maxsize=MAX_STATEMENTS)
def _update_all(
    table: Table, names: tuple[str, ...], kinds: str, places: tuple[int, ...] = ()
) -> str:
    key, *others = names
    changes = ", ".join(f'"{name}" = new."{name}"' for name in others)
    return (
        f"UPDATE {table.name} AS old SET {changes}"
        f' FROM ({_values_sql(table, names, kinds, places)}) AS new WHERE old."{key}" = new."{key}"'
    )


#: Table, columns, kinds and numbers of their parameters, and whether the rows are inserted.
_Part = tuple[Table, tuple[str, ...], str, tuple[int, ...], bool]


@lru_cache(maxsize=MAX_STATEMENTS)
def _write_all(parts: tuple[_Part, ...]) -> str:
    *first, last = (
        (_insert_all if inserts else _update_all)(table, names, kinds, places)
        for table, names, kinds, places, inserts in parts
    )
    if not first:
        return last
    written = ", ".join(f"written_{number} AS ({each})" for number, each in enumerate(first))
    return f"WITH {written} {last}"


@cache
def _end_claimed(kinds: str) -> str:
    return END_CLAIMED.format(
        now=f"${len(ENDING) + 1}",
        NOW=NOW,
        values=_values_sql(runs, ENDING, kinds),
        changes=", ".join(f'"{name}" = found."{name}"' for name in ENDING if name != "id"),
    )


def _integer(value: object) -> int | None:
    assert value is None or isinstance(value, int)
    return value
