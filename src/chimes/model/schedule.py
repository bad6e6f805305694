"""A schedule: a durable intention. Every change of one is a named pure function here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum

from chimes.errors import QuotaExceeded
from chimes.i18n import _
from chimes.model.access import SYSTEM_OWNER, Owner, Quota
from chimes.model.change import replace
from chimes.model.ids import ScheduleId
from chimes.model.policy import Policy
from chimes.model.run import Run, RunStatus
from chimes.model.target import Target
from chimes.triggers import Once, Trigger


@dataclass(frozen=True, kw_only=True, slots=True)
class Dependency:
    """Run only if the other schedule succeeded within this time (R2.39)."""

    schedule_id: ScheduleId
    within: timedelta = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    id: ScheduleId
    #: The door (or application) in which the name lives; doors list only their own by default.
    namespace: str = "native"
    name: str
    owner: Owner = SYSTEM_OWNER
    trigger: Trigger
    target: Target
    policy: Policy = field(default_factory=Policy)
    #: Higher goes first.
    priority: int = 0
    #: A label without a value has None.
    labels: Mapping[str, str | None] = field(default_factory=dict)
    enabled: bool = True
    pause_note: str = ""
    pause_until: datetime | None = None
    depends_on: Dependency | None = None
    #: What a door must give back as it was written, e.g. durations (R3.16); never interpreted.
    compat_data: Mapping[str, object] = field(default_factory=dict)

    #: The cursor: the next slot that has no record yet, and when it is to be carried out
    #: (slot + jitter, or where it was moved to). Both None: nothing is planned.
    next_slot: datetime | None = None
    next_run_at: datetime | None = None
    #: The newest slot the cursor has passed.
    last_slot: datetime | None = None
    #: When a run was last put into the queue.
    last_enqueued_at: datetime | None = None
    #: Start of the first attempt of the latest run, and how that run ended.
    last_run_at: datetime | None = None
    last_status: RunStatus | None = None
    last_error: str = ""
    last_success_at: datetime | None = None
    #: Runs that came from slots; compared with the trigger's max_runs.
    fired_count: int = 0
    #: Slots up to here may have lost their rows to retention and are never made again.
    purged_until: datetime | None = None

    #: Counts changes of the definition; the ETag.
    version: int = 1
    created_at: datetime
    created_by: str = ""
    updated_at: datetime
    updated_by: str = ""
    deleted_at: datetime | None = None


def counts_against(schedule: Schedule, quota: Quota) -> bool:
    """A pause that ends by itself is no way around a quota of active ones: at its end nobody is
    there to be refused."""
    if schedule.deleted_at is not None or quota.namespace not in (None, schedule.namespace):
        return False
    if not quota.active:
        return True
    comes_back = schedule.next_run_at if schedule.enabled else schedule.pause_until
    return comes_back is not None


def quota_exceeded(owner: Owner, quota: Quota) -> QuotaExceeded:
    return QuotaExceeded(
        _(
            "{owner} already has {limit} active schedules, as many as are allowed",
            owner=owner,
            limit=quota.limit,
        )
        if quota.active
        else _(
            "{owner} already has {limit} schedules, as many as are allowed",
            owner=owner,
            limit=quota.limit,
        ),
        quota="active_schedules" if quota.active else "schedules",
        limit=quota.limit,
    )


def plan_after(schedule: Schedule, after: datetime) -> Schedule:
    """The cursor on the first slot after `after`; without one for a paused or used-up schedule."""
    slot = None
    if schedule.enabled and schedule.deleted_at is None and has_runs_left(schedule):
        slot = schedule.trigger.next_after(after)
    return set_cursor(schedule, slot)


def plan_overdue(schedule: Schedule, now: datetime) -> Schedule:
    """A single moment that has passed is its next slot, and due at once; anything else stays."""
    trigger = schedule.trigger
    if not isinstance(trigger, Once) or trigger.instant > now or not schedule.enabled:
        return schedule
    return set_cursor(schedule, trigger.instant)


def set_cursor(schedule: Schedule, slot: datetime | None) -> Schedule:
    return replace(schedule, next_slot=slot, next_run_at=due_time(schedule, slot))


def due_time(schedule: Schedule, slot: datetime | None) -> datetime | None:
    """When a slot is to be carried out. Jitter is added here and never fed back (C9)."""
    return slot and slot + schedule.trigger.jitter_for(schedule.id, slot)


def has_runs_left(schedule: Schedule, fired: int = 0) -> bool:
    limit = schedule.trigger.max_runs
    return limit is None or schedule.fired_count + fired < limit


def apply_edit(schedule: Schedule, changed: Schedule, now: datetime, by: str) -> Schedule:
    """`changed` as the next version of `schedule`. A changed trigger, or a switch on or off, is
    planned anew from now; anything else leaves the cursor alone, so that an edit neither loses
    nor doubles a slot (F55)."""
    after = replace(changed, version=schedule.version + 1, updated_at=now, updated_by=by)
    if after.trigger != schedule.trigger or after.enabled != schedule.enabled:
        return plan_after(after, now)
    return after


def pause_schedule(
    schedule: Schedule, now: datetime, by: str, *, note: str = "", until: datetime | None = None
) -> Schedule:
    changed = replace(schedule, enabled=False, pause_note=note, pause_until=until)
    return apply_edit(schedule, changed, now, by)


def resume_schedule(
    schedule: Schedule, now: datetime, by: str, *, since: datetime | None = None
) -> Schedule:
    """C8: the first slot after now; what passed meanwhile is no misfire. `since`: the pause ended
    by itself at that moment, and the slot of that very moment is the first."""
    changed = replace(schedule, enabled=True, pause_note="", pause_until=None)
    after = apply_edit(schedule, changed, now, by)
    return after if since is None else plan_after(after, since - timedelta(microseconds=1))


def delete_schedule(schedule: Schedule, now: datetime, by: str) -> Schedule:
    changed = replace(schedule, enabled=False, deleted_at=now, next_slot=None, next_run_at=None)
    return apply_edit(schedule, changed, now, by)


def restore_schedule(schedule: Schedule, now: datetime, by: str, *, enabled: bool) -> Schedule:
    """A deleted one, there again: on or off as it was, and planned from now on."""
    changed = replace(schedule, enabled=enabled, deleted_at=None)
    return plan_after(apply_edit(schedule, changed, now, by), now)


def reschedule_next(schedule: Schedule, to: datetime, now: datetime, by: str) -> Schedule:
    """The next slot is `to`, whatever the trigger says; a moment in the past means now (R2.22)."""
    slot = max(to, now)
    return apply_edit(schedule, replace(schedule, next_slot=slot, next_run_at=slot), now, by)


def move_next_run(schedule: Schedule, to: datetime, now: datetime, by: str) -> Schedule:
    """The next slot keeps its identity and is carried out at `to`; later ones stay as they are."""
    return apply_edit(schedule, replace(schedule, next_run_at=max(to, now)), now, by)


def skip_next_slot(schedule: Schedule, now: datetime, by: str) -> Schedule:
    """The cursor one slot further, for a slot that is recorded otherwise (skip)."""
    assert schedule.next_slot is not None
    following = schedule.trigger.next_after(schedule.next_slot)
    changed = replace(set_cursor(schedule, following), last_slot=schedule.next_slot)
    return apply_edit(schedule, changed, now, by)


def stop_with_error(schedule: Schedule, error: str) -> Schedule:
    """A schedule that cannot be planned stops alone, with its error (R2.10)."""
    return replace(
        schedule,
        next_slot=None,
        next_run_at=None,
        last_status=RunStatus.FAILED,
        last_error=str(error),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class LastRunSummary:
    """What a schedule tells of its latest run."""

    last_run_at: datetime | None
    last_status: RunStatus | None
    last_error: str
    last_success_at: datetime | None


def record_run(schedule: Schedule, run: Run) -> Schedule:
    """The schedule's summary of its latest run, once that run has ended (R3.25)."""
    after = update_summary(
        LastRunSummary(
            last_run_at=schedule.last_run_at,
            last_status=schedule.last_status,
            last_error=schedule.last_error,
            last_success_at=schedule.last_success_at,
        ),
        run,
    )
    return replace(
        schedule,
        last_run_at=after.last_run_at,
        last_status=after.last_status,
        last_error=after.last_error,
        last_success_at=after.last_success_at,
    )


