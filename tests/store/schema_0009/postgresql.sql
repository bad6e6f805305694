




CREATE FUNCTION public.cb_schedules_change() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
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
END $$;



CREATE FUNCTION public.chimes_cron_spec(trigger text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    AS $$
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
END $$;





CREATE TABLE public.api_keys (
    id character varying(255) NOT NULL COLLATE pg_catalog."C",
    secret_hash character varying(255) NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    role character varying(64) NOT NULL COLLATE pg_catalog."C",
    owner_type character varying(64) NOT NULL COLLATE pg_catalog."C",
    owner_id character varying(255) NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    created_by text NOT NULL COLLATE pg_catalog."C",
    expires_at bigint,
    last_used_at bigint,
    revoked_at bigint,
    scopes text DEFAULT '[]'::text NOT NULL COLLATE pg_catalog."C"
);



CREATE TABLE public.audit (
    number bigint NOT NULL,
    at bigint NOT NULL,
    actor text NOT NULL COLLATE pg_catalog."C",
    door character varying(64) NOT NULL COLLATE pg_catalog."C",
    verb character varying(64) NOT NULL COLLATE pg_catalog."C",
    object_kind character varying(64) NOT NULL COLLATE pg_catalog."C",
    object_id character varying(255) NOT NULL COLLATE pg_catalog."C",
    owner character varying(330) NOT NULL COLLATE pg_catalog."C",
    changes text NOT NULL COLLATE pg_catalog."C",
    reason text NOT NULL COLLATE pg_catalog."C",
    address text NOT NULL COLLATE pg_catalog."C",
    allowed smallint NOT NULL,
    previous_hash character varying(64) NOT NULL COLLATE pg_catalog."C",
    hash character varying(64) NOT NULL COLLATE pg_catalog."C"
);



CREATE TABLE public.audit_head (
    id smallint NOT NULL,
    number bigint NOT NULL,
    hash character varying(64) NOT NULL COLLATE pg_catalog."C"
);



CREATE UNLOGGED TABLE public.buckets (
    name character varying(255) NOT NULL COLLATE pg_catalog."C",
    tokens double precision NOT NULL,
    at bigint NOT NULL,
    granted bigint NOT NULL,
    full_at bigint NOT NULL
)
WITH (fillfactor='50');



CREATE TABLE public.fire_batches (
    id bigint NOT NULL,
    node_id character varying(255) NOT NULL COLLATE pg_catalog."C",
    claimed_at bigint NOT NULL,
    enqueued_at bigint NOT NULL,
    duration_ms double precision NOT NULL
);



CREATE TABLE public.fire_failures (
    batch_id bigint NOT NULL,
    schedule_id character varying(255) NOT NULL COLLATE pg_catalog."C",
    error text NOT NULL COLLATE pg_catalog."C"
);



CREATE TABLE public.runs (
    id character varying(255) NOT NULL COLLATE pg_catalog."C",
    schedule_id character varying(255) COLLATE pg_catalog."C",
    schedule_name text NOT NULL COLLATE pg_catalog."C",
    schedule_version bigint NOT NULL,
    namespace character varying(255) NOT NULL COLLATE pg_catalog."C",
    owner_type character varying(64) NOT NULL COLLATE pg_catalog."C",
    owner_id character varying(255) NOT NULL COLLATE pg_catalog."C",
    slot bigint,
    origin character varying(64) NOT NULL COLLATE pg_catalog."C",
    parent_id character varying(255) COLLATE pg_catalog."C",
    step text NOT NULL COLLATE pg_catalog."C",
    retry_of character varying(255) COLLATE pg_catalog."C",
    kind character varying(64) NOT NULL COLLATE pg_catalog."C",
    target text NOT NULL COLLATE pg_catalog."C",
    policy text NOT NULL COLLATE pg_catalog."C",
    priority bigint NOT NULL,
    catch_up smallint NOT NULL,
    rank bigint NOT NULL,
    concurrency_key character varying(300) COLLATE pg_catalog."C",
    concurrency_limit bigint NOT NULL,
    blocked smallint NOT NULL,
    status character varying(64) NOT NULL COLLATE pg_catalog."C",
    attempt integer NOT NULL,
    fence bigint NOT NULL,
    holder character varying(255) COLLATE pg_catalog."C",
    started smallint NOT NULL,
    cancel_requested smallint NOT NULL,
    created_at bigint NOT NULL,
    planned_at bigint NOT NULL,
    available_at bigint NOT NULL,
    claimed_at bigint,
    started_at bigint,
    finished_at bigint,
    result text COLLATE pg_catalog."C",
    error text NOT NULL COLLATE pg_catalog."C",
    reason text NOT NULL COLLATE pg_catalog."C",
    missed_count bigint NOT NULL,
    missed_until bigint,
    attempts text NOT NULL COLLATE pg_catalog."C",
    needs character varying(300) DEFAULT 'http'::character varying NOT NULL COLLATE pg_catalog."C",
    batch_id bigint
)
WITH (fillfactor='70');



CREATE VIEW public.cb_schedule_metrics AS
 SELECT (runs.id)::text AS id,
    runs.schedule_id,
    ('1970-01-01 00:00:00+00'::timestamp with time zone + ((batches.claimed_at)::double precision * '00:00:00.000001'::interval)) AS claimed_at,
    (md5((batches.node_id)::text))::uuid AS claimed_by_worker_id,
    ('1970-01-01 00:00:00+00'::timestamp with time zone + ((batches.enqueued_at)::double precision * '00:00:00.000001'::interval)) AS enqueued_at,
    batches.duration_ms,
    true AS success,
    NULL::text AS error_message
   FROM (public.runs
     JOIN public.fire_batches batches ON ((batches.id = runs.batch_id)))
UNION ALL
 SELECT ((fire_failures.batch_id || ':'::text) || (fire_failures.schedule_id)::text) AS id,
    fire_failures.schedule_id,
    ('1970-01-01 00:00:00+00'::timestamp with time zone + ((fire_batches.claimed_at)::double precision * '00:00:00.000001'::interval)) AS claimed_at,
    (md5((fire_batches.node_id)::text))::uuid AS claimed_by_worker_id,
    ('1970-01-01 00:00:00+00'::timestamp with time zone + ((fire_batches.enqueued_at)::double precision * '00:00:00.000001'::interval)) AS enqueued_at,
    fire_batches.duration_ms,
    false AS success,
    fire_failures.error AS error_message
   FROM (public.fire_failures
     JOIN public.fire_batches ON ((fire_batches.id = fire_failures.batch_id)));



CREATE VIEW public.cb_schedule_templates AS
 SELECT 'Hourly'::text AS name,
    '@hourly'::text AS cron_spec,
    'At the start of every hour'::text AS description
UNION ALL
 SELECT 'Daily Midnight'::text AS name,
    '0 0 * * *'::text AS cron_spec,
    'Every day at midnight'::text AS description
UNION ALL
 SELECT 'Daily 9 AM'::text AS name,
    '0 9 * * *'::text AS cron_spec,
    'Every day at 9 AM'::text AS description
UNION ALL
 SELECT 'Weekly Monday 8 AM'::text AS name,
    '0 8 * * 1'::text AS cron_spec,
    'Every Monday at 8 AM'::text AS description;



CREATE TABLE public.schedules (
    id character varying(255) NOT NULL COLLATE pg_catalog."C",
    namespace character varying(255) NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    owner_type character varying(64) NOT NULL COLLATE pg_catalog."C",
    owner_id character varying(255) NOT NULL COLLATE pg_catalog."C",
    kind character varying(64) NOT NULL COLLATE pg_catalog."C",
    trigger text NOT NULL COLLATE pg_catalog."C",
    target text NOT NULL COLLATE pg_catalog."C",
    policy text NOT NULL COLLATE pg_catalog."C",
    priority bigint NOT NULL,
    labels text NOT NULL COLLATE pg_catalog."C",
    enabled smallint NOT NULL,
    pause_note text NOT NULL COLLATE pg_catalog."C",
    pause_until bigint,
    depends_on text COLLATE pg_catalog."C",
    door_data text NOT NULL COLLATE pg_catalog."C",
    next_slot bigint,
    next_run_at bigint,
    last_slot bigint,
    last_enqueued_at bigint,
    last_run_at bigint,
    last_status character varying(64) COLLATE pg_catalog."C",
    last_error text NOT NULL COLLATE pg_catalog."C",
    last_success_at bigint,
    fired_count bigint NOT NULL,
    purged_until bigint,
    version bigint NOT NULL,
    created_at bigint NOT NULL,
    created_by text NOT NULL COLLATE pg_catalog."C",
    updated_at bigint NOT NULL,
    updated_by text NOT NULL COLLATE pg_catalog."C",
    deleted_at bigint
)
WITH (fillfactor='70');



CREATE VIEW public.cb_schedules AS
 SELECT schedules.id,
    schedules.name,
    schedules.kind,
    public.chimes_cron_spec(schedules.trigger) AS cron_spec,
    ('1970-01-01 00:00:00+00'::timestamp with time zone + ((schedules.next_run_at)::double precision * '00:00:00.000001'::interval)) AS next_run_at,
    ('1970-01-01 00:00:00+00'::timestamp with time zone + ((schedules.last_slot)::double precision * '00:00:00.000001'::interval)) AS last_run_at,
    ('1970-01-01 00:00:00+00'::timestamp with time zone + ((schedules.last_enqueued_at)::double precision * '00:00:00.000001'::interval)) AS last_enqueued_at,
    (schedules.enabled = 1) AS enabled,
    ('1970-01-01 00:00:00+00'::timestamp with time zone + ((schedules.created_at)::double precision * '00:00:00.000001'::interval)) AS created_at,
    ('1970-01-01 00:00:00+00'::timestamp with time zone + ((GREATEST(schedules.updated_at, schedules.last_enqueued_at))::double precision * '00:00:00.000001'::interval)) AS updated_at
   FROM public.schedules
  WHERE (schedules.deleted_at IS NULL);



CREATE TABLE public.chimes_version (
    version_num character varying(32) NOT NULL
);



CREATE TABLE public.concurrency_keys (
    key character varying(300) NOT NULL COLLATE pg_catalog."C"
);



CREATE TABLE public.deliveries (
    id character varying(255) NOT NULL COLLATE pg_catalog."C",
    run_id character varying(255) NOT NULL COLLATE pg_catalog."C",
    schedule_id character varying(255) COLLATE pg_catalog."C",
    schedule_name text NOT NULL COLLATE pg_catalog."C",
    owner_type character varying(64) NOT NULL COLLATE pg_catalog."C",
    owner_id character varying(255) NOT NULL COLLATE pg_catalog."C",
    channel character varying(64) NOT NULL COLLATE pg_catalog."C",
    recipient text NOT NULL COLLATE pg_catalog."C",
    occasion character varying(64) NOT NULL COLLATE pg_catalog."C",
    state character varying(64) NOT NULL COLLATE pg_catalog."C",
    attempts integer NOT NULL,
    fence bigint NOT NULL,
    progress integer NOT NULL,
    created_at bigint NOT NULL,
    available_at bigint NOT NULL,
    finished_at bigint,
    error text NOT NULL COLLATE pg_catalog."C",
    code character varying(64) NOT NULL COLLATE pg_catalog."C",
    receipt text NOT NULL COLLATE pg_catalog."C"
);



CREATE TABLE public.inbox (
    id character varying(255) NOT NULL COLLATE pg_catalog."C",
    owner_type character varying(64) NOT NULL COLLATE pg_catalog."C",
    owner_id character varying(255) NOT NULL COLLATE pg_catalog."C",
    run_id character varying(255) COLLATE pg_catalog."C",
    schedule_id character varying(255) COLLATE pg_catalog."C",
    schedule_name text NOT NULL COLLATE pg_catalog."C",
    title text NOT NULL COLLATE pg_catalog."C",
    text text NOT NULL COLLATE pg_catalog."C",
    status character varying(64) NOT NULL COLLATE pg_catalog."C",
    artifacts text NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    read_at bigint,
    starred smallint NOT NULL,
    archived_at bigint,
    snoozed_until bigint
);



CREATE TABLE public.kept_states (
    name character varying(300) NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL COLLATE pg_catalog."C",
    changed_at bigint NOT NULL,
    run_id character varying(255) NOT NULL COLLATE pg_catalog."C"
);



CREATE TABLE public.node_lags (
    quarter bigint NOT NULL,
    node character varying(255) NOT NULL COLLATE pg_catalog."C",
    bracket smallint NOT NULL,
    number bigint NOT NULL
);



CREATE TABLE public.node_marks (
    at bigint NOT NULL,
    node character varying(255) NOT NULL COLLATE pg_catalog."C",
    joined smallint NOT NULL,
    version character varying(64) NOT NULL COLLATE pg_catalog."C"
);



CREATE TABLE public.nodes (
    id character varying(255) NOT NULL COLLATE pg_catalog."C",
    version character varying(64) NOT NULL COLLATE pg_catalog."C",
    roles text NOT NULL COLLATE pg_catalog."C",
    capacity integer NOT NULL,
    started_at bigint NOT NULL,
    heartbeat_at bigint NOT NULL,
    lease_until bigint NOT NULL,
    clock_offset double precision NOT NULL,
    offers text DEFAULT '[]'::text NOT NULL COLLATE pg_catalog."C",
    drain smallint DEFAULT '0'::smallint NOT NULL,
    facts text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C"
);



CREATE TABLE public.requests (
    scope character varying(255) NOT NULL COLLATE pg_catalog."C",
    request_key character varying(255) NOT NULL COLLATE pg_catalog."C",
    fingerprint text NOT NULL COLLATE pg_catalog."C",
    status integer NOT NULL,
    body text NOT NULL COLLATE pg_catalog."C",
    headers text NOT NULL COLLATE pg_catalog."C",
    expires_at bigint NOT NULL
);



CREATE TABLE public.run_lags (
    owner_type character varying(64) NOT NULL COLLATE pg_catalog."C",
    owner_id character varying(255) NOT NULL COLLATE pg_catalog."C",
    quarter bigint NOT NULL,
    bracket smallint NOT NULL,
    number bigint NOT NULL
);



CREATE TABLE public.run_logs (
    run_id character varying(255) NOT NULL COLLATE pg_catalog."C",
    number bigint NOT NULL,
    at bigint NOT NULL,
    level character varying(64) NOT NULL COLLATE pg_catalog."C",
    message text NOT NULL COLLATE pg_catalog."C"
);



CREATE TABLE public.run_tallies (
    owner_type character varying(64) NOT NULL COLLATE pg_catalog."C",
    owner_id character varying(255) NOT NULL COLLATE pg_catalog."C",
    quarter bigint NOT NULL,
    namespace character varying(255) NOT NULL COLLATE pg_catalog."C",
    kind character varying(64) NOT NULL COLLATE pg_catalog."C",
    origin character varying(64) NOT NULL COLLATE pg_catalog."C",
    status character varying(64) NOT NULL COLLATE pg_catalog."C",
    number bigint NOT NULL
);



CREATE TABLE public.sql_changes (
    id bigint NOT NULL,
    at bigint NOT NULL,
    actor text NOT NULL COLLATE pg_catalog."C",
    schedule_id character varying(255) NOT NULL COLLATE pg_catalog."C",
    changes text NOT NULL COLLATE pg_catalog."C"
);



CREATE SEQUENCE public.sql_changes_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;



ALTER SEQUENCE public.sql_changes_id_seq OWNED BY public.sql_changes.id;



CREATE TABLE public.store_facts (
    name character varying(64) NOT NULL COLLATE pg_catalog."C",
    value bigint NOT NULL
);



ALTER TABLE ONLY public.sql_changes ALTER COLUMN id SET DEFAULT nextval('public.sql_changes_id_seq'::regclass);



INSERT INTO public.api_keys VALUES
	('key-00001', 'sha256:abababababababababababababababababababababababababababababababab', 'for the tests', 'member', 'user', 'alice', 1894698000000000, 'system:default', NULL, NULL, NULL, '[]'),
	('key-00002', 'sha256:abababababababababababababababababababababababababababababababab', 'for the tests', 'member', 'user', 'alice', 1894698000000000, 'system:default', 1894698060000000, 1894698000000000, 1894698000000000, '["read","agent"]'),
	('cdr9jrchzpk6', '058549ad858c207db52268863a935004ba51078c3ec5eb8d03be1275a9ef601b', 'ci', 'member', 'system', 'default', 1894698001750000, 'key:configured', NULL, NULL, NULL, '[]');



INSERT INTO public.audit VALUES
	(1, 1894698000000000, 'user:alice', 'native', 'key', 'schedule', 'schedule-x', 'user:alice', '{"name":[null,"น้ำ 水 %_"],"priority":[0,5]}', 'because', '127.0.0.1', 1, '', '308592966016d8179f7112cc6768ce5e1e776b6244c222e593f76b52de714fcb'),
	(2, 1894698000000000, 'user:alice', 'native', 'create', 'schedule', 'schedule-x', 'user:alice', '{"name":[null,"น้ำ 水 %_"],"priority":[0,5]}', 'because', '127.0.0.1', 1, '308592966016d8179f7112cc6768ce5e1e776b6244c222e593f76b52de714fcb', 'a754391ee561b464ce6db8ff38d8cd7465e4ae19a66f2ed8de5a2c9df9fe3812'),
	(3, 1894698000000000, 'user:alice', 'native', 'create', 'schedule', 'schedule-x', 'user:alice', '{"name":[null,"น้ำ 水 %_"],"priority":[0,5]}', 'because', '127.0.0.1', 1, 'a754391ee561b464ce6db8ff38d8cd7465e4ae19a66f2ed8de5a2c9df9fe3812', '3fc046c47347d6633d6cf1a0981630cef6aeb79f7e7e6b8c30d7ddd62af5801c'),
	(4, 1894698000000000, 'user:alice', 'native', 'cancel', 'schedule', 'schedule-x', 'user:alice', '{"name":[null,"น้ำ 水 %_"],"priority":[0,5]}', 'because', '127.0.0.1', 1, '3fc046c47347d6633d6cf1a0981630cef6aeb79f7e7e6b8c30d7ddd62af5801c', '638b53084f08b0d0f1c9b15fce7516b7fcc509936c5b310f3ab21c35847ef39f'),
	(5, 1894698000000000, 'user:alice', 'native', 'run', 'schedule', 'schedule-x', 'user:alice', '{"name":[null,"น้ำ 水 %_"],"priority":[0,5]}', 'because', '127.0.0.1', 1, '638b53084f08b0d0f1c9b15fce7516b7fcc509936c5b310f3ab21c35847ef39f', 'dfa6686c7db89b09ebb84aa48aed561d7881bb38b941f50939d33f2a4e547272'),
	(6, 1894698000000000, 'user:alice', 'native', 'state', 'schedule', 'schedule-x', 'user:alice', '{"name":[null,"น้ำ 水 %_"],"priority":[0,5]}', 'because', '127.0.0.1', 1, 'dfa6686c7db89b09ebb84aa48aed561d7881bb38b941f50939d33f2a4e547272', '1376efe7f8e8fbe0dbf227680e8d1327381c3f99880f1bf60fc3433f2d4d90e4'),
	(7, 1894698001750000, 'key:configured', 'native', 'create', 'schedule', '01b924cd-2556-7446-8be9-cc81237751aa', 'system:default', '{"created_at":[null,"2030-01-15T09:00:01.750000Z"],"created_by":[null,"key:configured"],"enabled":[null,true],"id":[null,"01b924cd-2556-7446-8be9-cc81237751aa"],"labels":[null,{"team":"ops"}],"name":[null,"cron"],"namespace":[null,"native"],"next_run_at":[null,"2030-01-16T02:00:00Z"],"next_slot":[null,"2030-01-16T02:00:00Z"],"owner":[null,{"type":"system","id":"default"}],"policy":[null,{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}],"target":[null,{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}],"trigger":[null,{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}]}', '', '127.0.0.1', 1, '1376efe7f8e8fbe0dbf227680e8d1327381c3f99880f1bf60fc3433f2d4d90e4', '155da72cf392d0fb9bda02adf19eb84a089a40929b72b3d980c170a8778756a9'),
	(8, 1894698001750000, 'key:configured', 'native', 'create', 'schedule', '01b924cd-2556-7569-9dad-9d1480b65386', 'system:default', '{"created_at":[null,"2030-01-15T09:00:01.750000Z"],"created_by":[null,"key:configured"],"enabled":[null,true],"id":[null,"01b924cd-2556-7569-9dad-9d1480b65386"],"name":[null,"once"],"namespace":[null,"native"],"next_run_at":[null,"2030-02-01T10:00:00Z"],"next_slot":[null,"2030-02-01T10:00:00Z"],"owner":[null,{"type":"system","id":"default"}],"policy":[null,{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}],"target":[null,{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}],"trigger":[null,{"kind":"once","at":"2030-02-01T10:00:00Z","timezone":"UTC"}]}', '', '127.0.0.1', 1, '155da72cf392d0fb9bda02adf19eb84a089a40929b72b3d980c170a8778756a9', '715a55863da06ece9056e15153ac59e68566b82e62dc6b0e0e87bff623a3eb49'),
	(9, 1894698001750000, 'key:configured', 'native', 'create', 'schedule', '01b924cd-2556-7558-bbed-beff8de4ab47', 'system:default', '{"created_at":[null,"2030-01-15T09:00:01.750000Z"],"created_by":[null,"key:configured"],"enabled":[null,true],"id":[null,"01b924cd-2556-7558-bbed-beff8de4ab47"],"name":[null,"every"],"namespace":[null,"native"],"next_run_at":[null,"2030-01-15T09:15:01.750000Z"],"next_slot":[null,"2030-01-15T09:15:01.750000Z"],"owner":[null,{"type":"system","id":"default"}],"policy":[null,{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}],"target":[null,{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}],"trigger":[null,{"kind":"every","every":"PT15M","anchor":"2030-01-15T09:00:01.750000Z"}]}', '', '127.0.0.1', 1, '715a55863da06ece9056e15153ac59e68566b82e62dc6b0e0e87bff623a3eb49', '962f1bdba0388d6d775bca7a9771668e752df2c46ce6636a7e2d732eded7d7eb'),
	(10, 1894698001750000, 'key:configured', 'native', 'create', 'schedule', '01b924cd-2556-7ba6-8ad7-aea861076dc3', 'system:default', '{"created_at":[null,"2030-01-15T09:00:01.750000Z"],"created_by":[null,"key:configured"],"enabled":[null,true],"id":[null,"01b924cd-2556-7ba6-8ad7-aea861076dc3"],"name":[null,"task"],"namespace":[null,"native"],"next_run_at":[null,"2030-01-16T02:00:00Z"],"next_slot":[null,"2030-01-16T02:00:00Z"],"owner":[null,{"type":"system","id":"default"}],"policy":[null,{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":300000000,"on_lost":"retry","pause_on_gone":true}],"target":[null,{"kind":"task","name":"reports.nightly","args":{"day":1}}],"trigger":[null,{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}]}', '', '127.0.0.1', 1, '962f1bdba0388d6d775bca7a9771668e752df2c46ce6636a7e2d732eded7d7eb', '966ecaea399445df9ca68988c4cfc09801366f03a09c2f34644f11ac31dbf1d9'),
	(11, 1894698001750000, 'key:configured', 'native', 'create', 'schedule', '01b924cd-2556-7f38-9b0b-a905b99de255', 'system:default', '{"created_at":[null,"2030-01-15T09:00:01.750000Z"],"created_by":[null,"key:configured"],"enabled":[null,true],"id":[null,"01b924cd-2556-7f38-9b0b-a905b99de255"],"name":[null,"flow"],"namespace":[null,"native"],"next_run_at":[null,"2030-01-16T02:00:00Z"],"next_slot":[null,"2030-01-16T02:00:00Z"],"owner":[null,{"type":"system","id":"default"}],"policy":[null,{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":86400000000,"on_lost":"retry","pause_on_gone":true}],"target":[null,{"kind":"flow","name":"pipeline-2"}],"trigger":[null,{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}]}', '', '127.0.0.1', 1, '966ecaea399445df9ca68988c4cfc09801366f03a09c2f34644f11ac31dbf1d9', '9340db9f261a3f5dd176a7e2f8a0929ae8eb5dee6ca9f639a69a6b05ae4fb1a2'),
	(22, 1894698001750000, 'key:configured', 'native', 'update', 'schedule', '01b924cd-2556-7658-95dd-c0e747fbb3b4', 'system:default', '{"name":["edited","edited twice"],"priority":[null,3]}', '', '127.0.0.1', 1, '33be84c163b1fc0ee6f4812b4f9161e25e5665d8325cff8205537f8fe672329d', '0e5539feb9dfffbfa3b39874a509cd92fb6a5676d09c3ac7994a949a6c4bb945'),
	(23, 1894698001750000, 'key:configured', 'native', 'run', 'schedule', '01b924cd-2556-7658-95dd-c0e747fbb3b4', 'system:default', '{"run_id":"01b924cd-2556-7e80-872b-c41ed9c98c23"}', '', '127.0.0.1', 1, '0e5539feb9dfffbfa3b39874a509cd92fb6a5676d09c3ac7994a949a6c4bb945', '1508ae258a1ab825a1ae96008754d7254deaf92191e9acb1a563da0d297879ee'),
	(12, 1894698001750000, 'key:configured', 'native', 'create', 'schedule', '01b924cd-2556-70d2-8879-a91b1c670ea9', 'system:default', '{"created_at":[null,"2030-01-15T09:00:01.750000Z"],"created_by":[null,"key:configured"],"enabled":[null,true],"id":[null,"01b924cd-2556-70d2-8879-a91b1c670ea9"],"name":[null,"paused"],"namespace":[null,"native"],"next_run_at":[null,"2030-01-16T02:00:00Z"],"next_slot":[null,"2030-01-16T02:00:00Z"],"owner":[null,{"type":"system","id":"default"}],"policy":[null,{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}],"target":[null,{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}],"trigger":[null,{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}]}', '', '127.0.0.1', 1, '9340db9f261a3f5dd176a7e2f8a0929ae8eb5dee6ca9f639a69a6b05ae4fb1a2', '71c97683a571f89890156ffb9ff04b4b64006bdcfd0ba3957d1b0c9814ff80a8'),
	(13, 1894698001750000, 'key:configured', 'native', 'create', 'schedule', '01b924cd-2556-7fdb-840d-8f17972651da', 'system:default', '{"created_at":[null,"2030-01-15T09:00:01.750000Z"],"created_by":[null,"key:configured"],"enabled":[null,true],"id":[null,"01b924cd-2556-7fdb-840d-8f17972651da"],"name":[null,"moved"],"namespace":[null,"native"],"next_run_at":[null,"2030-01-16T02:00:00Z"],"next_slot":[null,"2030-01-16T02:00:00Z"],"owner":[null,{"type":"system","id":"default"}],"policy":[null,{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}],"target":[null,{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}],"trigger":[null,{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}]}', '', '127.0.0.1', 1, '71c97683a571f89890156ffb9ff04b4b64006bdcfd0ba3957d1b0c9814ff80a8', '585695dd434bb50e330dc09e6d796a474901528416330c471416fccc44d794b0'),
	(14, 1894698001750000, 'key:configured', 'native', 'create', 'schedule', '01b924cd-2556-7ca2-b8c8-eecabf00188d', 'system:default', '{"created_at":[null,"2030-01-15T09:00:01.750000Z"],"created_by":[null,"key:configured"],"enabled":[null,true],"id":[null,"01b924cd-2556-7ca2-b8c8-eecabf00188d"],"name":[null,"rescheduled"],"namespace":[null,"native"],"next_run_at":[null,"2030-01-16T02:00:00Z"],"next_slot":[null,"2030-01-16T02:00:00Z"],"owner":[null,{"type":"system","id":"default"}],"policy":[null,{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}],"target":[null,{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}],"trigger":[null,{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}]}', '', '127.0.0.1', 1, '585695dd434bb50e330dc09e6d796a474901528416330c471416fccc44d794b0', 'dc90e1467fe9ae1c11d28595ac1d997f772f0849597017c480069e8ff917cc84'),
	(15, 1894698001750000, 'key:configured', 'native', 'create', 'schedule', '01b924cd-2556-7347-8e5a-f2e3ac9abb0c', 'system:default', '{"created_at":[null,"2030-01-15T09:00:01.750000Z"],"created_by":[null,"key:configured"],"enabled":[null,true],"id":[null,"01b924cd-2556-7347-8e5a-f2e3ac9abb0c"],"name":[null,"skipped"],"namespace":[null,"native"],"next_run_at":[null,"2030-01-16T02:00:00Z"],"next_slot":[null,"2030-01-16T02:00:00Z"],"owner":[null,{"type":"system","id":"default"}],"policy":[null,{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}],"target":[null,{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}],"trigger":[null,{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}]}', '', '127.0.0.1', 1, 'dc90e1467fe9ae1c11d28595ac1d997f772f0849597017c480069e8ff917cc84', '726ff931b9932dfe6042ae03dfee95d928d60ab3433c6c7a30c5cfbaf6a8cf62'),
	(16, 1894698001750000, 'key:configured', 'native', 'create', 'schedule', '01b924cd-2556-7e3b-b171-f4611674518d', 'system:default', '{"created_at":[null,"2030-01-15T09:00:01.750000Z"],"created_by":[null,"key:configured"],"enabled":[null,true],"id":[null,"01b924cd-2556-7e3b-b171-f4611674518d"],"name":[null,"deleted"],"namespace":[null,"native"],"next_run_at":[null,"2030-01-16T02:00:00Z"],"next_slot":[null,"2030-01-16T02:00:00Z"],"owner":[null,{"type":"system","id":"default"}],"policy":[null,{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}],"target":[null,{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}],"trigger":[null,{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}]}', '', '127.0.0.1', 1, '726ff931b9932dfe6042ae03dfee95d928d60ab3433c6c7a30c5cfbaf6a8cf62', '15f3edd98bb12c0df8bfcc5144118661f118ac6d44dbaebe8f336787263b3d39'),
	(17, 1894698001750000, 'key:configured', 'native', 'create', 'schedule', '01b924cd-2556-7658-95dd-c0e747fbb3b4', 'system:default', '{"created_at":[null,"2030-01-15T09:00:01.750000Z"],"created_by":[null,"key:configured"],"enabled":[null,true],"id":[null,"01b924cd-2556-7658-95dd-c0e747fbb3b4"],"name":[null,"edited"],"namespace":[null,"native"],"next_run_at":[null,"2030-01-16T02:00:00Z"],"next_slot":[null,"2030-01-16T02:00:00Z"],"owner":[null,{"type":"system","id":"default"}],"policy":[null,{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}],"target":[null,{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}],"trigger":[null,{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}]}', '', '127.0.0.1', 1, '15f3edd98bb12c0df8bfcc5144118661f118ac6d44dbaebe8f336787263b3d39', '79a7024b06a4dd94e9ea5d8482d695b3dd8918ce9a85da7e3cf4a1945d6e2341'),
	(18, 1894698001750000, 'key:configured', 'native', 'pause', 'schedule', '01b924cd-2556-70d2-8879-a91b1c670ea9', 'system:default', '{"enabled":[true,false],"next_run_at":["2030-01-16T02:00:00Z",null],"next_slot":["2030-01-16T02:00:00Z",null],"pause_note":[null,"lunch"],"pause_until":[null,"2030-01-16T00:00:00Z"]}', 'lunch', '127.0.0.1', 1, '79a7024b06a4dd94e9ea5d8482d695b3dd8918ce9a85da7e3cf4a1945d6e2341', '3c1194dcaa2b841756c8879e156c0bc7c74edcfeb8388cc3af5834f87dd43c71'),
	(19, 1894698001750000, 'key:configured', 'native', 'move', 'schedule', '01b924cd-2556-7fdb-840d-8f17972651da', 'system:default', '{"next_run_at":["2030-01-16T02:00:00Z","2030-01-15T12:34:56Z"]}', '', '127.0.0.1', 1, '3c1194dcaa2b841756c8879e156c0bc7c74edcfeb8388cc3af5834f87dd43c71', '82fb52107d52737fe12dbf20b0f1ec374f6de9dc01df59d2f849f2e6ab7b68de'),
	(20, 1894698001750000, 'key:configured', 'native', 'reschedule', 'schedule', '01b924cd-2556-7ca2-b8c8-eecabf00188d', 'system:default', '{"next_run_at":["2030-01-16T02:00:00Z","2030-01-17T01:02:03.456789Z"],"next_slot":["2030-01-16T02:00:00Z","2030-01-17T01:02:03.456789Z"]}', '', '127.0.0.1', 1, '82fb52107d52737fe12dbf20b0f1ec374f6de9dc01df59d2f849f2e6ab7b68de', '1bc84c1f3db0fddf9714dce075c98249dde95d47b25dab95370abcb4d232848b'),
	(21, 1894698001750000, 'key:configured', 'native', 'skip', 'schedule', '01b924cd-2556-7347-8e5a-f2e3ac9abb0c', 'system:default', '{"next_run_at":["2030-01-16T02:00:00Z","2030-01-17T02:00:00Z"],"next_slot":["2030-01-16T02:00:00Z","2030-01-17T02:00:00Z"]}', 'holiday', '127.0.0.1', 1, '1bc84c1f3db0fddf9714dce075c98249dde95d47b25dab95370abcb4d232848b', '33be84c163b1fc0ee6f4812b4f9161e25e5665d8325cff8205537f8fe672329d'),
	(24, 1894698001750000, 'key:configured', 'native', 'run', 'schedule', '01b924cd-2556-7ba6-8ad7-aea861076dc3', 'system:default', '{"run_id":"2c1f8d68-d265-503e-a58e-815d23d36aa6"}', '', '127.0.0.1', 1, '1508ae258a1ab825a1ae96008754d7254deaf92191e9acb1a563da0d297879ee', 'd82b71c6e2494133d42a7954ce8f604b63b3584feba5c164a8be786157bbb10d'),
	(25, 1894698001750000, 'key:configured', 'native', 'run', 'schedule', '01b924cd-2556-7558-bbed-beff8de4ab47', 'system:default', '{"run_id":"01b924cd-2556-733f-8087-35bf548914ef"}', '', '127.0.0.1', 1, 'd82b71c6e2494133d42a7954ce8f604b63b3584feba5c164a8be786157bbb10d', '78a406b37493a116c5ac3f96f448c0674ecebc622c58448215fbe6d7f59a224d'),
	(26, 1894698001750000, 'key:configured', 'native', 'run', 'schedule', '01b924cd-2556-7e3b-b171-f4611674518d', 'system:default', '{"run_id":"01b924cd-2556-78a2-811e-24d9eaeb999b"}', '', '127.0.0.1', 1, '78a406b37493a116c5ac3f96f448c0674ecebc622c58448215fbe6d7f59a224d', '16ea0a2a82d7c470de694434b967dbd36a3fc9b884bad9a1215aa762974510bc'),
	(27, 1894698001750000, 'key:configured', 'native', 'delete', 'schedule', '01b924cd-2556-7e3b-b171-f4611674518d', 'system:default', '{"deleted_at":[null,"2030-01-15T09:00:01.750000Z"],"enabled":[true,false],"next_run_at":["2030-01-16T02:00:00Z",null],"next_slot":["2030-01-16T02:00:00Z",null]}', '', '127.0.0.1', 1, '16ea0a2a82d7c470de694434b967dbd36a3fc9b884bad9a1215aa762974510bc', 'f0a91340cfd90b626c6b74546df4762d397c232bab636887fcfdff41601b65fa'),
	(28, 1894698001750000, 'key:configured', 'native', 'start', 'run', '01b924cd-2556-732b-8467-8cce6b8c290d', 'system:default', '{"target":{"kind":"task","name":"reports.nightly","args":{"x":[1,null]}}}', '', '127.0.0.1', 1, 'f0a91340cfd90b626c6b74546df4762d397c232bab636887fcfdff41601b65fa', '641939da770c7331b9ca1007f82287cd5afad7359b1e17c1b8eabfd57fc9fc2b'),
	(29, 1894698001750000, 'key:configured', 'native', 'save_filter', 'owner', 'system:default', 'system:default', '{"name":"bad ones","filter":"status:failed"}', '', '127.0.0.1', 1, '641939da770c7331b9ca1007f82287cd5afad7359b1e17c1b8eabfd57fc9fc2b', '9fa09a65989b073e7325ca4fbc5e55a86285fe6a1d7214dfa7e0c98b15fb81b7'),
	(30, 1894698001750000, 'key:configured', 'native', 'create_user', 'user', 'anna', 'user:anna', '{"role":"member"}', '', '127.0.0.1', 1, '9fa09a65989b073e7325ca4fbc5e55a86285fe6a1d7214dfa7e0c98b15fb81b7', 'c08c7b853f2ba49c5628c0b0fe13cea806d47a800ab6443460feabcf24fd0657'),
	(31, 1894698001750000, 'key:configured', 'native', 'create_key', 'key', 'cdr9jrchzpk6', 'system:default', '{"name":"ci","role":"member"}', '', '127.0.0.1', 1, 'c08c7b853f2ba49c5628c0b0fe13cea806d47a800ab6443460feabcf24fd0657', '0b1bbbb03636012e644db7e65ae34abcc81752783f3fad6f1bc26add4836f27d');



INSERT INTO public.audit_head VALUES
	(1, 31, '0b1bbbb03636012e644db7e65ae34abcc81752783f3fad6f1bc26add4836f27d');



INSERT INTO public.buckets VALUES
	('requests:key:configured', 1999745, 1894698011750000, 128, 1894698013750000);



INSERT INTO public.chimes_version VALUES
	('0009');



INSERT INTO public.concurrency_keys VALUES
	('k'),
	('sync:crm#deals.eu'),
	('some key'),
	('shared key');



INSERT INTO public.deliveries VALUES
	('full-delivery', 'full-run', 'full', 'ทดสอบ 测试 🔔 %_''"\', 'chat', '-100200300', 'webhook', '{"channel":"webhook","to":"https://example.com/ü?q=%20","on":["failure","recovery"],"language":"zh","signing_secrets":["whsec_b25l","whsec_dHdv"],"late_after":300000001,"quiet":{"start":"22:00","end":"07:30","zone":"Asia/Bangkok","but":["failure","late"]},"digest":{"every":"weekly","at":"09:15","weekday":4,"zone":"America/New_York","but":["failure"]}}', 'recovery', 'dead', 8, 9, 2, 1894694400000000, 1894697999999997, 1894697999999999, '403 Forbidden: 水', 'blocked', 'message 17'),
	('23623611-4b4f-5644-85d5-c59a63038787', 'run-00016', NULL, '', 'system', 'default', 'telegram', '{"channel":"telegram","to":"-100200300","on":["success"],"language":"th"}', 'success', 'pending', 0, 0, 0, 1894698001750000, 1894698001750000, NULL, '', '', ''),
	('dd9169a9-4b6a-5445-bb9c-7c4ddf9a8885', 'run-00015', NULL, '', 'system', 'default', 'telegram', '{"channel":"telegram","to":"-100200300","on":["success"],"language":"th"}', 'success', 'pending', 0, 0, 0, 1894698001750000, 1894698001750000, NULL, '', '', ''),
	('e8e01f99-c5bc-5ebf-958a-20e75feb55d9', 'run-00014', NULL, '', 'system', 'default', 'telegram', '{"channel":"telegram","to":"-100200300","on":["success"],"language":"th"}', 'success', 'pending', 0, 0, 0, 1894698001750000, 1894698001750000, NULL, '', '', ''),
	('6d050eaa-5e25-590a-b11b-066ed408115e', 'run-00016', NULL, '', 'system', 'default', 'inbox', '{"channel":"inbox","on":["always"]}', 'success', 'pending', 1, 1, 0, 1894698001750000, 1894698061750000, NULL, '', '', ''),
	('17ae27a3-4f2a-50ed-8762-7bccf300c624', 'run-00014', NULL, '', 'system', 'default', 'inbox', '{"channel":"inbox","on":["always"]}', 'success', 'delivered', 1, 1, 0, 1894698001750000, 1894698061750000, 1894698001750000, '', '', ''),
	('41a5bb38-eae0-5c1f-9ca7-19f105ad677a', 'run-00015', NULL, '', 'system', 'default', 'inbox', '{"channel":"inbox","on":["always"]}', 'success', 'pending', 1, 1, 0, 1894698001750000, 1894698061750000, NULL, 'busy', '', '');



INSERT INTO public.fire_batches VALUES
	(7760683013120001441, 'node-1', 1894698001250000, 1894698001250000, 0);






INSERT INTO public.inbox VALUES
	('full-item', 'user', 'bob', 'full-run', 'full', 'น้ำ 水', 'สรุปข่าว 新闻 🔔', '# A heading

* one
* <script>two</script>
', 'succeeded', '[{"name":"chart.png","url":"https://example.com/a?b=%20"},{"name":"น้ำ.csv","url":"https://example.com/c"}]', 1894694400000000, 1894697940000000, 1, 1894697999000000, 1894701600000000),
	('item-00017', 'user', 'alice', NULL, NULL, '', 'message 17', '', '', '[]', 1894698000000000, NULL, 0, NULL, NULL);



INSERT INTO public.kept_states VALUES
	('sync:crm#deals.eu', '{"cursor": "น้ำ 水"}', 1894698001750000, 'run-00008'),
	('by hand', '[]', 1894698001750000, ''),
	('filters:system:default', '{"runs":{"bad ones":"status:failed"}}', 1894698001750000, ''),
	('dashboard:users', '{"anna":{"password":"$argon2id$v=19$m=19456,t=2,p=1$Nzc3Nzc3Nzc3Nzc3Nzc3Nw$FwXRRwzN/vJLaELfZdfI7Wn00dE3HMWO2rwu7eU3Uvs","role":"member","created_at":"2030-01-15T09:00:01.750000+00:00","created_by":"key:configured"}}', 1894698001750000, ''),
	('session:aa', '{"who": "anna"}', 1894698011750000, '');






INSERT INTO public.node_marks VALUES
	(1894698000000000, 'node-1', 1, '0.1.0'),
	(1894698001750000, 'node-2', 1, '0.1.0'),
	(1894698006750000, 'node-3', 1, '0.1.0'),
	(1894698007750000, 'node-3', 0, '0.1.0');



INSERT INTO public.nodes VALUES
	('node-1', '0.1.0', '["scheduler","worker"]', 10, 1894698000000000, 1894698000000000, 1894698030000000, 0, '{}', 0, ''),
	('node-2', '0.1.0', '["scheduler","worker"]', 10, 1894698001750000, 1894698001750000, 1894698031750000, 0, '{"action":null,"flow:pipeline-2":null,"http":null,"sync:crm":null,"task:reports.nightly":null}', 0, '');



INSERT INTO public.requests VALUES
	('system:default POST /api/v1/schedules/01b924cd-2556-7ba6-8ad7-aea861076dc3/run', 'first', '74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b 2030-01-15T09:00:01.750000Z', 202, '{"id":"2c1f8d68-d265-503e-a58e-815d23d36aa6","schedule_id":"01b924cd-2556-7ba6-8ad7-aea861076dc3","schedule_name":"task","namespace":"native","owner":{"type":"system","id":"default"},"slot":null,"origin":"manual","status":"queued","attempt":0,"fence":0,"priority":0,"planned_at":"2030-01-15T09:00:01.750000Z","created_at":"2030-01-15T09:00:01.750000Z","available_at":"2030-01-15T09:00:01.750000Z","claimed_at":null,"started_at":null,"finished_at":null,"duration_ms":null,"lag_ms":null,"node":null,"blocked":false,"cancel_requested":false,"result":null,"error":"","reason":"","missed_count":0,"missed_until":null,"retry_of":null,"parent_id":null,"step":"","target":{"kind":"task","name":"reports.nightly","args":{"day":1}},"attempts":[]}', '[["location","/api/v1/runs/2c1f8d68-d265-503e-a58e-815d23d36aa6"],["content-type","application/json"],["content-language","en"],["vary","X-Language, Accept-Language"]]', 1894784401750000);






INSERT INTO public.run_logs VALUES
	('run-00010', 1, 1894698001250000, 'info', 'one'),
	('run-00010', 2, 1894698001250000, 'info', 'two'),
	('lived-plain', 1, 1894698001750000, 'info', 'hello'),
	('lived-plain', 2, 1894698001750000, 'info', 'สวัสดี');






INSERT INTO public.runs VALUES
	('95ee8c6f-427d-5e16-ac34-70b75edbdde9', 'schedule-00003', 'schedule 3', 1, 'native', 'system', 'default', 1894698000000000, 'schedule', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, 0, 0, 'schedule:schedule-00003', 1, 0, 'queued', 0, 0, NULL, 0, 0, 1894698001250000, 1894698000500000, 1894698000500000, NULL, NULL, NULL, NULL, '', '', 0, NULL, '[]', 'http', 7760683013120001441),
	('run-00007', NULL, '', 0, 'native', 'system', 'default', NULL, 'manual', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 1, 0, 2, NULL, 1, 0, 'running', 1, 1, 'node-1', 0, 0, 1894698000000000, 1894698000000000, 1894698000000000, 1894698001250000, 1894698001250000, NULL, NULL, '', '', 0, NULL, '[]', 'http', NULL),
	('run-00010', NULL, '', 0, 'native', 'system', 'default', NULL, 'manual', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 4, 0, 8, NULL, 1, 0, 'timeout', 1, 1, NULL, 0, 0, 1894698000000000, 1894698000000000, 1894698000000000, 1894698001250000, 1894698001250000, 1894698001750000, NULL, 'it ended as timeout', '', 0, NULL, '[{"number":1,"fence":1,"node":"node-1","started_at":"2030-01-15T09:00:01.250000Z","finished_at":"2030-01-15T09:00:01.750000Z","end":"timeout","error":"it ended as timeout"}]', 'http', NULL),
	('run-00009', NULL, '', 0, 'native', 'system', 'default', NULL, 'manual', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 3, 0, 6, NULL, 1, 0, 'queued', 1, 1, NULL, 0, 0, 1894698000000000, 1894698000000000, 1894698061750000, 1894698001250000, 1894698001250000, NULL, NULL, 'it ended as failed', '', 0, NULL, '[{"number":1,"fence":1,"node":"node-1","started_at":"2030-01-15T09:00:01.250000Z","finished_at":"2030-01-15T09:00:01.750000Z","end":"failed","error":"it ended as failed"}]', 'http', NULL),
	('full-run', 'full', 'ทดสอบ 测试 🔔 %_''"\', 17, 'ksana', 'user', 'alice', 1894697939999997, 'child', 'parent', 'step two', 'earlier', 'http', '{"kind":"http","url":"https://example.com/ü?q=%20","method":"PATCH","headers":{"X-One":"1","X-Two":"ä"},"body":"{\"text\": \"ก \\n\"}","expected_status":[200,204],"signing_secrets":["whsec_b25l","whsec_dHdv"],"verify_tls":false}', '{"misfire":"all","misfire_grace":1000001,"catch_up_limit":7,"overlap":"queue","max_concurrent_runs":3,"burst_allowed":true,"max_retries":9,"retry_backoff":1500000,"backoff":"exponential","backoff_cap":172800000000,"timeout":3000000,"on_lost":"stop","pause_on_gone":false,"concurrency_key":"shared 🔔","delivery":[{"channel":"inbox","on":["always"]},{"channel":"webhook","to":"https://example.com/ü?q=%20","on":["failure","recovery"],"language":"zh","signing_secrets":["whsec_b25l","whsec_dHdv"],"late_after":300000001,"quiet":{"start":"22:00","end":"07:30","zone":"Asia/Bangkok","but":["failure","late"]},"digest":{"every":"weekly","at":"09:15","weekday":4,"zone":"America/New_York","but":["failure"]}}]}', -5, 1, -11, 'some key', 4, 1, 'unknown', 2, 3, NULL, 1, 1, 1894694400000000, 1894697940000000, 1894697998000000, 1894697999000000, 1894697940000000, 1894698011750000, '{"status":500,"headers":{"a":"b"},"ok":false,"none":null,"list":[1,"2"]}', 'the node that held this run stopped beating', 'lost_after_start', 3, 1894697999000000, '[{"number":1,"fence":2,"node":"node-x","started_at":"2030-01-15T08:59:00Z","finished_at":"2030-01-15T08:59:59Z","end":"lost","error":"gone"},{"number":2,"fence":3,"node":"node-x","started_at":"2030-01-15T08:59:00Z","finished_at":"2030-01-15T08:59:59Z","end":"timeout","error":"gone"},{"number":2,"fence":3,"node":"node-y","started_at":"2030-01-15T08:59:59Z","finished_at":"2030-01-15T09:00:11.750000Z","end":"lost","error":"the node that held this run stopped beating"}]', 'http', NULL),
	('run-00008', NULL, '', 0, 'native', 'system', 'default', NULL, 'manual', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 2, 0, 4, NULL, 1, 0, 'running', 1, 1, 'node-1', 1, 1, 1894698000000000, 1894698000000000, 1894698000000000, 1894698001250000, 1894698001250000, NULL, NULL, '', 'canceled_by_hand', 0, NULL, '[]', 'http', NULL),
	('run-00006', NULL, '', 0, 'native', 'system', 'default', NULL, 'manual', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, 0, 0, NULL, 1, 0, 'running', 1, 1, 'node-1', 0, 0, 1894698000000000, 1894698000000000, 1894698000000000, 1894698001250000, 1894698001250000, NULL, NULL, '', '', 0, NULL, '[]', 'http', NULL),
	('run-00011', NULL, '', 0, 'native', 'system', 'default', NULL, 'manual', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, 0, 0, 'k', 1, 0, 'queued', 0, 0, NULL, 0, 0, 1894698000000000, 1894698000000000, 1894698000000000, NULL, NULL, NULL, NULL, '', '', 0, NULL, '[]', 'http', NULL),
	('run-00012', NULL, '', 0, 'native', 'system', 'default', NULL, 'manual', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, 0, 0, 'k', 1, 1, 'queued', 0, 0, NULL, 0, 0, 1894698000000000, 1894698000000000, 1894698000000000, NULL, NULL, NULL, NULL, '', '', 0, NULL, '[]', 'http', NULL),
	('run-00013', NULL, '', 0, 'native', 'system', 'default', NULL, 'manual', NULL, '', NULL, 'sync', '{"kind":"sync","source":"crm","collection":"deals.eu"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, 0, 0, 'sync:crm#deals.eu', 1, 0, 'queued', 0, 0, NULL, 0, 0, 1894698000000000, 1894698000000000, 1894698000000000, NULL, NULL, NULL, NULL, '', '', 0, NULL, '[]', 'sync:crm', NULL),
	('run-00014', NULL, '', 0, 'native', 'system', 'default', NULL, 'manual', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true,"delivery":[{"channel":"inbox","on":["always"]},{"channel":"telegram","to":"-100200300","on":["success"],"language":"th"}]}', 0, 0, 0, NULL, 1, 0, 'succeeded', 0, 0, NULL, 0, 0, 1894698000000000, 1894698000000000, 1894698000000000, NULL, NULL, 1894698001750000, NULL, '', '', 0, NULL, '[]', 'http', NULL),
	('run-00015', NULL, '', 0, 'native', 'system', 'default', NULL, 'manual', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true,"delivery":[{"channel":"inbox","on":["always"]},{"channel":"telegram","to":"-100200300","on":["success"],"language":"th"}]}', 0, 0, 0, NULL, 1, 0, 'succeeded', 0, 0, NULL, 0, 0, 1894698000000000, 1894698000000000, 1894698000000000, NULL, NULL, 1894698001750000, NULL, '', '', 0, NULL, '[]', 'http', NULL),
	('run-00016', NULL, '', 0, 'native', 'system', 'default', NULL, 'manual', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true,"delivery":[{"channel":"inbox","on":["always"]},{"channel":"telegram","to":"-100200300","on":["success"],"language":"th"}]}', 0, 0, 0, NULL, 1, 0, 'succeeded', 0, 0, NULL, 0, 0, 1894698000000000, 1894698000000000, 1894698000000000, NULL, NULL, 1894698001750000, NULL, '', '', 0, NULL, '[]', 'http', NULL),
	('0282fcad-f223-550b-9405-020048ec5e23', '01b924cd-2556-7347-8e5a-f2e3ac9abb0c', 'skipped', 1, 'native', 'system', 'default', 1894759200000000, 'schedule', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, 0, 0, 'schedule:01b924cd-2556-7347-8e5a-f2e3ac9abb0c', 1, 0, 'skipped', 0, 0, NULL, 0, 0, 1894698001750000, 1894759200000000, 1894759200000000, NULL, NULL, 1894698001750000, NULL, '', 'skipped_by_hand', 0, NULL, '[]', 'http', NULL),
	('01b924cd-2556-7e80-872b-c41ed9c98c23', '01b924cd-2556-7658-95dd-c0e747fbb3b4', 'edited twice', 2, 'native', 'system', 'default', NULL, 'manual', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 3, 0, 6, 'schedule:01b924cd-2556-7658-95dd-c0e747fbb3b4', 1, 0, 'queued', 0, 0, NULL, 0, 0, 1894698001750000, 1894698001750000, 1894698001750000, NULL, NULL, NULL, NULL, '', '', 0, NULL, '[]', 'http', NULL),
	('2c1f8d68-d265-503e-a58e-815d23d36aa6', '01b924cd-2556-7ba6-8ad7-aea861076dc3', 'task', 1, 'native', 'system', 'default', NULL, 'manual', NULL, '', NULL, 'task', '{"kind":"task","name":"reports.nightly","args":{"day":1}}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":300000000,"on_lost":"retry","pause_on_gone":true}', 0, 0, 0, 'schedule:01b924cd-2556-7ba6-8ad7-aea861076dc3', 1, 0, 'queued', 0, 0, NULL, 0, 0, 1894698001750000, 1894698001750000, 1894698001750000, NULL, NULL, NULL, NULL, '', '', 0, NULL, '[]', 'task:reports.nightly', NULL),
	('01b924cd-2556-733f-8087-35bf548914ef', '01b924cd-2556-7558-bbed-beff8de4ab47', 'every', 1, 'native', 'system', 'default', NULL, 'manual', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, 0, 0, 'schedule:01b924cd-2556-7558-bbed-beff8de4ab47', 1, 0, 'queued', 0, 0, NULL, 0, 0, 1894698001750000, 1894698001750000, 1894698001750000, NULL, NULL, NULL, NULL, '', '', 0, NULL, '[]', 'http', NULL),
	('01b924cd-2556-78a2-811e-24d9eaeb999b', '01b924cd-2556-7e3b-b171-f4611674518d', 'deleted', 1, 'native', 'system', 'default', NULL, 'manual', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, 0, 0, 'schedule:01b924cd-2556-7e3b-b171-f4611674518d', 1, 0, 'canceled', 0, 0, NULL, 0, 0, 1894698001750000, 1894698001750000, 1894698001750000, NULL, NULL, 1894698001750000, NULL, '', 'schedule_deleted', 0, NULL, '[]', 'http', NULL),
	('01b924cd-2556-732b-8467-8cce6b8c290d', NULL, '', 0, 'native', 'system', 'default', NULL, 'manual', NULL, '', NULL, 'task', '{"kind":"task","name":"reports.nightly","args":{"x":[1,null]}}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":300000000,"on_lost":"retry","pause_on_gone":true}', 0, 0, 0, NULL, 1, 0, 'queued', 0, 0, NULL, 0, 0, 1894698001750000, 1894698001750000, 1894698001750000, NULL, NULL, NULL, NULL, '', '', 0, NULL, '[]', 'task:reports.nightly', NULL),
	('ended-succeeded', 'daily', 'daily', 1, 'native', 'system', 'default', 1894694401750000, 'schedule', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, 0, 0, 'schedule:daily', 1, 0, 'succeeded', 0, 0, NULL, 0, 0, 1894694401750000, 1894694401750000, 1894694401750000, NULL, NULL, 1894694461750000, NULL, '', '', 0, NULL, '[]', 'http', NULL),
	('ended-failed', 'daily', 'daily', 1, 'native', 'system', 'default', 1894690801750000, 'schedule', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, 0, 0, 'schedule:daily', 1, 0, 'failed', 0, 0, NULL, 0, 0, 1894690801750000, 1894690801750000, 1894690801750000, NULL, NULL, 1894690861750000, NULL, 'it failed', '', 0, NULL, '[]', 'http', NULL),
	('ended-timeout', 'daily', 'daily', 1, 'native', 'system', 'default', 1894687201750000, 'schedule', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, 0, 0, 'schedule:daily', 1, 0, 'timeout', 0, 0, NULL, 0, 0, 1894687201750000, 1894687201750000, 1894687201750000, NULL, NULL, 1894687261750000, NULL, 'it timeout', '', 0, NULL, '[]', 'http', NULL),
	('ended-canceled', 'daily', 'daily', 1, 'native', 'system', 'default', 1894683601750000, 'schedule', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, 0, 0, 'schedule:daily', 1, 0, 'canceled', 0, 0, NULL, 0, 0, 1894683601750000, 1894683601750000, 1894683601750000, NULL, NULL, 1894683661750000, NULL, 'it canceled', '', 0, NULL, '[]', 'http', NULL),
	('ended-skipped', 'daily', 'daily', 1, 'native', 'system', 'default', 1894680001750000, 'schedule', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, 0, 0, 'schedule:daily', 1, 0, 'skipped', 0, 0, NULL, 0, 0, 1894680001750000, 1894680001750000, 1894680001750000, NULL, NULL, 1894680061750000, NULL, 'it skipped', 'overlap', 0, NULL, '[]', 'http', NULL),
	('ended-missed', 'daily', 'daily', 1, 'native', 'system', 'default', 1894676401750000, 'schedule', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, 0, 0, 'schedule:daily', 1, 0, 'missed', 0, 0, NULL, 0, 0, 1894676401750000, 1894676401750000, 1894676401750000, NULL, NULL, 1894676461750000, NULL, 'it missed', '', 4, 1894676461750000, '[]', 'http', NULL),
	('ended-unknown', 'daily', 'daily', 1, 'native', 'system', 'default', 1894672801750000, 'schedule', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, 0, 0, 'schedule:daily', 1, 0, 'unknown', 0, 0, NULL, 0, 0, 1894672801750000, 1894672801750000, 1894672801750000, NULL, NULL, 1894672861750000, NULL, 'it unknown', '', 0, NULL, '[]', 'http', NULL),
	('lived-plain', 'daily', 'daily', 0, 'native', 'system', 'default', NULL, 'manual', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 50, 0, 100, NULL, 1, 0, 'succeeded', 1, 1, NULL, 0, 0, 1894698000000000, 1894698000000000, 1894698000000000, 1894698001750000, 1894698001750000, 1894698003750000, '{"status":200,"body":"ok"}', '', '', 0, NULL, '[{"number":1,"fence":1,"node":"node-1","started_at":"2030-01-15T09:00:01.750000Z","finished_at":"2030-01-15T09:00:03.750000Z","end":"succeeded"}]', 'http', NULL),
	('lived-again', 'daily', 'daily', 0, 'native', 'system', 'default', NULL, 'manual', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 50, 0, 100, NULL, 1, 0, 'succeeded', 2, 2, NULL, 0, 0, 1894698000000000, 1894698000000000, 1894698005750000, 1894698006750000, 1894698003750000, 1894698006750000, '{"status":200,"body":"ok"}', '', '', 0, NULL, '[{"number":1,"fence":1,"node":"node-1","started_at":"2030-01-15T09:00:03.750000Z","finished_at":"2030-01-15T09:00:04.750000Z","end":"failed","error":"it ended as failed"},{"number":2,"fence":2,"node":"node-2","started_at":"2030-01-15T09:00:06.750000Z","finished_at":"2030-01-15T09:00:06.750000Z","end":"succeeded"}]', 'http', NULL),
	('lived-lost', 'daily', 'daily', 0, 'native', 'system', 'default', NULL, 'manual', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 50, 0, 100, NULL, 1, 0, 'running', 2, 2, 'node-2', 0, 0, 1894698000000000, 1894698000000000, 1894698011750000, 1894698011750000, 1894698006750000, NULL, NULL, '', '', 0, NULL, '[{"number":1,"fence":1,"node":"node-3","started_at":"2030-01-15T09:00:06.750000Z","finished_at":"2030-01-15T09:00:11.750000Z","end":"lost","error":"the node that held this run stopped beating"}]', 'http', NULL),
	('flow', NULL, '', 0, 'native', 'system', 'default', NULL, 'manual', NULL, '', NULL, 'flow', '{"kind":"flow","name":"pipeline-2","input":{"text":"น้ำ 水 🔔 %_''\"\\ \n\t","":"empty name","dotted.key":[],"empty":{},"nothing":null,"true":true,"false":false,"zero":0,"large":9223372036854775808,"small":-1099511627776,"fraction":0.1,"tiny":5e-324,"huge":1e+23,"nested":{"list":[1,2.5,null,true,"x",{"deep":[[]]}]}}}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 60, 0, 120, NULL, 1, 0, 'running', 1, 1, 'node-1', 0, 0, 1894698000000000, 1894698000000000, 1894698000000000, 1894698011750000, 1894698011750000, NULL, NULL, '', '', 0, NULL, '[]', 'flow:pipeline-2', NULL),
	('own-0', 'queueing', 'queueing', 0, 'native', 'system', 'default', NULL, 'manual', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"queue","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 40, 0, 80, 'schedule:queueing', 1, 0, 'running', 1, 1, 'node-1', 0, 0, 1894698000000000, 1894698000000000, 1894698000000000, 1894698011750000, 1894698011750000, NULL, NULL, '', '', 0, NULL, '[]', 'http', NULL),
	('step-1', NULL, '', 0, 'native', 'system', 'default', NULL, 'child', 'flow', 'step 1', NULL, 'task', '{"kind":"task","name":"reports.nightly","args":{"text":"น้ำ 水 🔔 %_''\"\\ \n\t","":"empty name","dotted.key":[],"empty":{},"nothing":null,"true":true,"false":false,"zero":0,"large":9223372036854775808,"small":-1099511627776,"fraction":0.1,"tiny":5e-324,"huge":1e+23,"nested":{"list":[1,2.5,null,true,"x",{"deep":[[]]}]}}}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 61, 0, 122, NULL, 1, 0, 'succeeded', 1, 1, NULL, 0, 0, 1894698000000000, 1894698000000000, 1894698000000000, 1894698011750000, 1894698011750000, 1894698011750000, '{"status":200,"body":"ok"}', '', '', 0, NULL, '[{"number":1,"fence":1,"node":"node-2","started_at":"2030-01-15T09:00:11.750000Z","finished_at":"2030-01-15T09:00:11.750000Z","end":"succeeded"}]', 'task:reports.nightly', NULL),
	('step-2', NULL, '', 0, 'native', 'system', 'default', NULL, 'child', 'flow', 'step 2', NULL, 'task', '{"kind":"task","name":"reports.nightly","args":{"text":"น้ำ 水 🔔 %_''\"\\ \n\t","":"empty name","dotted.key":[],"empty":{},"nothing":null,"true":true,"false":false,"zero":0,"large":9223372036854775808,"small":-1099511627776,"fraction":0.1,"tiny":5e-324,"huge":1e+23,"nested":{"list":[1,2.5,null,true,"x",{"deep":[[]]}]}}}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 61, 0, 122, NULL, 1, 0, 'running', 1, 1, 'node-2', 1, 1, 1894698000000000, 1894698000000000, 1894698000000000, 1894698011750000, 1894698011750000, NULL, NULL, '', 'canceled_by_hand', 0, NULL, '[]', 'task:reports.nightly', NULL),
	('own-1', 'queueing', 'queueing', 0, 'native', 'system', 'default', NULL, 'manual', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"queue","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 40, 0, 80, 'schedule:queueing', 1, 1, 'queued', 0, 0, NULL, 0, 0, 1894698000000000, 1894698000000000, 1894698000000000, NULL, NULL, NULL, NULL, '', '', 0, NULL, '[]', 'http', NULL),
	('own-2', 'queueing', 'queueing', 0, 'native', 'system', 'default', NULL, 'manual', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"queue","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 40, 0, 80, 'schedule:queueing', 1, 1, 'queued', 0, 0, NULL, 0, 0, 1894698000000000, 1894698000000000, 1894698000000000, NULL, NULL, NULL, NULL, '', '', 0, NULL, '[]', 'http', NULL),
	('shared-2', NULL, '', 0, 'native', 'system', 'default', NULL, 'manual', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 39, 0, 78, 'shared key', 2, 1, 'queued', 0, 0, NULL, 0, 0, 1894698000000000, 1894698000000000, 1894698000000000, NULL, NULL, NULL, NULL, '', '', 0, NULL, '[]', 'http', NULL),
	('shared-3', NULL, '', 0, 'native', 'system', 'default', NULL, 'manual', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 39, 0, 78, 'shared key', 2, 1, 'queued', 0, 0, NULL, 0, 0, 1894698000000000, 1894698000000000, 1894698000000000, NULL, NULL, NULL, NULL, '', '', 0, NULL, '[]', 'http', NULL),
	('shared-0', NULL, '', 0, 'native', 'system', 'default', NULL, 'manual', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 39, 0, 78, 'shared key', 2, 0, 'running', 1, 1, 'node-1', 0, 0, 1894698000000000, 1894698000000000, 1894698000000000, 1894698011750000, 1894698011750000, NULL, NULL, '', '', 0, NULL, '[]', 'http', NULL),
	('retrying', NULL, '', 0, 'native', 'system', 'default', NULL, 'manual', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 38, 0, 76, NULL, 1, 0, 'queued', 0, 0, NULL, 0, 0, 1894698000000000, 1894698000000000, 1894698000000000, NULL, NULL, NULL, NULL, '', '', 0, NULL, '[]', 'http', NULL),
	('shared-1', NULL, '', 0, 'native', 'system', 'default', NULL, 'manual', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 39, 0, 78, 'shared key', 2, 0, 'queued', 1, 1, NULL, 0, 0, 1894698000000000, 1894698000000000, 1894701611750000, 1894698011750000, 1894698011750000, NULL, NULL, 'it ended as failed', '', 0, NULL, '[{"number":1,"fence":1,"node":"node-1","started_at":"2030-01-15T09:00:11.750000Z","finished_at":"2030-01-15T09:00:11.750000Z","end":"failed","error":"it ended as failed"}]', 'http', NULL),
	('later', NULL, '', 0, 'native', 'system', 'default', NULL, 'manual', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, 0, 0, NULL, 1, 0, 'queued', 0, 0, NULL, 0, 0, 1894698000000000, 1894698000000000, 1894701611750000, NULL, NULL, NULL, NULL, '', '', 0, NULL, '[]', 'http', NULL),
	('orphan', 'elsewhere', 'elsewhere', 0, 'native', 'system', 'default', 1894698001750000, 'manual', NULL, '', NULL, 'http', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, 0, 0, 'schedule:elsewhere', 1, 0, 'failed', 0, 0, NULL, 0, 0, 1894698000000000, 1894698000000000, 1894698000000000, NULL, NULL, 1894698001750000, NULL, '', '', 0, NULL, '[]', 'http', NULL);



INSERT INTO public.schedules VALUES
	('schedule-00004', 'native', 'schedule 4', 'user', 'bob', 'http', '{"kind":"every","every":"PT1M","anchor":"2030-01-15T09:00:00Z"}', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, '{"a":"b"}', 0, '', NULL, NULL, '{}', NULL, NULL, NULL, NULL, NULL, NULL, '', NULL, 0, NULL, 1, 1894698000000000, '', 1894698000000000, '', NULL),
	('schedule-00005', 'native', 'schedule 5', 'system', 'default', 'http', '{"kind":"every","every":"PT1M","anchor":"2030-01-15T09:00:00Z"}', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, '{}', 0, '', NULL, NULL, '{}', NULL, NULL, NULL, NULL, NULL, NULL, '', NULL, 0, NULL, 2, 1894698000000000, '', 1894698000000000, 'user:alice', 1894698000000000),
	('schedule-00003', 'native', 'schedule 3', 'system', 'default', 'http', '{"kind":"every","every":"PT1M","anchor":"2030-01-15T09:00:00Z"}', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, '{}', 1, '', NULL, NULL, '{}', 1894698060000000, 1894698060000000, 1894698000000000, 1894698001250000, NULL, NULL, '', NULL, 1, NULL, 1, 1894698000000000, '', 1894698000000000, '', NULL),
	('01b924cd-2556-7446-8be9-cc81237751aa', 'native', 'cron', 'system', 'default', 'http', '{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, '{"team":"ops"}', 1, '', NULL, NULL, '{}', 1894759200000000, 1894759200000000, NULL, NULL, NULL, NULL, '', NULL, 0, NULL, 1, 1894698001750000, 'key:configured', 1894698001750000, 'key:configured', NULL),
	('full', 'ksana', 'ทดสอบ 测试 🔔 %_''"\', 'user', 'alice', 'http', '{"kind":"every","every":"PT1M30S","anchor":"2030-01-15T09:00:00.000007Z","jitter":"PT30S","start_at":"2030-01-15T09:00:00Z","end_at":"2030-02-21T21:00:00Z","max_runs":12345,"exclude":[{"dates":["2030-12-25"]}]}', '{"kind":"http","url":"https://example.com/ü?q=%20","method":"PATCH","headers":{"X-One":"1","X-Two":"ä"},"body":"{\"text\": \"ก \\n\"}","expected_status":[200,204],"signing_secrets":["whsec_b25l","whsec_dHdv"],"verify_tls":false}', '{"misfire":"all","misfire_grace":1000001,"catch_up_limit":7,"overlap":"queue","max_concurrent_runs":3,"burst_allowed":true,"max_retries":9,"retry_backoff":1500000,"backoff":"exponential","backoff_cap":172800000000,"timeout":3000000,"on_lost":"stop","pause_on_gone":false,"concurrency_key":"shared 🔔","delivery":[{"channel":"inbox","on":["always"]},{"channel":"webhook","to":"https://example.com/ü?q=%20","on":["failure","recovery"],"language":"zh","signing_secrets":["whsec_b25l","whsec_dHdv"],"late_after":300000001,"quiet":{"start":"22:00","end":"07:30","zone":"Asia/Bangkok","but":["failure","late"]},"digest":{"every":"weekly","at":"09:15","weekday":4,"zone":"America/New_York","but":["failure"]}}]}', -5, '{"team":"ops","bare":null,"":"empty name"}', 0, 'lunch', 1894701600000000, '{"schedule_id":"other","within":300000000}', '{"every":"90s","nested":{"list":[1,2.5,null,true,"x"]}}', 1894698060000007, 1894698120000007, 1894697940000000, 1894697999000000, 1894697998000000, 'timeout', 'it took too long', 1894694400000000, 42, 1894611600000000, 17, 1894525200000000, 'user:alice', 1894697999999993, 'key:k1', NULL),
	('01b924cd-2556-7569-9dad-9d1480b65386', 'native', 'once', 'system', 'default', 'http', '{"kind":"once","at":"2030-02-01T10:00:00Z","timezone":"UTC"}', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, '{}', 1, '', NULL, NULL, '{}', 1896170400000000, 1896170400000000, NULL, NULL, NULL, NULL, '', NULL, 0, NULL, 1, 1894698001750000, 'key:configured', 1894698001750000, 'key:configured', NULL),
	('01b924cd-2556-7558-bbed-beff8de4ab47', 'native', 'every', 'system', 'default', 'http', '{"kind":"every","every":"PT15M","anchor":"2030-01-15T09:00:01.750000Z"}', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, '{}', 1, '', NULL, NULL, '{}', 1894698901750000, 1894698901750000, NULL, NULL, NULL, NULL, '', NULL, 0, NULL, 1, 1894698001750000, 'key:configured', 1894698001750000, 'key:configured', NULL),
	('01b924cd-2556-7ba6-8ad7-aea861076dc3', 'native', 'task', 'system', 'default', 'task', '{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}', '{"kind":"task","name":"reports.nightly","args":{"day":1}}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":300000000,"on_lost":"retry","pause_on_gone":true}', 0, '{}', 1, '', NULL, NULL, '{}', 1894759200000000, 1894759200000000, NULL, NULL, NULL, NULL, '', NULL, 0, NULL, 1, 1894698001750000, 'key:configured', 1894698001750000, 'key:configured', NULL),
	('01b924cd-2556-7f38-9b0b-a905b99de255', 'native', 'flow', 'system', 'default', 'flow', '{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}', '{"kind":"flow","name":"pipeline-2"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":86400000000,"on_lost":"retry","pause_on_gone":true}', 0, '{}', 1, '', NULL, NULL, '{}', 1894759200000000, 1894759200000000, NULL, NULL, NULL, NULL, '', NULL, 0, NULL, 1, 1894698001750000, 'key:configured', 1894698001750000, 'key:configured', NULL),
	('01b924cd-2556-70d2-8879-a91b1c670ea9', 'native', 'paused', 'system', 'default', 'http', '{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, '{}', 0, 'lunch', 1894752000000000, NULL, '{}', NULL, NULL, NULL, NULL, NULL, NULL, '', NULL, 0, NULL, 2, 1894698001750000, 'key:configured', 1894698001750000, 'key:configured', NULL),
	('01b924cd-2556-7fdb-840d-8f17972651da', 'native', 'moved', 'system', 'default', 'http', '{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, '{}', 1, '', NULL, NULL, '{}', 1894759200000000, 1894710896000000, NULL, NULL, NULL, NULL, '', NULL, 0, NULL, 2, 1894698001750000, 'key:configured', 1894698001750000, 'key:configured', NULL),
	('01b924cd-2556-7ca2-b8c8-eecabf00188d', 'native', 'rescheduled', 'system', 'default', 'http', '{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, '{}', 1, '', NULL, NULL, '{}', 1894842123456789, 1894842123456789, NULL, NULL, NULL, NULL, '', NULL, 0, NULL, 2, 1894698001750000, 'key:configured', 1894698001750000, 'key:configured', NULL),
	('01b924cd-2556-7347-8e5a-f2e3ac9abb0c', 'native', 'skipped', 'system', 'default', 'http', '{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, '{}', 1, '', NULL, NULL, '{}', 1894845600000000, 1894845600000000, 1894759200000000, NULL, NULL, NULL, '', NULL, 0, NULL, 2, 1894698001750000, 'key:configured', 1894698001750000, 'key:configured', NULL),
	('01b924cd-2556-7e3b-b171-f4611674518d', 'native', 'deleted', 'system', 'default', 'http', '{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, '{}', 0, '', NULL, NULL, '{}', NULL, NULL, NULL, NULL, NULL, NULL, '', NULL, 0, NULL, 2, 1894698001750000, 'key:configured', 1894698001750000, 'key:configured', 1894698001750000),
	('01b924cd-2556-7658-95dd-c0e747fbb3b4', 'native', 'edited twice', 'system', 'default', 'http', '{"kind":"cron","expression":"0 9 * * *","timezone":"Asia/Bangkok"}', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":3,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 3, '{}', 1, '', NULL, NULL, '{}', 1894759200000000, 1894759200000000, NULL, NULL, NULL, NULL, '', NULL, 0, NULL, 2, 1894698001750000, 'key:configured', 1894698001750000, 'key:configured', NULL),
	('daily', 'native', 'daily', 'system', 'default', 'http', '{"kind":"every","every":"P1D","anchor":"2030-01-15T09:00:00Z"}', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"skip","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, '{}', 1, '', NULL, NULL, '{}', 1894784400000000, 1894784400000000, NULL, NULL, 1894698003750000, 'succeeded', '', 1894698006750000, 0, NULL, 1, 1894698000000000, '', 1894698000000000, '', NULL),
	('queueing', 'native', 'queueing', 'system', 'default', 'http', '{"kind":"every","every":"PT1M","anchor":"2030-01-15T09:00:00Z"}', '{"kind":"http","url":"http://127.0.0.1:9/hook","method":"POST","headers":{"X-Test":"1"},"body":"{\"a\": 1}"}', '{"misfire":"one","misfire_grace":60000000,"catch_up_limit":1000,"overlap":"queue","max_concurrent_runs":null,"burst_allowed":false,"max_retries":0,"retry_backoff":5000000,"backoff":"fixed","backoff_cap":3600000000,"timeout":10000000,"on_lost":"retry","pause_on_gone":true}', 0, '{}', 1, '', NULL, NULL, '{}', 1894698060000000, 1894698060000000, NULL, NULL, NULL, NULL, '', NULL, 0, NULL, 1, 1894698000000000, '', 1894698000000000, '', NULL);






INSERT INTO public.store_facts VALUES
	('epoch', 0),
	('min_revision', 2),
	('rolled_until', 0);



SELECT pg_catalog.setval('public.sql_changes_id_seq', 1, false);



ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (id);



ALTER TABLE ONLY public.audit_head
    ADD CONSTRAINT audit_head_pkey PRIMARY KEY (id);



ALTER TABLE ONLY public.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (number);



ALTER TABLE ONLY public.buckets
    ADD CONSTRAINT buckets_pkey PRIMARY KEY (name);



ALTER TABLE ONLY public.chimes_version
    ADD CONSTRAINT chimes_version_pkc PRIMARY KEY (version_num);



ALTER TABLE ONLY public.concurrency_keys
    ADD CONSTRAINT concurrency_keys_pkey PRIMARY KEY (key);



ALTER TABLE ONLY public.deliveries
    ADD CONSTRAINT deliveries_pkey PRIMARY KEY (id);



ALTER TABLE ONLY public.fire_batches
    ADD CONSTRAINT fire_batches_pkey PRIMARY KEY (id);



ALTER TABLE ONLY public.fire_failures
    ADD CONSTRAINT fire_failures_pkey PRIMARY KEY (batch_id, schedule_id);



ALTER TABLE ONLY public.inbox
    ADD CONSTRAINT inbox_pkey PRIMARY KEY (id);



ALTER TABLE ONLY public.kept_states
    ADD CONSTRAINT kept_states_pkey PRIMARY KEY (name);



ALTER TABLE ONLY public.node_lags
    ADD CONSTRAINT node_lags_pkey PRIMARY KEY (quarter, node, bracket);



ALTER TABLE ONLY public.node_marks
    ADD CONSTRAINT node_marks_pkey PRIMARY KEY (at, node, joined);



ALTER TABLE ONLY public.nodes
    ADD CONSTRAINT nodes_pkey PRIMARY KEY (id);



ALTER TABLE ONLY public.requests
    ADD CONSTRAINT requests_pkey PRIMARY KEY (scope, request_key);



ALTER TABLE ONLY public.run_lags
    ADD CONSTRAINT run_lags_pkey PRIMARY KEY (owner_type, owner_id, quarter, bracket);



ALTER TABLE ONLY public.run_logs
    ADD CONSTRAINT run_logs_pkey PRIMARY KEY (run_id, number);



ALTER TABLE ONLY public.run_tallies
    ADD CONSTRAINT run_tallies_pkey PRIMARY KEY (owner_type, owner_id, quarter, namespace, kind, origin, status);



ALTER TABLE ONLY public.runs
    ADD CONSTRAINT runs_pkey PRIMARY KEY (id);



ALTER TABLE ONLY public.schedules
    ADD CONSTRAINT schedules_pkey PRIMARY KEY (id);



ALTER TABLE ONLY public.sql_changes
    ADD CONSTRAINT sql_changes_pkey PRIMARY KEY (id);



ALTER TABLE ONLY public.store_facts
    ADD CONSTRAINT store_facts_pkey PRIMARY KEY (name);



CREATE INDEX audit_by_object ON public.audit USING btree (object_id, number);



CREATE INDEX audit_by_owner ON public.audit USING btree (owner, number);



CREATE INDEX deliveries_by_owner ON public.deliveries USING btree (owner_type, owner_id, created_at, id);



CREATE INDEX deliveries_by_run ON public.deliveries USING btree (run_id);



CREATE INDEX deliveries_by_state ON public.deliveries USING btree (state, created_at, id);



CREATE INDEX deliveries_created ON public.deliveries USING btree (created_at, id);



CREATE INDEX deliveries_ended ON public.deliveries USING btree (finished_at, id) WHERE (finished_at IS NOT NULL);



CREATE INDEX deliveries_pending ON public.deliveries USING btree (available_at, id) WHERE ((state)::text = 'pending'::text);



CREATE INDEX inbox_by_owner ON public.inbox USING btree (owner_type, owner_id, created_at, id);



CREATE INDEX inbox_by_run ON public.inbox USING btree (run_id);



CREATE INDEX inbox_created ON public.inbox USING btree (created_at, id);



CREATE INDEX requests_expiring ON public.requests USING btree (expires_at);



CREATE INDEX run_lags_by_quarter ON public.run_lags USING btree (quarter);



CREATE INDEX run_tallies_by_quarter ON public.run_tallies USING btree (quarter);



CREATE INDEX runs_active ON public.runs USING btree (concurrency_key, blocked) WHERE ((status)::text = ANY ((ARRAY['queued'::character varying, 'running'::character varying])::text[]));



CREATE INDEX runs_blocked ON public.runs USING btree (concurrency_key, rank DESC, available_at, planned_at, id) WHERE (((status)::text = 'queued'::text) AND (blocked = 1));



CREATE INDEX runs_by_parent ON public.runs USING btree (parent_id, created_at, id) WHERE (parent_id IS NOT NULL);



CREATE UNIQUE INDEX runs_by_slot ON public.runs USING btree (schedule_id, slot) WHERE (slot IS NOT NULL);



CREATE INDEX runs_by_source ON public.runs USING btree (needs, created_at, id) WHERE ((kind)::text = 'sync'::text);



CREATE INDEX runs_claimable ON public.runs USING btree (rank DESC, available_at, planned_at, id) WHERE (((status)::text = 'queued'::text) AND (blocked = 0));



CREATE INDEX runs_created_at ON public.runs USING btree (created_at);



CREATE INDEX runs_ended_at ON public.runs USING btree (finished_at) WHERE (finished_at IS NOT NULL);



CREATE INDEX runs_held ON public.runs USING btree (holder) WHERE (holder IS NOT NULL);



CREATE INDEX runs_planned_at ON public.runs USING brin (planned_at);



CREATE INDEX runs_scheduled ON public.runs USING btree (schedule_id, created_at) WHERE (schedule_id IS NOT NULL);



CREATE INDEX runs_unusual ON public.runs USING btree (status, created_at) WHERE ((status)::text <> ALL ((ARRAY['queued'::character varying, 'running'::character varying, 'succeeded'::character varying])::text[]));



CREATE INDEX schedules_created_at ON public.schedules USING btree (created_at) WHERE (deleted_at IS NULL);



CREATE INDEX schedules_due ON public.schedules USING btree (next_run_at, id) WHERE ((enabled = 1) AND (deleted_at IS NULL) AND (next_run_at IS NOT NULL));



CREATE INDEX schedules_named ON public.schedules USING btree (name, id) WHERE (deleted_at IS NULL);



CREATE INDEX schedules_owned ON public.schedules USING btree (owner_type, owner_id, deleted_at, enabled);



CREATE INDEX schedules_troubled ON public.schedules USING btree (id) WHERE ((deleted_at IS NULL) AND ((enabled = 0) OR ((last_status)::text <> 'succeeded'::text)));



CREATE TRIGGER cb_schedules_change INSTEAD OF INSERT OR DELETE OR UPDATE ON public.cb_schedules FOR EACH ROW EXECUTE FUNCTION public.cb_schedules_change();




