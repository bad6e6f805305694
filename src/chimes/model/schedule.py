"""The schedule: trigger, target and policy, and its changes as pure functions."""

from __future__ import annotations

import hashlib
import heapq
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from itertools import pairwise
from typing import Literal

from msgspec import NODEFAULT, Struct, field
from msgspec.structs import fields

from chimes.errors import QuotaExceeded
from chimes.i18n import Message, _, counted, freeze
from chimes.model import replace
from chimes.model.access import SYSTEM_OWNER, Owner, Quota
from chimes.model.fields import MessageText
from chimes.model.ids import DEFAULT_NAMESPACE, ScheduleId, is_declared_id, stored_namespaces
from chimes.model.policy import Policy
from chimes.model.run import FAILED_STATUSES, Run, RunDefinition, RunStatus
from chimes.model.target import Target
from chimes.triggers import Once, Trigger


class Dependency(Struct, frozen=True, kw_only=True, gc=False):
    """Run only if the other schedule succeeded within this time."""

    schedule_id: ScheduleId
    within: timedelta = timedelta(hours=1)


class Schedule(Struct, frozen=True, kw_only=True, gc=False):
    id: ScheduleId
    #: The interface or application that the name belongs to; each lists only its own by default.
    namespace: str = DEFAULT_NAMESPACE
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
    pause_note: MessageText = ""
    pause_until: datetime | None = None
    depends_on: Dependency | None = None
    #: Data that an interface returns as it was written, e.g. durations; never interpreted.
    compat_data: Mapping[str, object] = field(default_factory=dict, name="door_data")

    #: The cursor: the next slot without a run, and when that run is due (slot + jitter, or the
    #: time it was moved to). Both None: nothing is planned.
    next_slot: datetime | None = None
    next_run_at: datetime | None = None
    #: The newest slot the cursor has passed.
    last_slot: datetime | None = None
    #: When a run was last enqueued.
    last_enqueued_at: datetime | None = None
    #: Start of the first attempt of the latest run, and how that run ended.
    last_run_at: datetime | None = None
    last_status: RunStatus | None = None
    last_error: MessageText = ""
    last_success_at: datetime | None = None
    #: Runs that came from slots; compared with the trigger's max_runs.
    fired_count: int = 0
    #: Retention may have deleted the runs of slots up to here; these slots never fire again.
    purged_until: datetime | None = None

    #: Counts changes of the definition; the ETag.
    version: int = 1
    created_at: datetime
    created_by: str = ""
    updated_at: datetime
    updated_by: str = ""
    deleted_at: datetime | None = None


def run_definition(schedule: Schedule) -> RunDefinition:
    """The definition of the runs of this version."""
    return RunDefinition(
        schedule_id=schedule.id,
        schedule_name=schedule.name,
        schedule_version=schedule.version,
        namespace=schedule.namespace,
        owner=schedule.owner,
        target=schedule.target,
        policy=schedule.policy,
        labels=schedule.labels,
    )


def _in_namespace(schedule: Schedule, quota: Quota) -> bool:
    return quota.namespace is None or schedule.namespace in stored_namespaces(quota.namespace)


def counts_against(schedule: Schedule, quota: Quota) -> bool:
    """A pause with an end counts against a quota of active schedules: at its end no request could
    be refused."""
    if schedule.deleted_at is not None or not _in_namespace(schedule, quota):
        return False
    if not quota.active:
        return True
    comes_back = schedule.next_run_at if schedule.enabled else schedule.pause_until
    return comes_back is not None or (schedule.enabled and schedule.trigger.on_event)


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
    """Set the cursor to the first slot after `after`; clear it for a paused or used-up schedule."""
    slot = None
    if schedule.enabled and schedule.deleted_at is None and has_runs_left(schedule):
        slot = schedule.trigger.next_after(after)
    return set_cursor(schedule, slot)


def plan_overdue(schedule: Schedule, now: datetime) -> Schedule:
    """Make a `Once` trigger whose time has passed due now; leave other schedules unchanged."""
    trigger = schedule.trigger
    if not isinstance(trigger, Once) or trigger.instant > now or not schedule.enabled:
        return schedule
    return set_cursor(schedule, trigger.instant)


def set_cursor(schedule: Schedule, slot: datetime | None) -> Schedule:
    return replace(schedule, next_slot=slot, next_run_at=due_time(schedule, slot))


