"""Nodes, audit trail, API keys, idempotency records and checkpoints."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import datetime, timedelta

from chimes.clock import MICROSECOND
from chimes.errors import AlreadyExists, NotFound
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import ApiKey, unused_keys
from chimes.model.audit import AUDIT_CHECKPOINT, AuditEntry
from chimes.model.checkpoint import Checkpoint, check_version
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
from chimes.store.codec.values import (
    RESPONSE,
    content_digest,
    open_text,
    reseal_json,
    reseal_parts,
    reseal_text,
    seal_text,
)
from chimes.store.port import (
    NODE_EVENT_RETENTION,
    IdempotencyRecord,
    node_alive,
    node_gone,
    node_not_found,
)
from chimes.store.redis.completion import CompletionEffects
from chimes.store.redis.context import AuditTrail, Context, WriteConflict
from chimes.store.redis.rows import is_corrupt
from chimes.store.redis.wire import Wire, micros, moment, rows, text, texts, to_json
from chimes.store.selection import matches_audit

#: Audit entries per read.
CHUNK = 200
#: Maximum difference between the time of an entry and its append.
_APPENDED_WITHIN = timedelta(hours=1)


# --- nodes


async def join(ctx: Context, node: Node, lease: timedelta) -> Node:
    now, (until, since, drain, report) = await ctx.write(
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
    ctx: Context,
    node_id: NodeId,
    lease: timedelta,
    clock: datetime,
    report: NodeReport | None,
) -> HeartbeatResult:
    now, answer = await ctx.write(
        "beat", node_id, _length(lease), micros(clock), report_to_text(report), urgent=True
    )
    if answer[0] != "1":
        return HeartbeatResult(alive=False, now=now)
    cancel = tuple(RunId(each) for each in texts(answer[1]))
    return HeartbeatResult(alive=True, now=now, cancel=cancel, drain=answer[2] == "1")


async def leave(ctx: Context, node_id: NodeId) -> None:
    async def attempt() -> None:
        _now, (known, held) = await ctx.read("held", node_id)
        if known != "1":
            return
        ids = [RunId(each) for each in texts(held)]
        effects, _ended = await _lose(ctx, ids, {node_id})
        async with ctx.audit_turn(effects.audit):
            ops = [*effects.ops, ["drop_node", node_id, "1"]]
            await ctx.commit(effects.expected, ops, effects.audit, wakes=True)

    await ctx.retry_conflicts(attempt)
    ctx.wake()


async def rescue(ctx: Context, limit: int) -> tuple[Run, ...]:
    async def attempt() -> tuple[Run, ...]:
        _unused, (held, ended) = await ctx.read("orphans", str(limit))
        ids = [RunId(each) for each in texts(held)]
        nodes = texts(ended)
        if not ids and not nodes:
            return ()
        effects, rescued = await _lose(ctx, ids, None)
        forgotten: list[Wire] = [["forget_node", each] for each in nodes]
        async with ctx.audit_turn(effects.audit):
            ops = [*effects.ops, *forgotten]
            await ctx.commit(effects.expected, ops, effects.audit, wakes=bool(rescued))
        return rescued

    rescued = await ctx.retry_conflicts(attempt)
    if rescued:
        ctx.wake()
    return rescued


async def _lose(
    ctx: Context, ids: list[RunId], holders: set[NodeId] | None
) -> tuple[CompletionEffects, tuple[Run, ...]]:
    found: dict[RunId, tuple[Run, str]] = {}
    children: dict[RunId, list[RunId]] = {}
    now = None
    if ids:
        now, found, children = await ctx.read_runs_with_steps(ids)
    effects = CompletionEffects(ctx, now or await ctx.now(), found, children)
    alive: set[NodeId] = set()
    if holders is None and ids:
        # Since the orphans were found, another node may have rescued a run and a live node may have
        # claimed it. Read after the runs: a lease that has ended then never comes back.
        nodes = await list_nodes(ctx)
        alive = {node.id for node in nodes if node.lease_until > effects.now}
    after: list[Run] = []
    for run_id in ids:
        run = effects.runs.get(run_id)
        if run is None:
            effects.ops.append(["vanished", run_id])
            continue
        if (
            run.holder is None
            or run.holder in alive
            or (holders is not None and run.holder not in holders)
        ):
            raise WriteConflict(_("a run was released meanwhile"))
        ends = fail_unreadable if is_corrupt(run) else mark_lost
        gone = ends(run, effects.now)
        effects.apply(gone)
        after.append(gone)
    await effects.pause_failing(ctx)
    return effects, tuple(after)


async def list_nodes(ctx: Context) -> tuple[Node, ...]:
    _unused, (answer,) = await ctx.read("nodes")
    found = [_decode_node(texts(each)) for each in rows(answer)]
    return tuple(sorted(found, key=lambda node: node.id))


async def drain_node(ctx: Context, node_id: NodeId, drain: bool, audit: AuditEntry | None) -> Node:
    async def attempt() -> Node:
        node, now = await _find_node(ctx, node_id)
        if node.lease_until <= now:
            raise node_gone(node_id)
        await ctx.commit(
            [["alive", node_id]],
            [["drain_node", node_id, "1" if drain else ""]],
            audit,
            wakes=True,
        )
        return replace(node, drain=drain)

    return await ctx.retry_conflicts(attempt, audit)


async def forget_node(ctx: Context, node_id: NodeId, audit: AuditEntry | None) -> Node:
    async def attempt() -> Node:
        node, now = await _find_node(ctx, node_id)
        if node.lease_until > now:
            raise node_alive(node_id)
        _now, (_known, held) = await ctx.read("held", node_id)
        effects, _ended = await _lose(ctx, [RunId(each) for each in texts(held)], {node_id})
        await ctx.commit(
            [*effects.expected, ["gone", node_id]],
            [*effects.ops, ["drop_node", node_id]],
            [*effects.audit, *([] if audit is None else [audit])],
            wakes=True,
        )
        return node

    return await ctx.retry_conflicts(attempt, audit)


async def node_events(ctx: Context, since: datetime, limit: int) -> tuple[NodeEvent, ...]:
    _unused, (answer,) = await ctx.read("node_marks", micros(since), str(limit))
    found = [_decode_event(each) for each in texts(answer)]
    return tuple(sorted(found, key=lambda mark: (mark.at, mark.node_id, mark.joined)))


async def _find_node(ctx: Context, node_id: NodeId) -> tuple[Node, datetime]:
    found = [node for node in await list_nodes(ctx) if node.id == node_id]
    if not found:
        raise node_not_found(node_id)
    return found[0], await ctx.now()


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


def _decode_node(fields: list[str]) -> Node:
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


def _decode_event(row: str) -> NodeEvent:
    at, node_id, joined, version = json.loads(row)
    return NodeEvent(at=moment(at), node_id=NodeId(node_id), version=version, joined=joined == "1")


def _offset(seconds: float) -> str:
    return str(round(seconds * 1_000_000))


def _length(duration: timedelta) -> str:
    return str(duration // MICROSECOND)


# --- audit


async def append_audit(ctx: Context, entry: AuditEntry) -> AuditEntry:
    async def attempt(trail: AuditTrail) -> tuple[AuditEntry, ...] | None:
        _unused, (answer,) = await ctx.commit_units([[trail.expected, trail.ops]])
        return None if answer == "head" else trail.entries

    async with ctx.audit_turn():
        _unused, (appended,) = await ctx.append_audit(entry, attempt)
    return appended


async def list_audit(ctx: Context, query: AuditQuery) -> tuple[AuditEntry, ...]:
    found: list[AuditEntry] = []
    before = query.before
    while len(found) < query.limit:
        highest = "" if before is None else f"({before}"
        _unused, (answer, more) = await ctx.read(
            "page", "audit", "1", "", highest, "", "", str(CHUNK), "audit"
        )
        entries = [audit_from_plain(json.loads(each)) for each in texts(answer)]
        found.extend(entry for entry in entries if matches_audit(entry, query))
        if more != "1" or (query.since and entries[-1].at < query.since - _APPENDED_WITHIN):
            break
        before = entries[-1].number
    return tuple(found[: query.limit])


async def prune_audit(
    ctx: Context, upto: int, checkpoint: str, expected: int, audit: AuditEntry
) -> None:
    async def attempt() -> None:
        now, (answer,) = await ctx.read("value", "states", AUDIT_CHECKPOINT)
        row = text(answer)
        check_version(decode_checkpoint(AUDIT_CHECKPOINT, row) if row else None, expected)
        new = checkpoint_row(checkpoint, micros(now), "")
        await ctx.commit(
            [["value", "states", AUDIT_CHECKPOINT, row]],
            [["set", "states", AUDIT_CHECKPOINT, new], ["trim_audit", str(upto)]],
            audit,
        )

    await ctx.retry_conflicts(attempt, audit)


# --- keys


async def add_key(ctx: Context, key: ApiKey, audit: AuditEntry | None) -> ApiKey:
    try:
        async with ctx.audit_turn(audit):
            await ctx.commit(
                [["value", "keys", key.id, ""]],
                [["set", "keys", key.id, to_json(key_to_plain(key))]],
                audit,
            )
    except WriteConflict:
        raise AlreadyExists(_("key {id} exists already", id=key.id)) from None
    return key


async def get_key(ctx: Context, key_id: KeyId) -> ApiKey | None:
    _unused, (answer,) = await ctx.read("value", "keys", key_id)
    return key_from_plain(json.loads(text(answer))) if answer else None


async def list_keys(ctx: Context) -> tuple[ApiKey, ...]:
    _unused, (answer,) = await ctx.read("values", "keys")
    found = [key_from_plain(json.loads(each)) for each in texts(answer)]
    return tuple(sorted(found, key=lambda key: (key.created_at, key.id)))


async def change_key(
    ctx: Context,
    key_id: KeyId,
    change: Callable[[ApiKey, datetime], ApiKey],
    audit: AuditEntry | None,
) -> ApiKey:
    async def attempt() -> ApiKey:
        now, (answer,) = await ctx.read("value", "keys", key_id)
        if not answer:
            raise NotFound(_("key {id} not found", id=key_id))
        changed = change(key_from_plain(json.loads(text(answer))), now)
        await ctx.commit(
            [["value", "keys", key_id, answer]],
            [["set", "keys", key_id, to_json(key_to_plain(changed))]],
            audit,
        )
        return changed

    return await ctx.retry_conflicts(attempt, audit)


async def prune_keys(ctx: Context, before: datetime, limit: int) -> int:
    async def attempt() -> int:
        _unused, (answer,) = await ctx.read("pairs", "keys")
        pairs = texts(answer)
        stored = dict(zip(pairs[::2], pairs[1::2], strict=True))
        keys = [key_from_plain(json.loads(each)) for each in stored.values()]
        gone = unused_keys(keys, before)[:limit]
        if gone:
            # All keys: whether one may go depends on the others.
            expected: list[Wire] = [["value", "keys", name, row] for name, row in stored.items()]
            await ctx.commit(expected, [["unset", "keys", key.id] for key in gone])
        return len(gone)

    return await ctx.retry_conflicts(attempt)


# --- requests


async def remember_request(
    ctx: Context, scope: str, key: str, fingerprint: str, keep: timedelta
) -> IdempotencyRecord | None:
    first = _remembered_row(IdempotencyRecord(fingerprint=fingerprint))
    _unused, (known,) = await ctx.write("remember", _named(scope, key), first, _length(keep))
    return _remembered(text(known)) if known else None


async def answer_request(ctx: Context, scope: str, key: str, answer: IdempotencyRecord) -> None:
    sealed = replace(answer, body=seal_text(answer.body, RESPONSE, ctx.keyring))
    await ctx.write("answer", _named(scope, key), _remembered_row(sealed))


async def forget_request(ctx: Context, scope: str, key: str) -> None:
    await ctx.write("forget_request", _named(scope, key))


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
        body=open_text(body, RESPONSE),
        headers=tuple((name, value) for name, value in headers),
    )


# --- checkpoints


async def save_checkpoint(ctx: Context, run_id: RunId, fence: int, name: str, value: str) -> bool:
    sealed = seal_text(value, name, ctx.keyring)
    _unused, (answer,) = await ctx.write("keep_state", run_id, str(fence), name, sealed)
    return answer == "1"


async def get_checkpoint(ctx: Context, name: str) -> Checkpoint | None:
    _unused, (answer,) = await ctx.read("value", "states", name)
    return decode_checkpoint(name, text(answer)) if answer else None


async def set_checkpoint(
    ctx: Context, name: str, value: str | None, audit: AuditEntry | None, expected: int | None
) -> Checkpoint | None:
    async def attempt() -> Checkpoint | None:
        now, (answer,) = await ctx.read("value", "states", name)
        row = text(answer)
        before = decode_checkpoint(name, row) if row else None
        check_version(before, expected)
        ops: list[Wire] = [["unset", "states", name]]
        if value is not None:
            sealed = seal_text(value, name, ctx.keyring)
            ops = [["set", "states", name, checkpoint_row(sealed, micros(now), "")]]
        await ctx.commit([["value", "states", name, row]], ops, audit)
        return before

    return await ctx.retry_conflicts(attempt, audit)


def checkpoint_row(value: str, changed: str, run_id: str) -> str:
    return to_json([value, changed, run_id])


def decode_checkpoint(name: str, row: str) -> Checkpoint:
    value, changed, run_id = json.loads(row)
    return Checkpoint(
        name=name,
        value=open_text(value, name),
        changed_at=moment(changed),
        run_id=RunId(run_id),
    )


# --- encryption with another key

_RESEALED = 200
#: Kind of records, and the sorted set of all.
_SECRET_RECORDS = (
    *(("schedule", "schedules:ever"), ("definition", "definitions"), ("run", "runs")),
    ("delivery", "deliveries"),
)


async def reseal(ctx: Context) -> int:
    """Kept responses are left out: they expire within a day."""
    count = 0
    for kind, index in _SECRET_RECORDS:
        first, found = 0, 1
        while found:
            _unused, (answer, number) = await ctx.read(
                "secret_texts", kind, index, str(first), str(_RESEALED)
            )
            first, found = first + _RESEALED, int(text(number))
            pairs = [texts(each) for each in rows(answer)]
            count += await _replace_texts(
                ctx, [(kind, name, old, _resealed(kind, old, ctx)) for name, old in pairs]
            )
    _unused, (answer,) = await ctx.read("pairs", "states")
    states = zip(texts(answer)[::2], texts(answer)[1::2], strict=True)
    return count + await _replace_texts(
        ctx, [("state", name, row, _resealed_state(name, row, ctx)) for name, row in states]
    )


async def _replace_texts(ctx: Context, wanted: list[tuple[str, str, str, str]]) -> int:
    changed: list[Wire] = [
        [kind, name, old, new, content_digest(new)] for kind, name, old, new in wanted if old != new
    ]
    if not changed:
        return 0
    _unused, (count,) = await ctx.write("reseal", changed)
    return int(text(count))


def _resealed(kind: str, stored: str, ctx: Context) -> str:
    return reseal_json(stored, ctx.keyring) if kind == "run" else reseal_parts(stored, ctx.keyring)


def _resealed_state(name: str, row: str, ctx: Context) -> str:
    try:
        value, changed, run_id = json.loads(row)
    except ValueError:
        return row
    new = reseal_text(value, name, ctx.keyring)
    return row if new == value else checkpoint_row(new, changed, run_id)
