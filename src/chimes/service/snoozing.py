"""Signs that need not be shown: those that somebody has seen and does not want to see again for a
while (each owner for itself, everybody else is still told), and failures that are known."""

from __future__ import annotations

import json
from asyncio import gather
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from chimes.errors import InvalidInput, NotAllowed, NotFound
from chimes.model.access import Actor
from chimes.model.attention import Attention, Attentions, Cause
from chimes.model.ids import ScheduleId
from chimes.service.audit import entry
from chimes.service.known_failures import Known, KnownFailures, still_known
from chimes.store.port import Store
from chimes.triggers.moment import format_moment, parse_moment
from chimes.wording import say

SNOOZED_FOR = timedelta(hours=24)
#: Of one owner; the oldest go first.
MOST = 200
_STATE = "snoozed:"


@dataclass(frozen=True, kw_only=True, slots=True)
class Snooze:
    """What gets worse than this is told all the same."""

    cause: Cause
    until: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class PutOff:
    """Why a schedule may not have to be shown."""

    snooze: Snooze | None = None
    known: Known | None = None


Snoozes = Mapping[ScheduleId, Snooze]


class SnoozeService:
    """Two changes at the same moment: the later one stands. A sign that comes back is no loss."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def of(self, actor: Actor, now: datetime) -> dict[ScheduleId, PutOff]:
        """What `awake` leaves out."""
        snoozes, known = await gather(self._snoozes(actor, now), KnownFailures(self._store).all())
        return {
            name: PutOff(snooze=snoozes.get(name), known=known.get(name))
            for name in snoozes.keys() | known.keys()
        }

    async def _snoozes(self, actor: Actor, now: datetime) -> dict[ScheduleId, Snooze]:
        """Those that have not ended."""
        state = await self._store.read_state(_name(actor))
        found = {} if state is None else _read(state.value)
        return {name: each for name, each in found.items() if each.until > now}

    async def snooze(self, actor: Actor, schedule_id: ScheduleId, cause: Cause) -> datetime:
        """For SNOOZED_FOR; until when. NotFound for what others own."""
        now = await self._store.now()
        until = now + SNOOZED_FOR
        kept = await self._snoozes(actor, now)
        kept.pop(schedule_id, None)
        kept[schedule_id] = Snooze(cause=cause, until=until)
        newest = dict(list(kept.items())[-MOST:])
        changes = {"cause": cause.value, "until": format_moment(until)}
        await self._keep(actor, schedule_id, newest, "snooze", now, changes)
        return until

    async def wake(self, actor: Actor, schedule_id: ScheduleId) -> None:
        """It is told again. NotFound for what others own."""
        now = await self._store.now()
        kept = await self._snoozes(actor, now)
        kept.pop(schedule_id, None)
        await self._keep(actor, schedule_id, kept, "wake", now, {})

    async def _keep(
        self,
        actor: Actor,
        schedule_id: ScheduleId,
        snoozes: Snoozes,
        verb: str,
        now: datetime,
        changes: Mapping[str, object],
    ) -> None:
        schedule = await self._store.get_schedule(schedule_id)
        if schedule is None or schedule.deleted_at or not actor.may_see(schedule.owner):
            raise NotFound(say("schedule {id} not found", id=schedule_id))
        # What somebody looks at is its own affair, unless a key is narrowed down to less.
        if actor.scopes and not actor.may_operate(schedule.owner):
            raise NotAllowed()
        note = entry(
            actor, verb, "schedule", schedule_id, at=now, owner=schedule.owner, changes=changes
        )
        await self._store.set_state(_name(actor), _written(snoozes), note)


def awake(found: Attentions, put_off: Mapping[ScheduleId, PutOff], limit: int) -> Attentions:
    """Without what is snoozed or known; `found` was asked for that many more."""
    kept = tuple(each for each in found.items if not _hidden(each, put_off))
    return Attentions(total=found.total - (len(found.items) - len(kept)), items=kept[:limit])


def _hidden(found: Attention, put_off: Mapping[ScheduleId, PutOff]) -> bool:
    why = put_off.get(found.schedule.id)
    if why is None:
        return False
    cause = found.sign.cause
    failing = cause in (Cause.FAILING, Cause.REFUSED)
    if why.known is not None and failing and still_known(why.known, found.schedule):
        return True
    gravest_first = list(Cause)
    return why.snooze is not None and (
        gravest_first.index(cause) >= gravest_first.index(why.snooze.cause)
    )


def _name(actor: Actor) -> str:
    return f"{_STATE}{actor.owner}"


def _written(snoozes: Snoozes) -> str | None:
    plain = {name: [each.cause.value, format_moment(each.until)] for name, each in snoozes.items()}
    return json.dumps(plain) if plain else None


def _read(text: str) -> dict[ScheduleId, Snooze]:
    """What was damaged counts as not there."""
    try:
        found = json.loads(text)
        return {
            ScheduleId(name): Snooze(cause=Cause(cause), until=parse_moment(until, "UTC"))
            for name, (cause, until) in found.items()
        }
    except (ValueError, TypeError, AttributeError, InvalidInput):
        return {}
