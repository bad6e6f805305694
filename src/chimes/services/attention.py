"""Failures that somebody has looked at: the schedule needs no attention for the same error again,
until it fails in another way or has recovered (UX A.6). One mark a schedule, for everybody.

All marks are one document, so that whoever sees every owner's schedules has them with one question;
how many of them an owner has is no other owner's loss.
"""

from __future__ import annotations

import hashlib
import json
import re
from asyncio import gather
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from chimes.errors import Conflict, InvalidInput, NotAllowed, NotFound
from chimes.i18n import _
from chimes.model.access import Actor, Owner
from chimes.model.audit import AuditEntry
from chimes.model.ids import RunId, ScheduleId
from chimes.model.insights import (
    ERROR_KEY_LENGTH,
    FAILED_STATUSES,
    AttentionList,
    IssueCause,
    ScheduleAttention,
    ScheduleIssue,
)
from chimes.model.listing import DeliveryQuery, RunQuery, ScheduleQuery
from chimes.model.notification import Delivery, DeliveryState
from chimes.model.recipient import Channel
from chimes.model.run import Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.services.audit import entry
from chimes.services.preferences import Document, DocumentStore
from chimes.services.validation import check_text
from chimes.store.port import Store
from chimes.triggers.moment import format_moment, parse_moment

#: Marks of one owner, and of all: the oldest go first, of whoever has the most.
MOST = 100
MOST_OF_ALL = 500
LONGEST_NOTE = 300
_STATE = "known-failures"


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownFailure:
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


def is_still_known(known: KnownFailure, schedule: Schedule) -> bool:
    """Whether the schedule fails as it did then, and has not worked in between."""
    if schedule.last_success_at is not None and schedule.last_success_at > known.failed_at:
        return False
    return known.error == fingerprint(schedule.last_error)


def fingerprint(error: str) -> str:
    """As far as errors are told apart in lists."""
    return hashlib.blake2b(
        error[:ERROR_KEY_LENGTH].encode(errors="replace"), digest_size=12
    ).hexdigest()


