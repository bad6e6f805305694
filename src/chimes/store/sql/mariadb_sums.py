"""Sums for the dashboard on MariaDB (schema 0006), and what is known of nodes (0007)."""

from __future__ import annotations

TABLE = "ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"

# Words are shorter here than elsewhere, for the sake of the longest key that InnoDB takes.
SUMS = (
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
