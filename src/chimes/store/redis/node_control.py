"""Nodes as operators see them, and what the store tells about itself."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime

from chimes.model.audit import AuditEntry
from chimes.model.ids import NodeId, RunId
from chimes.model.node import Node, NodeMark
from chimes.store.node_control import no_node, node_alive, node_gone
from chimes.store.redis.durability import memory_of
from chimes.store.redis.records import RedisRecords
from chimes.store.redis.wire import micros, moment, text, texts


class RedisNodeControl(RedisRecords):
    async def drain_node(
        self, node_id: NodeId, drain: bool, audit: AuditEntry | None = None
    ) -> Node:
        async def attempt() -> Node:
            node, now = await self._node(node_id)
            if node.lease_until <= now:
                raise node_gone(node_id)
            await self._commit(
                [["alive", node_id]],
                [["drain_node", node_id, "1" if drain else ""]],
                [audit] if audit else (),
                wakes=True,
            )
            return replace(node, drain=drain)

        return await self._until_agreed(attempt, audit)

    async def forget_node(self, node_id: NodeId, audit: AuditEntry | None = None) -> Node:
        async def attempt() -> Node:
            node, now = await self._node(node_id)
            if node.lease_until > now:
                raise node_alive(node_id)
            _, (_, held) = await self._ask("held", node_id)
            settling, _ = await self._lost([RunId(each) for each in texts(held)], {node_id})
            await self._commit(
                [*settling.expected, ["gone", node_id]],
                [*settling.ops, ["drop_node", node_id]],
                [audit] if audit else (),
                wakes=True,
            )
            return node

        return await self._until_agreed(attempt, audit)

    async def node_marks(self, since: datetime, *, limit: int = 200) -> tuple[NodeMark, ...]:
        _, (answer,) = await self._ask("node_marks", micros(since), str(limit))
        found = [_mark(each) for each in texts(answer)]
        return tuple(sorted(found, key=lambda mark: (mark.at, mark.node_id, mark.joined)))

    async def count_prunable(self, before: datetime, *, most: int) -> int:
        _, (answer,) = await self._ask("prunable", micros(before), str(most))
        return int(text(answer))

    async def size(self) -> int | None:
        """Of the whole server, which may have other things to keep."""
        return await memory_of(self._connections)

    async def _node(self, node_id: NodeId) -> tuple[Node, datetime]:
        found = [node for node in await self.nodes() if node.id == node_id]
        if not found:
            raise no_node(node_id)
        return found[0], await self._now()


def _mark(row: str) -> NodeMark:
    at, node_id, joined, version = json.loads(row)
    return NodeMark(at=moment(at), node_id=NodeId(node_id), version=version, joined=joined == "1")
