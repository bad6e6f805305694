"""Fire log of a schedule: its runs and its changes, and decisions in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from chimes.clock import MICROSECOND, to_micros
from chimes.errors import NotFound
from chimes.i18n import Message, _, counted, joined
from chimes.model import replace
from chimes.model.access import Actor
from chimes.model.audit import AuditEntry
from chimes.model.ids import ScheduleId
from chimes.model.listing import AuditQuery, Position, RunQuery, RunSort
from chimes.model.policy import Misfire
from chimes.model.run import Cause, Origin, Reason, Run, RunStatus, describe_reason
from chimes.model.schedule import Schedule
from chimes.store.port import Store
from chimes.triggers import Absence


class Decision(StrEnum):
    """What happened to a slot, or what changed between slots."""

    FIRED = "fired"
    SKIPPED = "skipped"
    MISSED = "missed"
    MANUAL = "manual"
    BACKFILL = "backfill"
    PAUSED = "paused"
    RESUMED = "resumed"
    MOVED = "moved"
    #: The rule has no time there, such as a polar day without a sunset.
    ABSENT = "absent"
    #: Any other change; the verb of the audit entry says which.
    CHANGED = "changed"


_BY_STATUS = {RunStatus.SKIPPED: Decision.SKIPPED, RunStatus.MISSED: Decision.MISSED}
_BY_ORIGIN = {
    Origin.SCHEDULE: Decision.FIRED,
    Origin.MANUAL: Decision.MANUAL,
    Origin.BACKFILL: Decision.BACKFILL,
    Origin.CHILD: Decision.FIRED,
    Origin.EVENT: Decision.FIRED,
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
NOT_EXECUTED = (RunStatus.SKIPPED, RunStatus.MISSED)
_NOT_EXECUTED_VERBS = ("pause", "skip")
#: Verbs that can pause or resume a schedule.
SWITCH_VERBS = ("pause", "resume", "update")
#: Audit entries of one schedule that are read at once, the newest ones.
MAX_AUDIT_ENTRIES = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class FireLogFilter:
    """`not_run`: only slots that were not executed. From `since` to just before `until`."""

    not_run: bool = False
    since: datetime | None = None
    until: datetime | None = None


UNFILTERED = FireLogFilter()


@dataclass(frozen=True, kw_only=True, slots=True)
class FireLogEntry:
    """Either a run, a change (an audit entry), or a time at which the rule has no slot."""

    at: datetime
    decision: Decision
    run: Run | None = None
    note: AuditEntry | None = None
    absence: Absence | None = None

    @property
    def reason(self) -> str:
        """The `Reason` code of a run, or the text that the author of a change entered."""
        if self.run is not None:
            return self.run.reason
        return self.note.reason if self.note is not None else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class FireLogPosition:
    """The last entry of a page in each of the two sources."""

    run: Position | None = None
    note: int | None = None
    #: The time of the last entry.
    at: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FireLogPage:
    entries: tuple[FireLogEntry, ...]
    next: FireLogPosition | None


async def fire_log(
    store: Store,
    actor: Actor,
    schedule_id: ScheduleId,
    *,
    only: FireLogFilter = UNFILTERED,
    after: FireLogPosition | None,
    limit: int,
) -> FireLogPage:
    """Runs and changes of a schedule, newest first, without denied changes.

    With `since` the last page also has what was decided before and was still in effect: a range of
    missed slots, a pause. Raises NotFound also if the actor may not see the schedule.
    """
    schedule = await visible_schedule(store, actor, schedule_id)
    after = after or FireLogPosition()
    all_runs, all_changes = run_query(actor, schedule_id), audit_query(actor, schedule_id)
    runs = await store.list_runs(
        replace(
            all_runs,
            statuses=NOT_EXECUTED if only.not_run else (),
            since=only.since,
            until=only.until,
            after=after.run,
            limit=limit + 1,
        )
    )
    changes = await store.list_audit(
        replace(
            all_changes,
            verbs=_NOT_EXECUTED_VERBS if only.not_run else None,
            since=only.since,
            until=None if only.until is None else only.until - MICROSECOND,
            before=after.note,
            limit=limit + 1,
        )
    )
    merged = sorted(
        [*map(run_entry, runs.items), *map(_change_entry, changes)],
        key=lambda each: each.at,
        reverse=True,
    )
    entries = merged[:limit]
    more = len(merged) > limit
    position = FireLogPosition(
        run=_last_run(entries) or after.run,
        note=_last_change(entries) or after.note,
        at=entries[-1].at if entries else after.at,
    )
    since = entries[-1].at if more else only.since
    absent = await _absences(store, all_changes, schedule, only, since=since, until=after.at)
    entries = sorted([*entries, *absent], key=lambda each: each.at, reverse=True)
    if len(merged) <= limit and only.since is not None:
        entries += await _still_in_effect(store, all_runs, all_changes, only.since)
    visible = (_visible_entry(actor, each) for each in entries)
    return FireLogPage(
        entries=tuple(each for each in visible if each is not None),
        next=position if len(merged) > limit else None,
    )


async def _absences(
    store: Store,
    changes: AuditQuery,
    schedule: Schedule,
    only: FireLogFilter,
    *,
    since: datetime | None,
    until: datetime | None,
) -> list[FireLogEntry]:
    """Times of a page at which the trigger has no slot, since it is the trigger of the schedule."""
    if schedule.trigger.kind not in _ABSENT_KINDS or schedule.deleted_at is not None:
        return []
    begins = max(filter(None, (schedule.created_at, since)))
    for each in await store.list_audit(replace(changes, limit=MAX_AUDIT_ENTRIES)):
        if "trigger" in each.changes and each.verb != "create":
            begins = max(begins, each.at)
            break
    ends = min(filter(None, (until, only.until, await store.now())))
    if begins >= ends:
        return []
    found = schedule.trigger.absences(begins, ends - MICROSECOND)
    return [FireLogEntry(at=each.at, decision=Decision.ABSENT, absence=each) for each in found]


async def visible_schedule(store: Store, actor: Actor, schedule_id: ScheduleId) -> Schedule:
    schedule = await store.get_schedule(schedule_id)
    if schedule is None or not actor.may_read(schedule.owner):
        raise NotFound(_("schedule {id} not found", id=schedule_id))
    return schedule


def run_query(actor: Actor, schedule_id: ScheduleId) -> RunQuery:
    owner = None if actor.sees_all_owners else actor.owner
    return RunQuery(schedule_id=schedule_id, owner=owner, sort=RunSort.CREATED_AT)


def audit_query(actor: Actor, schedule_id: ScheduleId) -> AuditQuery:
    owner = None if actor.sees_all_owners else str(actor.owner)
    return AuditQuery(object_id=schedule_id, owner=owner)


async def _still_in_effect(
    store: Store, runs: RunQuery, changes: AuditQuery, since: datetime
) -> list[FireLogEntry]:
    """Decisions before `since` that were still in effect: a range of missed slots, a pause."""
    missed = await store.list_runs(
        replace(runs, statuses=(RunStatus.MISSED,), until=since, sort=RunSort.PLANNED_AT, limit=1)
    )
    candidates = await store.list_audit(
        replace(changes, verbs=SWITCH_VERBS, until=since - MICROSECOND, limit=MAX_AUDIT_ENTRIES)
    )
    last = next((each for each in candidates if each.allowed and _switches(each)), None)
    return [
        *(
            run_entry(each)
            for each in missed.items
            if (each.missed_until or each.planned_at) >= since
        ),
        *([_change_entry(last)] if last is not None and is_pause(last) else []),
    ]


def _switches(change: AuditEntry) -> bool:
    return change.verb != "update" or "enabled" in change.changes


def is_pause(change: AuditEntry) -> bool:
    return change.verb == "pause" or change.changes.get("enabled") == [True, False]


def _visible_entry(actor: Actor, entry: FireLogEntry) -> FireLogEntry | None:
    """Network addresses are shown to operators only, as in the audit log."""
    if entry.note is None or actor.sees_everything:
        return entry if entry.note is None or entry.note.allowed else None
    return replace(entry, note=replace(entry.note, address="")) if entry.note.allowed else None


def run_entry(run: Run) -> FireLogEntry:
    decision = _BY_STATUS.get(run.status) or _BY_ORIGIN[run.origin]
    return FireLogEntry(at=run.created_at, decision=decision, run=run)


def _change_entry(change: AuditEntry) -> FireLogEntry:
    decision = _BY_VERB.get(change.verb, Decision.CHANGED)
    return FireLogEntry(at=change.at, decision=decision, note=change)


def _last_run(entries: list[FireLogEntry]) -> Position | None:
    runs = [each.run for each in entries if each.run is not None]
    return (to_micros(runs[-1].created_at), runs[-1].id) if runs else None


def _last_change(entries: list[FireLogEntry]) -> int | None:
    changes = [each.note for each in entries if each.note is not None]
    return changes[-1].number if changes else None


#: Kinds of triggers whose rule may have no time in a month or on a day.
_ABSENT_KINDS = ("business_day", "sun", "any")


def describe_absence(absence: Absence) -> Message:
    match absence.reason:
        case "no_business_day":
            return _("The month has no business day {number}.", number=absence.number)
        case "no_sunrise":
            return _("The sun does not rise on this day.")
        case _:
            return _("The sun does not set on this day.")


# --- decisions in words ---------------------------------------------------------------------------
_MISFIRE_LABELS: Mapping[Misfire, Message] = {
    Misfire.SKIP: _("skip"),
    Misfire.ONE: _("run once"),
    Misfire.LATEST: _("run the newest"),
    Misfire.ALL: _("run all"),
}


_CAUSES: Mapping[str, Message] = {
    "webhook": _("a webhook"),
    "run_end": _("the end of a run"),
    "file": _("a file"),
    "sql": _("a SQL condition"),
}


def describe_cause(cause: Cause) -> Message:
    """A sentence about the event that started a run."""
    values = {"what": _CAUSES.get(cause.kind, cause.kind), "delivery": cause.delivery_id}
    # The source of a webhook without signatures is its scheme, `none`.
    if cause.source in ("", "none"):
        sentence = _("Started by {what}, delivery {delivery}.", **values)
    else:
        sentence = _(
            "Started by {what}: {source}, delivery {delivery}.", source=cause.source, **values
        )
    if cause.events < 2:
        return sentence
    count = counted("It stands for {count} event.", "It stands for {count} events.", cause.events)
    return joined(" ", [sentence, count])


def outcome_reason(run: Run) -> str:
    """Why a run ended without an error; a sentence if it never started."""
    match run.status:
        case RunStatus.SKIPPED:
            return _skipped(run)
        case RunStatus.MISSED:
            return _missed(run)
        case _:
            return describe_reason(run.reason)


def _skipped(run: Run) -> Message:
    if run.reason == Reason.THROTTLED:
        return counted(
            "{count} event dropped: it came too soon after the one before.",
            "{count} events dropped: they came too soon after the one before.",
            run.missed_count,
        )
    return _("Skipped: {reason}.", reason=describe_reason(run.reason))


def _missed(run: Run) -> Message:
    policy = _MISFIRE_LABELS[run.policy.misfire]
    if run.missed_count > 1:
        return counted(
            "{count} run missed: no node was running. Misfire policy: {policy}.",
            "{count} runs missed: no node was running. Misfire policy: {policy}.",
            run.missed_count,
            policy=policy,
        )
    return _(
        "Missed: no node was running. Misfire policy: {policy}.",
        policy=policy,
    )


def describe_decision(entry: FireLogEntry, run: Run, user: str | None = None) -> Message:
    """A sentence about the decision that made this run; `user` requested it."""
    match entry.decision:
        case Decision.SKIPPED:
            return _skipped(run)
        case Decision.MISSED:
            return _missed(run)
        case Decision.MANUAL if user:
            return _("Requested by {user}.", user=user)
        case Decision.MANUAL:
            return _("Requested manually.")
        case Decision.BACKFILL:
            return _("Backfill of a past slot.")
        case _ if run.definition.cause is not None and not run.reason:
            return describe_cause(run.definition.cause)
        case _ if run.reason == Reason.CATCH_UP or run.catch_up:
            return _("Late: catches up a missed slot.")
        case _ if run.reason:
            return _("Due, but ended: {reason}.", reason=describe_reason(run.reason))
        case _ if run.blocked and run.status is RunStatus.QUEUED:
            return _("Due; waits for the previous run.")
        case _:
            return _("Due; started.")
