BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0009');
CREATE TABLE api_keys (
	id VARCHAR(255) NOT NULL, 
	secret_hash VARCHAR(255) NOT NULL, 
	name TEXT NOT NULL, 
	role VARCHAR(64) NOT NULL, 
	owner_type VARCHAR(64) NOT NULL, 
	owner_id VARCHAR(255) NOT NULL, 
	created_at BIGINT NOT NULL, 
	created_by TEXT NOT NULL, 
	expires_at BIGINT, 
	last_used_at BIGINT, 
	revoked_at BIGINT, scopes TEXT DEFAULT '[]' NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "api_keys" VALUES('key-00001','sha256:abababababababababababababababababababababababababababababababab','for the tests','member','user','alice',1894698000000000,'system:default',NULL,NULL,NULL,'[]');
INSERT INTO "api_keys" VALUES('key-00002','sha256:abababababababababababababababababababababababababababababababab','for the tests','member','user','alice',1894698000000000,'system:default',1894698060000000,1894698000000000,1894698000000000,'["read","agent"]');
INSERT INTO "api_keys" VALUES('cdr9jrchzpk6','058549ad858c207db52268863a935004ba51078c3ec5eb8d03be1275a9ef601b','ci','member','system','default',1894698001750000,'key:configured',NULL,NULL,NULL,'[]');
CREATE TABLE audit (
	number BIGINT NOT NULL, 
	at BIGINT NOT NULL, 
	actor TEXT NOT NULL, 
	door VARCHAR(64) NOT NULL, 
	verb VARCHAR(64) NOT NULL, 
	object_kind VARCHAR(64) NOT NULL, 
	object_id VARCHAR(255) NOT NULL, 
	owner VARCHAR(255) NOT NULL, 
	changes TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	address TEXT NOT NULL, 
	allowed SMALLINT NOT NULL, 
	previous_hash VARCHAR(64) NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	PRIMARY KEY (number)
);
INSERT INTO "audit" VALUES(1,1894698000000000,'user:alice','native','key','schedule','schedule-x','user:alice','{"name":[null,"น้ำ 水 %_"],"priority":[0,5]}','because','127.0.0.1',1,'','308592966016d8179f7112cc6768ce5e1e776b6244c222e593f76b52de714fcb');
INSERT INTO "audit" VALUES(2,1894698000000000,'user:alice','native','create','schedule','schedule-x','user:alice','{"name":[null,"น้ำ 水 %_"],"priority":[0,5]}','because','127.0.0.1',1,'308592966016d8179f7112cc6768ce5e1e776b6244c222e593f76b52de714fcb','a754391ee561b464ce6db8ff38d8cd7465e4ae19a66f2ed8de5a2c9df9fe3812');
INSERT INTO "audit" VALUES(3,1894698000000000,'user:alice','native','create','schedule','schedule-x','user:alice','{"name":[null,"น้ำ 水 %_"],"priority":[0,5]}','because','127.0.0.1',1,'a754391ee561b464ce6db8ff38d8cd7465e4ae19a66f2ed8de5a2c9df9fe3812','3fc046c47347d6633d6cf1a0981630cef6aeb79f7e7e6b8c30d7ddd62af5801c');
INSERT INTO "audit" VALUES(4,1894698000000000,'user:alice','native','cancel','schedule','schedule-x','user:alice','{"name":[null,"น้ำ 水 %_"],"priority":[0,5]}','because','127.0.0.1',1,'3fc046c47347d6633d6cf1a0981630cef6aeb79f7e7e6b8c30d7ddd62af5801c','638b53084f08b0d0f1c9b15fce7516b7fcc509936c5b310f3ab21c35847ef39f');
INSERT INTO "audit" VALUES(5,1894698000000000,'user:alice','native','run','schedule','schedule-x','user:alice','{"name":[null,"น้ำ 水 %_"],"priority":[0,5]}','because','127.0.0.1',1,'638b53084f08b0d0f1c9b15fce7516b7fcc509936c5b310f3ab21c35847ef39f','dfa6686c7db89b09ebb84aa48aed561d7881bb38b941f50939d33f2a4e547272');
INSERT INTO "audit" VALUES(6,1894698000000000,'user:alice','native','state','schedule','schedule-x','user:alice','{"name":[null,"น้ำ 水 %_"],"priority":[0,5]}','because','127.0.0.1',1,'dfa6686c7db89b09ebb84aa48aed561d7881bb38b941f50939d33f2a4e547272','1376efe7f8e8fbe0dbf227680e8d1327381c3f99880f1bf60fc3433f2d4d90e4');
INSERT INTO "audit" VALUES(7,1894698001750000,'key:configured','native','create','schedule','01b924cd-2556-7446-8be9-cc81237751aa','system:default','{"created_at":[null,"2030-01-15T09:00:01.750000Z"],"created_by":[null,"key:configured"],"enabled":[null,true],"id":[null,"01b924cd-2556-7446-8be9-cc81237751aa"],"labels":[null,{"team":"ops"}],"name":[null,"cron"],"namespace":[null,"native"],"next_run_at":[null,"2030-01-16T02:00:00Z"],"next_slot":[null,"2030-01-16T02:00:00Z"],"owner":[null,{"type":"system","id":"default"}],"policy":[null,{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}],"target":[null,{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}],"trigger":[null,{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}]}','','127.0.0.1',1,'1376efe7f8e8fbe0dbf227680e8d1327381c3f99880f1bf60fc3433f2d4d90e4','155da72cf392d0fb9bda02adf19eb84a089a40929b72b3d980c170a8778756a9');
INSERT INTO "audit" VALUES(8,1894698001750000,'key:configured','native','create','schedule','01b924cd-2556-7569-9dad-9d1480b65386','system:default','{"created_at":[null,"2030-01-15T09:00:01.750000Z"],"created_by":[null,"key:configured"],"enabled":[null,true],"id":[null,"01b924cd-2556-7569-9dad-9d1480b65386"],"name":[null,"once"],"namespace":[null,"native"],"next_run_at":[null,"2030-02-01T10:00:00Z"],"next_slot":[null,"2030-02-01T10:00:00Z"],"owner":[null,{"type":"system","id":"default"}],"policy":[null,{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}],"target":[null,{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}],"trigger":[null,{"kind":"once","at":"2030-02-01T10:00:00Z","timezone":"UTC"}]}','','127.0.0.1',1,'155da72cf392d0fb9bda02adf19eb84a089a40929b72b3d980c170a8778756a9','715a55863da06ece9056e15153ac59e68566b82e62dc6b0e0e87bff623a3eb49');
INSERT INTO "audit" VALUES(9,1894698001750000,'key:configured','native','create','schedule','01b924cd-2556-7558-bbed-beff8de4ab47','system:default','{"created_at":[null,"2030-01-15T09:00:01.750000Z"],"created_by":[null,"key:configured"],"enabled":[null,true],"id":[null,"01b924cd-2556-7558-bbed-beff8de4ab47"],"name":[null,"every"],"namespace":[null,"native"],"next_run_at":[null,"2030-01-15T09:15:01.750000Z"],"next_slot":[null,"2030-01-15T09:15:01.750000Z"],"owner":[null,{"type":"system","id":"default"}],"policy":[null,{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}],"target":[null,{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}],"trigger":[null,{"kind":"every","every":"PT15M","anchor":"2030-01-15T09:00:01.750000Z"}]}','','127.0.0.1',1,'715a55863da06ece9056e15153ac59e68566b82e62dc6b0e0e87bff623a3eb49','962f1bdba0388d6d775bca7a9771668e752df2c46ce6636a7e2d732eded7d7eb');
INSERT INTO "audit" VALUES(10,1894698001750000,'key:configured','native','create','schedule','01b924cd-2556-7ba6-8ad7-aea861076dc3','system:default','{"created_at":[null,"2030-01-15T09:00:01.750000Z"],"created_by":[null,"key:configured"],"enabled":[null,true],"id":[null,"01b924cd-2556-7ba6-8ad7-aea861076dc3"],"name":[null,"task"],"namespace":[null,"native"],"next_run_at":[null,"2030-01-16T02:00:00Z"],"next_slot":[null,"2030-01-16T02:00:00Z"],"owner":[null,{"type":"system","id":"default"}],"policy":[null,{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":300000000,"on_lost":"retry","pause_on_gone":true}],"target":[null,{"kind":"task","name":"reports.nightly","args":{"day":1}}],"trigger":[null,{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}]}','','127.0.0.1',1,'962f1bdba0388d6d775bca7a9771668e752df2c46ce6636a7e2d732eded7d7eb','966ecaea399445df9ca68988c4cfc09801366f03a09c2f34644f11ac31dbf1d9');
INSERT INTO "audit" VALUES(11,1894698001750000,'key:configured','native','create','schedule','01b924cd-2556-7f38-9b0b-a905b99de255','system:default','{"created_at":[null,"2030-01-15T09:00:01.750000Z"],"created_by":[null,"key:configured"],"enabled":[null,true],"id":[null,"01b924cd-2556-7f38-9b0b-a905b99de255"],"name":[null,"flow"],"namespace":[null,"native"],"next_run_at":[null,"2030-01-16T02:00:00Z"],"next_slot":[null,"2030-01-16T02:00:00Z"],"owner":[null,{"type":"system","id":"default"}],"policy":[null,{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":86400000000,"on_lost":"retry","pause_on_gone":true}],"target":[null,{"kind":"flow","name":"pipeline-2"}],"trigger":[null,{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}]}','','127.0.0.1',1,'966ecaea399445df9ca68988c4cfc09801366f03a09c2f34644f11ac31dbf1d9','9340db9f261a3f5dd176a7e2f8a0929ae8eb5dee6ca9f639a69a6b05ae4fb1a2');
INSERT INTO "audit" VALUES(12,1894698001750000,'key:configured','native','create','schedule','01b924cd-2556-70d2-8879-a91b1c670ea9','system:default','{"created_at":[null,"2030-01-15T09:00:01.750000Z"],"created_by":[null,"key:configured"],"enabled":[null,true],"id":[null,"01b924cd-2556-70d2-8879-a91b1c670ea9"],"name":[null,"paused"],"namespace":[null,"native"],"next_run_at":[null,"2030-01-16T02:00:00Z"],"next_slot":[null,"2030-01-16T02:00:00Z"],"owner":[null,{"type":"system","id":"default"}],"policy":[null,{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}],"target":[null,{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}],"trigger":[null,{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}]}','','127.0.0.1',1,'9340db9f261a3f5dd176a7e2f8a0929ae8eb5dee6ca9f639a69a6b05ae4fb1a2','71c97683a571f89890156ffb9ff04b4b64006bdcfd0ba3957d1b0c9814ff80a8');
INSERT INTO "audit" VALUES(13,1894698001750000,'key:configured','native','create','schedule','01b924cd-2556-7fdb-840d-8f17972651da','system:default','{"created_at":[null,"2030-01-15T09:00:01.750000Z"],"created_by":[null,"key:configured"],"enabled":[null,true],"id":[null,"01b924cd-2556-7fdb-840d-8f17972651da"],"name":[null,"moved"],"namespace":[null,"native"],"next_run_at":[null,"2030-01-16T02:00:00Z"],"next_slot":[null,"2030-01-16T02:00:00Z"],"owner":[null,{"type":"system","id":"default"}],"policy":[null,{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}],"target":[null,{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}],"trigger":[null,{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}]}','','127.0.0.1',1,'71c97683a571f89890156ffb9ff04b4b64006bdcfd0ba3957d1b0c9814ff80a8','585695dd434bb50e330dc09e6d796a474901528416330c471416fccc44d794b0');
INSERT INTO "audit" VALUES(14,1894698001750000,'key:configured','native','create','schedule','01b924cd-2556-7ca2-b8c8-eecabf00188d','system:default','{"created_at":[null,"2030-01-15T09:00:01.750000Z"],"created_by":[null,"key:configured"],"enabled":[null,true],"id":[null,"01b924cd-2556-7ca2-b8c8-eecabf00188d"],"name":[null,"rescheduled"],"namespace":[null,"native"],"next_run_at":[null,"2030-01-16T02:00:00Z"],"next_slot":[null,"2030-01-16T02:00:00Z"],"owner":[null,{"type":"system","id":"default"}],"policy":[null,{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}],"target":[null,{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}],"trigger":[null,{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}]}','','127.0.0.1',1,'585695dd434bb50e330dc09e6d796a474901528416330c471416fccc44d794b0','dc90e1467fe9ae1c11d28595ac1d997f772f0849597017c480069e8ff917cc84');
INSERT INTO "audit" VALUES(15,1894698001750000,'key:configured','native','create','schedule','01b924cd-2556-7347-8e5a-f2e3ac9abb0c','system:default','{"created_at":[null,"2030-01-15T09:00:01.750000Z"],"created_by":[null,"key:configured"],"enabled":[null,true],"id":[null,"01b924cd-2556-7347-8e5a-f2e3ac9abb0c"],"name":[null,"skipped"],"namespace":[null,"native"],"next_run_at":[null,"2030-01-16T02:00:00Z"],"next_slot":[null,"2030-01-16T02:00:00Z"],"owner":[null,{"type":"system","id":"default"}],"policy":[null,{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}],"target":[null,{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}],"trigger":[null,{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}]}','','127.0.0.1',1,'dc90e1467fe9ae1c11d28595ac1d997f772f0849597017c480069e8ff917cc84','726ff931b9932dfe6042ae03dfee95d928d60ab3433c6c7a30c5cfbaf6a8cf62');
INSERT INTO "audit" VALUES(16,1894698001750000,'key:configured','native','create','schedule','01b924cd-2556-7e3b-b171-f4611674518d','system:default','{"created_at":[null,"2030-01-15T09:00:01.750000Z"],"created_by":[null,"key:configured"],"enabled":[null,true],"id":[null,"01b924cd-2556-7e3b-b171-f4611674518d"],"name":[null,"deleted"],"namespace":[null,"native"],"next_run_at":[null,"2030-01-16T02:00:00Z"],"next_slot":[null,"2030-01-16T02:00:00Z"],"owner":[null,{"type":"system","id":"default"}],"policy":[null,{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}],"target":[null,{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}],"trigger":[null,{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}]}','','127.0.0.1',1,'726ff931b9932dfe6042ae03dfee95d928d60ab3433c6c7a30c5cfbaf6a8cf62','15f3edd98bb12c0df8bfcc5144118661f118ac6d44dbaebe8f336787263b3d39');
INSERT INTO "audit" VALUES(17,1894698001750000,'key:configured','native','create','schedule','01b924cd-2556-7658-95dd-c0e747fbb3b4','system:default','{"created_at":[null,"2030-01-15T09:00:01.750000Z"],"created_by":[null,"key:configured"],"enabled":[null,true],"id":[null,"01b924cd-2556-7658-95dd-c0e747fbb3b4"],"name":[null,"edited"],"namespace":[null,"native"],"next_run_at":[null,"2030-01-16T02:00:00Z"],"next_slot":[null,"2030-01-16T02:00:00Z"],"owner":[null,{"type":"system","id":"default"}],"policy":[null,{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}],"target":[null,{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}],"trigger":[null,{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}]}','','127.0.0.1',1,'15f3edd98bb12c0df8bfcc5144118661f118ac6d44dbaebe8f336787263b3d39','79a7024b06a4dd94e9ea5d8482d695b3dd8918ce9a85da7e3cf4a1945d6e2341');
INSERT INTO "audit" VALUES(18,1894698001750000,'key:configured','native','pause','schedule','01b924cd-2556-70d2-8879-a91b1c670ea9','system:default','{"enabled":[true,false],"next_run_at":["2030-01-16T02:00:00Z",null],"next_slot":["2030-01-16T02:00:00Z",null],"pause_note":[null,"lunch"],"pause_until":[null,"2030-01-16T00:00:00Z"]}','lunch','127.0.0.1',1,'79a7024b06a4dd94e9ea5d8482d695b3dd8918ce9a85da7e3cf4a1945d6e2341','3c1194dcaa2b841756c8879e156c0bc7c74edcfeb8388cc3af5834f87dd43c71');
INSERT INTO "audit" VALUES(19,1894698001750000,'key:configured','native','move','schedule','01b924cd-2556-7fdb-840d-8f17972651da','system:default','{"next_run_at":["2030-01-16T02:00:00Z","2030-01-15T12:34:56Z"]}','','127.0.0.1',1,'3c1194dcaa2b841756c8879e156c0bc7c74edcfeb8388cc3af5834f87dd43c71','82fb52107d52737fe12dbf20b0f1ec374f6de9dc01df59d2f849f2e6ab7b68de');
INSERT INTO "audit" VALUES(20,1894698001750000,'key:configured','native','reschedule','schedule','01b924cd-2556-7ca2-b8c8-eecabf00188d','system:default','{"next_run_at":["2030-01-16T02:00:00Z","2030-01-17T01:02:03.456789Z"],"next_slot":["2030-01-16T02:00:00Z","2030-01-17T01:02:03.456789Z"]}','','127.0.0.1',1,'82fb52107d52737fe12dbf20b0f1ec374f6de9dc01df59d2f849f2e6ab7b68de','1bc84c1f3db0fddf9714dce075c98249dde95d47b25dab95370abcb4d232848b');
INSERT INTO "audit" VALUES(21,1894698001750000,'key:configured','native','skip','schedule','01b924cd-2556-7347-8e5a-f2e3ac9abb0c','system:default','{"next_run_at":["2030-01-16T02:00:00Z","2030-01-17T02:00:00Z"],"next_slot":["2030-01-16T02:00:00Z","2030-01-17T02:00:00Z"]}','holiday','127.0.0.1',1,'1bc84c1f3db0fddf9714dce075c98249dde95d47b25dab95370abcb4d232848b','33be84c163b1fc0ee6f4812b4f9161e25e5665d8325cff8205537f8fe672329d');
INSERT INTO "audit" VALUES(22,1894698001750000,'key:configured','native','update','schedule','01b924cd-2556-7658-95dd-c0e747fbb3b4','system:default','{"name":["edited","edited twice"],"priority":[null,3]}','','127.0.0.1',1,'33be84c163b1fc0ee6f4812b4f9161e25e5665d8325cff8205537f8fe672329d','0e5539feb9dfffbfa3b39874a509cd92fb6a5676d09c3ac7994a949a6c4bb945');
INSERT INTO "audit" VALUES(23,1894698001750000,'key:configured','native','run','schedule','01b924cd-2556-7658-95dd-c0e747fbb3b4','system:default','{"run_id":"01b924cd-2556-7e80-872b-c41ed9c98c23"}','','127.0.0.1',1,'0e5539feb9dfffbfa3b39874a509cd92fb6a5676d09c3ac7994a949a6c4bb945','1508ae258a1ab825a1ae96008754d7254deaf92191e9acb1a563da0d297879ee');
INSERT INTO "audit" VALUES(24,1894698001750000,'key:configured','native','run','schedule','01b924cd-2556-7ba6-8ad7-aea861076dc3','system:default','{"run_id":"2c1f8d68-d265-503e-a58e-815d23d36aa6"}','','127.0.0.1',1,'1508ae258a1ab825a1ae96008754d7254deaf92191e9acb1a563da0d297879ee','d82b71c6e2494133d42a7954ce8f604b63b3584feba5c164a8be786157bbb10d');
INSERT INTO "audit" VALUES(25,1894698001750000,'key:configured','native','run','schedule','01b924cd-2556-7558-bbed-beff8de4ab47','system:default','{"run_id":"01b924cd-2556-733f-8087-35bf548914ef"}','','127.0.0.1',1,'d82b71c6e2494133d42a7954ce8f604b63b3584feba5c164a8be786157bbb10d','78a406b37493a116c5ac3f96f448c0674ecebc622c58448215fbe6d7f59a224d');
INSERT INTO "audit" VALUES(26,1894698001750000,'key:configured','native','run','schedule','01b924cd-2556-7e3b-b171-f4611674518d','system:default','{"run_id":"01b924cd-2556-78a2-811e-24d9eaeb999b"}','','127.0.0.1',1,'78a406b37493a116c5ac3f96f448c0674ecebc622c58448215fbe6d7f59a224d','16ea0a2a82d7c470de694434b967dbd36a3fc9b884bad9a1215aa762974510bc');
INSERT INTO "audit" VALUES(27,1894698001750000,'key:configured','native','delete','schedule','01b924cd-2556-7e3b-b171-f4611674518d','system:default','{"deleted_at":[null,"2030-01-15T09:00:01.750000Z"],"enabled":[true,false],"next_run_at":["2030-01-16T02:00:00Z",null],"next_slot":["2030-01-16T02:00:00Z",null]}','','127.0.0.1',1,'16ea0a2a82d7c470de694434b967dbd36a3fc9b884bad9a1215aa762974510bc','f0a91340cfd90b626c6b74546df4762d397c232bab636887fcfdff41601b65fa');
INSERT INTO "audit" VALUES(28,1894698001750000,'key:configured','native','start','run','01b924cd-2556-732b-8467-8cce6b8c290d','system:default','{"target":{"kind":"task","name":"reports.nightly","args":{"x":[1,null]}}}','','127.0.0.1',1,'f0a91340cfd90b626c6b74546df4762d397c232bab636887fcfdff41601b65fa','641939da770c7331b9ca1007f82287cd5afad7359b1e17c1b8eabfd57fc9fc2b');
INSERT INTO "audit" VALUES(29,1894698001750000,'key:configured','native','save_filter','owner','system:default','system:default','{"name":"bad ones","filter":"status:failed"}','','127.0.0.1',1,'641939da770c7331b9ca1007f82287cd5afad7359b1e17c1b8eabfd57fc9fc2b','9fa09a65989b073e7325ca4fbc5e55a86285fe6a1d7214dfa7e0c98b15fb81b7');
INSERT INTO "audit" VALUES(30,1894698001750000,'key:configured','native','create_user','user','anna','user:anna','{"role":"member"}','','127.0.0.1',1,'9fa09a65989b073e7325ca4fbc5e55a86285fe6a1d7214dfa7e0c98b15fb81b7','c08c7b853f2ba49c5628c0b0fe13cea806d47a800ab6443460feabcf24fd0657');
INSERT INTO "audit" VALUES(31,1894698001750000,'key:configured','native','create_key','key','cdr9jrchzpk6','system:default','{"name":"ci","role":"member"}','','127.0.0.1',1,'c08c7b853f2ba49c5628c0b0fe13cea806d47a800ab6443460feabcf24fd0657','0b1bbbb03636012e644db7e65ae34abcc81752783f3fad6f1bc26add4836f27d');
CREATE TABLE audit_head (
	id SMALLINT NOT NULL, 
	number BIGINT NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "audit_head" VALUES(1,31,'0b1bbbb03636012e644db7e65ae34abcc81752783f3fad6f1bc26add4836f27d');
CREATE TABLE buckets (
	name VARCHAR(255) NOT NULL, 
	tokens FLOAT NOT NULL, 
	at BIGINT NOT NULL, 
	granted BIGINT NOT NULL, 
	full_at BIGINT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "buckets" VALUES('requests:key:configured',1999745.0,1894698011750000,128,1894698013750000);
CREATE TABLE concurrency_keys (
	"key" VARCHAR(300) NOT NULL, 
	PRIMARY KEY ("key")
);
CREATE TABLE deliveries (
	id VARCHAR(255) NOT NULL, 
	run_id VARCHAR(255) NOT NULL, 
	schedule_id VARCHAR(255), 
	schedule_name TEXT NOT NULL, 
	owner_type VARCHAR(64) NOT NULL, 
	owner_id VARCHAR(255) NOT NULL, 
	channel VARCHAR(64) NOT NULL, 
	recipient TEXT NOT NULL, 
	occasion VARCHAR(64) NOT NULL, 
	state VARCHAR(64) NOT NULL, 
	attempts INTEGER NOT NULL, 
	fence BIGINT NOT NULL, 
	progress INTEGER NOT NULL, 
	created_at BIGINT NOT NULL, 
	available_at BIGINT NOT NULL, 
	finished_at BIGINT, 
	error TEXT NOT NULL, 
	code VARCHAR(64) NOT NULL, 
	receipt TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "deliveries" VALUES('full-delivery','full-run','full','ทดสอบ 测试 🔔 %_''"\','chat','-100200300','webhook','{"channel":"webhook","to":"https://example.com/ü?q=%20","on":["failure","recovery"],"language":"zh","signing_secrets":["whsec_b25l","whsec_dHdv"],"late_after":300000001,"quiet":{"start":"22:00","end":"07:30","zone":"Asia/Bangkok","but":["failure","late"]},"digest":{"every":"weekly","at":"09:15","weekday":4,"zone":"America/New_York","but":["failure"]}}','recovery','dead',8,9,2,1894694400000000,1894697999999997,1894697999999999,'403 Forbidden: 水','blocked','message 17');
INSERT INTO "deliveries" VALUES('17ae27a3-4f2a-50ed-8762-7bccf300c624','run-00014',NULL,'','system','default','inbox','{"channel":"inbox","on":["always"]}','success','delivered',1,1,0,1894698001750000,1894698061750000,1894698001750000,'','','');
INSERT INTO "deliveries" VALUES('23623611-4b4f-5644-85d5-c59a63038787','run-00016',NULL,'','system','default','telegram','{"channel":"telegram","to":"-100200300","on":["success"],"language":"th"}','success','pending',0,0,0,1894698001750000,1894698001750000,NULL,'','','');
INSERT INTO "deliveries" VALUES('41a5bb38-eae0-5c1f-9ca7-19f105ad677a','run-00015',NULL,'','system','default','inbox','{"channel":"inbox","on":["always"]}','success','pending',1,1,0,1894698001750000,1894698061750000,NULL,'busy','','');
INSERT INTO "deliveries" VALUES('6d050eaa-5e25-590a-b11b-066ed408115e','run-00016',NULL,'','system','default','inbox','{"channel":"inbox","on":["always"]}','success','pending',1,1,0,1894698001750000,1894698061750000,NULL,'','','');
INSERT INTO "deliveries" VALUES('dd9169a9-4b6a-5445-bb9c-7c4ddf9a8885','run-00015',NULL,'','system','default','telegram','{"channel":"telegram","to":"-100200300","on":["success"],"language":"th"}','success','pending',0,0,0,1894698001750000,1894698001750000,NULL,'','','');
INSERT INTO "deliveries" VALUES('e8e01f99-c5bc-5ebf-958a-20e75feb55d9','run-00014',NULL,'','system','default','telegram','{"channel":"telegram","to":"-100200300","on":["success"],"language":"th"}','success','pending',0,0,0,1894698001750000,1894698001750000,NULL,'','','');
CREATE TABLE fire_batches (
	id BIGINT NOT NULL, 
	node_id VARCHAR(255) NOT NULL, 
	claimed_at BIGINT NOT NULL, 
	enqueued_at BIGINT NOT NULL, 
	duration_ms FLOAT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "fire_batches" VALUES(7760683013120003661,'node-1',1894698001250000,1894698001250000,0.0);
CREATE TABLE fire_failures (
	batch_id BIGINT NOT NULL, 
	schedule_id VARCHAR(255) NOT NULL, 
	error TEXT NOT NULL, 
	PRIMARY KEY (batch_id, schedule_id)
);
CREATE TABLE inbox (
	id VARCHAR(255) NOT NULL, 
	owner_type VARCHAR(64) NOT NULL, 
	owner_id VARCHAR(255) NOT NULL, 
	run_id VARCHAR(255), 
	schedule_id VARCHAR(255), 
	schedule_name TEXT NOT NULL, 
	title TEXT NOT NULL, 
	text TEXT NOT NULL, 
	status VARCHAR(64) NOT NULL, 
	artifacts TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	read_at BIGINT, 
	starred SMALLINT NOT NULL, 
	archived_at BIGINT, 
	snoozed_until BIGINT, 
	PRIMARY KEY (id)
);
INSERT INTO "inbox" VALUES('full-item','user','bob','full-run','full','น้ำ 水','สรุปข่าว 新闻 🔔','# A heading

* one
* <script>two</script>
','succeeded','[{"name":"chart.png","url":"https://example.com/a?b=%20"},{"name":"น้ำ.csv","url":"https://example.com/c"}]',1894694400000000,1894697940000000,1,1894697999000000,1894701600000000);
INSERT INTO "inbox" VALUES('item-00017','user','alice',NULL,NULL,'','message 17','','','[]',1894698000000000,NULL,0,NULL,NULL);
CREATE TABLE kept_states (
	name VARCHAR(300) NOT NULL, 
	value TEXT NOT NULL, 
	changed_at BIGINT NOT NULL, 
	run_id VARCHAR(255) NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "kept_states" VALUES('sync:crm#deals.eu','{"cursor": "น้ำ 水"}',1894698001750000,'run-00008');
INSERT INTO "kept_states" VALUES('by hand','[]',1894698001750000,'');
INSERT INTO "kept_states" VALUES('filters:system:default','{"runs":{"bad ones":"status:failed"}}',1894698001750000,'');
INSERT INTO "kept_states" VALUES('dashboard:users','{"anna":{"password":"$argon2id$v=19$m=19456,t=2,p=1$Nzc3Nzc3Nzc3Nzc3Nzc3Nw$FwXRRwzN/vJLaELfZdfI7Wn00dE3HMWO2rwu7eU3Uvs","role":"member","created_at":"2030-01-15T09:00:01.750000+00:00","created_by":"key:configured"}}',1894698001750000,'');
INSERT INTO "kept_states" VALUES('session:aa','{"who": "anna"}',1894698011750000,'');
CREATE TABLE node_lags (
	quarter BIGINT NOT NULL, 
	node VARCHAR(255) NOT NULL, 
	bracket SMALLINT NOT NULL, 
	number BIGINT NOT NULL, 
	PRIMARY KEY (quarter, node, bracket)
)
 WITHOUT ROWID

;
CREATE TABLE node_marks (
	at BIGINT NOT NULL, 
	node VARCHAR(255) NOT NULL, 
	joined SMALLINT NOT NULL, 
	version VARCHAR(64) NOT NULL, 
	PRIMARY KEY (at, node, joined)
)
 WITHOUT ROWID

;
INSERT INTO "node_marks" VALUES(1894698000000000,'node-1',1,'0.1.0');
INSERT INTO "node_marks" VALUES(1894698001750000,'node-2',1,'0.1.0');
INSERT INTO "node_marks" VALUES(1894698006750000,'node-3',1,'0.1.0');
INSERT INTO "node_marks" VALUES(1894698007750000,'node-3',0,'0.1.0');
CREATE TABLE nodes (
	id VARCHAR(255) NOT NULL, 
	version VARCHAR(64) NOT NULL, 
	roles TEXT NOT NULL, 
	capacity INTEGER NOT NULL, 
	started_at BIGINT NOT NULL, 
	heartbeat_at BIGINT NOT NULL, 
	lease_until BIGINT NOT NULL, 
	clock_offset FLOAT NOT NULL, offers TEXT DEFAULT '[]' NOT NULL, drain SMALLINT DEFAULT '0' NOT NULL, facts TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "nodes" VALUES('node-1','0.1.0','["scheduler","worker"]',10,1894698000000000,1894698000000000,1894698030000000,0.0,'{}',0,'');
INSERT INTO "nodes" VALUES('node-2','0.1.0','["scheduler","worker"]',10,1894698001750000,1894698001750000,1894698031750000,0.0,'{"action":null,"flow:pipeline-2":null,"http":null,"sync:crm":null,"task:reports.nightly":null}',0,'');
CREATE TABLE requests (
	scope VARCHAR(255) NOT NULL, 
	request_key VARCHAR(255) NOT NULL, 
	fingerprint TEXT NOT NULL, 
	status INTEGER NOT NULL, 
	body TEXT NOT NULL, 
	headers TEXT NOT NULL, 
	expires_at BIGINT NOT NULL, 
	PRIMARY KEY (scope, request_key)
);
INSERT INTO "requests" VALUES('system:default POST /api/v1/schedules/01b924cd-2556-7ba6-8ad7-aea861076dc3/run','first','74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b 2030-01-15T09:00:01.750000Z',202,'{"id":"2c1f8d68-d265-503e-a58e-815d23d36aa6","schedule_id":"01b924cd-2556-7ba6-8ad7-aea861076dc3","schedule_name":"task","namespace":"native","owner":{"type":"system","id":"default"},"slot":null,"origin":"manual","status":"queued","attempt":0,"fence":0,"priority":0,"planned_at":"2030-01-15T09:00:01.750000Z","created_at":"2030-01-15T09:00:01.750000Z","available_at":"2030-01-15T09:00:01.750000Z","claimed_at":null,"started_at":null,"finished_at":null,"duration_ms":null,"lag_ms":null,"node":null,"blocked":false,"cancel_requested":false,"result":null,"error":"","reason":"","missed_count":0,"missed_until":null,"retry_of":null,"parent_id":null,"step":"","target":{"kind":"task","name":"reports.nightly","args":{"day":1}},"attempts":[]}','[["location","/api/v1/runs/2c1f8d68-d265-503e-a58e-815d23d36aa6"],["content-type","application/json"],["content-language","en"],["vary","X-Language, Accept-Language"]]',1894784401750000);
CREATE TABLE run_lags (
	owner_type VARCHAR(64) NOT NULL, 
	owner_id VARCHAR(255) NOT NULL, 
	quarter BIGINT NOT NULL, 
	bracket SMALLINT NOT NULL, 
	number BIGINT NOT NULL, 
	PRIMARY KEY (owner_type, owner_id, quarter, bracket)
)
 WITHOUT ROWID

;
CREATE TABLE run_logs (
	run_id VARCHAR(255) NOT NULL, 
	number BIGINT NOT NULL, 
	at BIGINT NOT NULL, 
	level VARCHAR(64) NOT NULL, 
	message TEXT NOT NULL, 
	PRIMARY KEY (run_id, number)
)
 WITHOUT ROWID

;
INSERT INTO "run_logs" VALUES('lived-plain',1,1894698001750000,'info','hello');
INSERT INTO "run_logs" VALUES('lived-plain',2,1894698001750000,'info','สวัสดี');
INSERT INTO "run_logs" VALUES('run-00010',1,1894698001250000,'info','one');
INSERT INTO "run_logs" VALUES('run-00010',2,1894698001250000,'info','two');
CREATE TABLE run_tallies (
	owner_type VARCHAR(64) NOT NULL, 
	owner_id VARCHAR(255) NOT NULL, 
	quarter BIGINT NOT NULL, 
	namespace VARCHAR(255) NOT NULL, 
	kind VARCHAR(64) NOT NULL, 
	origin VARCHAR(64) NOT NULL, 
	status VARCHAR(64) NOT NULL, 
	number BIGINT NOT NULL, 
	PRIMARY KEY (owner_type, owner_id, quarter, namespace, kind, origin, status)
)
 WITHOUT ROWID

;
CREATE TABLE runs (
	id VARCHAR(255) NOT NULL, 
	schedule_id VARCHAR(255), 
	schedule_name TEXT NOT NULL, 
	schedule_version BIGINT NOT NULL, 
	namespace VARCHAR(255) NOT NULL, 
	owner_type VARCHAR(64) NOT NULL, 
	owner_id VARCHAR(255) NOT NULL, 
	slot BIGINT, 
	origin VARCHAR(64) NOT NULL, 
	parent_id VARCHAR(255), 
	step TEXT NOT NULL, 
	retry_of VARCHAR(255), 
	kind VARCHAR(64) NOT NULL, 
	target TEXT NOT NULL, 
	policy TEXT NOT NULL, 
	priority BIGINT NOT NULL, 
	catch_up SMALLINT NOT NULL, 
	rank BIGINT NOT NULL, 
	concurrency_key VARCHAR(300), 
	concurrency_limit BIGINT NOT NULL, 
	blocked SMALLINT NOT NULL, 
	status VARCHAR(64) NOT NULL, 
	attempt INTEGER NOT NULL, 
	fence BIGINT NOT NULL, 
	holder VARCHAR(255), 
	started SMALLINT NOT NULL, 
	cancel_requested SMALLINT NOT NULL, 
	created_at BIGINT NOT NULL, 
	planned_at BIGINT NOT NULL, 
	available_at BIGINT NOT NULL, 
	claimed_at BIGINT, 
	started_at BIGINT, 
	finished_at BIGINT, 
	result TEXT, 
	error TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	missed_count BIGINT NOT NULL, 
	missed_until BIGINT, 
	attempts TEXT NOT NULL, needs VARCHAR(300) DEFAULT 'http' NOT NULL, batch_id BIGINT, 
	PRIMARY KEY (id), 
	CONSTRAINT runs_one_per_slot UNIQUE (schedule_id, slot)
);
INSERT INTO "runs" VALUES('full-run','full','ทดสอบ 测试 🔔 %_''"\',17,'ksana','user','alice',1894697939999997,'child','parent','step two','earlier','http','{"kind":"http","url":"https://example.com/ü?q=%20","method":"PATCH","headers":{"X-One":"1","X-Two":"ä"},"body":"{\"text\": \"ก \\n\"}","expected_status":[200,204],"signing_secrets":["whsec_b25l","whsec_dHdv"],"verify_tls":false}','{"misfire":"all","misfire_grace":1000001,"catch_up_limit":7,"overlap":"queue","max_concurrent_runs":3,"burst_allowed":true,"max_retries":9,"retry_backoff":1500000,"backoff":"exponential","backoff_cap":172800000000,"timeout":3000000,"on_lost":"stop","pause_on_gone":false,"concurrency_key":"shared 🔔","delivery":[{"channel":"inbox","on":["always"]},{"channel":"webhook","to":"https://example.com/ü?q=%20","on":["failure","recovery"],"language":"zh","signing_secrets":["whsec_b25l","whsec_dHdv"],"late_after":300000001,"quiet":{"start":"22:00","end":"07:30","zone":"Asia/Bangkok","but":["failure","late"]},"digest":{"every":"weekly","at":"09:15","weekday":4,"zone":"America/New_York","but":["failure"]}}]}',-5,1,-11,'some key',4,1,'unknown',2,3,NULL,1,1,1894694400000000,1894697940000000,1894697998000000,1894697999000000,1894697940000000,1894698011750000,'{"status":500,"headers":{"a":"b"},"ok":false,"none":null,"list":[1,"2"]}','the node that held this run stopped beating','lost_after_start',3,1894697999000000,'[{"number":1,"fence":2,"node":"node-x","started_at":"2030-01-15T08:59:00Z","finished_at":"2030-01-15T08:59:59Z","end":"lost","error":"gone"},{"number":2,"fence":3,"node":"node-x","started_at":"2030-01-15T08:59:00Z","finished_at":"2030-01-15T08:59:59Z","end":"timeout","error":"gone"},{"number":2,"fence":3,"node":"node-y","started_at":"2030-01-15T08:59:59Z","finished_at":"2030-01-15T09:00:11.750000Z","end":"lost","error":"the node that held this run stopped beating"}]','http',NULL);
INSERT INTO "runs" VALUES('95ee8c6f-427d-5e16-ac34-70b75edbdde9','schedule-00003','schedule 3',1,'native','system','default',1894698000000000,'schedule',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,0,0,'schedule:schedule-00003',1,0,'queued',0,0,NULL,0,0,1894698001250000,1894698000500000,1894698000500000,NULL,NULL,NULL,NULL,'','',0,NULL,'[]','http',7760683013120003661);
INSERT INTO "runs" VALUES('run-00006',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,0,0,NULL,1,0,'running',1,1,'node-1',0,0,1894698000000000,1894698000000000,1894698000000000,1894698001250000,1894698001250000,NULL,NULL,'','',0,NULL,'[]','http',NULL);
INSERT INTO "runs" VALUES('run-00007',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',1,0,2,NULL,1,0,'running',1,1,'node-1',0,0,1894698000000000,1894698000000000,1894698000000000,1894698001250000,1894698001250000,NULL,NULL,'','',0,NULL,'[]','http',NULL);
INSERT INTO "runs" VALUES('run-00008',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',2,0,4,NULL,1,0,'running',1,1,'node-1',1,1,1894698000000000,1894698000000000,1894698000000000,1894698001250000,1894698001250000,NULL,NULL,'','canceled_by_hand',0,NULL,'[]','http',NULL);
INSERT INTO "runs" VALUES('run-00009',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',3,0,6,NULL,1,0,'queued',1,1,NULL,0,0,1894698000000000,1894698000000000,1894698061750000,1894698001250000,1894698001250000,NULL,NULL,'it ended as failed','',0,NULL,'[{"number":1,"fence":1,"node":"node-1","started_at":"2030-01-15T09:00:01.250000Z","finished_at":"2030-01-15T09:00:01.750000Z","end":"failed","error":"it ended as failed"}]','http',NULL);
INSERT INTO "runs" VALUES('run-00010',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',4,0,8,NULL,1,0,'timeout',1,1,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,1894698001250000,1894698001250000,1894698001750000,NULL,'it ended as timeout','',0,NULL,'[{"number":1,"fence":1,"node":"node-1","started_at":"2030-01-15T09:00:01.250000Z","finished_at":"2030-01-15T09:00:01.750000Z","end":"timeout","error":"it ended as timeout"}]','http',NULL);
INSERT INTO "runs" VALUES('run-00011',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,0,0,'k',1,0,'queued',0,0,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,NULL,NULL,NULL,NULL,'','',0,NULL,'[]','http',NULL);
INSERT INTO "runs" VALUES('run-00012',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,0,0,'k',1,1,'queued',0,0,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,NULL,NULL,NULL,NULL,'','',0,NULL,'[]','http',NULL);
INSERT INTO "runs" VALUES('run-00013',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'sync','{"kind":"sync","source":"crm","collection":"deals.eu"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,0,0,'sync:crm#deals.eu',1,0,'queued',0,0,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,NULL,NULL,NULL,NULL,'','',0,NULL,'[]','sync:crm',NULL);
INSERT INTO "runs" VALUES('run-00014',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true,"delivery":[{"channel":"inbox","on":["always"]},{"channel":"telegram","to":"-100200300","on":["success"],"language":"th"}]}',0,0,0,NULL,1,0,'succeeded',0,0,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,NULL,NULL,1894698001750000,NULL,'','',0,NULL,'[]','http',NULL);
INSERT INTO "runs" VALUES('run-00015',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true,"delivery":[{"channel":"inbox","on":["always"]},{"channel":"telegram","to":"-100200300","on":["success"],"language":"th"}]}',0,0,0,NULL,1,0,'succeeded',0,0,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,NULL,NULL,1894698001750000,NULL,'','',0,NULL,'[]','http',NULL);
INSERT INTO "runs" VALUES('run-00016',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true,"delivery":[{"channel":"inbox","on":["always"]},{"channel":"telegram","to":"-100200300","on":["success"],"language":"th"}]}',0,0,0,NULL,1,0,'succeeded',0,0,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,NULL,NULL,1894698001750000,NULL,'','',0,NULL,'[]','http',NULL);
INSERT INTO "runs" VALUES('0282fcad-f223-550b-9405-020048ec5e23','01b924cd-2556-7347-8e5a-f2e3ac9abb0c','skipped',1,'native','system','default',1894759200000000,'schedule',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,0,0,'schedule:01b924cd-2556-7347-8e5a-f2e3ac9abb0c',1,0,'skipped',0,0,NULL,0,0,1894698001750000,1894759200000000,1894759200000000,NULL,NULL,1894698001750000,NULL,'','skipped_by_hand',0,NULL,'[]','http',NULL);
INSERT INTO "runs" VALUES('01b924cd-2556-7e80-872b-c41ed9c98c23','01b924cd-2556-7658-95dd-c0e747fbb3b4','edited twice',2,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',3,0,6,'schedule:01b924cd-2556-7658-95dd-c0e747fbb3b4',1,0,'queued',0,0,NULL,0,0,1894698001750000,1894698001750000,1894698001750000,NULL,NULL,NULL,NULL,'','',0,NULL,'[]','http',NULL);
INSERT INTO "runs" VALUES('2c1f8d68-d265-503e-a58e-815d23d36aa6','01b924cd-2556-7ba6-8ad7-aea861076dc3','task',1,'native','system','default',NULL,'manual',NULL,'',NULL,'task','{"kind":"task","name":"reports.nightly","args":{"day":1}}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":300000000,"on_lost":"retry","pause_on_gone":true}',0,0,0,'schedule:01b924cd-2556-7ba6-8ad7-aea861076dc3',1,0,'queued',0,0,NULL,0,0,1894698001750000,1894698001750000,1894698001750000,NULL,NULL,NULL,NULL,'','',0,NULL,'[]','task:reports.nightly',NULL);
INSERT INTO "runs" VALUES('01b924cd-2556-733f-8087-35bf548914ef','01b924cd-2556-7558-bbed-beff8de4ab47','every',1,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,0,0,'schedule:01b924cd-2556-7558-bbed-beff8de4ab47',1,0,'queued',0,0,NULL,0,0,1894698001750000,1894698001750000,1894698001750000,NULL,NULL,NULL,NULL,'','',0,NULL,'[]','http',NULL);
INSERT INTO "runs" VALUES('01b924cd-2556-78a2-811e-24d9eaeb999b','01b924cd-2556-7e3b-b171-f4611674518d','deleted',1,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,0,0,'schedule:01b924cd-2556-7e3b-b171-f4611674518d',1,0,'canceled',0,0,NULL,0,0,1894698001750000,1894698001750000,1894698001750000,NULL,NULL,1894698001750000,NULL,'','schedule_deleted',0,NULL,'[]','http',NULL);
INSERT INTO "runs" VALUES('01b924cd-2556-732b-8467-8cce6b8c290d',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'task','{"kind":"task","name":"reports.nightly","args":{"x":[1,null]}}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":300000000,"on_lost":"retry","pause_on_gone":true}',0,0,0,NULL,1,0,'queued',0,0,NULL,0,0,1894698001750000,1894698001750000,1894698001750000,NULL,NULL,NULL,NULL,'','',0,NULL,'[]','task:reports.nightly',NULL);
INSERT INTO "runs" VALUES('ended-succeeded','daily','daily',1,'native','system','default',1894694401750000,'schedule',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,0,0,'schedule:daily',1,0,'succeeded',0,0,NULL,0,0,1894694401750000,1894694401750000,1894694401750000,NULL,NULL,1894694461750000,NULL,'','',0,NULL,'[]','http',NULL);
INSERT INTO "runs" VALUES('ended-failed','daily','daily',1,'native','system','default',1894690801750000,'schedule',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,0,0,'schedule:daily',1,0,'failed',0,0,NULL,0,0,1894690801750000,1894690801750000,1894690801750000,NULL,NULL,1894690861750000,NULL,'it failed','',0,NULL,'[]','http',NULL);
INSERT INTO "runs" VALUES('ended-timeout','daily','daily',1,'native','system','default',1894687201750000,'schedule',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,0,0,'schedule:daily',1,0,'timeout',0,0,NULL,0,0,1894687201750000,1894687201750000,1894687201750000,NULL,NULL,1894687261750000,NULL,'it timeout','',0,NULL,'[]','http',NULL);
INSERT INTO "runs" VALUES('ended-canceled','daily','daily',1,'native','system','default',1894683601750000,'schedule',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,0,0,'schedule:daily',1,0,'canceled',0,0,NULL,0,0,1894683601750000,1894683601750000,1894683601750000,NULL,NULL,1894683661750000,NULL,'it canceled','',0,NULL,'[]','http',NULL);
INSERT INTO "runs" VALUES('ended-skipped','daily','daily',1,'native','system','default',1894680001750000,'schedule',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,0,0,'schedule:daily',1,0,'skipped',0,0,NULL,0,0,1894680001750000,1894680001750000,1894680001750000,NULL,NULL,1894680061750000,NULL,'it skipped','overlap',0,NULL,'[]','http',NULL);
INSERT INTO "runs" VALUES('ended-missed','daily','daily',1,'native','system','default',1894676401750000,'schedule',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,0,0,'schedule:daily',1,0,'missed',0,0,NULL,0,0,1894676401750000,1894676401750000,1894676401750000,NULL,NULL,1894676461750000,NULL,'it missed','',4,1894676461750000,'[]','http',NULL);
INSERT INTO "runs" VALUES('ended-unknown','daily','daily',1,'native','system','default',1894672801750000,'schedule',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,0,0,'schedule:daily',1,0,'unknown',0,0,NULL,0,0,1894672801750000,1894672801750000,1894672801750000,NULL,NULL,1894672861750000,NULL,'it unknown','',0,NULL,'[]','http',NULL);
INSERT INTO "runs" VALUES('lived-plain','daily','daily',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',50,0,100,NULL,1,0,'succeeded',1,1,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,1894698001750000,1894698001750000,1894698003750000,'{"status":200,"body":"ok"}','','',0,NULL,'[{"number":1,"fence":1,"node":"node-1","started_at":"2030-01-15T09:00:01.750000Z","finished_at":"2030-01-15T09:00:03.750000Z","end":"succeeded"}]','http',NULL);
INSERT INTO "runs" VALUES('lived-again','daily','daily',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',50,0,100,NULL,1,0,'succeeded',2,2,NULL,0,0,1894698000000000,1894698000000000,1894698005750000,1894698006750000,1894698003750000,1894698006750000,'{"status":200,"body":"ok"}','','',0,NULL,'[{"number":1,"fence":1,"node":"node-1","started_at":"2030-01-15T09:00:03.750000Z","finished_at":"2030-01-15T09:00:04.750000Z","end":"failed","error":"it ended as failed"},{"number":2,"fence":2,"node":"node-2","started_at":"2030-01-15T09:00:06.750000Z","finished_at":"2030-01-15T09:00:06.750000Z","end":"succeeded"}]','http',NULL);
INSERT INTO "runs" VALUES('lived-lost','daily','daily',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',50,0,100,NULL,1,0,'running',2,2,'node-2',0,0,1894698000000000,1894698000000000,1894698011750000,1894698011750000,1894698006750000,NULL,NULL,'','',0,NULL,'[{"number":1,"fence":1,"node":"node-3","started_at":"2030-01-15T09:00:06.750000Z","finished_at":"2030-01-15T09:00:11.750000Z","end":"lost","error":"the node that held this run stopped beating"}]','http',NULL);
INSERT INTO "runs" VALUES('flow',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'flow','{"kind":"flow","name":"pipeline-2","input":{"text":"น้ำ 水 🔔 %_''\"\\ \n\t","":"empty name","dotted.key":[],"empty":{},"nothing":null,"true":true,"false":false,"zero":0,"large":9223372036854775808,"small":-1099511627776,"fraction":0.1,"tiny":5e-324,"huge":1e+23,"nested":{"list":[1,2.5,null,true,"x",{"deep":[[]]}]}}}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',60,0,120,NULL,1,0,'running',1,1,'node-1',0,0,1894698000000000,1894698000000000,1894698000000000,1894698011750000,1894698011750000,NULL,NULL,'','',0,NULL,'[]','flow:pipeline-2',NULL);
INSERT INTO "runs" VALUES('step-1',NULL,'',0,'native','system','default',NULL,'child','flow','step 1',NULL,'task','{"kind":"task","name":"reports.nightly","args":{"text":"น้ำ 水 🔔 %_''\"\\ \n\t","":"empty name","dotted.key":[],"empty":{},"nothing":null,"true":true,"false":false,"zero":0,"large":9223372036854775808,"small":-1099511627776,"fraction":0.1,"tiny":5e-324,"huge":1e+23,"nested":{"list":[1,2.5,null,true,"x",{"deep":[[]]}]}}}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',61,0,122,NULL,1,0,'succeeded',1,1,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,1894698011750000,1894698011750000,1894698011750000,'{"status":200,"body":"ok"}','','',0,NULL,'[{"number":1,"fence":1,"node":"node-2","started_at":"2030-01-15T09:00:11.750000Z","finished_at":"2030-01-15T09:00:11.750000Z","end":"succeeded"}]','task:reports.nightly',NULL);
INSERT INTO "runs" VALUES('step-2',NULL,'',0,'native','system','default',NULL,'child','flow','step 2',NULL,'task','{"kind":"task","name":"reports.nightly","args":{"text":"น้ำ 水 🔔 %_''\"\\ \n\t","":"empty name","dotted.key":[],"empty":{},"nothing":null,"true":true,"false":false,"zero":0,"large":9223372036854775808,"small":-1099511627776,"fraction":0.1,"tiny":5e-324,"huge":1e+23,"nested":{"list":[1,2.5,null,true,"x",{"deep":[[]]}]}}}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',61,0,122,NULL,1,0,'running',1,1,'node-2',1,1,1894698000000000,1894698000000000,1894698000000000,1894698011750000,1894698011750000,NULL,NULL,'','canceled_by_hand',0,NULL,'[]','task:reports.nightly',NULL);
INSERT INTO "runs" VALUES('own-0','queueing','queueing',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"queue","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',40,0,80,'schedule:queueing',1,0,'running',1,1,'node-1',0,0,1894698000000000,1894698000000000,1894698000000000,1894698011750000,1894698011750000,NULL,NULL,'','',0,NULL,'[]','http',NULL);
INSERT INTO "runs" VALUES('own-1','queueing','queueing',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"queue","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',40,0,80,'schedule:queueing',1,1,'queued',0,0,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,NULL,NULL,NULL,NULL,'','',0,NULL,'[]','http',NULL);
INSERT INTO "runs" VALUES('own-2','queueing','queueing',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"queue","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',40,0,80,'schedule:queueing',1,1,'queued',0,0,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,NULL,NULL,NULL,NULL,'','',0,NULL,'[]','http',NULL);
INSERT INTO "runs" VALUES('shared-0',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',39,0,78,'shared key',2,0,'running',1,1,'node-1',0,0,1894698000000000,1894698000000000,1894698000000000,1894698011750000,1894698011750000,NULL,NULL,'','',0,NULL,'[]','http',NULL);
INSERT INTO "runs" VALUES('shared-1',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',39,0,78,'shared key',2,0,'queued',1,1,NULL,0,0,1894698000000000,1894698000000000,1894701611750000,1894698011750000,1894698011750000,NULL,NULL,'it ended as failed','',0,NULL,'[{"number":1,"fence":1,"node":"node-1","started_at":"2030-01-15T09:00:11.750000Z","finished_at":"2030-01-15T09:00:11.750000Z","end":"failed","error":"it ended as failed"}]','http',NULL);
INSERT INTO "runs" VALUES('shared-2',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',39,0,78,'shared key',2,1,'queued',0,0,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,NULL,NULL,NULL,NULL,'','',0,NULL,'[]','http',NULL);
INSERT INTO "runs" VALUES('shared-3',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',39,0,78,'shared key',2,1,'queued',0,0,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,NULL,NULL,NULL,NULL,'','',0,NULL,'[]','http',NULL);
INSERT INTO "runs" VALUES('retrying',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',38,0,76,NULL,1,0,'queued',0,0,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,NULL,NULL,NULL,NULL,'','',0,NULL,'[]','http',NULL);
INSERT INTO "runs" VALUES('later',NULL,'',0,'native','system','default',NULL,'manual',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,0,0,NULL,1,0,'queued',0,0,NULL,0,0,1894698000000000,1894698000000000,1894701611750000,NULL,NULL,NULL,NULL,'','',0,NULL,'[]','http',NULL);
INSERT INTO "runs" VALUES('orphan','elsewhere','elsewhere',0,'native','system','default',1894698001750000,'manual',NULL,'',NULL,'http','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,0,0,'schedule:elsewhere',1,0,'failed',0,0,NULL,0,0,1894698000000000,1894698000000000,1894698000000000,NULL,NULL,1894698001750000,NULL,'','',0,NULL,'[]','http',NULL);
CREATE TABLE schedules (
	id VARCHAR(255) NOT NULL, 
	namespace VARCHAR(255) NOT NULL, 
	name TEXT NOT NULL, 
	owner_type VARCHAR(64) NOT NULL, 
	owner_id VARCHAR(255) NOT NULL, 
	kind VARCHAR(64) NOT NULL, 
	"trigger" TEXT NOT NULL, 
	target TEXT NOT NULL, 
	policy TEXT NOT NULL, 
	priority BIGINT NOT NULL, 
	labels TEXT NOT NULL, 
	enabled SMALLINT NOT NULL, 
	pause_note TEXT NOT NULL, 
	pause_until BIGINT, 
	depends_on TEXT, 
	door_data TEXT NOT NULL, 
	next_slot BIGINT, 
	next_run_at BIGINT, 
	last_slot BIGINT, 
	last_enqueued_at BIGINT, 
	last_run_at BIGINT, 
	last_status VARCHAR(64), 
	last_error TEXT NOT NULL, 
	last_success_at BIGINT, 
	fired_count BIGINT NOT NULL, 
	purged_until BIGINT, 
	version BIGINT NOT NULL, 
	created_at BIGINT NOT NULL, 
	created_by TEXT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	updated_by TEXT NOT NULL, 
	deleted_at BIGINT, 
	PRIMARY KEY (id)
);
INSERT INTO "schedules" VALUES('full','ksana','ทดสอบ 测试 🔔 %_''"\','user','alice','http','{"kind":"every","every":"PT1M30S","anchor":"2030-01-15T09:00:00.000007Z","jitter":"PT30S","start_at":"2030-01-15T09:00:00Z","end_at":"2030-02-21T21:00:00Z","max_runs":12345,"exclude":[{"dates":["2030-12-25"]}]}','{"kind":"http","url":"https://example.com/ü?q=%20","method":"PATCH","headers":{"X-One":"1","X-Two":"ä"},"body":"{\"text\": \"ก \\n\"}","expected_status":[200,204],"signing_secrets":["whsec_b25l","whsec_dHdv"],"verify_tls":false}','{"misfire":"all","misfire_grace":1000001,"catch_up_limit":7,"overlap":"queue","max_concurrent_runs":3,"burst_allowed":true,"max_retries":9,"retry_backoff":1500000,"backoff":"exponential","backoff_cap":172800000000,"timeout":3000000,"on_lost":"stop","pause_on_gone":false,"concurrency_key":"shared 🔔","delivery":[{"channel":"inbox","on":["always"]},{"channel":"webhook","to":"https://example.com/ü?q=%20","on":["failure","recovery"],"language":"zh","signing_secrets":["whsec_b25l","whsec_dHdv"],"late_after":300000001,"quiet":{"start":"22:00","end":"07:30","zone":"Asia/Bangkok","but":["failure","late"]},"digest":{"every":"weekly","at":"09:15","weekday":4,"zone":"America/New_York","but":["failure"]}}]}',-5,'{"team":"ops","bare":null,"":"empty name"}',0,'lunch',1894701600000000,'{"schedule_id":"other","within":300000000}','{"every":"90s","nested":{"list":[1,2.5,null,true,"x"]}}',1894698060000007,1894698120000007,1894697940000000,1894697999000000,1894697998000000,'timeout','it took too long',1894694400000000,42,1894611600000000,17,1894525200000000,'user:alice',1894697999999993,'key:k1',NULL);
INSERT INTO "schedules" VALUES('schedule-00003','native','schedule 3','system','default','http','{"kind":"every","every":"PT1M","anchor":"2030-01-15T09:00:00Z"}','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,'{}',1,'',NULL,NULL,'{}',1894698060000000,1894698060000000,1894698000000000,1894698001250000,NULL,NULL,'',NULL,1,NULL,1,1894698000000000,'',1894698000000000,'',NULL);
INSERT INTO "schedules" VALUES('schedule-00004','native','schedule 4','user','bob','http','{"kind":"every","every":"PT1M","anchor":"2030-01-15T09:00:00Z"}','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,'{"a":"b"}',0,'',NULL,NULL,'{}',NULL,NULL,NULL,NULL,NULL,NULL,'',NULL,0,NULL,1,1894698000000000,'',1894698000000000,'',NULL);
INSERT INTO "schedules" VALUES('schedule-00005','native','schedule 5','system','default','http','{"kind":"every","every":"PT1M","anchor":"2030-01-15T09:00:00Z"}','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,'{}',0,'',NULL,NULL,'{}',NULL,NULL,NULL,NULL,NULL,NULL,'',NULL,0,NULL,2,1894698000000000,'',1894698000000000,'user:alice',1894698000000000);
INSERT INTO "schedules" VALUES('01b924cd-2556-7446-8be9-cc81237751aa','native','cron','system','default','http','{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,'{"team":"ops"}',1,'',NULL,NULL,'{}',1894759200000000,1894759200000000,NULL,NULL,NULL,NULL,'',NULL,0,NULL,1,1894698001750000,'key:configured',1894698001750000,'key:configured',NULL);
INSERT INTO "schedules" VALUES('01b924cd-2556-7569-9dad-9d1480b65386','native','once','system','default','http','{"kind":"once","at":"2030-02-01T10:00:00Z","timezone":"UTC"}','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,'{}',1,'',NULL,NULL,'{}',1896170400000000,1896170400000000,NULL,NULL,NULL,NULL,'',NULL,0,NULL,1,1894698001750000,'key:configured',1894698001750000,'key:configured',NULL);
INSERT INTO "schedules" VALUES('01b924cd-2556-7558-bbed-beff8de4ab47','native','every','system','default','http','{"kind":"every","every":"PT15M","anchor":"2030-01-15T09:00:01.750000Z"}','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,'{}',1,'',NULL,NULL,'{}',1894698901750000,1894698901750000,NULL,NULL,NULL,NULL,'',NULL,0,NULL,1,1894698001750000,'key:configured',1894698001750000,'key:configured',NULL);
INSERT INTO "schedules" VALUES('01b924cd-2556-7ba6-8ad7-aea861076dc3','native','task','system','default','task','{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}','{"kind":"task","name":"reports.nightly","args":{"day":1}}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":300000000,"on_lost":"retry","pause_on_gone":true}',0,'{}',1,'',NULL,NULL,'{}',1894759200000000,1894759200000000,NULL,NULL,NULL,NULL,'',NULL,0,NULL,1,1894698001750000,'key:configured',1894698001750000,'key:configured',NULL);
INSERT INTO "schedules" VALUES('01b924cd-2556-7f38-9b0b-a905b99de255','native','flow','system','default','flow','{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}','{"kind":"flow","name":"pipeline-2"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":86400000000,"on_lost":"retry","pause_on_gone":true}',0,'{}',1,'',NULL,NULL,'{}',1894759200000000,1894759200000000,NULL,NULL,NULL,NULL,'',NULL,0,NULL,1,1894698001750000,'key:configured',1894698001750000,'key:configured',NULL);
INSERT INTO "schedules" VALUES('01b924cd-2556-70d2-8879-a91b1c670ea9','native','paused','system','default','http','{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,'{}',0,'lunch',1894752000000000,NULL,'{}',NULL,NULL,NULL,NULL,NULL,NULL,'',NULL,0,NULL,2,1894698001750000,'key:configured',1894698001750000,'key:configured',NULL);
INSERT INTO "schedules" VALUES('01b924cd-2556-7fdb-840d-8f17972651da','native','moved','system','default','http','{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,'{}',1,'',NULL,NULL,'{}',1894759200000000,1894710896000000,NULL,NULL,NULL,NULL,'',NULL,0,NULL,2,1894698001750000,'key:configured',1894698001750000,'key:configured',NULL);
INSERT INTO "schedules" VALUES('01b924cd-2556-7ca2-b8c8-eecabf00188d','native','rescheduled','system','default','http','{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,'{}',1,'',NULL,NULL,'{}',1894842123456789,1894842123456789,NULL,NULL,NULL,NULL,'',NULL,0,NULL,2,1894698001750000,'key:configured',1894698001750000,'key:configured',NULL);
INSERT INTO "schedules" VALUES('01b924cd-2556-7347-8e5a-f2e3ac9abb0c','native','skipped','system','default','http','{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,'{}',1,'',NULL,NULL,'{}',1894845600000000,1894845600000000,1894759200000000,NULL,NULL,NULL,'',NULL,0,NULL,2,1894698001750000,'key:configured',1894698001750000,'key:configured',NULL);
INSERT INTO "schedules" VALUES('01b924cd-2556-7e3b-b171-f4611674518d','native','deleted','system','default','http','{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,'{}',0,'',NULL,NULL,'{}',NULL,NULL,NULL,NULL,NULL,NULL,'',NULL,0,NULL,2,1894698001750000,'key:configured',1894698001750000,'key:configured',1894698001750000);
INSERT INTO "schedules" VALUES('01b924cd-2556-7658-95dd-c0e747fbb3b4','native','edited twice','system','default','http','{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',3,'{}',1,'',NULL,NULL,'{}',1894759200000000,1894759200000000,NULL,NULL,NULL,NULL,'',NULL,0,NULL,2,1894698001750000,'key:configured',1894698001750000,'key:configured',NULL);
INSERT INTO "schedules" VALUES('daily','native','daily','system','default','http','{"kind":"every","every":"P1D","anchor":"2030-01-15T09:00:00Z"}','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,'{}',1,'',NULL,NULL,'{}',1894784400000000,1894784400000000,NULL,NULL,1894698003750000,'succeeded','',1894698006750000,0,NULL,1,1894698000000000,'',1894698000000000,'',NULL);
INSERT INTO "schedules" VALUES('queueing','native','queueing','system','default','http','{"kind":"every","every":"PT1M","anchor":"2030-01-15T09:00:00Z"}','{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}','{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"queue","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}',0,'{}',1,'',NULL,NULL,'{}',1894698060000000,1894698060000000,NULL,NULL,NULL,NULL,'',NULL,0,NULL,1,1894698000000000,'',1894698000000000,'',NULL);
CREATE TABLE sql_changes (
	id INTEGER NOT NULL, 
	at BIGINT NOT NULL, 
	actor TEXT NOT NULL, 
	schedule_id VARCHAR(255) NOT NULL, 
	changes TEXT NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE store_facts (
	name VARCHAR(64) NOT NULL, 
	value BIGINT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "store_facts" VALUES('epoch',0);
INSERT INTO "store_facts" VALUES('min_revision',2);
INSERT INTO "store_facts" VALUES('rolled_until',0);
CREATE INDEX schedules_created ON schedules (created_at, id) WHERE deleted_at IS NULL;
CREATE INDEX schedules_due ON schedules (next_run_at, id) WHERE enabled = 1 AND deleted_at IS NULL AND next_run_at IS NOT NULL;
CREATE INDEX schedules_named ON schedules (name, id) WHERE deleted_at IS NULL;
CREATE INDEX schedules_owned ON schedules (owner_type, owner_id, deleted_at, enabled);
CREATE INDEX runs_blocked ON runs (concurrency_key, rank DESC, available_at, planned_at, id) WHERE status = 'queued' AND blocked = 1;
CREATE INDEX runs_claimable ON runs (rank DESC, available_at, planned_at, id) WHERE status = 'queued' AND blocked = 0;
CREATE INDEX runs_held ON runs (holder) WHERE holder IS NOT NULL;
CREATE INDEX runs_active_by_key ON runs (concurrency_key, created_at, id, blocked) WHERE status IN ('queued', 'running');
CREATE INDEX runs_by_schedule ON runs (schedule_id, created_at, id);
CREATE INDEX runs_by_status ON runs (status, created_at, id);
CREATE INDEX runs_created ON runs (created_at, id);
CREATE INDEX runs_ended ON runs (finished_at, id) WHERE finished_at IS NOT NULL;
CREATE INDEX runs_planned ON runs (planned_at, id);
CREATE INDEX runs_waiting_by_schedule ON runs (schedule_id) WHERE status = 'queued';
CREATE INDEX audit_by_object ON audit (object_id, number);
CREATE INDEX audit_by_owner ON audit (owner, number);
CREATE INDEX requests_expiring ON requests (expires_at);
CREATE INDEX runs_by_parent ON runs (parent_id, created_at, id) WHERE parent_id IS NOT NULL;
CREATE VIEW cb_schedule_metrics AS
SELECT runs.id AS id, runs.schedule_id, batches.claimed_at, batches.node_id AS claimed_by_worker_id,
  batches.enqueued_at, batches.duration_ms, 1 AS success, NULL AS error_message
FROM runs JOIN fire_batches AS batches ON batches.id = runs.batch_id
UNION ALL
SELECT failures.batch_id || ':' || failures.schedule_id, failures.schedule_id, batches.claimed_at,
  batches.node_id, batches.enqueued_at, batches.duration_ms, 0, failures.error
FROM fire_failures AS failures JOIN fire_batches AS batches ON batches.id = failures.batch_id;
CREATE VIEW cb_schedule_templates AS
SELECT 'Hourly' AS name, '@hourly' AS cron_spec, 'At the start of every hour' AS description
UNION ALL SELECT 'Daily Midnight', '0 0 * * *', 'Every day at midnight'
UNION ALL SELECT 'Daily 9 AM', '0 9 * * *', 'Every day at 9 AM'
UNION ALL SELECT 'Weekly Monday 8 AM', '0 8 * * 1', 'Every Monday at 8 AM';
CREATE INDEX runs_by_source ON runs (needs, created_at, id) WHERE kind = 'sync';
CREATE INDEX deliveries_pending ON deliveries (available_at, id) WHERE state = 'pending';
CREATE INDEX deliveries_ended ON deliveries (finished_at, id) WHERE finished_at IS NOT NULL;
CREATE INDEX deliveries_by_run ON deliveries (run_id);
CREATE INDEX deliveries_by_owner ON deliveries (owner_type, owner_id, created_at, id);
CREATE INDEX deliveries_by_state ON deliveries (state, created_at, id);
CREATE INDEX deliveries_created ON deliveries (created_at, id);
CREATE INDEX inbox_by_owner ON inbox (owner_type, owner_id, created_at, id);
CREATE INDEX inbox_created ON inbox (created_at, id);
CREATE INDEX inbox_by_run ON inbox (run_id);
CREATE INDEX run_tallies_by_quarter ON run_tallies (quarter);
CREATE INDEX run_lags_by_quarter ON run_lags (quarter);
CREATE INDEX schedules_troubled ON schedules (id) WHERE deleted_at IS NULL AND (enabled = 0 OR last_status <> 'succeeded');
COMMIT;
