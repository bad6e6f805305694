"""Schema on MariaDB, revision by revision, as plain statements.

MariaDB commits before and after every change of the schema, so a revision cannot be one
transaction. Instead each statement can be repeated: a migrator that was killed is started again.
Columns and their order are those of `tables`. The differences are:

* Text compares by code point and keeps trailing blanks (`utf8mb4_nopad_bin`).
* There are no partial indexes. The columns of the condition come first instead, and the primary
  key, which InnoDB adds to each index, is the tie-breaker.
* `schedules.name` is short enough to be sorted by an index.
"""

from __future__ import annotations

from chimes.store.sql.migrations.mariadb_view import ACTION_VIEW, UPDATE_TRIGGER, VIEW_STATEMENTS

# Rollups for the dashboard (revision 0006), and node events (0007).

TABLE = "ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"

# Short text columns, because of the longest key that InnoDB accepts.
ROLLUPS = (
    f"""
CREATE TABLE IF NOT EXISTS run_tallies (
  `owner_type` VARCHAR(32) NOT NULL,
  `owner_id` VARCHAR(255) NOT NULL,
  `quarter` BIGINT NOT NULL,
  `namespace` VARCHAR(255) NOT NULL,
  `kind` VARCHAR(32) NOT NULL,
  `origin` VARCHAR(32) NOT NULL,
  `status` VARCHAR(32) NOT NULL,
  `number` BIGINT NOT NULL,
  PRIMARY KEY (`owner_type`, `owner_id`, `quarter`, `namespace`, `kind`, `origin`, `status`),
  KEY run_tallies_by_quarter (`quarter`)
) {TABLE}
""",
    f"""
CREATE TABLE IF NOT EXISTS run_lags (
  `owner_type` VARCHAR(32) NOT NULL,
  `owner_id` VARCHAR(255) NOT NULL,
  `quarter` BIGINT NOT NULL,
  `bracket` SMALLINT NOT NULL,
  `number` BIGINT NOT NULL,
  PRIMARY KEY (`owner_type`, `owner_id`, `quarter`, `bracket`),
  KEY run_lags_by_quarter (`quarter`)
) {TABLE}
""",
    f"""
CREATE TABLE IF NOT EXISTS node_lags (
  `quarter` BIGINT NOT NULL,
  `node` VARCHAR(255) NOT NULL,
  `bracket` SMALLINT NOT NULL,
  `number` BIGINT NOT NULL,
  PRIMARY KEY (`quarter`, `node`, `bracket`)
) {TABLE}
""",
    "INSERT INTO store_facts (`name`, `value`) VALUES ('rolled_until', 0)"
    " ON DUPLICATE KEY UPDATE `name` = store_facts.`name`",
)

NODES = (
    """
ALTER TABLE nodes
  ADD COLUMN IF NOT EXISTS `drain` SMALLINT NOT NULL DEFAULT 0,
  ADD COLUMN IF NOT EXISTS `facts` LONGTEXT NOT NULL DEFAULT '',
  ALGORITHM = INSTANT
""",
    f"""
CREATE TABLE IF NOT EXISTS node_marks (
  `at` BIGINT NOT NULL,
  `node` VARCHAR(255) NOT NULL,
  `joined` SMALLINT NOT NULL,
  `version` VARCHAR(64) NOT NULL,
  PRIMARY KEY (`at`, `node`, `joined`)
) {TABLE}
""",
)


_SCHEDULES = f"""
CREATE TABLE IF NOT EXISTS schedules (
  `id` VARCHAR(255) NOT NULL,
  `namespace` VARCHAR(255) NOT NULL,
  `name` VARCHAR(700) NOT NULL,
  `owner_type` VARCHAR(64) NOT NULL,
  `owner_id` VARCHAR(255) NOT NULL,
  `kind` VARCHAR(64) NOT NULL,
  `trigger` LONGTEXT NOT NULL,
  `target` LONGTEXT NOT NULL,
  `policy` LONGTEXT NOT NULL,
  `priority` BIGINT NOT NULL,
  `labels` LONGTEXT NOT NULL,
  `enabled` SMALLINT NOT NULL,
  `pause_note` LONGTEXT NOT NULL,
  `pause_until` BIGINT,
  `depends_on` LONGTEXT,
  `door_data` LONGTEXT NOT NULL,
  `next_slot` BIGINT,
  `next_run_at` BIGINT,
  `last_slot` BIGINT,
  `last_enqueued_at` BIGINT,
  `last_run_at` BIGINT,
  `last_status` VARCHAR(64),
  `last_error` LONGTEXT NOT NULL,
  `last_success_at` BIGINT,
  `fired_count` BIGINT NOT NULL,
  `purged_until` BIGINT,
  `version` BIGINT NOT NULL,
  `created_at` BIGINT NOT NULL,
  `created_by` LONGTEXT NOT NULL,
  `updated_at` BIGINT NOT NULL,
  `updated_by` LONGTEXT NOT NULL,
  `deleted_at` BIGINT,
  -- For the view t_action_schedule, kept in step by triggers.
  `compat_status` VARCHAR(20) NOT NULL DEFAULT 'active',
  `compat_next_run_time` BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (`id`),
  KEY schedules_due (`enabled`, `deleted_at`, `next_run_at`, `id`),
  KEY schedules_created (`deleted_at`, `created_at`, `id`),
  KEY schedules_owned (`owner_type`, `owner_id`, `deleted_at`, `enabled`),
  KEY schedules_named (`deleted_at`, `name`)
) {TABLE}
"""

