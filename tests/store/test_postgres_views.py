"""The compatibility views `cb_schedules` and `cb_schedule_metrics`."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import pytest

from chimes.model.audit import verify_chain
from chimes.model.listing import AuditQuery, RunQuery
from chimes.model.planning import FireContext, FirePlan, plan
from chimes.model.run import RunStatus
from chimes.model.schedule import Schedule, pause_schedule
from chimes.model.target import FlowTarget, TaskTarget
from chimes.services.schedules.templates import TEMPLATES
from chimes.store.sql import SqlStore, open_postgres
from chimes.triggers import Cron, Every, Once
from tests.builders import LEASE, MINUTE, NOW, a_node, a_schedule, claim_request
from tests.servers import POSTGRES, shared
from tests.store.server_rig import rig_at


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[SqlStore]:
    store = open_postgres(postgres_url)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def sql(store: SqlStore, postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A plain database client."""
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


async def add_schedule(store: SqlStore, **given: Any) -> Schedule:
    now = await store.now()
    values: dict[str, Any] = {
        "trigger": Every("1h", anchor=now),
        "next_slot": now + MINUTE,
        "next_run_at": now + MINUTE,
        "created_at": now,
        "updated_at": now,
    }
    return await store.add_schedule(a_schedule(**(values | given)))


async def current(store: SqlStore, schedule: Schedule) -> Schedule:
    found = await store.get_schedule(schedule.id)
    assert found is not None
    return found


async def test_the_view_has_the_documented_columns(
    store: SqlStore, sql: asyncpg.Connection
) -> None:
    schedule = await add_schedule(store, target=TaskTarget(name="t"), name="nightly")
    row = dict(await sql.fetchrow("SELECT * FROM cb_schedules"))
    assert row == {
        "id": schedule.id,
        "name": "nightly",
        "kind": "task",
        "cron_spec": "@every 3600s",
        "next_run_at": schedule.next_run_at,
        "last_run_at": None,
        "last_enqueued_at": None,
        "enabled": True,
        "created_at": schedule.created_at,
        "updated_at": schedule.updated_at,
    }


# `last_run_at` is the slot that was claimed last.
async def test_a_claimed_slot_is_visible_immediately(
    store: SqlStore, sql: asyncpg.Connection
) -> None:
    slot = await store.now() - timedelta(seconds=5)
    hourly = Every("1h", anchor=slot)
    schedule = await add_schedule(store, trigger=hourly, next_slot=slot, next_run_at=slot)
    (run,) = (await store.fire_due(plan, limit=5)).others
    row = await sql.fetchrow("SELECT * FROM cb_schedules")
    assert (row["last_run_at"], row["last_enqueued_at"]) == (slot, run.created_at)
    assert row["updated_at"] == run.created_at > schedule.updated_at
    await sql.execute("UPDATE cb_schedules SET enabled = false")
    assert await sql.fetchval("SELECT updated_at FROM cb_schedules") > run.created_at


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        (Cron("0 9 * * *"), "0 9 * * *"),
        (Cron("@hourly"), "@hourly"),
        (Every("90s", anchor=NOW), "@every 90s"),
        (Every("250ms", anchor=NOW), "@every 0.25s"),
        (Once(NOW), None),
    ],
)
async def test_trigger_is_shown_as_a_cron_spec(
    store: SqlStore, sql: asyncpg.Connection, trigger: Any, expected: str | None
) -> None:
    await add_schedule(store, trigger=trigger, target=FlowTarget(name="f"))
    row = await sql.fetchrow("SELECT kind, cron_spec FROM cb_schedules")
    assert tuple(row) == ("flow", expected)


async def test_corrupt_row_does_not_break_the_view(
    store: SqlStore, sql: asyncpg.Connection
) -> None:
    good, bad = await add_schedule(store), await add_schedule(store)
    await sql.execute("UPDATE schedules SET trigger = '{broken' WHERE id = $1", bad.id)
    rows = await sql.fetch("SELECT id, cron_spec FROM cb_schedules")
    assert {row["id"]: row["cron_spec"] for row in rows} == {good.id: "@every 3600s", bad.id: None}


