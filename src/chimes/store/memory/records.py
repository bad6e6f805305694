"""Nodes, audit trail, API keys and idempotency records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice

from chimes.errors import AlreadyExists, NotFound
from chimes.i18n import _
from chimes.model.access import ApiKey, AuditEntry
from chimes.model.ids import KeyId, NodeId
from chimes.model.listing import AuditQuery
from chimes.model.node import HeartbeatResult, Node, NodeEvent, NodeReport
from chimes.model.run import Run
from chimes.store.memory.base import MemoryBase
from chimes.store.port import IdempotencyRecord, node_alive, node_gone, node_not_found
from chimes.store.selection import matches_audit


class MemoryRecords(MemoryBase):
    async def join(self, node: Node, lease: timedelta) -> Node:
        with self._lock:
            now = self._clock.now()
            before = self._state.nodes.get(node.id)
            joined = replace(
                node,
                started_at=now if before is None else before.started_at,
                heartbeat_at=now,
                lease_until=now + lease,
                drain=node.drain if before is None else before.drain,
                report=node.report if before is None else before.report,
            )
            self._state.nodes[node.id] = joined
            if before is None:
                self._state.mark_node(joined, now, joined=True)
        await self._commit(durable=False)
        return joined

    async def heartbeat(
        self,
        node_id: NodeId,
        lease: timedelta,
        *,
        clock: datetime,
        report: NodeReport | None = None,
    ) -> HeartbeatResult:
        with self._lock:
            now = self._clock.now()
            if not self._state.alive(node_id, now):
                return HeartbeatResult(alive=False, now=now)
            node = replace(
                self._state.nodes[node_id],
                heartbeat_at=now,
                lease_until=now + lease,
                clock_offset=(clock - now).total_seconds(),
                report=report,
            )
            self._state.nodes[node_id] = node
            held = sorted(self._state.held_by(node_id), key=_age)
        await self._commit(durable=False)
        cancel = tuple(run.id for run in held if run.cancel_requested)
        return HeartbeatResult(alive=True, now=now, cancel=cancel, drain=node.drain)

    async def leave(self, node_id: NodeId) -> None:
        with self._lock:
            node = self._state.nodes.pop(node_id, None)
            if node is not None:
                now = self._clock.now()
                self._lose(self._state.held_by(node_id), now)
                self._state.mark_node(node, now, joined=False)
        await self._commit()
        self.wake()

    async def rescue(self, *, limit: int) -> tuple[Run, ...]:
        with self._lock:
            now = self._clock.now()
            ended = [node for node in self._state.nodes.values() if node.lease_until <= now]
            held = [run for node in ended for run in self._state.held_by(node.id)]
            orphans = [
                run
                for run in self._state.active.values()
                if run.holder is not None and run.holder not in self._state.nodes
            ]
            rescued = self._lose(sorted(held + orphans, key=_age)[:limit], now)
            for node in ended:
                if not self._state.held_by(node.id):
                    del self._state.nodes[node.id]
                    self._state.mark_node(node, node.lease_until, joined=False)
        if ended or rescued:
            await self._commit()
        if rescued:
            self.wake()
        return rescued

    async def nodes(self) -> tuple[Node, ...]:
        with self._lock:
            return tuple(sorted(self._state.nodes.values(), key=lambda node: node.id))

    async def append_audit(self, entry: AuditEntry) -> AuditEntry:
        with self._lock:
            appended = self._state.append_audit(entry)
        await self._commit()
        return appended

    async def list_audit(self, query: AuditQuery) -> tuple[AuditEntry, ...]:
        with self._lock:
            found = (each for each in reversed(self._state.audit) if matches_audit(each, query))
            return tuple(islice(found, query.limit))

    async def add_key(self, key: ApiKey, audit: AuditEntry | None = None) -> ApiKey:
        with self._lock:
            if key.id in self._state.keys:
                raise AlreadyExists(_("key {id} exists already", id=key.id))
            self._state.keys[key.id] = key
            self._audit(audit)
        await self._commit()
        return key

    async def get_key(self, key_id: KeyId) -> ApiKey | None:
        return self._state.keys.get(key_id)

    async def list_keys(self) -> tuple[ApiKey, ...]:
        with self._lock:
            return tuple(sorted(self._state.keys.values(), key=lambda k: (k.created_at, k.id)))

    async def change_key(
        self,
        key_id: KeyId,
        change: Callable[[ApiKey, datetime], ApiKey],
        audit: AuditEntry | None = None,
    ) -> ApiKey:
        with self._lock:
            key = self._state.keys.get(key_id)
            if key is None:
                raise NotFound(_("key {id} not found", id=key_id))
            changed = change(key, self._clock.now())
            self._state.keys[key_id] = changed
            self._audit(audit)
        await self._commit()
        return changed

    async def remember_request(
        self, scope: str, key: str, fingerprint: str, *, keep: timedelta
    ) -> IdempotencyRecord | None:
        with self._lock:
            known = self._state.remember(scope, key, fingerprint, self._clock.now(), keep)
        if known is None:
            # Written together with the change that it guards.
            await self._commit(durable=False)
        return known

    async def answer_request(self, scope: str, key: str, answer: IdempotencyRecord) -> None:
        with self._lock:
            self._state.answer(scope, key, answer)
        await self._commit()

    async def forget_request(self, scope: str, key: str) -> None:
        with self._lock:
            self._state.requests.pop((scope, key), None)
        await self._commit()


def _age(run: Run) -> tuple[datetime, str]:
    return (run.created_at, run.id)


# --- operations on nodes


class MemoryNodeStore(MemoryBase):
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

    async def node_events(self, since: datetime, *, limit: int = 200) -> tuple[NodeEvent, ...]:
        with self._lock:
            found = [mark for mark in self._state.node_events if mark.at >= since]
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
            raise node_not_found(node_id)
        return node
