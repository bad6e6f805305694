"""What operators do to nodes, and what the store tells about nodes and about itself."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol

from chimes.errors import Conflict, NotFound
from chimes.model.audit import AuditEntry
from chimes.model.ids import NodeId
from chimes.model.node import Node, NodeMark
from chimes.wording import say

#: Marks that are older than this are forgotten when the next node comes.
MARKS_KEPT = timedelta(days=31)


class NodeControl(Protocol):
    async def drain_node(
        self, node_id: NodeId, drain: bool, audit: AuditEntry | None = None
    ) -> Node:
        """Ask a node to take nothing new, or to go on; it hears so with its next heartbeat. The
        node as it is now. Raises NotFound, or Conflict if its lease is over. One that was asked
        already stays as it is; `audit` is appended all the same."""

    async def forget_node(self, node_id: NodeId, audit: AuditEntry | None = None) -> Node:
        """Take a node off the list whose lease is over; runs that it still holds count as lost
        now. The node as it was. Raises NotFound, or Conflict while its lease is alive."""

    async def node_marks(self, since: datetime, *, limit: int = 200) -> tuple[NodeMark, ...]:
        """Who came and went since then, at most the newest `limit`, oldest first. A store of one
        process remembers as long as that process lives, the others `MARKS_KEPT`."""

    async def count_prunable(self, before: datetime, *, most: int) -> int:
        """How many runs `prune_runs` would forget; counts no further than `most`."""

    async def size(self) -> int | None:
        """Bytes that all this takes where it is kept, as nearly as the store can tell cheaply;
        None: it cannot."""


def no_node(node_id: NodeId) -> NotFound:
    return NotFound(say("There is no node {id!r}", id=node_id))


def node_gone(node_id: NodeId) -> Conflict:
    return Conflict(say("The node {id!r} is gone: its lease is over", id=node_id), code="node_gone")


def node_alive(node_id: NodeId) -> Conflict:
    return Conflict(
        say("The node {id!r} is alive; only one whose lease is over can be forgotten", id=node_id),
        code="node_alive",
    )
