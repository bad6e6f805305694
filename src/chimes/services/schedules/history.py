"""History of a schedule: the fire log of its slots and the earlier versions of its definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from chimes.clock import to_micros
from chimes.egress import parse_http_url
from chimes.errors import InvalidInput, NotFound
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import Actor
from chimes.model.audit import AuditEntry
from chimes.model.ids import ScheduleId
from chimes.model.listing import AuditQuery, Position, RunQuery, RunSort
from chimes.model.run import Origin, Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.model.target import HttpTarget
from chimes.redaction import HIDDEN, masked_names, unmask_text
from chimes.store.codec.values import schedule_from_plain, schedule_to_plain
from chimes.store.port import Store


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
    #: Any other change; the verb of the audit entry says which.
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
_NOT_EXECUTED = (RunStatus.SKIPPED, RunStatus.MISSED)
_NOT_EXECUTED_VERBS = ("pause", "skip")
#: Verbs that can pause or resume a schedule.
_SWITCH_VERBS = ("pause", "resume", "update")
#: Audit entries searched for the last pause or resume.
_MAX_SEARCHED = 50
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class FireLogFilter:
    """`not_run`: only slots that were not executed. From `since` to just before `until`."""

    not_run: bool = False
    since: datetime | None = None
    until: datetime | None = None


UNFILTERED = FireLogFilter()


@dataclass(frozen=True, kw_only=True, slots=True)
class FireLogEntry:
    """Either a run or a change (an audit entry)."""

    at: datetime
    decision: Decision
    run: Run | None = None
    note: AuditEntry | None = None

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
    schedule = await store.get_schedule(schedule_id)
    if schedule is None or not actor.may_see(schedule.owner):
        raise NotFound(_("schedule {id} not found", id=schedule_id))
    after = after or FireLogPosition()
    run_query, audit_query = _run_query(actor, schedule_id), _audit_query(actor, schedule_id)
    runs = await store.list_runs(
        replace(
            run_query,
            statuses=_NOT_EXECUTED if only.not_run else (),
            since=only.since,
            until=only.until,
            after=after.run,
            limit=limit + 1,
        )
    )
    changes = await store.list_audit(
        replace(
            audit_query,
            verbs=_NOT_EXECUTED_VERBS if only.not_run else None,
            since=only.since,
            until=None if only.until is None else only.until - _MICROSECOND,
            before=after.note,
            limit=limit + 1,
        )
    )
    merged = sorted(
        [*map(_run_entry, runs.items), *map(_change_entry, changes)],
        key=lambda each: each.at,
        reverse=True,
    )
    entries = merged[:limit]
    position = FireLogPosition(
        run=_last_run(entries) or after.run, note=_last_change(entries) or after.note
    )
    if len(merged) <= limit and only.since is not None:
        entries += await _still_in_effect(store, run_query, audit_query, only.since)
    visible = (_visible_entry(actor, each) for each in entries)
    return FireLogPage(
        entries=tuple(each for each in visible if each is not None),
        next=position if len(merged) > limit else None,
    )


def _run_query(actor: Actor, schedule_id: ScheduleId) -> RunQuery:
    owner = None if actor.sees_everything else actor.owner
    return RunQuery(schedule_id=schedule_id, owner=owner, sort=RunSort.CREATED_AT)


def _audit_query(actor: Actor, schedule_id: ScheduleId) -> AuditQuery:
    owner = None if actor.sees_everything else str(actor.owner)
    return AuditQuery(object_id=schedule_id, owner=owner)


async def _still_in_effect(
    store: Store, runs: RunQuery, changes: AuditQuery, since: datetime
) -> list[FireLogEntry]:
    """Decisions before `since` that were still in effect: a range of missed slots, a pause."""
    missed = await store.list_runs(
        replace(runs, statuses=(RunStatus.MISSED,), until=since, sort=RunSort.PLANNED_AT, limit=1)
    )
    candidates = await store.list_audit(
        replace(changes, verbs=_SWITCH_VERBS, until=since - _MICROSECOND, limit=_MAX_SEARCHED)
    )
    last = next((each for each in candidates if each.allowed and _switches(each)), None)
    return [
        *(
            _run_entry(each)
            for each in missed.items
            if (each.missed_until or each.planned_at) >= since
        ),
        *([_change_entry(last)] if last is not None and _pauses(last) else []),
    ]


def _switches(change: AuditEntry) -> bool:
    return change.verb != "update" or "enabled" in change.changes


def _pauses(change: AuditEntry) -> bool:
    return change.verb == "pause" or change.changes.get("enabled") == [True, False]


def _visible_entry(actor: Actor, entry: FireLogEntry) -> FireLogEntry | None:
    """Network addresses are shown to operators only, as in the audit log."""
    if entry.note is None or actor.sees_everything:
        return entry if entry.note is None or entry.note.allowed else None
    return replace(entry, note=replace(entry.note, address="")) if entry.note.allowed else None


def _run_entry(run: Run) -> FireLogEntry:
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


# --- versions of the definition -------------------------------------------------------------------
# The audit log has every change with the values before it, but no secrets: a restored version
# keeps the current ones.

#: The fields of a definition; `enabled` and the cursor are not part of it.
DEFINITION_FIELDS = ("name", "trigger", "target", "policy", "priority", "labels", "depends_on")
#: Audit entries read; older versions are not offered.
MAX_AUDIT_ENTRIES = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class Version:
    #: The number of its audit entry.
    number: int
    at: datetime
    by: str
    verb: str
    #: Definition field -> value before and after, without secrets.
    changes: Mapping[str, tuple[object, object]]


async def list_schedule_audit(
    store: Store, actor: Actor, schedule: Schedule
) -> tuple[AuditEntry, ...]:
    """The audit entries of a schedule that the actor may see, newest first."""
    owner = None if actor.sees_everything else str(actor.owner)
    query = AuditQuery(object_id=schedule.id, owner=owner, limit=MAX_AUDIT_ENTRIES)
    entries = await store.list_audit(query)
    return tuple(each for each in entries if each.object_kind == "schedule" and each.allowed)


def versions_in(entries: Sequence[AuditEntry]) -> tuple[Version, ...]:
    """The entries that changed the definition, in the same order."""
    versions = []
    for entry in entries:
        changes = {
            name: pair
            for name in DEFINITION_FIELDS
            if (pair := _pair(entry.changes.get(name))) is not None
        }
        if changes:
            versions.append(
                Version(
                    number=entry.number,
                    at=entry.at,
                    by=entry.actor,
                    verb=entry.verb,
                    changes=changes,
                )
            )
    return tuple(versions)


def with_version(schedule: Schedule, versions: Sequence[Version], number: int) -> Schedule:
    """The schedule with the definition of an earlier version; `versions` are newest first.

    Raises NotFound for an unknown number, InvalidInput if the version had a secret that is gone.
    """
    if number not in {each.number for each in versions}:
        raise NotFound(_("version {number} not found", number=number))
    current = schedule_to_plain(schedule)
    earlier = dict(current)
    for version in versions:
        if version.number == number:
            break
        for name, (before, _after) in version.changes.items():
            earlier[name] = before
    masked_target = earlier.get("target")
    for name in DEFINITION_FIELDS:
        if earlier.get(name) != current.get(name):
            earlier[name] = _with_secrets(earlier.get(name), current.get(name), name)
    old = schedule_from_plain({name: value for name, value in earlier.items() if value is not None})
    if isinstance(old.target, HttpTarget) and isinstance(schedule.target, HttpTarget):
        masked = [*masked_names(masked_target)]
        check_secrets_stay(masked, schedule.target.url, old.target.url)
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


def check_secrets_stay(names: Sequence[str], before: str, after: str) -> None:
    """An editor of a schedule cannot read its secrets, and must not send them elsewhere: raises
    InvalidInput if the URL gets another origin and the stored secrets of these names stay."""
    if names and after != before and _origin(after) != _origin(before):
        raise InvalidInput(
            _(
                "stored secrets are not sent to another scheme, host or port; enter them again or "
                "remove them: {names}",
                names=", ".join(names),
            ),
            field="target.url",
            code="masked",
        )


def _origin(url: str) -> str:
    try:
        return parse_http_url(url).origin
    except InvalidInput:
        return url


def _pair(value: object) -> tuple[object, object] | None:
    if isinstance(value, list | tuple) and len(value) == 2:
        return value[0], value[1]
    return None


def _with_secrets(earlier: object, current: object, path: str) -> object:
    """Replaces masked values by the current value at the same path."""
    if isinstance(earlier, Mapping):
        fields = current if isinstance(current, Mapping) else {}
        return {
            str(name): _with_secrets(value, fields.get(name), f"{path}.{name}")
            for name, value in earlier.items()
        }
    if isinstance(earlier, list | tuple):
        items = list(current) if isinstance(current, list | tuple) else []
        return [
            _with_secrets(value, items[at] if at < len(items) else None, f"{path}[{at}]")
            for at, value in enumerate(earlier)
        ]
    if not isinstance(earlier, str) or HIDDEN not in earlier:
        return earlier
    if earlier == HIDDEN and current is not None:
        return current
    kept = unmask_text(earlier, current) if isinstance(current, str) else earlier
    if not any(masked_names(kept, path)):
        return kept
    raise InvalidInput(
        _(
            "the secret at {place} of that version is no longer stored; edit the schedule",
            place=path,
        ),
        field=path,
        code="secret_gone",
    )
