"""Nodes: one lease for all runs of a node, and what happens when it expires."""

from __future__ import annotations

from datetime import timedelta

from chimes.model import replace
from chimes.model.ids import NodeId
from chimes.model.node import HeartbeatResult
from chimes.model.policy import OnLost, Policy, RunDefaults
from chimes.model.run import CRASH_LIMIT, AttemptEnd, Reason, RunStatus, mark_lost, mark_started
from chimes.model.schedule import record_run
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import (
    LEASE,
    MINUTE,
    NOW,
    SECOND,
    a_completion,
    a_node,
    a_run,
    a_schedule,
    claim_request,
)
from tests.store_contract.scenes import NODE, all_runs, joined, running_run, running_slot


async def test_join_uses_the_store_time(store: Store, clock: SettableClock) -> None:
    given = a_node("b", roles=("api",), capacity=7, version="9.9", started_at=NOW - MINUTE)
    now = clock.advance(3.000001)
    node = await store.join(given, LEASE)
    assert node == replace(given, started_at=now, heartbeat_at=now, lease_until=now + LEASE)
    other = await store.join(a_node("a"), MINUTE)
    assert await store.nodes() == (other, node)


async def test_joining_again_updates_capabilities_and_keeps_started_at(
    store: Store, clock: SettableClock
) -> None:
    """A node joins again when it reloads its sources."""
    first = await store.join(a_node(), LEASE)
    now = clock.advance(5)
    given = a_node(capabilities=("sync:shop",))
    again = await store.join(given, LEASE)
    assert again == replace(
        given, started_at=first.started_at, heartbeat_at=now, lease_until=now + LEASE
    )
    assert await store.nodes() == (again,)


async def test_run_defaults_of_a_node_are_stored(store: Store) -> None:
    policy = Policy(
        max_retries=3,
        timeout=timedelta(seconds=1.5),
        on_lost=OnLost.STOP,
        max_concurrent_runs=2,
        concurrency_key="task:a",
    )
    defaults = {
        "task:a": RunDefaults(
            policy=policy,
            priority=-4,
            # For the form of the editor.
            arguments={"type": "object", "properties": {"วัน": {"type": "integer"}}},
        ),
        # The capability is the source; defaults exist per collection.
        "sync:shop#orders": RunDefaults(policy=Policy(), priority=7),
    }
    given = a_node(capabilities=("http", "flow:z", "sync:shop", "task:a"), defaults=defaults)
    node = await store.join(given, LEASE)
    assert (await store.nodes()) == (node,)
    assert (node.capabilities, node.defaults) == (given.capabilities, defaults)


async def test_heartbeat_renews_the_lease(store: Store, clock: SettableClock) -> None:
    node = await store.join(a_node(), LEASE)
    now = clock.advance(10)
    ahead = now + timedelta(seconds=2.5)
    assert await store.heartbeat(NODE, MINUTE, clock=ahead) == HeartbeatResult(alive=True, now=now)
    renewed = replace(node, heartbeat_at=now, lease_until=now + MINUTE, clock_offset=2.5)
    assert await store.nodes() == (renewed,)
    assert (await store.heartbeat(NODE, LEASE, clock=now - MINUTE)).alive
    (node,) = await store.nodes()
    assert node.clock_offset == -60.0


async def test_heartbeat_returns_runs_with_requested_cancel(
    store: Store, clock: SettableClock
) -> None:
    mine, kept = [await running_run(store) for _ in range(2)]
    theirs = await running_run(store, node_id="node-2")
    await store.cancel_run(mine.id, "x")
    await store.cancel_run(theirs.id, "x")
    assert (await store.heartbeat(NODE, LEASE, clock=clock.now())).cancel == (mine.id,)
    assert (await store.heartbeat(NodeId("node-2"), LEASE, clock=clock.now())).cancel == (
        theirs.id,
    )
    assert kept.id not in (mine.id, theirs.id)


