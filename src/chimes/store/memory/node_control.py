"""Nodes as operators see them, and what the store tells about itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from chimes.model.audit import AuditEntry
from chimes.model.ids import NodeId
from chimes.model.node import Node, NodeMark
from chimes.store.memory.base import MemoryBase
from chimes.store.node_control import no_node, node_alive, node_gone


class MemoryNodeControl(MemoryBase):
    async def drain_node(
        self, node_id: NodeId, drain: bool, audit: AuditEntry | None = None
    ) -> Node:
        with self._lock:
            node = self._node(node_id)
            if not self._state.alive(node_id, self._clock.now()):
                raise node_gone(node_id)
            asked = replace(node, drain=drain)
            self._state.nodes[node_id] = asked
            self._audit(audit)
        await self._commit()
        self.wake()
        return asked

    async def forget_node(self, node_id: NodeId, audit: AuditEntry | None = None) -> Node:
        with self._lock:
            node = self._node(node_id)
            now = self._clock.now()
            if self._state.alive(node_id, now):
                raise node_alive(node_id)
            del self._state.nodes[node_id]
            self._lose(self._state.held_by(node_id), now)
            self._state.mark_node(node, node.lease_until, joined=False)
            self._audit(audit)
        await self._commit()
        self.wake()
        return node

    async def node_marks(self, since: datetime, *, limit: int = 200) -> tuple[NodeMark, ...]:
        with self._lock:
            found = [mark for mark in self._state.node_marks if mark.at >= since]
        found.sort(key=lambda mark: (mark.at, mark.node_id, mark.joined))
        return tuple(found[-limit:])

    async def count_prunable(self, before: datetime, *, most: int) -> int:
        with self._lock:
            found = sum(
                run.finished_at is not None
                and run.finished_at < before
                and not self._state.spared(run)
                for run in self._state.runs.values()
            )
        return min(found, most)

    async def size(self) -> int | None:
        return None

    def _node(self, node_id: NodeId) -> Node:
        node = self._state.nodes.get(node_id)
        if node is None:
            raise no_node(node_id)
        return node
