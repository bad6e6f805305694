"""Hot statements on PostgreSQL, each with the reason for its shape."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from sqlalchemy import Column

from chimes.model.planning import PREFETCH_CUTOFF
from chimes.model.policy import UNLIMITED
from chimes.model.run import Origin, RunStatus
from chimes.store.sql.dialects.base import PLAIN_COMPLETION
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

# The first entry of the index is the result.
NEXT_DUE = f"SELECT min(next_run_at) FROM schedules WHERE {DUE}"

# The partial index holds the waiting schedules in due order, so the rows come without a sort and
# the cost depends on how many are due, not on how many there are. Rows that another node has locked
# are skipped without a wait. NO KEY UPDATE is the weakest lock that conflicts with itself. LIMIT is
# a literal: as a parameter it would be planned with a guess.
DUE_SCHEDULES = f"""
SELECT {_names(schedules.c)} FROM schedules
WHERE {DUE} AND next_run_at <= $1 ORDER BY next_run_at, id LIMIT %d
FOR NO KEY UPDATE SKIP LOCKED
"""

# All keys of a batch in one statement, one index lookup for each.
ADMITTED = f"""
SELECT concurrency_key, id FROM runs
WHERE concurrency_key = ANY ($1::text[]) AND {ACTIVE} AND blocked = 0
ORDER BY concurrency_key, created_at, id
"""

# Materialized, or the planner might scan all runs from the oldest on until one fits.
OLDEST_ACTIVE = f"""
WITH active AS MATERIALIZED (
  SELECT id, created_at FROM runs WHERE concurrency_key = $1 AND {ACTIVE}
)
SELECT {_names(runs.c)} FROM runs
WHERE id = (SELECT id FROM active ORDER BY created_at, id LIMIT 1)
"""

# One lookup per key, because a key may have tens of thousands of blocked runs and one is enough.
BLOCKED_KEYS = f"""
SELECT key FROM unnest($1::text[]) AS wanted(key) WHERE EXISTS (
  SELECT 1 FROM runs WHERE {BLOCKED} AND concurrency_key = key
)
"""

# The list is the outer loop: one lookup in the unique index for each pair.
SLOTS_TAKEN = """
SELECT runs.id, runs.schedule_id, runs.slot
FROM unnest($1::text[], $2::bigint[]) AS pair(schedule_id, slot)
JOIN runs ON runs.schedule_id = pair.schedule_id AND runs.slot = pair.slot
"""

# Rank comes first in queue order, so a plain scan would step over every retry that waits for its
# time in a high rank. Jumping from rank to rank and reading the due head of each reads only the
# claimed rows plus one entry per rank.
_HIGHEST = f"""
SELECT runs.rank FROM runs WHERE {CLAIMABLE} AND runs.rank < %s ORDER BY runs.rank DESC LIMIT 1
"""
_RANKS = f"""
ranks(rank) AS (
  SELECT ({_HIGHEST % f"{2**63 - 1}"}) WHERE %s
  UNION ALL
  SELECT ({_HIGHEST % "ranks.rank"}) FROM ranks WHERE ranks.rank IS NOT NULL
)
"""

# The inner LIMIT applies to each rank, the outer one to all; rows are locked one by one as they are
# returned, so that no more are locked than are claimed.
_HEADS = f"""
SELECT {{wanted}} FROM ranks CROSS JOIN LATERAL (
  SELECT {{inner}} FROM runs
  WHERE {CLAIMABLE} AND runs.rank = ranks.rank AND available_at <= {{now}}
  AND needs = ANY ($2::text[])
  ORDER BY available_at, planned_at, id LIMIT %d
  FOR NO KEY UPDATE SKIP LOCKED
) AS found WHERE ranks.rank IS NOT NULL LIMIT %d
"""
CLAIMABLE_RUNS = f"""
WITH RECURSIVE {_RANKS % "true"}
{_HEADS.format(wanted=_names(runs.c, "found."), inner=_names(runs.c), now="$1")}
"""

# A claim is one message: it reads the clock, checks the node's lease, selects the runs and claims
# them without a second round trip. So it commits by itself, and the server executes it while the
# process executes its runs. The locked rows are found again by their ids.
CLAIM = f"""
WITH RECURSIVE clock AS MATERIALIZED (SELECT coalesce($1::bigint, ({NOW})) AS at), {
    _RANKS
    % "EXISTS (SELECT 1 FROM nodes, clock WHERE nodes.id = $3::text AND lease_until > clock.at)"
}, found AS MATERIALIZED ({
    _HEADS.format(wanted="found.id", inner="id", now="(SELECT at FROM clock)")
})
UPDATE runs SET
  status = '{RunStatus.RUNNING}', attempt = runs.attempt + 1, fence = runs.fence + 1,
  holder = $3::text, started = 0, claimed_at = clock.at,
  started_at = coalesce(runs.started_at, clock.at)
