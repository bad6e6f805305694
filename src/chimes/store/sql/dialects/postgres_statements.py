"""Hot statements on PostgreSQL, each with the reason for its shape."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from sqlalchemy import Column

from chimes.model.planning import PREFETCH_CUTOFF
from chimes.store.sql.rows.run import CLAIMS
from chimes.store.sql.tables import BLOCKED, CLAIMABLE, DUE, PENDING, deliveries, runs
from chimes.store.token_bucket import MAX_CLOCK_STEP_BACK

# ruff: noqa: S608 - what is put into statements here are the names of our own columns.


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

# A claim is one message: it reads the clock, checks the node's lease, moves the runs from the queue
# to the claims and returns them. So it commits by itself, and the server executes it while the
# process executes its runs. The inner LIMIT applies to each rank, the outer one to all; rows are
# locked one by one as they are returned, so that no more are locked than are claimed. Rows that
# another node has locked are skipped without a wait. LIMIT is a literal: as a parameter it would be
# planned with a guess.
_FOUND = ("run_id", "available_at", "attempt", "fence", "concurrency")
CLAIM = f"""
WITH RECURSIVE clock AS MATERIALIZED (SELECT coalesce($1::bigint, ({NOW})) AS at), {
    _RANKS
    % "EXISTS (SELECT 1 FROM nodes, clock WHERE nodes.id = $3::text AND lease_until > clock.at)"
}, found AS MATERIALIZED (
  SELECT {", ".join(f"heads.{name}" for name in _FOUND)}
  FROM ranks CROSS JOIN LATERAL (
    SELECT {", ".join(_FOUND)} FROM queue
    WHERE {CLAIMABLE} AND queue.rank = ranks.rank AND available_at <= (SELECT at FROM clock)
    AND needs = ANY ($2::text[])
    ORDER BY available_at, planned_at, run_id LIMIT %d
    FOR UPDATE SKIP LOCKED
  ) AS heads WHERE ranks.rank IS NOT NULL LIMIT %d
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
# decides which runs end; a cancellation that is requested meanwhile keeps the claim. IS TRUE makes
# a hash table of the taken ids: as a join, each would be compared with all others.
END_CLAIMED = """
WITH clock AS MATERIALIZED (SELECT coalesce({now}::bigint, ({NOW})) AS at),
ending AS MATERIALIZED ({values}), found AS MATERIALIZED (
  SELECT ending.id FROM ending CROSS JOIN LATERAL (
    SELECT 1 FROM claims WHERE claims.run_id = ending.id AND claims.fence = ending.fence OFFSET 0
  ) AS owned
), taken AS (
  DELETE FROM claims WHERE run_id = ANY (ARRAY(SELECT id FROM found)) AND cancel_requested = 0
  RETURNING run_id
), ended AS (
  UPDATE runs SET {changes}, finished_at = clock.at FROM ending, clock
  WHERE runs.id = ending.id AND (ending.id IN (SELECT run_id FROM taken)) IS TRUE
)
SELECT run_id, clock.at FROM taken, clock
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
