"""The view `t_action_schedule`: read and updated with plain SQL while nodes run."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import asyncmy.errors
import pytest

from chimes.clock import EPOCH
from chimes.model import replace
from chimes.model.ids import ScheduleId
from chimes.model.listing import AuditQuery
from chimes.model.planning import plan
from chimes.model.policy import Overlap, Policy
from chimes.model.schedule import delete_schedule, pause_schedule, plan_after
from chimes.model.target import ActionTarget
from chimes.services.schedules.templates import TEMPLATES
from chimes.store.sql import SqlStore
from chimes.store.sql.rows.values import micros
from chimes.triggers import Cron, Every
from chimes.web.compat.kweaver.translate import Account, with_expression, written_by
from tests.builders import a_node, a_schedule, claim_request
from tests.servers import MARIADB, shared
from tests.store.mariadb_rig import opened, sql
from tests.store.server_rig import rig_at, until_listening

COLUMNS = [
    "f_id",
    "f_name",
    "f_kn_id",
    "f_branch",
    "f_action_type_id",
    "f_cron_expression",
    "f_unique_identities",
    "f_dynamic_params",
    "f_status",
    "f_last_run_time",
    "f_next_run_time",
    "f_lock_holder",
    "f_lock_time",
    "f_creator",
    "f_create_time",
    "f_updater",
    "f_update_time",
    "f_instance_identities",
    "f_creator_type",
    "f_updater_type",
]
HOUR = timedelta(hours=1)


@pytest.fixture
async def store(mariadb_url: str) -> AsyncIterator[SqlStore]:
    async with opened(mariadb_url) as store:
        yield store


async def add(store: SqlStore, **given: object) -> ScheduleId:
    """Hourly on the hour, by the store's clock."""
    now = await store.now()
    values = {"trigger": Every("1h", anchor=EPOCH), "created_at": now, "updated_at": now}
    schedule = a_schedule(**({"next_slot": None} | values | given))
    if schedule.enabled and schedule.next_slot is None:
        schedule = plan_after(schedule, now)
    return (await store.add_schedule(schedule)).id


def ms(moment: datetime | None) -> int:
    assert moment is not None
    return round(moment.timestamp() * 1000)


async def column(url: str, name: str, schedule_id: str) -> object:
    ((value,),) = await sql(
        url, f"SELECT {name} FROM t_action_schedule WHERE f_id = '{schedule_id}'"
    )
    return value


async def test_the_view_has_the_columns_of_the_table(store: SqlStore, mariadb_url: str) -> None:
    rows = await sql(mariadb_url, "SHOW COLUMNS FROM t_action_schedule")
    assert [row[0] for row in rows] == COLUMNS


async def test_a_schedule_reads_as_a_row_of_that_table(store: SqlStore, mariadb_url: str) -> None:
    schedule_id = await add(
        store,
        name="nightly «เที่ยงคืน»",
        trigger=Cron("0 3 * * *", timezone="UTC"),
        target=ActionTarget(
            kn_id="kn-1",
            branch="main",
            action_type_id='at "7"',
            identities=({"id": "ก1"}, {"id": 2}),
            params={"deep": {"a": [1, None]}},
            account_id="u-1",
            account_type="app",
        ),
        created_by="carol",
        updated_by="dave",
    )
    schedule = await store.get_schedule(schedule_id)
    assert schedule is not None
    ((*row,),) = await sql(mariadb_url, "SELECT * FROM t_action_schedule")
    assert dict(zip(COLUMNS, row, strict=True)) == {
        "f_id": schedule_id,
        "f_name": "nightly «เที่ยงคืน»",
        "f_kn_id": "kn-1",
        "f_branch": "main",
        "f_action_type_id": 'at "7"',
        "f_cron_expression": "0 3 * * *",
        "f_unique_identities": '[{"id": "ก1"}, {"id": 2}]',
        "f_dynamic_params": '{"deep": {"a": [1, null]}}',
        "f_status": "active",
        "f_last_run_time": 0,
        "f_next_run_time": ms(schedule.next_run_at),
        "f_lock_holder": None,
        "f_lock_time": 0,
        "f_creator": "u-1",
        "f_create_time": ms(schedule.created_at.replace(microsecond=0))
        + schedule.created_at.microsecond // 1000,
        "f_updater": "dave",
        "f_update_time": ms(schedule.updated_at.replace(microsecond=0))
        + schedule.updated_at.microsecond // 1000,
        "f_instance_identities": '[{"id": "ก1"}, {"id": 2}]',
        "f_creator_type": "app",
        "f_updater_type": "",
    }


