"""Parses and formats durations: Go style (`1h30m`, `250ms`) and ISO 8601 (`PT1H30M`, `P1DT2H`).

A duration is elapsed time, so months and years, which have no fixed length, are rejected.
"""

from __future__ import annotations

import re
from datetime import timedelta

from chimes.errors import InvalidTrigger
from chimes.i18n import _

_MAX_TEXT_LENGTH = 64
_MAX_NANOSECONDS = 1000 * 366 * 86400 * 10**9

_UNITS = {
    "h": 3600 * 10**9,
    "m": 60 * 10**9,
    "s": 10**9,
    "ms": 10**6,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ns": 1,
}
_GO = re.compile(r"(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:h|ms|m|s|us|µs|μs|ns))+")
_GO_PART = re.compile(r"([0-9]*)\.?([0-9]*)(h|ms|m|s|us|µs|μs|ns)")
_ISO = re.compile(
    r"P(?:([0-9]+)W)?(?:([0-9]+)D)?(?:T(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+)(?:[.,]([0-9]+))?S)?)?"
)
_ISO_UNITS = (7 * 86400, 86400, 3600, 60, 1)


def parse_duration(
    text: str | timedelta,
    *,
    field: str = "duration",
    allow_zero: bool = False,
    allow_negative: bool = False,
) -> timedelta:
    """A duration from its text; a timedelta passes through the same checks."""
    value = text if isinstance(text, timedelta) else _parse(text, field)
    if value < timedelta(0) and not allow_negative:
        raise InvalidTrigger(
            _("{field} must not be negative: {text}", field=field, text=quote_text(text)),
            field=field,
            code="out_of_range",
        )
    if not value and not allow_zero:
        raise InvalidTrigger(
            _("{field} must be longer than zero", field=field), field=field, code="out_of_range"
        )
    return value


def quote_text(text: object) -> str:
    """The text, quoted and shortened for an error message."""
    quoted = repr(text)
    return quoted if len(quoted) <= 80 else f"{quoted[:80]}…"


def _parse(text: object, field: str) -> timedelta:
    if not isinstance(text, str):
        raise InvalidTrigger(
            _(
                "{field} must be text such as 90s, 1h30m or PT1H30M, not {type}",
                field=field,
                type=type(text).__name__,
            ),
            field=field,
            code="wrong_type",
        )
    stripped = text.strip()
    if len(stripped) > _MAX_TEXT_LENGTH:
        raise InvalidTrigger(_("{field} is too long", field=field), field=field, code="too_long")
    negative = stripped.startswith("-")
    body = stripped[1:] if stripped[:1] in ("-", "+") else stripped
    nanoseconds = _iso(body) if body[:1] in ("P", "p") else _go(body)
    if nanoseconds is None:
        raise InvalidTrigger(
            _(
                "{field} {text} is not a duration; write it like 90s, 1h30m or PT1H30M",
                field=field,
                text=quote_text(text),
            ),
            field=field,
            code="bad_duration",
            hint=_hint(body),
        )
    if nanoseconds > _MAX_NANOSECONDS:
        raise InvalidTrigger(
            _("{field} {text} is too long", field=field, text=quote_text(text)),
            field=field,
            code="out_of_range",
        )
    microseconds, rest = divmod(nanoseconds, 1000)
    if rest:
        raise InvalidTrigger(
            _("{field} {text} is finer than a microsecond", field=field, text=quote_text(text)),
            field=field,
            code="bad_duration",
        )
    return timedelta(microseconds=-microseconds if negative else microseconds)


def _go(body: str) -> int | None:
    if body == "0":
        return 0
    if not _GO.fullmatch(body):
        return None
    total: int = 0
    for whole, fraction, unit in _GO_PART.findall(body):
        scale = _UNITS[unit]
        total += int(whole or 0) * scale + int(fraction or 0) * scale // 10 ** len(fraction)
    return total


def _iso(body: str) -> int | None:
    upper = body.upper()
    found = _ISO.fullmatch(upper)
    if found is None or upper == "P" or upper.endswith("T"):
        return None
    seconds = sum(
        int(part or 0) * unit for part, unit in zip(found.groups()[:5], _ISO_UNITS, strict=True)
    )
    return seconds * 10**9 + int((found[6] or "").ljust(9, "0")[:9])


def _hint(body: str) -> str | None:
    if re.fullmatch(r"[0-9.]+", body):
        return _("add a unit: {number}s, {number}m or {number}h", number=body)
    if re.fullmatch(r"[0-9]+ ?d(ays?)?", body.lower()):
        return _("a day is 24h or P1D")
    if re.fullmatch(r"P[0-9YMWD.,]*[YM].*", body.upper()):
        return _("months and years have no fixed length; use a cron expression")
    return None


def format_duration_iso(value: timedelta) -> str:
    """ISO 8601 with days as the largest unit: `PT1H30M`, `P1DT2H`, `PT0.25S`."""
    microseconds = value // timedelta(microseconds=1)
    sign = "-" if microseconds < 0 else ""
    seconds, fraction = divmod(abs(microseconds), 10**6)
    days, seconds = divmod(seconds, 86400)
    hours, seconds = divmod(seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    time = f"{hours}H" if hours else ""
    time += f"{minutes}M" if minutes else ""
    if seconds or fraction:
        time += f"{_decimal(seconds, fraction, 6)}S"
    day = f"{days}D" if days else ""
    if not day and not time:
        return "PT0S"
    return f"{sign}P{day}{'T' if time else ''}{time}"


def format_duration_go(value: timedelta) -> str:
    """Like Go's Duration: `1h30m0s`, `250ms`, `0s`."""
    microseconds = value // timedelta(microseconds=1)
    sign = "-" if microseconds < 0 else ""
    left = abs(microseconds)
    if left == 0:
        return "0s"
    if left < 1000:
        return f"{sign}{left}µs"
    if left < 10**6:
        return f"{sign}{_decimal(left // 1000, left % 1000, 3)}ms"
    seconds, fraction = divmod(left, 10**6)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(seconds, fraction, 6)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{text}"
    return f"{sign}{minutes}m{text}" if minutes else f"{sign}{text}"


def _decimal(whole: int, fraction: int, digits: int) -> str:
    return f"{whole}.{fraction:0{digits}d}".rstrip("0") if fraction else str(whole)