async def test_disabling_by_sql_pauses_the_schedule(
    store: SqlStore, sql: asyncpg.Connection
) -> None:
    schedule = await add_schedule(store)
    await sql.execute("UPDATE cb_schedules SET enabled = false WHERE id = $1", schedule.id)
    after = await current(store, schedule)
    expected = pause_schedule(schedule, after.updated_at, "sql:chimes")
    assert after == expected
    assert after.updated_at > schedule.updated_at


# No run for the paused time, and the first slot is after now.
async def test_a_resume_by_sql_plans_the_first_slot_after_now(
    store: SqlStore, sql: asyncpg.Connection
) -> None:
    now = await store.now()
    long_ago = now - timedelta(hours=5, minutes=30)
    trigger = Every("1h", anchor=long_ago)
    schedule = await add_schedule(
        store, enabled=False, trigger=trigger, next_slot=None, next_run_at=None
    )
    await sql.execute("UPDATE cb_schedules SET enabled = true WHERE id = $1", schedule.id)
    fired = await store.fire_due(plan, limit=5)
    assert (fired.claimed, fired.others, fired.broken) == ((), (), ())
    after = await current(store, schedule)
    assert after.enabled
    assert after.next_slot == after.next_run_at == long_ago + timedelta(hours=6)
    assert (await store.list_runs(RunQuery())).items == ()


# enabled and next_run_at = now in one statement is fired immediately.
async def test_enabled_and_due_now_runs_immediately(
    store: SqlStore, sql: asyncpg.Connection
) -> None:
    schedule = await add_schedule(store, enabled=False, next_slot=None, next_run_at=None)
    await sql.execute("UPDATE cb_schedules SET enabled = true, next_run_at = now()")
    (run,) = (await store.fire_due(plan, limit=5)).others
    assert (run.schedule_id, run.status) == (schedule.id, RunStatus.QUEUED)


async def test_a_new_time_by_sql_is_the_next_slot(store: SqlStore, sql: asyncpg.Connection) -> None:
    schedule = await add_schedule(store)
    to = (await store.now()).replace(microsecond=123456) + timedelta(days=1)
    await sql.execute("UPDATE cb_schedules SET next_run_at = $1", to)
    after = await current(store, schedule)
    assert (after.next_slot, after.next_run_at, after.version) == (to, to, schedule.version + 1)


# The store writes the definition of a version that SQL has made.
async def test_a_schedule_changed_by_sql_fires_with_a_definition_of_its_version(
    store: SqlStore, sql: asyncpg.Connection, postgres_url: str
) -> None:
    schedule = await add_schedule(store, name="of SQL")
    await sql.execute("UPDATE cb_schedules SET next_run_at = now()")
    assert await sql.fetchval("SELECT definition FROM schedules") == 0
    (run,) = (await store.fire_due(plan, limit=5)).others
    assert await sql.fetchval("SELECT definition FROM schedules") != 0
    other = open_postgres(postgres_url)
    await other.open()
    found = await other.get_run(run.id)
    await other.close()
    assert found is not None
    assert (found.schedule_version, found.schedule_name) == (schedule.version + 1, "of SQL")
    row = await sql.fetchrow("SELECT id, schedule_id FROM cb_schedule_metrics")
    assert tuple(row) == (run.id, schedule.id)


# It locks the cursor first, as every edit does, so that neither waits for the other in a circle.
async def test_a_change_by_sql_waits_for_the_lock_of_the_schedule(
    store: SqlStore, sql: asyncpg.Connection, postgres_url: str
) -> None:
    schedule = await add_schedule(store)
    async with rig_at("postgresql", postgres_url) as rig:
        async with rig.held("SELECT FROM cursors FOR UPDATE"):
            change = asyncio.ensure_future(sql.execute("UPDATE cb_schedules SET enabled = false"))
            await until_waiting(postgres_url)
            # Nothing else is locked yet.
            async with rig.held("SELECT FROM schedules FOR UPDATE NOWAIT"):
                pass
            assert not change.done()
        await asyncio.wait_for(change, 30)
    assert not (await current(store, schedule)).enabled