# The same values as in the KWeaver API.
async def test_updater_and_cron_read_as_in_the_api(store: SqlStore, mariadb_url: str) -> None:
    draft = a_schedule(
        id="door-made",
        trigger=Cron("0 9 * JAN MON-FRI", timezone="UTC"),
        target=ActionTarget(kn_id="kn-1", action_type_id="at-1", account_id="u-1"),
        updated_by="system:default",
    )
    draft = with_expression(draft, "0 9 ? JAN MON-FRI")
    schedule_id = (await store.add_schedule(written_by(draft, Account("张三", "app")))).id

    async def shown() -> tuple[object, ...]:
        ((*row,),) = await sql(
            mariadb_url,
            "SELECT f_updater, f_updater_type, f_cron_expression FROM t_action_schedule",
        )
        return tuple(row)

    assert await shown() == ("张三", "app", "0 9 ? JAN MON-FRI")
    # Another version has another writer, whatever the API recorded.
    await sql(
        mariadb_url, f"UPDATE t_action_schedule SET f_status='inactive' WHERE f_id='{schedule_id}'"
    )
    updater, kind, expression = await shown()
    assert (str(updater)[:4], kind, expression) == ("sql:", "", "0 9 ? JAN MON-FRI")
    # Another trigger does not show the recorded expression.
    other = Cron("0 8 * * *", timezone="UTC")
    await store.change_schedule(
        schedule_id, lambda found, now: replace(found, trigger=other, updated_by="dave")
    )
    assert await shown() == ("dave", "", "0 8 * * *")


async def test_a_schedule_of_another_interface_has_empty_texts(
    store: SqlStore, mariadb_url: str
) -> None:
    schedule_id = await add(store, created_by="carol")
    assert await column(mariadb_url, "f_creator", schedule_id) == "carol"
    for name in ("f_kn_id", "f_branch", "f_action_type_id", "f_cron_expression"):
        assert await column(mariadb_url, name, schedule_id) == ""


async def test_lock_columns_show_a_running_run(store: SqlStore, mariadb_url: str) -> None:
    now = await store.now()
    schedule_id = await add(store, next_slot=now, next_run_at=now)
    await store.join(a_node("pod-7"), HOUR)
    fired = await store.fire_due(plan, limit=10, request=claim_request("pod-7"))
    (run,) = fired.claimed
    assert run.claimed_at is not None
    assert await column(mariadb_url, "f_lock_holder", schedule_id) == "pod-7"
    assert await column(mariadb_url, "f_lock_time", schedule_id) == pytest.approx(
        run.claimed_at.timestamp() * 1000, abs=1
    )
    await store.leave(a_node("pod-7").id)
    assert await column(mariadb_url, "f_lock_holder", schedule_id) is None
    assert await column(mariadb_url, "f_lock_time", schedule_id) == 0


# The lease is renewed by heartbeats.
async def test_lock_time_is_the_last_renewal_of_the_lease(
    store: SqlStore, mariadb_url: str
) -> None:
    now = await store.now()
    schedule_id = await add(store, next_slot=now, next_run_at=now)
    node = a_node("pod-7")
    await store.join(node, HOUR)
    (run,) = (await store.fire_due(plan, limit=10, request=claim_request("pod-7"))).claimed
    claimed = await column(mariadb_url, "f_lock_time", schedule_id)
    assert run.claimed_at is not None
    assert claimed == micros(run.claimed_at) // 1000
    await asyncio.sleep(0.01)
    await store.heartbeat(node.id, HOUR, clock=await store.now())
    ((renewed,),) = await sql(mariadb_url, "SELECT heartbeat_at DIV 1000 FROM nodes")
    assert await column(mariadb_url, "f_lock_time", schedule_id) == renewed > claimed


