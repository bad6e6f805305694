"""What became of a schedule's slots, one after the other: its runs, those that did not happen
included, with who changed what in between. It answers "why not last night?"."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from chimes.errors import NotFound
from chimes.model.access import Actor
from chimes.model.audit import AuditEntry
from chimes.model.ids import ScheduleId
from chimes.model.listing import AuditQuery, Position, RunQuery, RunSort
from chimes.model.run import Origin, Run, RunStatus
from chimes.store.plain import to_micros
from chimes.store.port import Store
from chimes.wording import say


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
        raise NotFound(say("schedule {id} not found", id=schedule_id))
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
