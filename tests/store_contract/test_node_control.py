"""Drain, resume and remove nodes; node reports and node events."""

from __future__ import annotations

from datetime import timedelta

import pytest

from chimes.errors import Conflict, NotFound
from chimes.model import replace
from chimes.model.audit import AuditEntry
from chimes.model.ids import NodeId
from chimes.model.listing import AuditQuery
from chimes.model.node import HeartbeatResult, NodeEvent, NodeReport, NodeState
from chimes.model.run import mark_lost
from chimes.store.codec.records import report_from_text, report_to_text
from chimes.store.port import NODE_EVENT_RETENTION, Store
from chimes.testing import SettableClock
from tests.builders import LEASE, NOW, SECOND, a_completion, a_node, a_run
from tests.store_contract.scenes import NODE, all_runs, joined, running_run

REPORT = NodeReport(
    running=3,
    sending=2,
    claims_per_minute=2.5,
    memory=123_456_789,
    queues=("ก", "b"),
    draining=True,
)


def audit_entry(verb: str) -> AuditEntry:
    return AuditEntry(
        at=NOW, actor="x", interface="native", verb=verb, object_kind="node", object_id=NODE
    )


async def verbs(store: Store) -> list[str]:
    return [entry.verb for entry in await store.list_audit(AuditQuery(limit=10))]


async def test_heartbeat_returns_the_drain_state(store: Store, clock: SettableClock) -> None:
    await joined(store, "other")
    node = await store.join(a_node(), LEASE)
    before = store.changes()
    assert await store.drain_node(NODE, True, audit_entry("drain")) == replace(node, drain=True)
    assert store.changes() > before
    assert await store.heartbeat(NODE, LEASE, clock=NOW) == HeartbeatResult(
        alive=True, now=NOW, drain=True
    )
    assert not (await store.heartbeat(NodeId("other"), LEASE, clock=NOW)).drain
    assert (await store.drain_node(NODE, True, audit_entry("drain"))).drain
    assert not (await store.drain_node(NODE, False, audit_entry("resume"))).drain
    assert not (await store.heartbeat(NODE, LEASE, clock=NOW)).drain
    assert await verbs(store) == ["resume", "drain", "drain"]


async def test_drain_of_an_unknown_or_expired_node_is_rejected(
    store: Store, clock: SettableClock
) -> None:
    with pytest.raises(NotFound):
        await store.drain_node(NODE, True, audit_entry("drain"))
    await joined(store)
    clock.advance(LEASE)
    with pytest.raises(Conflict):
        await store.drain_node(NODE, True, audit_entry("drain"))
    assert await verbs(store) == []
    (node,) = await store.nodes()
    assert not node.drain


async def test_joining_again_keeps_the_drain_state(store: Store) -> None:
    await joined(store)
    await store.drain_node(NODE, True)
    await store.heartbeat(NODE, LEASE, clock=NOW, report=REPORT)
    again = await store.join(a_node(capabilities=("http",)), LEASE)
    assert (again.drain, again.report) == (True, REPORT)
    assert await store.nodes() == (again,)
    # A node that lost its lease joins under a new id and passes its drain state.
    new = await store.join(a_node("new", drain=True), LEASE)
    assert new.drain
    assert (await store.heartbeat(NodeId("new"), LEASE, clock=NOW)).drain


async def test_joining_again_does_not_undo_a_resume(store: Store) -> None:
    await joined(store)
    await store.drain_node(NODE, True)
    assert (await store.heartbeat(NODE, LEASE, clock=NOW)).drain
    await store.drain_node(NODE, False)
    again = await store.join(a_node(capabilities=("http",), drain=True), LEASE)
    assert not again.drain
    assert not (await store.heartbeat(NODE, LEASE, clock=NOW)).drain


async def test_node_report_is_replaced_by_the_next_heartbeat(store: Store) -> None:
    await joined(store)
    await store.heartbeat(NODE, LEASE, clock=NOW, report=REPORT)
    (node,) = await store.nodes()
    assert node.report == REPORT
    await store.heartbeat(NODE, LEASE, clock=NOW, report=NodeReport())
    (node,) = await store.nodes()
    assert node.report == NodeReport()
    # Nodes of older versions send no report.
    await store.heartbeat(NODE, LEASE, clock=NOW)
    (node,) = await store.nodes()
    assert node.report is None


