"""One active run per pair, however many nodes request one concurrently."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chimes.errors import StoreBusy
from chimes.model.listing import RunQuery
from chimes.model.planning import plan
from chimes.model.policy import Overlap, Policy
from chimes.model.run import Reason, RunStatus
from chimes.store.port import FireResult
from chimes.store.sql import SqlStore
from chimes.store.sql.database import mariadb as mariadb_server
from chimes.store.sql.database import postgres as postgres_server
from chimes.triggers import Every
from tests.builders import SYNC, a_schedule, a_sync_run, an_entry
from tests.servers.redis_places import empty_redis_url
from tests.store.key_races import AUDIT_HEAD, one_after_the_other
from tests.store.pair_process import ALL_ROUNDS, PAIRS, PROCESSES, eight_processes, store_at
from tests.store.server_rig import SERVERS, Rig, rig_at


@pytest.fixture(params=SERVERS)
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    name = "postgres_url" if request.param == "postgresql" else "mariadb_url"
    async with rig_at(request.param, request.getfixturevalue(name)) as rig:
        yield rig


async def due_sync(store: SqlStore) -> None:
    now = await store.now()
    policy = Policy(overlap=Overlap.SKIP, concurrency_key=SYNC.key)
    every = Every("1h", anchor=now)
    await store.add_schedule(
        a_schedule(target=SYNC, policy=policy, trigger=every, next_slot=now, next_run_at=now)
    )


# The second request waits for the lock before the first run is visible, and checks again
# afterwards.
async def test_request_waits_for_a_concurrent_request(rig: Rig) -> None:
    one, other = await rig.stores(2)
    first, second = a_sync_run(), a_sync_run()
    answers = await one_after_the_other(
        one.add_unless_active(first, an_entry()),
        other.add_unless_active(second),
        rig.held(AUDIT_HEAD),
    )
    assert answers == [(first, True), (first, False)]


async def test_slot_waits_for_a_concurrent_request(rig: Rig) -> None:
    one, other = await rig.stores(2)
    await due_sync(one)
    run = a_sync_run()
    added, fired = await one_after_the_other(
        one.add_unless_active(run, an_entry()), other.fire_due(plan, limit=5), rig.held(AUDIT_HEAD)
    )
    assert added == (run, True)
    assert isinstance(fired, FireResult)
    (skipped,) = fired.others
    assert (skipped.status, skipped.reason) == (RunStatus.SKIPPED, Reason.OVERLAP)


async def test_request_waits_for_a_concurrent_slot(rig: Rig) -> None:
    one, other = await rig.stores(2)
    await due_sync(one)
    fired, answer = await one_after_the_other(
        one.fire_due(plan, limit=5), other.add_unless_active(a_sync_run()), rig.batches_held()
    )
    assert isinstance(fired, FireResult)
    (run,) = fired.others
    assert run.status is RunStatus.QUEUED
    assert answer == (run, False)


@pytest.fixture
def short_lock_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second is the shortest lock timeout of MariaDB."""
    for_postgres = postgres_server._SESSION | {"lock_timeout": "1s"}
    monkeypatch.setattr(postgres_server, "_SESSION", for_postgres)
    for_mariadb = (*mariadb_server._SESSION, "SET SESSION innodb_lock_wait_timeout = 1")
    monkeypatch.setattr(mariadb_server, "_SESSION", for_mariadb)


# If the lock is not available, nothing happens, and there is no second try.
async def test_request_without_the_lock_of_its_pair_changes_nothing(
    rig: Rig, short_lock_timeout: None
) -> None:
    store = await rig.store()
    first, _ = await store.add_unless_active(a_sync_run())
    await store.cancel_run(first.id, "enough")
    async with rig.keys_held():
        with pytest.raises(StoreBusy, match=f"another transaction is using {SYNC.key}"):
            await asyncio.wait_for(store.add_unless_active(a_sync_run(), an_entry()), 60)
    assert store.counters()["conflicts"] == 0
    assert (await store.counts()).runs == {RunStatus.CANCELED: 1}
    assert (await store.add_unless_active(a_sync_run()))[1]


# The lock is not needed: a pair that is found active needs none.
async def test_active_pair_is_returned_without_a_lock(rig: Rig, short_lock_timeout: None) -> None:
    store = await rig.store()
    run, _ = await store.add_unless_active(a_sync_run())
    async with rig.keys_held():
        assert await store.add_unless_active(a_sync_run()) == (run, False)


# A pass does not wait for the schedule of another run.
async def test_cancel_old_needs_no_lock_of_another_schedule(patient_store: None, rig: Rig) -> None:
    store = await rig.store()
    now = await store.now()
    shared = Policy(overlap=Overlap.CANCEL_OLD, concurrency_key="shared")
    due = {"trigger": Every("1h", anchor=now), "next_slot": now, "next_run_at": now}
    other = await store.add_schedule(a_schedule(policy=shared, **due))
    (theirs,) = (await store.fire_due(plan, limit=5)).others
    await store.add_schedule(a_schedule(policy=shared, **due))
    async with rig.schedule_held(other.id):
        # Less than the lock timeout of these tests, and enough for a busy machine.
        fired = await asyncio.wait_for(store.fire_due(plan, limit=5), 45)
    assert [run.blocked for run in fired.others] == [True]
    assert await store.get_run(theirs.id) == theirs


# --- processes --------------------------------------------------------------------------------
@pytest.fixture(params=["sqlite", *SERVERS, "redis"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "chimes.db")
    if request.param == "redis":
        return empty_redis_url()
    name = "postgres_url" if request.param == "postgresql" else "mariadb_url"
    return str(request.getfixturevalue(name))


async def test_eight_processes_make_one_active_run_per_pair(location: str) -> None:
    answers = await asyncio.to_thread(eight_processes, location)
    assert len(answers) == PROCESSES
    store = store_at(location)
    await store.open()
    page = await store.list_runs(RunQuery(limit=None))
    await store.close()
    active = {run.concurrency_key: run for run in page.items if not run.status.terminal}
    assert len([run for run in page.items if not run.status.terminal]) == len(active)
    pairs = [(pair, round_) for round_ in ALL_ROUNDS for pair in round_.pairs]
    assert active.keys() == {pair.key for pair, _ in pairs}
    made: Counter[str] = Counter()
    for key, run_id, created in (each for answer in answers for each in answer):
        assert run_id == active[key].id
        made[key] += created
    ticked = 0
    for pair, round_ in pairs:
        run = active[pair.key]
        slots = [each for each in page.items if each.target == pair and each.slot is not None]
        assert made[pair.key] == (run.slot is None)
        # A slot that lost the race is recorded as skipped.
        assert len(slots) == round_.ticking
        if round_.ticking and run.slot is None:
            assert (slots[0].status, slots[0].reason) == (RunStatus.SKIPPED, Reason.OVERLAP)
        ticked += run.slot is not None
    assert sum(made.values()) + ticked == len(ALL_ROUNDS) * PAIRS
