"""Rules: nodes join, send heartbeats, leave and die; time passes."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from chimes.model.ids import NodeId
from chimes.model.node import HeartbeatResult, NodeReport
from chimes.model.run import Reason, RunStatus
from tests.builders import LEASE, a_node
from tests.store_contract.machine.strategies import index
from tests.store_contract.machine.two_stores import TwoStores


class NodeRules(TwoStores):
    @precondition(lambda self: len(self.nodes) < 4)
    @rule()
    def join(self) -> None:
        self.made += 1
        self._both("join", a_node(f"node-{self.made}"), LEASE)
        self.nodes.append(NodeId(f"node-{self.made}"))

    @rule(number=index, skew=st.sampled_from([-600, 0, 600]))
    def heartbeat(self, number: int, skew: int) -> None:
        node = self._pick(self.nodes, number)
        self._heartbeat(node, skew)

    def _heartbeat(self, node: NodeId, skew: int = 0) -> HeartbeatResult:
        clock = self._now() + timedelta(seconds=skew)
        report = NodeReport(running=len(node), draining=skew > 0) if skew else None
        answer: HeartbeatResult = self._both("heartbeat", node, LEASE, clock=clock, report=report)
        self.reached["beat refused"] += not answer.alive
        self.reached["drain heard"] += answer.drain
        self.reached["cancel heard"] += bool(answer.cancel)
        return answer

    @precondition(lambda self: len(self.nodes) > 1)
    @rule(number=index)
    def leave(self, number: int) -> None:
        node = self._pick(self.nodes, number)
        self.nodes.remove(node)
        self._both("leave", node)

    @rule(number=index, drain=st.booleans())
    def drain(self, number: int, drain: bool) -> None:
        """Also for dead nodes, to compare the errors."""
        self._both("drain_node", self._pick(self.nodes, number), drain)

    @rule(number=index)
    def forget(self, number: int) -> None:
        listed = self._both("nodes")
        if listed:
            self._both("forget_node", self._pick(listed, number).id)
            self._both("node_events", self._now() - timedelta(days=1))

    @precondition(lambda self: len(self.nodes) > 1)
    @rule(number=index)
    def die(self, number: int) -> None:
        """kill -9: the node does not leave, and its lease expires later."""
        self.nodes.remove(self._pick(self.nodes, number))

    @rule()
    def rescue(self) -> None:
        rescued = self._both("rescue", limit=1000)
        self.reached["rescued"] += len(rescued)
        self.reached["crash limit"] += sum(run.reason == Reason.CRASH_LIMIT for run in rescued)
        self.reached["unknown"] += sum(run.status is RunStatus.UNKNOWN for run in rescued)
        self._both("nodes")

    @rule(seconds=st.integers(1, 12), beating=st.booleans())
    def advance(self, seconds: int, beating: bool) -> None:
        self.clock.advance(seconds)
        for node in self.nodes if beating else ():
            self._heartbeat(node)

    @rule(seconds=st.sampled_from([70, 200]))
    def outage(self, seconds: int) -> None:
        """All nodes pause until their leases have expired."""
        self.clock.advance(seconds)
        self.rescue()
        self.nodes.clear()
        self.join()
