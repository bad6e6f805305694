"""Converts schedules to rows of the Catbird list."""

from __future__ import annotations

from datetime import UTC, datetime

from chimes.model.schedule import Schedule
from chimes.triggers.text import format_trigger_text

Row = dict[str, object]


def row_from_schedule(schedule: Schedule) -> Row:
    """Exactly these keys. `last_run_at` is the last slot that was fired, as in Catbird, whose
    scheduler sets it when it claims a row."""
    return {
        "name": schedule.name,
        "kind": schedule.target.kind,
        "cron_spec": format_trigger_text(schedule.trigger),
        "next_run_at": time_out(schedule.next_run_at),
        "last_run_at": time_out(schedule.last_slot),
        "enabled": schedule.enabled,
    }


def time_out(moment: datetime | None) -> str | None:
    """RFC 3339 in UTC, with a fraction only if it is not zero."""
    if moment is None:
        return None
    text = moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return f"{text.rstrip('Z').rstrip('0')}Z" if "." in text else text


#: Where a schedule's name is its identity.
NAMESPACE = "catbird"
#: Schedules per read from the store.
PAGE = 500
