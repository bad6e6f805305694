"""Schedules as hashes: `body` is the definition, the fields beside it what firing and the ends of
runs change."""

from __future__ import annotations

import json
from dataclasses import dataclass

from chimes.model.change import replace
from chimes.model.planning import concurrency_key, stops_only_its_own
from chimes.model.run import RunStatus
from chimes.model.schedule import Schedule
from chimes.store.codec.schedule import schedule_from_plain, schedule_to_plain
from chimes.store.redis.damage import mended_schedule
from chimes.store.redis.seen import Seen
from chimes.store.redis.wire import Wire, encoded, flag, flat, maybe_moment, micros, texts

_STATUSES = {status.value: status for status in RunStatus}
#: What scripts show of a schedule, in their order.
SHOWN = (
    "body",
    "next_slot",
    "next_run",
    "last_slot",
    "last_enqueued",
    "last_run",
    "last_status",
    "last_error",
    "last_success",
    "fired",
    "purged",
    "rev",
    "summary_rev",
    "id",
)
_BESIDE = (
    "next_slot",
    "next_run_at",
    "last_slot",
    "last_enqueued_at",
    "last_run_at",
    "last_status",
    "last_error",
    "last_success_at",
    "fired_count",
    "purged_until",
)


def cursor_fields(schedule: Schedule) -> dict[str, str]:
    """What firing changes, but for the summary."""
    return {
        "next_slot": micros(schedule.next_slot),
        "next_run": micros(schedule.next_run_at),
        "last_slot": micros(schedule.last_slot),
        "last_enqueued": micros(schedule.last_enqueued_at),
        "fired": str(schedule.fired_count),
        "purged": micros(schedule.purged_until),
    }


def outcome_fields(schedule: Schedule) -> dict[str, str]:
    """What a slot that did not run says of itself."""
    return {
        "last_status": schedule.last_status.value if schedule.last_status else "",
        "last_error": schedule.last_error,
    }


def all_fields(schedule: Schedule) -> list[str]:
    plain = schedule_to_plain(schedule)
    for name in _BESIDE:
        plain.pop(name, None)
    return flat(
        (
            cursor_fields(schedule)
            | outcome_fields(schedule)
            | {
                "body": encoded(plain),
                "last_run": micros(schedule.last_run_at),
                "last_success": micros(schedule.last_success_at),
                "name": schedule.name,
                "namespace": schedule.namespace,
                "owner": str(schedule.owner),
                "created": micros(schedule.created_at),
                "updated": micros(schedule.updated_at),
                "enabled": flag(schedule.enabled),
                "snoozed": micros(None if schedule.enabled else schedule.pause_until),
                "deleted": micros(schedule.deleted_at),
                "key": concurrency_key(schedule),
                "own": flag(stops_only_its_own(schedule)),
                "depends": schedule.depends_on.schedule_id if schedule.depends_on else "",
            }
        ).items()
    )


@dataclass(frozen=True, slots=True)
class Revision:
    """Which state of a schedule was read."""

    definition: str
    summary: str
    #: Parts of it are placeholders.
    damaged: bool = False


class ScheduleRows:
    def __init__(self) -> None:
        self._bodies: Seen[Schedule] = Seen()

    def schedule(self, record: Wire) -> tuple[Schedule, Revision]:
        """What cannot be read of it stands as a placeholder (`damage_of`)."""
        fields = texts(record)
        revision = Revision(fields[-3], fields[-2])
        try:
            return self._schedule(fields), revision
        except Exception as error:
            mended = mended_schedule(dict(zip(SHOWN, fields, strict=True)), error)
            return mended, replace(revision, damaged=True)

    def _schedule(self, fields: list[str]) -> Schedule:
        (
            body,
            next_slot,
            next_run,
            last_slot,
            last_enqueued,
            last_run,
            last_status,
            last_error,
            last_success,
            fired,
            purged,
            _,
            _,
            _,
        ) = fields
        base = self._bodies.get(body)
        if base is None:
            base = schedule_from_plain(json.loads(body))
            self._bodies.keep(body, base)
        return replace(
            base,
            next_slot=maybe_moment(next_slot),
            next_run_at=maybe_moment(next_run),
            last_slot=maybe_moment(last_slot),
            last_enqueued_at=maybe_moment(last_enqueued),
            last_run_at=maybe_moment(last_run),
            last_status=_STATUSES[last_status] if last_status else None,
            last_error=last_error,
            last_success_at=maybe_moment(last_success),
            fired_count=int(fired),
            purged_until=maybe_moment(purged),
        )
