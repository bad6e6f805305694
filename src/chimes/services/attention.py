"""Schedules that need attention: known failures, snoozes, refused credentials.

A failure marked as known is hidden for all users until the schedule fails with another error or
recovers. All marks are one document, so that an operator reads them with one query; an owner with
many marks does not displace those of others.
"""

from __future__ import annotations

import hashlib
import re
from asyncio import gather
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from chimes.errors import Conflict, InvalidInput, NotAllowed, NotFound
from chimes.i18n import _
from chimes.model.access import Actor, Owner
from chimes.model.audit import AuditEntry, entry
from chimes.model.ids import RunId, ScheduleId
from chimes.model.insights import (
    ERROR_KEY_LENGTH,
    AttentionList,
    IssueCause,
    ScheduleAttention,
    ScheduleIssue,
)
from chimes.model.listing import DeliveryQuery, RunQuery, ScheduleQuery
from chimes.model.notification import Delivery, DeliveryState
from chimes.model.recipient import Channel
from chimes.model.run import FAILED_STATUSES, Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.model.validation import check_text
from chimes.services.documents import Document, DocumentStore
from chimes.store.port import Store
from chimes.triggers.values import format_moment, parse_moment

#: Marks of one owner, and of all. The oldest mark of the owner with the most marks is dropped.
MAX_MARKS = 100
MAX_ALL_MARKS = 500
MAX_NOTE = 300
_KNOWN_FAILURES_STATE = "known-failures"


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownFailure:
    """A failure marked as known, with the user's note."""

    run_id: RunId
    #: Owner of the schedule; empty in old documents.
    owner: str
    #: Fingerprint of the error.
    error: str
    #: A success after this time ends the mark.
    failed_at: datetime
    note: str
    by: str
    at: datetime


def is_still_known(known: KnownFailure, schedule: Schedule) -> bool:
    """Whether the schedule still fails with the same error and has not succeeded since."""
    if schedule.last_success_at is not None and schedule.last_success_at > known.failed_at:
        return False
    return known.error == fingerprint(schedule.last_error)


def covers_run(known: KnownFailure, run: Run) -> bool:
    """Whether the failure of this run was marked, itself or as the same error of its schedule."""
    return known.run_id == run.id or (
        run.schedule_id is not None and known.error == fingerprint(run.error)
    )


def fingerprint(error: str) -> str:
    """A hash of the part of an error by which lists group errors."""
    return hashlib.blake2b(
        error[:ERROR_KEY_LENGTH].encode(errors="replace"), digest_size=12
    ).hexdigest()


class KnownFailures:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._document = DocumentStore(store, _KNOWN_FAILURES_STATE)

    async def get_all(self) -> dict[ScheduleId, KnownFailure]:
        """The marks of all owners. Show them only with schedules that the actor may see."""
        return _read(await self._document.read())

    async def get(self, schedule: Schedule) -> KnownFailure | None:
        """The mark of the current failure."""
        known = (await self.get_all()).get(schedule.id)
        return known if known is not None and is_still_known(known, schedule) else None

    async def get_for_run(self, run: Run) -> KnownFailure | None:
        """The mark of a run's failure, if it applies to this run."""
        if run.schedule_id is None:
            return (await self.get_all()).get(mark_key(run))
        schedule = await self._store.get_schedule(run.schedule_id)
        known = None if schedule is None else await self.get(schedule)
        return known if known is not None and known.error == fingerprint(run.error) else None

    async def mark(self, actor: Actor, run: Run, note: str) -> KnownFailure:
        """Marks the failure of a run that the actor may see: it is acknowledged. Raises Conflict if
        the run has not failed. A run without schedule is marked for itself."""
        owner = await self._check(actor, run)
        if run.status not in FAILED_STATUSES:
            raise Conflict(_("this run has not failed"), code="not_failed")
        note = check_text(note.strip(), "reason")
        if len(note) > MAX_NOTE:
            raise InvalidInput(
                _("at most {most} characters", most=MAX_NOTE), field="reason", code="too_long"
            )
        now = await self._store.now()
        known = KnownFailure(
            run_id=run.id,
            owner=str(owner),
            error=fingerprint(run.error),
            failed_at=run.finished_at or run.created_at,
            note=note,
            by=actor.name,
            at=now,
        )
        audit = _audit_entry(actor, run, "mark_known", now, note)

        def add(document: Document) -> tuple[Document, AuditEntry]:
            marks = _read(document)
            marks.pop(mark_key(run), None)
            marks[mark_key(run)] = known
            return _to_document(_within_bounds(marks)), audit

        await self._document.change(add)
        return known

    async def unmark(self, actor: Actor, run: Run) -> None:
        """Removes the mark."""
        await self._check(actor, run)
        audit = _audit_entry(actor, run, "unmark_known", await self._store.now(), "")

        def remove(document: Document) -> tuple[Document, AuditEntry]:
            marks = _read(document)
            marks.pop(mark_key(run), None)
            return _to_document(marks), audit

        await self._document.change(remove)

    async def _check(self, actor: Actor, run: Run) -> Owner:
        """The owner of the failure, which the actor may mark."""
        if run.schedule_id is None:
            if not actor.may_see(run.owner):
                raise NotFound(_("run {id} not found", id=run.id))
            if not actor.may_operate(run.owner):
                raise NotAllowed()
            return run.owner
        schedule = await self._store.get_schedule(run.schedule_id)
        if schedule is None or schedule.deleted_at or not actor.may_see(schedule.owner):
            raise NotFound(_("schedule {id} not found", id=run.schedule_id))
        if not actor.may_operate(schedule.owner):
            raise NotAllowed()
        return schedule.owner