async def test_heartbeat_after_the_lease_is_rejected(store: Store, clock: SettableClock) -> None:
    run = await running_run(store)
    now = clock.advance(LEASE)
    dead = HeartbeatResult(alive=False, now=now)
    assert await store.heartbeat(NODE, LEASE, clock=now) == dead
    assert await store.heartbeat(NODE, LEASE, clock=now) == dead
    (rescued,) = await store.rescue(limit=10)
    assert await store.heartbeat(NODE, LEASE, clock=now) == dead
    assert await store.claim(claim_request()) == ()
    await joined(store, "node-2")
    (taken,) = await store.claim(claim_request("node-2"))
    assert (taken.id, taken.fence, taken.attempt) == (run.id, run.fence + 1, run.attempt + 1)
    assert taken.attempts == rescued.attempts
    assert await store.heartbeat(NODE, LEASE, clock=now) == dead


async def test_heartbeat_just_before_the_end_of_the_lease_is_accepted(
    store: Store, clock: SettableClock
) -> None:
    await joined(store)
    clock.advance(LEASE - timedelta(microseconds=1))
    assert (await store.heartbeat(NODE, LEASE, clock=clock.now())).alive
    clock.advance(LEASE - timedelta(microseconds=1))
    assert await store.rescue(limit=10) == ()
    assert (await store.heartbeat(NODE, LEASE, clock=clock.now())).alive


async def test_unknown_node_is_not_alive(store: Store, clock: SettableClock) -> None:
    assert await store.heartbeat(NODE, LEASE, clock=NOW) == HeartbeatResult(alive=False, now=NOW)
    assert await store.nodes() == ()


# The runs of a stopping node are available immediately.
async def test_leave_queues_the_runs_of_the_node(store: Store, clock: SettableClock) -> None:
    run = await running_run(store)
    theirs = await running_run(store, node_id="node-2")
    now = clock.advance(1)
    before = store.changes()
    await store.leave(NODE)
    assert store.changes() > before
    assert [node.id for node in await store.nodes()] == ["node-2"]
    assert await all_runs(store) == {run.id: mark_lost(run, now), theirs.id: theirs}
    assert not (await store.heartbeat(NODE, LEASE, clock=now)).alive
    await store.leave(NODE)
    await store.leave(NodeId("nobody"))


async def test_rescue_takes_only_runs_of_expired_leases(store: Store, clock: SettableClock) -> None:
    theirs = await running_run(store, node_id="node-2")
    clock.advance(1)
    mine = [await running_run(store) for _ in range(3)]
    clock.advance(LEASE - SECOND)
    before = store.changes()
    assert await store.rescue(limit=10) == (mark_lost(theirs, clock.now()),)
    assert store.changes() > before
    assert [node.id for node in await store.nodes()] == ["node-1"]
    now = clock.advance(1)
    rescued = await store.rescue(limit=10)
    assert {run.id: run for run in rescued} == {run.id: mark_lost(run, now) for run in mine}
    assert await store.nodes() == ()
    assert await store.rescue(limit=10) == ()
    for run in rescued:
        assert await store.get_run(run.id) == run
        assert (run.status, run.fence) == (RunStatus.QUEUED, 1)


async def test_rescue_is_limited_per_call(store: Store, clock: SettableClock) -> None:
    for _ in range(3):
        await running_run(store)
    clock.advance(LEASE)
    first = await store.rescue(limit=2)
    assert len(await store.nodes()) == 1
    second = await store.rescue(limit=2)
    assert (len(first), len(second)) == (2, 1)
    assert len({run.id for run in first + second}) == 3
    assert await store.nodes() == ()