# Runs with a shared concurrency key, or none.
@pytest.mark.parametrize(
    ("policy", "key"),
    [
        (Policy(concurrency_key="shared"), "system:default/shared"),
        (Policy(overlap=Overlap.ALLOW), None),
    ],
)
async def test_lock_columns_show_runs_without_the_key_of_the_schedule(
    store: SqlStore, mariadb_url: str, policy: Policy, key: str | None
) -> None:
    now = await store.now()
    schedule_id = await add(store, next_slot=now, next_run_at=now, policy=policy)
    other = await add(store)
    await store.join(a_node("pod-7"), HOUR)
    (run,) = (await store.fire_due(plan, limit=10, request=claim_request("pod-7"))).claimed
    assert run.concurrency_key == key
    assert await column(mariadb_url, "f_lock_holder", schedule_id) == "pod-7"
    assert await column(mariadb_url, "f_lock_holder", other) is None


# The store writes the definition of a version that SQL has made.
async def test_a_schedule_changed_by_sql_fires_with_a_definition_of_its_version(
    store: SqlStore, mariadb_url: str
) -> None:
    schedule_id = await add(store, name="of SQL")
    await sql(mariadb_url, "UPDATE t_action_schedule SET f_next_run_time = 1")
    (run,) = (await store.fire_due(plan, limit=10)).others
    async with opened(mariadb_url) as other:
        found = await other.get_run(run.id)
        schedule = await other.get_schedule(schedule_id)
    assert found is not None
    assert schedule is not None
    assert (found.schedule_version, found.schedule_name) == (schedule.version, "of SQL")
    assert found.schedule_version == 2


# Only the lock of the schedule decides the order; an edit that waits for it finds the change.
async def test_a_change_by_sql_waits_for_an_edit(store: SqlStore, mariadb_url: str) -> None:
    schedule_id = await add(store)
    async with rig_at("mariadb", mariadb_url) as rig:
        async with rig.held("SELECT schedule FROM cursors FOR UPDATE"):
            change = asyncio.ensure_future(
                sql(mariadb_url, "UPDATE t_action_schedule SET f_status = 'inactive'")
            )
            await until_waiting(mariadb_url)
            assert not change.done()
        await asyncio.wait_for(change, 30)
    after = await store.get_schedule(schedule_id)
    assert after is not None
    assert (after.enabled, after.version) == (False, 2)


async def until_waiting(url: str) -> None:
    """Until a transaction in this database waits for a lock of another."""
    waiting = f"""
        SELECT COUNT(*) FROM information_schema.innodb_trx AS trx
        JOIN information_schema.processlist AS process ON process.id = trx.trx_mysql_thread_id
        WHERE trx.trx_state = 'LOCK WAIT' AND process.db = '{url.rpartition("/")[2]}'"""
    async with asyncio.timeout(30):
        while True:
            ((count,),) = await asyncio.to_thread(shared(MARIADB).admin, waiting)
            if count:
                return
            # The server answers from a cache that it renews only 0.1 s after the last read, so
            # reading more often than that shows the first answer for ever.
            await asyncio.sleep(0.25)


# The view shows what Chimes writes.
async def test_the_view_follows_what_chimes_writes(store: SqlStore, mariadb_url: str) -> None:
    schedule_id = await add(store)
    await store.change_schedule(schedule_id, lambda s, now: pause_schedule(s, now, "erin"))
    assert await column(mariadb_url, "f_status", schedule_id) == "inactive"
    assert await column(mariadb_url, "f_next_run_time", schedule_id) == 0
    assert await column(mariadb_url, "f_updater", schedule_id) == "erin"
    await store.change_schedule(schedule_id, lambda s, now: delete_schedule(s, now, "erin"))
    assert await sql(mariadb_url, "SELECT * FROM t_action_schedule") == []


async def test_deactivating_by_sql_pauses(store: SqlStore, mariadb_url: str) -> None:
    schedule_id = await add(store)
    before = await store.get_schedule(schedule_id)
    await sql(
        mariadb_url,
        f"UPDATE t_action_schedule SET f_status = 'inactive' WHERE f_id = '{schedule_id}'",
    )
    after = await store.get_schedule(schedule_id)
    assert before is not None
    assert after is not None
    assert (after.enabled, after.next_slot, after.next_run_at) == (False, None, None)
    assert after.version == before.version + 1
    assert after.updated_by == "sql:chimes"
    assert after.updated_at > before.updated_at
    assert await store.next_due() is None
    assert await column(mariadb_url, "f_next_run_time", schedule_id) == 0