def returned_slot(before: Schedule, after: Schedule, now: datetime) -> datetime | None:
    """The future slot that a change has set the cursor back to. It may have its run already, for
    example one that was moved beyond the following slot; then the store calls `pass_slot`."""
    slot, last = after.next_slot, after.last_slot
    if slot is None or last is None or not now < slot <= last or slot == before.next_slot:
        return None
    return slot


def pass_slot(schedule: Schedule) -> Schedule:
    assert schedule.next_slot is not None
    return set_cursor(schedule, schedule.trigger.next_after(schedule.next_slot))


def due_time(schedule: Schedule, slot: datetime | None) -> datetime | None:
    """When the run of a slot is due. Jitter shifts the run, never the following slots."""
    if slot is None:
        return None
    jitter = schedule.trigger.jitter_for(schedule.id, slot)
    return slot + jitter if jitter else slot


def has_runs_left(schedule: Schedule, fired: int = 0) -> bool:
    limit = schedule.trigger.max_runs
    return limit is None or schedule.fired_count + fired < limit


#: Fires that are computed at once.
UPCOMING_LIMIT = 1000


class Upcoming(Struct, frozen=True, kw_only=True, gc=False):
    schedule: Schedule
    at: datetime


def upcoming_fires(
    schedules: Iterable[Schedule], until: datetime, *, limit: int = UPCOMING_LIMIT
) -> list[Upcoming]:
    """The fires until `until`, soonest first. Computes at most `limit` fires."""
    heap = [
        (schedule.next_run_at, schedule.id, schedule.next_slot, schedule)
        for schedule in schedules
        if schedule.next_run_at is not None and schedule.next_slot is not None
    ]
    heapq.heapify(heap)
    fires: list[Upcoming] = []
    fired: Counter[str] = Counter()
    while heap and heap[0][0] <= until and len(fires) < limit:
        at, schedule_id, slot, schedule = heap[0]
        fires.append(Upcoming(schedule=schedule, at=at))
        fired[schedule_id] += 1
        following = schedule.trigger.next_after(slot)
        due = due_time(schedule, following)
        if following is None or due is None or not has_runs_left(schedule, fired[schedule_id]):
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (due, schedule_id, following, schedule))
    return fires


#: Fires of one version that `compare_fires` computes: a week of a schedule that fires every minute.
MAX_COMPARED_FIRES = 11_000


class FireChanges(Struct, frozen=True, kw_only=True, gc=False):
    """How the fires of a schedule differ between two versions of it, in a period."""

    added: tuple[datetime, ...] = ()
    dropped: tuple[datetime, ...] = ()
    #: Fires that take place at another time: from and to.
    moved: tuple[tuple[datetime, datetime], ...] = ()
    #: End of the period; earlier than requested if a version fires very often.
    until: datetime


def compare_fires(
    before: Schedule | None,
    after: Schedule | None,
    now: datetime,
    until: datetime,
    *,
    limit: int = MAX_COMPARED_FIRES,
    pair_moves: bool = True,
) -> FireChanges:
    """The fires after `now` that a change adds, drops and moves; None: there is no schedule.

    A dropped and an added fire count as one that moved if no other fire of either version lies
    between them; of several candidates the closest pair is taken. Without `pair_moves` no fire
    counts as one that moved. Computes at most `limit` fires of each version.
    """
    was, until = _fires_between(before, now, until, limit)
    becomes, until = _fires_between(after, now, until, limit)
    was = {at for at in was if at <= until}
    dropped, added = was - becomes, becomes - was
    candidates = sorted(
        (later - earlier, earlier, later)
        for earlier, later in pairwise(sorted(was | becomes))
        if pair_moves
        and ((earlier in dropped and later in added) or (earlier in added and later in dropped))
    )
    moved: list[tuple[datetime, datetime]] = []
    for _gap, earlier, later in candidates:
        old, new = (earlier, later) if later in added else (later, earlier)
        if old in dropped and new in added:
            dropped.remove(old)
            added.remove(new)
            moved.append((old, new))
    return FireChanges(
        added=tuple(sorted(added)),
        dropped=tuple(sorted(dropped)),
        moved=tuple(sorted(moved)),
        until=until,
    )


def _fires_between(
    schedule: Schedule | None, now: datetime, until: datetime, limit: int
) -> tuple[set[datetime], datetime]:
    """The fires, and the time up to which they are complete."""
    if schedule is None:
        return set(), until
    found = [each.at for each in upcoming_fires([schedule], until, limit=limit)]
    complete = found[-1] if len(found) == limit else until
    return {at for at in found if now < at <= complete}, complete


