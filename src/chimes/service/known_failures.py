"""Failures that somebody has looked at: the schedule needs no attention for the same error again,
until it fails in another way or has recovered (UX A.6). One mark a schedule, for everybody."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from chimes.errors import Conflict, InvalidInput, NotAllowed, NotFound
from chimes.model.access import Actor
from chimes.model.ids import RunId, ScheduleId
from chimes.model.insights import BAD, ERROR_ROOM
from chimes.model.run import Run
from chimes.model.schedule import Schedule
from chimes.service.audit import entry
from chimes.service.rules import checked_text
from chimes.store.port import Store
from chimes.triggers.moment import format_moment, parse_moment
from chimes.wording import say

#: Marks that are kept; the oldest go first.
MOST = 100
LONGEST_NOTE = 300
_STATE = "known-failures"


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """Who has looked at which failure, and what they say about it."""

    run_id: RunId
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
    """Two changes at the same moment: the later one stands. A sign that comes back is no loss."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def all(self) -> dict[ScheduleId, Known]:
        """Of every owner: only for holding against what the reader sees anyway."""
        state = await self._store.read_state(_STATE)
        return {} if state is None else _read(state.value)

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
            error=fingerprint(run.error),
            failed_at=run.finished_at or run.created_at,
            note=note,
            by=actor.name,
            at=now,
        )
        kept = await self.all()
        kept.pop(schedule.id, None)
        kept[schedule.id] = known
        newest = dict(list(kept.items())[-MOST:])
        await self._keep(actor, run, newest, "mark_known", now, note)
        return known

    async def forget(self, actor: Actor, run: Run) -> None:
        """It counts again."""
        schedule = await self._schedule_of(actor, run)
        kept = await self.all()
        kept.pop(schedule.id, None)
        await self._keep(actor, run, kept, "unmark_known", await self._store.now(), "")

    async def _schedule_of(self, actor: Actor, run: Run) -> Schedule:
        if run.schedule_id is None:
            raise Conflict(say("this run has no schedule"), code="no_schedule")
        schedule = await self._store.get_schedule(run.schedule_id)
        if schedule is None or schedule.deleted_at or not actor.may_see(schedule.owner):
            raise NotFound(say("schedule {id} not found", id=run.schedule_id))
        if not actor.may_operate(schedule.owner):
            raise NotAllowed()
        return schedule

    async def _keep(
        self,
        actor: Actor,
        run: Run,
        kept: Mapping[ScheduleId, Known],
        verb: str,
        now: datetime,
        reason: str,
    ) -> None:
        changes = {"schedule_id": run.schedule_id}
        note = entry(
            actor, verb, "run", run.id, at=now, owner=run.owner, changes=changes, reason=reason
        )
        await self._store.set_state(_STATE, _written(kept), note)


def _written(kept: Mapping[ScheduleId, Known]) -> str | None:
    plain = {
        name: {
            "run": each.run_id,
            "error": each.error,
            "failed": format_moment(each.failed_at),
            "note": each.note,
            "by": each.by,
            "at": format_moment(each.at),
        }
        for name, each in kept.items()
    }
    return json.dumps(plain) if plain else None


def _read(text: str) -> dict[ScheduleId, Known]:
    """What was damaged counts as not there."""
    try:
        return {ScheduleId(name): _mark(each) for name, each in json.loads(text).items()}
    except (ValueError, TypeError, KeyError, AttributeError, InvalidInput):
        return {}


def _mark(plain: Mapping[str, object]) -> Known:
    return Known(
        run_id=RunId(str(plain["run"])),
        error=str(plain["error"]),
        failed_at=parse_moment(str(plain["failed"]), "UTC"),
        note=str(plain["note"]),
        by=str(plain["by"]),
        at=parse_moment(str(plain["at"]), "UTC"),
    )