# `runs_claimable` is ascending in rank although the highest goes first: ranks are read one by one,
# and a descending column would keep MariaDB from jumping from rank to rank. `needs` is its last
# column so that runs for other nodes are filtered within the index. In `runs_by_key` the status
# follows the key: a key has many ended runs and few active ones.
_RUNS = f"""
CREATE TABLE IF NOT EXISTS runs (
  `id` VARCHAR(255) NOT NULL,
  `schedule_id` VARCHAR(255),
  `schedule_name` LONGTEXT NOT NULL,
  `schedule_version` BIGINT NOT NULL,
  `namespace` VARCHAR(255) NOT NULL,
  `owner_type` VARCHAR(64) NOT NULL,
  `owner_id` VARCHAR(255) NOT NULL,
  `slot` BIGINT,
  `origin` VARCHAR(64) NOT NULL,
  `parent_id` VARCHAR(255),
  `step` LONGTEXT NOT NULL,
  `retry_of` VARCHAR(255),
  `kind` VARCHAR(64) NOT NULL,
  `target` LONGTEXT NOT NULL,
  `policy` LONGTEXT NOT NULL,
  `priority` BIGINT NOT NULL,
  `catch_up` SMALLINT NOT NULL,
  `rank` BIGINT NOT NULL,
  `concurrency_key` VARCHAR(300),
  `concurrency_limit` BIGINT NOT NULL,
  `blocked` SMALLINT NOT NULL,
  `status` VARCHAR(64) NOT NULL,
  `attempt` INT NOT NULL,
  `fence` BIGINT NOT NULL,
  `holder` VARCHAR(255),
  `started` SMALLINT NOT NULL,
  `cancel_requested` SMALLINT NOT NULL,
  `created_at` BIGINT NOT NULL,
  `planned_at` BIGINT NOT NULL,
  `available_at` BIGINT NOT NULL,
  `claimed_at` BIGINT,
  `started_at` BIGINT,
  `finished_at` BIGINT,
  `result` LONGTEXT,
  `error` LONGTEXT NOT NULL,
  `reason` LONGTEXT NOT NULL,
  `missed_count` BIGINT NOT NULL,
  `missed_until` BIGINT,
  `attempts` LONGTEXT NOT NULL,
  `needs` VARCHAR(300) NOT NULL DEFAULT 'http',
  `batch_id` BIGINT,
  PRIMARY KEY (`id`),
  UNIQUE KEY runs_one_per_slot (`schedule_id`, `slot`),
  KEY runs_claimable
    (`status`, `blocked`, `rank`, `available_at`, `planned_at`, `id`, `needs`),
  KEY runs_by_key
    (`concurrency_key`, `status`, `blocked`, `rank` DESC, `available_at`, `planned_at`, `id`),
  KEY runs_held (`holder`),
  KEY runs_ended (`finished_at`, `id`),
  KEY runs_by_parent (`parent_id`, `created_at`, `id`),
  KEY runs_by_schedule (`schedule_id`, `created_at`, `id`),
  KEY runs_by_status (`status`, `created_at`, `id`),
  KEY runs_created (`created_at`, `id`),
  KEY runs_planned (`planned_at`, `id`)
) {TABLE}
"""

