"""Concurrency of many nodes on MariaDB: one run per slot, limits are respected, nothing waits for
ever."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from chimes.errors import QuotaExceeded
from chimes.model.access import Quota
from chimes.model.audit import AuditEntry
from chimes.model.ids import NodeId
from chimes.model.planning import plan
from chimes.model.policy import Overlap, Policy
from chimes.model.run import Run, RunStatus
from chimes.store.sql import SqlStore, open_mariadb
from chimes.store.sql.database import mariadb as mariadb_server
from chimes.store.sql.database.base import Tx, Work
from chimes.store.sql.rows.values import schedule_number
from chimes.triggers import Every
from tests.builders import NOW, a_completion, a_node, a_run, a_schedule, claim_request
from tests.engine.rig import until
from tests.store.key_races import (
    AUDIT_HEAD,
    KINDS_OF_KEY,
    check_blocked_run_is_unblocked_by_a_concurrent_completion,
    check_concurrently_added_runs_are_not_both_admitted,
)
from tests.store.mariadb_rig import connect, database_of, rows_of, sql
from tests.store_contract.scenes import all_runs

LONG = timedelta(minutes=10)


@pytest.fixture
async def stores(mariadb_url: str, patient_store: None) -> AsyncIterator[list[SqlStore]]:
    """Five stores, like five processes, each with a node."""
    made = [open_mariadb(mariadb_url) for _ in range(5)]
    for number, store in enumerate(made):
        await store.open()
        await store.join(a_node(f"node-{number}"), LONG)
    yield made
    for store in made:
        await store.close()


@pytest.fixture
def short_lock_timeout(patient_store: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second is the shortest lock timeout of MariaDB."""
    shorter = (*mariadb_server._SESSION, "SET SESSION innodb_lock_wait_timeout = 1")
    monkeypatch.setattr(mariadb_server, "_SESSION", shorter)


async def add_due(store: SqlStore, many: int, **given: object) -> None:
    now = await store.now()
    for _ in range(many):
        values = {"trigger": Every("1h", anchor=now), "created_at": now, "updated_at": now}
        await store.add_schedule(a_schedule(next_slot=now, next_run_at=now, **(values | given)))


async def test_one_of_ten_workers_fires_a_due_schedule(stores: list[SqlStore]) -> None:
    """Two workers on each of five nodes."""
    for _ in range(10):
        await add_due(stores[0], 1)
        workers = [*enumerate(stores), *enumerate(stores)]
        passes = await asyncio.gather(
            *(
                store.fire_due(plan, limit=10, request=claim_request(f"node-{number}"))
                for number, store in workers
            )
        )
        assert sorted(len(fired.claimed) for fired in passes) == [0] * 9 + [1]
    assert len(await all_runs(stores[0])) == 10


# The row lock is held during the transaction.
async def test_locked_schedule_is_skipped(stores: list[SqlStore], mariadb_url: str) -> None:
    await add_due(stores[0], 2)
    holder = await connect(mariadb_url, autocommit=False)
    ((held,), *_) = await rows_of(holder, "SELECT id FROM schedules")
    key = schedule_number(held)
    assert await rows_of(holder, f"SELECT 1 FROM cursors WHERE schedule = {key} FOR UPDATE")
    async with asyncio.timeout(60):
        fired = await stores[0].fire_due(plan, limit=10)
    assert [run.schedule_id for run in fired.others] != []
    assert held not in [run.schedule_id for run in fired.others]
    await holder.rollback()
    await holder.ensure_closed()
    later = await stores[0].fire_due(plan, limit=10)
    assert [run.schedule_id for run in later.others] == [held]