def update_summary(summary: LastRunSummary, run: Run) -> LastRunSummary:
    """A run that ends after a newer one has begun changes nothing but the latest success."""
    succeeded_at = summary.last_success_at
    if run.status is RunStatus.SUCCEEDED and run.finished_at is not None:
        succeeded_at = max(run.finished_at, succeeded_at or run.finished_at)
    started = run.started_at or run.finished_at
    if summary.last_run_at and started and started < summary.last_run_at:
        return replace(summary, last_success_at=succeeded_at)
    return LastRunSummary(
        last_run_at=run.started_at or summary.last_run_at,
        last_status=run.status,
        last_error=run.error,
        last_success_at=succeeded_at,
    )


# @@ What a schedule keeps of the code that declares it: where that is, and what it was like when
# it was last written from there. Who edits it otherwise detaches it: code that is started again
# does not overwrite the edit (ADR 33).

#: Key of the marker in `compat_data`.
_KEY = "declared"
#: Classes and fields that were renamed after digests had been stored with their first name.
_DIGEST_NAMES = {"QuietHours": "Quiet", "except_for": "but"}


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceMarker:
    #: `shop/tasks.py:12`
    at: str
    #: Of the definition as the code last wrote it; empty: whatever it is, the code may write it.
    digest: str


def source_marker(schedule: Schedule) -> SourceMarker | None:
    """None: no code declares it, as far as is known."""
    kept = schedule.compat_data.get(_KEY)
    if not isinstance(kept, Mapping):
        return None
    return SourceMarker(at=str(kept.get("at", "")), digest=str(kept.get("digest", "")))


