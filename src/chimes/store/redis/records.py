"""Nodes, audit trail, API keys and idempotency records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from chimes.clock import MICROSECOND
from chimes.errors import AlreadyExists, NotFound
from chimes.i18n import _
from chimes.model.access import ApiKey, AuditEntry
from chimes.model.ids import KeyId, NodeId, RunId
from chimes.model.listing import AuditQuery
from chimes.model.node import (
    HeartbeatResult,
    Node,
    NodeEvent,
    NodeReport,
    capabilities_in,
    published_names,
)
from chimes.model.run import Run, fail_unreadable, mark_lost
from chimes.store.codec.records import (
    audit_from_plain,
    defaults_from_plain,
    defaults_to_plain,
    key_from_plain,
    key_to_plain,
    report_from_text,
    report_to_text,
)
from chimes.store.port import (
    NODE_EVENT_RETENTION,
    IdempotencyRecord,
    node_alive,
    node_gone,
    node_not_found,
)
from chimes.store.redis.base import AuditTrail, RedisBase, WriteConflict
from chimes.store.redis.completion import CompletionEffects
from chimes.store.redis.rows import is_corrupt
from chimes.store.redis.server import memory_of
from chimes.store.redis.wire import Wire, micros, moment, rows, text, texts, to_json
from chimes.store.selection import matches_audit

#: Audit entries per read.
CHUNK = 200
#: Maximum difference between the time of an entry and its append.
_APPENDED_WITHIN = timedelta(hours=1)


class RedisRecords(RedisBase):
    # --- nodes --------------------------------------------------------------------------------
    async def join(self, node: Node, lease: timedelta) -> Node:
        now, (until, since, drain, report) = await self._tell(
            "join",
            node.id,
            _length(lease),
            _node_body(node),
            _offset(node.clock_offset),
            "1" if node.drain else "",
            report_to_text(node.report),
            node.version,
            _length(NODE_EVENT_RETENTION),
        )
        return replace(
            node,
            started_at=moment(text(since)),
            heartbeat_at=now,
            lease_until=moment(text(until)),
            drain=drain == "1",
            report=report_from_text(text(report)),
        )

    async def heartbeat(
        self,
        node_id: NodeId,
        lease: timedelta,
        *,
        clock: datetime,
        report: NodeReport | None = None,
    ) -> HeartbeatResult:
        told = report_to_text(report)
        now, answer = await self._tell(
            "beat", node_id, _length(lease), micros(clock), told, urgent=True
        )
        if answer[0] != "1":
            return HeartbeatResult(alive=False, now=now)
        cancel = tuple(RunId(each) for each in texts(answer[1]))
        return HeartbeatResult(alive=True, now=now, cancel=cancel, drain=answer[2] == "1")

    async def leave(self, node_id: NodeId) -> None:
        async def attempt() -> None:
            _now, (known, held) = await self._ask("held", node_id)
            if known != "1":
                return
            ids = [RunId(each) for each in texts(held)]
            settling, _ended = await self._lost(ids, {node_id})
            await self._commit(
                settling.expected, [*settling.ops, ["drop_node", node_id, "1"]], wakes=True
            )

        await self._until_agreed(attempt)
        self.wake()

    async def rescue(self, *, limit: int) -> tuple[Run, ...]:
        async def attempt() -> tuple[Run, ...]:
            _unused, (held, ended) = await self._ask("orphans", str(limit))
            ids = [RunId(each) for each in texts(held)]
            nodes = texts(ended)
            if not ids and not nodes:
                return ()
            settling, rescued = await self._lost(ids, None)
            forgotten: list[Wire] = [["forget_node", each] for each in nodes]
            await self._commit(settling.expected, [*settling.ops, *forgotten], wakes=bool(rescued))
            return rescued

        rescued = await self._until_agreed(attempt)
        if rescued:
            self.wake()
        return rescued

    async def _lost(
        self, ids: list[RunId], holders: set[NodeId] | None
    ) -> tuple[CompletionEffects, tuple[Run, ...]]:
        found: dict[RunId, tuple[Run, str]] = {}
        children: dict[RunId, list[RunId]] = {}
        now = None
        if ids:
            now, found, children = await self._read_family(ids)
        settling = CompletionEffects(now or await self._now(), found, children)
        after: list[Run] = []
        for run_id in ids:
            run = settling.runs.get(run_id)
            if run is None:
                settling.ops.append(["vanished", run_id])
                continue
            if run.holder is None or (holders and run.holder not in holders):
                raise WriteConflict(_("a run was released meanwhile"))
            ends = fail_unreadable if is_corrupt(run) else mark_lost
            gone = ends(run, settling.now)
            settling.settle(gone)
            after.append(gone)
        return settling, tuple(after)

    async def _now(self) -> datetime:
        return await self._asking_now(None)

    async def nodes(self) -> tuple[Node, ...]:
        _unused, (answer,) = await self._ask("nodes")
        found = [_node(texts(each)) for each in rows(answer)]
        return tuple(sorted(found, key=lambda node: node.id))

    # --- audit --------------------------------------------------------------------------------
    async def append_audit(self, entry: AuditEntry) -> AuditEntry:
        async def attempt(trail: AuditTrail) -> tuple[AuditEntry, ...] | None:
            _unused, (answer,) = await self._commit_units([[trail.expected, trail.ops]])
            return None if answer == "head" else trail.entries

        async with self._turn():
            _unused, (appended,) = await self._appending([entry], attempt)
        return appended

    async def list_audit(self, query: AuditQuery) -> tuple[AuditEntry, ...]:
        found: list[AuditEntry] = []
        before = query.before
        while len(found) < query.limit:
            highest = "" if before is None else f"({before}"
            _unused, (answer, more) = await self._ask(
                "page", "audit", "1", "", highest, "", "", str(CHUNK), "audit"
            )
            entries = [audit_from_plain(json.loads(each)) for each in texts(answer)]
            found.extend(entry for entry in entries if matches_audit(entry, query))
            if more != "1" or (query.since and entries[-1].at < query.since - _APPENDED_WITHIN):
                break
            before = entries[-1].number
        return tuple(found[: query.limit])

    # --- keys ---------------------------------------------------------------------------------
    async def add_key(self, key: ApiKey, audit: AuditEntry | None = None) -> ApiKey:
        try:
            async with self._turn(audit):
                await self._commit(
                    [["value", "keys", key.id, ""]],
                    [["set", "keys", key.id, to_json(key_to_plain(key))]],
                    [audit] if audit else (),
                )
        except WriteConflict:
            raise AlreadyExists(_("key {id} exists already", id=key.id)) from None
        return key

    async def get_key(self, key_id: KeyId) -> ApiKey | None:
        _unused, (answer,) = await self._ask("value", "keys", key_id)
        return key_from_plain(json.loads(text(answer))) if answer else None

    async def list_keys(self) -> tuple[ApiKey, ...]:
        _unused, (answer,) = await self._ask("values", "keys")
        found = [key_from_plain(json.loads(each)) for each in texts(answer)]
        return tuple(sorted(found, key=lambda key: (key.created_at, key.id)))

    async def change_key(
        self,
        key_id: KeyId,
        change: Callable[[ApiKey, datetime], ApiKey],
        audit: AuditEntry | None = None,
    ) -> ApiKey:
        async def attempt() -> ApiKey:
            now, (answer,) = await self._ask("value", "keys", key_id)
            if not answer:
                raise NotFound(_("key {id} not found", id=key_id))
            changed = change(key_from_plain(json.loads(text(answer))), now)
            await self._commit(
                [["value", "keys", key_id, answer]],
                [["set", "keys", key_id, to_json(key_to_plain(changed))]],
                [audit] if audit else (),
            )
            return changed

        return await self._until_agreed(attempt, audit)

    # --- requests -----------------------------------------------------------------------------
    async def remember_request(
        self, scope: str, key: str, fingerprint: str, *, keep: timedelta
    ) -> IdempotencyRecord | None:
        first = _remembered_row(IdempotencyRecord(fingerprint=fingerprint))
        _unused, (known,) = await self._tell("remember", _named(scope, key), first, _length(keep))
        return _remembered(text(known)) if known else None

    async def answer_request(self, scope: str, key: str, answer: IdempotencyRecord) -> None:
        await self._tell("answer", _named(scope, key), _remembered_row(answer))

    async def forget_request(self, scope: str, key: str) -> None:
        await self._tell("forget_request", _named(scope, key))


def _length(duration: timedelta) -> str:
    return str(duration // MICROSECOND)


def _offset(seconds: float) -> str:
    return str(round(seconds * 1_000_000))


def _named(scope: str, key: str) -> str:
    """A fixed-length name, because scopes and keys have any length and characters."""
    return hashlib.sha256(to_json([scope, key]).encode("utf-8", "surrogatepass")).hexdigest()


def _remembered_row(answer: IdempotencyRecord) -> str:
    headers = [list(header) for header in answer.headers]
    return to_json([answer.fingerprint, answer.status, answer.body, headers])


def _remembered(row: str) -> IdempotencyRecord:
    fingerprint, status, body, headers = json.loads(row)
    return IdempotencyRecord(
        fingerprint=fingerprint,
        status=status,
        body=body,
        headers=tuple((name, value) for name, value in headers),
    )


def _node_body(node: Node) -> str:
    offers = {name: defaults_to_plain(node.defaults.get(name)) for name in published_names(node)}
    return to_json(
        {
            "version": node.version,
            "roles": list(node.roles),
            "capacity": node.capacity,
            "offers": offers,
        }
    )


def _node(fields: list[str]) -> Node:
    body, started, heartbeat, lease, offset, drain, report, node_id = fields
    plain = json.loads(body)
    return Node(
        id=NodeId(node_id),
        version=plain["version"],
        roles=tuple(plain["roles"]),
        capacity=plain["capacity"],
        capabilities=capabilities_in(plain["offers"]),
        defaults=defaults_from_plain(plain["offers"]),
        started_at=moment(started),
        heartbeat_at=moment(heartbeat),
        lease_until=moment(lease),
        clock_offset=int(offset) / 1_000_000,
        drain=drain == "1",
        report=report_from_text(report),
    )


# --- operations on nodes


class RedisNodeStore(RedisRecords):
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
            _now, (_known, held) = await self._ask("held", node_id)
            settling, _ended = await self._lost([RunId(each) for each in texts(held)], {node_id})
            await self._commit(
                [*settling.expected, ["gone", node_id]],
                [*settling.ops, ["drop_node", node_id]],
                [audit] if audit else (),
                wakes=True,
            )
            return node

        return await self._until_agreed(attempt, audit)

    async def node_events(self, since: datetime, *, limit: int = 200) -> tuple[NodeEvent, ...]:
        _unused, (answer,) = await self._ask("node_marks", micros(since), str(limit))
        found = [_mark(each) for each in texts(answer)]
        return tuple(sorted(found, key=lambda mark: (mark.at, mark.node_id, mark.joined)))

    async def count_prunable(self, before: datetime, *, most: int) -> int:
        _unused, (answer,) = await self._ask("prunable", micros(before), str(most))
        return int(text(answer))

    async def size(self) -> int | None:
        """Memory of the whole server, including other data."""
        return await memory_of(self._connections)

    async def _node(self, node_id: NodeId) -> tuple[Node, datetime]:
        found = [node for node in await self.nodes() if node.id == node_id]
        if not found:
            raise node_not_found(node_id)
        return found[0], await self._now()


def _mark(row: str) -> NodeEvent:
    at, node_id, joined, version = json.loads(row)
    return NodeEvent(at=moment(at), node_id=NodeId(node_id), version=version, joined=joined == "1")
