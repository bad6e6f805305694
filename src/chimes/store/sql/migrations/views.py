"""The compatibility views on PostgreSQL and SQLite: `cb_schedules`, `cb_schedule_metrics` and
`cb_schedule_templates`."""

from __future__ import annotations


def _moment(column: str) -> str:
    """Exact: a floating-point second cannot represent all microseconds."""
    return f"('epoch'::timestamptz + {column} * interval '1 microsecond')"


#: Body of the view of schedule templates; each database prepends its own CREATE VIEW.
TEMPLATES = """
cb_schedule_templates AS
SELECT 'Hourly' AS name, '@hourly' AS cron_spec, 'At the start of every hour' AS description
UNION ALL SELECT 'Daily Midnight', '0 0 * * *', 'Every day at midnight'
UNION ALL SELECT 'Daily 9 AM', '0 9 * * *', 'Every day at 9 AM'
UNION ALL SELECT 'Weekly Monday 8 AM', '0 8 * * 1', 'Every Monday at 8 AM'
"""

# One broken row must not break the view.
_CRON_SPEC = """
CREATE OR REPLACE FUNCTION chimes_cron_spec(trigger text) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  plain jsonb;
BEGIN
  plain := trigger::jsonb;
  RETURN CASE plain ->> 'kind'
    WHEN 'cron' THEN plain ->> 'expression'
    WHEN 'every' THEN
      '@every ' || trim_scale(extract(epoch FROM (plain ->> 'every')::interval)) || 's'
  END;
EXCEPTION WHEN others THEN
  RETURN NULL;
END $$
"""

# `last_run_at` is the slot that was claimed last, and claiming one updates the schedule.
_SCHEDULES = f"""
CREATE OR REPLACE VIEW cb_schedules AS SELECT
  schedules.id,
  schedules.name::text AS name,
  schedules.kind,
  chimes_cron_spec(schedules.trigger) AS cron_spec,
  {_moment("cursors.next_run_at")} AS next_run_at,
  {_moment("cursors.last_slot")} AS last_run_at,
  {_moment("cursors.last_enqueued_at")} AS last_enqueued_at,
  schedules.enabled = 1 AS enabled,
  {_moment("schedules.created_at")} AS created_at,
  {_moment("greatest(schedules.updated_at, cursors.last_enqueued_at)")} AS updated_at
FROM schedules JOIN cursors ON cursors.schedule = schedules.key
WHERE schedules.deleted_at IS NULL
"""  # noqa: S608 our own names

