"""Recurrence rules of RFC 5545 as text: `FREQ=WEEKLY;INTERVAL=2;BYDAY=TU`."""

from __future__ import annotations

import re
from datetime import date, datetime
from functools import lru_cache
from typing import Literal, NamedTuple, NoReturn, get_args

from chimes.errors import InvalidTrigger
from chimes.i18n import _
from chimes.triggers.values import quote_text, suggest_name

Freq = Literal["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY"]
FREQUENCIES: tuple[Freq, ...] = get_args(Freq)
#: Those that count elapsed time instead of days.
ELAPSED: dict[Freq, int] = {"HOURLY": 3600, "MINUTELY": 60, "SECONDLY": 1}

MAX_RULE_LENGTH = 2048
MAX_INTERVAL = 100_000
MAX_COUNT = 10_000
WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_KEYS = (
    "FREQ",
    "INTERVAL",
    "COUNT",
    "UNTIL",
    "BYSECOND",
    "BYMINUTE",
    "BYHOUR",
    "BYDAY",
    "BYMONTHDAY",
    "BYYEARDAY",
    "BYWEEKNO",
    "BYMONTH",
    "BYSETPOS",
    "WKST",
)
_NUMBER = re.compile(r"[+-]?[0-9]{1,5}")
_BYDAY = re.compile(r"([+-]?[0-9]{1,2})?(MO|TU|WE|TH|FR|SA|SU)")
_UNTIL = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})(?:T([0-9]{2})([0-9]{2})([0-9]{2})(Z)?)?")


class Until(NamedTuple):
    """The end of a rule, included: an instant in UTC, a local time, or a whole local day."""

    local: datetime
    utc: bool
    whole_day: bool


class Rule(NamedTuple):
    """A parsed rule. Weekdays count from Monday, 0; empty tuples allow everything."""

    freq: Freq
    interval: int = 1
    #: COUNT.
    most: int | None = None
    until: Until | None = None
    seconds: tuple[int, ...] = ()
    minutes: tuple[int, ...] = ()
    hours: tuple[int, ...] = ()
    weekdays: tuple[int, ...] = ()
    #: Pairs of number and weekday: (-1, 4) is the last Friday.
    nth: tuple[tuple[int, int], ...] = ()
    month_days: tuple[int, ...] = ()
    year_days: tuple[int, ...] = ()
    weeks: tuple[int, ...] = ()
    months: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()
    week_start: int = 0

    @property
    def elapsed(self) -> bool:
        return self.freq in ELAPSED

    @property
    def names_days(self) -> bool:
        return bool(self.weekdays or self.nth or self.month_days or self.year_days or self.weeks)


def normalize_rule(text: object) -> str:
    """The rule in capitals, without spaces and prefix."""
    if not isinstance(text, str):
        raise InvalidTrigger(
            _("rule must be text, not {type}", type=type(text).__name__),
            field="rule",
            code="wrong_type",
        )
    if len(text) > MAX_RULE_LENGTH:
        raise InvalidTrigger(
            _(
                "rule may have up to {most} characters, not {count}",
                most=MAX_RULE_LENGTH,
                count=len(text),
            ),
            field="rule",
            code="too_long",
        )
    return "".join(text.upper().split()).removeprefix("RRULE:").strip(";")


@lru_cache(maxsize=4096)
def parse_rule(text: str) -> Rule:
    """A normalized rule."""
    values: dict[str, str] = {}
    for part in text.split(";"):
        key, equals, value = part.partition("=")
        if not equals or not value:
            _refuse(
                _("{part} is not of the form NAME=VALUE", part=quote_text(part)),
                "bad_rule",
                _("write a rule like FREQ=WEEKLY;INTERVAL=2;BYDAY=TU"),
            )
        if key not in _KEYS:
            _refuse(
                _(
                    "rule has an unknown part {key}; it may have {known}",
                    key=quote_text(key),
                    known=", ".join(_KEYS),
                ),
                "unknown_key",
                suggest_name(key, _KEYS),
            )
        if key in values:
            _refuse(_("rule has {key} twice", key=key), "duplicate")
        values[key] = value
    freq = next((each for each in FREQUENCIES if each == values.get("FREQ")), None)
    if freq is None:
        _refuse(
            _(
                "rule needs FREQ, one of {known}, not {freq}",
                known=", ".join(FREQUENCIES),
                freq=quote_text(values.get("FREQ", "")),
            ),
            "bad_choice" if "FREQ" in values else "missing_key",
            suggest_name(values.get("FREQ", ""), FREQUENCIES),
        )
    weekdays, nth = _byday(values.get("BYDAY"))
    rule = Rule(
        freq=freq,
        interval=_one(values, "INTERVAL", MAX_INTERVAL) or 1,
        most=_one(values, "COUNT", MAX_COUNT),
        until=_until(values["UNTIL"]) if "UNTIL" in values else None,
        seconds=_list(values, "BYSECOND", 0, 59),
        minutes=_list(values, "BYMINUTE", 0, 59),
        hours=_list(values, "BYHOUR", 0, 23),
        weekdays=weekdays,
        nth=nth,
        month_days=_list(values, "BYMONTHDAY", 1, 31, signed=True),
        year_days=_list(values, "BYYEARDAY", 1, 366, signed=True),
        weeks=_list(values, "BYWEEKNO", 1, 53, signed=True),
        months=_list(values, "BYMONTH", 1, 12),
        positions=_list(values, "BYSETPOS", 1, 366 * 86400, signed=True),
        week_start=_week_start(values.get("WKST", "MO")),
    )
    _check(rule)
    return rule


