CREATE TABLE `api_keys` (
  `id` varchar(255) NOT NULL,
  `secret_hash` varchar(255) NOT NULL,
  `name` longtext NOT NULL,
  `role` varchar(64) NOT NULL,
  `owner_type` varchar(64) NOT NULL,
  `owner_id` varchar(255) NOT NULL,
  `created_at` bigint(20) NOT NULL,
  `created_by` longtext NOT NULL,
  `expires_at` bigint(20) DEFAULT NULL,
  `last_used_at` bigint(20) DEFAULT NULL,
  `revoked_at` bigint(20) DEFAULT NULL,
  `scopes` longtext NOT NULL DEFAULT '[]',
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin
--
CREATE TABLE `audit` (
  `number` bigint(20) NOT NULL,
  `at` bigint(20) NOT NULL,
  `actor` longtext NOT NULL,
  `door` varchar(64) NOT NULL,
  `verb` varchar(64) NOT NULL,
  `object_kind` varchar(64) NOT NULL,
  `object_id` varchar(255) NOT NULL,
  `owner` varchar(330) NOT NULL,
  `changes` longtext NOT NULL,
  `reason` longtext NOT NULL,
  `address` longtext NOT NULL,
  `allowed` smallint(6) NOT NULL,
  `previous_hash` varchar(64) NOT NULL,
  `hash` varchar(64) NOT NULL,
  PRIMARY KEY (`number`),
  KEY `audit_by_object` (`object_id`,`number`),
  KEY `audit_by_owner` (`owner`,`number`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin
--
CREATE TABLE `audit_head` (
  `id` smallint(6) NOT NULL,
  `number` bigint(20) NOT NULL,
  `hash` varchar(64) NOT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin
--
CREATE TABLE `buckets` (
  `name` varchar(255) NOT NULL,
  `tokens` double NOT NULL,
  `at` bigint(20) NOT NULL,
  `granted` bigint(20) NOT NULL,
  `full_at` bigint(20) NOT NULL,
  PRIMARY KEY (`name`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin
--
CREATE TABLE `chimes_version` (
  `version_num` varchar(32) NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=latin1 COLLATE=latin1_swedish_ci
--
CREATE TABLE `concurrency_keys` (
  `key` varchar(300) NOT NULL,
  PRIMARY KEY (`key`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin
--
CREATE TABLE `deliveries` (
  `id` varchar(255) NOT NULL,
  `run_id` varchar(255) NOT NULL,
  `schedule_id` varchar(255) DEFAULT NULL,
  `schedule_name` longtext NOT NULL,
  `owner_type` varchar(64) NOT NULL,
  `owner_id` varchar(255) NOT NULL,
  `channel` varchar(64) NOT NULL,
  `recipient` longtext NOT NULL,
  `occasion` varchar(64) NOT NULL,
  `state` varchar(64) NOT NULL,
  `attempts` int(11) NOT NULL,
  `fence` bigint(20) NOT NULL,
  `progress` int(11) NOT NULL,
  `created_at` bigint(20) NOT NULL,
  `available_at` bigint(20) NOT NULL,
  `finished_at` bigint(20) DEFAULT NULL,
  `error` longtext NOT NULL,
  `code` varchar(64) NOT NULL,
  `receipt` longtext NOT NULL,
  PRIMARY KEY (`id`),
  KEY `deliveries_pending` (`state`,`available_at`,`id`),
  KEY `deliveries_ended` (`finished_at`,`id`),
  KEY `deliveries_by_run` (`run_id`),
  KEY `deliveries_by_owner` (`owner_type`,`owner_id`,`created_at`,`id`),
  KEY `deliveries_by_state` (`state`,`created_at`,`id`),
  KEY `deliveries_created` (`created_at`,`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin
--
CREATE TABLE `fire_batches` (
  `id` bigint(20) NOT NULL,
  `node_id` varchar(255) NOT NULL,
  `claimed_at` bigint(20) NOT NULL,
  `enqueued_at` bigint(20) NOT NULL,
  `duration_ms` double NOT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin
--
CREATE TABLE `fire_failures` (
  `batch_id` bigint(20) NOT NULL,
  `schedule_id` varchar(255) NOT NULL,
  `error` longtext NOT NULL,
  PRIMARY KEY (`batch_id`,`schedule_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin
--
CREATE TABLE `inbox` (
  `id` varchar(255) NOT NULL,
  `owner_type` varchar(64) NOT NULL,
  `owner_id` varchar(255) NOT NULL,
  `run_id` varchar(255) DEFAULT NULL,
  `schedule_id` varchar(255) DEFAULT NULL,
  `schedule_name` longtext NOT NULL,
  `title` longtext NOT NULL,
  `text` longtext NOT NULL,
  `status` varchar(64) NOT NULL,
  `artifacts` longtext NOT NULL,
  `created_at` bigint(20) NOT NULL,
  `read_at` bigint(20) DEFAULT NULL,
  `starred` smallint(6) NOT NULL,
  `archived_at` bigint(20) DEFAULT NULL,
  `snoozed_until` bigint(20) DEFAULT NULL,
  PRIMARY KEY (`id`),
  KEY `inbox_by_owner` (`owner_type`,`owner_id`,`created_at`,`id`),
  KEY `inbox_created` (`created_at`,`id`),
  KEY `inbox_by_run` (`run_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin
--
CREATE TABLE `kept_states` (
  `name` varchar(300) NOT NULL,
  `value` longtext NOT NULL,
  `changed_at` bigint(20) NOT NULL,
  `run_id` varchar(255) NOT NULL,
  PRIMARY KEY (`name`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin
--
CREATE TABLE `node_lags` (
  `quarter` bigint(20) NOT NULL,
  `node` varchar(255) NOT NULL,
  `bracket` smallint(6) NOT NULL,
  `number` bigint(20) NOT NULL,
  PRIMARY KEY (`quarter`,`node`,`bracket`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin
--
CREATE TABLE `node_marks` (
  `at` bigint(20) NOT NULL,
  `node` varchar(255) NOT NULL,
  `joined` smallint(6) NOT NULL,
  `version` varchar(64) NOT NULL,
  PRIMARY KEY (`at`,`node`,`joined`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin
--
CREATE TABLE `nodes` (
  `id` varchar(255) NOT NULL,
  `version` varchar(64) NOT NULL,
  `roles` longtext NOT NULL,
  `capacity` int(11) NOT NULL,
  `started_at` bigint(20) NOT NULL,
  `heartbeat_at` bigint(20) NOT NULL,
  `lease_until` bigint(20) NOT NULL,
  `clock_offset` double NOT NULL,
  `offers` longtext NOT NULL DEFAULT '[]',
  `drain` smallint(6) NOT NULL DEFAULT 0,
  `facts` longtext NOT NULL DEFAULT '',
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin
--
CREATE TABLE `requests` (
  `scope` varchar(255) NOT NULL,
  `request_key` varchar(255) NOT NULL,
  `fingerprint` longtext NOT NULL,
  `status` int(11) NOT NULL,
  `body` longtext NOT NULL,
  `headers` longtext NOT NULL,
  `expires_at` bigint(20) NOT NULL,
  PRIMARY KEY (`scope`,`request_key`),
  KEY `requests_expiring` (`expires_at`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin
--
CREATE TABLE `run_lags` (
  `owner_type` varchar(32) NOT NULL,
  `owner_id` varchar(255) NOT NULL,
  `quarter` bigint(20) NOT NULL,
  `bracket` smallint(6) NOT NULL,
  `number` bigint(20) NOT NULL,
  PRIMARY KEY (`owner_type`,`owner_id`,`quarter`,`bracket`),
  KEY `run_lags_by_quarter` (`quarter`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin
--
CREATE TABLE `run_logs` (
  `run_id` varchar(255) NOT NULL,
  `number` bigint(20) NOT NULL,
  `at` bigint(20) NOT NULL,
  `level` varchar(64) NOT NULL,
  `message` longtext NOT NULL,
  PRIMARY KEY (`run_id`,`number`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin
--
CREATE TABLE `run_tallies` (
  `owner_type` varchar(32) NOT NULL,
  `owner_id` varchar(255) NOT NULL,
  `quarter` bigint(20) NOT NULL,
  `namespace` varchar(255) NOT NULL,
  `kind` varchar(32) NOT NULL,
  `origin` varchar(32) NOT NULL,
  `status` varchar(32) NOT NULL,
  `number` bigint(20) NOT NULL,
  PRIMARY KEY (`owner_type`,`owner_id`,`quarter`,`namespace`,`kind`,`origin`,`status`),
  KEY `run_tallies_by_quarter` (`quarter`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin
--
CREATE TABLE `runs` (
  `id` varchar(255) NOT NULL,
  `schedule_id` varchar(255) DEFAULT NULL,
  `schedule_name` longtext NOT NULL,
  `schedule_version` bigint(20) NOT NULL,
  `namespace` varchar(255) NOT NULL,
  `owner_type` varchar(64) NOT NULL,
  `owner_id` varchar(255) NOT NULL,
  `slot` bigint(20) DEFAULT NULL,
  `origin` varchar(64) NOT NULL,
  `parent_id` varchar(255) DEFAULT NULL,
  `step` longtext NOT NULL,
  `retry_of` varchar(255) DEFAULT NULL,
  `kind` varchar(64) NOT NULL,
  `target` longtext NOT NULL,
  `policy` longtext NOT NULL,
  `priority` bigint(20) NOT NULL,
  `catch_up` smallint(6) NOT NULL,
  `rank` bigint(20) NOT NULL,
  `concurrency_key` varchar(300) DEFAULT NULL,
  `concurrency_limit` bigint(20) NOT NULL,
  `blocked` smallint(6) NOT NULL,
  `status` varchar(64) NOT NULL,
  `attempt` int(11) NOT NULL,
  `fence` bigint(20) NOT NULL,
  `holder` varchar(255) DEFAULT NULL,
  `started` smallint(6) NOT NULL,
  `cancel_requested` smallint(6) NOT NULL,
  `created_at` bigint(20) NOT NULL,
  `planned_at` bigint(20) NOT NULL,
  `available_at` bigint(20) NOT NULL,
  `claimed_at` bigint(20) DEFAULT NULL,
  `started_at` bigint(20) DEFAULT NULL,
  `finished_at` bigint(20) DEFAULT NULL,
  `result` longtext DEFAULT NULL,
  `error` longtext NOT NULL,
  `reason` longtext NOT NULL,
  `missed_count` bigint(20) NOT NULL,
  `missed_until` bigint(20) DEFAULT NULL,
  `attempts` longtext NOT NULL,
  `needs` varchar(300) NOT NULL DEFAULT 'http',
  `batch_id` bigint(20) DEFAULT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `runs_one_per_slot` (`schedule_id`,`slot`),
  KEY `runs_claimable` (`status`,`blocked`,`rank`,`available_at`,`planned_at`,`id`,`needs`),
  KEY `runs_by_key` (`concurrency_key`,`status`,`blocked`,`rank` DESC,`available_at`,`planned_at`,`id`),
  KEY `runs_held` (`holder`),
  KEY `runs_ended` (`finished_at`,`id`),
  KEY `runs_by_parent` (`parent_id`,`created_at`,`id`),
  KEY `runs_by_schedule` (`schedule_id`,`created_at`,`id`),
  KEY `runs_by_status` (`status`,`created_at`,`id`),
  KEY `runs_created` (`created_at`,`id`),
  KEY `runs_planned` (`planned_at`,`id`),
  KEY `runs_by_source` (`needs`,`created_at`,`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin
--
CREATE TABLE `schedules` (
  `id` varchar(255) NOT NULL,
  `namespace` varchar(255) NOT NULL,
  `name` varchar(700) NOT NULL,
  `owner_type` varchar(64) NOT NULL,
  `owner_id` varchar(255) NOT NULL,
  `kind` varchar(64) NOT NULL,
  `trigger` longtext NOT NULL,
  `target` longtext NOT NULL,
  `policy` longtext NOT NULL,
  `priority` bigint(20) NOT NULL,
  `labels` longtext NOT NULL,
  `enabled` smallint(6) NOT NULL,
  `pause_note` longtext NOT NULL,
  `pause_until` bigint(20) DEFAULT NULL,
  `depends_on` longtext DEFAULT NULL,
  `door_data` longtext NOT NULL,
  `next_slot` bigint(20) DEFAULT NULL,
  `next_run_at` bigint(20) DEFAULT NULL,
  `last_slot` bigint(20) DEFAULT NULL,
  `last_enqueued_at` bigint(20) DEFAULT NULL,
  `last_run_at` bigint(20) DEFAULT NULL,
  `last_status` varchar(64) DEFAULT NULL,
  `last_error` longtext NOT NULL,
  `last_success_at` bigint(20) DEFAULT NULL,
  `fired_count` bigint(20) NOT NULL,
  `purged_until` bigint(20) DEFAULT NULL,
  `version` bigint(20) NOT NULL,
  `created_at` bigint(20) NOT NULL,
  `created_by` longtext NOT NULL,
  `updated_at` bigint(20) NOT NULL,
  `updated_by` longtext NOT NULL,
  `deleted_at` bigint(20) DEFAULT NULL,
  `compat_status` varchar(20) NOT NULL DEFAULT 'active',
  `compat_next_run_time` bigint(20) NOT NULL DEFAULT 0,
  PRIMARY KEY (`id`),
  KEY `schedules_due` (`enabled`,`deleted_at`,`next_run_at`,`id`),
  KEY `schedules_created` (`deleted_at`,`created_at`,`id`),
  KEY `schedules_owned` (`owner_type`,`owner_id`,`deleted_at`,`enabled`),
  KEY `schedules_named` (`deleted_at`,`name`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin
--
CREATE TABLE `sql_changes` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `at` bigint(20) NOT NULL,
  `actor` longtext NOT NULL,
  `schedule_id` varchar(255) NOT NULL,
  `changes` longtext NOT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin
--
CREATE TABLE `store_facts` (
  `name` varchar(64) NOT NULL,
  `value` bigint(20) NOT NULL,
  PRIMARY KEY (`name`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin
--
CREATE TABLE `wakeups` (
  `id` smallint(6) NOT NULL,
  `count` bigint(20) NOT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin
--
/*M!999999\- enable the sandbox mode */ 
INSERT INTO `api_keys` VALUES
('cdr9jrchzpk6','058549ad858c207db52268863a935004ba51078c3ec5eb8d03be1275a9ef601b','ci','member','system','default',1894698001750000,'key:configured',NULL,NULL,NULL,'[]'),
('key-00001','sha256:abababababababababababababababababababababababababababababababab','for the tests','member','user','alice',1894698000000000,'system:default',NULL,NULL,NULL,'[]'),
('key-00002','sha256:abababababababababababababababababababababababababababababababab','for the tests','member','user','alice',1894698000000000,'system:default',1894698060000000,1894698000000000,1894698000000000,'[\"read\",\"agent\"]')
--
/*M!999999\- enable the sandbox mode */ 
INSERT INTO `audit` VALUES
(1,1894698000000000,'user:alice','native','key','schedule','schedule-x','user:alice','{\"name\":[null,\"น้ำ 水 %_\"],\"priority\":[0,5]}','because','127.0.0.1',1,'','308592966016d8179f7112cc6768ce5e1e776b6244c222e593f76b52de714fcb'),
(2,1894698000000000,'user:alice','native','create','schedule','schedule-x','user:alice','{\"name\":[null,\"น้ำ 水 %_\"],\"priority\":[0,5]}','because','127.0.0.1',1,'308592966016d8179f7112cc6768ce5e1e776b6244c222e593f76b52de714fcb','a754391ee561b464ce6db8ff38d8cd7465e4ae19a66f2ed8de5a2c9df9fe3812'),
(3,1894698000000000,'user:alice','native','create','schedule','schedule-x','user:alice','{\"name\":[null,\"น้ำ 水 %_\"],\"priority\":[0,5]}','because','127.0.0.1',1,'a754391ee561b464ce6db8ff38d8cd7465e4ae19a66f2ed8de5a2c9df9fe3812','3fc046c47347d6633d6cf1a0981630cef6aeb79f7e7e6b8c30d7ddd62af5801c'),
(4,1894698000000000,'user:alice','native','cancel','schedule','schedule-x','user:alice','{\"name\":[null,\"น้ำ 水 %_\"],\"priority\":[0,5]}','because','127.0.0.1',1,'3fc046c47347d6633d6cf1a0981630cef6aeb79f7e7e6b8c30d7ddd62af5801c','638b53084f08b0d0f1c9b15fce7516b7fcc509936c5b310f3ab21c35847ef39f'),
(5,1894698000000000,'user:alice','native','run','schedule','schedule-x','user:alice','{\"name\":[null,\"น้ำ 水 %_\"],\"priority\":[0,5]}','because','127.0.0.1',1,'638b53084f08b0d0f1c9b15fce7516b7fcc509936c5b310f3ab21c35847ef39f','dfa6686c7db89b09ebb84aa48aed561d7881bb38b941f50939d33f2a4e547272'),
(6,1894698000000000,'user:alice','native','state','schedule','schedule-x','user:alice','{\"name\":[null,\"น้ำ 水 %_\"],\"priority\":[0,5]}','because','127.0.0.1',1,'dfa6686c7db89b09ebb84aa48aed561d7881bb38b941f50939d33f2a4e547272','1376efe7f8e8fbe0dbf227680e8d1327381c3f99880f1bf60fc3433f2d4d90e4'),
(7,1894698001750000,'key:configured','native','create','schedule','01b924cd-2556-7446-8be9-cc81237751aa','system:default','{\"created_at\":[null,\"2030-01-15T09:00:01.750000Z\"],\"created_by\":[null,\"key:configured\"],\"enabled\":[null,true],\"id\":[null,\"01b924cd-2556-7446-8be9-cc81237751aa\"],\"labels\":[null,{\"team\":\"ops\"}],\"name\":[null,\"cron\"],\"namespace\":[null,\"native\"],\"next_run_at\":[null,\"2030-01-16T02:00:00Z\"],\"next_slot\":[null,\"2030-01-16T02:00:00Z\"],\"owner\":[null,{\"type\":\"system\",\"id\":\"default\"}],\"policy\":[null,{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":3,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}],\"target\":[null,{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\"}],\"trigger\":[null,{\"kind\":\"cron\",\"expression\":\"0 9 * * *\",\"timezone\":\"Asia/Bangkok\"}]}','','127.0.0.1',1,'1376efe7f8e8fbe0dbf227680e8d1327381c3f99880f1bf60fc3433f2d4d90e4','155da72cf392d0fb9bda02adf19eb84a089a40929b72b3d980c170a8778756a9'),
(8,1894698001750000,'key:configured','native','create','schedule','01b924cd-2556-7569-9dad-9d1480b65386','system:default','{\"created_at\":[null,\"2030-01-15T09:00:01.750000Z\"],\"created_by\":[null,\"key:configured\"],\"enabled\":[null,true],\"id\":[null,\"01b924cd-2556-7569-9dad-9d1480b65386\"],\"name\":[null,\"once\"],\"namespace\":[null,\"native\"],\"next_run_at\":[null,\"2030-02-01T10:00:00Z\"],\"next_slot\":[null,\"2030-02-01T10:00:00Z\"],\"owner\":[null,{\"type\":\"system\",\"id\":\"default\"}],\"policy\":[null,{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":3,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}],\"target\":[null,{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\"}],\"trigger\":[null,{\"kind\":\"once\",\"at\":\"2030-02-01T10:00:00Z\",\"timezone\":\"UTC\"}]}','','127.0.0.1',1,'155da72cf392d0fb9bda02adf19eb84a089a40929b72b3d980c170a8778756a9','715a55863da06ece9056e15153ac59e68566b82e62dc6b0e0e87bff623a3eb49'),
(9,1894698001750000,'key:configured','native','create','schedule','01b924cd-2556-7558-bbed-beff8de4ab47','system:default','{\"created_at\":[null,\"2030-01-15T09:00:01.750000Z\"],\"created_by\":[null,\"key:configured\"],\"enabled\":[null,true],\"id\":[null,\"01b924cd-2556-7558-bbed-beff8de4ab47\"],\"name\":[null,\"every\"],\"namespace\":[null,\"native\"],\"next_run_at\":[null,\"2030-01-15T09:15:01.750000Z\"],\"next_slot\":[null,\"2030-01-15T09:15:01.750000Z\"],\"owner\":[null,{\"type\":\"system\",\"id\":\"default\"}],\"policy\":[null,{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":3,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}],\"target\":[null,{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\"}],\"trigger\":[null,{\"kind\":\"every\",\"every\":\"PT15M\",\"anchor\":\"2030-01-15T09:00:01.750000Z\"}]}','','127.0.0.1',1,'715a55863da06ece9056e15153ac59e68566b82e62dc6b0e0e87bff623a3eb49','962f1bdba0388d6d775bca7a9771668e752df2c46ce6636a7e2d732eded7d7eb'),
(10,1894698001750000,'key:configured','native','create','schedule','01b924cd-2556-7ba6-8ad7-aea861076dc3','system:default','{\"created_at\":[null,\"2030-01-15T09:00:01.750000Z\"],\"created_by\":[null,\"key:configured\"],\"enabled\":[null,true],\"id\":[null,\"01b924cd-2556-7ba6-8ad7-aea861076dc3\"],\"name\":[null,\"task\"],\"namespace\":[null,\"native\"],\"next_run_at\":[null,\"2030-01-16T02:00:00Z\"],\"next_slot\":[null,\"2030-01-16T02:00:00Z\"],\"owner\":[null,{\"type\":\"system\",\"id\":\"default\"}],\"policy\":[null,{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":300000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}],\"target\":[null,{\"kind\":\"task\",\"name\":\"reports.nightly\",\"args\":{\"day\":1}}],\"trigger\":[null,{\"kind\":\"cron\",\"expression\":\"0 9 * * *\",\"timezone\":\"Asia/Bangkok\"}]}','','127.0.0.1',1,'962f1bdba0388d6d775bca7a9771668e752df2c46ce6636a7e2d732eded7d7eb','966ecaea399445df9ca68988c4cfc09801366f03a09c2f34644f11ac31dbf1d9'),
(11,1894698001750000,'key:configured','native','create','schedule','01b924cd-2556-7f38-9b0b-a905b99de255','system:default','{\"created_at\":[null,\"2030-01-15T09:00:01.750000Z\"],\"created_by\":[null,\"key:configured\"],\"enabled\":[null,true],\"id\":[null,\"01b924cd-2556-7f38-9b0b-a905b99de255\"],\"name\":[null,\"flow\"],\"namespace\":[null,\"native\"],\"next_run_at\":[null,\"2030-01-16T02:00:00Z\"],\"next_slot\":[null,\"2030-01-16T02:00:00Z\"],\"owner\":[null,{\"type\":\"system\",\"id\":\"default\"}],\"policy\":[null,{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":86400000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}],\"target\":[null,{\"kind\":\"flow\",\"name\":\"pipeline-2\"}],\"trigger\":[null,{\"kind\":\"cron\",\"expression\":\"0 9 * * *\",\"timezone\":\"Asia/Bangkok\"}]}','','127.0.0.1',1,'966ecaea399445df9ca68988c4cfc09801366f03a09c2f34644f11ac31dbf1d9','9340db9f261a3f5dd176a7e2f8a0929ae8eb5dee6ca9f639a69a6b05ae4fb1a2'),
(12,1894698001750000,'key:configured','native','create','schedule','01b924cd-2556-70d2-8879-a91b1c670ea9','system:default','{\"created_at\":[null,\"2030-01-15T09:00:01.750000Z\"],\"created_by\":[null,\"key:configured\"],\"enabled\":[null,true],\"id\":[null,\"01b924cd-2556-70d2-8879-a91b1c670ea9\"],\"name\":[null,\"paused\"],\"namespace\":[null,\"native\"],\"next_run_at\":[null,\"2030-01-16T02:00:00Z\"],\"next_slot\":[null,\"2030-01-16T02:00:00Z\"],\"owner\":[null,{\"type\":\"system\",\"id\":\"default\"}],\"policy\":[null,{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":3,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}],\"target\":[null,{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\"}],\"trigger\":[null,{\"kind\":\"cron\",\"expression\":\"0 9 * * *\",\"timezone\":\"Asia/Bangkok\"}]}','','127.0.0.1',1,'9340db9f261a3f5dd176a7e2f8a0929ae8eb5dee6ca9f639a69a6b05ae4fb1a2','71c97683a571f89890156ffb9ff04b4b64006bdcfd0ba3957d1b0c9814ff80a8'),
(13,1894698001750000,'key:configured','native','create','schedule','01b924cd-2556-7fdb-840d-8f17972651da','system:default','{\"created_at\":[null,\"2030-01-15T09:00:01.750000Z\"],\"created_by\":[null,\"key:configured\"],\"enabled\":[null,true],\"id\":[null,\"01b924cd-2556-7fdb-840d-8f17972651da\"],\"name\":[null,\"moved\"],\"namespace\":[null,\"native\"],\"next_run_at\":[null,\"2030-01-16T02:00:00Z\"],\"next_slot\":[null,\"2030-01-16T02:00:00Z\"],\"owner\":[null,{\"type\":\"system\",\"id\":\"default\"}],\"policy\":[null,{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":3,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}],\"target\":[null,{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\"}],\"trigger\":[null,{\"kind\":\"cron\",\"expression\":\"0 9 * * *\",\"timezone\":\"Asia/Bangkok\"}]}','','127.0.0.1',1,'71c97683a571f89890156ffb9ff04b4b64006bdcfd0ba3957d1b0c9814ff80a8','585695dd434bb50e330dc09e6d796a474901528416330c471416fccc44d794b0'),
(14,1894698001750000,'key:configured','native','create','schedule','01b924cd-2556-7ca2-b8c8-eecabf00188d','system:default','{\"created_at\":[null,\"2030-01-15T09:00:01.750000Z\"],\"created_by\":[null,\"key:configured\"],\"enabled\":[null,true],\"id\":[null,\"01b924cd-2556-7ca2-b8c8-eecabf00188d\"],\"name\":[null,\"rescheduled\"],\"namespace\":[null,\"native\"],\"next_run_at\":[null,\"2030-01-16T02:00:00Z\"],\"next_slot\":[null,\"2030-01-16T02:00:00Z\"],\"owner\":[null,{\"type\":\"system\",\"id\":\"default\"}],\"policy\":[null,{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":3,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}],\"target\":[null,{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\"}],\"trigger\":[null,{\"kind\":\"cron\",\"expression\":\"0 9 * * *\",\"timezone\":\"Asia/Bangkok\"}]}','','127.0.0.1',1,'585695dd434bb50e330dc09e6d796a474901528416330c471416fccc44d794b0','dc90e1467fe9ae1c11d28595ac1d997f772f0849597017c480069e8ff917cc84'),
(15,1894698001750000,'key:configured','native','create','schedule','01b924cd-2556-7347-8e5a-f2e3ac9abb0c','system:default','{\"created_at\":[null,\"2030-01-15T09:00:01.750000Z\"],\"created_by\":[null,\"key:configured\"],\"enabled\":[null,true],\"id\":[null,\"01b924cd-2556-7347-8e5a-f2e3ac9abb0c\"],\"name\":[null,\"skipped\"],\"namespace\":[null,\"native\"],\"next_run_at\":[null,\"2030-01-16T02:00:00Z\"],\"next_slot\":[null,\"2030-01-16T02:00:00Z\"],\"owner\":[null,{\"type\":\"system\",\"id\":\"default\"}],\"policy\":[null,{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":3,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}],\"target\":[null,{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\"}],\"trigger\":[null,{\"kind\":\"cron\",\"expression\":\"0 9 * * *\",\"timezone\":\"Asia/Bangkok\"}]}','','127.0.0.1',1,'dc90e1467fe9ae1c11d28595ac1d997f772f0849597017c480069e8ff917cc84','726ff931b9932dfe6042ae03dfee95d928d60ab3433c6c7a30c5cfbaf6a8cf62'),
(16,1894698001750000,'key:configured','native','create','schedule','01b924cd-2556-7e3b-b171-f4611674518d','system:default','{\"created_at\":[null,\"2030-01-15T09:00:01.750000Z\"],\"created_by\":[null,\"key:configured\"],\"enabled\":[null,true],\"id\":[null,\"01b924cd-2556-7e3b-b171-f4611674518d\"],\"name\":[null,\"deleted\"],\"namespace\":[null,\"native\"],\"next_run_at\":[null,\"2030-01-16T02:00:00Z\"],\"next_slot\":[null,\"2030-01-16T02:00:00Z\"],\"owner\":[null,{\"type\":\"system\",\"id\":\"default\"}],\"policy\":[null,{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":3,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}],\"target\":[null,{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\"}],\"trigger\":[null,{\"kind\":\"cron\",\"expression\":\"0 9 * * *\",\"timezone\":\"Asia/Bangkok\"}]}','','127.0.0.1',1,'726ff931b9932dfe6042ae03dfee95d928d60ab3433c6c7a30c5cfbaf6a8cf62','15f3edd98bb12c0df8bfcc5144118661f118ac6d44dbaebe8f336787263b3d39'),
(17,1894698001750000,'key:configured','native','create','schedule','01b924cd-2556-7658-95dd-c0e747fbb3b4','system:default','{\"created_at\":[null,\"2030-01-15T09:00:01.750000Z\"],\"created_by\":[null,\"key:configured\"],\"enabled\":[null,true],\"id\":[null,\"01b924cd-2556-7658-95dd-c0e747fbb3b4\"],\"name\":[null,\"edited\"],\"namespace\":[null,\"native\"],\"next_run_at\":[null,\"2030-01-16T02:00:00Z\"],\"next_slot\":[null,\"2030-01-16T02:00:00Z\"],\"owner\":[null,{\"type\":\"system\",\"id\":\"default\"}],\"policy\":[null,{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":3,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}],\"target\":[null,{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\"}],\"trigger\":[null,{\"kind\":\"cron\",\"expression\":\"0 9 * * *\",\"timezone\":\"Asia/Bangkok\"}]}','','127.0.0.1',1,'15f3edd98bb12c0df8bfcc5144118661f118ac6d44dbaebe8f336787263b3d39','79a7024b06a4dd94e9ea5d8482d695b3dd8918ce9a85da7e3cf4a1945d6e2341'),
(18,1894698001750000,'key:configured','native','pause','schedule','01b924cd-2556-70d2-8879-a91b1c670ea9','system:default','{\"enabled\":[true,false],\"next_run_at\":[\"2030-01-16T02:00:00Z\",null],\"next_slot\":[\"2030-01-16T02:00:00Z\",null],\"pause_note\":[null,\"lunch\"],\"pause_until\":[null,\"2030-01-16T00:00:00Z\"]}','lunch','127.0.0.1',1,'79a7024b06a4dd94e9ea5d8482d695b3dd8918ce9a85da7e3cf4a1945d6e2341','3c1194dcaa2b841756c8879e156c0bc7c74edcfeb8388cc3af5834f87dd43c71'),
(19,1894698001750000,'key:configured','native','move','schedule','01b924cd-2556-7fdb-840d-8f17972651da','system:default','{\"next_run_at\":[\"2030-01-16T02:00:00Z\",\"2030-01-15T12:34:56Z\"]}','','127.0.0.1',1,'3c1194dcaa2b841756c8879e156c0bc7c74edcfeb8388cc3af5834f87dd43c71','82fb52107d52737fe12dbf20b0f1ec374f6de9dc01df59d2f849f2e6ab7b68de'),
(20,1894698001750000,'key:configured','native','reschedule','schedule','01b924cd-2556-7ca2-b8c8-eecabf00188d','system:default','{\"next_run_at\":[\"2030-01-16T02:00:00Z\",\"2030-01-17T01:02:03.456789Z\"],\"next_slot\":[\"2030-01-16T02:00:00Z\",\"2030-01-17T01:02:03.456789Z\"]}','','127.0.0.1',1,'82fb52107d52737fe12dbf20b0f1ec374f6de9dc01df59d2f849f2e6ab7b68de','1bc84c1f3db0fddf9714dce075c98249dde95d47b25dab95370abcb4d232848b'),
(21,1894698001750000,'key:configured','native','skip','schedule','01b924cd-2556-7347-8e5a-f2e3ac9abb0c','system:default','{\"next_run_at\":[\"2030-01-16T02:00:00Z\",\"2030-01-17T02:00:00Z\"],\"next_slot\":[\"2030-01-16T02:00:00Z\",\"2030-01-17T02:00:00Z\"]}','holiday','127.0.0.1',1,'1bc84c1f3db0fddf9714dce075c98249dde95d47b25dab95370abcb4d232848b','33be84c163b1fc0ee6f4812b4f9161e25e5665d8325cff8205537f8fe672329d'),
(22,1894698001750000,'key:configured','native','update','schedule','01b924cd-2556-7658-95dd-c0e747fbb3b4','system:default','{\"name\":[\"edited\",\"edited twice\"],\"priority\":[null,3]}','','127.0.0.1',1,'33be84c163b1fc0ee6f4812b4f9161e25e5665d8325cff8205537f8fe672329d','0e5539feb9dfffbfa3b39874a509cd92fb6a5676d09c3ac7994a949a6c4bb945'),
(23,1894698001750000,'key:configured','native','run','schedule','01b924cd-2556-7658-95dd-c0e747fbb3b4','system:default','{\"run_id\":\"01b924cd-2556-7e80-872b-c41ed9c98c23\"}','','127.0.0.1',1,'0e5539feb9dfffbfa3b39874a509cd92fb6a5676d09c3ac7994a949a6c4bb945','1508ae258a1ab825a1ae96008754d7254deaf92191e9acb1a563da0d297879ee'),
(24,1894698001750000,'key:configured','native','run','schedule','01b924cd-2556-7ba6-8ad7-aea861076dc3','system:default','{\"run_id\":\"2c1f8d68-d265-503e-a58e-815d23d36aa6\"}','','127.0.0.1',1,'1508ae258a1ab825a1ae96008754d7254deaf92191e9acb1a563da0d297879ee','d82b71c6e2494133d42a7954ce8f604b63b3584feba5c164a8be786157bbb10d'),
(25,1894698001750000,'key:configured','native','run','schedule','01b924cd-2556-7558-bbed-beff8de4ab47','system:default','{\"run_id\":\"01b924cd-2556-733f-8087-35bf548914ef\"}','','127.0.0.1',1,'d82b71c6e2494133d42a7954ce8f604b63b3584feba5c164a8be786157bbb10d','78a406b37493a116c5ac3f96f448c0674ecebc622c58448215fbe6d7f59a224d'),
(26,1894698001750000,'key:configured','native','run','schedule','01b924cd-2556-7e3b-b171-f4611674518d','system:default','{\"run_id\":\"01b924cd-2556-78a2-811e-24d9eaeb999b\"}','','127.0.0.1',1,'78a406b37493a116c5ac3f96f448c0674ecebc622c58448215fbe6d7f59a224d','16ea0a2a82d7c470de694434b967dbd36a3fc9b884bad9a1215aa762974510bc'),
(27,1894698001750000,'key:configured','native','delete','schedule','01b924cd-2556-7e3b-b171-f4611674518d','system:default','{\"deleted_at\":[null,\"2030-01-15T09:00:01.750000Z\"],\"enabled\":[true,false],\"next_run_at\":[\"2030-01-16T02:00:00Z\",null],\"next_slot\":[\"2030-01-16T02:00:00Z\",null]}','','127.0.0.1',1,'16ea0a2a82d7c470de694434b967dbd36a3fc9b884bad9a1215aa762974510bc','f0a91340cfd90b626c6b74546df4762d397c232bab636887fcfdff41601b65fa'),
(28,1894698001750000,'key:configured','native','start','run','01b924cd-2556-732b-8467-8cce6b8c290d','system:default','{\"target\":{\"kind\":\"task\",\"name\":\"reports.nightly\",\"args\":{\"x\":[1,null]}}}','','127.0.0.1',1,'f0a91340cfd90b626c6b74546df4762d397c232bab636887fcfdff41601b65fa','641939da770c7331b9ca1007f82287cd5afad7359b1e17c1b8eabfd57fc9fc2b'),
(29,1894698001750000,'key:configured','native','save_filter','owner','system:default','system:default','{\"name\":\"bad ones\",\"filter\":\"status:failed\"}','','127.0.0.1',1,'641939da770c7331b9ca1007f82287cd5afad7359b1e17c1b8eabfd57fc9fc2b','9fa09a65989b073e7325ca4fbc5e55a86285fe6a1d7214dfa7e0c98b15fb81b7'),
(30,1894698001750000,'key:configured','native','create_user','user','anna','user:anna','{\"role\":\"member\"}','','127.0.0.1',1,'9fa09a65989b073e7325ca4fbc5e55a86285fe6a1d7214dfa7e0c98b15fb81b7','c08c7b853f2ba49c5628c0b0fe13cea806d47a800ab6443460feabcf24fd0657'),
(31,1894698001750000,'key:configured','native','create_key','key','cdr9jrchzpk6','system:default','{\"name\":\"ci\",\"role\":\"member\"}','','127.0.0.1',1,'c08c7b853f2ba49c5628c0b0fe13cea806d47a800ab6443460feabcf24fd0657','0b1bbbb03636012e644db7e65ae34abcc81752783f3fad6f1bc26add4836f27d')
--
/*M!999999\- enable the sandbox mode */ 
INSERT INTO `audit_head` VALUES
(1,31,'0b1bbbb03636012e644db7e65ae34abcc81752783f3fad6f1bc26add4836f27d')
--
/*M!999999\- enable the sandbox mode */ 
INSERT INTO `buckets` VALUES
('requests:key:configured',1999745,1894698011750000,128,1894698013750000)
--
/*M!999999\- enable the sandbox mode */ 
INSERT INTO `chimes_version` VALUES
('0009')
--
/*M!999999\- enable the sandbox mode */ 
INSERT INTO `concurrency_keys` VALUES
('k'),
('shared key'),
('some key'),
('sync:crm#deals.eu')
--
/*M!999999\- enable the sandbox mode */ 
INSERT INTO `deliveries` VALUES
('17ae27a3-4f2a-50ed-8762-7bccf300c624','run-00014',NULL,'','system','default','inbox','{\"channel\":\"inbox\",\"on\":[\"always\"]}','success','delivered',1,1,0,1894698001750000,1894698061750000,1894698001750000,'','',''),
('23623611-4b4f-5644-85d5-c59a63038787','run-00016',NULL,'','system','default','telegram','{\"channel\":\"telegram\",\"to\":\"-100200300\",\"on\":[\"success\"],\"language\":\"th\"}','success','pending',0,0,0,1894698001750000,1894698001750000,NULL,'','',''),
('41a5bb38-eae0-5c1f-9ca7-19f105ad677a','run-00015',NULL,'','system','default','inbox','{\"channel\":\"inbox\",\"on\":[\"always\"]}','success','pending',1,1,0,1894698001750000,1894698061750000,NULL,'busy','',''),
('6d050eaa-5e25-590a-b11b-066ed408115e','run-00016',NULL,'','system','default','inbox','{\"channel\":\"inbox\",\"on\":[\"always\"]}','success','pending',1,1,0,1894698001750000,1894698061750000,NULL,'','',''),
('dd9169a9-4b6a-5445-bb9c-7c4ddf9a8885','run-00015',NULL,'','system','default','telegram','{\"channel\":\"telegram\",\"to\":\"-100200300\",\"on\":[\"success\"],\"language\":\"th\"}','success','pending',0,0,0,1894698001750000,1894698001750000,NULL,'','',''),
('e8e01f99-c5bc-5ebf-958a-20e75feb55d9','run-00014',NULL,'','system','default','telegram','{\"channel\":\"telegram\",\"to\":\"-100200300\",\"on\":[\"success\"],\"language\":\"th\"}','success','pending',0,0,0,1894698001750000,1894698001750000,NULL,'','',''),
('full-delivery','full-run','full','ทดสอบ 测试 🔔 %_\'\"\\','chat','-100200300','webhook','{\"channel\":\"webhook\",\"to\":\"https://example.com/ü?q=%20\",\"on\":[\"failure\",\"recovery\"],\"language\":\"zh\",\"signing_secrets\":[\"whsec_b25l\",\"whsec_dHdv\"],\"late_after\":300000001,\"quiet\":{\"start\":\"22:00\",\"end\":\"07:30\",\"zone\":\"Asia/Bangkok\",\"but\":[\"failure\",\"late\"]},\"digest\":{\"every\":\"weekly\",\"at\":\"09:15\",\"weekday\":4,\"zone\":\"America/New_York\",\"but\":[\"failure\"]}}','recovery','dead',8,9,2,1894694400000000,1894697999999997,1894697999999999,'403 Forbidden: 水','blocked','message 17')
--
/*M!999999\- enable the sandbox mode */ 
INSERT INTO `fire_batches` VALUES
(7760683013120000983,'node-1',1894698001250000,1894698001250000,0)
--
/*M!999999\- enable the sandbox mode */
--
/*M!999999\- enable the sandbox mode */ 
INSERT INTO `inbox` VALUES
('full-item','user','bob','full-run','full','น้ำ 水','สรุปข่าว 新闻 🔔','# A heading\n\n* one\n* <script>two</script>\n','succeeded','[{\"name\":\"chart.png\",\"url\":\"https://example.com/a?b=%20\"},{\"name\":\"น้ำ.csv\",\"url\":\"https://example.com/c\"}]',1894694400000000,1894697940000000,1,1894697999000000,1894701600000000),
('item-00017','user','alice',NULL,NULL,'','message 17','','','[]',1894698000000000,NULL,0,NULL,NULL)
--
/*M!999999\- enable the sandbox mode */ 
INSERT INTO `kept_states` VALUES
('by hand','[]',1894698001750000,''),
('dashboard:users','{\"anna\":{\"password\":\"$argon2id$v=19$m=19456,t=2,p=1$Nzc3Nzc3Nzc3Nzc3Nzc3Nw$FwXRRwzN/vJLaELfZdfI7Wn00dE3HMWO2rwu7eU3Uvs\",\"role\":\"member\",\"created_at\":\"2030-01-15T09:00:01.750000+00:00\",\"created_by\":\"key:configured\"}}',1894698001750000,''),
('filters:system:default','{\"runs\":{\"bad ones\":\"status:failed\"}}',1894698001750000,''),
('session:aa','{\"who\": \"anna\"}',1894698011750000,''),
('sync:crm#deals.eu','{\"cursor\": \"น้ำ 水\"}',1894698001750000,'run-00008')
--
/*M!999999\- enable the sandbox mode */
--
/*M!999999\- enable the sandbox mode */ 
INSERT INTO `node_marks` VALUES
(1894698000000000,'node-1',1,'0.1.0'),
(1894698001750000,'node-2',1,'0.1.0'),
(1894698006750000,'node-3',1,'0.1.0'),
(1894698007750000,'node-3',0,'0.1.0')
--
/*M!999999\- enable the sandbox mode */ 
INSERT INTO `nodes` VALUES
('node-1','0.1.0','[\"scheduler\",\"worker\"]',10,1894698000000000,1894698000000000,1894698030000000,0,'{}',0,''),
('node-2','0.1.0','[\"scheduler\",\"worker\"]',10,1894698001750000,1894698001750000,1894698031750000,0,'{\"action\":null,\"flow:pipeline-2\":null,\"http\":null,\"sync:crm\":null,\"task:reports.nightly\":null}',0,'')
--
/*M!999999\- enable the sandbox mode */ 
INSERT INTO `requests` VALUES
('system:default POST /api/v1/schedules/01b924cd-2556-7ba6-8ad7-aea861076dc3/run','first','74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b 2030-01-15T09:00:01.750000Z',202,'{\"id\":\"2c1f8d68-d265-503e-a58e-815d23d36aa6\",\"schedule_id\":\"01b924cd-2556-7ba6-8ad7-aea861076dc3\",\"schedule_name\":\"task\",\"namespace\":\"native\",\"owner\":{\"type\":\"system\",\"id\":\"default\"},\"slot\":null,\"origin\":\"manual\",\"status\":\"queued\",\"attempt\":0,\"fence\":0,\"priority\":0,\"planned_at\":\"2030-01-15T09:00:01.750000Z\",\"created_at\":\"2030-01-15T09:00:01.750000Z\",\"available_at\":\"2030-01-15T09:00:01.750000Z\",\"claimed_at\":null,\"started_at\":null,\"finished_at\":null,\"duration_ms\":null,\"lag_ms\":null,\"node\":null,\"blocked\":false,\"cancel_requested\":false,\"result\":null,\"error\":\"\",\"reason\":\"\",\"missed_count\":0,\"missed_until\":null,\"retry_of\":null,\"parent_id\":null,\"step\":\"\",\"target\":{\"kind\":\"task\",\"name\":\"reports.nightly\",\"args\":{\"day\":1}},\"attempts\":[]}','[[\"location\",\"/api/v1/runs/2c1f8d68-d265-503e-a58e-815d23d36aa6\"],[\"content-type\",\"application/json\"],[\"content-language\",\"en\"],[\"vary\",\"X-Language, Accept-Language\"]]',1894784401750000)
--
/*M!999999\- enable the sandbox mode */
--
/*M!999999\- enable the sandbox mode */ 
INSERT INTO `run_logs` VALUES
('lived-plain',1,1894698001750000,'info','hello'),
('lived-plain',2,1894698001750000,'info','สวัสดี'),
('run-00010',1,1894698001250000,'info','one'),
('run-00010',2,1894698001250000,'info','two')
--
/*M!999999\- enable the sandbox mode */
--
/*M!999999\- enable the sandbox mode */ 
INSERT INTO `runs` VALUES
('01b924cd-2556-732b-8467-8cce6b8c290d',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'task','{\"kind\":\"task\",\"name\":\"reports.nightly\",\"args\":{\"x\":[1,null]}}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":300000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,0,0,NULL,1,0,'queued',0,0,NULL,0,0,1894698001750000,1894698001750000,1894698001750000,NULL,NULL,NULL,NULL,'','',0,NULL,'[]','task:reports.nightly',NULL),
('01b924cd-2556-733f-8087-35bf548914ef','01b924cd-2556-7558-bbed-beff8de4ab47','every',1,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":3,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,0,0,'schedule:01b924cd-2556-7558-bbed-beff8de4ab47',1,0,'queued',0,0,NULL,0,0,1894698001750000,1894698001750000,1894698001750000,NULL,NULL,NULL,NULL,'','',0,NULL,'[]','http',NULL),
('01b924cd-2556-78a2-811e-24d9eaeb999b','01b924cd-2556-7e3b-b171-f4611674518d','deleted',1,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":3,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,0,0,'schedule:01b924cd-2556-7e3b-b171-f4611674518d',1,0,'canceled',0,0,NULL,0,0,1894698001750000,1894698001750000,1894698001750000,NULL,NULL,1894698001750000,NULL,'','schedule_deleted',0,NULL,'[]','http',NULL),
('01b924cd-2556-7e80-872b-c41ed9c98c23','01b924cd-2556-7658-95dd-c0e747fbb3b4','edited twice',2,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":3,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',3,0,6,'schedule:01b924cd-2556-7658-95dd-c0e747fbb3b4',1,0,'queued',0,0,NULL,0,0,1894698001750000,1894698001750000,1894698001750000,NULL,NULL,NULL,NULL,'','',0,NULL,'[]','http',NULL),
('0282fcad-f223-550b-9405-020048ec5e23','01b924cd-2556-7347-8e5a-f2e3ac9abb0c','skipped',1,'native','system','default',1894759200000000,'schedule',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":3,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,0,0,'schedule:01b924cd-2556-7347-8e5a-f2e3ac9abb0c',1,0,'skipped',0,0,NULL,0,0,1894698001750000,1894759200000000,1894759200000000,NULL,NULL,1894698001750000,NULL,'','skipped_by_hand',0,NULL,'[]','http',NULL),
('2c1f8d68-d265-503e-a58e-815d23d36aa6','01b924cd-2556-7ba6-8ad7-aea861076dc3','task',1,'native','system','default',NULL,'manual',NULL,'',NULL,'task','{\"kind\":\"task\",\"name\":\"reports.nightly\",\"args\":{\"day\":1}}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":300000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,0,0,'schedule:01b924cd-2556-7ba6-8ad7-aea861076dc3',1,0,'queued',0,0,NULL,0,0,1894698001750000,1894698001750000,1894698001750000,NULL,NULL,NULL,NULL,'','',0,NULL,'[]','task:reports.nightly',NULL),
('95ee8c6f-427d-5e16-ac34-70b75edbdde9','schedule-00003','schedule 3',1,'native','system','default',1894698000000000,'schedule',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,0,0,'schedule:schedule-00003',1,0,'queued',0,0,NULL,0,0,1894698001250000,1894698000500000,1894698000500000,NULL,NULL,NULL,NULL,'','',0,NULL,'[]','http',7760683013120000983),
('ended-canceled','daily','daily',1,'native','system','default',1894683601750000,'schedule',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,0,0,'schedule:daily',1,0,'canceled',0,0,NULL,0,0,1894683601750000,1894683601750000,1894683601750000,NULL,NULL,1894683661750000,NULL,'it canceled','',0,NULL,'[]','http',NULL),
('ended-failed','daily','daily',1,'native','system','default',1894690801750000,'schedule',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,0,0,'schedule:daily',1,0,'failed',0,0,NULL,0,0,1894690801750000,1894690801750000,1894690801750000,NULL,NULL,1894690861750000,NULL,'it failed','',0,NULL,'[]','http',NULL),
('ended-missed','daily','daily',1,'native','system','default',1894676401750000,'schedule',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,0,0,'schedule:daily',1,0,'missed',0,0,NULL,0,0,1894676401750000,1894676401750000,1894676401750000,NULL,NULL,1894676461750000,NULL,'it missed','',4,1894676461750000,'[]','http',NULL),
('ended-skipped','daily','daily',1,'native','system','default',1894680001750000,'schedule',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,0,0,'schedule:daily',1,0,'skipped',0,0,NULL,0,0,1894680001750000,1894680001750000,1894680001750000,NULL,NULL,1894680061750000,NULL,'it skipped','overlap',0,NULL,'[]','http',NULL),
('ended-succeeded','daily','daily',1,'native','system','default',1894694401750000,'schedule',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,0,0,'schedule:daily',1,0,'succeeded',0,0,NULL,0,0,1894694401750000,1894694401750000,1894694401750000,NULL,NULL,1894694461750000,NULL,'','',0,NULL,'[]','http',NULL),
('ended-timeout','daily','daily',1,'native','system','default',1894687201750000,'schedule',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,0,0,'schedule:daily',1,0,'timeout',0,0,NULL,0,0,1894687201750000,1894687201750000,1894687201750000,NULL,NULL,1894687261750000,NULL,'it timeout','',0,NULL,'[]','http',NULL),
('ended-unknown','daily','daily',1,'native','system','default',1894672801750000,'schedule',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,0,0,'schedule:daily',1,0,'unknown',0,0,NULL,0,0,1894672801750000,1894672801750000,1894672801750000,NULL,NULL,1894672861750000,NULL,'it unknown','',0,NULL,'[]','http',NULL),
('flow',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'flow','{\"kind\":\"flow\",\"name\":\"pipeline-2\",\"input\":{\"text\":\"น้ำ 水 🔔 %_\'\\\"\\\\ \\n\\t\",\"\":\"empty name\",\"dotted.key\":[],\"empty\":{},\"nothing\":null,\"true\":true,\"false\":false,\"zero\":0,\"large\":9223372036854775808,\"small\":-1099511627776,\"fraction\":0.1,\"tiny\":5e-324,\"huge\":1e+23,\"nested\":{\"list\":[1,2.5,null,true,\"x\",{\"deep\":[[]]}]}}}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',60,0,120,NULL,1,0,'running',1,1,'node-1',0,0,1894698000000000,1894698000000000,1894698000000000,1894698011750000,1894698011750000,NULL,NULL,'','',0,NULL,'[]','flow:pipeline-2',NULL),
('full-run','full','ทดสอบ 测试 🔔 %_\'\"\\',17,'ksana','user','alice',1894697939999997,'child','parent','step two','earlier','http','{\"kind\":\"http\",\"url\":\"https://example.com/ü?q=%20\",\"method\":\"PATCH\",\"headers\":{\"X-One\":\"1\",\"X-Two\":\"ä\"},\"body\":\"{\\\"text\\\": \\\"ก \\\\n\\\"}\",\"expected_status\":[200,204],\"signing_secrets\":[\"whsec_b25l\",\"whsec_dHdv\"],\"verify_tls\":false}','{\"misfire\":\"all\",\"misfire_grace\":1000001,\"catch_up_limit\":7,\"overlap\":\"queue\",\"max_concurrent_runs\":3,\"burst_allowed\":true,\"max_retries\":9,\"retry_backoff\":1500000,\"backoff\":\"exponential\",\"backoff_cap\":172800000000,\"timeout\":3000000,\"on_lost\":\"stop\",\"pause_on_gone\":false,\"concurrency_key\":\"shared 🔔\",\"delivery\":[{\"channel\":\"inbox\",\"on\":[\"always\"]},{\"channel\":\"webhook\",\"to\":\"https://example.com/ü?q=%20\",\"on\":[\"failure\",\"recovery\"],\"language\":\"zh\",\"signing_secrets\":[\"whsec_b25l\",\"whsec_dHdv\"],\"late_after\":300000001,\"quiet\":{\"start\":\"22:00\",\"end\":\"07:30\",\"zone\":\"Asia/Bangkok\",\"but\":[\"failure\",\"late\"]},\"digest\":{\"every\":\"weekly\",\"at\":\"09:15\",\"weekday\":4,\"zone\":\"America/New_York\",\"but\":[\"failure\"]}}]}',-5,1,-11,'some key',4,1,'unknown',2,3,NULL,1,1,1894694400000000,1894697940000000,1894697998000000,1894697999000000,1894697940000000,1894698011750000,'{\"status\":500,\"headers\":{\"a\":\"b\"},\"ok\":false,\"none\":null,\"list\":[1,\"2\"]}','the node that held this run stopped beating','lost_after_start',3,1894697999000000,'[{\"number\":1,\"fence\":2,\"node\":\"node-x\",\"started_at\":\"2030-01-15T08:59:00Z\",\"finished_at\":\"2030-01-15T08:59:59Z\",\"end\":\"lost\",\"error\":\"gone\"},{\"number\":2,\"fence\":3,\"node\":\"node-x\",\"started_at\":\"2030-01-15T08:59:00Z\",\"finished_at\":\"2030-01-15T08:59:59Z\",\"end\":\"timeout\",\"error\":\"gone\"},{\"number\":2,\"fence\":3,\"node\":\"node-y\",\"started_at\":\"2030-01-15T08:59:59Z\",\"finished_at\":\"2030-01-15T09:00:11.750000Z\",\"end\":\"lost\",\"error\":\"the node that held this run stopped beating\"}]','http',NULL),
('later',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,0,0,NULL,1,0,'queued',0,0,NULL,0,0,1894698000000000,1894698000000000,1894701611750000,NULL,NULL,NULL,NULL,'','',0,NULL,'[]','http',NULL),
('lived-again','daily','daily',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',50,0,100,NULL,1,0,'succeeded',2,2,NULL,0,0,1894698000000000,1894698000000000,1894698005750000,1894698006750000,1894698003750000,1894698006750000,'{\"status\":200,\"body\":\"ok\"}','','',0,NULL,'[{\"number\":1,\"fence\":1,\"node\":\"node-1\",\"started_at\":\"2030-01-15T09:00:03.750000Z\",\"finished_at\":\"2030-01-15T09:00:04.750000Z\",\"end\":\"failed\",\"error\":\"it ended as failed\"},{\"number\":2,\"fence\":2,\"node\":\"node-2\",\"started_at\":\"2030-01-15T09:00:06.750000Z\",\"finished_at\":\"2030-01-15T09:00:06.750000Z\",\"end\":\"succeeded\"}]','http',NULL),
('lived-lost','daily','daily',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',50,0,100,NULL,1,0,'running',2,2,'node-2',0,0,1894698000000000,1894698000000000,1894698011750000,1894698011750000,1894698006750000,NULL,NULL,'','',0,NULL,'[{\"number\":1,\"fence\":1,\"node\":\"node-3\",\"started_at\":\"2030-01-15T09:00:06.750000Z\",\"finished_at\":\"2030-01-15T09:00:11.750000Z\",\"end\":\"lost\",\"error\":\"the node that held this run stopped beating\"}]','http',NULL),
('lived-plain','daily','daily',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',50,0,100,NULL,1,0,'succeeded',1,1,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,1894698001750000,1894698001750000,1894698003750000,'{\"status\":200,\"body\":\"ok\"}','','',0,NULL,'[{\"number\":1,\"fence\":1,\"node\":\"node-1\",\"started_at\":\"2030-01-15T09:00:01.750000Z\",\"finished_at\":\"2030-01-15T09:00:03.750000Z\",\"end\":\"succeeded\"}]','http',NULL),
('orphan','elsewhere','elsewhere',0,'native','system','default',1894698001750000,'manual',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,0,0,'schedule:elsewhere',1,0,'failed',0,0,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,NULL,NULL,1894698001750000,NULL,'','',0,NULL,'[]','http',NULL),
('own-0','queueing','queueing',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"queue\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',40,0,80,'schedule:queueing',1,0,'running',1,1,'node-1',0,0,1894698000000000,1894698000000000,1894698000000000,1894698011750000,1894698011750000,NULL,NULL,'','',0,NULL,'[]','http',NULL),
('own-1','queueing','queueing',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"queue\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',40,0,80,'schedule:queueing',1,1,'queued',0,0,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,NULL,NULL,NULL,NULL,'','',0,NULL,'[]','http',NULL),
('own-2','queueing','queueing',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"queue\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',40,0,80,'schedule:queueing',1,1,'queued',0,0,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,NULL,NULL,NULL,NULL,'','',0,NULL,'[]','http',NULL),
('retrying',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',38,0,76,NULL,1,0,'queued',0,0,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,NULL,NULL,NULL,NULL,'','',0,NULL,'[]','http',NULL),
('run-00006',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,0,0,NULL,1,0,'running',1,1,'node-1',0,0,1894698000000000,1894698000000000,1894698000000000,1894698001250000,1894698001250000,NULL,NULL,'','',0,NULL,'[]','http',NULL),
('run-00007',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',1,0,2,NULL,1,0,'running',1,1,'node-1',0,0,1894698000000000,1894698000000000,1894698000000000,1894698001250000,1894698001250000,NULL,NULL,'','',0,NULL,'[]','http',NULL),
('run-00008',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',2,0,4,NULL,1,0,'running',1,1,'node-1',1,1,1894698000000000,1894698000000000,1894698000000000,1894698001250000,1894698001250000,NULL,NULL,'','canceled_by_hand',0,NULL,'[]','http',NULL),
('run-00009',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',3,0,6,NULL,1,0,'queued',1,1,NULL,0,0,1894698000000000,1894698000000000,1894698061750000,1894698001250000,1894698001250000,NULL,NULL,'it ended as failed','',0,NULL,'[{\"number\":1,\"fence\":1,\"node\":\"node-1\",\"started_at\":\"2030-01-15T09:00:01.250000Z\",\"finished_at\":\"2030-01-15T09:00:01.750000Z\",\"end\":\"failed\",\"error\":\"it ended as failed\"}]','http',NULL),
('run-00010',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',4,0,8,NULL,1,0,'timeout',1,1,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,1894698001250000,1894698001250000,1894698001750000,NULL,'it ended as timeout','',0,NULL,'[{\"number\":1,\"fence\":1,\"node\":\"node-1\",\"started_at\":\"2030-01-15T09:00:01.250000Z\",\"finished_at\":\"2030-01-15T09:00:01.750000Z\",\"end\":\"timeout\",\"error\":\"it ended as timeout\"}]','http',NULL),
('run-00011',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,0,0,'k',1,0,'queued',0,0,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,NULL,NULL,NULL,NULL,'','',0,NULL,'[]','http',NULL),
('run-00012',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,0,0,'k',1,1,'queued',0,0,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,NULL,NULL,NULL,NULL,'','',0,NULL,'[]','http',NULL),
('run-00013',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'sync','{\"kind\":\"sync\",\"source\":\"crm\",\"collection\":\"deals.eu\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,0,0,'sync:crm#deals.eu',1,0,'queued',0,0,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,NULL,NULL,NULL,NULL,'','',0,NULL,'[]','sync:crm',NULL),
('run-00014',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true,\"delivery\":[{\"channel\":\"inbox\",\"on\":[\"always\"]},{\"channel\":\"telegram\",\"to\":\"-100200300\",\"on\":[\"success\"],\"language\":\"th\"}]}',0,0,0,NULL,1,0,'succeeded',0,0,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,NULL,NULL,1894698001750000,NULL,'','',0,NULL,'[]','http',NULL),
('run-00015',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true,\"delivery\":[{\"channel\":\"inbox\",\"on\":[\"always\"]},{\"channel\":\"telegram\",\"to\":\"-100200300\",\"on\":[\"success\"],\"language\":\"th\"}]}',0,0,0,NULL,1,0,'succeeded',0,0,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,NULL,NULL,1894698001750000,NULL,'','',0,NULL,'[]','http',NULL),
('run-00016',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true,\"delivery\":[{\"channel\":\"inbox\",\"on\":[\"always\"]},{\"channel\":\"telegram\",\"to\":\"-100200300\",\"on\":[\"success\"],\"language\":\"th\"}]}',0,0,0,NULL,1,0,'succeeded',0,0,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,NULL,NULL,1894698001750000,NULL,'','',0,NULL,'[]','http',NULL),
('shared-0',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',39,0,78,'shared key',2,0,'running',1,1,'node-1',0,0,1894698000000000,1894698000000000,1894698000000000,1894698011750000,1894698011750000,NULL,NULL,'','',0,NULL,'[]','http',NULL),
('shared-1',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',39,0,78,'shared key',2,0,'queued',1,1,NULL,0,0,1894698000000000,1894698000000000,1894701611750000,1894698011750000,1894698011750000,NULL,NULL,'it ended as failed','',0,NULL,'[{\"number\":1,\"fence\":1,\"node\":\"node-1\",\"started_at\":\"2030-01-15T09:00:11.750000Z\",\"finished_at\":\"2030-01-15T09:00:11.750000Z\",\"end\":\"failed\",\"error\":\"it ended as failed\"}]','http',NULL),
('shared-2',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',39,0,78,'shared key',2,1,'queued',0,0,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,NULL,NULL,NULL,NULL,'','',0,NULL,'[]','http',NULL),
('shared-3',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',39,0,78,'shared key',2,1,'queued',0,0,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,NULL,NULL,NULL,NULL,'','',0,NULL,'[]','http',NULL),
('step-1',NULL,'',0,'native','system','default',NULL,'child','flow','step 1',NULL,'task','{\"kind\":\"task\",\"name\":\"reports.nightly\",\"args\":{\"text\":\"น้ำ 水 🔔 %_\'\\\"\\\\ \\n\\t\",\"\":\"empty name\",\"dotted.key\":[],\"empty\":{},\"nothing\":null,\"true\":true,\"false\":false,\"zero\":0,\"large\":9223372036854775808,\"small\":-1099511627776,\"fraction\":0.1,\"tiny\":5e-324,\"huge\":1e+23,\"nested\":{\"list\":[1,2.5,null,true,\"x\",{\"deep\":[[]]}]}}}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',61,0,122,NULL,1,0,'succeeded',1,1,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,1894698011750000,1894698011750000,1894698011750000,'{\"status\":200,\"body\":\"ok\"}','','',0,NULL,'[{\"number\":1,\"fence\":1,\"node\":\"node-2\",\"started_at\":\"2030-01-15T09:00:11.750000Z\",\"finished_at\":\"2030-01-15T09:00:11.750000Z\",\"end\":\"succeeded\"}]','task:reports.nightly',NULL),
('step-2',NULL,'',0,'native','system','default',NULL,'child','flow','step 2',NULL,'task','{\"kind\":\"task\",\"name\":\"reports.nightly\",\"args\":{\"text\":\"น้ำ 水 🔔 %_\'\\\"\\\\ \\n\\t\",\"\":\"empty name\",\"dotted.key\":[],\"empty\":{},\"nothing\":null,\"true\":true,\"false\":false,\"zero\":0,\"large\":9223372036854775808,\"small\":-1099511627776,\"fraction\":0.1,\"tiny\":5e-324,\"huge\":1e+23,\"nested\":{\"list\":[1,2.5,null,true,\"x\",{\"deep\":[[]]}]}}}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',61,0,122,NULL,1,0,'running',1,1,'node-2',1,1,1894698000000000,1894698000000000,1894698000000000,1894698011750000,1894698011750000,NULL,NULL,'','canceled_by_hand',0,NULL,'[]','task:reports.nightly',NULL)
--
/*M!999999\- enable the sandbox mode */ 
INSERT INTO `schedules` VALUES
('01b924cd-2556-70d2-8879-a91b1c670ea9','native','paused','system','default','http','{\"kind\":\"cron\",\"expression\":\"0 9 * * *\",\"timezone\":\"Asia/Bangkok\"}','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":3,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,'{}',0,'lunch',1894752000000000,NULL,'{}',NULL,NULL,NULL,NULL,NULL,NULL,'',NULL,0,NULL,2,1894698001750000,'key:configured',1894698001750000,'key:configured',NULL,'inactive',0),
('01b924cd-2556-7347-8e5a-f2e3ac9abb0c','native','skipped','system','default','http','{\"kind\":\"cron\",\"expression\":\"0 9 * * *\",\"timezone\":\"Asia/Bangkok\"}','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":3,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,'{}',1,'',NULL,NULL,'{}',1894845600000000,1894845600000000,1894759200000000,NULL,NULL,NULL,'',NULL,0,NULL,2,1894698001750000,'key:configured',1894698001750000,'key:configured',NULL,'active',1894845600000),
('01b924cd-2556-7446-8be9-cc81237751aa','native','cron','system','default','http','{\"kind\":\"cron\",\"expression\":\"0 9 * * *\",\"timezone\":\"Asia/Bangkok\"}','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":3,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,'{\"team\":\"ops\"}',1,'',NULL,NULL,'{}',1894759200000000,1894759200000000,NULL,NULL,NULL,NULL,'',NULL,0,NULL,1,1894698001750000,'key:configured',1894698001750000,'key:configured',NULL,'active',1894759200000),
('01b924cd-2556-7558-bbed-beff8de4ab47','native','every','system','default','http','{\"kind\":\"every\",\"every\":\"PT15M\",\"anchor\":\"2030-01-15T09:00:01.750000Z\"}','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":3,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,'{}',1,'',NULL,NULL,'{}',1894698901750000,1894698901750000,NULL,NULL,NULL,NULL,'',NULL,0,NULL,1,1894698001750000,'key:configured',1894698001750000,'key:configured',NULL,'active',1894698901750),
('01b924cd-2556-7569-9dad-9d1480b65386','native','once','system','default','http','{\"kind\":\"once\",\"at\":\"2030-02-01T10:00:00Z\",\"timezone\":\"UTC\"}','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":3,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,'{}',1,'',NULL,NULL,'{}',1896170400000000,1896170400000000,NULL,NULL,NULL,NULL,'',NULL,0,NULL,1,1894698001750000,'key:configured',1894698001750000,'key:configured',NULL,'active',1896170400000),
('01b924cd-2556-7658-95dd-c0e747fbb3b4','native','edited twice','system','default','http','{\"kind\":\"cron\",\"expression\":\"0 9 * * *\",\"timezone\":\"Asia/Bangkok\"}','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":3,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',3,'{}',1,'',NULL,NULL,'{}',1894759200000000,1894759200000000,NULL,NULL,NULL,NULL,'',NULL,0,NULL,2,1894698001750000,'key:configured',1894698001750000,'key:configured',NULL,'active',1894759200000),
('01b924cd-2556-7ba6-8ad7-aea861076dc3','native','task','system','default','task','{\"kind\":\"cron\",\"expression\":\"0 9 * * *\",\"timezone\":\"Asia/Bangkok\"}','{\"kind\":\"task\",\"name\":\"reports.nightly\",\"args\":{\"day\":1}}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":300000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,'{}',1,'',NULL,NULL,'{}',1894759200000000,1894759200000000,NULL,NULL,NULL,NULL,'',NULL,0,NULL,1,1894698001750000,'key:configured',1894698001750000,'key:configured',NULL,'active',1894759200000),
('01b924cd-2556-7ca2-b8c8-eecabf00188d','native','rescheduled','system','default','http','{\"kind\":\"cron\",\"expression\":\"0 9 * * *\",\"timezone\":\"Asia/Bangkok\"}','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":3,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,'{}',1,'',NULL,NULL,'{}',1894842123456789,1894842123456789,NULL,NULL,NULL,NULL,'',NULL,0,NULL,2,1894698001750000,'key:configured',1894698001750000,'key:configured',NULL,'active',1894842123456),
('01b924cd-2556-7e3b-b171-f4611674518d','native','deleted','system','default','http','{\"kind\":\"cron\",\"expression\":\"0 9 * * *\",\"timezone\":\"Asia/Bangkok\"}','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":3,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,'{}',0,'',NULL,NULL,'{}',NULL,NULL,NULL,NULL,NULL,NULL,'',NULL,0,NULL,2,1894698001750000,'key:configured',1894698001750000,'key:configured',1894698001750000,'inactive',0),
('01b924cd-2556-7f38-9b0b-a905b99de255','native','flow','system','default','flow','{\"kind\":\"cron\",\"expression\":\"0 9 * * *\",\"timezone\":\"Asia/Bangkok\"}','{\"kind\":\"flow\",\"name\":\"pipeline-2\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":86400000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,'{}',1,'',NULL,NULL,'{}',1894759200000000,1894759200000000,NULL,NULL,NULL,NULL,'',NULL,0,NULL,1,1894698001750000,'key:configured',1894698001750000,'key:configured',NULL,'active',1894759200000),
('01b924cd-2556-7fdb-840d-8f17972651da','native','moved','system','default','http','{\"kind\":\"cron\",\"expression\":\"0 9 * * *\",\"timezone\":\"Asia/Bangkok\"}','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":3,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,'{}',1,'',NULL,NULL,'{}',1894759200000000,1894710896000000,NULL,NULL,NULL,NULL,'',NULL,0,NULL,2,1894698001750000,'key:configured',1894698001750000,'key:configured',NULL,'active',1894710896000),
('daily','native','daily','system','default','http','{\"kind\":\"every\",\"every\":\"P1D\",\"anchor\":\"2030-01-15T09:00:00Z\"}','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,'{}',1,'',NULL,NULL,'{}',1894784400000000,1894784400000000,NULL,NULL,1894698003750000,'succeeded','',1894698006750000,0,NULL,1,1894698000000000,'',1894698000000000,'',NULL,'active',1894784400000),
('full','ksana','ทดสอบ 测试 🔔 %_\'\"\\','user','alice','http','{\"kind\":\"every\",\"every\":\"PT1M30S\",\"anchor\":\"2030-01-15T09:00:00.000007Z\",\"jitter\":\"PT30S\",\"start_at\":\"2030-01-15T09:00:00Z\",\"end_at\":\"2030-02-21T21:00:00Z\",\"max_runs\":12345,\"exclude\":[{\"dates\":[\"2030-12-25\"]}]}','{\"kind\":\"http\",\"url\":\"https://example.com/ü?q=%20\",\"method\":\"PATCH\",\"headers\":{\"X-One\":\"1\",\"X-Two\":\"ä\"},\"body\":\"{\\\"text\\\": \\\"ก \\\\n\\\"}\",\"expected_status\":[200,204],\"signing_secrets\":[\"whsec_b25l\",\"whsec_dHdv\"],\"verify_tls\":false}','{\"misfire\":\"all\",\"misfire_grace\":1000001,\"catch_up_limit\":7,\"overlap\":\"queue\",\"max_concurrent_runs\":3,\"burst_allowed\":true,\"max_retries\":9,\"retry_backoff\":1500000,\"backoff\":\"exponential\",\"backoff_cap\":172800000000,\"timeout\":3000000,\"on_lost\":\"stop\",\"pause_on_gone\":false,\"concurrency_key\":\"shared 🔔\",\"delivery\":[{\"channel\":\"inbox\",\"on\":[\"always\"]},{\"channel\":\"webhook\",\"to\":\"https://example.com/ü?q=%20\",\"on\":[\"failure\",\"recovery\"],\"language\":\"zh\",\"signing_secrets\":[\"whsec_b25l\",\"whsec_dHdv\"],\"late_after\":300000001,\"quiet\":{\"start\":\"22:00\",\"end\":\"07:30\",\"zone\":\"Asia/Bangkok\",\"but\":[\"failure\",\"late\"]},\"digest\":{\"every\":\"weekly\",\"at\":\"09:15\",\"weekday\":4,\"zone\":\"America/New_York\",\"but\":[\"failure\"]}}]}',-5,'{\"team\":\"ops\",\"bare\":null,\"\":\"empty name\"}',0,'lunch',1894701600000000,'{\"schedule_id\":\"other\",\"within\":300000000}','{\"every\":\"90s\",\"nested\":{\"list\":[1,2.5,null,true,\"x\"]}}',1894698060000007,1894698120000007,1894697940000000,1894697999000000,1894697998000000,'timeout','it took too long',1894694400000000,42,1894611600000000,17,1894525200000000,'user:alice',1894697999999993,'key:k1',NULL,'inactive',1894698120000),
('queueing','native','queueing','system','default','http','{\"kind\":\"every\",\"every\":\"PT1M\",\"anchor\":\"2030-01-15T09:00:00Z\"}','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"queue\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,'{}',1,'',NULL,NULL,'{}',1894698060000000,1894698060000000,NULL,NULL,NULL,NULL,'',NULL,0,NULL,1,1894698000000000,'',1894698000000000,'',NULL,'active',1894698060000),
('schedule-00003','native','schedule 3','system','default','http','{\"kind\":\"every\",\"every\":\"PT1M\",\"anchor\":\"2030-01-15T09:00:00Z\"}','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,'{}',1,'',NULL,NULL,'{}',1894698060000000,1894698060000000,1894698000000000,1894698001250000,NULL,NULL,'',NULL,1,NULL,1,1894698000000000,'',1894698000000000,'',NULL,'active',1894698060000),
('schedule-00004','native','schedule 4','user','bob','http','{\"kind\":\"every\",\"every\":\"PT1M\",\"anchor\":\"2030-01-15T09:00:00Z\"}','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,'{\"a\":\"b\"}',0,'',NULL,NULL,'{}',NULL,NULL,NULL,NULL,NULL,NULL,'',NULL,0,NULL,1,1894698000000000,'',1894698000000000,'',NULL,'inactive',0),
('schedule-00005','native','schedule 5','system','default','http','{\"kind\":\"every\",\"every\":\"PT1M\",\"anchor\":\"2030-01-15T09:00:00Z\"}','{\"kind\":\"http\",\"url\":\"http://127.0.0.1:9/hook\",\"method\":\"POST\",\"headers\":{\"X-Test\":\"1\"},\"body\":\"{\\\"a\\\": 1}\"}','{\"misfire\":\"one\",\"misfire_grace\":60000000,\"catch_up_limit\":1000,\"overlap\":\"skip\",\"max_concurrent_runs\":null,\"burst_allowed\":false,\"max_retries\":0,\"retry_backoff\":5000000,\"backoff\":\"fixed\",\"backoff_cap\":3600000000,\"timeout\":10000000,\"on_lost\":\"retry\",\"pause_on_gone\":true}',0,'{}',0,'',NULL,NULL,'{}',NULL,NULL,NULL,NULL,NULL,NULL,'',NULL,0,NULL,2,1894698000000000,'',1894698000000000,'user:alice',1894698000000000,'inactive',0)
--
/*M!999999\- enable the sandbox mode */
--
/*M!999999\- enable the sandbox mode */ 
INSERT INTO `store_facts` VALUES
('epoch',0),
('min_revision',2),
('rolled_until',0)
--
/*M!999999\- enable the sandbox mode */ 
INSERT INTO `wakeups` VALUES
(1,6)
--
CREATE TRIGGER schedules_compat_insert BEFORE INSERT ON schedules FOR EACH ROW
SET NEW.compat_status = IF(NEW.enabled = 1, 'active', 'inactive'),
    NEW.compat_next_run_time = COALESCE(NEW.next_run_at DIV 1000, 0)
--
CREATE TRIGGER schedules_compat_update BEFORE UPDATE ON schedules FOR EACH ROW
BEGIN
  DECLARE by_view TINYINT DEFAULT 0;
  DECLARE at_now BIGINT;
  IF NOT NEW.compat_status <=> OLD.compat_status THEN
    IF COALESCE(NEW.compat_status, '') NOT IN ('active', 'inactive') THEN
      SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'f_status is active or inactive';
    END IF;
    SET by_view = 1, at_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
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
    SET by_view = 1, at_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
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
          CONCAT(REPLACE(DATE_ADD('1970-01-01 00:00:00.000000', INTERVAL OLD.next_run_at MICROSECOND), ' ', 'T'), 'Z'), CONCAT(REPLACE(DATE_ADD('1970-01-01 00:00:00.000000', INTERVAL NEW.next_run_at MICROSECOND), ' ', 'T'), 'Z')
        ))
        WHEN NEW.enabled = 1 THEN '{"enabled": [false, true]}'
        ELSE '{"enabled": [true, false]}'
      END
    );
  END IF;
  SET NEW.compat_status = IF(NEW.enabled = 1, 'active', 'inactive'),
      NEW.compat_next_run_time = COALESCE(NEW.next_run_at DIV 1000, 0);
END
--
CREATE ALGORITHM=UNDEFINED SQL SECURITY DEFINER VIEW `cb_schedule_metrics` AS select `runs`.`id` AS `id`,`runs`.`schedule_id` AS `schedule_id`,TIMESTAMP'1970-01-01 00:00:00.000000' + interval `batches`.`claimed_at` microsecond AS `claimed_at`,concat_ws('-',left(md5(`batches`.`node_id`),8),substr(md5(`batches`.`node_id`),9,4),substr(md5(`batches`.`node_id`),13,4),substr(md5(`batches`.`node_id`),17,4),right(md5(`batches`.`node_id`),12)) AS `claimed_by_worker_id`,TIMESTAMP'1970-01-01 00:00:00.000000' + interval `batches`.`enqueued_at` microsecond AS `enqueued_at`,`batches`.`duration_ms` AS `duration_ms`,1 AS `success`,NULL AS `error_message` from (`runs` join `fire_batches` `batches` on(`batches`.`id` = `runs`.`batch_id`)) union all select concat(`failures`.`batch_id`,':',`failures`.`schedule_id`) AS `CONCAT(failures.batch_id, ':', failures.schedule_id)`,`failures`.`schedule_id` AS `schedule_id`,TIMESTAMP'1970-01-01 00:00:00.000000' + interval `batches`.`claimed_at` microsecond AS `claimed_at`,concat_ws('-',left(md5(`batches`.`node_id`),8),substr(md5(`batches`.`node_id`),9,4),substr(md5(`batches`.`node_id`),13,4),substr(md5(`batches`.`node_id`),17,4),right(md5(`batches`.`node_id`),12)) AS `claimed_by_worker_id`,TIMESTAMP'1970-01-01 00:00:00.000000' + interval `batches`.`enqueued_at` microsecond AS `enqueued_at`,`batches`.`duration_ms` AS `duration_ms`,0 AS `0`,`failures`.`error` AS `error` from (`fire_failures` `failures` join `fire_batches` `batches` on(`batches`.`id` = `failures`.`batch_id`))
--
CREATE ALGORITHM=UNDEFINED SQL SECURITY DEFINER VIEW `cb_schedule_templates` AS select 'Hourly' AS `name`,'@hourly' AS `cron_spec`,'At the start of every hour' AS `description` union all select 'Daily Midnight' AS `Daily Midnight`,'0 0 * * *' AS `0 0 * * *`,'Every day at midnight' AS `Every day at midnight` union all select 'Daily 9 AM' AS `Daily 9 AM`,'0 9 * * *' AS `0 9 * * *`,'Every day at 9 AM' AS `Every day at 9 AM` union all select 'Weekly Monday 8 AM' AS `Weekly Monday 8 AM`,'0 8 * * 1' AS `0 8 * * 1`,'Every Monday at 8 AM' AS `Every Monday at 8 AM`
--
CREATE ALGORITHM=UNDEFINED SQL SECURITY DEFINER VIEW `t_action_schedule` AS select `schedules`.`id` AS `f_id`,`schedules`.`name` AS `f_name`,coalesce(json_unquote(json_extract(`schedules`.`target`,'$.kn_id')) collate utf8mb4_nopad_bin,'') AS `f_kn_id`,coalesce(json_unquote(json_extract(`schedules`.`target`,'$.branch')) collate utf8mb4_nopad_bin,'') AS `f_branch`,coalesce(json_unquote(json_extract(`schedules`.`target`,'$.action_type_id')) collate utf8mb4_nopad_bin,'') AS `f_action_type_id`,if(json_compact(json_extract(`schedules`.`door_data`,'$.kweaver.trigger')) collate utf8mb4_nopad_bin = json_compact(`schedules`.`trigger`) collate utf8mb4_nopad_bin,coalesce(json_unquote(json_extract(`schedules`.`door_data`,'$.kweaver.cron_expression')) collate utf8mb4_nopad_bin,''),coalesce(json_unquote(json_extract(`schedules`.`trigger`,'$.expression')) collate utf8mb4_nopad_bin,'')) AS `f_cron_expression`,coalesce(json_extract(`schedules`.`target`,'$.identities') collate utf8mb4_nopad_bin,'[]') AS `f_unique_identities`,coalesce(json_extract(`schedules`.`target`,'$.params') collate utf8mb4_nopad_bin,'{}') AS `f_dynamic_params`,`schedules`.`compat_status` AS `f_status`,coalesce(`schedules`.`last_run_at` DIV 1000,0) AS `f_last_run_time`,`schedules`.`compat_next_run_time` AS `f_next_run_time`,(select `runs`.`holder` from `runs` where `runs`.`schedule_id` = `schedules`.`id` and `runs`.`status` = 'running' order by `runs`.`claimed_at` desc limit 1) AS `f_lock_holder`,coalesce((select `runs`.`claimed_at` DIV 1000 from `runs` where `runs`.`schedule_id` = `schedules`.`id` and `runs`.`status` = 'running' order by `runs`.`claimed_at` desc limit 1),0) AS `f_lock_time`,coalesce(nullif(coalesce(json_unquote(json_extract(`schedules`.`target`,'$.account_id')) collate utf8mb4_nopad_bin,''),''),`schedules`.`created_by`) AS `f_creator`,`schedules`.`created_at` DIV 1000 AS `f_create_time`,if(json_value(`schedules`.`door_data`,'$.kweaver.version') = `schedules`.`version`,coalesce(nullif(coalesce(json_unquote(json_extract(`schedules`.`door_data`,'$.kweaver.updater.id')) collate utf8mb4_nopad_bin,''),''),`schedules`.`updated_by`),`schedules`.`updated_by`) AS `f_updater`,`schedules`.`updated_at` DIV 1000 AS `f_update_time`,coalesce(json_extract(`schedules`.`target`,'$.identities') collate utf8mb4_nopad_bin,'[]') AS `f_instance_identities`,coalesce(json_unquote(json_extract(`schedules`.`target`,'$.account_type')) collate utf8mb4_nopad_bin,'') AS `f_creator_type`,if(json_value(`schedules`.`door_data`,'$.kweaver.version') = `schedules`.`version`,coalesce(nullif(coalesce(json_unquote(json_extract(`schedules`.`door_data`,'$.kweaver.updater.type')) collate utf8mb4_nopad_bin,''),''),''),'') AS `f_updater_type` from `schedules` where `schedules`.`deleted_at` is null
