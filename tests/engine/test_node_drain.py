"""An operator drains and resumes a node: it stays a member and accepts no work meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

from chimes.engine.events import NodeDraining, NodeJoined, NodeResumed, SchedulesFired
from chimes.model.ids import NodeId
from chimes.model.node import Node, NodeState
from chimes.model.policy import OnLost, Policy
from chimes.model.run import RunStatus
from tests.builders import ALICE, a_run
from tests.engine.rig import Faults, Recording, Rig, eventually, until
from tests.engine.test_deliverer import CHAT, Recorded

OFTEN = timedelta(seconds=0.1)


async def node_of(rig: Rig, node_id: NodeId) -> Node:
    (node,) = [node for node in await rig.store.nodes() if node.id == node_id]
    return node


async def state(rig: Rig, node_id: NodeId) -> NodeState:
    now = await rig.now()
    return (await node_of(rig, node_id)).state(now)


async def test_a_drained_node_finishes_its_runs_and_accepts_none_until_resumed(
    rig: Rig,
) -> None:
    rig.runner.script = [rig.runner.wait]
    engine = await rig.engine(heartbeat=OFTEN)
    held = await rig.due_now()
    await until(lambda: rig.runner.calls)
    await rig.store.drain_node(engine.node_id, True)
    await until(lambda: rig.emitted(NodeDraining))
    assert rig.emitted(NodeDraining)[0].running == 1
    # Neither fired nor claimed.
    due = await rig.due_now()
    by_hand = a_run(available_at=await rig.now())
    await rig.store.add_runs([by_hand])
    assert await state(rig, engine.node_id) is NodeState.DRAINING
    rig.runner.gate.set()
    await eventually(lambda: state(rig, engine.node_id), lambda s: s is NodeState.DRAINED)
    (done,) = await rig.runs(held)
    assert (done.status, done.attempt) == (RunStatus.SUCCEEDED, 1)
    # By now it would have polled several times.
    assert await rig.runs(due) == []
    assert (await rig.run(by_hand.id)).status is RunStatus.QUEUED
    assert len(rig.runner.calls) == 1
    assert engine.trusted
    assert not engine.draining

    await rig.store.drain_node(engine.node_id, False)
    await until(lambda: rig.emitted(NodeResumed))
    (late,) = await rig.ended(due)
    assert late.attempt == 1
    await eventually(lambda: rig.run(by_hand.id), lambda run: run.status is RunStatus.SUCCEEDED)
    assert await state(rig, engine.node_id) is NodeState.ALIVE
    (node,) = await rig.store.nodes()
    assert node.report is not None
    assert node.report.memory is None or node.report.memory > 1_000_000


async def test_unstarted_runs_go_to_another_node_immediately(rig: Rig) -> None:
    faults = Faults(rig.store)
    faults.hanging = {"start"}
    first = await rig.engine(store=faults.store, heartbeat=OFTEN)
    schedule = await rig.due_now(policy=Policy(on_lost=OnLost.STOP))
    await eventually(lambda: rig.runs(schedule, RunStatus.RUNNING), bool)
    await rig.store.drain_node(first.node_id, True)
    await until(lambda: rig.emitted(NodeDraining))
    other = Recording()
    second = await rig.engine(runner=other, heartbeat=OFTEN)
    (done,) = await rig.ended(schedule)
    # Released without an attempt, because it never started.
    assert (done.status, done.attempt) == (RunStatus.SUCCEEDED, 1)
    assert [attempt.node for attempt in done.attempts] == [second.node_id]
    assert rig.runner.calls == []


async def test_a_node_that_joins_again_is_still_drained(rig: Rig) -> None:
    engine = await rig.engine(heartbeat=OFTEN)
    before = engine.node_id
    await rig.store.drain_node(before, True)
    await until(lambda: rig.emitted(NodeDraining))
    engine._membership.lose("of the test")
    await until(lambda: len(rig.emitted(NodeJoined)) == 2)
    assert engine.node_id != before
    schedule = await rig.due_now()
    await eventually(lambda: state(rig, engine.node_id), lambda s: s is NodeState.DRAINED)
    assert await rig.runs(schedule) == []
    assert rig.emitted(SchedulesFired) == []
    await rig.store.drain_node(engine.node_id, False)
    (done,) = await rig.ended(schedule)
    assert done.status is RunStatus.SUCCEEDED


async def test_a_drained_node_can_be_stopped(rig: Rig) -> None:
    engine = await rig.engine(heartbeat=OFTEN)
    await rig.store.drain_node(engine.node_id, True)
    await until(lambda: rig.emitted(NodeDraining))
    await asyncio.wait_for(engine.drain(), 60)
    assert await rig.store.nodes() == ()


async def test_a_node_is_not_drained_while_it_sends_a_message(rig: Rig) -> None:
    telegram = Recorded()
    telegram.script = [telegram.wait]
    rig.settings = replace(rig.settings, telegram_allowed_chats=("7",))
    engine = await rig.engine(senders=[telegram], heartbeat=OFTEN)
    await rig.due_now(policy=Policy(delivery=(CHAT,)), owner=ALICE)
    await until(lambda: telegram.now)
    await rig.store.drain_node(engine.node_id, True)
    reported = await eventually(
        lambda: node_of(rig, engine.node_id),
        lambda node: node.report is not None and node.report.draining and not node.report.running,
    )
    assert reported.report is not None
    assert (reported.report.sending, reported.state(await rig.now())) == (1, NodeState.DRAINING)
    telegram.gate.set()
    await eventually(lambda: state(rig, engine.node_id), lambda s: s is NodeState.DRAINED)