def apply_edit(schedule: Schedule, changed: Schedule, now: datetime, by: str) -> Schedule:
    """`changed` as the next version of `schedule`. A new trigger, or enabling and disabling, plans
    again from now; any other edit keeps the cursor, so that no slot is lost or doubled."""
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
    """Continue with the first slot after now; slots during the pause are no misfires. `since`: the
    pause ended by itself then, and a slot at that very instant fires."""
    changed = replace(schedule, enabled=True, pause_note="", pause_until=None)
    after = apply_edit(schedule, changed, now, by)
    return after if since is None else plan_after(after, since - timedelta(microseconds=1))


def may_pause_after(run: Run) -> bool:
    """Whether the end of this run may pause its schedule because too many runs in a row failed."""
    return (
        run.definition.policy.auto_pause_after is not None
        and run.status in FAILED_STATUSES
        and run.schedule_id is not None
    )


def pause_after_failures(
    schedule: Schedule, newest: Sequence[RunStatus], now: datetime
) -> Schedule | None:
    """The paused schedule if the newest runs failed, as many as its policy allows; else None.

    `newest`: statuses of runs that were created since the last change of the schedule, without
    inconclusive ones, newest first. So resuming or editing the schedule starts the count again."""
    limit = schedule.policy.auto_pause_after
    if limit is None or not schedule.enabled or schedule.deleted_at is not None:
        return None
    if len(newest) < limit or any(each not in FAILED_STATUSES for each in newest[:limit]):
        return None
    return pause_schedule(schedule, now, "chimes", note=freeze(_after_failures(limit)))


def _after_failures(count: int) -> Message:
    return counted(
        "paused after {count} failure in a row", "paused after {count} failures in a row", count
    )


def is_paused_by_failures(schedule: Schedule) -> bool:
    note = schedule.pause_note
    if schedule.enabled or not isinstance(note, Message):
        return False
    return note.template == _after_failures(1).template


#: Key in `compat_data`: how many runs succeeded, for `end_after_successes`.
_SUCCESSES = "successes"


def counts_as_success(run: Run) -> bool:
    """Whether the end of this run may disable its schedule because enough runs succeeded."""
    return (
        run.definition.policy.end_after_successes is not None
        and run.status is RunStatus.SUCCEEDED
        and run.schedule_id is not None
    )


def count_successes(schedule: Schedule, count: int, now: datetime) -> Schedule:
    """With so many more successful runs; disabled if these are enough. The count is kept with the
    schedule, so that retention does not change it, and starts again when it is resumed."""
    limit = schedule.policy.end_after_successes
    if limit is None or not schedule.enabled or schedule.deleted_at is not None:
        return schedule
    stored = schedule.compat_data.get(_SUCCESSES)
    total = count + (stored if isinstance(stored, int) else 0)
    if total < limit:
        return replace(schedule, compat_data={**schedule.compat_data, _SUCCESSES: total})
    rest = {name: each for name, each in schedule.compat_data.items() if name != _SUCCESSES}
    note = counted("ended after {count} success", "ended after {count} successes", limit)
    ended = replace(schedule, compat_data=rest)
    return pause_schedule(ended, now, "chimes", note=freeze(note))


def delete_schedule(schedule: Schedule, now: datetime, by: str) -> Schedule:
    changed = replace(schedule, enabled=False, deleted_at=now, next_slot=None, next_run_at=None)
    return apply_edit(schedule, changed, now, by)


def restore_schedule(schedule: Schedule, now: datetime, by: str, *, enabled: bool) -> Schedule:
    """Undelete, enabled or not as before, and plan from now."""
    changed = replace(schedule, enabled=enabled, deleted_at=None)
    return plan_after(apply_edit(schedule, changed, now, by), now)


def reschedule_next(schedule: Schedule, to: datetime, now: datetime, by: str) -> Schedule:
    """Replace the next slot by `to`; a time in the past means now."""
    slot = max(to, now)
    return apply_edit(schedule, replace(schedule, next_slot=slot, next_run_at=slot), now, by)


def move_next_run(schedule: Schedule, to: datetime, now: datetime, by: str) -> Schedule:
    """Run the next slot at `to`; the slot keeps its identity, later slots are unchanged."""
    return apply_edit(schedule, replace(schedule, next_run_at=max(to, now)), now, by)


def skip_next_slot(schedule: Schedule, now: datetime, by: str) -> Schedule:
    """Advance the cursor by one slot, for a slot that is recorded as skipped."""
    changed = replace(pass_slot(schedule), last_slot=schedule.next_slot)
    return apply_edit(schedule, changed, now, by)


