"""Prefetch during concurrent changes: by SQL, and from several nodes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import pytest

from chimes.model import replace
from chimes.model.ids import NodeId, RunId, ScheduleId, slot_run_id
from chimes.model.listing import RunQuery
from chimes.model.planning import PREFETCH_CUTOFF, plan
from chimes.model.run import Run, RunStatus, confirm
from chimes.model.schedule import Schedule, apply_edit, pause_schedule, resume_schedule
from chimes.store.port import ClaimRequest, FireResult
from chimes.store.sql import SqlStore, open_postgres
from chimes.testing import SettableClock
from chimes.triggers import Every
from tests.builders import KINDS, LEASE, a_node, a_schedule
from tests.store_contract.test_moved_slots import move_beyond_following

BATCH_SIZE = 60
HOUR = timedelta(hours=1)


@pytest.fixture
async def stores(postgres_url: str, patient_store: None) -> AsyncIterator[list[SqlStore]]:
    """Several stores, like several processes: each has its own connections, and a node that has
    joined."""
    async with AsyncExitStack() as stack:
        made = []
        for number in range(4):
            store = open_postgres(postgres_url)
            await store.open()
            stack.push_async_callback(store.close)
            await store.join(a_node(f"node-{number}"), LEASE)
            made.append(store)
        yield made


@pytest.fixture
async def sql(stores: list[SqlStore], postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A plain database client."""
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


async def add_due_schedules(
    store: SqlStore, seconds: float = 60.0, count: int = BATCH_SIZE
) -> list[Schedule]:
    slot = await store.now() + timedelta(seconds=seconds)
    given: dict[str, Any] = {
        "trigger": Every("1h", anchor=slot),
        "next_slot": slot,
        "next_run_at": slot,
    }
    made = [a_schedule(**given) for _ in range(count)]
    await store.load(made)
    return made


async def fire_with_prefetch(
    store: SqlStore, number: int = 0, prefetch: timedelta = HOUR
) -> FireResult:
    offer = ClaimRequest(node_id=NodeId(f"node-{number}"), capabilities=KINDS, free=500)
    return await store.fire_due(plan, limit=25, request=offer, prefetch=prefetch)


async def prefetched_runs(store: SqlStore) -> list[Run]:
    runs: list[Run] = []
    while (fired := await fire_with_prefetch(store)).claimed:
        runs.extend(fired.claimed)
    return runs


async def current(store: SqlStore, schedule_id: ScheduleId | None) -> Schedule:
    assert schedule_id is not None
    found = await store.get_schedule(schedule_id)
    assert found is not None
    return found


# --- changes by SQL -----------------------------------------------------------------------------
async def test_a_schedule_disabled_by_sql_does_not_run(
    stores: list[SqlStore], sql: asyncpg.Connection
) -> None:
    await add_due_schedules(stores[0])
    run, *others = await prefetched_runs(stores[0])
    await sql.execute("UPDATE cb_schedules SET enabled = false WHERE id = $1", run.schedule_id)
    assert await stores[0].get_run(run.id) is None
    after = await current(stores[0], run.schedule_id)
    assert (after.enabled, after.next_slot, after.next_run_at) == (False, None, None)
    assert (after.fired_count, after.last_slot) == (0, None)
    assert {each.id for each in (await stores[0].list_runs(RunQuery(limit=None))).items} == {
        each.id for each in others
    }


# the slot is still in the future, so it is the next one again
async def test_a_schedule_disabled_and_enabled_runs_once(
    stores: list[SqlStore], sql: asyncpg.Connection
) -> None:
    made = await add_due_schedules(stores[0])
    slot = made[0].next_slot
    assert slot is not None
    first = await prefetched_runs(stores[0])
    await sql.execute("UPDATE cb_schedules SET enabled = false")
    await sql.execute("UPDATE cb_schedules SET enabled = true")
    while (await stores[0].fire_due(plan, limit=25)).more:
        pass
    again = await prefetched_runs(stores[1])
    assert {run.id for run in again} == {run.id for run in first}
    assert {run.slot for run in again} == {slot}
    assert min(run.fence for run in again) > max(run.fence for run in first)
    for run in again:
        after = await current(stores[0], run.schedule_id)
        assert (after.fired_count, after.last_slot) == (1, slot)