async def until_waiting(url: str) -> None:
    """Until a transaction waits for a lock of another."""
    connection = await asyncpg.connect(url)
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    async with asyncio.timeout(30):
        while not await connection.fetchval(waiting):  # noqa: ASYNC110
            await asyncio.sleep(0.02)  # no signal announces it
    await connection.close()


async def test_a_time_in_the_past_means_now(store: SqlStore, sql: asyncpg.Connection) -> None:
    schedule = await add_schedule(store)
    await sql.execute("UPDATE cb_schedules SET next_run_at = '2001-01-01'")
    after = await current(store, schedule)
    assert after.next_slot is not None
    assert after.next_slot >= schedule.created_at


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO cb_schedules (id, name) VALUES ('a', 'b')",
        "DELETE FROM cb_schedules",
        "UPDATE cb_schedules SET name = 'other'",
        "UPDATE cb_schedules SET cron_spec = '@daily', enabled = false",
        "UPDATE cb_schedules SET next_run_at = NULL",
        "UPDATE cb_schedules SET enabled = NULL",
    ],
)
async def test_other_changes_by_sql_are_rejected(
    store: SqlStore, sql: asyncpg.Connection, statement: str
) -> None:
    schedule = await add_schedule(store)
    with pytest.raises(asyncpg.PostgresError, match="cb_schedules: "):
        await sql.execute(statement)
    assert await current(store, schedule) == schedule


async def test_a_change_by_sql_wakes_the_nodes(store: SqlStore, sql: asyncpg.Connection) -> None:
    await add_schedule(store)
    heard: list[str] = []
    await sql.add_listener("chimes_public", lambda *given: heard.append(given[-1]))
    since = store.changes()
    await sql.execute("UPDATE cb_schedules SET enabled = false")
    await store.wait_for_work(since, await store.now() + timedelta(seconds=10))
    assert "sql" in heard


async def test_changes_by_sql_are_audited(store: SqlStore, sql: asyncpg.Connection) -> None:
    schedule = await add_schedule(store)
    await sql.execute("UPDATE cb_schedules SET enabled = false")
    await sql.execute("UPDATE cb_schedules SET enabled = true")
    await sql.execute("UPDATE cb_schedules SET next_run_at = '2100-01-01+00'")
    for _ in range(2):
        await store.rescue(limit=10)
    entries = list(reversed(await store.list_audit(AuditQuery())))
    assert [(each.actor, each.interface, each.verb) for each in entries] == [
        ("sql:chimes", "sql", "pause"),
        ("sql:chimes", "sql", "resume"),
        ("sql:chimes", "sql", "reschedule"),
    ]
    assert {(each.object_id, each.owner) for each in entries} == {
        (schedule.id, str(schedule.owner))
    }
    assert entries[0].changes == {"enabled": [True, False]}
    assert verify_chain(entries) is None


# --- metrics ------------------------------------------------------------------------------------
async def test_each_claim_of_a_schedule_has_its_row(
    store: SqlStore, sql: asyncpg.Connection
) -> None:
    await store.join(a_node("node-1"), LEASE)
    now = await store.now()
    good = await add_schedule(store, next_slot=now, next_run_at=now)
    bad = await add_schedule(store, next_slot=now, next_run_at=now)

    def failing_for_one(schedule: Schedule, context: FireContext, at: datetime) -> FirePlan:
        if schedule.id == bad.id:
            raise ValueError("cannot plan this")
        return plan(schedule, context, at)

    (run,) = (await store.fire_due(failing_for_one, limit=5, request=claim_request())).claimed
    rows = {row["schedule_id"]: row for row in await sql.fetch("SELECT * FROM cb_schedule_metrics")}
    assert list(rows[good.id].keys()) == [
        "id",
        "schedule_id",
        "claimed_at",
        "claimed_by_worker_id",
        "enqueued_at",
        "duration_ms",
        "success",
        "error_message",
    ]
    ok, failed = rows[good.id], rows[bad.id]
    assert (ok["id"], ok["success"], ok["error_message"]) == (run.id, True, None)
    assert ok["claimed_by_worker_id"] == failed["claimed_by_worker_id"]
    assert isinstance(ok["claimed_by_worker_id"], uuid.UUID)
    assert ok["claimed_at"] == run.created_at
    assert ok["claimed_at"] <= ok["enqueued_at"] <= await store.now()
    assert ok["duration_ms"] >= 0
    assert (failed["success"], failed["error_message"]) == (False, "ValueError: cannot plan this")