_OTHERS = (
    f"""
CREATE TABLE IF NOT EXISTS run_logs (
  `run_id` VARCHAR(255) NOT NULL,
  `number` BIGINT NOT NULL,
  `at` BIGINT NOT NULL,
  `level` VARCHAR(64) NOT NULL,
  `message` LONGTEXT NOT NULL,
  PRIMARY KEY (`run_id`, `number`)
) {TABLE}
""",
    f"""
CREATE TABLE IF NOT EXISTS nodes (
  `id` VARCHAR(255) NOT NULL,
  `version` VARCHAR(64) NOT NULL,
  `roles` LONGTEXT NOT NULL,
  `capacity` INT NOT NULL,
  `started_at` BIGINT NOT NULL,
  `heartbeat_at` BIGINT NOT NULL,
  `lease_until` BIGINT NOT NULL,
  `clock_offset` DOUBLE NOT NULL,
  `offers` LONGTEXT NOT NULL DEFAULT '[]',
  PRIMARY KEY (`id`)
) {TABLE}
""",
    f"""
CREATE TABLE IF NOT EXISTS audit (
  `number` BIGINT NOT NULL,
  `at` BIGINT NOT NULL,
  `actor` LONGTEXT NOT NULL,
  `door` VARCHAR(64) NOT NULL,
  `verb` VARCHAR(64) NOT NULL,
  `object_kind` VARCHAR(64) NOT NULL,
  `object_id` VARCHAR(255) NOT NULL,
  `owner` VARCHAR(330) NOT NULL,
  `changes` LONGTEXT NOT NULL,
  `reason` LONGTEXT NOT NULL,
  `address` LONGTEXT NOT NULL,
  `allowed` SMALLINT NOT NULL,
  `previous_hash` VARCHAR(64) NOT NULL,
  `hash` VARCHAR(64) NOT NULL,
  PRIMARY KEY (`number`),
  KEY audit_by_object (`object_id`, `number`),
  KEY audit_by_owner (`owner`, `number`)
) {TABLE}
""",
    f"""
CREATE TABLE IF NOT EXISTS audit_head (
  `id` SMALLINT NOT NULL,
  `number` BIGINT NOT NULL,
  `hash` VARCHAR(64) NOT NULL,
  PRIMARY KEY (`id`)
) {TABLE}
""",
    f"""
CREATE TABLE IF NOT EXISTS api_keys (
  `id` VARCHAR(255) NOT NULL,
  `secret_hash` VARCHAR(255) NOT NULL,
  `name` LONGTEXT NOT NULL,
  `role` VARCHAR(64) NOT NULL,
  `owner_type` VARCHAR(64) NOT NULL,
  `owner_id` VARCHAR(255) NOT NULL,
  `created_at` BIGINT NOT NULL,
  `created_by` LONGTEXT NOT NULL,
  `expires_at` BIGINT,
  `last_used_at` BIGINT,
  `revoked_at` BIGINT,
  PRIMARY KEY (`id`)
) {TABLE}
""",
    f"""
CREATE TABLE IF NOT EXISTS requests (
  `scope` VARCHAR(255) NOT NULL,
  `request_key` VARCHAR(255) NOT NULL,
  `fingerprint` LONGTEXT NOT NULL,
  `status` INT NOT NULL,
  `body` LONGTEXT NOT NULL,
  `headers` LONGTEXT NOT NULL,
  `expires_at` BIGINT NOT NULL,
  PRIMARY KEY (`scope`, `request_key`),
  KEY requests_expiring (`expires_at`)
) {TABLE}
""",
    f"""
CREATE TABLE IF NOT EXISTS concurrency_keys (
  `key` VARCHAR(300) NOT NULL,
  PRIMARY KEY (`key`)
) {TABLE}
""",
    f"""
CREATE TABLE IF NOT EXISTS store_facts (
  `name` VARCHAR(64) NOT NULL,
  `value` BIGINT NOT NULL,
  PRIMARY KEY (`name`)
) {TABLE}
""",
    f"""
CREATE TABLE IF NOT EXISTS fire_batches (
  `id` BIGINT NOT NULL,
  `node_id` VARCHAR(255) NOT NULL,
  `claimed_at` BIGINT NOT NULL,
  `enqueued_at` BIGINT NOT NULL,
  `duration_ms` DOUBLE NOT NULL,
  PRIMARY KEY (`id`)
) {TABLE}
""",
    f"""
CREATE TABLE IF NOT EXISTS fire_failures (
  `batch_id` BIGINT NOT NULL,
  `schedule_id` VARCHAR(255) NOT NULL,
  `error` LONGTEXT NOT NULL,
  PRIMARY KEY (`batch_id`, `schedule_id`)
) {TABLE}
""",
    f"""
CREATE TABLE IF NOT EXISTS sql_changes (
  `id` BIGINT NOT NULL AUTO_INCREMENT,
  `at` BIGINT NOT NULL,
  `actor` LONGTEXT NOT NULL,
  `schedule_id` VARCHAR(255) NOT NULL,
  `changes` LONGTEXT NOT NULL,
  PRIMARY KEY (`id`)
) {TABLE}
""",
    # One counter row for wake-ups (see `MariadbWakeConnection`).
    f"""
CREATE TABLE IF NOT EXISTS wakeups (
  `id` SMALLINT NOT NULL,
  `count` BIGINT NOT NULL,
  PRIMARY KEY (`id`)
) {TABLE}
""",
    "INSERT INTO wakeups (`id`, `count`) VALUES (1, 0) ON DUPLICATE KEY UPDATE `id` = `id`",
    "INSERT INTO store_facts (`name`, `value`) VALUES ('epoch', 0), ('min_revision', 2)"
    " ON DUPLICATE KEY UPDATE `name` = store_facts.`name`",
    "INSERT INTO audit_head (`id`, `number`, `hash`) VALUES (1, 0, '')"
    " ON DUPLICATE KEY UPDATE `id` = `id`",
)

