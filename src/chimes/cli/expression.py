"""From what a person types as a time to a trigger: cron, `every 5m`, or a moment."""

from __future__ import annotations

import re

from chimes.errors import InvalidTrigger
from chimes.triggers import Cron, Dialect, Every, Once, Trigger

_EVERY = re.compile(r"@?every\s+(\S+)", re.IGNORECASE)
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def trigger_from_text(text: str, zone: str | None, dialect: Dialect = "auto") -> Trigger:
    """Raises InvalidTrigger. Local times are in `zone`, or in UTC."""
    stripped = text.strip()
    if found := _EVERY.fullmatch(stripped):
        return Every(found[1])
    if _MOMENT.match(stripped):
        return Once(stripped, timezone=zone)
    try:
        return Cron(stripped, timezone=zone, dialect=dialect)
    except InvalidTrigger as error:
        if error.code == "field_count" and not error.hint:
            error.hint = (
                'write a cron expression such as "0 9 * * 1-5", an interval such as "every 5m", '
                "or a moment such as 2030-02-10T09:00:00+07:00"
            )
        raise