class KnownFailures:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._document = DocumentStore(store, _STATE)

    async def get_all(self) -> dict[ScheduleId, KnownFailure]:
        """Of every owner: only for holding against what the reader sees anyway."""
        return _read(await self._document.read())

    async def get(self, schedule: Schedule) -> KnownFailure | None:
        """The mark that holds now."""
        known = (await self.get_all()).get(schedule.id)
        return known if known is not None and is_still_known(known, schedule) else None

    async def mark(self, actor: Actor, run: Run, note: str) -> KnownFailure:
        """`run` is one that the actor sees. Conflict: there is no failure of a schedule to mark."""
        schedule = await self._schedule_of(actor, run)
        if run.status not in FAILED_STATUSES:
            raise Conflict(_("this run has not failed"), code="not_failed")
        note = check_text(note.strip(), "reason")
        if len(note) > LONGEST_NOTE:
            raise InvalidInput(
                _("at most {most} characters", most=LONGEST_NOTE), field="reason", code="too_long"
            )
        now = await self._store.now()
        known = KnownFailure(
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

    async def unmark(self, actor: Actor, run: Run) -> None:
        """It counts again."""
        schedule = await self._schedule_of(actor, run)
        audit = _audited(actor, run, "unmark_known", await self._store.now(), "")
        async with self._document.changing() as found:
            kept = _read(found)
            kept.pop(schedule.id, None)
            await self._document.write(_written(kept), audit)

    async def _schedule_of(self, actor: Actor, run: Run) -> Schedule:
        if run.schedule_id is None:
            raise Conflict(_("this run has no schedule"), code="no_schedule")
        schedule = await self._store.get_schedule(run.schedule_id)
        if schedule is None or schedule.deleted_at or not actor.may_see(schedule.owner):
            raise NotFound(_("schedule {id} not found", id=run.schedule_id))
        if not actor.may_operate(schedule.owner):
            raise NotAllowed()
        return schedule


def _audited(actor: Actor, run: Run, verb: str, now: datetime, reason: str) -> AuditEntry:
    changes = {"schedule_id": run.schedule_id}
    return entry(
        actor, verb, "run", run.id, at=now, owner=run.owner, changes=changes, reason=reason
    )


def _within_bounds(kept: Mapping[ScheduleId, KnownFailure]) -> dict[ScheduleId, KnownFailure]:
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


def _written(kept: Mapping[ScheduleId, KnownFailure]) -> Document:
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


def _read(found: Document) -> dict[ScheduleId, KnownFailure]:
    """What was damaged counts as not there."""
    try:
        return {ScheduleId(name): _mark(each) for name, each in found.items()}
    except (ValueError, TypeError, KeyError, AttributeError, InvalidInput):
        return {}


def _mark(plain: object) -> KnownFailure:
    if not isinstance(plain, Mapping):
        raise TypeError
    return KnownFailure(
        run_id=RunId(str(plain["run"])),
        owner=str(plain.get("owner", "")),
        error=str(plain["error"]),
        failed_at=parse_moment(str(plain["failed"]), "UTC"),
        note=str(plain["note"]),
        by=str(plain["by"]),
        at=parse_moment(str(plain["at"]), "UTC"),
    )


# @@ Signs that need not be shown: those that somebody has seen and does not want to see again for
# a while (each owner for itself, everybody else is still told), and failures that are known.

SNOOZE_DURATION = timedelta(hours=24)
#: Of one owner; the oldest go first.
MOST_SNOOZING = 200
_STATE_SNOOZING = "snoozed:"


@dataclass(frozen=True, kw_only=True, slots=True)
class Snooze:
    """What gets worse than this is told all the same."""

    cause: IssueCause
    until: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Suppression:
    """Why a schedule may not have to be shown."""

    snooze: Snooze | None = None
    known: KnownFailure | None = None


Snoozes = Mapping[ScheduleId, Snooze]


class SnoozeService:
    """Two changes at the same moment: the later one stands. A sign that comes back is no loss."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get_suppressions(self, actor: Actor, now: datetime) -> dict[ScheduleId, Suppression]:
        """What `awake` leaves out."""
        snoozes, known = await gather(
            self._snoozes(actor, now), KnownFailures(self._store).get_all()
        )
        return {
            name: Suppression(snooze=snoozes.get(name), known=known.get(name))
            for name in snoozes.keys() | known.keys()
        }

    async def _snoozes(self, actor: Actor, now: datetime) -> dict[ScheduleId, Snooze]:
        """Those that have not ended."""
        state = await self._store.get_checkpoint(_name(actor))
        found = {} if state is None else _read_snoozing(state.value)
        return {name: each for name, each in found.items() if each.until > now}

    async def snooze(self, actor: Actor, schedule_id: ScheduleId, cause: IssueCause) -> datetime:
        """For SNOOZE_DURATION; until when. NotFound for what others own."""
        now = await self._store.now()
        until = now + SNOOZE_DURATION
        kept = await self._snoozes(actor, now)
        kept.pop(schedule_id, None)
        kept[schedule_id] = Snooze(cause=cause, until=until)
        newest = dict(list(kept.items())[-MOST_SNOOZING:])
        changes = {"cause": cause.value, "until": format_moment(until)}
        await self._keep(actor, schedule_id, newest, "snooze", now, changes)
        return until

    async def unsnooze(self, actor: Actor, schedule_id: ScheduleId) -> None:
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
            raise NotFound(_("schedule {id} not found", id=schedule_id))
        # What somebody looks at is its own affair, unless a key is narrowed down to less.
        if actor.scopes and not actor.may_operate(schedule.owner):
            raise NotAllowed()
        note = entry(
            actor, verb, "schedule", schedule_id, at=now, owner=schedule.owner, changes=changes
        )
        await self._store.set_checkpoint(_name(actor), _written_snoozing(snoozes), note)


def without_suppressed(
    found: AttentionList, put_off: Mapping[ScheduleId, Suppression], limit: int
) -> AttentionList:
    """Without what is snoozed or known; `found` was asked for that many more."""
    kept = tuple(each for each in found.items if not _hidden(each, put_off))
    return AttentionList(total=found.total - (len(found.items) - len(kept)), items=kept[:limit])


def _hidden(found: ScheduleAttention, put_off: Mapping[ScheduleId, Suppression]) -> bool:
    why = put_off.get(found.schedule.id)
    if why is None:
        return False
    cause = found.sign.cause
    failing = cause in (IssueCause.FAILING, IssueCause.REFUSED)
    if why.known is not None and failing and is_still_known(why.known, found.schedule):
        return True
    gravest_first = list(IssueCause)
    return why.snooze is not None and (
        gravest_first.index(cause) >= gravest_first.index(why.snooze.cause)
    )


def _name(actor: Actor) -> str:
    return f"{_STATE_SNOOZING}{actor.owner}"


def _written_snoozing(snoozes: Snoozes) -> str | None:
    plain = {name: [each.cause.value, format_moment(each.until)] for name, each in snoozes.items()}
    return json.dumps(plain) if plain else None


def _read_snoozing(text: str) -> dict[ScheduleId, Snooze]:
    """What was damaged counts as not there."""
    try:
        found = json.loads(text)
        return {
            ScheduleId(name): Snooze(cause=IssueCause(cause), until=parse_moment(until, "UTC"))
            for name, (cause, until) in found.items()
        }
    except (ValueError, TypeError, AttributeError, InvalidInput):
        return {}


# @@ Secrets and tokens that are not accepted: by the receiver of a schedule's calls, or by the
# channel that tells of its results (UX A.1). From the newest failures, which indexes give.

WITHIN = timedelta(hours=24)
#: Of each kind that is looked at, the newest.
LOOKED_AT = 50
#: Codes of deliveries that were not accepted because of who sends them.
CODES = frozenset({"bad_token", "blocked", "bad_login", "http_401", "http_403"})
#: As our targets say it; the status of an answer is not kept by itself.
_ANSWER = re.compile(r"(?:^|answered )HTTP (?:401|403)\b")


@dataclass(frozen=True, kw_only=True, slots=True)
class CredentialRefusal:
    found: ScheduleAttention
    #: Who does not take it; None: the receiver of its calls.
    channel: Channel | None
    #: In its words; English, as all that is on record.
    error: str


def is_authentication_error(error: str) -> bool:
    return _ANSWER.search(error) is not None


async def credential_refusals(
    store: Store, actor: Actor, now: datetime, *, any_failed: bool = True
) -> tuple[CredentialRefusal, ...]:
    """One per schedule, newest first. `any_failed`: whether any run of the last day has failed."""
    owner = None if actor.sees_everything else actor.owner
    suspects, letters = await gather(
        _refused_runs(store, owner, now) if any_failed else _none(), _letters(store, owner, now)
    )
    names = dict.fromkeys([*suspects, *letters])
    if not names:
        return ()
    wanted = ScheduleQuery(owner=owner, ids=tuple(names), limit=None)
    found: list[CredentialRefusal] = []
    for schedule in (await store.list_schedules(wanted)).items:
        run_id = suspects.get(schedule.id)
        if run_id is not None and _fails_so(schedule):
            found.append(_by_receiver(schedule, run_id, now))
        elif schedule.id in letters:
            found.append(_by_channel(schedule, letters[schedule.id]))
    return tuple(sorted(found, key=lambda each: each.found.sign.at, reverse=True))


def _fails_so(schedule: Schedule) -> bool:
    """Its last run, and not only one before it."""
    failed = schedule.last_status is RunStatus.FAILED
    return schedule.enabled and failed and is_authentication_error(schedule.last_error)


def _by_receiver(schedule: Schedule, run_id: RunId, now: datetime) -> CredentialRefusal:
    sign = ScheduleIssue(
        schedule_id=schedule.id,
        cause=IssueCause.REFUSED,
        at=schedule.last_run_at or now,
        run_id=run_id,
    )
    found = ScheduleAttention(schedule=schedule, sign=sign)
    return CredentialRefusal(found=found, channel=None, error=schedule.last_error)


def _by_channel(schedule: Schedule, letters: Sequence[Delivery]) -> CredentialRefusal:
    newest = letters[0]
    sign = ScheduleIssue(
        schedule_id=schedule.id,
        cause=IssueCause.REFUSED,
        at=newest.finished_at or newest.created_at,
        count=len(letters),
        run_id=newest.run_id,
    )
    found = ScheduleAttention(schedule=schedule, sign=sign)
    return CredentialRefusal(found=found, channel=newest.recipient.channel, error=newest.error)


async def _none() -> dict[ScheduleId, RunId]:
    return {}


async def _refused_runs(
    store: Store, owner: Owner | None, now: datetime
) -> dict[ScheduleId, RunId]:
    """Schedules with such a run, and the newest of each."""
    query = RunQuery(
        owner=owner, statuses=(RunStatus.FAILED,), created_since=now - WITHIN, limit=LOOKED_AT
    )
    found: dict[ScheduleId, RunId] = {}
    for run in (await store.list_runs(query)).items:
        if run.schedule_id is not None and is_authentication_error(run.error):
            found.setdefault(run.schedule_id, run.id)
    return found


async def _letters(
    store: Store, owner: Owner | None, now: datetime
) -> dict[ScheduleId, list[Delivery]]:
    """What a channel did not take and was not given another since, newest first."""
    dead, waiting = await gather(
        _newest(store, owner, DeliveryState.DEAD), _newest(store, owner, DeliveryState.PENDING)
    )
    refused = [
        each
        for each in sorted((*dead, *waiting), key=lambda each: each.created_at, reverse=True)
        if each.code in CODES and each.created_at >= now - WITHIN
    ]
    if not refused:
        return {}
    taken = _last_taken(await _newest(store, owner, DeliveryState.DELIVERED))
    found: dict[ScheduleId, list[Delivery]] = {}
    for each in refused:
        later = taken.get((each.schedule_id, each.recipient.channel, each.recipient.to))
        if each.schedule_id is not None and (later is None or later < each.created_at):
            found.setdefault(each.schedule_id, []).append(each)
    return found


async def _newest(store: Store, owner: Owner | None, state: DeliveryState) -> tuple[Delivery, ...]:
    query = DeliveryQuery(owner=owner, states=(state,), limit=LOOKED_AT)
    return (await store.list_deliveries(query)).items


def _last_taken(
    delivered: Iterable[Delivery],
) -> dict[tuple[ScheduleId | None, Channel, str], datetime]:
    found: dict[tuple[ScheduleId | None, Channel, str], datetime] = {}
    for each in delivered:
        place = each.schedule_id, each.recipient.channel, each.recipient.to
        found.setdefault(place, each.created_at)
    return found
