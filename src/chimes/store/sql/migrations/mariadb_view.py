"""The view `t_action_schedule`: lists schedules and switches them on and off with plain SQL.

    UPDATE t_action_schedule SET f_status = 'inactive' | 'active' WHERE f_id = ...
    UPDATE t_action_schedule SET f_next_run_time = <milliseconds> WHERE f_id = ...

pauses, resumes or reschedules. A resumed schedule has no slot yet and is due: the next scheduler
pass plans it from the current time.

A view of MariaDB has no triggers, and computed columns cannot be updated. So `cursors` has columns
in the format of that table, the view exposes them, and triggers of `cursors` keep both sides in
sync: the columns follow what Chimes writes, and a change of them changes the cursor and the
schedule. A trigger cannot write a table that its statement reads, and an update through a view
reads every table of the view. Therefore the view reads `schedules` through functions: the tables of
a function are free again when it returns.
"""

from __future__ import annotations

import logging

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from chimes.errors import SchemaMismatch
from chimes.failpoints import hit
from chimes.i18n import _
from chimes.store.sql.dialects.mariadb import error_number
from chimes.store.sql.migrations.views import TEMPLATES

# ruff: noqa: S608 - what is put into statements here are parts of our own.

_log = logging.getLogger(__name__)

#: The store's clock in microseconds, exact: UNIX_TIMESTAMP would depend on the session's zone.
NOW = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"


def _moment(column: str) -> str:
    """As text, in UTC."""
    moment = f"DATE_ADD('1970-01-01 00:00:00.000000', INTERVAL {column} MICROSECOND)"
    return f"CONCAT(REPLACE({moment}, ' ', 'T'), 'Z')"


def _datetime(column: str) -> str:
    return f"TIMESTAMP '1970-01-01 00:00:00.000000' + INTERVAL {column} MICROSECOND"


_COLUMNS = """
ALTER TABLE cursors
  ADD COLUMN IF NOT EXISTS `compat_id` VARCHAR(255) NOT NULL DEFAULT '',
  ADD COLUMN IF NOT EXISTS `compat_status` VARCHAR(20) NOT NULL DEFAULT 'active',
  ADD COLUMN IF NOT EXISTS `compat_next_run_time` BIGINT NOT NULL DEFAULT 0,
  ADD INDEX IF NOT EXISTS cursors_compat (`compat_id`)
"""

_BEFORE_INSERT = """
CREATE OR REPLACE TRIGGER cursors_compat_insert BEFORE INSERT ON cursors FOR EACH ROW
SET NEW.compat_id = COALESCE(
      (SELECT schedules.id FROM schedules WHERE schedules.`key` = NEW.schedule), ''
    ),
    NEW.compat_status = IF(NEW.live = 1, 'active', 'inactive'),
    NEW.compat_next_run_time = COALESCE(NEW.next_run_at DIV 1000, 0)
"""