def is_detached(schedule: Schedule) -> bool:
    """Whether somebody has edited it since the code wrote it."""
    mark = source_marker(schedule)
    return mark is not None and mark.digest not in ("", definition_digest(schedule))


def mark_source(schedule: Schedule, at: str) -> Schedule:
    """As it is now it was written by the code that stands there."""
    return _with(schedule, SourceMarker(at=at, digest=definition_digest(schedule)))


def move_source(schedule: Schedule, at: str) -> Schedule:
    """The same mark, of code that stands elsewhere by now."""
    mark = source_marker(schedule)
    return schedule if mark is None else _with(schedule, replace(mark, at=at))


def reattach(schedule: Schedule) -> Schedule:
    """Edits or not, the code may write it when it is started again."""
    mark = source_marker(schedule)
    return schedule if mark is None else _with(schedule, replace(mark, digest=""))


def clear_source_marker(schedule: Schedule) -> Schedule:
    kept = {name: each for name, each in schedule.compat_data.items() if name != _KEY}
    return (
        schedule if len(kept) == len(schedule.compat_data) else replace(schedule, compat_data=kept)
    )


def _with(schedule: Schedule, mark: SourceMarker) -> Schedule:
    plain = {"at": mark.at, "digest": mark.digest}
    if schedule.compat_data.get(_KEY) == plain:
        return schedule
    return replace(schedule, compat_data={**schedule.compat_data, _KEY: plain})


def definition_digest(schedule: Schedule) -> str:
    """Equal for equal definitions, before and after a store has kept them. Fields that have their
    usual value are left out, so that a release with more of them changes no digest."""
    definition = {
        "trigger": schedule.trigger,
        "target": schedule.target,
        "policy": schedule.policy,
        "priority": schedule.priority,
        "labels": schedule.labels,
        "depends_on": schedule.depends_on,
    }
    text = json.dumps(_plain(definition), sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=12).hexdigest()


def _plain(value: object) -> object:
    if isinstance(value, Trigger):
        return _plain(value.to_dict())
    if is_dataclass(value):
        kind = type(value).__name__
        found: dict[str, object] = {"is": _DIGEST_NAMES.get(kind, kind)}
        for each in fields(value):
            item = getattr(value, each.name)
            made = each.default_factory
            usual = each.default if made is MISSING else made()
            if item != usual:
                found[_DIGEST_NAMES.get(each.name, each.name)] = _plain(item)
        return found
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, str | Enum):
        return str(value)
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    return value