async def test_oldest_runs_are_rescued_and_returned_first(
    store: Store, clock: SettableClock
) -> None:
    rows = [a_run(created_at=NOW - age * SECOND) for age in (1, 3, 2, 3)]
    oldest_first = [rows[1].id, rows[3].id, rows[2].id, rows[0].id]
    await store.add_runs(rows)
    await joined(store)
    for run in await store.claim(claim_request()):
        await store.cancel_run(run.id, "x")
    assert list((await store.heartbeat(NODE, LEASE, clock=NOW)).cancel) == oldest_first
    clock.advance(LEASE)
    rescued = [*await store.rescue(limit=2), *await store.rescue(limit=2)]
    assert [run.id for run in rescued] == oldest_first


async def test_rescue_removes_idle_nodes_with_expired_leases(
    store: Store, clock: SettableClock
) -> None:
    await joined(store)
    clock.advance(LEASE)
    assert len(await store.nodes()) == 1
    assert await store.rescue(limit=10) == ()
    assert await store.nodes() == ()


async def test_run_fails_at_the_crash_limit(store: Store, clock: SettableClock) -> None:
    schedule = await store.add_schedule(a_schedule())
    (run,) = await store.add_runs([a_run(schedule, concurrency_key="k")])
    (behind,) = await store.add_runs([a_run(concurrency_key="k")])
    for number in range(CRASH_LIMIT):
        assert behind == await store.get_run(behind.id)
        await joined(store, f"victim-{number}")
        (claimed,) = await store.claim(claim_request(f"victim-{number}"))
        assert (claimed.id, claimed.attempt, claimed.fence) == (run.id, number + 1, number + 1)
        clock.advance(LEASE)
        (after,) = await store.rescue(limit=10)
    assert (after.status, after.reason) == (RunStatus.FAILED, Reason.CRASH_LIMIT)
    assert [attempt.end for attempt in after.attempts] == [AttemptEnd.LOST] * CRASH_LIMIT
    assert after.finished_at == clock.now()
    assert await store.get_schedule(schedule.id) == record_run(schedule, after)
    await joined(store, "next")
    (claimed,) = await store.claim(claim_request("next"))
    assert claimed.id == behind.id


async def test_on_lost_stop_ends_a_started_run_as_unknown(
    store: Store, clock: SettableClock
) -> None:
    schedule, run = await running_slot(store, policy=Policy(on_lost=OnLost.STOP))
    await store.start(run.id, run.fence)
    now = clock.advance(LEASE)
    (after,) = await store.rescue(limit=10)
    assert after == mark_lost(mark_started(run), now)
    assert (after.status, after.reason) == (RunStatus.UNKNOWN, Reason.LOST_AFTER_START)
    assert await store.get_schedule(schedule.id) == record_run(schedule, after)
    await joined(store, "node-2")
    assert await store.claim(claim_request("node-2")) == ()
    stale = a_completion(run, now)
    assert (await store.finish([stale])).refused == (run.id,)


async def test_on_lost_stop_queues_an_unstarted_run_again(
    store: Store, clock: SettableClock
) -> None:
    _, run = await running_slot(store, policy=Policy(on_lost=OnLost.STOP))
    clock.advance(LEASE)
    (after,) = await store.rescue(limit=10)
    assert after == mark_lost(run, clock.now())
    assert after.status is RunStatus.QUEUED


async def test_lost_run_with_requested_cancel_is_canceled(
    store: Store, clock: SettableClock
) -> None:
    run = await running_run(store, a_run(concurrency_key="k"))
    (behind,) = await store.add_runs([a_run(concurrency_key="k")])
    await store.cancel_run(run.id, "by hand")
    clock.advance(LEASE)
    (after,) = await store.rescue(limit=10)
    assert (after.status, after.reason) == (RunStatus.CANCELED, "by hand")
    assert await store.get_run(behind.id) == replace(behind, blocked=False)


async def test_lost_run_is_available_immediately(store: Store, clock: SettableClock) -> None:
    run = await running_run(store)
    now = clock.advance(LEASE)
    await store.rescue(limit=10)
    assert await store.next_available() == now
    assert not await store.start(run.id, run.fence)
