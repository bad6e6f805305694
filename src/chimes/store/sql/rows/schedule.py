"""Rows of schedules in `schedules`, `cursors` and `schedule_stats`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from chimes.clock import MICROSECOND
from chimes.i18n import from_stored
from chimes.model import replace
from chimes.model.schedule import Dependency, LastRunSummary, Schedule
from chimes.store.codec.values import dependency_from_plain, labels_from_plain
from chimes.store.sql.rows.values import (
    STATUSES,
    TargetTexts,
    Value,
    Values,
    decode_object,
    encode,
    encode_object,
    maybe_micros,
    maybe_moment,
    micros,
    moment_of,
    number_of,
    owner_of,
    policy_of,
    policy_text,
    stored_text,
    target_of,
    trigger_of,
)

#: Columns of `cursors` that firing changes; the version and `live` belong to edits.
CURSOR = (
    *("schedule", "next_slot", "next_run_at", "last_slot", "last_enqueued_at", "fired_count"),
    "purged_until",
)
STATS = ("schedule", "last_run_at", "last_status", "last_error", "last_success_at")


def schedule_values(schedule: Schedule) -> dict[str, Value]:
    """The columns of `schedules` without key and definition."""
    return {
        "id": schedule.id,
        "namespace": schedule.namespace,
        "name": schedule.name,
        "owner_type": schedule.owner.type.value,
        "owner_id": schedule.owner.id,
        "kind": schedule.target.kind,
        "trigger": encode(schedule.trigger.to_dict()),
        "target": TargetTexts()(schedule.target),
        "policy": policy_text(schedule.policy),
        "priority": schedule.priority,
        "labels": encode_object(schedule.labels),
        "enabled": int(schedule.enabled),
        "pause_note": stored_text(schedule.pause_note),
        "pause_until": maybe_micros(schedule.pause_until),
        "depends_on": _dependency_text(schedule.depends_on),
        "compat_data": encode_object(schedule.compat_data),
        "version": schedule.version,
        "created_at": micros(schedule.created_at),
        "created_by": schedule.created_by,
        "updated_at": micros(schedule.updated_at),
        "updated_by": schedule.updated_by,
        "deleted_at": maybe_micros(schedule.deleted_at),
    }


def edit_values(schedule: Schedule) -> dict[str, Value]:
    """The columns of `cursors` that an edit changes besides those of `cursor_values`."""
    live = schedule.enabled and schedule.deleted_at is None
    return {"revision": number_of(encode(schedule_values(schedule))), "live": int(live)}


def cursor_values(key: int, schedule: Schedule) -> Values:
    """In the order of CURSOR."""
    return (
        key,
        maybe_micros(schedule.next_slot),
        maybe_micros(schedule.next_run_at),
        maybe_micros(schedule.last_slot),
        maybe_micros(schedule.last_enqueued_at),
        schedule.fired_count,
        maybe_micros(schedule.purged_until),
    )


def stats_values(key: int, summary: LastRunSummary | Schedule) -> Values:
    """In the order of STATS."""
    status = summary.last_status
    return (
        key,
        maybe_micros(summary.last_run_at),
        None if status is None else status.value,
        stored_text(summary.last_error) if summary.last_error else "",
        maybe_micros(summary.last_success_at),
    )


def with_cursor(schedule: Schedule, row: Sequence[Any]) -> Schedule:
    """The schedule with the cursor of a row of CURSOR."""
    _key, next_slot, next_run_at, last_slot, last_enqueued_at, fired_count, purged_until = row
    return replace(
        schedule,
        next_slot=maybe_moment(next_slot),
        next_run_at=maybe_moment(next_run_at),
        last_slot=maybe_moment(last_slot),
        last_enqueued_at=maybe_moment(last_enqueued_at),
        fired_count=fired_count,
        purged_until=maybe_moment(purged_until),
    )


def schedule_of(row: Sequence[Any]) -> Schedule:
    """Decodes a row of SCHEDULE_COLUMNS by position: lookups by name take longer than the rest of
    decoding."""
    (
        _key,
        schedule_id,
        namespace,
        name,
        owner_type,
        owner_id,
        _kind,
        trigger,
        target,
        policy,
        priority,
        labels,
        enabled,
        pause_note,
        pause_until,
        depends_on,
        compat_data,
        version,
        created_at,
        created_by,
        updated_at,
        updated_by,
        deleted_at,
        _definition,
        next_slot,
        next_run_at,
        last_slot,
        last_enqueued_at,
        fired_count,
        purged_until,
        last_run_at,
        last_status,
        last_error,
        last_success_at,
    ) = row
    return Schedule(
        id=schedule_id,
        namespace=namespace,
        name=name,
        owner=owner_of(owner_type, owner_id),
        trigger=trigger_of(trigger),
        target=target_of(target),
        policy=policy_of(policy),
        priority=priority,
        labels={} if labels == "{}" else labels_from_plain(decode_object(labels)),
        enabled=enabled == 1,
        pause_note=from_stored(pause_note),
        pause_until=maybe_moment(pause_until),
        depends_on=None if depends_on is None else dependency_of(depends_on),
        compat_data={} if compat_data == "{}" else decode_object(compat_data),
        next_slot=maybe_moment(next_slot),
        next_run_at=maybe_moment(next_run_at),
        last_slot=maybe_moment(last_slot),
        last_enqueued_at=maybe_moment(last_enqueued_at),
        last_run_at=maybe_moment(last_run_at),
        last_status=None if last_status is None else STATUSES[last_status],
        last_error=from_stored(last_error),
        last_success_at=maybe_moment(last_success_at),
        fired_count=fired_count,
        purged_until=maybe_moment(purged_until),
        version=version,
        created_at=moment_of(created_at),
        created_by=created_by,
        updated_at=moment_of(updated_at),
        updated_by=updated_by,
        deleted_at=maybe_moment(deleted_at),
    )


def summary_of(row: Sequence[Any]) -> LastRunSummary:
    """Decodes a row of STATS."""
    _key, last_run_at, last_status, last_error, last_success_at = row
    return LastRunSummary(
        last_run_at=maybe_moment(last_run_at),
        last_status=None if last_status is None else STATUSES[last_status],
        last_error=from_stored(last_error),
        last_success_at=maybe_moment(last_success_at),
    )


def _dependency_text(dependency: Dependency | None) -> str | None:
    if dependency is None:
        return None
    within = dependency.within // MICROSECOND
    return encode({"schedule_id": dependency.schedule_id, "within": within})


def dependency_of(text: str) -> Dependency | None:
    return dependency_from_plain(json.loads(text))