FROM found, clock WHERE runs.id = found.id
RETURNING {_names(runs.c, "runs.")}
"""

NEXT_AVAILABLE = f"""
WITH RECURSIVE {_RANKS % "true"}
SELECT min((
  SELECT available_at FROM runs
  WHERE {CLAIMABLE} AND runs.rank = ranks.rank ORDER BY available_at LIMIT 1
)) FROM ranks WHERE rank IS NOT NULL
"""


# Reads only the index, and no more of it than is needed to decide whether to prefetch.
DUE_TIMES = f"""
SELECT next_run_at FROM schedules WHERE {DUE} AND next_run_at <= $1 ORDER BY next_run_at LIMIT %d
"""

# Numbered in the order of the index, without a sort.
NEXT_PREFETCH = f"""
SELECT count(*) OVER () AS number, next_run_at AS due, next_run_at - place * $2::bigint AS begin_by
FROM (
  SELECT next_run_at, row_number() OVER (ORDER BY next_run_at) AS place
  FROM schedules WHERE {DUE} AND next_run_at <= $1 ORDER BY next_run_at LIMIT %d
) AS line ORDER BY begin_by LIMIT 1
"""

# Confirms the runs (`confirm`) and returns the others, which are the shorter result, usually none.
# The lock makes it reliable: undoing a prefetch locks the run before it reads it, so it has either
# happened by now, and the row is gone or skipped, or it finds the run confirmed. The conditions are
# in a CASE, so that rows are found by their id alone: with an index on planned times all runs would
# be scanned for each.
UNCONFIRMED = f"""
WITH clock AS MATERIALIZED (
  SELECT coalesce($3::bigint, ({NOW}) + {PREFETCH_CUTOFF // timedelta(microseconds=1)}) AS closed
), found AS MATERIALIZED (
  SELECT held.id, held.fence
  FROM unnest($1::text[], $2::bigint[]) AS held(id, fence) CROSS JOIN LATERAL (
    SELECT 1 FROM runs
    WHERE runs.id = held.id AND CASE WHEN runs.fence = held.fence THEN
      runs.status = '{RunStatus.RUNNING}' AND runs.cancel_requested = 0
      AND runs.planned_at <= (SELECT closed FROM clock)
    ELSE false END
    FOR NO KEY UPDATE SKIP LOCKED
  ) AS locked
), confirmed AS (
  UPDATE runs SET claimed_at = runs.available_at FROM found WHERE runs.id = found.id
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

# One statement moves the cursors by id and inserts the runs. Columns that a run copies from its
# schedule are copied here and not sent; the slot is the previous cursor. An existing run of a slot
# stays. The batch is recorded in the same statement.
_COPIED = "name, version, namespace, owner_type, owner_id, kind, target, policy, priority"
_FIRE = f"""
WITH new(id, run_id, next_slot, next_run_at, planned_at, run_limit, needs, fence, place) AS (
  {{firings}}
), moved AS (
  UPDATE schedules SET
    last_slot = schedules.next_slot, next_slot = new.next_slot, next_run_at = new.next_run_at,
    last_enqueued_at = $9, fired_count = fired_count + 1
  FROM new WHERE schedules.id = new.id
  RETURNING schedules.id, schedules.last_slot AS slot, {_COPIED},
    new.run_id, new.planned_at, new.run_limit, new.needs, new.fence, new.place <= $10 AS mine
), batch AS (
  INSERT INTO fire_batches (id, node_id, claimed_at, enqueued_at, duration_ms)
  SELECT $11, $12, $9, done.at, (done.at - $9) / 1000.0
  FROM (SELECT coalesce($13::bigint, ({NOW})) AS at) AS done
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
  mine::integer, CASE WHEN mine THEN fence ELSE fence - 1 END, CASE WHEN mine THEN $12::text END,
  0, 0, $9, planned_at, planned_at, CASE WHEN mine THEN $9 END,
  CASE WHEN mine THEN greatest($9, planned_at) END, '', '', 0, '[]', needs, $11
FROM moved
ON CONFLICT DO NOTHING
RETURNING id
"""
FIRE_PLAIN = _FIRE.format(
    firings="""SELECT * FROM unnest(
    $1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[],
    $8::bigint[]
  ) WITH ORDINALITY"""
)
# Values that all rows share are sent once: the driver inspects every value of a list.
FIRE_UNIFORM = _FIRE.format(
    firings="""SELECT id, run_id, next_slot, next_run_at,
    $5::bigint, $6::bigint, $7::text, $8::bigint, place
  FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) WITH ORDINALITY
  AS each(id, run_id, next_slot, next_run_at, place)"""
)

# The fence is checked in the statement itself. A retry with a cancel request is left to the general
# path, and so are flows and their steps, which depend on each other. The conditions are in a CASE,
# so that rows are found by their id: without fresh statistics the planner assumes few running runs
# and would scan all of them for each completion. The schedules are updated like `update_summary`
# does. The lookup of blocked runs is a later statement than the one that acquired the locks (see
# the lock order).
_FINISH = f"""
WITH clock AS MATERIALIZED (SELECT coalesce($9::bigint, ({NOW})) AS at), done AS (
  UPDATE runs SET
    holder = NULL, started = 0, status = new.status, result = new.result, error = new.error,
    reason = new.reason, available_at = coalesce(clock.at + new.retry_in, runs.available_at),
    finished_at = CASE WHEN new.retry_in IS NULL THEN clock.at END,
    attempts = CASE WHEN runs.attempts = '[]' THEN '[' ELSE left(runs.attempts, -1) || ',' END
      || new.attempt || ']'
  FROM clock, {{completions}} AS new({", ".join(PLAIN_COMPLETION)})
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
FINISH_PLAIN = _FINISH.format(
    completions="""unnest(
    $1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::text[], $7::text[],
    $8::text[]
  )"""
)
FINISH_UNIFORM = _FINISH.format(
    completions="""(
    SELECT id, attempt, $3::bigint, $4::text, $5::bigint, $6::text, $7::text, $8::text
    FROM unnest($1::text[], $2::text[]) AS each(id, attempt)
  )"""
)