# SQL cannot compute slots: a resumed schedule becomes due without one, and the next scheduler pass
# plans it. Nor can it compute the hashes of the store: 0 is no definition, which the store writes
# when the schedule fires, and the time of the change makes another revision.
#
# A change withdraws a run that is prefetched and not confirmed, as every other change of a schedule
# does (`can_withdraw`): it is locked before the clock is read, and 100 ms before its time it counts
# as started.
_CHANGE = """
CREATE OR REPLACE FUNCTION cb_schedules_change() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
  at_now bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
  early_slot bigint;
  early_run_at bigint;
  early_fence bigint;
  changes jsonb := '{}';
  changed schedules%ROWTYPE;
  held cursors%ROWTYPE;
BEGIN
  IF TG_OP <> 'UPDATE' THEN
    RAISE EXCEPTION 'cb_schedules: % is not possible; schedules are made and removed by Chimes',
      TG_OP USING ERRCODE = 'feature_not_supported';
  END IF;
  IF (NEW.id, NEW.name, NEW.kind, NEW.cron_spec, NEW.last_run_at, NEW.last_enqueued_at,
      NEW.created_at, NEW.updated_at)
     IS DISTINCT FROM
     (OLD.id, OLD.name, OLD.kind, OLD.cron_spec, OLD.last_run_at, OLD.last_enqueued_at,
      OLD.created_at, OLD.updated_at)
  THEN
    RAISE EXCEPTION 'cb_schedules: only enabled and next_run_at can be changed'
      USING ERRCODE = 'feature_not_supported';
  END IF;
  IF NEW.enabled IS NULL OR (NEW.next_run_at IS NULL AND OLD.next_run_at IS NOT NULL) THEN
    RAISE EXCEPTION 'cb_schedules: enabled is true or false, next_run_at is a time'
      USING ERRCODE = 'not_null_violation', HINT = 'SET enabled = false pauses a schedule';
  END IF;
  SELECT * INTO held FROM cursors
  WHERE schedule = (SELECT key FROM schedules WHERE id = OLD.id) FOR NO KEY UPDATE;
  SELECT * INTO changed FROM schedules WHERE key = held.schedule AND deleted_at IS NULL;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  IF (NEW.enabled, NEW.next_run_at) IS DISTINCT FROM (changed.enabled = 1, OLD.next_run_at)
     AND held.last_slot > at_now + 100000
  THEN
    PERFORM 1 FROM claims
    WHERE run_id IN (SELECT id FROM runs WHERE schedule = held.schedule AND slot > at_now)
    ORDER BY run_id FOR UPDATE;
    PERFORM 1 FROM queue
    WHERE run_id IN (SELECT id FROM runs WHERE schedule = held.schedule AND slot > at_now)
    ORDER BY run_id FOR UPDATE;
    at_now := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    WITH withdrawn AS (
      SELECT runs.id, runs.slot, runs.planned_at, coalesce(claims.fence, queue.fence) AS fence
      FROM runs LEFT JOIN claims ON claims.run_id = runs.id
        LEFT JOIN queue ON queue.run_id = runs.id
      WHERE runs.schedule = held.schedule AND runs.slot > at_now AND runs.origin = 'schedule'
        AND runs.planned_at = runs.slot AND runs.planned_at > at_now + 100000
        AND runs.created_at < runs.planned_at
        AND (claims.claimed_at < claims.available_at
          OR queue.attempt = 0 AND queue.fence > 0 AND runs.started_at IS NULL)
    ), unclaimed AS (
      DELETE FROM claims USING withdrawn WHERE claims.run_id = withdrawn.id
    ), unqueued AS (
      DELETE FROM queue USING withdrawn WHERE queue.run_id = withdrawn.id
    ), deleted AS (
      DELETE FROM runs USING withdrawn WHERE runs.id = withdrawn.id
    )
    SELECT min(slot), min(planned_at), max(fence) INTO early_slot, early_run_at, early_fence
    FROM withdrawn;
    IF early_slot IS NOT NULL THEN
      held.next_slot := early_slot;
      held.next_run_at := early_run_at;
      held.fired_count := held.fired_count - 1;
      held.last_enqueued_at := early_slot - 1000
        + least(greatest(early_fence - 86400000002, 0) + 1, 999);
      held.last_slot := greatest(held.purged_until, (
        SELECT coalesce(missed_until, slot) FROM runs
        WHERE schedule = held.schedule AND slot < early_slot ORDER BY slot DESC LIMIT 1
      ));
    END IF;
  END IF;
  IF NEW.enabled IS DISTINCT FROM (changed.enabled = 1) THEN
    changes := changes || jsonb_build_object('enabled',
      jsonb_build_array(changed.enabled = 1, NEW.enabled));
    changed.enabled := NEW.enabled::integer;
    changed.pause_note := '';
    changed.pause_until := NULL;
    held.live := changed.enabled;
    held.next_slot := NULL;
    held.next_run_at := CASE WHEN NEW.enabled THEN at_now END;
  END IF;
  IF NEW.next_run_at IS DISTINCT FROM OLD.next_run_at THEN
    held.next_slot := greatest((extract(epoch FROM NEW.next_run_at) * 1000000)::bigint, at_now);
    held.next_run_at := held.next_slot;
    changes := changes || jsonb_build_object('next_run_at',
      jsonb_build_array(OLD.next_run_at, NEW.next_run_at));
  END IF;
  IF changes = '{}' THEN
    RETURN NEW;
  END IF;
  UPDATE cursors SET
    revision = at_now, live = held.live, next_slot = held.next_slot,
    next_run_at = held.next_run_at, last_slot = held.last_slot,
    last_enqueued_at = held.last_enqueued_at, fired_count = held.fired_count
  WHERE schedule = held.schedule;
  UPDATE definitions SET used_at = at_now WHERE key = changed.definition;
  UPDATE schedules SET
    version = changed.version + 1, definition = 0, enabled = changed.enabled,
    pause_note = changed.pause_note, pause_until = changed.pause_until,
    updated_at = at_now, updated_by = 'sql:' || session_user
  WHERE key = held.schedule;
  INSERT INTO sql_changes (at, actor, schedule_id, changes)
  VALUES (at_now, 'sql:' || session_user, OLD.id, changes::text);
  PERFORM pg_notify(substr('chimes_' || current_schema(), 1, 63), 'sql');
  RETURN NEW;
END $$
"""

