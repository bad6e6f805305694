"""Rows of nodes, audit entries, API keys, checkpoints and idempotency records."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Row

from chimes.model.access import ApiKey, Role, Scope
from chimes.model.audit import AuditEntry
from chimes.model.checkpoint import Checkpoint
from chimes.model.ids import KeyId, NodeId, RunId
from chimes.model.node import Node, NodeEvent, capabilities_in, published_names
from chimes.store.codec.records import (
    defaults_from_plain,
    defaults_to_plain,
    report_from_text,
    report_to_text,
)
from chimes.store.port import IdempotencyRecord
from chimes.store.sql.rows.values import (
    Value,
    clean,
    decode_object,
    encode,
    encode_object,
    maybe_micros,
    maybe_moment,
    micros,
    moment_of,
    owner_of,
)


def node_values(node: Node) -> dict[str, Value]:
    return {
        "id": node.id,
        "version": node.version,
        "roles": encode(list(node.roles)),
        "capacity": node.capacity,
        "started_at": micros(node.started_at),
        "heartbeat_at": micros(node.heartbeat_at),
        "lease_until": micros(node.lease_until),
        "clock_offset": node.clock_offset,
        "offers": encode(
            {name: defaults_to_plain(node.defaults.get(name)) for name in published_names(node)}
        ),
        "drain": int(node.drain),
        "facts": report_to_text(node.report),
    }


def node_of(row: Row[Any]) -> Node:
    offers = json.loads(row.offers)
    return Node(
        id=NodeId(row.id),
        version=row.version,
        roles=tuple(json.loads(row.roles)),
        capacity=row.capacity,
        started_at=moment_of(row.started_at),
        heartbeat_at=moment_of(row.heartbeat_at),
        lease_until=moment_of(row.lease_until),
        clock_offset=row.clock_offset,
        capabilities=capabilities_in(offers),
        defaults=defaults_from_plain(offers),
        drain=bool(row.drain),
        report=report_from_text(row.facts),
    )


def node_event_of(row: Row[Any]) -> NodeEvent:
    return NodeEvent(
        at=moment_of(row.at),
        node_id=NodeId(row.node),
        version=row.version,
        joined=bool(row.joined),
    )


def audit_values(entry: AuditEntry) -> dict[str, Value]:
    return {
        "number": entry.number,
        "at": micros(entry.at),
        "actor": entry.actor,
        "interface": entry.interface,
        "verb": entry.verb,
        "object_kind": entry.object_kind,
        "object_id": entry.object_id,
        "owner": entry.owner,
        "changes": encode_object(entry.changes),
        "reason": clean(entry.reason),
        "address": entry.address,
        "allowed": int(entry.allowed),
        "previous_hash": entry.previous_hash,
        "hash": entry.hash,
    }


def audit_of(row: Row[Any]) -> AuditEntry:
    return AuditEntry(
        number=row.number,
        at=moment_of(row.at),
        actor=row.actor,
        interface=row.interface,
        verb=row.verb,
        object_kind=row.object_kind,
        object_id=row.object_id,
        owner=row.owner,
        changes=decode_object(row.changes),
        reason=row.reason,
        address=row.address,
        allowed=row.allowed == 1,
        previous_hash=row.previous_hash,
        hash=row.hash,
    )


def key_values(key: ApiKey) -> dict[str, Value]:
    return {
        "id": key.id,
        "secret_hash": key.secret_hash,
        "name": key.name,
        "role": key.role.value,
        "owner_type": key.owner.type.value,
        "owner_id": key.owner.id,
        "created_at": micros(key.created_at),
        "created_by": key.created_by,
        "expires_at": maybe_micros(key.expires_at),
        "last_used_at": maybe_micros(key.last_used_at),
        "revoked_at": maybe_micros(key.revoked_at),
        "scopes": encode([scope.value for scope in key.scopes]),
    }


def key_of(row: Row[Any]) -> ApiKey:
    return ApiKey(
        id=KeyId(row.id),
        secret_hash=row.secret_hash,
        name=row.name,
        role=Role(row.role),
        owner=owner_of(row.owner_type, row.owner_id),
        created_at=moment_of(row.created_at),
        created_by=row.created_by,
        expires_at=maybe_moment(row.expires_at),
        last_used_at=maybe_moment(row.last_used_at),
        revoked_at=maybe_moment(row.revoked_at),
        scopes=tuple(Scope(scope) for scope in json.loads(row.scopes)),
    )


def checkpoint_values(checkpoint: Checkpoint) -> dict[str, Value]:
    return {
        "name": checkpoint.name,
        "value": clean(checkpoint.value),
        "changed_at": micros(checkpoint.changed_at),
        "run_id": checkpoint.run_id,
    }


def checkpoint_of(row: Row[Any]) -> Checkpoint:
    return Checkpoint(
        name=row.name,
        value=row.value,
        changed_at=moment_of(row.changed_at),
        run_id=RunId(row.run_id),
    )


def request_values(answer: IdempotencyRecord) -> dict[str, Value]:
    return {
        "fingerprint": answer.fingerprint,
        "status": answer.status,
        "body": clean(answer.body),
        "headers": encode([list(header) for header in answer.headers]),
    }


def request_of(row: Row[Any]) -> IdempotencyRecord:
    return IdempotencyRecord(
        fingerprint=row.fingerprint,
        status=row.status,
        body=row.body,
        headers=tuple((name, value) for name, value in json.loads(row.headers)),
    )
