"""Maintenance: slots in a window are skipped on every store, also by a node that is firing when the
window begins."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import datetime

from chimes.model.ids import ScheduleId
from chimes.model.planning import (
    MAINTENANCE_CHECKPOINT,
    PREFETCH_CUTOFF,
    FireContext,
    FirePlan,
    MaintenanceWindow,
    plan,
    windows_to_document,
)
from chimes.model.policy import Misfire, Policy
from chimes.model.run import Reason, Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.store.port import Store, read_maintenance
from chimes.testing import SettableClock
from chimes.triggers import Every
from tests.builders import HOUR, MINUTE, NOW, SECOND, an_entry, claim_request, due_schedule
from tests.store_contract.scenes import all_runs, joined
from tests.store_contract.stores import Home
from tests.store_contract.test_prefetch_store import (
    PREFETCH,
    SLOT,
    SqlStore,
    prefetch_batch,
    prefetch_store,  # noqa: F401
)


async def begin(store: Store, **given: object) -> MaintenanceWindow:
    window = MaintenanceWindow(**{"since": NOW, "by": "me", **given})  # type: ignore[arg-type]
    await store.set_maintenance(json.dumps(windows_to_document([window])))
    assert await read_maintenance(store) == (window,)
    return window


async def statuses(store: Store) -> list[tuple[str | None, str, str]]:
    found = sorted((await all_runs(store)).values(), key=lambda run: (run.planned_at, run.id))
    return [(run.schedule_id, run.status.value, run.reason) for run in found]


async def test_due_slots_are_skipped_while_it_is_on(store: Store, clock: SettableClock) -> None:
    await joined(store)
    schedule = await store.add_schedule(due_schedule(trigger=Every("1m", anchor=NOW)))
    await store.set_maintenance(
        json.dumps(windows_to_document([MaintenanceWindow(since=NOW)])), an_entry()
    )
    fired = await store.fire_due(plan, limit=10, request=claim_request())
    assert not fired.claimed
    assert [(run.status, run.reason) for run in fired.others] == [
        (RunStatus.SKIPPED, Reason.MAINTENANCE)
    ]
    after = await store.get_schedule(schedule.id)
    assert after is not None
    assert (after.next_slot, after.enabled, after.version) == (NOW + MINUTE, True, schedule.version)
    assert (after.fired_count, after.last_slot) == (0, NOW)
    await store.set_maintenance(None)
    clock.advance(MINUTE)
    fired = await store.fire_due(plan, limit=10)
    assert [(run.slot, run.status) for run in fired.others] == [(NOW + MINUTE, RunStatus.QUEUED)]


async def test_only_the_namespace_is_stopped_and_it_ends_by_itself(
    store: Store, clock: SettableClock
) -> None:
    trigger = Every("1m", anchor=NOW)
    for name in ("default", "native", "shop"):
        await store.add_schedule(due_schedule(id=ScheduleId(name), namespace=name, trigger=trigger))
    await begin(store, namespace="default", until=NOW + MINUTE)
    await store.fire_due(plan, limit=10)
    # `native` is a former name of the default namespace.
    assert sorted(await statuses(store)) == [
        ("default", "skipped", "maintenance"),
        ("native", "skipped", "maintenance"),
        ("shop", "queued", ""),
    ]
    clock.advance(MINUTE)
    fired = await store.fire_due(plan, limit=10)
    assert {run.schedule_id for run in fired.others if run.status is RunStatus.QUEUED} == {
        "default",
        "native",
    }


async def test_slots_of_a_window_that_no_node_fired_are_skipped_afterwards(
    store: Store, clock: SettableClock
) -> None:
    policy = Policy(misfire=Misfire.ALL, misfire_grace=10 * SECOND, max_concurrent_runs=100)
    await store.add_schedule(due_schedule(trigger=Every("1m", anchor=NOW), policy=policy))
    await begin(store, until=NOW + 10 * MINUTE)
    clock.advance(11 * MINUTE)
    while (await store.fire_due(plan, limit=10)).plans:
        pass
    found = sorted((await all_runs(store)).values(), key=lambda run: run.planned_at)
    assert [(run.slot, run.status, run.missed_count, run.missed_until) for run in found] == [
        (NOW, RunStatus.SKIPPED, 10, NOW + 9 * MINUTE),
        (NOW + 10 * MINUTE, RunStatus.QUEUED, 0, None),
        (NOW + 11 * MINUTE, RunStatus.QUEUED, 0, None),
    ]


async def test_slots_of_a_window_are_skipped_although_earlier_slots_are_open(
    store: Store, clock: SettableClock
) -> None:
    """Nodes stop before the window begins and start after it has ended."""
    for misfire in (Misfire.ALL, Misfire.ONE, Misfire.SKIP):
        policy = Policy(misfire=misfire, misfire_grace=10 * SECOND, max_concurrent_runs=100)
        trigger = Every("1m", anchor=NOW)
        await store.add_schedule(
            due_schedule(id=ScheduleId(misfire), trigger=trigger, policy=policy)
        )
    await begin(store, since=NOW + 3 * MINUTE, until=NOW + 6 * MINUTE)
    clock.advance(8 * MINUTE)
    while (await store.fire_due(plan, limit=10)).plans:
        pass
    found: dict[str | None, list[tuple[int, str, int]]] = {}
    for run in sorted((await all_runs(store)).values(), key=lambda run: run.planned_at):
        row = ((run.planned_at - NOW) // MINUTE, run.reason, run.missed_count)
        found.setdefault(run.schedule_id, []).append(row)
    catch_up, skipped = Reason.CATCH_UP, Reason.MAINTENANCE
    assert found == {
        "all": [
            *[(minute, catch_up, 0) for minute in (0, 1, 2)],
            (3, skipped, 3),
            *[(minute, catch_up, 0) for minute in (6, 7)],
            (8, "", 0),
        ],
        "one": [
            (0, catch_up, 0),
            (1, Reason.MISFIRE, 2),
            (3, skipped, 3),
            (6, Reason.MISFIRE, 2),
            (8, "", 0),
        ],
        "skip": [
            (0, Reason.MISFIRE, 3),
            (3, skipped, 3),
            (6, Reason.MISFIRE, 2),
            (8, "", 0),
        ],
    }


async def test_a_node_that_is_firing_does_not_fire_after_the_answer(shared_home: Home) -> None:
    """The pass has read the state before maintenance begins and writes afterwards."""
    store = await shared_home.open()
    await store.add_schedule(due_schedule(trigger=Every(HOUR, anchor=NOW)))
    planning, proceed = threading.Event(), threading.Event()

    def slow_plan(schedule: Schedule, context: FireContext, now: datetime) -> FirePlan:
        firing = plan(schedule, context, now)
        planning.set()
        assert proceed.wait(60)
        return firing

    async def fire_elsewhere() -> None:
        other = await shared_home.open()
        try:
            await other.fire_due(slow_plan, limit=10)
        finally:
            await other.close()

    node = threading.Thread(target=asyncio.run, args=[fire_elsewhere()])
    node.start()
    try:
        assert await asyncio.to_thread(planning.wait, 60)
        command = asyncio.create_task(begin(store))
        # A store either waits for the pass, or rejects what it writes.
        await asyncio.wait([command], timeout=0.5)
        if not command.done():
            proceed.set()
        await command
        fired_before = _fired(await all_runs(store))
    finally:
        proceed.set()
        await asyncio.to_thread(node.join, 60)
    assert _fired(await all_runs(store)) == fired_before


def _fired(runs: dict[str, Run]) -> set[str]:  # type: ignore[type-arg]
    return {run.id for run in runs.values() if run.status is not RunStatus.SKIPPED}


async def test_prefetched_runs_are_withdrawn(
    prefetch_store: SqlStore,  # noqa: F811
    clock: SettableClock,
) -> None:
    fired = await prefetch_batch(prefetch_store)
    assert fired.claimed
    await begin(prefetch_store)
    assert await all_runs(prefetch_store) == {}
    clock.set(SLOT - PREFETCH_CUTOFF)
    claims = [(run.id, run.fence) for run in fired.claimed]
    assert await prefetch_store.confirm_prefetched(claims) == frozenset()
    again = await prefetch_store.fire_due(
        plan, limit=1000, request=claim_request(free=1000), prefetch=PREFETCH
    )
    assert not again.claimed
    clock.set(SLOT)
    fired = await prefetch_store.fire_due(plan, limit=1000, request=claim_request(free=1000))
    assert not fired.claimed
    assert {run.reason for run in fired.others} == {Reason.MAINTENANCE}


async def test_a_corrupt_document_is_no_maintenance(store: Store) -> None:
    await store.add_schedule(due_schedule())
    for text in ("{", "[]", '{"windows": [{"since": "never"}, 5]}'):
        await store.set_checkpoint(MAINTENANCE_CHECKPOINT, text)
        assert await read_maintenance(store) == ()
    assert len((await store.fire_due(plan, limit=10)).others) == 1
