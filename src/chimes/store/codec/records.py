"""Encodes audit entries, keys and checkpoints."""

from __future__ import annotations

from chimes.model.access import ApiKey, AuditEntry, Role, Scope
from chimes.model.checkpoint import Checkpoint
from chimes.model.ids import KeyId, RunId
from chimes.store.codec.schedule import owner_from_plain, owner_to_plain
from chimes.store.json_values import Plain, Reader, maybe_text, to_text


def audit_to_plain(entry: AuditEntry) -> Plain:
    return {
        "number": entry.number,
        "at": to_text(entry.at),
        "actor": entry.actor,
        "interface": entry.interface,
        "verb": entry.verb,
        "object_kind": entry.object_kind,
        "object_id": entry.object_id,
        "owner": entry.owner,
        "changes": dict(entry.changes),
        "reason": entry.reason,
        "address": entry.address,
        "allowed": entry.allowed,
        "previous_hash": entry.previous_hash,
        "hash": entry.hash,
    }


def audit_from_plain(data: object) -> AuditEntry:
    read = Reader(data)
    entry = AuditEntry(
        number=read.integer("number"),
        at=read.time("at"),
        actor=read.text("actor"),
        # Entries stored and exported before the field was renamed have `door`.
        interface=read.text("interface" if read.has("interface") else "door"),
        verb=read.text("verb"),
        object_kind=read.text("object_kind"),
        object_id=read.text("object_id"),
        owner=read.text("owner", ""),
        changes=read.mapping("changes"),
        reason=read.text("reason", ""),
        address=read.text("address", ""),
        allowed=read.flag("allowed", True),
        previous_hash=read.text("previous_hash", ""),
        hash=read.text("hash", ""),
    )
    read.done()
    return entry


def key_to_plain(key: ApiKey) -> Plain:
    return {
        "id": key.id,
        "secret_hash": key.secret_hash,
        "name": key.name,
        "role": key.role.value,
        "owner": owner_to_plain(key.owner),
        "created_at": to_text(key.created_at),
        "created_by": key.created_by,
        "expires_at": maybe_text(key.expires_at),
        "last_used_at": maybe_text(key.last_used_at),
        "revoked_at": maybe_text(key.revoked_at),
        "scopes": [scope.value for scope in key.scopes],
    }


def key_from_plain(data: object) -> ApiKey:
    read = Reader(data)
    key = ApiKey(
        id=KeyId(read.text("id")),
        secret_hash=read.text("secret_hash"),
        name=read.text("name", ""),
        role=Role(read.text("role")),
        owner=read.read("owner", owner_from_plain),
        created_at=read.time("created_at"),
        created_by=read.text("created_by", ""),
        expires_at=read.maybe_time("expires_at"),
        last_used_at=read.maybe_time("last_used_at"),
        revoked_at=read.maybe_time("revoked_at"),
        scopes=tuple(Scope(str(each)) for each in read.items("scopes")),
    )
    read.done()
    return key


def checkpoint_to_plain(kept: Checkpoint) -> Plain:
    return {
        "name": kept.name,
        "value": kept.value,
        "changed_at": to_text(kept.changed_at),
        "run_id": kept.run_id,
    }


def checkpoint_from_plain(data: object) -> Checkpoint:
    read = Reader(data)
    kept = Checkpoint(
        name=read.text("name"),
        value=read.text("value"),
        changed_at=read.time("changed_at"),
        run_id=RunId(read.text("run_id", "")),
    )
    read.done()
    return kept
