"""Open, close, export, import and restart."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from chimes.errors import AlreadyExists
from chimes.model import replace
from chimes.model.checkpoint import Checkpoint
from chimes.model.planning import plan
from chimes.model.policy import Misfire, Overlap, Policy
from chimes.model.run import RunStatus, mark_lost, release
from chimes.model.schedule import Schedule
from chimes.store.epoch import EpochStore, describe_rollback
from chimes.store.port import AuditEntry, Item, Run, RunLog, Store
from chimes.testing import SettableClock
from chimes.triggers import trigger_from_dict
from tests.builders import (
    LEASE,
    MINUTE,
    NOW,
    SECOND,
    a_completion,
    a_run,
    a_schedule,
    an_entry,
    claim_request,
    due_schedule,
)
from tests.store_contract.scenes import all_runs, contents, joined, populate, running_run
from tests.store_contract.stores import KINDS, Home, StoreKind


async def test_new_store_is_empty(store: Store) -> None:
    assert await contents(store) == []
    assert await store.nodes() == ()


async def test_status_names_kind_and_location(store: Store, home: Home) -> None:
    status = await store.status()
    assert status.kind == home.kind.name
    assert status.location
    assert status.schema
    assert status.degraded == ""


async def test_close_can_be_repeated(home: Home) -> None:
    store = await home.open()
    await store.close()
    await store.close()


async def test_store_time_is_the_injected_clock(store: Store, clock: SettableClock) -> None:
    assert await store.now() == NOW
    clock.advance(1.000001)
    assert await store.now() == clock.now()
    clock.set(NOW - MINUTE)
    assert await store.now() == NOW - MINUTE


def after_import(item: Item) -> Item:
    """An item after import: running runs are queued, since their node is not part of the import."""
    if isinstance(item, Run) and item.status is RunStatus.RUNNING:
        return release(item)
    return item


@pytest.mark.parametrize("target", KINDS, ids=lambda kind: kind.name)
async def test_export_can_be_imported_into_every_other_store(
    store: Store, clock: SettableClock, target: StoreKind, tmp_path: Path
) -> None:
    await populate(store, clock)
    before = await contents(store)
    kinds = {type(item).__name__ for item in before}
    every = {"Schedule", "Run", "RunLog", "AuditEntry", "ApiKey", "Checkpoint"}
    assert kinds == every | {"Delivery", "InboxItem"}
    assert any(isinstance(item, Run) and item.status is RunStatus.RUNNING for item in before)
    (tmp_path / "new").mkdir()
    new_home = Home(target, tmp_path / "new", clock)
    other = await new_home.open()
    try:
        items = [item async for item in store.dump()]
        assert await other.load(items) == len(items)
        after = await contents(other)
        assert after == [after_import(item) for item in before]
        assert await contents(store) == before
        # Existing items are kept and not counted.
        assert await other.load(items) == 0
        assert await contents(other) == after
        # Indexes and counters are rebuilt.
        assert await other.next_due() == await store.next_due()
        assert await other.next_delivery() == await store.next_delivery()
        entry = await other.append_audit(an_entry())
        last = [item for item in before if isinstance(item, AuditEntry)][-1]
        assert (entry.number, entry.previous_hash) == (last.number + 1, last.hash)
    finally:
        await new_home.close()


async def test_audit_entries_are_exported_in_ascending_order(store: Store) -> None:
    for _ in range(12):
        await store.append_audit(an_entry())
    dumped = [item async for item in store.dump() if isinstance(item, AuditEntry)]
    assert [entry.number for entry in dumped] == list(range(1, 13))


async def test_import_keeps_slots_unique(store: Store) -> None:
    schedule = await store.add_schedule(a_schedule())
    (run,) = await store.add_runs([a_run(schedule, slot=NOW)])
    twin = a_run(schedule, slot=NOW)
    fresh = a_run(schedule, slot=NOW + SECOND)
    assert await store.load([schedule, twin, fresh]) == 1
    assert await all_runs(store) == {run.id: run, fresh.id: fresh}


async def test_imported_schedule_fires(store: Store, clock: SettableClock) -> None:
    schedule = due_schedule()
    assert await store.load([schedule]) == 1
    assert await store.next_due() == NOW
    (run,) = (await store.fire_due(plan, limit=10)).others
    assert run.schedule_id == schedule.id


async def test_imported_running_run_is_queued(store: Store) -> None:
    run = replace(
        a_run(),
        status=RunStatus.RUNNING,
        attempt=2,
        fence=5,
        holder="elsewhere",
        started=True,
        claimed_at=NOW,
        started_at=NOW - MINUTE,
    )
    assert await store.load([run, RunLog(run_id=run.id, entries=())]) >= 1
    assert await store.get_run(run.id) == release(run)
    assert await store.rescue(limit=10) == ()


# --- durable stores ---------------------------------------------------------------------------
def after_restart(item: Item, kind: StoreKind, now: datetime) -> Item:
    """An item after a restart. A store for one process queues the runs of the previous process;
    otherwise their leases decide."""
    if not kind.shared and isinstance(item, Run) and item.status is RunStatus.RUNNING:
        return mark_lost(item, now)
    return item


async def test_contents_survive_a_restart(durable_home: Home, clock: SettableClock) -> None:
    store = await durable_home.open()
    await populate(store, clock)
    before = await contents(store)
    due, pending = await store.next_due(), await store.next_delivery()
    now = clock.advance(1)
    store = await durable_home.reopen()
    assert await contents(store) == [after_restart(item, durable_home.kind, now) for item in before]
    assert (await store.next_due(), await store.next_delivery()) == (due, pending)
    status = await store.status()
    assert status.degraded == ""


async def test_indexes_and_counts_survive_a_restart(
    durable_home: Home, clock: SettableClock
) -> None:
    store = await durable_home.open()
    await store.add_schedule(due_schedule())
    await store.add_schedule(a_schedule(enabled=False))
    await store.add_runs([a_run(available_at=NOW + MINUTE), a_run(concurrency_key="k")])
    (blocked,) = await store.add_runs([a_run(concurrency_key="k")])
    before = await store.counts(), await store.next_due(), await store.next_available()
    store = await durable_home.reopen()
    assert before == (await store.counts(), await store.next_due(), await store.next_available())
    await joined(store)
    (first,) = await store.claim(claim_request())
    await store.finish([a_completion(first, clock.now())])
    assert [run.id for run in await store.claim(claim_request())] == [blocked.id]


async def test_ids_slots_and_audit_chain_survive_a_restart(
    durable_home: Home, clock: SettableClock
) -> None:
    store = await durable_home.open()
    schedule = await store.add_schedule(due_schedule())
    (run,) = (await store.fire_due(plan, limit=10)).others
    last = await store.append_audit(an_entry())
    store = await durable_home.reopen()
    with pytest.raises(AlreadyExists):
        await store.add_schedule(schedule)
    assert await store.add_runs([a_run(schedule, slot=NOW)]) == (run,)
    following = await store.append_audit(an_entry())
    assert (following.number, following.previous_hash) == (last.number + 1, last.hash)


async def test_runs_of_a_dead_process_continue_after_a_restart(
    durable_home: Home, clock: SettableClock
) -> None:
    run = await running_run(await durable_home.open())
    store = await durable_home.reopen()
    clock.advance(LEASE)
    await store.rescue(limit=10)
    await joined(store, "node-2")
    (again,) = await store.claim(claim_request("node-2"))
    assert (again.id, again.attempt, again.fence, again.crashes) == (run.id, 2, 2, 1)
    stale = a_completion(run, clock.now())
    assert (await store.finish([stale])).refused == (run.id,)


# --- clearing, for a restore ------------------------------------------------------------------
async def test_cleared_store_is_empty_and_can_be_filled_again(
    store: Store, clock: SettableClock
) -> None:
    await populate(store, clock)
    items = [item async for item in store.dump()]
    before = await contents(store)
    await store.set_checkpoint("kept", "value")
    await store.clear(keep="kept")
    (left,) = await contents(store)
    assert isinstance(left, Checkpoint)
    assert (left.name, left.value) == ("kept", "value")
    assert await store.nodes() == ()
    assert (await store.next_due(), await store.next_available()) == (None, None)
    counts = await store.counts()
    assert (counts.schedules, sum(counts.runs.values())) == (0, 0)
    await store.set_checkpoint("kept", None)
    assert await store.load(items) == len(items)
    assert await contents(store) == [after_import(item) for item in before]


async def test_nodes_find_that_a_store_was_cleared(store: Store) -> None:
    if not isinstance(store, EpochStore):
        pytest.skip("one process has this store")
    before = [await store.epoch() for _ in range(3)][-1]
    await store.clear()
    assert describe_rollback(before, await store.epoch())


async def test_cleared_store_stays_empty_after_a_restart(
    durable_home: Home, clock: SettableClock
) -> None:
    store = await durable_home.open()
    await populate(store, clock)
    await store.clear()
    assert await contents(await durable_home.reopen()) == []


async def test_export_while_runs_are_fired_and_finished(store: Store, clock: SettableClock) -> None:
    """Between any two items that an export yields, a node fires, claims and finishes runs."""
    every = trigger_from_dict({"kind": "every", "every": "1s"})
    policy = Policy(misfire=Misfire.ALL, overlap=Overlap.QUEUE)
    for number in range(4):
        await store.add_schedule(due_schedule(id=f"s{number}", trigger=every, policy=policy))
    await joined(store, lease=timedelta(hours=1))

    async def work() -> None:
        clock.advance(1)
        await store.fire_due(plan, limit=10)
        for run in await store.claim(claim_request(free=2)):
            await store.finish([a_completion(run, clock.now())])

    for _ in range(10):
        await work()
    ended = {run.id: run for run in (await all_runs(store)).values() if run.status.terminal}
    items: list[Item] = []
    async for item in store.dump():
        items.append(item)
        await work()
    runs = [item for item in items if isinstance(item, Run)]
    found = {run.id: run for run in runs}
    assert len(found) == len(runs)
    assert {run_id: found[run_id] for run_id in ended} == ended
    # No key has more active runs than its limit.
    unended = [run for run in runs if not run.status.terminal]
    active = Counter(run.concurrency_key for run in unended if not run.blocked)
    assert set(active.values()) <= {1}
    # A cursor is behind every slot that has no run.
    for schedule in (item for item in items if isinstance(item, Schedule)):
        slots = {run.slot for run in runs if run.schedule_id == schedule.id}
        assert schedule.next_slot is not None
        passed = range((schedule.next_slot - NOW) // SECOND)
        assert {NOW + place * SECOND for place in passed} <= slots
