"""Sync runs: at most one active run per pair."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from chimes.model import replace
from chimes.model.ids import ScheduleId
from chimes.model.listing import AuditQuery, RunQuery
from chimes.model.planning import plan
from chimes.model.policy import Overlap, Policy
from chimes.model.run import AttemptEnd, Reason, Run, RunStatus
from chimes.model.target import SyncTarget
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import (
    CAPABILITIES,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    SYNC,
    a_completion,
    a_retry,
    a_run,
    a_schedule,
    a_sync_run,
    an_entry,
    claim_request,
    due_schedule,
)
from tests.store_contract.scenes import all_runs, contents, joined
from tests.store_contract.stores import Home

#: The policy that `chimes apply` sets for a collection with a schedule.
PAIR_POLICY = Policy(overlap=Overlap.SKIP, concurrency_key=SYNC.key)


async def claimed(store: Store, run: Run) -> Run:
    await joined(store)
    return next(
        each
        for each in await store.claim(claim_request(free=9, capabilities=CAPABILITIES))
        if each.id == run.id
    )


async def active(store: Store, key: str = SYNC.key) -> list[Run]:
    query = RunQuery(concurrency_key=key, statuses=(RunStatus.QUEUED, RunStatus.RUNNING))
    return list((await store.list_runs(query)).items)


# --- add unless active ------------------------------------------------------------------------
async def test_first_run_of_a_pair_is_inserted_unchanged(store: Store) -> None:
    run = a_sync_run(priority=300)
    before = store.changes()
    assert await store.add_unless_active(run, an_entry(verb="sync")) == (run, True)
    assert await store.get_run(run.id) == run
    assert store.changes() > before
    assert [entry.verb for entry in await store.list_audit(AuditQuery())] == ["sync"]


async def _waiting(store: Store, clock: SettableClock) -> Run:
    run, _ = await store.add_unless_active(a_sync_run())
    return run


async def _running(store: Store, clock: SettableClock) -> Run:
    return await claimed(store, await _waiting(store, clock))


async def _asked_to_stop(store: Store, clock: SettableClock) -> Run:
    run = await _running(store, clock)
    stopping = await store.cancel_run(run.id, Reason.CANCELED_BY_HAND)
    assert stopping is not None
    return stopping


async def _waiting_for_its_retry(store: Store, clock: SettableClock) -> Run:
    run = await _running(store, clock)
    return (await store.finish([a_retry(run, clock.now(), HOUR)])).accepted[0]


async def _blocked(store: Store, clock: SettableClock) -> Run:
    """The older of two runs, blocked by the younger."""
    await store.add_runs([a_sync_run(created_at=NOW + SECOND)])
    (older,) = await store.add_runs([a_sync_run(created_at=NOW)])
    assert older.blocked
    return older


async def _first_by_id(store: Store, clock: SettableClock) -> Run:
    runs = sorted((a_sync_run() for _ in range(3)), key=lambda run: run.id, reverse=True)
    return (await store.add_runs(runs))[-1]


Scene = Callable[[Store, SettableClock], Awaitable[Run]]


@pytest.mark.parametrize(
    "scene",
    [_waiting, _running, _asked_to_stop, _waiting_for_its_retry, _blocked, _first_by_id],
)
async def test_active_pair_returns_its_oldest_run(
    store: Store, clock: SettableClock, scene: Scene
) -> None:
    standing = await scene(store, clock)
    rows = await contents(store)
    new = a_sync_run(created_at=NOW - HOUR)
    assert await store.add_unless_active(new, an_entry()) == (standing, False)
    assert await contents(store) == rows
    assert await store.get_run(new.id) is None


@pytest.mark.parametrize(
    "end", [AttemptEnd.SUCCEEDED, AttemptEnd.FAILED, AttemptEnd.TIMEOUT, AttemptEnd.CANCELED]
)
async def test_ended_run_frees_its_pair(
    store: Store, clock: SettableClock, end: AttemptEnd
) -> None:
    run = await _running(store, clock)
    await store.finish([a_completion(run, clock.now(), end)])
    again = a_sync_run()
    assert await store.add_unless_active(again) == (again, True)
    assert await active(store) == [again]


async def test_canceled_queued_run_frees_its_pair(store: Store, clock: SettableClock) -> None:
    run = await _waiting(store, clock)
    await store.cancel_run(run.id, Reason.CANCELED_BY_HAND)
    assert (await store.add_unless_active(a_sync_run()))[1]


async def test_rescued_run_keeps_its_pair(store: Store, clock: SettableClock) -> None:
    run = await _running(store, clock)
    clock.advance(HOUR)
    (waiting,) = await store.rescue(limit=10)
    assert (waiting.id, waiting.status) == (run.id, RunStatus.QUEUED)
    assert await store.add_unless_active(a_sync_run()) == (waiting, False)


# A client repeats a request after a lost response, with the same id.
@pytest.mark.parametrize("ended", [False, True])
async def test_request_with_an_existing_id_returns_that_run(
    store: Store, clock: SettableClock, ended: bool
) -> None:
    run = await _running(store, clock)
    if ended:
        (run,) = (await store.finish([a_completion(run, clock.now())])).accepted
        await store.add_unless_active(a_sync_run())
    rows = await contents(store)
    twin = replace(a_sync_run(), id=run.id)
    assert await store.add_unless_active(twin, an_entry()) == (run, False)
    assert await contents(store) == rows


async def test_request_for_a_taken_slot_returns_its_run(store: Store, clock: SettableClock) -> None:
    schedule = await store.add_schedule(a_schedule(target=SYNC, policy=PAIR_POLICY))
    run = a_sync_run(schedule_id=schedule.id, slot=NOW)
    assert await store.add_unless_active(run) == (run, True)
    ended = await store.cancel_run(run.id, Reason.CANCELED_BY_HAND)
    twin = a_sync_run(schedule_id=schedule.id, slot=NOW)
    assert await store.add_unless_active(twin) == (ended, False)


async def test_pairs_with_similar_names_are_independent(store: Store) -> None:
    names = [("crm", "deals"), ("CRM", "deals"), ("crm", "Deals"), ("crm", "deals_"), ("cr", "m")]
    runs = [a_sync_run(SyncTarget(source=source, collection=name)) for source, name in names]
    assert [await store.add_unless_active(run) for run in runs] == [(run, True) for run in runs]


@pytest.mark.parametrize("key", ["schedule:here", "schedule:nowhere", "plain"])
async def test_add_unless_active_works_for_any_concurrency_key(store: Store, key: str) -> None:
    await store.add_schedule(a_schedule(id=ScheduleId("here")))
    first, second = a_run(concurrency_key=key), a_run(concurrency_key=key)
    assert await store.add_unless_active(first) == (first, True)
    assert await store.add_unless_active(second) == (first, False)


# --- concurrency ------------------------------------------------------------------------------
async def _request_twenty_concurrently(stores: list[Store]) -> None:
    pairs = [SyncTarget(source="crm", collection=f"c{number}") for number in range(3)]
    asked = [
        (pair, stores[number % len(stores)].add_unless_active(a_sync_run(pair), an_entry()))
        for pair in pairs
        for number in range(20)
    ]
    answers = await asyncio.gather(*(call for _, call in asked))
    for pair in pairs:
        of_pair = [answer for (each, _), answer in zip(asked, answers, strict=True) if each is pair]
        assert sum(created for _, created in of_pair) == 1
        assert [run.id for run in await active(stores[0], pair.key)] == [of_pair[0][0].id]
        assert {run.id for run, _ in of_pair} == {of_pair[0][0].id}
    assert len(await all_runs(stores[0])) == len(pairs)
    assert len(await stores[0].list_audit(AuditQuery())) == len(pairs)


async def test_one_of_twenty_concurrent_requests_inserts(store: Store) -> None:
    await _request_twenty_concurrently([store])


async def test_one_of_twenty_requests_of_two_processes_inserts(shared_home: Home) -> None:
    await _request_twenty_concurrently([await shared_home.open(), await shared_home.open()])


# --- with the slots of a schedule ---------------------------------------------------------------
async def test_slot_of_an_active_pair_is_skipped(store: Store, clock: SettableClock) -> None:
    run = await _waiting(store, clock)
    await store.add_schedule(due_schedule(target=SYNC, policy=PAIR_POLICY))
    (skipped,) = (await store.fire_due(plan, limit=10)).others
    assert (skipped.status, skipped.reason) == (RunStatus.SKIPPED, Reason.OVERLAP)
    assert await active(store) == [run]


async def test_request_returns_the_run_of_a_fired_slot(store: Store) -> None:
    await joined(store)
    await store.add_schedule(due_schedule(target=SYNC, policy=PAIR_POLICY))
    fired = await store.fire_due(plan, limit=10, request=claim_request(capabilities=CAPABILITIES))
    (run,) = fired.claimed
    assert await store.add_unless_active(a_sync_run(priority=300)) == (run, False)


async def test_late_slots_of_a_pair_make_one_run(store: Store) -> None:
    late = replace(PAIR_POLICY, misfire_grace=timedelta(minutes=10))
    await store.add_schedule(due_schedule(NOW - 3 * MINUTE, target=SYNC, policy=late))
    await store.fire_due(plan, limit=10)
    (run,) = await active(store)
    assert await store.add_unless_active(a_sync_run()) == (run, False)


async def _fire_and_request_concurrently(stores: list[Store]) -> None:
    pairs = [SyncTarget(source="crm", collection=f"c{number}") for number in range(4)]
    for pair in pairs:
        policy = replace(PAIR_POLICY, concurrency_key=pair.key)
        await stores[0].add_schedule(due_schedule(target=pair, policy=policy))
    calls = [store.add_unless_active(a_sync_run(pair)) for pair in pairs for store in stores * 2]
    answers, *_ = await asyncio.gather(
        asyncio.gather(*calls), *(store.fire_due(plan, limit=10) for store in stores * 2)
    )
    # A pass may skip schedules that another one has locked.
    while (await stores[0].fire_due(plan, limit=10)).more:
        pass
    rows = await all_runs(stores[0])
    for number, pair in enumerate(pairs):
        (one,) = await active(stores[0], pair.key)
        answered = answers[number * len(stores) * 2 :][: len(stores) * 2]
        assert {run.id for run, _ in answered} == {one.id}
        assert sum(created for _, created in answered) == (one.slot is None)
        slots = [run for run in rows.values() if run.target == pair and run.slot is not None]
        assert len(slots) == 1
        assert slots[0].status is (RunStatus.SKIPPED if one.slot is None else RunStatus.QUEUED)


async def test_concurrent_slot_and_request_make_one_active_run(store: Store) -> None:
    await _fire_and_request_concurrently([store])


async def test_concurrent_slot_and_request_of_two_processes_make_one_active_run(
    shared_home: Home,
) -> None:
    await _fire_and_request_concurrently([await shared_home.open(), await shared_home.open()])


# --- the queue --------------------------------------------------------------------------------
async def test_sync_runs_are_claimed_by_priority_and_age(store: Store) -> None:
    order = [(300, 1), (300, 2), (200, 0), (200, 3), (100, 1)]
    runs = []
    for number, (priority, age) in enumerate(reversed(order)):
        moment = NOW - MINUTE + age * SECOND
        run = a_sync_run(
            SyncTarget(source="crm", collection=f"c{number}"),
            priority=priority,
            created_at=moment,
            planned_at=moment,
            available_at=moment,
        )
        runs.append((await store.add_unless_active(run))[0])
    await joined(store)
    taken = [await store.claim(claim_request(free=1, capabilities=CAPABILITIES)) for _ in order]
    assert [run.id for (run,) in taken] == [run.id for run in reversed(runs)]


async def test_node_claims_sync_runs_of_its_sources_only(store: Store) -> None:
    await joined(store)
    run, _ = await store.add_unless_active(a_sync_run(SyncTarget(source="shop", collection="x")))
    assert (
        await store.claim(claim_request(capabilities=frozenset({"http", "sync:crm", "sync:sho"})))
        == ()
    )
    assert await store.claim(claim_request(free=0, capabilities=frozenset({"sync:shop"}))) == ()
    (taken,) = await store.claim(claim_request(capabilities=frozenset({"sync:shop"})))
    assert taken.id == run.id


# --- queries ----------------------------------------------------------------------------------
async def _ids(store: Store, query: RunQuery) -> list[str]:
    found = []
    while True:
        page = await store.list_runs(query)
        found += [run.id for run in page.items]
        if page.next is None:
            return found
        query = replace(query, after=page.next)


async def test_sync_runs_are_filtered_by_source_pair_and_time(store: Store) -> None:
    shop = SyncTarget(source="shop", collection="deals.eu")
    other = SyncTarget(source="crm", collection="people")
    rows = {
        "a": a_sync_run(created_at=NOW),
        "b": a_sync_run(created_at=NOW + SECOND),
        "c": a_sync_run(created_at=NOW + SECOND + timedelta(microseconds=1)),
        "d": a_sync_run(other, created_at=NOW + SECOND),
        "e": a_sync_run(shop, created_at=NOW + SECOND),
        "f": a_run(created_at=NOW + SECOND),
        "g": a_sync_run(created_at=NOW + 2 * SECOND, status=RunStatus.FAILED, finished_at=NOW),
    }
    await store.load([replace(run, id=name) for name, run in rows.items()])

    async def found(**given: object) -> str:
        query = RunQuery(descending=False, limit=2, **given)  # type: ignore[arg-type]
        return "".join(await _ids(store, query))

    assert await found(requirement="sync:crm") == "abdcg"
    assert await found(requirement="sync:shop") == "e"
    assert await found(requirement="http") == "f"
    assert await found(requirement="sync:cr") == ""
    assert await found(concurrency_key=SYNC.key) == "abcg"
    assert await found(requirement="sync:crm", concurrency_key=other.key) == "d"
    assert await found(requirement="sync:shop", concurrency_key=other.key) == ""
    assert await found(requirement="sync:crm", created_since=NOW + SECOND) == "bdcg"
    assert await found(requirement="sync:crm", created_until=NOW + SECOND) == "abd"
    window = {"created_since": NOW + SECOND, "created_until": NOW + SECOND}
    assert await found(**window) == "bdef"
    assert await found(requirement="sync:crm", **window) == "bd"
    assert await found(requirement="sync:crm", statuses=(RunStatus.FAILED,)) == "g"
    downwards = RunQuery(requirement="sync:crm", limit=2, created_until=NOW + SECOND)
    assert await _ids(store, downwards) == ["d", "b", "a"]
