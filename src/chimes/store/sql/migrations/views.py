"""The compatibility views `cb_schedules` and `cb_schedule_metrics` as revision 0002 creates
them."""

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

# `last_run_at` is the slot that was claimed last, and claiming one updates the row.
_SCHEDULES = f"""
CREATE OR REPLACE VIEW cb_schedules AS SELECT
  id,
  name,
  kind,
  chimes_cron_spec(trigger) AS cron_spec,
  {_moment("next_run_at")} AS next_run_at,
  {_moment("last_slot")} AS last_run_at,
  {_moment("last_enqueued_at")} AS last_enqueued_at,
  enabled = 1 AS enabled,
  {_moment("created_at")} AS created_at,
  {_moment("greatest(updated_at, last_enqueued_at)")} AS updated_at
FROM schedules WHERE deleted_at IS NULL
"""  # noqa: S608 our own names

# SQL cannot compute slots: a resumed schedule becomes due without one, and the next scheduler pass
# plans it.
_CHANGE = """
CREATE OR REPLACE FUNCTION cb_schedules_change() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
  at_now bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
  changes jsonb := '{}';
  held schedules%ROWTYPE;
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
  SELECT * INTO held FROM schedules WHERE id = OLD.id AND deleted_at IS NULL FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  IF NEW.enabled IS DISTINCT FROM (held.enabled = 1) THEN
    changes := changes || jsonb_build_object('enabled',
      jsonb_build_array(held.enabled = 1, NEW.enabled));
    held.enabled := NEW.enabled::integer;
    held.pause_note := '';
    held.pause_until := NULL;
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
  UPDATE schedules SET
    enabled = held.enabled, pause_note = held.pause_note, pause_until = held.pause_until,
    next_slot = held.next_slot, next_run_at = held.next_run_at, version = version + 1,
    updated_at = at_now, updated_by = 'sql:' || session_user
  WHERE id = OLD.id;
  INSERT INTO sql_changes (at, actor, schedule_id, changes)
  VALUES (at_now, 'sql:' || session_user, OLD.id, changes::text);
  PERFORM pg_notify(substr('chimes_' || current_schema(), 1, 63), 'sql');
  RETURN NEW;
END $$
"""

# Rights on the view are sufficient, because the function has those of its owner. Its search path is
# fixed to our tables: a caller's schema for temporary tables would be searched first unless it is
# named.
OWNERS_RIGHTS = """
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
SELECT runs.id::text AS id, runs.schedule_id, {_moment("batches.claimed_at")} AS claimed_at,
  md5(node_id)::uuid AS claimed_by_worker_id, {_moment("enqueued_at")} AS enqueued_at,
  duration_ms, true AS success, NULL::text AS error_message
FROM runs JOIN fire_batches AS batches ON batches.id = runs.batch_id
UNION ALL
SELECT batch_id || ':' || schedule_id, schedule_id, {_moment("claimed_at")},
  md5(node_id)::uuid, {_moment("enqueued_at")}, duration_ms, false, error
FROM fire_failures JOIN fire_batches ON fire_batches.id = batch_id
"""  # noqa: S608 our own names

POSTGRES = (
    _CRON_SPEC,
    _SCHEDULES,
    _CHANGE,
    OWNERS_RIGHTS,
    _TRIGGER,
    _METRICS,
    f"CREATE OR REPLACE VIEW {TEMPLATES}",
)

# The node's id unchanged, because SQLite has no UUIDs; times are microseconds as in the tables.
SQLITE = (
    """
CREATE VIEW IF NOT EXISTS cb_schedule_metrics AS
SELECT runs.id AS id, runs.schedule_id, batches.claimed_at, batches.node_id AS claimed_by_worker_id,
  batches.enqueued_at, batches.duration_ms, 1 AS success, NULL AS error_message
FROM runs JOIN fire_batches AS batches ON batches.id = runs.batch_id
UNION ALL
SELECT failures.batch_id || ':' || failures.schedule_id, failures.schedule_id, batches.claimed_at,
  batches.node_id, batches.enqueued_at, batches.duration_ms, 0, failures.error
FROM fire_failures AS failures JOIN fire_batches AS batches ON batches.id = failures.batch_id
""",
    f"CREATE VIEW IF NOT EXISTS {TEMPLATES}",
)


# The trigger of `cb_schedules` as revision 0003 creates it: like 0002, and a change undoes
# prefetched runs, as every other change of a schedule does (`prefetch`): the run is locked before
# the clock is read, and 100 ms before its time it counts as started.

