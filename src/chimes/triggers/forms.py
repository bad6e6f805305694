"""The union of all triggers, with its JSON form and its text form.

`trigger_from_dict` reads the JSON form strictly, `parse_trigger_text` the text form: a cron
expression, `every 5m`, or a moment.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime

from chimes.errors import InvalidTrigger
from chimes.i18n import _
from chimes.triggers.cron import Cron, Dialect
from chimes.triggers.every import Every
from chimes.triggers.once import Once
from chimes.triggers.values import (
    check_keys,
    format_duration_go,
    quote_text,
    suggest_name,
)

Trigger = Cron | Every | Once

NEVER_FIRES = "never_fires"

_BOUNDS = ("start_at", "end_at", "max_runs", "exclude")
# The first key of each is required.
_KEYS: dict[str, tuple[str, ...]] = {
    "cron": ("expression", "timezone", "dialect", "dst", "anchor", *_BOUNDS),
    "every": ("every", "anchor", "jitter", *_BOUNDS),
    "once": ("at", "timezone", *_BOUNDS),
}
_CLASSES: dict[str, Callable[..., Trigger]] = {"cron": Cron, "every": Every, "once": Once}


def trigger_from_dict(value: object) -> Trigger:
    """The trigger that `to_dict` wrote; InvalidTrigger names the key that is wrong."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if isinstance(value, dict) and not (isinstance(kind, str) and kind in _KEYS):
        raise InvalidTrigger(
            _(
                "kind must be one of {kinds}, not {kind}",
                kinds=", ".join(_KEYS),
                kind=quote_text(kind),
            ),
            field="kind",
            code="unknown_kind" if isinstance(kind, str) else "missing_key",
            hint=suggest_name(kind, _KEYS) if isinstance(kind, str) else None,
        )
    keys = _KEYS[kind] if isinstance(kind, str) else ()
    given = dict(check_keys(value, ("kind", *keys), None))
    del given["kind"]
    if keys[0] not in given:
        raise InvalidTrigger(
            _("A trigger of kind {kind} needs {key}", kind=kind, key=keys[0]),
            field=keys[0],
            code="missing_key",
        )
    first = given.pop(keys[0])
    if not isinstance(first, str):
        raise InvalidTrigger(
            _("{key} must be text, not {type}", key=keys[0], type=type(first).__name__),
            field=keys[0],
            code="wrong_type",
        )
    for key, each in given.items():
        if each is None:
            raise InvalidTrigger(
                _("{key} must not be null; leave it out instead", key=key),
                field=key,
                code="wrong_type",
            )
    return _CLASSES[str(kind)](first, **given)


def never_fires(trigger: Trigger, after: datetime) -> bool:
    """Whether the trigger has no fire after this moment, within the search bound."""
    return trigger.next_after(after) is None


def ensure_fires(trigger: Trigger, after: datetime) -> None:
    """Reject a trigger that has no fire after this moment."""
    if never_fires(trigger, after):
        raise InvalidTrigger(
            _("The trigger never fires: no future time matches it"),
            field="trigger",
            code=NEVER_FIRES,
        )


_EVERY_TEXT = re.compile(r"@?every\s+(\S+)", re.IGNORECASE)
_COUNTED = re.compile(r"every(?:\s+([0-9]+))?\s*(second|minute|hour|day|week)s?", re.IGNORECASE)
_UNITS = {"second": "1s", "minute": "1m", "hour": "1h", "day": "24h", "week": "168h"}
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_FORMS = _(
    'write a cron expression such as "0 9 * * 1-5", an interval such as "every 5m", '
    "or a moment such as 2030-02-10T09:00:00+07:00"
)


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
    """The cron expression, `@every 5m`, or the RFC 3339 time in UTC."""
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
