"""The audit log: append-only entries, each chained to the one before it by its hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct, field

from chimes.model import replace


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


def gone_pause_entry(schedule_id: str, owner: str, reason: str, now: datetime) -> AuditEntry:
    """The entry for a pause caused by 410 Gone, which no user requested."""
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
