"""Schedules as Catbird lists them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from chimes.model.schedule import Schedule
from chimes.triggers.expression import trigger_to_text

Row = dict[str, object]


def row_from_schedule(schedule: Schedule) -> Row:
    """Exactly these keys. `last_run_at` is the slot that was last taken, as in the seed, where
    the scheduler wrote it when it claimed a row; what became of the run is not told here."""
    return {
        "name": schedule.name,
        "kind": schedule.target.kind,
        "cron_spec": trigger_to_text(schedule.trigger),
        "next_run_at": time_out(schedule.next_run_at),
        "last_run_at": time_out(schedule.last_slot),
        "enabled": schedule.enabled,
    }


def time_out(moment: datetime | None) -> str | None:
    """RFC 3339 in UTC; fractions only where there are any."""
    if moment is None:
        return None
    text = moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return f"{text.rstrip('Z').rstrip('0')}Z" if "." in text else text


# @@ What the Catbird namespace stands for.

#: Where a schedule's name is its identity.
NAMESPACE = "catbird"
#: Rows that are read from the store at a time.
PAGE = 500