async def test_many_nodes_fire_each_slot_once(stores: list[SqlStore]) -> None:
    await add_due(stores[0], 60)

    async def work(number: int) -> list[Run]:
        store, node = stores[number], f"node-{number}"
        mine: list[Run] = []
        idle = 0
        while idle < 3:
            fired = await store.fire_due(plan, limit=7, request=claim_request(node, 3))
            taken = [*fired.claimed, *await store.claim(claim_request(node, 4))]
            mine.extend(taken)
            idle = 0 if taken or fired.others or fired.more else idle + 1
            now = await store.now()
            finished = await store.finish([a_completion(run, now) for run in taken])
            assert finished.refused == ()
        return mine

    handed_out = [run for runs in await asyncio.gather(*map(work, range(5))) for run in runs]
    rows = await all_runs(stores[0])
    assert len(rows) == 60
    assert Counter(run.id for run in handed_out) == Counter(rows.keys())
    assert {row.status for row in rows.values()} == {RunStatus.SUCCEEDED}
    assert {row.fence for row in rows.values()} == {1}


@asynccontextmanager
async def audit_held(url: str) -> AsyncIterator[None]:
    other = await connect(url, autocommit=False)
    try:
        await rows_of(other, AUDIT_HEAD)
        yield
        await other.rollback()
    finally:
        await other.ensure_closed()


@pytest.mark.parametrize("kind", KINDS_OF_KEY)
async def test_blocked_run_is_unblocked_by_a_concurrent_completion(
    stores: list[SqlStore], mariadb_url: str, kind: str
) -> None:
    await check_blocked_run_is_unblocked_by_a_concurrent_completion(
        *stores[:2], kind, audit_held(mariadb_url)
    )


@pytest.mark.parametrize("kind", KINDS_OF_KEY)
async def test_two_runs_of_a_key_added_concurrently_are_not_both_admitted(
    stores: list[SqlStore], mariadb_url: str, kind: str
) -> None:
    await check_concurrently_added_runs_are_not_both_admitted(
        *stores[:2], kind, audit_held(mariadb_url)
    )


# A limit that several schedules share, while runs are added, claimed, completed, canceled and
# released on all nodes concurrently.
async def test_no_blocked_run_is_left_behind_under_concurrency(stores: list[SqlStore]) -> None:
    policy = Policy(overlap=Overlap.QUEUE, max_concurrent_runs=2, concurrency_key="shared")
    await add_due(stores[0], 8, policy=policy)
    randomness = random.Random(7)
    most = added = 0

    async def work(number: int) -> None:
        nonlocal most, added
        store, node = stores[number], f"node-{number}"
        idle = 0
        while idle < 4:
            fired = await store.fire_due(plan, limit=3, request=claim_request(node, 1))
            taken = [*fired.claimed, *await store.claim(claim_request(node, 2))]
            idle = 0 if taken or fired.others or fired.more else idle + 1
            # Not without end: the last node to work would take each run that it adds.
            if number == 0 and idle == 1 and added < 10:
                added += 1
                more = a_run(
                    concurrency_key="system:default/shared",
                    concurrency_limit=2,
                    available_at=await store.now(),
                )
                await store.add_runs([more])
            held = await running(store)
            most = max(most, held)
            assert held <= 2
            now = await store.now()
            for run in taken:
                match randomness.randrange(4):
                    case 0:
                        await store.release([(run.id, run.fence)])
                    case 1:
                        await store.cancel_run(run.id, "enough")
                        await store.finish([a_completion(run, now)])
                    case _:
                        await store.finish([a_completion(run, now)])
            await asyncio.sleep(0.01)  # lets the other tasks run

    await asyncio.gather(*map(work, range(5)))
    async with asyncio.timeout(30):
        while runs := await stores[0].claim(claim_request("node-0", 5)):
            now = await stores[0].now()
            await stores[0].finish([a_completion(run, now) for run in runs])
    left = [run for run in (await all_runs(stores[0])).values() if not run.status.terminal]
    assert left == []
    assert most > 0
    assert added > 0


async def running(store: SqlStore) -> int:
    return (await store.counts()).runs.get(RunStatus.RUNNING, 0)


