"""Trust in the lease, on a settable clock."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from chimes.engine import reconciler
from chimes.engine.events import Event, Events, NodeLost, StoreClockJumped, StoreRegressed
from chimes.engine.executor import Executor
from chimes.engine.flow_steps import FlowSteps
from chimes.engine.in_flight import Capacity, StopReason, build_pools
from chimes.engine.maintenance import MAX_RESCUE_INTERVAL, Maintenance
from chimes.engine.membership import FailoverWatch, Heartbeat, Membership, StoreClock, new_node_id
from chimes.engine.reconciler import LeaseRecovery, Reconciler
from chimes.errors import StoreUnavailable
from chimes.model.ids import NodeId, RunId
from chimes.model.listing import AuditQuery
from chimes.model.node import HeartbeatResult, NodeReport
from chimes.model.run import RunStatus
from chimes.store.epoch import Epoch
from chimes.store.memory import MemoryStore
from chimes.store.port import ClaimRequest
from chimes.testing import SettableClock
from tests.builders import a_node, a_run
from tests.engine.rig import Faults, Recording, until

LEASE = timedelta(seconds=30)


class Node:
    def __init__(self) -> None:
        self.clock = SettableClock()
        self.memory = MemoryStore(clock=self.clock)
        self.faults = Faults(self.memory)
        self.emitted: list[Event] = []
        self.events = Events([self.emitted.append])
        self.time = StoreClock(self.faults.store, self.clock)
        self.membership = Membership(
            self.faults.store,
            clock=self.clock,
            time=self.time,
            events=self.events,
            lease=LEASE,
            version="test",
            roles=("worker",),
            capacity=1,
        )
        self.heartbeat = Heartbeat(
            self.faults.store,
            self.membership,
            clock=self.clock,
            time=self.time,
            events=self.events,
            on_cancel=self.memory.wake,
        )


@pytest.fixture
async def node() -> Node:
    node = Node()
    await node.membership.join()
    return node


# A sixth of the lease is the margin, and lost trust stays lost.
async def test_trust_ends_a_margin_before_the_lease(node: Node) -> None:
    node.clock.advance(24.9)
    assert node.membership.trusted
    node.clock.advance(0.1)
    assert not node.membership.trusted
    await until(lambda: node.membership.lost.is_set())
    (lost,) = [event for event in node.emitted if isinstance(event, NodeLost)]
    assert lost.node_id == node.membership.node_id
    assert not await node.heartbeat.run_once()
    assert not node.membership.trusted


async def test_announce_keeps_the_join_time(node: Node) -> None:
    """A reload of the sources must not change the join time."""
    (before,) = await node.memory.nodes()
    node.clock.advance(5)
    await node.membership.announce()
    (after,) = await node.memory.nodes()
    assert after.started_at == before.started_at
    assert after.heartbeat_at > before.heartbeat_at


# A heartbeat call may take long: trust counts from when it was sent.
async def test_a_heartbeat_renews_from_when_it_was_sent(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    heartbeat = node.memory.heartbeat

    async def slow(
        node_id: NodeId, lease: timedelta, *, clock: datetime, report: NodeReport
    ) -> HeartbeatResult:
        answer = await heartbeat(node_id, lease, clock=clock, report=report)
        node.clock.advance(4)
        return answer

    monkeypatch.setattr(node.memory, "heartbeat", slow)
    node.clock.advance(20)
    assert await node.heartbeat.run_once()
    assert node.membership.trusted_seconds == pytest.approx(25 - 4)


async def test_a_refused_heartbeat_ends_the_trust(node: Node) -> None:
    await node.memory.leave(node.membership.node_id)
    assert not await node.heartbeat.run_once()
    assert not node.membership.trusted


async def test_a_failing_heartbeat_renews_nothing(node: Node) -> None:
    node.faults.failing = {"heartbeat": StoreUnavailable("cut")}
    node.clock.advance(20)
    assert not await node.heartbeat.run_once()
    assert node.membership.trusted
    node.clock.advance(5)
    assert not node.membership.trusted


async def test_a_heartbeat_that_never_started_can_be_stopped(node: Node) -> None:
    """An engine whose start failed stops all its parts."""
    await node.heartbeat.stop()
    assert node.faults.count["heartbeat"] == 0
    assert node.membership.trusted


async def test_joining_again_takes_another_id(node: Node) -> None:
    first = node.membership.node_id
    node.clock.advance(60)
    assert not node.membership.trusted
    await until(lambda: node.membership.lost.is_set())
    await node.membership.join()
    assert node.membership.trusted
    assert node.membership.node_id != first
    assert len({new_node_id() for _ in range(50)}) == 50


async def test_store_time_follows_the_monotonic_clock_between_answers(node: Node) -> None:
    seen = await node.time.fetch_now()
    node.clock.advance(2.5)
    assert node.time.now() == seen + timedelta(seconds=2.5)
    node.clock.set(seen + timedelta(hours=1))
    assert node.time.now() == seen + timedelta(seconds=2.5)
    assert await node.time.fetch_now() == seen + timedelta(hours=1)
    assert node.time.now() == seen + timedelta(hours=1)


class Work:
    """The executor of a node with one permit."""

    def __init__(self, node: Node) -> None:
        self.runner = Recording()
        steps = FlowSteps(node.faults.store, node.time, node.clock, timedelta(seconds=1))
        self.executor = Executor(
            node.faults.store,
            {"http": self.runner},
            node.membership,
            steps,
            clock=node.clock,
            time=node.time,
            events=node.events,
        )
        self.node = node
        (pool,) = build_pools([self.runner], workers=1)
        self.capacity = Capacity(pool, self.executor.reconcile)

    async def take(self) -> RunId:
        """One claimed run, in flight."""
        waiting = a_run()
        await self.node.memory.add_runs([waiting])
        with self.capacity.reserve() as reserved:
            runs = await self.node.memory.claim(
                ClaimRequest(
                    node_id=self.node.membership.node_id, capabilities=frozenset({"http"}), free=1
                )
            )
            reserved.used = self.executor.accept(runs, self.capacity)
        assert self.capacity.free == 0
        return waiting.id


async def test_a_run_canceled_before_its_first_step_is_released(node: Node) -> None:
    work = Work(node)
    run_id = await work.take()
    work.executor.stop_accepting()
    await asyncio.wait_for(work.executor.empty.wait(), 60)
    assert work.executor.releasable == ((run_id, 1),)
    assert work.capacity.free == 1
    await node.memory.release(work.executor.releasable)
    back = await node.memory.get_run(run_id)
    assert back is not None
    assert (back.status, back.attempt, work.runner.calls) == (RunStatus.QUEUED, 0, [])


# The node was suspended between the commit of a claim and its answer, and has joined again since.
async def test_a_claim_of_a_former_lease_is_not_executed(node: Node) -> None:
    work = Work(node)
    await node.memory.add_runs([a_run()])
    request = ClaimRequest(
        node_id=node.membership.node_id, capabilities=frozenset({"http"}), free=1
    )
    runs = await node.memory.claim(request)
    node.membership.lose("it was suspended")
    await until(node.membership.lost.is_set)
    await LeaseRecovery(node.faults.store, node.membership, work.executor).run_once()
    assert node.membership.trusted
    assert work.executor.accept(runs, work.capacity) == 0
    assert work.executor.releasable == ((runs[0].id, 1),)
    assert work.executor.empty.is_set()


# A completion may be written late, before the old lease has ended.
async def test_joining_again_keeps_unwritten_completions(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "STUCK_AFTER", -0.9)
    work = Work(node)
    run_id = await work.take()
    await until(lambda: work.executor.recorder.queued)
    node.membership.lose("it is too slow")
    await until(node.membership.lost.is_set)
    await LeaseRecovery(node.faults.store, node.membership, work.executor).run_once()
    assert node.membership.trusted
    await work.executor.recorder.run_once()
    run = await node.memory.get_run(run_id)
    assert run is not None
    assert (run.status, run.attempt, len(run.attempts)) == (RunStatus.SUCCEEDED, 1, 1)
    # Without runs in flight no node has to wait for the end of the lease.
    node.membership.lose("again")
    await until(node.membership.lost.is_set)
    await LeaseRecovery(node.faults.store, node.membership, work.executor).run_once()
    assert node.faults.count["leave"] == 1


# An abandoned run that has started is never released.
async def test_an_abandoned_run_is_not_released_as_a_stray(node: Node) -> None:
    work = Work(node)
    work.runner.script = [work.runner.wait]
    run_id = await work.take()
    await until(lambda: work.runner.calls)
    work.executor.stop_all(StopReason.DRAIN)
    await asyncio.wait_for(work.executor.empty.wait(), 60)
    reconciler_duty = Reconciler(
        node.faults.store,
        node.membership,
        work.executor,
        [work.capacity],
        clock=node.clock,
        time=node.time,
        poll=timedelta(seconds=1),
    )
    node.clock.advance(20)
    for _ in range(2):
        work.capacity.claim_in_doubt = True
        await reconciler_duty.run_once()
    run = await node.memory.get_run(run_id)
    assert run is not None
    assert (run.status, run.attempt) == (RunStatus.RUNNING, 1)
    assert node.faults.count["list_runs"] == 2


def maintenance_of(node: Node) -> Maintenance:
    return Maintenance(
        node.faults.store,
        node.membership,
        clock=node.clock,
        time=node.time,
        events=node.events,
        poll=timedelta(seconds=1),
        retention=timedelta(days=1),
    )


# After a jump of the clock every lease has ended: live nodes get time to renew theirs.
async def test_no_rescue_right_after_a_forward_clock_jump(node: Node) -> None:
    other = NodeId("other")
    await node.memory.join(a_node("other"), LEASE)
    await node.memory.add_runs([a_run()])
    (run,) = await node.memory.claim(
        ClaimRequest(node_id=other, capabilities=frozenset({"http"}), free=1)
    )
    maintenance = maintenance_of(node)
    await maintenance.run_once()
    node.clock.set(node.clock.now() + timedelta(minutes=10))
    node.clock.advance(MAX_RESCUE_INTERVAL)
    await maintenance.run_once()
    assert node.faults.count["rescue"] == 1
    assert [event for event in node.emitted if isinstance(event, StoreClockJumped)] == [
        StoreClockJumped(seconds=600.0)
    ]
    node.clock.advance(19)
    assert node.membership.trusted
    await maintenance.run_once()
    assert node.faults.count["rescue"] == 1
    await node.membership.join()
    node.clock.advance(12)
    await maintenance.run_once()
    assert node.faults.count["rescue"] == 2
    held = await node.memory.get_run(run.id)
    assert held is not None
    assert held.holder is None


async def test_rescue_runs_when_a_lease_can_have_ended(node: Node) -> None:
    maintenance = maintenance_of(node)
    await maintenance.run_once()
    await node.memory.join(a_node("other"), timedelta(seconds=7))
    looked = []
    for _ in range(14):
        await maintenance.run_once()
        looked.append(node.faults.count["rescue"])
        await node.memory.heartbeat(node.membership.node_id, LEASE, clock=node.clock.now())
        node.membership.renew(node.membership.node_id, node.clock.monotonic())
        node.clock.advance(1)
    # At 0; at 5, before the other node joined; at 7, when its lease ended; at 12.
    assert looked == [1] * 5 + [2] * 2 + [3] * 5 + [4] * 2


async def test_a_backward_clock_jump_is_reported_only(node: Node) -> None:
    maintenance = maintenance_of(node)
    node.clock.set(node.clock.now() - timedelta(minutes=10))
    await maintenance.run_once()
    assert [event for event in node.emitted if isinstance(event, StoreClockJumped)] == [
        StoreClockJumped(seconds=-600.0)
    ]
    assert node.faults.count["rescue"] == 1


async def test_a_slow_answer_is_not_a_clock_jump(node: Node) -> None:
    answer = node.clock.now()
    before = node.clock.monotonic()
    node.clock.advance(20)
    node.time.observe(answer, before)
    node.time.observe(answer + timedelta(seconds=20), before + 20)
    assert node.time.take_jumps() == []


async def test_heartbeat_uses_its_period(node: Node) -> None:
    beats = node.faults.count
    quick = Heartbeat(
        node.faults.store,
        node.membership,
        clock=node.clock,
        time=node.time,
        events=node.events,
        on_cancel=node.memory.wake,
        period=timedelta(seconds=0.02),
    )
    quick.start()
    await until(lambda: beats["heartbeat"] >= 5)
    await quick.stop()


class StoreWithEpochs:
    """A store with an epoch."""

    def __init__(self, *epochs: Epoch) -> None:
        self._epochs = list(epochs)

    async def epoch(self) -> Epoch:
        return self._epochs.pop(0)


# After a fail-over that lost commits the node gives up its claims.
async def test_node_drops_its_lease_when_the_store_regresses(node: Node) -> None:
    watch = FailoverWatch(
        node.faults.store,
        StoreWithEpochs(Epoch(7, "a"), Epoch(9, "a"), Epoch(10, "b"), Epoch(4, "c"), Epoch(5, "c")),
        node.membership,
        time=node.time,
        events=node.events,
    )
    for _ in range(3):
        await watch.run_once()
    assert node.membership.trusted
    node.faults.failing = {"append_audit": StoreUnavailable("not now")}
    with pytest.raises(StoreUnavailable):
        await watch.run_once()
    assert not node.membership.trusted
    await until(lambda: node.membership.lost.is_set())
    node.faults.failing = {}
    await watch.run_once()
    (regressed,) = [event for event in node.emitted if isinstance(event, StoreRegressed)]
    assert "from epoch 10 to 4" in regressed.why
    (entry,) = await node.memory.list_audit(AuditQuery())
    assert (entry.verb, entry.object_kind, entry.reason) == ("regress", "store", regressed.why)


async def test_a_node_whose_counter_was_passed_again_hears_of_the_regression(node: Node) -> None:
    """The store went back from 10 to 8, and the first node that looks raises it to 9. The second
    one, which had read 9, gets 10."""
    first, second = Node(), node
    second.faults = Faults(first.memory)
    await first.membership.join()
    epochs = ((10, 9, 12, 14), (9, 10, 11, 13))
    watches = [
        FailoverWatch(
            each.faults.store,
            StoreWithEpochs(*(Epoch(counter, "a") for counter in counters)),
            each.membership,
            time=each.time,
            events=each.events,
        )
        for each, counters in zip((first, second), epochs, strict=True)
    ]

    def found() -> list[str]:
        return [
            event.why
            for each in (first, second)
            for event in each.emitted
            if isinstance(event, StoreRegressed)
        ]

    for watch in watches:
        await watch.run_once()
    assert found() == []
    for watch in watches:
        await watch.run_once()
    assert found() == [
        "the store went back from epoch 10 to 9 (it was a, now a)",
        "another node found that the store went back",
    ]
    await until(lambda: first.membership.lost.is_set() and second.membership.lost.is_set())
    # Once each.
    for watch in (*watches, *watches):
        await watch.run_once()
    assert len(found()) == 2
    # A node that joins later has nothing to give up.
    third = Node()
    third.faults = Faults(first.memory)
    watch = FailoverWatch(
        third.faults.store,
        StoreWithEpochs(Epoch(15, "a"), Epoch(16, "a")),
        third.membership,
        time=third.time,
        events=third.events,
    )
    for _pass in range(2):
        await watch.run_once()
    assert third.emitted == []
