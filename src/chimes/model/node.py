"""A node: one process. Its lease is the lease of every run it holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from chimes.model.ids import NodeId, RunId
from chimes.model.policy import RunDefaults
from chimes.model.sync import is_pair_key


class NodeState(StrEnum):
    ALIVE = "alive"
    #: An operator asked it to drain: it takes nothing new and has not finished what it has, or has
    #: not heard of it yet.
    DRAINING = "draining"
    #: It has nothing in hand, and takes nothing until it is resumed.
    DRAINED = "drained"
    #: Its lease is over.
    GONE = "gone"


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeReport:
    """What a node tells of itself with each heartbeat; nothing is decided by it."""

    #: Runs in hand.
    running: int = 0
    #: Messages that it is sending, or has sent and not noted yet.
    sending: int = 0
    #: Runs taken, from the heartbeat before to this one.
    claims_per_minute: float = 0.0
    #: Bytes of its process in memory; None: it cannot tell.
    memory: int | None = None
    #: The queues that its tasks are taken from; empty: all.
    queues: tuple[str, ...] = ()
    #: Whether it has heard that it is to drain.
    draining: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeEvent:
    """A node came, or went: left, or was not heard of until its lease was over."""

    at: datetime
    node_id: NodeId
    version: str
    joined: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    #: host-pid-random, made anew at each start: it carries no authority, only the fence does.
    id: NodeId
    version: str
    roles: tuple[str, ...]
    capacity: int
    started_at: datetime
    heartbeat_at: datetime
    lease_until: datetime
    #: What its runners can carry out (`target.needs`); empty for a node that only serves the API.
    capabilities: tuple[str, ...] = ()
    #: How the tasks and flows among them are carried out, so that every node can start them.
    defaults: Mapping[str, RunDefaults] = field(default_factory=dict)
    #: Seconds that the node's clock was ahead of the store's at its last heartbeat.
    clock_offset: float = 0.0
    #: Somebody asked it to take nothing new. It hears so with its next heartbeat.
    drain: bool = False
    #: None: it has told nothing yet, or is of a version that does not.
    report: NodeReport | None = None

    def state(self, now: datetime) -> NodeState:
        if self.lease_until <= now:
            return NodeState.GONE
        if not self.drain:
            return NodeState.ALIVE
        heard = self.report is not None and self.report.draining
        return NodeState.DRAINED if heard and not self.in_flight else NodeState.DRAINING

    @property
    def in_flight(self) -> int:
        return 0 if self.report is None else self.report.running + self.report.sending


def published_names(node: Node) -> tuple[str, ...]:
    """All that a store keeps by name: what a node offers, and the pairs of its sources, which are
    not offered by themselves but may be started."""
    pairs = (name for name in node.defaults if name not in node.capabilities)
    return (*node.capabilities, *pairs)


def capabilities_in(told: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in told if not is_pair_key(name))


@dataclass(frozen=True, kw_only=True, slots=True)
class HeartbeatResult:
    """The answer to a heartbeat."""

    alive: bool
    now: datetime
    #: Runs of this node that somebody asked to cancel, oldest first (created_at, id).
    cancel: tuple[RunId, ...] = ()
    #: Whether it is to take nothing new.
    drain: bool = False
