"""Silences: stop the notifications of matching schedules for a while."""

from __future__ import annotations

import json
import uuid
from datetime import datetime, timedelta

from chimes.errors import InvalidInput, NotAllowed, NotFound
from chimes.i18n import _
from chimes.model.access import SYSTEM_OWNER, Actor, Owner
from chimes.model.audit import AuditEntry, entry
from chimes.model.ids import ScheduleId
from chimes.model.silence import (
    SILENCES_CHECKPOINT,
    LabelFilter,
    Silence,
    Silences,
    add_silence,
    end_silence,
)
from chimes.model.validation import check_text
from chimes.services.documents import Document, DocumentStore
from chimes.services.system import may_control
from chimes.store.codec.values import codec_of
from chimes.store.port import Store
from chimes.triggers.values import format_moment

MAX_LENGTH = timedelta(days=366)
MAX_LABELS = 10
_codec = codec_of(Silences)


class SilenceService:
    """Operators and admins silence any schedule; members those of their owner."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._document = DocumentStore(store, SILENCES_CHECKPOINT)

    async def list_current(self, actor: Actor) -> tuple[Silence, ...]:
        """Active and planned silences that concern the actor, by their begin."""
        now = await self._store.now()
        found = [
            each
            for each in silences_from(await self._document.read())
            if each.until > now and _may_see(actor, each)
        ]
        return tuple(sorted(found, key=lambda each: (each.since, each.id)))

    async def add(
        self,
        actor: Actor,
        *,
        labels: LabelFilter,
        schedule: str = "",
        since: datetime | None = None,
        until: datetime,
        reason: str = "",
    ) -> Silence:
        if not (may_control(actor) or actor.may_write(actor.owner)):
            raise NotAllowed()
        now = await self._store.now()
        check_text(reason, "reason")
        if len(labels) > MAX_LABELS:
            raise InvalidInput(
                _("at most {most} labels", most=MAX_LABELS), field="labels", code="too_many"
            )
        for name, value in labels.items():
            check_text(name, "labels")
            check_text(value or "", "labels")
        since = since or now
        if until <= max(since, now):
            raise InvalidInput(
                _("until must lie in the future, after from"), field="until", code="out_of_range"
            )
        if until - since > MAX_LENGTH:
            raise InvalidInput(
                _("a silence lasts at most a year"), field="until", code="out_of_range"
            )
        owner = SYSTEM_OWNER
        if schedule:
            found = await self._store.get_schedule(ScheduleId(schedule))
            if found is None or found.deleted_at or not actor.may_see(found.owner):
                raise NotFound(_("schedule {id} not found", id=schedule))
            owner = found.owner
        silence = Silence(
            id=uuid.uuid4().hex[:12],
            labels=dict(labels),
            schedule=schedule,
            owner="" if may_control(actor) else str(actor.owner),
            since=since,
            until=until,
            reason=reason,
            by=actor.name,
        )
        changes: dict[str, object] = {
            "labels": dict(labels),
            "schedule": schedule,
            "from": format_moment(since),
            "until": format_moment(until),
        }
        audit = _audit(actor, "add_silence", silence, now, owner, changes)

        def change(document: Document) -> tuple[Document, AuditEntry]:
            return _to_document(add_silence(silences_from(document), silence, now)), audit

        await self._document.change(change)
        return silence

    async def remove(self, actor: Actor, silence_id: str) -> None:
        """Ends a silence now."""
        now = await self._store.now()

        def change(document: Document) -> tuple[Document, AuditEntry]:
            silences = silences_from(document)
            silence = next((each for each in silences if each.id == silence_id), None)
            if silence is None or silence.until <= now or not _may_see(actor, silence):
                raise NotFound(_("silence {id} not found", id=silence_id))
            if not (may_control(actor) or _is_own(actor, silence)):
                raise NotAllowed()
            audit = _audit(actor, "delete_silence", silence, now, SYSTEM_OWNER, {})
            return _to_document(end_silence(silences, silence_id, now)), audit

        await self._document.change(change)


async def read_silences(store: Store) -> tuple[Silence, ...]:
    stored = await store.get_checkpoint(SILENCES_CHECKPOINT)
    try:
        return () if stored is None else silences_from(json.loads(stored.value))
    except ValueError:
        return ()


def silences_from(document: object) -> tuple[Silence, ...]:
    """Empty if it cannot be read: then messages are sent."""
    try:
        return _codec.decode(document).silences if document else ()
    except (InvalidInput, TypeError, ValueError, KeyError):
        return ()


def _to_document(silences: tuple[Silence, ...]) -> Document:
    return dict(_codec.encode(Silences(silences=silences)))


def _may_see(actor: Actor, silence: Silence) -> bool:
    """Silences of operators concern everyone."""
    return actor.sees_everything or silence.owner in ("", str(actor.owner))


def _is_own(actor: Actor, silence: Silence) -> bool:
    return silence.owner == str(actor.owner) and actor.may_write(actor.owner)


def _audit(
    actor: Actor,
    verb: str,
    silence: Silence,
    now: datetime,
    owner: Owner,
    changes: dict[str, object],
) -> AuditEntry:
    return entry(
        actor,
        verb,
        "silence",
        silence.id,
        at=now,
        owner=owner,
        changes=changes,
        reason=silence.reason,
    )
