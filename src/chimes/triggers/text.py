"""The text form of triggers: a cron expression, `every 5m`, or a moment."""

from __future__ import annotations

import re
from datetime import UTC

from chimes.errors import InvalidTrigger
from chimes.i18n import _
from chimes.triggers import Trigger
from chimes.triggers.cron import Cron, Dialect
from chimes.triggers.every import Every
from chimes.triggers.once import Once
from chimes.triggers.values import format_duration_go, quote_text

_EVERY_TEXT = re.compile(r"@?every\s+(\S+)", re.IGNORECASE)
_COUNTED = re.compile(r"every(?:\s+([0-9]+))?\s*(second|minute|hour|day|week)s?", re.IGNORECASE)
_UNITS = {"second": "1s", "minute": "1m", "hour": "1h", "day": "24h", "week": "168h"}
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_FORMS = _(
    'write a cron expression such as "0 9 * * 1-5", an interval such as "every 5m", '
    "or a moment such as 2030-02-10T09:00:00+07:00"
)
#: Forms of expressions, valid or not; everything else is a sentence.
_EXPRESSION = re.compile(
    r"@[a-z]+\b.*|(?:CRON_)?TZ=.*|(?:[0-9*?][0-9*,/?-]*\s+){2}[0-9*?][0-9*,/?-]*\s+\S+\s+\S.*"
    r"|every\s+[0-9.]+(?:h|m|s|ms|us)[0-9hms.]*|every\s+P\S+"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.,]+(?:Z|[+-][0-9:]+)?(?:\[\S+\])?"
    r"|(?=.*\*)(?:[0-9*][0-9*,/-]*\s+){2}[0-9a-z*?,/#\s-]+",
    re.IGNORECASE | re.DOTALL,
)


def is_expression(text: str) -> bool:
    """Whether to read the text as an expression (`0 9 * * 1-5`, `@daily`, `every 5m`, a time), even
    if it is an invalid one, and not as a sentence."""
    return _EXPRESSION.fullmatch(text.strip()) is not None


def parse_trigger_text(text: str, zone: str | None, dialect: Dialect = "auto") -> Trigger:
    """Raises InvalidTrigger. Local times are in `zone`, or in UTC."""
    stripped = text.strip()
    if stripped.partition(" ")[0].isalpha() and not _is_interval(stripped):
        raise InvalidTrigger(
            _(
                '{text} is not a valid time; write an interval as "{suggested}"',
                text=quote_text(stripped),
                suggested=_suggest_interval(stripped),
            ),
            field="expression",
            code="not_a_time",
            hint=_FORMS,
        )
    if found := _EVERY_TEXT.fullmatch(stripped):
        return Every(found[1])
    if _MOMENT.match(stripped):
        return Once(stripped, timezone=zone)
    try:
        return Cron(stripped, timezone=zone, dialect=dialect)
    except InvalidTrigger as error:
        if error.code == "field_count" and not error.hint:
            error.hint = _FORMS
        raise


def _is_interval(text: str) -> bool:
    return _EVERY_TEXT.fullmatch(text) is not None and _COUNTED.fullmatch(text) is None


def _suggest_interval(text: str) -> str:
    """The valid form of texts such as `every 5 minutes`."""
    found = _COUNTED.fullmatch(text)
    if found is None:
        return "every 5m"
    unit = _UNITS[found[2].lower()]
    return f"every {int(found[1] or 1) * int(unit[:-1])}{unit[-1]}"


def format_trigger_text(trigger: Trigger) -> str:
    """The cron expression, `@every 5m`, the RFC 3339 time in UTC, or the kind of event."""
    match trigger:
        case Cron():
            return trigger.expression
        case Every():
            every = format_duration_go(trigger.every)
            for zero in ("0s", "0m"):
                shorter = every.removesuffix(zero)
                if shorter and shorter[-1] in "mh":
                    every = shorter
            return f"@every {every}"
        case Once():
            at = trigger.instant.astimezone(UTC).isoformat().removesuffix("+00:00")
            return f"{at.rstrip('0')}Z" if "." in at else f"{at}Z"
        case _:
            return f"@{trigger.kind}"
