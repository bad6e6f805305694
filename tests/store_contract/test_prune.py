"""Pruned runs never fire again."""

from __future__ import annotations

from typing import Any

from chimes.model import replace
from chimes.model.ids import RunId
from chimes.model.insights import RunFilter, Window
from chimes.model.planning import plan
from chimes.model.run import Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.model.target import FlowTarget
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import (
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    a_completion,
    a_retry,
    a_run,
    a_schedule,
    log_lines,
)
from tests.store_contract.scenes import all_runs, running_run, running_slot
from tests.store_contract.stores import Home


def ended(schedule: Schedule | None, minutes_ago: int, **given: Any) -> Run:
    moment = NOW - minutes_ago * MINUTE
    values = {
        "status": RunStatus.SUCCEEDED,
        "created_at": moment,
        "finished_at": moment,
        "slot": moment,
    }
    return a_run(schedule, **(values | given))


async def test_old_ended_runs_are_pruned_with_their_logs(
    store: Store, clock: SettableClock
) -> None:
    old = await running_run(store)
    await store.append_logs(old.id, old.fence, log_lines("old"))
    await store.finish([a_completion(old, clock.now())])
    clock.advance(10)
    edge = await running_run(store)
    waits = await running_run(store)
    await store.finish([a_completion(edge, clock.now()), a_retry(waits, clock.now(), SECOND)])
    runs = await running_run(store)
    await store.add_runs([a_run(created_at=NOW - HOUR)])
    before = await all_runs(store)
    assert await store.prune_runs(before=clock.now(), limit=100) == 1
    del before[old.id]
    assert await all_runs(store) == before
    assert {edge.id, waits.id, runs.id} <= set(before)
    assert await store.read_logs(old.id) == ()
    assert await store.prune_runs(before=clock.now(), limit=100) == 0


async def test_oldest_runs_are_pruned_first_up_to_the_limit(store: Store) -> None:
    rows = [ended(None, minutes) for minutes in (1, 5, 3, 2, 4)]
    await store.add_runs(rows)
    assert await store.prune_runs(before=NOW, limit=2) == 2
    assert set(await all_runs(store)) == {rows[0].id, rows[2].id, rows[3].id}
    assert await store.prune_runs(before=NOW, limit=100) == 3
    assert await all_runs(store) == {}


async def test_purged_until_rises_to_the_newest_pruned_slot(store: Store) -> None:
    schedule = await store.add_schedule(a_schedule())
    other = await store.add_schedule(a_schedule())
    await store.add_runs([ended(schedule, 5), ended(schedule, 9), ended(schedule, 2)])
    await store.add_runs([ended(schedule, 90, slot=None, id=RunId("manual"))])
    assert await store.prune_runs(before=NOW - 4 * MINUTE, limit=100) == 3
    marked = replace(schedule, purged_until=NOW - 5 * MINUTE)
    assert await store.get_schedule(schedule.id) == marked
    assert await store.get_schedule(other.id) == other
    # An older slot that ends late does not lower it.
    await store.add_runs([ended(schedule, 7)])
    assert await store.prune_runs(before=NOW - 4 * MINUTE, limit=100) == 1
    assert await store.get_schedule(schedule.id) == marked


async def test_pruned_missed_run_covers_all_its_slots(store: Store) -> None:
    schedule = await store.add_schedule(a_schedule())
    row = ended(
        schedule,
        60,
        status=RunStatus.MISSED,
        missed_count=30,
        missed_until=NOW - 31 * MINUTE,
    )
    await store.add_runs([row])
    assert await store.prune_runs(before=NOW, limit=100) == 1
    after = await store.get_schedule(schedule.id)
    assert after == replace(schedule, purged_until=NOW - 31 * MINUTE)


async def test_pruned_id_of_a_manual_run_can_be_reused(store: Store) -> None:
    """Only slots stay unique after retention."""
    run = ended(None, 5)
    await store.add_runs([run])
    await store.prune_runs(before=NOW, limit=100)
    assert await store.add_runs([run]) == (run,)


async def test_pruned_slot_never_fires_again(store: Store, clock: SettableClock) -> None:
    schedule, run = await running_slot(store)
    await store.finish([a_completion(run, clock.now())])
    clock.advance(30)
    assert await store.prune_runs(before=clock.now(), limit=10) == 1
    await store.change_schedule(
        schedule.id, lambda s, now: replace(s, next_slot=NOW, next_run_at=NOW)
    )
    fired = await store.fire_due(plan, limit=10)
    assert (fired.claimed, fired.others) == ((), ())
    assert await all_runs(store) == {}
    assert await store.next_due() == NOW + MINUTE


# A node that takes over a long flow needs the steps: it would repeat missing ones.
async def test_steps_are_not_pruned_before_their_flow(store: Store, home: Home) -> None:
    flow = a_run(target=FlowTarget(name="etl"), created_at=NOW - HOUR)
    over = ended(None, 60, slot=None, target=FlowTarget(name="etl"))
    steps = [
        ended(None, 50, slot=None, parent_id=flow.id, step="first"),
        ended(None, 50, slot=None, parent_id=over.id, step="first"),
        ended(None, 50, slot=None, parent_id=RunId("forgotten long ago"), step="first"),
    ]
    await store.add_runs([flow, over, *steps])
    assert await store.prune_runs(before=NOW, limit=100) == 3
    assert set(await all_runs(store)) == {flow.id, steps[0].id}
    if home.kind.durable:
        store = await home.reopen()
        assert set(await all_runs(store)) == {flow.id, steps[0].id}


async def test_runs_are_deleted_by_id_if_ended(store: Store, clock: SettableClock) -> None:
    """Also removes their logs and rollups; their slots never fire again."""
    schedule = await store.add_schedule(a_schedule())
    gone, stays = (ended(schedule, ago, planned_at=NOW - ago * MINUTE) for ago in (5, 90))
    await store.add_runs([gone, stays])
    under_way = await running_run(store)
    await store.append_logs(under_way.id, under_way.fence, log_lines("still"))
    named = [gone.id, gone.id, under_way.id, RunId("nobody")]
    assert await store.forget_runs(named) == 1
    assert set(await all_runs(store)) == {stays.id, under_way.id}
    assert len(await store.read_logs(under_way.id)) == 1
    assert await store.get_schedule(schedule.id) == replace(schedule, purged_until=gone.slot)
    (tally,) = await store.count_runs(Window.around(NOW - 2 * HOUR, NOW), RunFilter())
    assert tally[RunStatus.SUCCEEDED] == 1
    assert await store.forget_runs(named) == 0
    assert await store.forget_runs([]) == 0


async def test_steps_of_a_running_flow_are_not_deleted_by_id(store: Store) -> None:
    flow = a_run(target=FlowTarget(name="etl"), created_at=NOW - HOUR)
    step = ended(None, 5, parent_id=flow.id, step="one", slot=None)
    await store.add_runs([flow, step])
    assert await store.forget_runs([step.id]) == 0