# An update through the view changes one of its columns and nothing else; an update of the table
# leaves them unchanged. The cursor is locked when this runs, and the schedule after it. SQL cannot
# compute the hashes of the store: 0 is no definition, which the store writes when the schedule
# fires, and the time of the change makes another revision.
_BEFORE_UPDATE = f"""
CREATE OR REPLACE TRIGGER cursors_compat_update BEFORE UPDATE ON cursors FOR EACH ROW
BEGIN
  DECLARE by_view TINYINT DEFAULT 0;
  DECLARE at_now BIGINT;
  DECLARE who TEXT;
  IF NOT NEW.compat_status <=> OLD.compat_status THEN
    IF COALESCE(NEW.compat_status, '') NOT IN ('active', 'inactive') THEN
      SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'f_status is active or inactive';
    END IF;
    SET by_view = 1, at_now = {NOW};
    SET NEW.live = IF(NEW.compat_status = 'active', 1, 0),
        NEW.next_slot = NULL,
        NEW.next_run_at = IF(NEW.compat_status = 'active', at_now, NULL);
  END IF;
  IF NEW.compat_next_run_time IS NULL THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'f_next_run_time is a number of milliseconds';
  END IF;
  IF NEW.compat_next_run_time <> OLD.compat_next_run_time AND NEW.live = 1 THEN
    SET by_view = 1, at_now = {NOW};
    -- 0 is no time: the next pass plans it anew, without a run.
    SET NEW.next_slot = IF(
      NEW.compat_next_run_time = 0, NULL, GREATEST(NEW.compat_next_run_time * 1000, at_now)
    );
    SET NEW.next_run_at = COALESCE(NEW.next_slot, at_now);
  END IF;
  IF by_view = 1 THEN
    SET NEW.revision = at_now, who = CONCAT('sql:', SUBSTRING_INDEX(USER(), '@', 1));
    UPDATE definitions SET used_at = at_now
    WHERE `key` = (SELECT definition FROM schedules WHERE `key` = NEW.schedule);
    UPDATE schedules SET
      version = version + 1, definition = 0, enabled = NEW.live,
      pause_note = IF(NEW.live = OLD.live, pause_note, ''),
      pause_until = IF(NEW.live = OLD.live, pause_until, NULL),
      updated_at = at_now, updated_by = who
    WHERE `key` = NEW.schedule;
    INSERT INTO sql_changes (`at`, actor, schedule_id, changes) VALUES (
      at_now,
      who,
      NEW.compat_id,
      CASE
        WHEN NEW.live = OLD.live THEN JSON_OBJECT('next_run_at', JSON_ARRAY(
          {_moment("OLD.next_run_at")}, {_moment("NEW.next_run_at")}
        ))
        WHEN NEW.live = 1 THEN '{{"enabled": [false, true]}}'
        ELSE '{{"enabled": [true, false]}}'
      END
    );
  END IF;
  SET NEW.compat_status = IF(NEW.live = 1, 'active', 'inactive'),
      NEW.compat_next_run_time = COALESCE(NEW.next_run_at DIV 1000, 0);
END
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
    version = "JSON_VALUE(schedules.compat_data, '$.kweaver.version')"
    return (
        f"IF({version} = schedules.version, "
        f"COALESCE(NULLIF({_word('compat_data', f'kweaver.updater.{key}')}, ''), {otherwise}), "
        f"{otherwise})"
    )


# The expression as written through the KWeaver API, while the trigger still has that meaning.
_MEANT = "JSON_COMPACT(JSON_EXTRACT(schedules.compat_data, '$.kweaver.trigger'))"
_EXPRESSION = f"""IF(
    {_MEANT} COLLATE utf8mb4_nopad_bin
      = JSON_COMPACT(schedules.`trigger`) COLLATE utf8mb4_nopad_bin,
    {_word("compat_data", "kweaver.cron_expression")},
    {_word("trigger", "expression")}
  )"""


def _case(parts: dict[str, str]) -> str:
    return " ".join(f"WHEN '{name}' THEN {value}" for name, value in parts.items())


#: Columns of the view that are text, by their names here.
_TEXTS = {
    "name": "schedules.name",
    "kn_id": _word("target", "kn_id"),
    "branch": _word("target", "branch"),
    "action_type_id": _word("target", "action_type_id"),
    "cron_expression": _EXPRESSION,
    "identities": _json("identities", "[]"),
    "params": _json("params", "{}"),
    "creator": _account("schedules.created_by"),
    "creator_type": _word("target", "account_type"),
    "updater": _updater("id", "schedules.updated_by"),
    "updater_type": _updater("type", "''"),
}
#: Numbers; times in milliseconds.
_NUMBERS = {
    "create_time": "schedules.created_at DIV 1000",
    "update_time": "schedules.updated_at DIV 1000",
    "present": "schedules.deleted_at IS NULL",
}


def _function(name: str, kind: str, parts: dict[str, str]) -> str:
    """Not strict, so that JSON which cannot be read gives NULL, not an error."""
    return f"""
