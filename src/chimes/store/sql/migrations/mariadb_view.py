"""The view `t_action_schedule`: lists schedules and switches them on and off with plain SQL.

A view of MariaDB has no triggers, and computed columns cannot be updated. So `schedules` has two
columns in the format of that table, the view exposes them, and triggers of `schedules` keep both
sides in sync: the two columns follow what Chimes writes, and

    UPDATE t_action_schedule SET f_status = 'inactive' | 'active' WHERE f_id = ...
    UPDATE t_action_schedule SET f_next_run_time = <milliseconds> WHERE f_id = ...

pauses, resumes or reschedules. A resumed schedule has no slot yet and is due: the next scheduler
pass plans it from the current time.
"""

from __future__ import annotations

from chimes.store.sql.migrations.views import TEMPLATES

# ruff: noqa: S608 - what is put into statements here are parts of our own.


#: The store's clock in microseconds, exact: UNIX_TIMESTAMP would depend on the session's zone.
NOW = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"


def _moment(column: str) -> str:
    """As text, in UTC."""
    moment = f"DATE_ADD('1970-01-01 00:00:00.000000', INTERVAL {column} MICROSECOND)"
    return f"CONCAT(REPLACE({moment}, ' ', 'T'), 'Z')"


def _datetime(column: str) -> str:
    return f"TIMESTAMP '1970-01-01 00:00:00.000000' + INTERVAL {column} MICROSECOND"


_BEFORE_INSERT = """
CREATE OR REPLACE TRIGGER schedules_compat_insert BEFORE INSERT ON schedules FOR EACH ROW
SET NEW.compat_status = IF(NEW.enabled = 1, 'active', 'inactive'),
    NEW.compat_next_run_time = COALESCE(NEW.next_run_at DIV 1000, 0)
"""

# An update through the view changes one of its columns and nothing else; an update of the table
# leaves both unchanged.
UPDATE_TRIGGER = f"""
CREATE OR REPLACE TRIGGER schedules_compat_update BEFORE UPDATE ON schedules FOR EACH ROW
BEGIN
  DECLARE by_view TINYINT DEFAULT 0;
  DECLARE at_now BIGINT;
  IF NOT NEW.compat_status <=> OLD.compat_status THEN
    IF COALESCE(NEW.compat_status, '') NOT IN ('active', 'inactive') THEN
      SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'f_status is active or inactive';
    END IF;
    SET by_view = 1, at_now = {NOW};
    SET NEW.enabled = IF(NEW.compat_status = 'active', 1, 0),
        NEW.pause_note = '',
        NEW.pause_until = NULL,
        NEW.next_slot = NULL,
        NEW.next_run_at = IF(NEW.compat_status = 'active', at_now, NULL);
  END IF;
  IF NEW.compat_next_run_time IS NULL THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'f_next_run_time is a number of milliseconds';
  END IF;
  IF NEW.compat_next_run_time <> OLD.compat_next_run_time AND NEW.enabled = 1 THEN
    SET by_view = 1, at_now = {NOW};
    -- 0 is no time: the next pass plans it anew, without a run.
    SET NEW.next_slot = IF(
      NEW.compat_next_run_time = 0, NULL, GREATEST(NEW.compat_next_run_time * 1000, at_now)
    );
    SET NEW.next_run_at = COALESCE(NEW.next_slot, at_now);
  END IF;
  IF by_view = 1 THEN
    SET NEW.version = OLD.version + 1,
        NEW.updated_at = at_now,
        NEW.updated_by = CONCAT('sql:', SUBSTRING_INDEX(USER(), '@', 1));
    INSERT INTO sql_changes (`at`, actor, schedule_id, changes) VALUES (
      at_now,
      NEW.updated_by,
      NEW.id,
      CASE
        WHEN NEW.enabled = OLD.enabled THEN JSON_OBJECT('next_run_at', JSON_ARRAY(
          {_moment("OLD.next_run_at")}, {_moment("NEW.next_run_at")}
        ))
        WHEN NEW.enabled = 1 THEN '{{"enabled": [false, true]}}'
        ELSE '{{"enabled": [true, false]}}'
      END
    );
  END IF;
  SET NEW.compat_status = IF(NEW.enabled = 1, 'active', 'inactive'),
      NEW.compat_next_run_time = COALESCE(NEW.next_run_at DIV 1000, 0);
END
"""

# Scalar subqueries, because a join would make the view read-only. The lock columns show the claim
# of the node that executes the latest run.
_HELD = """
SELECT {column} FROM runs
WHERE runs.schedule_id = schedules.id AND runs.status = 'running'
ORDER BY runs.claimed_at DESC LIMIT 1
"""