# Counted under a lock, so that concurrent requests do not both find room.
async def test_a_quota_holds_under_concurrent_adds(stores: list[SqlStore]) -> None:
    async def add(store: SqlStore) -> bool:
        try:
            await store.add_schedule(a_schedule(), quotas=[Quota(limit=4)])
        except QuotaExceeded:
            return False
        return True

    answers = await asyncio.gather(*(add(store) for store in stores * 3))
    assert sum(answers) == 4


# The audit chain has no forks.
async def test_concurrent_audit_appends_make_one_chain(
    stores: list[SqlStore], mariadb_url: str
) -> None:
    def entry(number: int) -> AuditEntry:
        return AuditEntry(
            at=NOW, actor=f"a{number}", interface="native", verb="x", object_kind="y", object_id="z"
        )

    await asyncio.gather(*(store.append_audit(entry(n)) for n, store in enumerate(stores * 6)))
    rows = await sql(mariadb_url, "SELECT number, previous_hash, hash FROM audit ORDER BY number")
    assert [row[0] for row in rows] == list(range(1, 31))
    assert [row[1] for row in rows[1:]] == [row[2] for row in rows[:-1]]


# Each transaction holds one row and wants the other's.
async def test_a_transaction_is_retried_after_a_deadlock(
    stores: list[SqlStore], mariadb_url: str
) -> None:
    await add_due(stores[0], 2)
    first, second = [row[0] for row in await sql(mariadb_url, "SELECT schedule FROM cursors")]
    calls = Counter[int]()

    def touching(one: int, other: int) -> Work[None]:
        def work(tx: Tx) -> None:
            calls[one] += 1
            count = "UPDATE cursors SET fired_count = fired_count + 1 WHERE schedule = %s"
            tx.connection.exec_driver_sql(count, (one,))
            tx.connection.exec_driver_sql("SELECT SLEEP(0.5)")
            tx.connection.exec_driver_sql(count, (other,))

        return work

    await asyncio.gather(
        database_of(stores[0]).write(touching(first, second)),
        database_of(stores[1]).write(touching(second, first)),
    )
    counts = await sql(mariadb_url, "SELECT fired_count FROM cursors")
    assert counts == [(2,), (2,)]
    assert sum(calls.values()) >= 3
    assert sum(database_of(store).counters.conflicts for store in stores[:2]) >= 1


# Another transaction holds a row for longer than the lock timeout.
async def test_a_transaction_is_retried_after_a_lock_timeout(
    short_lock_timeout: None, stores: list[SqlStore], mariadb_url: str
) -> None:
    await add_due(stores[0], 1)
    schedule = (await stores[0].fire_due(plan, limit=1)).others[0].schedule_id
    assert schedule is not None
    holder = await connect(mariadb_url, autocommit=False)
    await rows_of(holder, "SELECT schedule FROM cursors FOR UPDATE")
    changing = asyncio.create_task(stores[1].change_schedule(schedule, lambda s, _: s))
    await until(lambda: database_of(stores[1]).counters.conflicts or changing.done())
    assert not changing.done()
    await holder.rollback()
    await holder.ensure_closed()
    await asyncio.wait_for(changing, 60)


# A claim races with the end of its node's lease: one of them wins.
async def test_rescue_and_heartbeat_race_has_one_winner(
    stores: list[SqlStore], mariadb_url: str
) -> None:
    await add_due(stores[0], 5)
    fired = await stores[0].fire_due(plan, limit=5, request=claim_request("node-0"))
    assert len(fired.claimed) == 5
    await sql(mariadb_url, "UPDATE nodes SET lease_until = 1 WHERE id = 'node-0'")
    answers = await asyncio.gather(
        *(store.rescue(limit=10) for store in stores),
        stores[0].heartbeat(NodeId("node-0"), LONG, clock=await stores[0].now()),
        return_exceptions=True,
    )
    rescued = [run.id for answer in answers if isinstance(answer, tuple) for run in answer]
    assert sorted(rescued) == sorted(run.id for run in fired.claimed)