_CHANGE_VIEWS_0003 = """
CREATE OR REPLACE FUNCTION cb_schedules_change() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
  at_now bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
  early_slot bigint;
  early_run_at bigint;
  changes jsonb := '{}';
  held schedules%ROWTYPE;
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
  SELECT * INTO held FROM schedules WHERE id = OLD.id AND deleted_at IS NULL FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  IF (NEW.enabled, NEW.next_run_at) IS DISTINCT FROM (held.enabled = 1, OLD.next_run_at)
     AND held.last_slot > at_now + 100000
  THEN
    PERFORM 1 FROM runs
    WHERE schedule_id = OLD.id AND slot > at_now AND status IN ('queued', 'running')
    ORDER BY id FOR NO KEY UPDATE;
    at_now := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    WITH gone AS (
      DELETE FROM runs
      WHERE schedule_id = OLD.id AND slot > at_now AND status IN ('queued', 'running')
        AND origin = 'schedule' AND planned_at > at_now + 100000
      RETURNING slot, planned_at
    )
    SELECT min(slot), min(planned_at) INTO early_slot, early_run_at FROM gone;
    IF early_slot IS NOT NULL THEN
      held.next_slot := early_slot;
      held.next_run_at := early_run_at;
      held.fired_count := held.fired_count - 1;
      held.last_slot := greatest(held.purged_until, (
        SELECT coalesce(missed_until, slot) FROM runs
        WHERE schedule_id = OLD.id AND slot < early_slot ORDER BY slot DESC LIMIT 1
      ));
    END IF;
  END IF;
  IF NEW.enabled IS DISTINCT FROM (held.enabled = 1) THEN
    changes := changes || jsonb_build_object('enabled',
      jsonb_build_array(held.enabled = 1, NEW.enabled));
    held.enabled := NEW.enabled::integer;
    held.pause_note := '';
    held.pause_until := NULL;
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
  UPDATE schedules SET
    enabled = held.enabled, pause_note = held.pause_note, pause_until = held.pause_until,
    next_slot = held.next_slot, next_run_at = held.next_run_at, last_slot = held.last_slot,
    fired_count = held.fired_count, version = version + 1,
    updated_at = at_now, updated_by = 'sql:' || session_user
  WHERE id = OLD.id;
  INSERT INTO sql_changes (at, actor, schedule_id, changes)
  VALUES (at_now, 'sql:' || session_user, OLD.id, changes::text);
  PERFORM pg_notify(substr('chimes_' || current_schema(), 1, 63), 'sql');
  RETURN NEW;
END $$
"""

# Replacing a function removes its settings.
POSTGRES_VIEWS_0003 = (_CHANGE_VIEWS_0003, OWNERS_RIGHTS)


# The trigger of `cb_schedules` as revision 0010 creates it: like 0003, and a run is withdrawn only
# if it is prefetched and not confirmed. Its row shows both (`can_withdraw`); the clock does not.

_CHANGE_VIEWS_0010 = """
CREATE OR REPLACE FUNCTION cb_schedules_change() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
  at_now bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
  early_slot bigint;
  early_run_at bigint;
  early_fence bigint;
  changes jsonb := '{}';
  held schedules%ROWTYPE;
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
  SELECT * INTO held FROM schedules WHERE id = OLD.id AND deleted_at IS NULL FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  IF (NEW.enabled, NEW.next_run_at) IS DISTINCT FROM (held.enabled = 1, OLD.next_run_at)
     AND held.last_slot > at_now + 100000
  THEN
    PERFORM 1 FROM runs
    WHERE schedule_id = OLD.id AND slot > at_now AND status IN ('queued', 'running')
    ORDER BY id FOR NO KEY UPDATE;
    at_now := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    WITH gone AS (
      DELETE FROM runs
      WHERE schedule_id = OLD.id AND slot > at_now AND status IN ('queued', 'running')
        AND origin = 'schedule' AND planned_at > at_now + 100000
        AND planned_at = slot AND created_at < planned_at
        AND CASE status WHEN 'running' THEN claimed_at < available_at
          ELSE attempt = 0 AND fence > 0 AND started_at IS NULL END
      RETURNING slot, planned_at, fence
    )
    SELECT min(slot), min(planned_at), max(fence) INTO early_slot, early_run_at, early_fence
    FROM gone;
    IF early_slot IS NOT NULL THEN
      held.next_slot := early_slot;
      held.next_run_at := early_run_at;
      held.fired_count := held.fired_count - 1;
      held.last_enqueued_at := early_slot - 1000
        + least(greatest(early_fence - 86400000002, 0) + 1, 999);
      held.last_slot := greatest(held.purged_until, (
        SELECT coalesce(missed_until, slot) FROM runs
        WHERE schedule_id = OLD.id AND slot < early_slot ORDER BY slot DESC LIMIT 1
      ));
    END IF;
  END IF;
  IF NEW.enabled IS DISTINCT FROM (held.enabled = 1) THEN
    changes := changes || jsonb_build_object('enabled',
      jsonb_build_array(held.enabled = 1, NEW.enabled));
    held.enabled := NEW.enabled::integer;
    held.pause_note := '';
    held.pause_until := NULL;
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
  UPDATE schedules SET
    enabled = held.enabled, pause_note = held.pause_note, pause_until = held.pause_until,
    next_slot = held.next_slot, next_run_at = held.next_run_at, last_slot = held.last_slot,
    fired_count = held.fired_count, last_enqueued_at = held.last_enqueued_at,
    version = version + 1,
    updated_at = at_now, updated_by = 'sql:' || session_user
  WHERE id = OLD.id;
  INSERT INTO sql_changes (at, actor, schedule_id, changes)
  VALUES (at_now, 'sql:' || session_user, OLD.id, changes::text);
  PERFORM pg_notify(substr('chimes_' || current_schema(), 1, 63), 'sql');
  RETURN NEW;
END $$
"""

POSTGRES_VIEWS_0010 = (_CHANGE_VIEWS_0010, OWNERS_RIGHTS)
