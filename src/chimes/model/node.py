"""A node: one process. Its lease covers all its in-flight runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum

from msgspec import Struct, field

from chimes.model.ids import NodeId, RunId
from chimes.model.policy import RunDefaults
from chimes.model.target import is_pair_key


class NodeState(StrEnum):
    ALIVE = "alive"
    #: Drain requested; it claims nothing new and still has in-flight work, or has not received
    #: the request yet.
    DRAINING = "draining"
    #: Drained: no in-flight work, and no claims until it is resumed.
    DRAINED = "drained"
    #: Its lease has expired.
    GONE = "gone"


class NodeReport(Struct, frozen=True, kw_only=True):
    """Statistics that a node reports with each heartbeat, for display only."""

    #: In-flight runs.
    running: int = 0
    #: Deliveries being sent, or sent and not recorded yet.
    sending: int = 0
    #: Runs claimed since the previous heartbeat.
    claims_per_minute: float = 0.0
    #: Resident memory of the process in bytes; None: unknown.
    memory: int | None = None
    #: The queues that it serves; empty: all.
    queues: tuple[str, ...] = ()
    #: Whether it has received a drain request.
    draining: bool = False


class NodeEvent(Struct, frozen=True, kw_only=True):
    """A node joined, or left, or its lease expired."""

    at: datetime
    node_id: NodeId
    version: str
    joined: bool


class Node(Struct, frozen=True, kw_only=True):
    #: host-pid-random, new at each start. It carries no authority; only the fence does.
    id: NodeId
    version: str
    roles: tuple[str, ...]
    capacity: int
    started_at: datetime
    heartbeat_at: datetime
    lease_until: datetime
    #: What it can execute (`target.requirement`); empty for a node that only serves the API.
    capabilities: tuple[str, ...] = ()
    #: Defaults of its tasks and flows, so that every node can start them.
    defaults: Mapping[str, RunDefaults] = field(default_factory=dict)
    #: Seconds that the node's clock was ahead of the store's at its last heartbeat.
    clock_offset: float = 0.0
    #: Drain requested; the node receives it with its next heartbeat.
    drain: bool = False
    #: None: nothing reported yet.
    report: NodeReport | None = None

    def state(self, now: datetime) -> NodeState:
        if self.lease_until <= now:
            return NodeState.GONE
        if not self.drain:
            return NodeState.ALIVE
        acknowledged = self.report is not None and self.report.draining
        return NodeState.DRAINED if acknowledged and not self.in_flight else NodeState.DRAINING

    @property
    def in_flight(self) -> int:
        return 0 if self.report is None else self.report.running + self.report.sending


def published_names(node: Node) -> tuple[str, ...]:
    """The names that a store keeps for a node: its capabilities, and the sync pairs of its sources,
    which are no capabilities but can be started."""
    pairs = (name for name in node.defaults if name not in node.capabilities)
    return (*node.capabilities, *pairs)


def capabilities_in(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if not is_pair_key(name))


class HeartbeatResult(Struct, frozen=True, kw_only=True):
    """The response to a heartbeat."""

    alive: bool
    now: datetime
    #: Runs of this node with a requested cancellation, oldest first (created_at, id).
    cancel: tuple[RunId, ...] = ()
    #: Whether the node shall claim nothing new.
    drain: bool = False
