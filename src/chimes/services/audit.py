"""Reads, verifies and prunes the audit log."""

from __future__ import annotations

import json
from asyncio import gather
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from datetime import datetime
from enum import StrEnum
from itertools import takewhile

from chimes.errors import Conflict, NotAllowed, NotFound
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import Actor, Owner
from chimes.model.audit import (
    AUDIT_CHECKPOINT,
    AuditCheckpoint,
    AuditEntry,
    checkpoint_from_text,
    checkpoint_to_text,
    entry_hash,
    follows,
    is_signed_with,
    sign_checkpoint,
    unfit_entry,
)
from chimes.model.checkpoint import Checkpoint, version_of
from chimes.model.ids import ScheduleId
from chimes.model.listing import AuditQuery, ScheduleQuery
from chimes.model.notification import InboxItem
from chimes.store.port import Store

#: Entries read at once.
_BATCH = 500
#: Entries pruned in one transaction.
MOST_PRUNED = 10_000
#: State key of the last verification.
_VERIFICATION = "audit:verified"


class CheckpointState(StrEnum):
    """Of the checkpoint that stands for pruned entries."""

    #: No entries were pruned.
    NONE = "none"
    VALID = "valid"
    INVALID = "invalid"
    #: Without the setting `audit_key` its signature cannot be checked.
    UNCHECKED = "unchecked"


@dataclass(frozen=True, kw_only=True, slots=True)
class ChainVerification:
    checked: int
    #: Number of the oldest invalid entry; None: all are valid.
    first_bad: int | None
    state: CheckpointState = CheckpointState.NONE
    checkpoint: AuditCheckpoint | None = None

    @property
    def ok(self) -> bool:
        trusted = self.state in (CheckpointState.NONE, CheckpointState.VALID)
        return self.first_bad is None and trusted


async def verify_chain(store: Store, key: str = "") -> ChainVerification:
    """Checks the hash of every entry and its link to the entry before it, from the newest to the
    oldest, in batches, and the checkpoint of pruned entries with its key. Entries appended
    meanwhile are not checked."""
    while True:
        stored = await store.get_checkpoint(AUDIT_CHECKPOINT)
        state, checkpoint = _read_checkpoint(stored, key)
        found = await _verify_entries(store, checkpoint)
        # Again, if entries were pruned meanwhile.
        if version_of(await store.get_checkpoint(AUDIT_CHECKPOINT)) == version_of(stored):
            return replace_fields(found, state=state, checkpoint=checkpoint)


def _read_checkpoint(
    stored: Checkpoint | None, key: str
) -> tuple[CheckpointState, AuditCheckpoint | None]:
    if stored is None:
        return CheckpointState.NONE, None
    checkpoint = checkpoint_from_text(stored.value)
    if checkpoint is None:
        return CheckpointState.INVALID, None
    if not key:
        return CheckpointState.UNCHECKED, checkpoint
    valid = is_signed_with(checkpoint, key)
    return CheckpointState.VALID if valid else CheckpointState.INVALID, checkpoint


async def prune_audit(store: Store, key: str, *, before: datetime, limit: int = MOST_PRUNED) -> int:
    """Deletes entries that are older than `before`, the oldest first, up to `limit`, and signs a
    checkpoint that stands for them; returns how many. Raises Conflict if they are not intact:
    evidence of a change must not be deleted."""
    stored = await store.get_checkpoint(AUDIT_CHECKPOINT)
    state, last = _read_checkpoint(stored, key)
    if state not in (CheckpointState.NONE, CheckpointState.VALID):
        raise Conflict(
            _("the checkpoint of pruned audit entries does not match audit_key"), code="audit"
        )
    newest = await store.list_audit(AuditQuery(until=before, limit=1))
    first = last.number + 1 if last else 1
    upto = min(newest[0].number if newest else 0, first + limit - 1)
    if upto < first:
        return 0
    entries: list[AuditEntry] = []
    while len(entries) < upto - first + 1:
        older_than = entries[-1].number if entries else upto + 1
        page = await store.list_audit(AuditQuery(before=older_than, limit=_BATCH))
        entries += page
        if len(page) < _BATCH:
            break
    entries = [each for each in reversed(entries) if each.number >= first]
    bad = unfit_entry(entries, last)
    if bad is None and len(entries) != upto - first + 1:
        bad = first
    if bad is not None:
        raise Conflict(
            _("audit entry {number} was changed or removed: nothing is pruned", number=bad),
            code="audit",
        )
    # Times need not rise with the numbers: an entry may be dated back.
    entries = list(takewhile(lambda each: each.at <= before, entries))
    if not entries:
        return 0
    upto = entries[-1].number
    now = await store.now()
    deleted = (last.deleted if last else 0) + len(entries)
    checkpoint = AuditCheckpoint(number=upto, hash=entries[-1].hash, at=now, deleted=deleted)
    changes = {"number": [first - 1, upto], "deleted": [deleted - len(entries), deleted]}
    await store.prune_audit(
        upto=upto,
        checkpoint=checkpoint_to_text(sign_checkpoint(checkpoint, key)),
        expected=version_of(stored),
        audit=AuditEntry(
            at=now,
            actor="chimes",
            interface="engine",
            verb="prune_audit",
            object_kind="store",
            object_id="audit",
            changes=changes,
        ),
    )
    return len(entries)


async def _verify_entries(store: Store, checkpoint: AuditCheckpoint | None) -> ChainVerification:
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
    number, previous = (checkpoint.number, checkpoint.hash) if checkpoint else (0, "")
    # A chain without a checkpoint may begin with any number: entries of another store.
    if newer is not None and (
        newer.previous_hash != previous or (checkpoint and newer.number != number + 1)
    ):
        bad = newer.number
    return ChainVerification(checked=checked, first_bad=bad)


@dataclass(frozen=True, kw_only=True, slots=True)
class Verification:
    """Stored result of the last verification of the hash chain."""

    ok: bool
    checked: int
    #: Number of the oldest invalid entry; None: all are valid.
    first_bad: int | None
    at: datetime
    #: Number of the newest pruned entry; 0: none.
    pruned: int = 0


class AuditService:
    """Reads and verifies the audit log."""

    def __init__(self, store: Store, key: str = "") -> None:
        """`key` is the setting `audit_key`."""
        self._store = store
        self._key = key

    async def find(self, actor: Actor, query: AuditQuery) -> Sequence[AuditEntry]:
        """Entries of all owners, newest first; only for actors that see everything."""
        if not actor.sees_everything:
            raise NotAllowed()
        return await self._store.list_audit(query)

    async def list_for_owner(
        self, actor: Actor, owner: Owner, query: AuditQuery
    ) -> Sequence[AuditEntry]:
        """Entries about objects of one owner, newest first; network addresses only for those who
        may see all of its objects."""
        if not actor.may_read(owner):
            raise NotFound()
        entries = await self._store.list_audit(replace(query, owner=str(owner)))
        return entries if actor.may_see(owner) else [replace(each, address="") for each in entries]

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
        result = await verify_chain(self._store, self._key)
        pruned = result.checkpoint.number if result.checkpoint else 0
        stored = {
            "ok": result.ok,
            "checked": result.checked,
            "first_bad": result.first_bad,
            "pruned": pruned,
        }
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
                ok=bool(stored["ok"]),
                pruned=int(stored.get("pruned", 0)),
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
