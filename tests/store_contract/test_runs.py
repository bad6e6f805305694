"""Runs: add, claim, start, release, slots."""

from __future__ import annotations

from chimes.model import replace
from chimes.model.ids import RunId
from chimes.model.listing import AuditQuery
from chimes.model.policy import OnLost, Policy
from chimes.model.run import RunStatus, claim, mark_started, release
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import (
    ACTION,
    FLOW,
    LEASE,
    MINUTE,
    NOW,
    ODD_JSON,
    SECOND,
    TASK,
    a_completion,
    a_retry,
    a_run,
    a_schedule,
    an_entry,
    claim_request,
    full_run,
)
from tests.store_contract.scenes import NODE, all_runs, joined, running_run


async def test_run_round_trip_keeps_every_field(store: Store) -> None:
    # An ended run is never stored as blocked.
    for run in (
        replace(full_run(), blocked=False),
        a_run(),
        a_run(result={}),
        a_run(target=TASK, result={"value": ODD_JSON}),
        a_run(target=FLOW, result={"value": None}),
        a_run(target=ACTION, result={"execution_id": "e1", "counts": {"total": 2}}),
    ):
        assert await store.add_runs([run]) == (run,)
        assert await store.get_run(run.id) == run


async def test_unknown_run_is_none(store: Store) -> None:
    assert await store.get_run(RunId("nobody")) is None


async def test_added_runs_are_returned_in_the_given_order(store: Store) -> None:
    rows = [a_run(priority=priority) for priority in (1, 3, 2)]
    assert await store.add_runs(rows, an_entry(verb="run")) == tuple(rows)
    assert [entry.verb for entry in await store.list_audit(AuditQuery())] == ["run"]
    assert await store.add_runs([]) == ()


async def test_adding_a_known_id_returns_the_existing_run(store: Store) -> None:
    run = await running_run(store)
    twin = a_run(id=run.id, priority=9)
    other = a_run()
    assert await store.add_runs([other, twin, other]) == (other, run, other)
    assert await all_runs(store) == {run.id: run, other.id: other}


async def test_adding_a_taken_slot_returns_the_existing_run(store: Store) -> None:
    schedule = await store.add_schedule(a_schedule())
    neighbour = await store.add_schedule(a_schedule())
    first = a_run(schedule, slot=NOW)
    twin = a_run(schedule, slot=NOW)
    assert await store.add_runs([first, twin]) == (first, first)
    assert await store.get_run(twin.id) is None
    free = [a_run(schedule, slot=NOW + SECOND / 1_000_000), a_run(neighbour, slot=NOW)]
    assert await store.add_runs(free) == tuple(free)
    # Manual runs have no slot, so they are never duplicates.
    manual = [a_run(schedule), a_run(schedule)]
    assert await store.add_runs(manual) == tuple(manual)


async def test_run_at_the_limit_of_its_key_is_blocked(store: Store) -> None:
    def of_key(key: str | None, limit: int = 2) -> None:
        return a_run(concurrency_key=key, concurrency_limit=limit)

    rows = [of_key("k"), of_key("k"), of_key("k"), of_key("other"), of_key(None), of_key("k", 3)]
    added = await store.add_runs(rows)
    assert [run.blocked for run in added] == [False, False, True, False, False, False]
    assert added == tuple(
        replace(row, blocked=run.blocked) for row, run in zip(rows, added, strict=True)
    )
    await joined(store)
    assert added[2].id not in {run.id for run in await store.claim(claim_request())}
    assert (await store.add_runs([of_key("k", 4)]))[0].blocked is False
    assert (await store.add_runs([of_key("k", 4)]))[0].blocked is True


async def test_ended_runs_are_neither_blocked_nor_counted(store: Store) -> None:
    ended = a_run(concurrency_key="k", status=RunStatus.SKIPPED, finished_at=NOW)
    assert await store.add_runs([ended]) == (ended,)
    (first,) = await store.add_runs([a_run(concurrency_key="k")])
    assert not first.blocked
    another = replace(ended, id=RunId("ended too"))
    assert await store.add_runs([another]) == (another,)


async def test_runs_are_found_by_slot(store: Store) -> None:
    schedule = await store.add_schedule(a_schedule())
    first, second = a_run(schedule, slot=NOW), a_run(schedule, slot=NOW + MINUTE)
    await store.add_runs([first, second, a_run(schedule), a_run(a_schedule(), slot=NOW)])
    wanted = [NOW, NOW + MINUTE, NOW + 2 * MINUTE]
    assert await store.find_slot_runs(schedule.id, wanted) == {NOW: first, NOW + MINUTE: second}
    assert await store.find_slot_runs(schedule.id, []) == {}
    many = [NOW + n * SECOND for n in range(2000)]
    assert await store.find_slot_runs(schedule.id, many) == {NOW: first, NOW + MINUTE: second}


async def test_next_available_is_the_earliest_claimable_run(
    store: Store, clock: SettableClock
) -> None:
    assert await store.next_available() is None
    await store.add_runs(
        [
            a_run(available_at=NOW + 3 * MINUTE),
            a_run(available_at=NOW + 2 * MINUTE, concurrency_key="k"),
            a_run(available_at=NOW + MINUTE, concurrency_key="k"),
            a_run(available_at=NOW - MINUTE, status=RunStatus.FAILED, finished_at=NOW),
        ]
    )
    assert await store.next_available() == NOW + 2 * MINUTE
    await running_run(store, a_run(available_at=NOW - MINUTE))
    assert await store.next_available() == NOW + 2 * MINUTE


