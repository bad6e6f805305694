"""What the KWeaver door takes for granted, and what its cron expressions mean."""

from __future__ import annotations

from typing import Final

from chimes.errors import InvalidInput, InvalidTrigger
from chimes.triggers import Cron
from chimes.wording import say

NAMESPACE: Final = "kweaver"
#: `needs` and kind of an action.
ACTION: Final = "action"
#: The branch where none is named.
MAIN: Final = "main"
ACTIVE, INACTIVE = "active", "inactive"
STATUSES: Final = (ACTIVE, INACTIVE)
#: R0.5, R0.9: as long as the seed's columns.
NAME_LIMIT, CRON_LIMIT = 100, 100
_PREFIXES = ("CRON_TZ=", "TZ=")
_FIELDS = 5


def cron(expression: str, timezone: str | None) -> Cron:
    """Five fields and nothing else, perhaps behind the name of a zone (R0.2, C2); `?` is `*`, in
    every field, as robfig/cron has it. InvalidInput, with the code `invalid_cron`."""
    try:
        return _parsed(expression, timezone)
    except InvalidInput as error:
        raise InvalidInput(
            error.message, field="cron_expression", code="invalid_cron", hint=error.hint
        ) from None


def _parsed(expression: str, timezone: str | None) -> Cron:
    if len(expression) > CRON_LIMIT:
        raise InvalidTrigger(
            say("a cron expression has at most {limit} characters here", limit=CRON_LIMIT)
        )
    zone, *fields = expression.split() or [""]
    if not zone.startswith(_PREFIXES):
        zone, fields = "", [zone, *fields]
    if len(fields) != _FIELDS or fields[0].startswith("@"):
        raise InvalidTrigger(
            say(
                "a cron expression has 5 fields here, and no descriptor like @hourly: {expression}",
                expression=expression,
            )
        )
    text = " ".join(filter(None, [zone, *map(_starred, fields)]))
    return Cron(text, timezone=None if zone else timezone)


def _starred(field: str) -> str:
    items = field.split(",")
    return ",".join(f"*{each[1:]}" if each[:1] == "?" else each for each in items)
