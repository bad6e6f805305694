"""Open, close, export, import and restart."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from chimes.errors import AlreadyExists
from chimes.model import replace
from chimes.model.planning import plan
from chimes.model.run import RunStatus, mark_lost, release
from chimes.store.port import AuditEntry, Item, Run, RunLog, Store
from chimes.testing import SettableClock
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
