"""Concurrency: one run per slot, one holder per run."""

from __future__ import annotations

import asyncio
from collections import Counter

from chimes.model import replace
from chimes.model.ids import ScheduleId
from chimes.model.planning import plan
from chimes.model.policy import Overlap, Policy
from chimes.model.run import Run, RunStatus
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import NOW, SECOND, a_completion, a_run, claim_request, due_schedule
from tests.store_contract.scenes import all_runs, joined
from tests.store_contract.stores import Home

SCHEDULES = 40


async def _fire_until_short(store: Store, node_id: str, limit: int) -> list[Run]:
    claimed: list[Run] = []
    while True:
        fired = await store.fire_due(plan, limit=limit, request=claim_request(node_id, 2))
        claimed.extend(fired.claimed)
        if not fired.more:
            return claimed


async def _claim_until_empty(store: Store, node_id: str) -> list[Run]:
    claimed: list[Run] = []
    while runs := await store.claim(claim_request(node_id, 3)):
        claimed.extend(runs)
    return claimed


async def _race(stores: list[Store]) -> None:
    first = stores[0]
    for number in range(SCHEDULES):
        await first.add_schedule(due_schedule(NOW - (number % 7) * SECOND))
    nodes = [f"node-{number}" for number in range(6)]
    for node in nodes:
        await joined(first, node)
    pairs = [(stores[number % len(stores)], node) for number, node in enumerate(nodes)]
    firing = await asyncio.gather(*(_fire_until_short(store, node, 5) for store, node in pairs))
    # A pass may return early while another one holds rows, so a last pass collects the rest.
    firing.append(await _fire_until_short(first, nodes[0], 100))
    claiming = await asyncio.gather(*(_claim_until_empty(store, node) for store, node in pairs))
    handed_out = [run for runs in (*firing, *claiming) for run in runs]
    rows = await all_runs(first)
    assert len(rows) == SCHEDULES
    slots = Counter((run.schedule_id, run.slot) for run in rows.values())
    assert set(slots.values()) == {1}
    assert Counter(run.id for run in handed_out) == Counter(rows.keys())
    assert {run.id: run for run in handed_out} == rows
    assert {run.fence for run in rows.values()} == {1}


async def test_concurrent_nodes_make_one_run_per_slot_and_one_holder_per_run(store: Store) -> None:
    await _race([store])


async def test_two_processes_make_one_run_per_slot_and_one_holder_per_run(
    shared_home: Home,
) -> None:
    await _race([await shared_home.open(), await shared_home.open()])


async def _race_completions(stores: list[Store], clock: SettableClock) -> None:
    await joined(stores[0])
    await stores[0].add_runs([a_run(concurrency_key="k") for _ in range(10)])
    for _ in range(10):
        (run,) = await stores[0].claim(claim_request())
        completion = a_completion(run, clock.now())
        answers = await asyncio.gather(*(store.finish([completion]) for store in stores * 3))
        assert all(len(answer.accepted) == 1 for answer in answers)
    rows = await all_runs(stores[0])
    assert {run.status for run in rows.values()} == {RunStatus.SUCCEEDED}
    assert {len(run.attempts) for run in rows.values()} == {1}


async def test_concurrency_limit_holds_under_concurrent_completions(
    store: Store, clock: SettableClock
) -> None:
    await _race_completions([store], clock)


async def test_concurrency_limit_holds_between_two_processes(
    shared_home: Home, clock: SettableClock
) -> None:
    await _race_completions([await shared_home.open(), await shared_home.open()], clock)


async def test_concurrently_added_runs_do_not_exceed_the_limit(store: Store) -> None:
    rows = [a_run(concurrency_key="k", concurrency_limit=3) for _ in range(20)]
    await asyncio.gather(*(store.add_runs([row]) for row in rows))
    await joined(store)
    assert len(await store.claim(claim_request(free=100))) == 3


async def test_concurrently_added_slot_is_one_run(store: Store) -> None:
    schedule = await store.add_schedule(due_schedule(enabled=False))
    rows = [a_run(schedule, slot=NOW) for _ in range(10)]
    answers = await asyncio.gather(*(store.add_runs([row]) for row in rows))
    assert len({run.id for (run,) in answers}) == 1
    assert len(await all_runs(store)) == 1


async def test_schedules_of_one_key_share_its_limit_in_one_pass(store: Store) -> None:
    shared = Policy(overlap=Overlap.QUEUE, concurrency_key="shared", max_concurrent_runs=2)
    for _ in range(4):
        await store.add_schedule(due_schedule(policy=shared))
    skipping = await store.add_schedule(
        due_schedule(policy=replace(shared, overlap=Overlap.SKIP), id=ScheduleId("z"))
    )
    fired = await store.fire_due(plan, limit=10)
    assert [run.blocked for run in fired.others] == [False, False, True, True, False]
    assert fired.others[-1].schedule_id == skipping.id
    assert (fired.others[-1].status, fired.others[-1].reason) == ("skipped", "overlap")