# Rights on the view are sufficient, because the function has those of its owner. Its search path is
# fixed to our tables: a caller's schema for temporary tables would be searched first unless it is
# named. Replacing a function removes its settings.
_OWNERS_RIGHTS = """
DO $$ BEGIN
  EXECUTE format(
    'ALTER FUNCTION cb_schedules_change() SECURITY DEFINER SET search_path = %I, pg_temp',
    current_schema()
  );
END $$
"""

_TRIGGER = """
CREATE OR REPLACE TRIGGER cb_schedules_change
INSTEAD OF INSERT OR UPDATE OR DELETE ON cb_schedules
FOR EACH ROW EXECUTE FUNCTION cb_schedules_change()
"""

_METRICS = f"""
CREATE OR REPLACE VIEW cb_schedule_metrics AS
SELECT runs.id::text AS id, definitions.schedule_id, {_moment("batches.claimed_at")} AS claimed_at,
  md5(node_id)::uuid AS claimed_by_worker_id, {_moment("enqueued_at")} AS enqueued_at,
  duration_ms, true AS success, NULL::text AS error_message
FROM runs JOIN fire_batches AS batches ON batches.id = runs.batch_id
  JOIN definitions ON definitions.key = runs.definition
UNION ALL
SELECT batch_id || ':' || schedule_id, schedule_id, {_moment("claimed_at")},
  md5(node_id)::uuid, {_moment("enqueued_at")}, duration_ms, false, error
FROM fire_failures JOIN fire_batches ON fire_batches.id = batch_id
"""  # noqa: S608 our own names

POSTGRES = (
    _CRON_SPEC,
    _SCHEDULES,
    _CHANGE,
    _OWNERS_RIGHTS,
    _TRIGGER,
    _METRICS,
    f"CREATE OR REPLACE VIEW {TEMPLATES}",
)

# The node's id unchanged, because SQLite has no UUIDs; times are microseconds as in the tables.
SQLITE = (
    """
CREATE VIEW IF NOT EXISTS cb_schedule_metrics AS
SELECT runs.id AS id, definitions.schedule_id, batches.claimed_at,
  batches.node_id AS claimed_by_worker_id, batches.enqueued_at, batches.duration_ms,
  1 AS success, NULL AS error_message
FROM runs JOIN fire_batches AS batches ON batches.id = runs.batch_id
  JOIN definitions ON definitions."key" = runs.definition
UNION ALL
SELECT failures.batch_id || ':' || failures.schedule_id, failures.schedule_id, batches.claimed_at,
  batches.node_id, batches.enqueued_at, batches.duration_ms, 0, failures.error
FROM fire_failures AS failures JOIN fire_batches AS batches ON batches.id = failures.batch_id
""",
    f"CREATE VIEW IF NOT EXISTS {TEMPLATES}",
)