SET STATEMENT sql_mode = '' FOR
CREATE OR REPLACE FUNCTION {name}(of_schedule BIGINT, part VARCHAR(20)) RETURNS {kind}
READS SQL DATA
RETURN (SELECT CASE part {_case(parts)} END FROM schedules WHERE schedules.`key` = of_schedule)
"""


_TEXT_FUNCTION = _function(
    "chimes_schedule_text", "LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin", _TEXTS
)
_NUMBER_FUNCTION = _function("chimes_schedule_number", "BIGINT", _NUMBERS)


def _text(part: str) -> str:
    assert part in _TEXTS
    return f"chimes_schedule_text(cursors.schedule, '{part}')"


def _number(part: str) -> str:
    assert part in _NUMBERS
    return f"chimes_schedule_number(cursors.schedule, '{part}')"


def _claim(column: str) -> str:
    """Of the latest claim of the schedule. Scalar subqueries, because a join would make the view
    read-only. Most runs have the key of their schedule, which an index finds; the others are found
    among all that do not."""
    latest = "ORDER BY claims.claimed_at DESC LIMIT 1"
    return f"""COALESCE(
    (SELECT {column} FROM claims WHERE claims.concurrency = -cursors.schedule {latest}),
    (SELECT {column} FROM claims STRAIGHT_JOIN runs ON runs.id = claims.run_id
     WHERE (claims.concurrency IS NULL OR claims.concurrency > 0)
       AND runs.schedule = cursors.schedule {latest})
  )"""


# The last renewal of the lease: the claim or, if later, the heartbeat of its node.
_RENEWED = """GREATEST(claims.claimed_at, COALESCE(
      (SELECT nodes.heartbeat_at FROM nodes WHERE nodes.id = claims.node), 0)) DIV 1000"""

# The columns of the original table, followed by those that its implementation added.
ACTION_VIEW = f"""
CREATE OR REPLACE VIEW t_action_schedule AS SELECT
  cursors.compat_id AS f_id,
  {_text("name")} AS f_name,
  {_text("kn_id")} AS f_kn_id,
  {_text("branch")} AS f_branch,
  {_text("action_type_id")} AS f_action_type_id,
  {_text("cron_expression")} AS f_cron_expression,
  {_text("identities")} AS f_unique_identities,
  {_text("params")} AS f_dynamic_params,
  cursors.compat_status AS f_status,
  COALESCE(
    (SELECT schedule_stats.last_run_at DIV 1000 FROM schedule_stats
     WHERE schedule_stats.schedule = cursors.schedule), 0
  ) AS f_last_run_time,
  cursors.compat_next_run_time AS f_next_run_time,
  {_claim("claims.node")} AS f_lock_holder,
  COALESCE({_claim(_RENEWED)}, 0) AS f_lock_time,
  {_text("creator")} AS f_creator,
  {_number("create_time")} AS f_create_time,
  {_text("updater")} AS f_updater,
  {_number("update_time")} AS f_update_time,
  {_text("identities")} AS f_instance_identities,
  {_text("creator_type")} AS f_creator_type,
  {_text("updater_type")} AS f_updater_type
FROM cursors WHERE {_number("present")} = 1
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
SELECT runs.id AS id, definitions.schedule_id, {_CLAIM}, 1 AS success, NULL AS error_message
FROM runs JOIN fire_batches AS batches ON batches.id = runs.batch_id
  JOIN definitions ON definitions.`key` = runs.definition
UNION ALL
SELECT CONCAT(failures.batch_id, ':', failures.schedule_id), failures.schedule_id, {_CLAIM},
  0, failures.error
FROM fire_failures AS failures JOIN fire_batches AS batches ON batches.id = failures.batch_id
"""

_STATEMENTS = (
    _COLUMNS,
    _BEFORE_INSERT,
    _BEFORE_UPDATE,
    _TEXT_FUNCTION,
    _NUMBER_FUNCTION,
    ACTION_VIEW,
    _METRICS,
    f"CREATE OR REPLACE VIEW {TEMPLATES}",
)
#: Error numbers: a right to create triggers and functions is missing; the name is that of a table.
_NO_TRIGGERS = 1419
_NO_VIEW = 1347


def create(connection: Connection) -> None:
    for statement in _STATEMENTS:
        hit("migrate.step")
        _execute(connection, statement)


def _execute(connection: Connection, statement: str) -> None:
    try:
        connection.exec_driver_sql(statement)
    except DBAPIError as error:
        number = None if error.orig is None else error_number(error.orig)
        if number == _NO_VIEW and statement is ACTION_VIEW:
            # A table of another application, which only `import-kweaver --take-over` replaces.
            _log.warning(
                "there is a table t_action_schedule here already, so the view of that name is left"
                " out; see `chimes store import-kweaver`"
            )
            return
        if number == _NO_TRIGGERS:
            raise SchemaMismatch(
                _(
                    "the server keeps a binary log and lets only administrators create triggers"
                    " and functions, which the view t_action_schedule needs. Let one of them say"
                    " SET GLOBAL log_bin_trust_function_creators = 1, or set up the store with the"
                    " right SUPER; later neither is needed"
                )
            ) from error
        raise