def _word(column: str, key: str) -> str:
    """Text under this key, or empty. JSON functions have their own collation, which must be
    converted explicitly."""
    text = f"JSON_UNQUOTE(JSON_EXTRACT(schedules.`{column}`, '$.{key}'))"
    return f"COALESCE({text} COLLATE utf8mb4_nopad_bin, '')"


def _json(key: str, without: str) -> str:
    found = f"JSON_EXTRACT(schedules.target, '$.{key}') COLLATE utf8mb4_nopad_bin"
    return f"COALESCE({found}, '{without}')"


def _account(otherwise: str) -> str:
    """The account on whose behalf an action is executed; for other targets, the creator."""
    return f"COALESCE(NULLIF({_word('target', 'account_id')}, ''), {otherwise})"


def _updater(key: str, otherwise: str) -> str:
    """The writer that the KWeaver API recorded, if it wrote this version."""
    version = "JSON_VALUE(schedules.door_data, '$.kweaver.version')"
    return (
        f"IF({version} = schedules.version, "
        f"COALESCE(NULLIF({_word('door_data', f'kweaver.updater.{key}')}, ''), {otherwise}), "
        f"{otherwise})"
    )


# The expression as written through the KWeaver API, while the trigger still has that meaning.
_MEANT = "JSON_COMPACT(JSON_EXTRACT(schedules.door_data, '$.kweaver.trigger'))"
_EXPRESSION = f"""IF(
    {_MEANT} COLLATE utf8mb4_nopad_bin
      = JSON_COMPACT(schedules.`trigger`) COLLATE utf8mb4_nopad_bin,
    {_word("door_data", "kweaver.cron_expression")},
    {_word("trigger", "expression")}
  )"""


# The columns of the original table, followed by those that its implementation added.
ACTION_VIEW = f"""
CREATE OR REPLACE VIEW t_action_schedule AS SELECT
  schedules.id AS f_id,
  schedules.name AS f_name,
  {_word("target", "kn_id")} AS f_kn_id,
  {_word("target", "branch")} AS f_branch,
  {_word("target", "action_type_id")} AS f_action_type_id,
  {_EXPRESSION} AS f_cron_expression,
  {_json("identities", "[]")} AS f_unique_identities,
  {_json("params", "{}")} AS f_dynamic_params,
  schedules.compat_status AS f_status,
  COALESCE(schedules.last_run_at DIV 1000, 0) AS f_last_run_time,
  schedules.compat_next_run_time AS f_next_run_time,
  ({_HELD.format(column="runs.holder")}) AS f_lock_holder,
  COALESCE(({_HELD.format(column="runs.claimed_at DIV 1000")}), 0) AS f_lock_time,
  {_account("schedules.created_by")} AS f_creator,
  schedules.created_at DIV 1000 AS f_create_time,
  {_updater("id", "schedules.updated_by")} AS f_updater,
  schedules.updated_at DIV 1000 AS f_update_time,
  {_json("identities", "[]")} AS f_instance_identities,
  {_word("target", "account_type")} AS f_creator_type,
  {_updater("type", "''")} AS f_updater_type
FROM schedules WHERE schedules.deleted_at IS NULL
"""

# A node's id in the form of a UUID, as on PostgreSQL; times in UTC.
_DIGEST = "MD5(batches.node_id)"
_CLAIM = f"""
  {_datetime("batches.claimed_at")} AS claimed_at,
  CONCAT_WS('-', LEFT({_DIGEST}, 8), SUBSTR({_DIGEST}, 9, 4), SUBSTR({_DIGEST}, 13, 4),
    SUBSTR({_DIGEST}, 17, 4), RIGHT({_DIGEST}, 12)) AS claimed_by_worker_id,
  {_datetime("batches.enqueued_at")} AS enqueued_at,
  batches.duration_ms
"""
_METRICS = f"""
CREATE OR REPLACE VIEW cb_schedule_metrics AS
SELECT runs.id AS id, runs.schedule_id, {_CLAIM}, 1 AS success, NULL AS error_message
FROM runs JOIN fire_batches AS batches ON batches.id = runs.batch_id
UNION ALL
SELECT CONCAT(failures.batch_id, ':', failures.schedule_id), failures.schedule_id, {_CLAIM},
  0, failures.error
FROM fire_failures AS failures JOIN fire_batches AS batches ON batches.id = failures.batch_id
"""

VIEW_STATEMENTS = (
    _BEFORE_INSERT,
    UPDATE_TRIGGER,
    ACTION_VIEW,
    _METRICS,
    f"CREATE OR REPLACE VIEW {TEMPLATES}",
)
