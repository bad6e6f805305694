"""Schedules as Catbird lists them (R2.18). Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from chimes.model.schedule import Schedule
from chimes.triggers import Cron, Every, Once, Trigger, format_duration_go

Row = dict[str, object]


def row_from_schedule(schedule: Schedule) -> Row:
    """Exactly these keys. `last_run_at` is the slot that was last taken, as in the seed, where
    the scheduler wrote it when it claimed a row; what became of the run is not told here."""
    return {
        "name": schedule.name,
        "kind": schedule.target.kind,
        "cron_spec": cron_spec(schedule.trigger),
        "next_run_at": time_out(schedule.next_run_at),
        "last_run_at": time_out(schedule.last_slot),
        "enabled": schedule.enabled,
    }


def cron_spec(trigger: Trigger) -> str:
    """One text, also for what is no cron expression."""
    match trigger:
        case Cron():
            return trigger.expression
        case Every():
            return f"@every {_short(format_duration_go(trigger.every))}"
        case Once():
            return time_out(trigger.instant) or ""


def _short(duration: str) -> str:
    """`5m0s` as people write it: `5m`."""
    for zero in ("0s", "0m"):
        shorter = duration.removesuffix(zero)
        if shorter and shorter[-1] in "mh":
            duration = shorter
    return duration


def time_out(moment: datetime | None) -> str | None:
    """RFC 3339 in UTC; fractions only where there are any."""
    if moment is None:
        return None
    text = moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return f"{text.rstrip('Z').rstrip('0')}Z" if "." in text else text


# @@ What the Catbird namespace stands for.

#: Where a schedule's name is its identity (C22).
NAMESPACE = "catbird"
#: Rows that are read from the store at a time.
PAGE = 500
