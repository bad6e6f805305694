"""The audit log: entries of changes, masking of secrets, reading and verification."""

from __future__ import annotations

import json
from asyncio import gather
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from chimes.errors import NotAllowed, NotFound
from chimes.model import replace
from chimes.model.access import Actor, Owner
from chimes.model.audit import AuditEntry, entry_hash, follows
from chimes.model.ids import ScheduleId
from chimes.model.listing import AuditQuery, ScheduleQuery
from chimes.model.notification import InboxItem
from chimes.model.schedule import Schedule, clear_source_marker
from chimes.redaction import HIDDEN, is_secret_field, is_secret_name, mask_arguments, mask_url
from chimes.store.codec.values import schedule_to_plain
from chimes.store.port import Store

#: Entries read at once.
_BATCH = 500
#: State key of the last verification.
_VERIFICATION = "audit:verified"
#: Fields that every fire or run changes.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class ChainVerification:
    checked: int
    #: Number of the oldest invalid entry; None: all are valid.
    first_bad: int | None

    @property
    def ok(self) -> bool:
        return self.first_bad is None


async def verify_chain(store: Store) -> ChainVerification:
    """Checks the hash of every entry and its link to the entry before it, from the newest to the
    oldest, in batches. Entries appended meanwhile are not checked."""
    newer: AuditEntry | None = None
    checked, bad = 0, None
    while True:
        query = AuditQuery(before=newer.number if newer else None, limit=_BATCH)
        page = await store.list_audit(query)
        for entry_ in page:
            if newer is not None and not follows(newer, entry_):
                bad = newer.number
            if entry_hash(entry_) != entry_.hash:
                bad = entry_.number
            newer = entry_
        checked += len(page)
        if len(page) < _BATCH:
            break
    if newer is not None and newer.previous_hash:
        bad = newer.number
    return ChainVerification(checked=checked, first_bad=bad)


def changes_between(before: Schedule | None, after: Schedule) -> dict[str, object]:
    """Field -> [before, after], without secrets and without bookkeeping fields."""
    old = schedule_to_plain(clear_source_marker(before)) if before else {}
    new = schedule_to_plain(clear_source_marker(after))
    # Compared before masking, so that a replaced secret shows up as a change.
    changed = sorted(name for name in {*old, *new} - _BOOKKEEPING if old.get(name) != new.get(name))
    was = mask_secrets({name: old[name] for name in changed if name in old})
    now = mask_secrets({name: new[name] for name in changed if name in new})
    return {name: [was.get(name), now.get(name)] for name in changed}


def mask_secrets(value: Mapping[str, object]) -> dict[str, object]:
    """The data with secrets masked at any depth."""
    return {name: _mask_value(name, item) for name, item in value.items()}


def _mask_value(name: str, value: object) -> object:
    if name == "headers" and isinstance(value, Mapping):
        return {key: HIDDEN if is_secret_name(key) else item for key, item in value.items()}
    if name in ("args", "input") and isinstance(value, Mapping):
        return mask_arguments(value)
    if name == "body" and isinstance(value, str):
        return _mask_body(value)
    if name == "url" and isinstance(value, str):
        return mask_url(value)
    if name == "to" and isinstance(value, str) and "://" in value:
        return mask_url(value)
    if is_secret_field(name):
        return [HIDDEN for _ in value] if isinstance(value, list) else HIDDEN
    return _mask_nested(value)


def _mask_body(body: str) -> object:
    """Without field names secrets cannot be recognised, so only the length is recorded."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return mask_arguments(found)
    return {"characters": len(body)}


def _mask_nested(value: object) -> object:
    if isinstance(value, Mapping):
        return mask_secrets(value)
    return [_mask_nested(each) for each in value] if isinstance(value, list) else value


@dataclass(frozen=True, kw_only=True, slots=True)
class Verification:
    """Stored result of the last verification of the hash chain."""

    checked: int
    #: Number of the oldest invalid entry; None: all are valid.
    first_bad: int | None
    at: datetime

    @property
    def ok(self) -> bool:
        return self.first_bad is None


class AuditService:
    """Reads and verifies the audit log."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, actor: Actor, query: AuditQuery) -> Sequence[AuditEntry]:
        """Entries of all owners, newest first; only for actors that see everything."""
        if not actor.sees_everything:
            raise NotAllowed()
        return await self._store.list_audit(query)

    async def list_for_owner(
        self, actor: Actor, owner: Owner, query: AuditQuery
    ) -> Sequence[AuditEntry]:
        """Entries about objects of one owner, newest first."""
        if not actor.may_see(owner):
            raise NotFound()
        return await self._store.list_audit(replace(query, owner=str(owner)))

    async def list_for_message(
        self, actor: Actor, item: InboxItem, *, interface: str, limit: int
    ) -> Sequence[AuditEntry]:
        """Entries about the run and the schedule of an inbox message, since it was created."""
        if not actor.may_see(item.owner):
            raise NotFound()
        ids = [each for each in (item.run_id, item.schedule_id) if each is not None]
        return await self._store.list_audit(
            AuditQuery(
                object_ids=tuple(ids), interface=interface, since=item.created_at, limit=limit
            )
        )

    async def verify(self, actor: Actor) -> ChainVerification:
        """Verifies the hash chain and stores the result."""
        if not actor.sees_everything:
            raise NotAllowed()
        result = await verify_chain(self._store)
        stored = {"ok": result.ok, "checked": result.checked, "first_bad": result.first_bad}
        await self._store.set_checkpoint(_VERIFICATION, json.dumps(stored))
        return result

    async def get_last_verification(self, actor: Actor) -> Verification | None:
        if not actor.sees_everything:
            raise NotAllowed()
        state = await self._store.get_checkpoint(_VERIFICATION)
        if state is None:
            return None
        try:
            stored = json.loads(state.value)
            bad = stored["first_bad"]
            return Verification(
                checked=int(stored["checked"]),
                first_bad=None if bad is None else int(bad),
                at=state.changed_at,
            )
        except (ValueError, KeyError, TypeError):
            return None

    async def get_schedule_names(
        self, actor: Actor, entries: Sequence[AuditEntry]
    ) -> dict[ScheduleId, str]:
        """Names of the schedules that the entries are about, including deleted schedules."""
        if not actor.sees_everything:
            raise NotAllowed()
        ids = {ScheduleId(each.object_id) for each in entries if each.object_kind == "schedule"}
        if not ids:
            return {}
        query = ScheduleQuery(ids=tuple(sorted(ids)), limit=None)
        listed = (await self._store.list_schedules(query)).items
        # Lists do not contain deleted schedules.
        missing = ids - {each.id for each in listed}
        deleted = await gather(*(self._store.get_schedule(each) for each in missing))
        return {each.id: each.name for each in (*listed, *deleted) if each is not None}
