"""Audit entries for what the services do."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from chimes.model.access import Actor, Owner
from chimes.model.audit import AuditEntry
from chimes.model.schedule import Schedule
from chimes.store.codec.schedule import schedule_to_plain

MASK = "***"
_SECRET_FIELDS = frozenset({"signing_secrets"})
_SECRET_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key"})
#: Moves with every fire or run and says nothing about who changed what.
_BOOKKEEPING = frozenset(
    {"version", "updated_at", "updated_by", "last_slot", "last_enqueued_at", "fired_count"}
)


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
    return AuditEntry(
        at=at,
        actor=actor.name,
        door=actor.door,
        verb=verb,
        object_kind=kind,
        object_id=object_id,
        owner=str(owner),
        changes=changes if changes is not None else {},
        reason=reason,
        address=actor.address,
        allowed=allowed,
    )


def changes_between(before: Schedule | None, after: Schedule) -> dict[str, object]:
    """Field -> [before, after], without secrets and without what moves by itself."""
    old = masked(schedule_to_plain(before)) if before else {}
    new = masked(schedule_to_plain(after))
    return {
        name: [old.get(name), new.get(name)]
        for name in sorted({*old, *new} - _BOOKKEEPING)
        if old.get(name) != new.get(name)
    }


def masked(value: Mapping[str, object]) -> dict[str, object]:
    """The same data with secrets replaced, at any depth."""
    return {name: _masked_value(name, item) for name, item in value.items()}


def _masked_value(name: str, value: object) -> object:
    if name in _SECRET_FIELDS and isinstance(value, list):
        return [MASK for _ in value]
    if name.lower() in _SECRET_HEADERS:
        return MASK
    if isinstance(value, Mapping):
        return masked(value)
    return value