def mark_key(run: Run) -> ScheduleId:
    """Under which a mark is stored: the schedule, or the run that has none."""
    return run.schedule_id or ScheduleId(run.id)


def _audit_entry(actor: Actor, run: Run, verb: str, now: datetime, reason: str) -> AuditEntry:
    changes = {"schedule_id": run.schedule_id}
    return entry(
        actor, verb, "run", run.id, at=now, owner=run.owner, changes=changes, reason=reason
    )


def _within_bounds(marks: Mapping[ScheduleId, KnownFailure]) -> dict[ScheduleId, KnownFailure]:
    """Drops the oldest marks beyond the limits; `marks` is ordered by age."""
    left = dict(marks)
    counts = Counter(each.owner for each in marks.values())
    while counts:
        owner, count = counts.most_common(1)[0]
        if count <= MAX_MARKS and len(left) <= MAX_ALL_MARKS:
            break
        del left[next(name for name, each in left.items() if each.owner == owner)]
        counts[owner] -= 1
    return left


def _to_document(marks: Mapping[ScheduleId, KnownFailure]) -> Document:
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
        for name, each in marks.items()
    }


def _read(document: Document) -> dict[ScheduleId, KnownFailure]:
    """Empty if corrupt."""
    try:
        return {ScheduleId(name): _mark(each) for name, each in document.items()}
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


# --- snoozes --------------------------------------------------------------------------------------
SNOOZE_DURATION = timedelta(hours=24)
#: Snoozes of one owner; the oldest are dropped.
MAX_SNOOZES = 200
_SNOOZE_STATE = "snoozed:"


@dataclass(frozen=True, kw_only=True, slots=True)
class Snooze:
    """Hides issues of this cause and less severe ones."""

    cause: IssueCause
    until: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Suppression:
    """Why an issue of a schedule is hidden."""

    snooze: Snooze | None = None
    known: KnownFailure | None = None


Snoozes = Mapping[ScheduleId, Snooze]


