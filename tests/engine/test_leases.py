"""Nodes that die, are suspended or cannot reach the store: leases, fences, rescue."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

from chimes.engine.events import (
    AttemptAbandoned,
    CompletionFenced,
    NodeHeartbeat,
    NodeLost,
    RunRescued,
)
from chimes.errors import StoreUnavailable
from chimes.model.policy import OnLost, Policy
from chimes.model.run import CRASH_LIMIT, AttemptEnd, Outcome, Reason, RunStatus
from chimes.targets.base import Call
from tests.builders import a_run
from tests.engine.rig import SUCCESS, Faults, FrozenClock, Recording, Rig, eventually, until

#: Of nodes that lose it; the others must keep theirs on a busy machine.
LEASE = timedelta(seconds=1.2)
CUT = StoreUnavailable("the cable is cut")


async def test_the_late_completion_of_a_suspended_node_is_fenced(rig: Rig) -> None:
    clock, faults, slow = FrozenClock(), Faults(rig.store), Recording()
    slow.script = [slow.wait]
    first = await rig.engine(store=faults.store, runner=slow, clock=clock)
    schedule = await rig.due_now()
    await until(lambda: slow.calls)
    clock.freeze()
    faults.failing = {"heartbeat": CUT, "list_runs": CUT}
    # Its lease expires now; a short one could be lost on a busy machine before this point.
    await rig.store.heartbeat(first.node_id, timedelta(0), clock=await rig.now())
    second = await rig.engine()
    (run,) = await rig.ended(schedule)
    assert (run.status, run.attempt, run.fence) == (RunStatus.SUCCEEDED, 2, 2)
    assert [(a.node, a.end) for a in run.attempts] == [
        (first.node_id, AttemptEnd.LOST),
        (second.node_id, AttemptEnd.SUCCEEDED),
    ]
    assert [event.run.id for event in rig.emitted(RunRescued)] == [run.id]
    slow.gate.set()
    await until(lambda: rig.emitted(CompletionFenced))
    assert await rig.run(run.id) == run
    assert slow.called(run.id) + rig.runner.called(run.id) == [1, 2]


# A node that cannot renew its lease stops before another one may take over.
async def test_a_node_cut_off_stops_its_runs_within_the_trust_window(rig: Rig) -> None:
    faults, cut_off = Faults(rig.store), Recording()
    cut_off.script = [cut_off.wait]
    engine = await rig.engine(store=faults.store, runner=cut_off, lease=LEASE)
    first_id = engine.node_id
    schedule = await rig.due_now()
    await until(lambda: cut_off.calls)
    faults.down = CUT
    await until(lambda: cut_off.stopped)
    assert await rig.runs(schedule, RunStatus.RUNNING)
    assert not engine.trusted
    await until(lambda: rig.emitted(AttemptAbandoned))
    assert rig.emitted(NodeLost)[0].node_id == first_id
    await rig.engine()
    (run,) = await rig.ended(schedule)
    assert (run.status, run.attempt) == (RunStatus.SUCCEEDED, 2)
    # It joins again under another id.
    faults.down = None
    await until(lambda: engine.trusted)
    assert engine.node_id != first_id
    await eventually(rig.store.nodes, lambda nodes: engine.node_id in {node.id for node in nodes})


async def test_nothing_new_starts_without_trust(rig: Rig) -> None:
    faults = Faults(rig.store)
    engine = await rig.engine(store=faults.store, lease=LEASE)
    faults.failing = {"heartbeat": CUT, "join": CUT, "leave": CUT}
    await until(lambda: not engine.trusted)
    schedule = await rig.due_now()
    await eventually(lambda: rig.runs(schedule), bool)
    await rig.store.add_runs([a_run(available_at=await rig.now())])
    other = await rig.engine(roles=("scheduler",))
    await until(lambda: len(rig.emitted(NodeLost)) == 1)
    assert rig.runner.calls == []
    assert other.trusted
    faults.failing = {}
    await until(lambda: len(rig.runner.calls) == 2)


async def test_heartbeats_continue_while_the_event_loop_is_blocked(rig: Rig) -> None:
    # A long lease: a busy machine may delay a heartbeat by seconds.
    lease = 4 * LEASE

    async def blocking(call: Call) -> Outcome:
        end = time.monotonic() + lease.total_seconds() * 1.2
        while time.monotonic() < end:
            sum(range(1000))
            time.sleep(0.001)  # noqa: ASYNC251 - what the test is about
        return SUCCESS

    rig.runner.script = [blocking]
    engine = await rig.engine(lease=lease, heartbeat=timedelta(seconds=0.5))
    node_id = engine.node_id
    schedule = await rig.due_now()
    (run,) = await rig.ended(schedule)
    assert (run.status, run.attempt, engine.node_id) == (RunStatus.SUCCEEDED, 1, node_id)
    assert rig.emitted(NodeLost) == []
    assert len(rig.emitted(NodeHeartbeat)) >= 4


async def test_on_lost_stop_ends_unknown_after_the_started_mark(rig: Rig) -> None:
    faults, dying = Faults(rig.store), Recording()
    dying.script = [dying.wait]
    await rig.engine(store=faults.store, runner=dying, lease=LEASE)
    schedule = await rig.due_now(policy=Policy(on_lost=OnLost.STOP))
    await until(lambda: dying.calls)
    faults.down = CUT
    await rig.engine()
    (run,) = await rig.ended(schedule)
    assert (run.status, run.reason) == (RunStatus.UNKNOWN, Reason.LOST_AFTER_START)
    assert rig.runner.calls == []


# Without the started mark no effect can have happened.
async def test_on_lost_stop_runs_again_if_it_had_not_started(rig: Rig) -> None:
    faults, dying = Faults(rig.store), Recording()
    faults.hanging = {"start"}
    await rig.engine(store=faults.store, runner=dying, lease=LEASE)
    schedule = await rig.due_now(policy=Policy(on_lost=OnLost.STOP))
    await eventually(lambda: rig.runs(schedule, RunStatus.RUNNING), bool)
    faults.down = CUT
    await rig.engine()
    (run,) = await rig.ended(schedule)
    assert run.status is RunStatus.SUCCEEDED
    assert dying.calls == []
    assert len(rig.runner.calls) == 1


async def test_a_run_whose_started_mark_is_refused_does_not_start(rig: Rig) -> None:
    faults = Faults(rig.store)
    faults.failing = {"start": CUT}
    await rig.engine(store=faults.store)
    schedule = await rig.due_now(policy=Policy(on_lost=OnLost.STOP))
    await until(lambda: faults.count["start"] >= 2)
    assert rig.runner.calls == []
    faults.failing = {}
    (run,) = await rig.ended(schedule)
    assert (run.status, run.attempt) == (RunStatus.SUCCEEDED, 1)
    assert len(rig.runner.calls) == 1


# A run that crashes its nodes is not retried forever.
async def test_a_run_lost_repeatedly_ends_at_the_crash_limit(rig: Rig) -> None:
    schedule = await rig.due_now()
    for number in range(CRASH_LIMIT):
        faults, dying = Faults(rig.store), Recording()
        dying.script = [dying.wait]
        await rig.engine(store=faults.store, runner=dying, lease=LEASE)
        await until(lambda dying=dying: dying.calls)
        assert dying.calls[0].run.attempt == number + 1
        faults.down = CUT
    healthy = await rig.engine()
    (run,) = await rig.ended(schedule)
    assert (run.status, run.reason) == (RunStatus.FAILED, Reason.CRASH_LIMIT)
    assert run.crashes == CRASH_LIMIT
    assert rig.runner.calls == []
    assert healthy.trusted


async def test_a_lost_run_is_stopped_when_its_node_notices(rig: Rig) -> None:
    rig.runner.script = [rig.runner.wait, SUCCESS]
    engine = await rig.engine()
    schedule = await rig.due_now()
    await until(lambda: rig.runner.calls)
    (node,) = await rig.store.nodes()
    await rig.store.leave(node.id)
    await rig.store.join(node, timedelta(seconds=30))
    await until(lambda: rig.runner.stopped)
    (run,) = await rig.ended(schedule)
    assert (run.status, run.attempt, engine.node_id) == (RunStatus.SUCCEEDED, 2, node.id)


async def test_a_restart_resumes_the_running_runs(rig: Rig) -> None:
    faults, dying = Faults(rig.store), Recording()
    dying.script = [dying.wait]
    await rig.engine(store=faults.store, runner=dying, lease=LEASE)
    schedules = [await rig.due_now() for _ in range(5)]
    await until(lambda: len(dying.calls) == 5)
    faults.down = CUT
    await asyncio.sleep(0)
    await rig.engine()
    for schedule in schedules:
        (run,) = await rig.ended(schedule)
        assert (run.status, run.attempt) == (RunStatus.SUCCEEDED, 2)
