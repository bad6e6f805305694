"""Failures that somebody has looked at: the schedule needs no attention for the same error again,
until it fails in another way or has recovered (UX A.6). One mark a schedule, for everybody.

All marks are one document, so that whoever sees every owner's schedules has them with one question;
how many of them an owner has is no other owner's loss.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from chimes.errors import Conflict, InvalidInput, NotAllowed, NotFound
from chimes.model.access import Actor
from chimes.model.audit import AuditEntry
from chimes.model.ids import RunId, ScheduleId
from chimes.model.insights import BAD, ERROR_ROOM
from chimes.model.run import Run
from chimes.model.schedule import Schedule
from chimes.service.audit import entry
from chimes.service.documents import Document, DocumentStore
from chimes.service.rules import checked_text
from chimes.store.port import Store
from chimes.triggers.moment import format_moment, parse_moment
from chimes.wording import say

#: Marks of one owner, and of all: the oldest go first, of whoever has the most.
MOST = 100
MOST_OF_ALL = 500
LONGEST_NOTE = 300
_STATE = "known-failures"


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """Who has looked at which failure, and what they say about it."""

    run_id: RunId
    #: Of the schedule; empty in what was written before it was noted.
    owner: str
    #: Equal for equal errors.
    error: str
    #: When that run had failed: a success after it ends the mark.
    failed_at: datetime
    note: str
    by: str
    at: datetime


def still_known(known: Known, schedule: Schedule) -> bool:
    """Whether the schedule fails as it did then, and has not worked in between."""
    if schedule.last_success_at is not None and schedule.last_success_at > known.failed_at:
        return False
    return known.error == fingerprint(schedule.last_error)


def fingerprint(error: str) -> str:
    """As far as errors are told apart in lists."""
    return hashlib.blake2b(error[:ERROR_ROOM].encode(errors="replace"), digest_size=12).hexdigest()


class KnownFailures:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._document = DocumentStore(store, _STATE)

    async def all(self) -> dict[ScheduleId, Known]:
        """Of every owner: only for holding against what the reader sees anyway."""
        return _read(await self._document.read())

    async def of(self, schedule: Schedule) -> Known | None:
        """The mark that holds now."""
        known = (await self.all()).get(schedule.id)
        return known if known is not None and still_known(known, schedule) else None

    async def mark(self, actor: Actor, run: Run, note: str) -> Known:
        """`run` is one that the actor sees. Conflict: there is no failure of a schedule to mark."""
        schedule = await self._schedule_of(actor, run)
        if run.status not in BAD:
            raise Conflict(say("this run has not failed"), code="not_failed")
        note = checked_text(note.strip(), "reason")
        if len(note) > LONGEST_NOTE:
            raise InvalidInput(
                say("at most {most} characters", most=LONGEST_NOTE), field="reason", code="too_long"
            )
        now = await self._store.now()
        known = Known(
            run_id=run.id,
            owner=str(schedule.owner),
            error=fingerprint(run.error),
            failed_at=run.finished_at or run.created_at,
            note=note,
            by=actor.name,
            at=now,
        )
        audit = _audited(actor, run, "mark_known", now, note)
        async with self._document.changing() as found:
            kept = _read(found)
            kept.pop(schedule.id, None)
            kept[schedule.id] = known
            await self._document.write(_written(_within_bounds(kept)), audit)
        return known

    async def forget(self, actor: Actor, run: Run) -> None:
        """It counts again."""
        schedule = await self._schedule_of(actor, run)
        audit = _audited(actor, run, "unmark_known", await self._store.now(), "")
        async with self._document.changing() as found:
            kept = _read(found)
            kept.pop(schedule.id, None)
            await self._document.write(_written(kept), audit)

    async def _schedule_of(self, actor: Actor, run: Run) -> Schedule:
        if run.schedule_id is None:
            raise Conflict(say("this run has no schedule"), code="no_schedule")
        schedule = await self._store.get_schedule(run.schedule_id)
        if schedule is None or schedule.deleted_at or not actor.may_see(schedule.owner):
            raise NotFound(say("schedule {id} not found", id=run.schedule_id))
        if not actor.may_operate(schedule.owner):
            raise NotAllowed()
        return schedule


def _audited(actor: Actor, run: Run, verb: str, now: datetime, reason: str) -> AuditEntry:
    changes = {"schedule_id": run.schedule_id}
    return entry(
        actor, verb, "run", run.id, at=now, owner=run.owner, changes=changes, reason=reason
    )


def _within_bounds(kept: Mapping[ScheduleId, Known]) -> dict[ScheduleId, Known]:
    """Oldest first, as they are."""
    left = dict(kept)
    counts = Counter(each.owner for each in kept.values())
    while counts:
        owner, count = counts.most_common(1)[0]
        if count <= MOST and len(left) <= MOST_OF_ALL:
            break
        del left[next(name for name, each in left.items() if each.owner == owner)]
        counts[owner] -= 1
    return left


def _written(kept: Mapping[ScheduleId, Known]) -> Document:
    return {
        name: {
            "run": each.run_id,
            "owner": each.owner,
            "error": each.error,
            "failed": format_moment(each.failed_at),
            "note": each.note,
            "by": each.by,
            "at": format_moment(each.at),
        }
        for name, each in kept.items()
    }


def _read(found: Document) -> dict[ScheduleId, Known]:
    """What was damaged counts as not there."""
    try:
        return {ScheduleId(name): _mark(each) for name, each in found.items()}
    except (ValueError, TypeError, KeyError, AttributeError, InvalidInput):
        return {}


def _mark(plain: object) -> Known:
    if not isinstance(plain, Mapping):
        raise TypeError
    return Known(
        run_id=RunId(str(plain["run"])),
        owner=str(plain.get("owner", "")),
        error=str(plain["error"]),
        failed_at=parse_moment(str(plain["failed"]), "UTC"),
        note=str(plain["note"]),
        by=str(plain["by"]),
        at=parse_moment(str(plain["at"]), "UTC"),
    )