async def test_a_schedule_disabled_and_enabled_does_not_return_to_a_moved_slot(
    stores: list[SqlStore], sql: asyncpg.Connection
) -> None:
    (schedule,) = await add_due_schedules(stores[0], count=1)
    slot = schedule.next_slot
    assert slot is not None
    await move_beyond_following(stores[0], schedule, slot + 1.5 * HOUR)
    await sql.execute("UPDATE cb_schedules SET enabled = false")
    await sql.execute("UPDATE cb_schedules SET enabled = true")
    await stores[0].fire_due(plan, limit=25)
    after = await current(stores[0], schedule.id)
    assert (after.next_slot, after.next_run_at) == (slot + HOUR, slot + HOUR)
    (run,) = (await stores[0].list_runs(RunQuery(limit=None))).items
    assert (run.slot, run.available_at) == (slot, slot + 1.5 * HOUR)


async def test_a_schedule_moved_by_sql_runs_at_the_new_time(
    stores: list[SqlStore], sql: asyncpg.Connection
) -> None:
    await add_due_schedules(stores[0])
    run, *_ = await prefetched_runs(stores[0])
    then = await stores[0].now() + timedelta(days=1)
    moved = "UPDATE cb_schedules SET next_run_at = $1 WHERE id = $2"
    await sql.execute(moved, then, run.schedule_id)
    assert await stores[0].get_run(run.id) is None
    after = await current(stores[0], run.schedule_id)
    assert (after.next_slot, after.next_run_at, after.fired_count) == (then, then, 0)


async def test_an_update_without_a_change_undoes_no_prefetch(
    stores: list[SqlStore], sql: asyncpg.Connection
) -> None:
    await add_due_schedules(stores[0])
    runs = await prefetched_runs(stores[0])
    before = await current(stores[0], runs[0].schedule_id)
    await sql.execute("UPDATE cb_schedules SET enabled = true, next_run_at = next_run_at")
    assert await current(stores[0], runs[0].schedule_id) == before
    assert len((await stores[0].list_runs(RunQuery(limit=None))).items) == BATCH_SIZE


async def test_sql_cannot_withdraw_a_slot_after_the_cutoff(
    stores: list[SqlStore], sql: asyncpg.Connection
) -> None:
    await add_due_schedules(stores[0])
    run, *_ = await prefetched_runs(stores[0])
    # The cutoff has passed.
    await sql.execute(
        "WITH clock AS (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS at),"
        " sooner AS (UPDATE runs SET slot = at + 90000, planned_at = at + 90000 FROM clock"
        "  WHERE id = $1 RETURNING schedule, slot),"
        " due AS (UPDATE claims SET available_at = at + 90000 FROM clock WHERE run_id = $1)"
        " UPDATE cursors SET last_slot = slot FROM sooner"
        " WHERE cursors.schedule = sooner.schedule",
        run.id,
    )
    await sql.execute("UPDATE cb_schedules SET enabled = false WHERE id = $1", run.schedule_id)
    assert (await current(stores[0], run.schedule_id)).fired_count == 1
    assert await stores[0].confirm_prefetched([(run.id, run.fence)]) == {(run.id, run.fence)}


# Whatever the clock says: a confirmed run may be executing.
async def test_sql_cannot_withdraw_a_confirmed_run(
    stores: list[SqlStore], sql: asyncpg.Connection
) -> None:
    await add_due_schedules(stores[0])
    run, *_ = await prefetched_runs(stores[0])
    await sql.execute("UPDATE claims SET claimed_at = available_at WHERE run_id = $1", run.id)
    await sql.execute("UPDATE cb_schedules SET enabled = false WHERE id = $1", run.schedule_id)
    assert await stores[0].get_run(run.id) == confirm(run)
    assert (await current(stores[0], run.schedule_id)).fired_count == 1


