"""Slots of schedules, past and to come, as the services show and use them."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from chimes.errors import Conflict, InvalidInput, NotFound
from chimes.i18n import _
from chimes.model.access import Actor
from chimes.model.audit import AuditEntry
from chimes.model.ids import ScheduleId
from chimes.model.listing import AuditQuery, Position, RunQuery, RunSort
from chimes.model.planning import ended_at_once, slot_run
from chimes.model.policy import Overlap
from chimes.model.run import Origin, Reason, Run, RunStatus
from chimes.model.schedule import Schedule, due_time, runs_left
from chimes.model.target import SyncTarget
from chimes.redaction import HIDDEN, masked_url
from chimes.store.codec.schedule import schedule_from_plain, schedule_to_plain
from chimes.store.json_values import to_micros
from chimes.store.port import Store

BACKFILL_LIMIT = 1000
#: What a backfill can do about other runs of its schedule; to skip or stop them would undo what it
#: is there for.
BACKFILL_OVERLAPS = (Overlap.QUEUE, Overlap.ALLOW)
UPCOMING_LIMIT = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Upcoming:
    schedule: Schedule
    at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Backfill:
    """The slots of a range, those that are recorded already, and the runs made for the rest."""

    slots: tuple[datetime, ...]
    runs: tuple[Run, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """How the runs of a backfill go together."""

    #: At most so many at a time; None: as the schedule has it, or any number beside it.
    concurrency: int | None = None
    #: `queue`: they and other runs of the schedule share its places; `allow`: beside those.
    overlap: Overlap = Overlap.QUEUE


AS_THE_SCHEDULE = Pace()


def check_pace(pace: Pace) -> None:
    if pace.overlap not in BACKFILL_OVERLAPS:
        raise InvalidInput(
            _(
                "a backfill waits for other runs of the schedule (queue) or runs beside them "
                "(allow), it does not {overlap}",
                overlap=pace.overlap.value,
            ),
            field="overlap",
            code="not_for_backfill",
        )
    if pace.concurrency is not None and not 1 <= pace.concurrency <= BACKFILL_LIMIT:
        raise InvalidInput(
            _("between {least} and {most}", least=1, most=BACKFILL_LIMIT),
            field="concurrency",
            code="out_of_range",
        )


def paced(run: Run, pace: Pace, group: str) -> Run:
    """`group`: a key that only runs of this backfill have."""
    beside = pace.overlap is Overlap.ALLOW or run.concurrency_key is None
    if pace.concurrency is None:
        return replace(run, concurrency_key=None) if beside else run
    if beside:
        return replace(run, concurrency_key=group, concurrency_limit=pace.concurrency)
    # A limit that others share is not this backfill's to lift.
    shared = run.concurrency_key != f"schedule:{run.schedule_id}"
    limit = min(pace.concurrency, run.concurrency_limit) if shared else pace.concurrency
    return replace(run, concurrency_limit=limit)


def upcoming_fires(
    schedules: Iterable[Schedule], until: datetime, *, limit: int = UPCOMING_LIMIT
) -> list[Upcoming]:
    """Soonest first, at most `limit`; no more fires are computed than are answered."""
    waiting = [
        (schedule.next_run_at, schedule.id, schedule.next_slot, schedule)
        for schedule in schedules
        if schedule.next_run_at is not None and schedule.next_slot is not None
    ]
    heapq.heapify(waiting)
    found: list[Upcoming] = []
    fired: Counter[str] = Counter()
    while waiting and waiting[0][0] <= until and len(found) < limit:
        at, schedule_id, slot, schedule = waiting[0]
        found.append(Upcoming(schedule=schedule, at=at))
        fired[schedule_id] += 1
        following = schedule.trigger.next_after(slot)
        due = due_time(schedule, following)
        if following is None or due is None or not runs_left(schedule, fired[schedule_id]):
            heapq.heappop(waiting)
        else:
            heapq.heapreplace(waiting, (due, schedule_id, following, schedule))
    return found


class SlotIsDue(Exception):
    """A change that moves the cursor has to wait until the slot it stands on is fired."""


def left_behind(
    before: Schedule, after: Schedule, now: datetime, *, held: bool = False
) -> list[Run]:
    """F55: a slot belongs to the version that was current at its instant. A change that moves the
    cursor away from a slot whose instant has passed must leave a row for it: one that is due is
    fired first; one that only waits for its jitter becomes a run that waits as long, or, if the
    schedule is switched off, a skipped one. `held`: it was not to be fired yet, by what the
    schedulers were told, and is left as skipped (R1.38)."""
    slot, due = before.next_slot, before.next_run_at
    if slot is None or due is None or slot > now:
        return []
    if due <= now and not held:
        raise SlotIsDue
    run = replace(slot_run(before, slot, now), concurrency_key=None)
    if held or not after.enabled:
        return [ended_at_once(run, RunStatus.SKIPPED, Reason.PAUSED, now)]
    if isinstance(run.target, SyncTarget):
        # Without its key it could be the second of its pair; with it, nobody would look (R4.18).
        return [ended_at_once(run, RunStatus.SKIPPED, Reason.SKIPPED_BY_HAND, now)]
    return [run]


def planned_slot(schedule: Schedule) -> datetime:
    if schedule.next_slot is None:
        raise Conflict(_("nothing is planned for this schedule"), code="nothing_planned")
    return schedule.next_slot


def past_slots(schedule: Schedule, start: datetime, end: datetime) -> list[datetime]:
    if schedule.purged_until is not None:
        start = max(start, schedule.purged_until + timedelta(microseconds=1))
    slots: list[datetime] = []
    slot = schedule.trigger.next_after(start - timedelta(microseconds=1))
    while slot is not None and slot <= end:
        if len(slots) == BACKFILL_LIMIT:
            raise InvalidInput(
                _(
                    "more than {most} slots lie in this range; take a shorter one",
                    most=BACKFILL_LIMIT,
                ),
                field="to",
                code="too_many",
            )
        slots.append(slot)
        slot = schedule.trigger.next_after(slot)
    return slots


# @@ What became of a schedule's slots, one after the other: its runs, those that did not happen
# included, with who changed what in between. It answers "why not last night?".


class Decision(StrEnum):
    FIRED = "fired"
    SKIPPED = "skipped"
    MISSED = "missed"
    MANUAL = "manual"
    BACKFILL = "backfill"
    #: Somebody changed the schedule, or what comes next: the entry's verb says how.
    PAUSED = "paused"
    RESUMED = "resumed"
    MOVED = "moved"
    CHANGED = "changed"


_BY_STATUS = {RunStatus.SKIPPED: Decision.SKIPPED, RunStatus.MISSED: Decision.MISSED}
_BY_ORIGIN = {
    Origin.SCHEDULE: Decision.FIRED,
    Origin.MANUAL: Decision.MANUAL,
    Origin.BACKFILL: Decision.BACKFILL,
    Origin.CHILD: Decision.FIRED,
}
_BY_VERB = {
    "pause": Decision.PAUSED,
    "resume": Decision.RESUMED,
    "move": Decision.MOVED,
    "reschedule": Decision.MOVED,
    "skip": Decision.SKIPPED,
    "run": Decision.MANUAL,
    "backfill": Decision.BACKFILL,
}
#: What does not run, and by which word of the audit.
_NOT_RUN = (RunStatus.SKIPPED, RunStatus.MISSED)
_NOT_RUN_VERBS = ("pause", "skip")
_SWITCHING = ("pause", "resume", "update")
#: Changes that are looked through for the last one that switched it on or off.
_LOOKED_THROUGH = 50
_MOMENT = timedelta(microseconds=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class FireLogWish:
    """What of it is wanted: all, only what did not run, only times from `since` to just before
    `until`."""

    not_run: bool = False
    since: datetime | None = None
    until: datetime | None = None


EVERYTHING = FireLogWish()


@dataclass(frozen=True, kw_only=True, slots=True)
class FireLogEntry:
    """A run with `run`, a change with `note`: never both."""

    at: datetime
    decision: Decision
    run: Run | None = None
    note: AuditEntry | None = None

    @property
    def reason(self) -> str:
        """Of a run a stable code (`Reason`), of a change what its author wrote."""
        if self.run is not None:
            return self.run.reason
        return self.note.reason if self.note is not None else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class FireLogPosition:
    """Where a page ended, in each of the two lists."""

    run: Position | None = None
    note: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FireLogPage:
    entries: tuple[FireLogEntry, ...]
    next: FireLogPosition | None


async def fire_log(
    store: Store,
    actor: Actor,
    schedule_id: ScheduleId,
    *,
    wish: FireLogWish = EVERYTHING,
    after: FireLogPosition | None,
    limit: int,
) -> FireLogPage:
    """Newest first; refused changes are not in it. NotFound, also for what others own."""
    schedule = await store.get_schedule(schedule_id)
    if schedule is None or not actor.may_see(schedule.owner):
        raise NotFound(_("schedule {id} not found", id=schedule_id))
    after = after or FireLogPosition()
    asked_runs, asked_notes = _runs_of(actor, schedule_id), _notes_of(actor, schedule_id)
    runs = await store.list_runs(
        replace(
            asked_runs,
            statuses=_NOT_RUN if wish.not_run else (),
            since=wish.since,
            until=wish.until,
            after=after.run,
            limit=limit + 1,
        )
    )
    notes = await store.list_audit(
        replace(
            asked_notes,
            verbs=_NOT_RUN_VERBS if wish.not_run else None,
            since=wish.since,
            until=None if wish.until is None else wish.until - _MOMENT,
            before=after.note,
            limit=limit + 1,
        )
    )
    merged = sorted(
        [*map(_of_run, runs.items), *map(_of_note, notes)], key=lambda each: each.at, reverse=True
    )
    taken = merged[:limit]
    there = FireLogPosition(run=_last_run(taken) or after.run, note=_last_note(taken) or after.note)
    if len(merged) <= limit and wish.since is not None:
        taken += await _held_then(store, asked_runs, asked_notes, wish.since)
    shown = (_seen_by(actor, each) for each in taken)
    return FireLogPage(
        entries=tuple(each for each in shown if each is not None),
        next=there if len(merged) > limit else None,
    )


def _runs_of(actor: Actor, schedule_id: ScheduleId) -> RunQuery:
    owner = None if actor.sees_everything else actor.owner
    return RunQuery(schedule_id=schedule_id, owner=owner, sort=RunSort.CREATED_AT)


def _notes_of(actor: Actor, schedule_id: ScheduleId) -> AuditQuery:
    owner = None if actor.sees_everything else str(actor.owner)
    return AuditQuery(object_id=schedule_id, owner=owner)


async def _held_then(
    store: Store, runs: RunQuery, notes: AuditQuery, since: datetime
) -> list[FireLogEntry]:
    """What was decided before and was still true at that moment: times that were missed in one go,
    a pause."""
    missed = await store.list_runs(
        replace(runs, statuses=(RunStatus.MISSED,), until=since, sort=RunSort.PLANNED_AT, limit=1)
    )
    switched = await store.list_audit(
        replace(notes, verbs=_SWITCHING, until=since - _MOMENT, limit=_LOOKED_THROUGH)
    )
    last = next((each for each in switched if each.allowed and _switches(each)), None)
    return [
        *(
            _of_run(each)
            for each in missed.items
            if (each.missed_until or each.planned_at) >= since
        ),
        *([_of_note(last)] if last is not None and _switches_off(last) else []),
    ]


def _switches(note: AuditEntry) -> bool:
    return note.verb != "update" or "enabled" in note.changes


def _switches_off(note: AuditEntry) -> bool:
    return note.verb == "pause" or note.changes.get("enabled") == [True, False]


def _seen_by(actor: Actor, entry: FireLogEntry) -> FireLogEntry | None:
    """From where others called is for operators, like the rest of the audit."""
    if entry.note is None or actor.sees_everything:
        return entry if entry.note is None or entry.note.allowed else None
    return replace(entry, note=replace(entry.note, address="")) if entry.note.allowed else None


def _of_run(run: Run) -> FireLogEntry:
    decision = _BY_STATUS.get(run.status) or _BY_ORIGIN[run.origin]
    return FireLogEntry(at=run.created_at, decision=decision, run=run)


def _of_note(note: AuditEntry) -> FireLogEntry:
    return FireLogEntry(at=note.at, decision=_BY_VERB.get(note.verb, Decision.CHANGED), note=note)


def _last_run(entries: list[FireLogEntry]) -> Position | None:
    runs = [each.run for each in entries if each.run is not None]
    return (to_micros(runs[-1].created_at), runs[-1].id) if runs else None


def _last_note(entries: list[FireLogEntry]) -> int | None:
    notes = [each.note for each in entries if each.note is not None]
    return notes[-1].number if notes else None


# @@ Earlier definitions of a schedule, as the audit has them: every change with what was before
# it.
#
# Secrets are not in the audit; a version that is taken up again keeps those of now.

#: What a definition consists of; switches and the cursor are no part of it.
DEFINITION = ("name", "trigger", "target", "policy", "priority", "labels", "depends_on")
#: Entries that are looked at: older versions are not offered.
MOST = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class Version:
    #: The number of its audit entry.
    number: int
    at: datetime
    by: str
    verb: str
    #: Field -> what it was before and after, of the definition only; without secrets.
    changes: Mapping[str, tuple[object, object]]


async def history_of(store: Store, actor: Actor, schedule: Schedule) -> tuple[AuditEntry, ...]:
    """What the audit knows of a schedule that the actor sees, newest first."""
    owner = None if actor.sees_everything else str(actor.owner)
    query = AuditQuery(object_id=schedule.id, owner=owner, limit=MOST)
    entries = await store.list_audit(query)
    return tuple(each for each in entries if each.object_kind == "schedule" and each.allowed)


def versions_of(entries: Sequence[AuditEntry]) -> tuple[Version, ...]:
    """Of entries, newest first: those that changed the definition."""
    found = []
    for entry in entries:
        changes = {
            name: pair
            for name in DEFINITION
            if (pair := _pair(entry.changes.get(name))) is not None
        }
        if changes:
            found.append(
                Version(
                    number=entry.number,
                    at=entry.at,
                    by=entry.actor,
                    verb=entry.verb,
                    changes=changes,
                )
            )
    return tuple(found)


def as_it_was(schedule: Schedule, versions: Sequence[Version], number: int) -> Schedule:
    """`schedule` with the definition that it had after the change of this number. NotFound if that
    is not known; InvalidInput if it had a secret that is gone."""
    if number not in {each.number for each in versions}:
        raise NotFound(_("version {number} not found", number=number))
    now = schedule_to_plain(schedule)
    then = dict(now)
    for version in versions:
        if version.number == number:
            break
        for name, (before, _unused) in version.changes.items():
            then[name] = before
    for name in DEFINITION:
        if then.get(name) != now.get(name):
            then[name] = _with_secrets(then.get(name), now.get(name), name)
    known = {name: value for name, value in then.items() if value is not None}
    old = schedule_from_plain(known)
    return replace(
        schedule,
        name=old.name,
        trigger=old.trigger,
        target=old.target,
        policy=old.policy,
        priority=old.priority,
        labels=old.labels,
        depends_on=old.depends_on,
    )


def _pair(value: object) -> tuple[object, object] | None:
    if isinstance(value, list | tuple) and len(value) == 2:
        return value[0], value[1]
    return None


def _with_secrets(then: object, now: object, place: str) -> object:
    """What was masked has the value of now, if there is one in the same place."""
    if isinstance(then, Mapping):
        there = now if isinstance(now, Mapping) else {}
        return {
            str(name): _with_secrets(value, there.get(name), f"{place}.{name}")
            for name, value in then.items()
        }
    if isinstance(then, list | tuple):
        beside = list(now) if isinstance(now, list | tuple) else []
        return [
            _with_secrets(value, beside[at] if at < len(beside) else None, f"{place}[{at}]")
            for at, value in enumerate(then)
        ]
    if not isinstance(then, str) or HIDDEN not in then:
        return then
    if then == HIDDEN and now is not None:
        return now
    if isinstance(now, str) and masked_url(now) == then:
        return now
    raise InvalidInput(
        _("the secret of that version in {place} is not kept; edit the schedule", place=place),
        field=place,
        code="secret_gone",
    )
