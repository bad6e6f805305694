"""Trust in the lease, counted on a clock that the test holds."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from chimes.engine import reconciler
from chimes.engine.capacity import Capacity, build_pools
from chimes.engine.events import Event, Events, NodeLost, StoreClockJumped, StoreRegressed
from chimes.engine.executor import Executor
from chimes.engine.flow_steps import FlowSteps
from chimes.engine.in_flight import StopReason
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
        self.told: list[Event] = []
        self.events = Events([self.told.append])
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


# RELIABILITY 0.5: lease less a sixth, and once lost it stays lost
async def test_trust_ends_a_margin_before_the_lease(node: Node) -> None:
    node.clock.advance(24.9)
    assert node.membership.trusted
    node.clock.advance(0.1)
    assert not node.membership.trusted
    await until(lambda: node.membership.lost.is_set())
    (lost,) = [event for event in node.told if isinstance(event, NodeLost)]
    assert lost.node_id == node.membership.node_id
    assert not await node.heartbeat.run_once()
    assert not node.membership.trusted


async def test_what_is_announced_later_does_not_make_a_node_new(node: Node) -> None:
    """Who joined last is asked for: reading the sources again is no joining."""
    (before,) = await node.memory.nodes()
    node.clock.advance(5)
    await node.membership.announce()
    (after,) = await node.memory.nodes()
    assert after.started_at == before.started_at
    assert after.heartbeat_at > before.heartbeat_at


# A heartbeat call may take long: what counts is when it was sent
async def test_a_beat_renews_from_before_it_was_sent(
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


# F16: a refusal ends the trust at once, however much of it was left
async def test_a_refused_beat_ends_the_trust(node: Node) -> None:
    await node.memory.leave(node.membership.node_id)
    assert not await node.heartbeat.run_once()
    assert not node.membership.trusted


# RELIABILITY 1: a heartbeat that raises counts like one that is refused
async def test_a_failing_beat_renews_nothing(node: Node) -> None:
    node.faults.failing = {"heartbeat": StoreUnavailable("cut")}
    node.clock.advance(20)
    assert not await node.heartbeat.run_once()
    assert node.membership.trusted
    node.clock.advance(5)
    assert not node.membership.trusted


async def test_joining_again_takes_another_id(node: Node) -> None:
    first = node.membership.node_id
    node.clock.advance(60)
    assert not node.membership.trusted
    await until(lambda: node.membership.lost.is_set())
    await node.membership.join()
    assert node.membership.trusted
    assert node.membership.node_id != first
    assert len({new_node_id() for _ in range(50)}) == 50


# F50: the store's time, whatever this machine's clock says meanwhile
async def test_store_time_follows_the_monotonic_clock_between_two_looks(node: Node) -> None:
    seen = await node.time.ask()
    node.clock.advance(2.5)
    assert node.time.now() == seen + timedelta(seconds=2.5)
    node.clock.set(seen + timedelta(hours=1))
    assert node.time.now() == seen + timedelta(seconds=2.5)
    assert await node.time.ask() == seen + timedelta(hours=1)
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


# F69: a task that is cancelled before its first step still gives its run back
async def test_a_run_that_has_not_made_its_first_step_is_given_back(node: Node) -> None:
    work = Work(node)
    run_id = await work.take()
    work.executor.stop_accepting()
    await asyncio.wait_for(work.executor.empty.wait(), 1)
    assert work.executor.releasable == ((run_id, 1),)
    assert work.capacity.free == 1
    await node.memory.release(work.executor.releasable)
    back = await node.memory.get_run(run_id)
    assert back is not None
    assert (back.status, back.attempt, work.runner.calls) == (RunStatus.QUEUED, 0, [])


# F38: a verdict that the store is too slow for may still come before the lease has ended
async def test_who_joins_again_does_not_give_up_what_is_done(
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
    # With nothing in hand nobody has to wait for the end of the lease.
    node.membership.lose("again")
    await until(node.membership.lost.is_set)
    await LeaseRecovery(node.faults.store, node.membership, work.executor).run_once()
    assert node.faults.count["leave"] == 1


# A run that has begun is never given back, although nobody has it in hand
async def test_a_run_that_was_dropped_after_it_began_is_not_a_stray(node: Node) -> None:
    work = Work(node)
    work.runner.script = [work.runner.wait]
    run_id = await work.take()
    await until(lambda: work.runner.calls)
    work.executor.stop_all(StopReason.DRAIN)
    await asyncio.wait_for(work.executor.empty.wait(), 1)
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


# F52: by a clock that was put forward everybody's lease has ended; those who live say so first
async def test_nobody_is_judged_for_a_lease_after_the_store_clock_went_forward(node: Node) -> None:
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
    assert [event for event in node.told if isinstance(event, StoreClockJumped)] == [
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


# F12: nobody is asked about all the time, and a lease that ends is noticed at the next look
async def test_leases_are_looked_at_when_one_can_have_ended(node: Node) -> None:
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
    # At 0; at 5, when the other was not known yet; at 7, when its lease ended; at 12.
    assert looked == [1] * 5 + [2] * 2 + [3] * 5 + [4] * 2


# F51
async def test_a_store_clock_that_goes_back_is_told_and_changes_nothing(node: Node) -> None:
    maintenance = maintenance_of(node)
    node.clock.set(node.clock.now() - timedelta(minutes=10))
    await maintenance.run_once()
    assert [event for event in node.told if isinstance(event, StoreClockJumped)] == [
        StoreClockJumped(seconds=-600.0)
    ]
    assert node.faults.count["rescue"] == 1


# A slow answer is no jump
async def test_an_answer_that_took_long_says_little_about_the_clock(node: Node) -> None:
    said = node.clock.now()
    before = node.clock.monotonic()
    node.clock.advance(20)
    node.time.observe(said, before)
    node.time.observe(said + timedelta(seconds=20), before + 20)
    assert node.time.take_jumps() == []


async def test_the_heartbeat_keeps_the_period_it_was_given(node: Node) -> None:
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


class Histories:
    """A store that says which epoch it is in."""

    def __init__(self, *epochs: Epoch) -> None:
        self._epochs = list(epochs)

    async def epoch(self) -> Epoch:
        return self._epochs.pop(0)


# F28: what is held from before a fail-over that lost commits is held no more
async def test_a_store_that_went_back_costs_the_node_its_lease(node: Node) -> None:
    watch = FailoverWatch(
        node.faults.store,
        Histories(Epoch(7, "a"), Epoch(9, "a"), Epoch(10, "b"), Epoch(4, "c"), Epoch(5, "c")),
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
    (told,) = [event for event in node.told if isinstance(event, StoreRegressed)]
    assert "from epoch 10 to 4" in told.why
    (entry,) = await node.memory.list_audit(AuditQuery())
    assert (entry.verb, entry.object_kind, entry.reason) == ("regress", "store", told.why)
