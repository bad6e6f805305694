"""Audit entries for what the services do."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from chimes.model.access import Actor, Owner
from chimes.model.audit import AuditEntry
from chimes.model.schedule import Schedule
from chimes.redaction import (
    HIDDEN,
    is_secret_field,
    is_secret_name,
    masked_arguments,
    masked_url,
)
from chimes.store.codec.schedule import schedule_to_plain

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
    old = schedule_to_plain(before) if before else {}
    new = schedule_to_plain(after)
    # Compared as they are: that a secret was replaced is seen, though not by what.
    changed = sorted(name for name in {*old, *new} - _BOOKKEEPING if old.get(name) != new.get(name))
    was, now = masked(old), masked(new)
    return {name: [was.get(name), now.get(name)] for name in changed}


def masked(value: Mapping[str, object]) -> dict[str, object]:
    """The same data with secrets replaced, at any depth."""
    return {name: _masked_value(name, item) for name, item in value.items()}


def _masked_value(name: str, value: object) -> object:
    if name == "headers" and isinstance(value, Mapping):
        return {key: HIDDEN if is_secret_name(key) else item for key, item in value.items()}
    if name in ("args", "input") and isinstance(value, Mapping):
        return masked_arguments(value)
    if name == "url" and isinstance(value, str):
        return masked_url(value)
    if name == "to" and isinstance(value, str) and "://" in value:
        return masked_url(value)
    if is_secret_field(name):
        return [HIDDEN for _ in value] if isinstance(value, list) else HIDDEN
    return _masked_inside(value)


def _masked_inside(value: object) -> object:
    if isinstance(value, Mapping):
        return masked(value)
    return [_masked_inside(each) for each in value] if isinstance(value, list) else value