# The first slot is after now; missed slots are not caught up.
async def test_activating_by_sql_continues_with_the_next_slot(
    store: SqlStore, mariadb_url: str
) -> None:
    schedule_id = await add(store)
    await sql(mariadb_url, "UPDATE t_action_schedule SET f_status = 'inactive'")
    await sql(mariadb_url, "UPDATE t_action_schedule SET f_status = 'active'")
    due = await store.next_due()
    assert due is not None
    assert due <= await store.now()
    fired = await store.fire_due(plan, limit=10)
    assert (fired.claimed, fired.others, fired.broken) == ((), (), ())
    after = await store.get_schedule(schedule_id)
    assert after is not None
    now = await store.now()
    following = now.replace(minute=0, second=0, microsecond=0) + HOUR
    assert (after.enabled, after.next_slot, after.next_run_at) == (True, following, following)
    assert await column(mariadb_url, "f_next_run_time", schedule_id) == ms(following)


async def test_a_time_by_sql_is_the_next_slot(store: SqlStore, mariadb_url: str) -> None:
    schedule_id = await add(store)
    wanted = ms(await store.now() + timedelta(minutes=7))
    await sql(mariadb_url, f"UPDATE t_action_schedule SET f_next_run_time = {wanted}")
    after = await store.get_schedule(schedule_id)
    assert after is not None
    moment = datetime.fromtimestamp(wanted / 1000, UTC)
    assert (after.next_slot, after.next_run_at) == (moment, moment)
    assert await column(mariadb_url, "f_next_run_time", schedule_id) == wanted


async def test_a_time_in_the_past_means_now(store: SqlStore, mariadb_url: str) -> None:
    await add(store)
    before = await store.now()
    await sql(mariadb_url, "UPDATE t_action_schedule SET f_next_run_time = 1000")
    fired = await store.fire_due(plan, limit=10)
    (run,) = fired.others
    assert run.slot is not None
    assert before <= run.slot <= await store.now()


async def test_next_run_time_zero_plans_the_schedule_again(
    store: SqlStore, mariadb_url: str
) -> None:
    """The original table uses 0 for "not due": the schedule is planned again, and nothing runs."""
    schedule_id = await add(store)
    await sql(
        mariadb_url,
        f"UPDATE t_action_schedule SET f_next_run_time = 0 WHERE f_id = '{schedule_id}'",
    )
    await store.join(a_node("pod-1"), HOUR)
    fired = await store.fire_due(plan, limit=10)
    assert (fired.claimed, fired.others) == ((), ())
    schedule = await store.get_schedule(schedule_id)
    assert schedule is not None
    assert schedule.next_slot is not None
    assert schedule.next_slot > await store.now()


async def test_status_and_time_in_one_update(store: SqlStore, mariadb_url: str) -> None:
    schedule_id = await add(store, enabled=False)
    wanted = ms(await store.now() + timedelta(minutes=3))
    await sql(
        mariadb_url,
        f"UPDATE t_action_schedule SET f_status = 'active', f_next_run_time = {wanted}",
    )
    after = await store.get_schedule(schedule_id)
    assert after is not None
    assert after.enabled
    assert ms(after.next_run_at) == wanted


async def test_setting_the_time_of_a_paused_schedule_by_sql_has_no_effect(
    store: SqlStore, mariadb_url: str
) -> None:
    schedule_id = await add(store, enabled=False)
    await sql(mariadb_url, "UPDATE t_action_schedule SET f_next_run_time = 9999999999999")
    after = await store.get_schedule(schedule_id)
    assert after is not None
    assert after.next_run_at is None
    assert await column(mariadb_url, "f_next_run_time", schedule_id) == 0