_SYNC_TASKS = (
    f"""
CREATE TABLE IF NOT EXISTS kept_states (
  `name` VARCHAR(300) NOT NULL,
  `value` LONGTEXT NOT NULL,
  `changed_at` BIGINT NOT NULL,
  `run_id` VARCHAR(255) NOT NULL,
  PRIMARY KEY (`name`)
) {TABLE}
""",
    # The tasks of a source in the order of time. Without partial indexes every run is in it; those
    # of one kind of target are adjacent.
    """
ALTER TABLE runs ADD INDEX IF NOT EXISTS runs_by_source (`needs`, `created_at`, `id`),
  ALGORITHM = INPLACE, LOCK = NONE
""",
)

_MESSAGES = (
    # Without partial indexes, the state comes first in the index.
    f"""
CREATE TABLE IF NOT EXISTS deliveries (
  `id` VARCHAR(255) NOT NULL,
  `run_id` VARCHAR(255) NOT NULL,
  `schedule_id` VARCHAR(255),
  `schedule_name` LONGTEXT NOT NULL,
  `owner_type` VARCHAR(64) NOT NULL,
  `owner_id` VARCHAR(255) NOT NULL,
  `channel` VARCHAR(64) NOT NULL,
  `recipient` LONGTEXT NOT NULL,
  `occasion` VARCHAR(64) NOT NULL,
  `state` VARCHAR(64) NOT NULL,
  `attempts` INT NOT NULL,
  `fence` BIGINT NOT NULL,
  `progress` INT NOT NULL,
  `created_at` BIGINT NOT NULL,
  `available_at` BIGINT NOT NULL,
  `finished_at` BIGINT,
  `error` LONGTEXT NOT NULL,
  `code` VARCHAR(64) NOT NULL,
  `receipt` LONGTEXT NOT NULL,
  PRIMARY KEY (`id`),
  KEY deliveries_pending (`state`, `available_at`, `id`),
  KEY deliveries_ended (`finished_at`, `id`),
  KEY deliveries_by_run (`run_id`),
  KEY deliveries_by_owner (`owner_type`, `owner_id`, `created_at`, `id`),
  KEY deliveries_by_state (`state`, `created_at`, `id`),
  KEY deliveries_created (`created_at`, `id`)
) {TABLE}
""",
    f"""
CREATE TABLE IF NOT EXISTS inbox (
  `id` VARCHAR(255) NOT NULL,
  `owner_type` VARCHAR(64) NOT NULL,
  `owner_id` VARCHAR(255) NOT NULL,
  `run_id` VARCHAR(255),
  `schedule_id` VARCHAR(255),
  `schedule_name` LONGTEXT NOT NULL,
  `title` LONGTEXT NOT NULL,
  `text` LONGTEXT NOT NULL,
  `status` VARCHAR(64) NOT NULL,
  `artifacts` LONGTEXT NOT NULL,
  `created_at` BIGINT NOT NULL,
  `read_at` BIGINT,
  `starred` SMALLINT NOT NULL,
  `archived_at` BIGINT,
  `snoozed_until` BIGINT,
  PRIMARY KEY (`id`),
  KEY inbox_by_owner (`owner_type`, `owner_id`, `created_at`, `id`),
  KEY inbox_created (`created_at`, `id`),
  KEY inbox_by_run (`run_id`)
) {TABLE}
""",
    f"""
CREATE TABLE IF NOT EXISTS buckets (
  `name` VARCHAR(255) NOT NULL,
  `tokens` DOUBLE NOT NULL,
  `at` BIGINT NOT NULL,
  `granted` BIGINT NOT NULL,
  `full_at` BIGINT NOT NULL,
  PRIMARY KEY (`name`)
) {TABLE}
""",
    """
ALTER TABLE api_keys ADD COLUMN IF NOT EXISTS `scopes` LONGTEXT NOT NULL DEFAULT '[]',
  ALGORITHM = INSTANT
""",
)

#: By revision, oldest first. MariaDB support began with 0002.
STATEMENTS: dict[str, tuple[str, ...]] = {
    "0002": (_SCHEDULES, _RUNS, *_OTHERS, *VIEW_STATEMENTS),
    "0003": _SYNC_TASKS,
    "0004": _MESSAGES,
    "0005": (UPDATE_TRIGGER, ACTION_VIEW),
    "0006": ROLLUPS,
    "0007": NODES,
    # Partial indexes, which MariaDB does not have.
    "0008": (),
    "0009": (),
    # A function of PostgreSQL.
    "0010": (),
}