async def test_the_templates_are_available_in_sql(sql: asyncpg.Connection) -> None:
    rows = await sql.fetch("SELECT name, cron_spec, description FROM cb_schedule_templates")
    assert [tuple(row) for row in rows] == [
        (each.name, each.cron_spec, each.description) for each in TEMPLATES
    ]


async def test_retention_deletes_old_claims(store: SqlStore, sql: asyncpg.Connection) -> None:
    now = await store.now()
    await add_schedule(store, next_slot=now, next_run_at=now)
    await store.fire_due(plan, limit=5)
    assert await sql.fetchval("SELECT count(*) FROM fire_batches") == 1
    await store.prune_runs(before=now - MINUTE, limit=10)
    assert await sql.fetchval("SELECT count(*) FROM fire_batches") == 1
    await store.prune_runs(before=now + MINUTE, limit=10)
    assert await sql.fetchval("SELECT count(*) FROM fire_batches") == 0


@pytest.fixture
async def view_user(
    sql: asyncpg.Connection, postgres_url: str
) -> AsyncIterator[asyncpg.Connection]:
    """A user with rights on the view and no others."""
    role = f"clerk_{uuid.uuid4().hex[:8]}"
    shared(POSTGRES).admin(f"CREATE ROLE {role} LOGIN")
    try:
        await sql.execute(f"GRANT USAGE ON SCHEMA public TO {role}")
        await sql.execute(f"GRANT SELECT, UPDATE ON cb_schedules TO {role}")
        connection = await asyncpg.connect(postgres_url.replace("chimes@", f"{role}@"))
        yield connection
        await connection.close()
    finally:
        await sql.execute(f"REVOKE ALL ON cb_schedules FROM {role}")
        await sql.execute(f"REVOKE ALL ON SCHEMA public FROM {role}")
        shared(POSTGRES).admin(f"DROP ROLE {role}")


async def test_privileges_on_the_view_are_sufficient(
    store: SqlStore, view_user: asyncpg.Connection
) -> None:
    schedule = await add_schedule(store)
    await view_user.execute("UPDATE cb_schedules SET enabled = false")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await view_user.execute("UPDATE schedules SET enabled = 1")
    after = await current(store, schedule)
    role = await view_user.fetchval("SELECT session_user::text")
    assert (after.enabled, after.updated_by) == (False, f"sql:{role}")


async def test_privileges_on_the_view_grant_no_owner_rights(
    store: SqlStore, sql: asyncpg.Connection, view_user: asyncpg.Connection
) -> None:
    """A temporary table of the same name must not be used instead of ours: its triggers would run
    with the owner's rights."""
    schedule = await add_schedule(store)
    await view_user.execute("""
        CREATE TEMP TABLE schedules AS SELECT id, NULL::bigint AS deleted_at, 1 AS enabled,
          '' AS pause_note, NULL::bigint AS pause_until, 1::bigint AS next_slot,
          1::bigint AS next_run_at, 1 AS version, 1::bigint AS updated_at, '' AS updated_by
          FROM cb_schedules;
        CREATE TEMP TABLE trapped (who text);
        CREATE FUNCTION pg_temp.trap() RETURNS trigger LANGUAGE plpgsql AS
          'BEGIN INSERT INTO pg_temp.trapped VALUES (current_user); RETURN NEW; END';
        CREATE TRIGGER trap BEFORE UPDATE ON schedules FOR EACH ROW
          EXECUTE FUNCTION pg_temp.trap();
        GRANT ALL ON schedules, trapped TO PUBLIC;
    """)
    await view_user.execute("UPDATE public.cb_schedules SET enabled = false")
    assert await view_user.fetch("SELECT who FROM trapped") == []
    assert not (await current(store, schedule)).enabled
