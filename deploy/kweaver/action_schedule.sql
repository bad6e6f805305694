-- The table of scheduled actions of KWeaver 0.2.0, for a migration to Chimes or back:
-- `chimes store import-kweaver` imports every column. Chimes itself does not need the table; on
-- MariaDB it offers a view of the same name.
--
-- Later versions rename f_unique_identities to f_instance_identities and add f_creator_type and
-- f_updater_type. The import reads both forms.
CREATE TABLE IF NOT EXISTS t_action_schedule (
  f_id VARCHAR(40) NOT NULL,
  f_name VARCHAR(100) NOT NULL,
  f_kn_id VARCHAR(40) NOT NULL,
  f_branch VARCHAR(40) NOT NULL DEFAULT 'main',
  f_action_type_id VARCHAR(40) NOT NULL,
  f_cron_expression VARCHAR(100) NOT NULL,
  f_unique_identities MEDIUMTEXT,
  f_dynamic_params MEDIUMTEXT,
  f_status VARCHAR(20) NOT NULL DEFAULT 'inactive',
  f_last_run_time BIGINT NOT NULL DEFAULT 0,
  f_next_run_time BIGINT NOT NULL DEFAULT 0,
  f_lock_holder VARCHAR(64) DEFAULT NULL,
  f_lock_time BIGINT NOT NULL DEFAULT 0,
  f_creator VARCHAR(40) NOT NULL DEFAULT '',
  f_create_time BIGINT NOT NULL DEFAULT 0,
  f_updater VARCHAR(40) NOT NULL DEFAULT '',
  f_update_time BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (f_id),
  KEY by_network (f_kn_id, f_branch),
  KEY by_next_run (f_status, f_next_run_time)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