# Catch-up runs come after on-time runs of the same priority.
async def test_claim_order_is_priority_catch_up_availability_plan_and_id(
    store: Store, clock: SettableClock
) -> None:
    rows = [
        a_run(id=RunId("6"), priority=1),
        a_run(id=RunId("5"), priority=2, catch_up=True, available_at=NOW - MINUTE),
        a_run(id=RunId("4"), priority=2, planned_at=NOW + SECOND),
        a_run(id=RunId("3"), priority=2),
        a_run(id=RunId("2"), priority=2),
        a_run(id=RunId("1"), priority=2, available_at=NOW - SECOND, planned_at=NOW + SECOND),
        a_run(id=RunId("0"), priority=3, catch_up=True),
        a_run(id=RunId("7"), priority=-4),
    ]
    await store.add_runs(rows)
    await joined(store)
    expected = sorted(rows, key=lambda run: run.id)
    now = clock.advance(1)
    first = await store.claim(claim_request(free=3))
    assert first == tuple(claim(run, NODE, now) for run in expected[:3])
    rest = await store.claim(claim_request(free=100))
    assert [run.id for run in rest] == [run.id for run in expected[3:]]
    assert await store.claim(claim_request()) == ()
    assert await all_runs(store) == {run.id: claim(run, NODE, now) for run in rows}


async def test_claim_returns_no_more_than_free_permits(store: Store) -> None:
    await store.add_runs([a_run()])
    await joined(store)
    assert await store.claim(claim_request(free=0)) == ()


async def test_claim_returns_runs_of_its_capabilities_only(store: Store) -> None:
    await store.add_runs([a_run()])
    await joined(store)
    assert await store.claim(claim_request(capabilities=frozenset())) == ()
    assert await store.claim(claim_request(capabilities=frozenset({"task", "flow"}))) == ()
    assert len(await store.claim(claim_request(capabilities=frozenset({"task", "http"})))) == 1


async def test_claim_leaves_runs_that_are_not_available_yet(
    store: Store, clock: SettableClock
) -> None:
    moment = NOW + SECOND
    await store.add_runs([a_run(available_at=moment)])
    await joined(store)
    clock.set(moment - SECOND / 1_000_000)
    assert await store.claim(claim_request()) == ()
    clock.set(moment)
    assert len(await store.claim(claim_request())) == 1


async def test_claim_needs_a_live_lease(store: Store, clock: SettableClock) -> None:
    await store.add_runs([a_run()])
    assert await store.claim(claim_request("never joined")) == ()
    await joined(store)
    clock.advance(LEASE)
    assert await store.claim(claim_request()) == ()
    await joined(store, "node-2")
    assert len(await store.claim(claim_request("node-2"))) == 1


async def test_claim_after_leave_is_empty(store: Store) -> None:
    await store.add_runs([a_run()])
    await joined(store)
    await store.leave(NODE)
    assert await store.claim(claim_request()) == ()


async def test_started_mark_needs_the_current_fence(store: Store, clock: SettableClock) -> None:
    run = await running_run(store)
    assert not await store.start(run.id, run.fence - 1)
    assert not await store.start(run.id, run.fence + 1)
    assert await store.get_run(run.id) == run
    assert await store.start(run.id, run.fence)
    assert await store.get_run(run.id) == mark_started(run)
    assert await store.start(run.id, run.fence)
    await store.finish([a_completion(run, clock.now())])
    assert not await store.start(run.id, run.fence)
    assert not await store.start(RunId("nobody"), 1)


async def test_released_run_is_queued_as_before_its_claim(
    store: Store, clock: SettableClock
) -> None:
    before = a_run()
    run = await running_run(store, before)
    clock.advance(2)
    await store.release([(run.id, run.fence)])
    after = await store.get_run(run.id)
    assert after == release(run) == replace(before, fence=1)
    (again,) = await store.claim(claim_request())
    assert (again.attempt, again.fence) == (1, 2)


async def test_released_retry_keeps_its_first_start(store: Store, clock: SettableClock) -> None:
    run = await running_run(store)
    await store.finish([a_retry(run, clock.advance(1), SECOND)])
    clock.advance(1)
    (second,) = await store.claim(claim_request())
    await store.release([(second.id, second.fence)])
    assert await store.get_run(run.id) == release(second)
    assert release(second).started_at == NOW


async def test_release_needs_the_current_fence(store: Store, clock: SettableClock) -> None:
    stale, ended, marked = [await running_run(store) for _ in range(3)]
    (ended,) = (await store.finish([a_completion(ended, clock.now())])).accepted
    await store.start(marked.id, marked.fence)
    before = await all_runs(store)
    await store.release(
        [
            (stale.id, stale.fence - 1),
            (ended.id, ended.fence),
            (marked.id, marked.fence - 1),
            (RunId("nobody"), 1),
        ]
    )
    assert await all_runs(store) == before
    await store.release([])


# The response to `start` was lost, so the attempt did not begin.
async def test_run_marked_as_started_can_be_released(store: Store) -> None:
    before = a_run(policy=Policy(on_lost=OnLost.STOP))
    run = await running_run(store, before)
    assert await store.start(run.id, run.fence)
    await store.release([(run.id, run.fence)])
    assert await store.get_run(run.id) == replace(before, fence=1)
    # A repeated `start` with the old fence is rejected.
    assert not await store.start(run.id, run.fence)
    (again,) = await store.claim(claim_request())
    assert (again.attempt, again.fence, again.started) == (1, 2, False)