# --- locks --------------------------------------------------------------------------------------
async def test_a_run_that_is_being_withdrawn_is_not_confirmed(
    stores: list[SqlStore], sql: asyncpg.Connection, postgres_url: str
) -> None:
    """The confirming node does not wait for it."""
    await add_due_schedules(stores[0])
    runs = await prefetched_runs(stores[0])
    change = sql.transaction()
    await change.start()
    await sql.execute("UPDATE cb_schedules SET enabled = false WHERE id = $1", runs[0].schedule_id)
    # For this store the cutoff has passed.
    at_the_slot = open_postgres(postgres_url, clock=SettableClock(runs[0].planned_at))
    await at_the_slot.open()
    holds = [(run.id, run.fence) for run in runs]
    answer = await asyncio.wait_for(at_the_slot.confirm_prefetched(holds), 30)
    assert answer == set(holds[1:])
    await change.rollback()
    # The transaction was rolled back, so the run is still prefetched.
    assert await at_the_slot.confirm_prefetched(holds[:1]) == set(holds[:1])
    await at_the_slot.close()


@pytest.mark.parametrize("seed", [1, 2])
async def test_changes_race_with_prefetching_nodes(stores: list[SqlStore], seed: int) -> None:
    rng = random.Random(seed)
    # Due after several times as long as adding as many others takes, so that a busy machine, too,
    # prefetches some in time.
    loop = asyncio.get_running_loop()
    began = loop.time()
    await add_due_schedules(stores[0], seconds=7200, count=3 * BATCH_SIZE)
    seconds = 3 + 5 * (loop.time() - began)
    made = await add_due_schedules(stores[0], seconds=seconds, count=3 * BATCH_SIZE)
    slot = made[0].next_slot
    assert slot is not None
    held: dict[int, dict[RunId, Run]] = {0: {}, 1: {}}
    sure: dict[RunId, tuple[int, int]] = {}
    #: Whether the last change that came in time left it enabled.
    on: dict[ScheduleId, bool] = {schedule.id: True for schedule in made}
    late: set[ScheduleId] = set()

    async def prefetching(number: int) -> None:
        store, mine = stores[number], held[number]
        due = False
        while not due:
            # Once more when they are due: a busy machine may miss the short time before.
            due = await store.now() >= slot
            if not due:
                fired = await fire_with_prefetch(store, number)
                mine.update({run.id: run for run in fired.claimed if run.prefetched})
            holds = [(run.id, run.fence) for run in mine.values() if run.id not in sure]
            for run_id, fence in await store.confirm_prefetched(holds):
                sure[run_id] = (number, fence)
            await asyncio.sleep(rng.uniform(0, 0.05))

    async def changing(store: SqlStore, mine: list[Schedule]) -> None:
        while await store.now() < slot:
            schedule = rng.choice(mine)
            way = rng.choice(("pause", "resume", "edit"))

            def change(before: Schedule, now: datetime, way: str = way) -> Schedule:
                if now > slot - PREFETCH_CUTOFF:
                    late.add(before.id)
                match way:
                    case "pause":
                        after = pause_schedule(before, now, "me")
                    case "resume":
                        after = resume_schedule(before, now, "me")
                    case _:
                        after = apply_edit(before, replace(before, name=str(now)), now, "me")
                on[before.id] = after.enabled
                return after

            await store.change_schedule(schedule.id, change)
            await asyncio.sleep(rng.uniform(0, 0.01))

    await asyncio.gather(
        *(prefetching(number) for number in (0, 1)),
        changing(stores[2], made[::2]),
        changing(stores[3], made[1::2]),
    )
    while (await stores[0].fire_due(plan, limit=100)).more:
        pass
    rows = {run.id: run for run in (await stores[0].list_runs(RunQuery(limit=None))).items}
    assert sure, "nothing was ever confirmed"
    for run_id, (number, fence) in sure.items():
        # A confirmed run was never withdrawn.
        assert (rows[run_id].holder, rows[run_id].fence) == (f"node-{number}", fence)
    for schedule in made:
        after = await current(stores[0], schedule.id)
        row = rows.get(slot_run_id(schedule.id, slot))
        if schedule.id not in late:
            assert (row is not None) == on[schedule.id], schedule.id
            assert after.fired_count == (row is not None)
        assert after.last_slot == (slot if row is not None else None)
        assert after.next_slot == (slot + HOUR if after.enabled else None)
    assert {run.status for run in rows.values()} <= {RunStatus.RUNNING, RunStatus.QUEUED}
    assert not set(rows) - {slot_run_id(schedule.id, slot) for schedule in made}
