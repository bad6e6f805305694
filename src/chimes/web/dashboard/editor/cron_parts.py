"""Explains each field of a cron expression and marks invalid ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from chimes.errors import InvalidTrigger
from chimes.i18n import Message, _, in_language
from chimes.language import short_weekday
from chimes.triggers.cron_fields import DESCRIPTORS, CronFields, DayFields, parse_fields
from chimes.web.dashboard.core.times import locale_of

_UNITS = ("second", "minute", "hour", "day", "month", "weekday", "year")
_NAMES: dict[str, Message] = {
    "second": _("second"),
    "minute": _("minute"),
    "hour": _("hour"),
    "day": _("day of the month"),
    "month": _("month"),
    "weekday": _("weekday"),
    "year": _("year"),
}
_EVERY: dict[str, Message] = {
    "second": _("every second"),
    "minute": _("every minute"),
    "hour": _("every hour"),
    "day": _("every day of the month"),
    "month": _("every month"),
    "weekday": _("every weekday, Monday to Sunday"),
    "year": _("every year"),
}
_ALLOWED = {
    "second": "0–59",
    "minute": "0–59",
    "hour": "0–23",
    "day": "1–31 L W",
    "month": "1–12",
    "weekday": "0–7 L #",
    "year": "1970–2199",
}
_SIZES = {"second": 60, "minute": 60, "hour": 24, "day": 31, "month": 12, "weekday": 7}
#: Suggested values.
CHOICES: dict[str, tuple[str, ...]] = {
    "second": ("0", "*/10", "*/30"),
    "minute": ("0", "*/5", "*/15", "30", "*"),
    "hour": ("9", "9-17", "*/2", "0", "*"),
    "day": ("1", "15", "L", "LW", "*"),
    "month": ("*/3", "1", "1,7", "*"),
    "weekday": ("1-5", "1", "0,6", "5L", "*"),
    "year": ("*",),
}
_SUNDAY = datetime(2023, 1, 1, tzinfo=UTC)
_MAX_LISTED = 14


@dataclass(frozen=True, kw_only=True, slots=True)
class CronPart:
    #: second, minute, hour, day, month, weekday or year.
    unit: str
    name: str
    text: str
    #: Description, or the error message.
    meaning: str
    invalid: bool
    allowed: str
    choices: tuple[str, ...]


def cron_parts(expression: str, dialect: str, language: str) -> tuple[CronPart, ...]:
    """Returns the fields in order; empty for expressions without fields, such as `@every 5m`."""
    words = expression.split()
    if words and words[0].startswith(("CRON_TZ=", "TZ=")):
        words = words[1:]
    if len(words) == 1 and words[0].lower() in DESCRIPTORS:
        words = DESCRIPTORS[words[0].lower()].split()
    if not words or words[0].startswith("@") or len(words) > len(_UNITS):
        return ()
    quartz = dialect == "quartz" or (dialect in ("", "auto") and len(words) == 7)
    seconds = len(words) > 5 or dialect in ("seconds", "quartz")
    units = _UNITS if seconds else _UNITS[1:]
    return tuple(
        _part(unit, text.upper(), quartz, language)
        for unit, text in zip(units, words, strict=False)
    )


def _part(unit: str, text: str, quartz: bool, language: str) -> CronPart:
    invalid = False
    try:
        meaning = _meaning(unit, text, quartz, language)
    except InvalidTrigger as error:
        meaning, invalid = in_language(error.message, language), True
    return CronPart(
        unit=unit,
        name=in_language(_NAMES[unit], language),
        text=text,
        meaning=meaning,
        invalid=invalid,
        allowed="1–7 L #" if quartz and unit == "weekday" else _ALLOWED[unit],
        choices=CHOICES[unit],
    )


def _parse_single(unit: str, text: str, quartz: bool) -> CronFields:
    """Parses this field with the parser of the scheduler; all other fields are wildcards."""
    parts = dict.fromkeys(_UNITS, "*") | {"second": "0", unit: text}
    if not quartz and unit != "year":
        return parse_fields(" ".join(parts[each] for each in _UNITS[:6]), "seconds")
    parts["day" if unit == "weekday" else "weekday"] = "?"
    return parse_fields(" ".join(parts[each] for each in _UNITS), "quartz")


def _meaning(unit: str, text: str, quartz: bool, language: str) -> str:
    if text in ("*", "?"):
        return in_language(_EVERY[unit], language)
    fields = _parse_single(unit, text, quartz)
    if unit == "year":
        return text
    days, values = fields.days, _values(unit, fields)
    parts = []
    if len(values) == _SIZES[unit] and not _special_days(unit, days):
        parts.append(in_language(_EVERY[unit], language))
    elif values:
        parts.append(_listed(values, unit, language))
    parts += [in_language(each, language) for each in _special_days(unit, days, language)]
    return " · ".join(parts)


def _values(unit: str, fields: CronFields) -> list[int]:
    match unit:
        case "second":
            return _bits(fields.seconds)
        case "minute":
            return _bits(fields.minutes & (1 << 60) - 1)
        case "hour":
            return [hour for hour in range(24) if fields.minutes >> 60 * hour & 1]
        case "day":
            return [bit + 1 for bit in _bits(fields.days.days & (1 << 31) - 1)]
        case "month":
            return _bits(fields.days.months)
        case _:
            return _bits(fields.days.weekdays & (1 << 7) - 1)


def _bits(mask: int) -> list[int]:
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def _listed(values: Sequence[int], unit: str, language: str) -> str:
    """Formats values as `0, 15, 30, 45` or `Mon–Fri`: three or more in sequence become a range."""
    runs: list[list[int]] = []
    for value in values:
        if runs and runs[-1][-1] == value - 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    listed: list[str] = []
    for run in runs:
        names = [_named(value, unit, language) for value in run]
        listed += names if len(run) < 3 else [f"{names[0]}–{names[-1]}"]
    more = ["…"] if len(listed) > _MAX_LISTED else []
    return ", ".join([*listed[:_MAX_LISTED], *more])


def _named(value: int, unit: str, language: str) -> str:
    if unit == "weekday":
        return short_weekday(_SUNDAY.replace(day=1 + value % 7), language)
    if unit == "month":
        return str(locale_of(language).months["stand-alone"]["abbreviated"][value])
    return str(value)


def _special_days(unit: str, days: DayFields, language: str = "en") -> list[Message]:
    found: list[Message] = []
    if unit == "day":
        found += [
            _("the last day of the month")
            if back == 0
            else _("{days} days before the last day of the month", days=back)
            for back in days.last
        ]
        if days.last_working:
            found.append(_("the last working day of the month"))
        found += [_("the working day nearest to day {day}", day=each) for each in days.nearest]
        found += [
            _("the working day nearest to {days} days before the last", days=back)
            for back in days.last_nearest
        ]
    if unit == "weekday":
        found += [
            _("{weekday}, number {count} of the month", weekday=_day(each, language), count=count)
            for each, count in days.nth
        ]
        found += [
            _("the last {weekday} of the month", weekday=_day(each, language))
            for each in days.last_weekday
        ]
    return found


def _day(weekday: int, language: str) -> str:
    return _named(weekday, "weekday", language)
