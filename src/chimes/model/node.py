"""A node: one process. Its lease is the lease of every run it holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from chimes.model.defaults import RunDefaults
from chimes.model.ids import NodeId, RunId
from chimes.model.sync_policy import is_pair_key


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
    offers: tuple[str, ...] = ()
    #: How the tasks and flows among them are carried out, so that every node can start them.
    defaults: Mapping[str, RunDefaults] = field(default_factory=dict)
    #: Seconds that the node's clock was ahead of the store's at its last heartbeat.
    clock_offset: float = 0.0


def told_by(node: Node) -> tuple[str, ...]:
    """All that a store keeps by name: what a node offers, and the pairs of its sources, which are
    not offered by themselves but may be started."""
    pairs = (name for name in node.defaults if name not in node.offers)
    return (*node.offers, *pairs)


def offers_in(told: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in told if not is_pair_key(name))


@dataclass(frozen=True, kw_only=True, slots=True)
class Beat:
    """The answer to a heartbeat."""

    alive: bool
    now: datetime
    #: Runs of this node that somebody asked to cancel, oldest first (created_at, id).
    cancel: tuple[RunId, ...] = ()
