"""The audit log: append-only entries, each chained to the one before it by its hash."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct, field

from chimes.model import replace
from chimes.model.access import Actor, Owner


class AuditEntry(Struct, frozen=True, kw_only=True):
    at: datetime
    actor: str
    interface: str
    verb: str
    object_kind: str
    object_id: str
    owner: str = ""
    #: What changed: field -> [before, after]; plain JSON values only.
    changes: Mapping[str, object] = field(default_factory=dict)
    reason: str = ""
    address: str = ""
    allowed: bool = True
    #: Set by the store when the entry is appended.
    number: int = 0
    previous_hash: str = ""
    hash: str = ""


def entry(
    actor: Actor,
    verb: str,
    kind: str,
    object_id: str,
    *,
    at: datetime,
    owner: Owner,
    changes: Mapping[str, object] | None = None,
    reason: str = "",
    allowed: bool = True,
) -> AuditEntry:
    """The entry of a change, or of an attempt that was not `allowed`."""
    return AuditEntry(
        at=at,
        actor=actor.name,
        interface=actor.interface,
        verb=verb,
        object_kind=kind,
        object_id=object_id,
        owner=str(owner),
        changes=changes if changes is not None else {},
        reason=reason,
        address=actor.address,
        allowed=allowed,
    )


def chain_entry(entry: AuditEntry, *, number: int, previous_hash: str) -> AuditEntry:
    linked = replace(entry, number=number, previous_hash=previous_hash, hash="")
    return replace(linked, hash=entry_hash(linked))


def entry_hash(entry: AuditEntry) -> str:
    content = json.dumps(
        [
            entry.number,
            entry.previous_hash,
            entry.at.isoformat(),
            entry.actor,
            entry.interface,
            entry.verb,
            entry.object_kind,
            entry.object_id,
            entry.owner,
            entry.changes,
            entry.reason,
            entry.address,
            entry.allowed,
        ],
        ensure_ascii=False,
        sort_keys=True,
        separators=(",", ":"),
    )
    return hashlib.sha256(content.encode()).hexdigest()


def engine_pause_entry(schedule_id: str, owner: str, reason: str, now: datetime) -> AuditEntry:
    """The entry for a pause caused by 410 Gone or by failures, which no user requested."""
    return AuditEntry(
        at=now,
        actor="chimes",
        interface="engine",
        verb="pause",
        object_kind="schedule",
        object_id=schedule_id,
        owner=owner,
        changes={"enabled": [True, False]},
        reason=reason,
    )


def follows(entry: AuditEntry, before: AuditEntry) -> bool:
    return entry.previous_hash == before.hash and entry.number == before.number + 1


def verify_chain(entries: list[AuditEntry]) -> AuditEntry | None:
    """The first entry (in ascending order) that does not fit its predecessor, or None."""
    for before, entry in zip([None, *entries], entries, strict=False):
        if before is not None and entry.previous_hash != before.hash:
            return entry
        if entry_hash(entry) != entry.hash:
            return entry
    return None


# --- pruned entries (ADR 43)

#: Name of the stored checkpoint of pruned entries.
AUDIT_CHECKPOINT = "audit:checkpoint"
_FIELDS = ("number", "hash", "at", "deleted", "signature")


class AuditCheckpoint(Struct, frozen=True, kw_only=True):
    """Stands for the entries that retention has deleted: the next entry follows its hash."""

    #: Of the newest deleted entry.
    number: int
    hash: str
    #: When it was signed.
    at: datetime
    #: How many entries were deleted so far.
    deleted: int
    #: HMAC-SHA256 of the above with the setting `audit_key`.
    signature: str = ""


def sign_checkpoint(checkpoint: AuditCheckpoint, key: str) -> AuditCheckpoint:
    return replace(checkpoint, signature=_signature(checkpoint, key))


def is_signed_with(checkpoint: AuditCheckpoint, key: str) -> bool:
    return hmac.compare_digest(checkpoint.signature, _signature(checkpoint, key))


def _signature(checkpoint: AuditCheckpoint, key: str) -> str:
    given = (checkpoint.number, checkpoint.hash, checkpoint.at.isoformat(), checkpoint.deleted)
    content = json.dumps(["audit-checkpoint/1", *given], separators=(",", ":"))
    return hmac.new(key.encode(), content.encode(), hashlib.sha256).hexdigest()


def checkpoint_to_text(checkpoint: AuditCheckpoint) -> str:
    plain = {name: getattr(checkpoint, name) for name in _FIELDS}
    return json.dumps(plain | {"at": checkpoint.at.isoformat()})


def checkpoint_from_text(text: str) -> AuditCheckpoint | None:
    """None if it cannot be read."""
    try:
        plain = json.loads(text)
        at = datetime.fromisoformat(plain["at"])
        values = {name: plain[name] for name in _FIELDS} | {"at": at}
    except (ValueError, KeyError, TypeError):
        return None
    numbers = (values["number"], values["deleted"])
    texts = (values["hash"], values["signature"])
    valid = all(type(each) is int for each in numbers) and all(type(e) is str for e in texts)
    valid = valid and all(each.isascii() for each in texts) and at.tzinfo is not None
    return AuditCheckpoint(**values) if valid else None


def unfit_entry(entries: list[AuditEntry], after: AuditCheckpoint | None) -> int | None:
    """The number of the first entry (in ascending order) whose hash is wrong or that does not
    follow the one before it; the first one follows the checkpoint or begins the chain."""
    number, previous = (after.number, after.hash) if after else (0, "")
    for entry in entries:
        number += 1
        if (entry.number, entry.previous_hash) != (number, previous):
            return number
        if entry_hash(entry) != entry.hash:
            return number
        previous = entry.hash
    return None