async def test_only_a_node_with_an_expired_lease_can_be_removed(
    store: Store, clock: SettableClock
) -> None:
    run = await running_run(store)
    theirs = await running_run(store, node_id="node-2")
    with pytest.raises(NotFound):
        await store.forget_node(NodeId("nobody"), audit_entry("forget"))
    with pytest.raises(Conflict):
        await store.forget_node(NODE, audit_entry("forget"))
    clock.advance(LEASE - SECOND)
    await store.heartbeat(NodeId("node-2"), LEASE, clock=clock.now())
    now = clock.advance(1)
    before = store.changes()
    assert (await store.forget_node(NODE, audit_entry("forget"))).id == NODE
    assert store.changes() > before
    assert [node.id for node in await store.nodes()] == ["node-2"]
    assert await all_runs(store) == {run.id: mark_lost(run, now), theirs.id: theirs}
    assert await verbs(store) == ["forget"]
    with pytest.raises(NotFound):
        await store.forget_node(NODE, audit_entry("forget"))


async def test_node_events_record_joins_and_leaves(store: Store, clock: SettableClock) -> None:
    def mark(at: timedelta, name: str, came: bool) -> NodeEvent:
        return NodeEvent(at=NOW + at, node_id=NodeId(name), version="0.1.0", joined=came)

    for name in ("left", "lost", "forgotten", "there"):
        await joined(store, name)
    await running_run(store, node_id="forgotten")
    clock.advance(1)
    await store.join(a_node("there"), LEASE)
    await store.leave(NodeId("left"))
    await store.leave(NodeId("left"))
    clock.advance(LEASE)
    await store.forget_node(NodeId("forgotten"))
    await store.rescue(limit=10)
    came = [mark(timedelta(0), name, True) for name in ("forgotten", "left", "lost", "there")]
    gone = [
        mark(SECOND, "left", False),
        *(mark(LEASE, name, False) for name in ("forgotten", "lost")),
        mark(LEASE + SECOND, "there", False),
    ]
    assert await store.node_events(NOW) == (*came, *gone)
    assert await store.node_events(NOW + SECOND) == tuple(gone)
    assert await store.node_events(NOW, limit=1) == (gone[-1],)
    # Old events are pruned when a node joins.
    at = clock.advance(NODE_EVENT_RETENTION + SECOND)
    await joined(store, "late")
    found = await store.node_events(NOW - SECOND)
    assert [each.at for each in found] == [at]


async def test_prunable_runs_are_counted(store: Store, clock: SettableClock) -> None:
    for _ in range(3):
        run = await running_run(store)
        await store.finish([a_completion(run, clock.now())])
        clock.advance(1)
    await store.add_runs([a_run()])
    assert await store.count_prunable(NOW, most=10) == 0
    assert await store.count_prunable(NOW + 2 * SECOND, most=10) == 2
    assert await store.count_prunable(NOW + 9 * SECOND, most=10) == 3
    assert await store.count_prunable(NOW + 9 * SECOND, most=2) == 2
    assert await store.prune_runs(before=NOW + 9 * SECOND, limit=10) == 3


async def test_store_size_is_reported_except_for_memory(store: Store) -> None:
    await store.add_runs([a_run()])
    size = await store.size()
    kind = (await store.status()).kind
    assert (size is None) == (kind == "memory")
    assert size is None or size > 0


def test_unreadable_node_report_is_none() -> None:
    assert report_from_text(report_to_text(REPORT)) == REPORT
    assert report_from_text(report_to_text(None)) is None
    # A newer node may send other fields.
    assert report_from_text('{"running": 2, "humidity": 0.5}') == NodeReport(running=2)
    for text in ("", "null", "{", "[1]", '{"running": "many"}', '{"queues": 5}'):
        assert report_from_text(text) is None, text


async def test_steps_of_a_running_flow_are_not_prunable(store: Store, clock: SettableClock) -> None:
    flow = await running_run(store)
    step = await running_run(store, a_run(parent_id=flow.id, step="one"))
    await store.finish([a_completion(step, clock.now())])
    later = clock.advance(5)
    assert await store.count_prunable(later, most=10) == 0
    assert await store.prune_runs(before=later, limit=10) == 0
    await store.finish([a_completion(flow, later)])
    after = clock.advance(5)
    assert await store.count_prunable(after, most=10) == 2


def test_state_of_a_node() -> None:
    node = a_node(lease_until=NOW + SECOND)
    heard = NodeReport(draining=True)
    assert node.state(NOW) is NodeState.ALIVE
    assert node.state(NOW + SECOND) is NodeState.GONE
    asked = replace(node, drain=True)
    assert asked.state(NOW) is NodeState.DRAINING
    assert replace(asked, report=NodeReport(running=0)).state(NOW) is NodeState.DRAINING
    assert replace(asked, report=replace(heard, running=1)).state(NOW) is NodeState.DRAINING
    assert replace(asked, report=replace(heard, sending=1)).state(NOW) is NodeState.DRAINING
    assert replace(asked, report=heard).state(NOW) is NodeState.DRAINED
    assert replace(asked, report=heard).state(NOW + SECOND) is NodeState.GONE