def _check(rule: Rule) -> None:
    """What RFC 5545 forbids."""
    freq = rule.freq
    if rule.most is not None and rule.until is not None:
        _refuse(_("rule has both COUNT and UNTIL"), "contradiction")
    if rule.nth and freq not in ("MONTHLY", "YEARLY"):
        _refuse(
            _("BYDAY with a number needs FREQ=MONTHLY or FREQ=YEARLY, not {freq}", freq=freq),
            "contradiction",
        )
    if rule.nth and rule.weeks:
        _refuse(_("BYDAY with a number cannot be used with BYWEEKNO"), "contradiction")
    if rule.weeks and freq != "YEARLY":
        _refuse(_("BYWEEKNO needs FREQ=YEARLY, not {freq}", freq=freq), "contradiction")
    if rule.year_days and freq in ("MONTHLY", "WEEKLY", "DAILY"):
        _refuse(_("BYYEARDAY cannot be used with FREQ={freq}", freq=freq), "contradiction")
    if rule.month_days and freq == "WEEKLY":
        _refuse(_("BYMONTHDAY cannot be used with FREQ={freq}", freq=freq), "contradiction")
    by_time = rule.seconds or rule.minutes or rule.hours
    if rule.positions and not (rule.names_days or rule.months or by_time):
        _refuse(_("BYSETPOS needs another part that begins with BY"), "contradiction")


def _one(values: dict[str, str], key: str, most: int) -> int | None:
    text = values.get(key)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= most:
        _refuse(
            _(
                "{key} must be a whole number from 1 to {most}, not {text}",
                key=key,
                most=most,
                text=quote_text(text),
            ),
            "out_of_range",
        )
    return int(text)


def _list(
    values: dict[str, str], key: str, low: int, high: int, *, signed: bool = False
) -> tuple[int, ...]:
    if key not in values:
        return ()
    found = set()
    for text in values[key].split(","):
        number = int(text) if _NUMBER.fullmatch(text) else None
        if number is None or not low <= (abs(number) if signed else number) <= high:
            _refuse(
                _(
                    "{key} has {text}; allowed are {low} to {high}{negative}",
                    key=key,
                    text=quote_text(text),
                    low=low,
                    high=high,
                    negative=f", -{high}…-{low}" if signed else "",
                ),
                "out_of_range",
            )
        found.add(number)
    return tuple(sorted(found))


def _byday(text: str | None) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    plain, nth = set(), set()
    for term in [] if text is None else text.split(","):
        found = _BYDAY.fullmatch(term)
        number = int(found[1] or 0) if found else 0
        if found is None or (found[1] is not None and not 1 <= abs(number) <= 53):
            _refuse(
                _(
                    "BYDAY has {text}; write weekdays such as MO, 2TU or -1FR",
                    text=quote_text(term),
                ),
                "bad_weekday",
            )
        weekday = WEEKDAYS.index(found[2])
        if number:
            nth.add((number, weekday))
        else:
            plain.add(weekday)
    return tuple(sorted(plain)), tuple(sorted(nth))


def _week_start(text: str) -> int:
    if text not in WEEKDAYS:
        _refuse(
            _("WKST must be one of {known}, not {text}", known=", ".join(WEEKDAYS), text=text),
            "bad_weekday",
        )
    return WEEKDAYS.index(text)


def _until(text: str) -> Until:
    found = _UNTIL.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        parts = [int(each or 0) for each in found.groups()[:6]]
        local = datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001
    except ValueError:
        _refuse(
            _("UNTIL {text} is not a date or time", text=quote_text(text)),
            "bad_moment",
            _("write it like 20301231, 20301231T235959 or 20301231T235959Z"),
        )
    return Until(local, found[7] is not None, found[4] is None)


def _refuse(message: str, code: str, hint: str | None = None) -> NoReturn:
    raise InvalidTrigger(message, field="rule", code=code, hint=hint)


def week_number(day: date, week_start: int) -> tuple[int, int]:
    """The number of the week of a day, and the number of weeks of that week's year, where weeks
    begin on `week_start` and week 1 is the first with four days in the year."""
    first = day.toordinal() - (day.weekday() - week_start) % 7
    # The year that has the fourth day of the week.
    year = date.fromordinal(first + 3).year
    start = _first_week(year, week_start)
    return (first - start) // 7 + 1, (_first_week(year + 1, week_start) - start) // 7


def _first_week(year: int, week_start: int) -> int:
    fourth = date(year, 1, 4)
    return fourth.toordinal() - (fourth.weekday() - week_start) % 7
