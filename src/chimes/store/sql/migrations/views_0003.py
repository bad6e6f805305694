"""The trigger of `cb_schedules` as revision 0003 makes it: as before (`views_0002`), and a change
takes back what was taken ahead of its time, as every other change of a schedule does
(`sql/ahead.py`): the run is locked before the clock is looked at, and 100 ms before its time it
counts as begun."""

from __future__ import annotations

from chimes.store.sql.migrations.views_0002 import OWNERS_RIGHTS

_CHANGE = """
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

# Replacing a function takes its settings away.
POSTGRES = (_CHANGE, OWNERS_RIGHTS)