def stop_with_error(schedule: Schedule, error: str) -> Schedule:
    """Stop a schedule that cannot be planned, with its error, so that the others continue."""
    return replace(
        schedule,
        next_slot=None,
        next_run_at=None,
        last_status=RunStatus.FAILED,
        last_error=freeze(error),
    )


class LastRunSummary(Struct, frozen=True, kw_only=True, gc=False):
    """The latest run of a schedule, as the schedule shows it."""

    last_run_at: datetime | None
    last_status: RunStatus | None
    last_error: str
    last_success_at: datetime | None


def record_run(schedule: Schedule, run: Run) -> Schedule:
    """Update the schedule's summary from a run that has ended."""
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
    """A run that ends after a newer one has started updates only the latest success."""
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


# --- source marker: which code or file defines the schedule, and a digest of what it defined. An
# edit elsewhere detaches the schedule: a restart of the code does not overwrite the edit (ADR 33);
# `chimes apply` of the file does, and says so in its plan (ADR 60).

#: Key of the marker in `compat_data`.
_KEY = "declared"
#: Classes and fields that were renamed after digests had been stored with their first name.
_DIGEST_NAMES = {"QuietHours": "Quiet", "except_for": "but"}


SourceKind = Literal["code", "file"]


class SourceMarker(Struct, frozen=True, kw_only=True, gc=False):
    #: `shop/tasks.py:12`, or the origin that a file was applied under.
    at: str
    #: Digest of the definition as last written; empty: the code may overwrite anything.
    digest: str
    kind: SourceKind = "code"


def source_marker(schedule: Schedule) -> SourceMarker | None:
    """None: neither declared by code nor made from a file."""
    stored = schedule.compat_data.get(_KEY)
    if not isinstance(stored, Mapping):
        return None
    return SourceMarker(
        at=str(stored.get("at", "")),
        digest=str(stored.get("digest", "")),
        kind="file" if stored.get("kind") == "file" else "code",
    )


def is_detached(schedule: Schedule) -> bool:
    """Whether it was edited since the code or the file wrote it."""
    marker = source_marker(schedule)
    return marker is not None and marker.digest not in ("", definition_digest(schedule))


def mark_source(schedule: Schedule, at: str, kind: SourceKind = "code") -> Schedule:
    """Mark the current definition as written by the code or the file at this place."""
    digest = definition_digest(schedule)
    return _with_marker(schedule, SourceMarker(at=at, digest=digest, kind=kind))


def move_source(schedule: Schedule, at: str) -> Schedule:
    """The same marker after the code moved."""
    marker = source_marker(schedule)
    return schedule if marker is None else _with_marker(schedule, replace(marker, at=at))


def reattach(schedule: Schedule) -> Schedule:
    """Let the code overwrite edits at its next start."""
    marker = source_marker(schedule)
    return schedule if marker is None else _with_marker(schedule, replace(marker, digest=""))


def is_purgeable(schedule: Schedule, before: datetime) -> bool:
    """Whether retention may delete it, once no run refers to it. Declared schedules stay: the next
    generation is found by the ids of the earlier ones (`declared_id`)."""
    return (
        schedule.deleted_at is not None
        and schedule.deleted_at < before
        and (schedule.purged_until is None or schedule.purged_until < before)
        and not is_declared_id(schedule.id)
    )


def clear_source_marker(schedule: Schedule) -> Schedule:
    if _KEY not in schedule.compat_data:
        return schedule
    rest = {name: each for name, each in schedule.compat_data.items() if name != _KEY}
    return replace(schedule, compat_data=rest)


def _with_marker(schedule: Schedule, marker: SourceMarker) -> Schedule:
    plain = {"at": marker.at, "digest": marker.digest}
    if marker.kind != "code":
        plain["kind"] = marker.kind
    if schedule.compat_data.get(_KEY) == plain:
        return schedule
    return replace(schedule, compat_data={**schedule.compat_data, _KEY: plain})


def definition_digest(schedule: Schedule) -> str:
    """Equal for equal definitions, before and after storage. Fields with their default value are
    left out, so that a new field changes no digest."""
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
    if isinstance(value, Struct):
        kind = type(value).__name__
        found: dict[str, object] = {"is": _DIGEST_NAMES.get(kind, kind)}
        for each in fields(value):
            item = getattr(value, each.name)
            made = each.default_factory
            usual = each.default if made is NODEFAULT else made()
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