class SnoozeService:
    """Hides issues of a schedule for one owner."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get_suppressions(self, actor: Actor, now: datetime) -> dict[ScheduleId, Suppression]:
        """The input of `without_suppressed`."""
        snoozes, known = await gather(
            self._snoozes(actor, now), KnownFailures(self._store).get_all()
        )
        return {
            name: Suppression(snooze=snoozes.get(name), known=known.get(name))
            for name in snoozes.keys() | known.keys()
        }

    async def _snoozes(self, actor: Actor, now: datetime) -> dict[ScheduleId, Snooze]:
        """Snoozes that have not expired."""
        return _read_snoozes(await self._document(actor).read(), now)

    async def snooze(self, actor: Actor, schedule_id: ScheduleId, cause: IssueCause) -> datetime:
        """Snoozes for SNOOZE_DURATION and returns the end. Raises NotFound."""
        now = await self._store.now()
        until = now + SNOOZE_DURATION
        changes = {"cause": cause.value, "until": format_moment(until)}
        snooze = Snooze(cause=cause, until=until)
        await self._replace(actor, schedule_id, {schedule_id: snooze}, "snooze", now, changes)
        return until

    async def unsnooze(self, actor: Actor, schedule_id: ScheduleId) -> None:
        """Shows the issues again. Raises NotFound."""
        await self._replace(actor, schedule_id, {}, "wake", await self._store.now(), {})

    async def _replace(
        self,
        actor: Actor,
        schedule_id: ScheduleId,
        by: Snoozes,
        verb: str,
        now: datetime,
        changes: Mapping[str, object],
    ) -> None:
        """Replaces the snooze of a schedule."""
        schedule = await self._store.get_schedule(schedule_id)
        if schedule is None or schedule.deleted_at or not actor.may_see(schedule.owner):
            raise NotFound(_("schedule {id} not found", id=schedule_id))
        # Every role may snooze, but a key with scopes only what they allow.
        if actor.scopes and not actor.may_operate(schedule.owner):
            raise NotAllowed()
        audit = entry(
            actor, verb, "schedule", schedule_id, at=now, owner=schedule.owner, changes=changes
        )

        def replaced(document: Document) -> tuple[Document, AuditEntry]:
            snoozes = _read_snoozes(document, now)
            snoozes.pop(schedule_id, None)
            newest = [*snoozes.items(), *by.items()][-MAX_SNOOZES:]
            return _snoozes_to_document(dict(newest)), audit

        await self._document(actor).change(replaced)

    def _document(self, actor: Actor) -> DocumentStore:
        return DocumentStore(self._store, f"{_SNOOZE_STATE}{actor.owner}")


def without_suppressed(
    found: AttentionList, suppressions: Mapping[ScheduleId, Suppression], limit: int
) -> AttentionList:
    """The list without suppressed issues; `found` must have that many more than `limit`."""
    visible = tuple(each for each in found.items if not _hidden(each, suppressions))
    return AttentionList(
        total=found.total - (len(found.items) - len(visible)), items=visible[:limit]
    )


def _hidden(found: ScheduleAttention, suppressions: Mapping[ScheduleId, Suppression]) -> bool:
    why = suppressions.get(found.schedule.id)
    if why is None:
        return False
    cause = found.sign.cause
    failing = cause in (IssueCause.FAILING, IssueCause.REFUSED)
    if why.known is not None and failing and is_still_known(why.known, found.schedule):
        return True
    most_severe_first = list(IssueCause)
    return why.snooze is not None and (
        most_severe_first.index(cause) >= most_severe_first.index(why.snooze.cause)
    )


def _snoozes_to_document(snoozes: Snoozes) -> Document:
    return {name: [each.cause.value, format_moment(each.until)] for name, each in snoozes.items()}


def _read_snoozes(document: Mapping[str, Any], now: datetime) -> dict[ScheduleId, Snooze]:
    """Snoozes that have not expired; empty if corrupt."""
    try:
        snoozes = {
            ScheduleId(name): Snooze(cause=IssueCause(cause), until=parse_moment(until, "UTC"))
            for name, (cause, until) in document.items()
        }
    except (ValueError, TypeError, AttributeError, InvalidInput):
        return {}
    return {name: each for name, each in snoozes.items() if each.until > now}


# --- refused credentials --------------------------------------------------------------------------
# Secrets and tokens refused by the receiver of a schedule's calls or by a notification channel,
# found among the newest failures.

RECENT = timedelta(hours=24)
#: Newest runs and deliveries that are searched.
MAX_SEARCHED = 50
#: Codes of deliveries that failed authentication.
CODES = frozenset({"bad_token", "blocked", "bad_login", "http_401", "http_403"})
#: The error texts of HTTP targets; the status code is not stored separately.
_ANSWER = re.compile(r"(?:^|answered )HTTP (?:401|403)\b")


@dataclass(frozen=True, kw_only=True, slots=True)
class CredentialRefusal:
    found: ScheduleAttention
    #: The channel that refused; None: the receiver of the calls.
    channel: Channel | None
    #: The stored error, in English.
    error: str


def is_authentication_error(error: str) -> bool:
    return _ANSWER.search(error) is not None


async def credential_refusals(
    store: Store, actor: Actor, now: datetime, *, any_failed: bool = True
) -> tuple[CredentialRefusal, ...]:
    """One per schedule, newest first. `any_failed`: whether any run of the last day has failed."""
    owner = None if actor.sees_all_owners else actor.owner
    refused_runs, refused_deliveries = await gather(
        _refused_runs(store, owner, now) if any_failed else _none(),
        _refused_deliveries(store, owner, now),
    )
    names = dict.fromkeys([*refused_runs, *refused_deliveries])
    if not names:
        return ()
    wanted = ScheduleQuery(owner=owner, ids=tuple(names), limit=None)
    found: list[CredentialRefusal] = []
    for schedule in (await store.list_schedules(wanted)).items:
        run_id = refused_runs.get(schedule.id)
        if run_id is not None and _last_run_refused(schedule):
            found.append(_by_receiver(schedule, run_id, now))
        elif schedule.id in refused_deliveries:
            found.append(_by_channel(schedule, refused_deliveries[schedule.id]))
    return tuple(sorted(found, key=lambda each: each.found.sign.at, reverse=True))


def _last_run_refused(schedule: Schedule) -> bool:
    """Whether the last run, not an earlier one, was refused."""
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


def _by_channel(schedule: Schedule, refused: Sequence[Delivery]) -> CredentialRefusal:
    newest = refused[0]
    sign = ScheduleIssue(
        schedule_id=schedule.id,
        cause=IssueCause.REFUSED,
        at=newest.finished_at or newest.created_at,
        count=len(refused),
        run_id=newest.run_id,
    )
    found = ScheduleAttention(schedule=schedule, sign=sign)
    return CredentialRefusal(found=found, channel=newest.recipient.channel, error=newest.error)


async def _none() -> dict[ScheduleId, RunId]:
    return {}


async def _refused_runs(
    store: Store, owner: Owner | None, now: datetime
) -> dict[ScheduleId, RunId]:
    """The newest refused run of each schedule."""
    query = RunQuery(
        owner=owner, statuses=(RunStatus.FAILED,), created_since=now - RECENT, limit=MAX_SEARCHED
    )
    found: dict[ScheduleId, RunId] = {}
    for run in (await store.list_runs(query)).items:
        if run.schedule_id is not None and is_authentication_error(run.error):
            found.setdefault(run.schedule_id, run.id)
    return found


async def _refused_deliveries(
    store: Store, owner: Owner | None, now: datetime
) -> dict[ScheduleId, list[Delivery]]:
    """Refused deliveries without a later successful one to the same recipient, newest first."""
    dead, waiting = await gather(
        _newest(store, owner, DeliveryState.DEAD), _newest(store, owner, DeliveryState.PENDING)
    )
    refused = [
        each
        for each in sorted((*dead, *waiting), key=lambda each: each.created_at, reverse=True)
        if each.code in CODES and each.created_at >= now - RECENT
    ]
    if not refused:
        return {}
    taken = _last_delivered(await _newest(store, owner, DeliveryState.DELIVERED))
    found: dict[ScheduleId, list[Delivery]] = {}
    for each in refused:
        later = taken.get((each.schedule_id, each.recipient.channel, each.recipient.to))
        if each.schedule_id is not None and (later is None or later < each.created_at):
            found.setdefault(each.schedule_id, []).append(each)
    return found


async def _newest(store: Store, owner: Owner | None, state: DeliveryState) -> tuple[Delivery, ...]:
    query = DeliveryQuery(owner=owner, states=(state,), limit=MAX_SEARCHED)
    return (await store.list_deliveries(query)).items


def _last_delivered(
    delivered: Iterable[Delivery],
) -> dict[tuple[ScheduleId | None, Channel, str], datetime]:
    found: dict[tuple[ScheduleId | None, Channel, str], datetime] = {}
    for each in delivered:
        place = each.schedule_id, each.recipient.channel, each.recipient.to
        found.setdefault(place, each.created_at)
    return found