async def test_other_values_and_columns_are_rejected(store: SqlStore, mariadb_url: str) -> None:
    schedule_id = await add(store)
    before = await store.get_schedule(schedule_id)
    for change in (
        "f_status = 'paused'",
        "f_status = NULL",
        "f_next_run_time = NULL",
        "f_lock_holder = 'me'",
    ):
        with pytest.raises(asyncmy.errors.MySQLError):
            await sql(mariadb_url, f"UPDATE t_action_schedule SET {change}")
    assert await store.get_schedule(schedule_id) == before


async def test_an_update_without_a_change_has_no_effect(store: SqlStore, mariadb_url: str) -> None:
    schedule_id = await add(store)
    before = await store.get_schedule(schedule_id)
    await sql(mariadb_url, "UPDATE t_action_schedule SET f_status = 'active'")
    assert await store.get_schedule(schedule_id) == before


# Each change is audited once.
async def test_changes_by_sql_are_audited(store: SqlStore, mariadb_url: str) -> None:
    schedule_id = await add(store)
    wanted = await store.now() + timedelta(minutes=7)
    for change in (
        "f_status = 'inactive'",
        "f_status = 'active'",
        f"f_next_run_time = {ms(wanted)}",
    ):
        await sql(mariadb_url, f"UPDATE t_action_schedule SET {change}")
    for _ in range(2):
        await store.rescue(limit=10)
    entries = await store.list_audit(AuditQuery(limit=10))
    assert [(entry.verb, entry.object_id, entry.actor) for entry in reversed(entries)] == [
        ("pause", schedule_id, "sql:chimes"),
        ("resume", schedule_id, "sql:chimes"),
        ("reschedule", schedule_id, "sql:chimes"),
    ]
    assert entries[2].changes == {"enabled": [True, False]}
    before, after = entries[0].changes["next_run_at"]
    assert datetime.fromisoformat(after) == datetime.fromtimestamp(ms(wanted) / 1000, UTC)
    assert datetime.fromisoformat(before) < wanted


# One broken row does not break the view for the others.
async def test_corrupt_row_shows_its_readable_columns(store: SqlStore, mariadb_url: str) -> None:
    broken, good = await add(store), await add(store, trigger=Cron("5 4 * * *"))
    await sql(
        mariadb_url,
        "UPDATE schedules SET `trigger` = 'x{', target = '', compat_data = '['"
        f" WHERE id = '{broken}'",
    )
    rows = await sql(
        mariadb_url,
        "SELECT f_id, f_cron_expression, f_unique_identities, f_kn_id FROM t_action_schedule"
        " ORDER BY f_id",
    )
    assert rows == [(broken, "", "[]", ""), (good, "5 4 * * *", "[]", "")]


async def test_scheduler_passes_are_measured(store: SqlStore, mariadb_url: str) -> None:
    now = await store.now()
    schedule_id = await add(store, next_slot=now, next_run_at=now)
    await store.join(a_node("pod-7"), HOUR)
    (run,) = (await store.fire_due(plan, limit=10, request=claim_request("pod-7"))).claimed
    ((*row,),) = await sql(mariadb_url, "SELECT * FROM cb_schedule_metrics")
    assert row[:2] == [run.id, schedule_id]
    # As on PostgreSQL.
    assert row[3] == str(uuid.UUID(hashlib.md5(b"pod-7", usedforsecurity=False).hexdigest()))
    assert row[2].replace(tzinfo=UTC) == run.created_at
    assert row[2] <= row[4]
    assert row[6:] == [1, None]


# Other nodes are woken although no node wrote.
async def test_a_change_by_sql_wakes_the_nodes(store: SqlStore, mariadb_url: str) -> None:
    await until_listening(store)
    await add(store)
    for change in ("f_status = 'inactive'", "f_status = 'active'", "f_next_run_time = 1"):
        since = store.changes()
        await sql(mariadb_url, f"UPDATE t_action_schedule SET {change}")
        await asyncio.wait_for(store.wait_for_work(since, None), 60)
        assert store.changes() == since + 1


async def test_the_templates_are_available_in_sql(store: SqlStore, mariadb_url: str) -> None:
    rows = await sql(mariadb_url, "SELECT name, cron_spec, description FROM cb_schedule_templates")
    assert [tuple(row) for row in rows] == [
        (each.name, each.cron_spec, each.description) for each in TEMPLATES
    ]
