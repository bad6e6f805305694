"""Cron text to masks: 5 fields (Unix), 6 (seconds first) and 6 or 7 (Quartz).

Ranges may wrap (`FRI-MON`, `22-2`); a step counts on through the wrap. In five and six fields a
step on a lone value runs to the end of the field (`a/n`), where the end of the weekdays is
Saturday: 7 is another name for Sunday, not an eighth day.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from typing import NamedTuple, NoReturn, Protocol

from chimes.errors import InvalidTrigger
from chimes.i18n import _
from chimes.triggers.values import quote_text
from chimes.triggers.zones import EPOCH_ORDINAL

# --- day masks. A month becomes a mask of its days (bit 0 is the 1st) with L, W and # resolved for
# that month; 64 consecutive days become a block (bit 0 is day 64·b since 1970), so that a search
# steps from
# day to day, or over empty weeks, with a shift. Blocks are cached with the interned expression.

_LAST_ORDINAL = date.max.toordinal()
# 0b...0000001 repeated every seven days, enough for any month.
_EVERY_WEEK = sum(1 << day for day in range(0, 42, 7))


class DaySet(Protocol):
    """Days since 1970, 64 at a time; `blocks` caches the masks."""

    @property
    def blocks(self) -> dict[int, int]: ...

    def block(self, number: int) -> int:
        """The mask of days 64·number … 64·number + 63."""
        ...


#: Days of a block of a DaySet.
DAYS_IN_BLOCK = 64


class DayMasks:
    """A DaySet whose blocks are computed by `_compute` when needed."""

    __slots__ = ("blocks",)

    def __init__(self) -> None:
        self.blocks: dict[int, int] = {}

    def block(self, number: int) -> int:
        mask = self.blocks.get(number)
        if mask is None:
            mask = self.blocks[number] = self._compute(number)
        return mask

    def _compute(self, number: int) -> int:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class DayFields:
    """The day-of-month, month, day-of-week and year fields, parsed. Sunday is 0.

    `nearest` and `last_nearest` are the `nW` and `L-nW` terms, `last` the offsets of `L-n`
    (`LW` is kept apart because it never leaves the end of the month), `nth` and `last_weekday` the
    `d#n` and `dL` terms.
    """

    days: int
    months: int
    weekdays: int
    both: bool
    years: int | None = None
    last: tuple[int, ...] = ()
    nearest: tuple[int, ...] = ()
    last_nearest: tuple[int, ...] = ()
    last_working: bool = False
    nth: tuple[tuple[int, int], ...] = ()
    last_weekday: tuple[int, ...] = ()
    blocks: dict[int, int] = field(default_factory=dict, compare=False, repr=False)

    def block(self, number: int) -> int:
        mask = self.blocks.get(number)
        if mask is None:
            mask = self.blocks[number] = self._compute(number)
        return mask

    def _compute(self, number: int) -> int:
        first = number * 64 + EPOCH_ORDINAL
        stop = min(first + 64, _LAST_ORDINAL + 1)
        mask = 0
        at = max(first, 1)
        while at < stop:
            day = date.fromordinal(at)
            start = at - day.day + 1
            following = start + month_length(day.year, day.month)
            month = self.month(day.year, day.month, start)
            mask |= month << (start - first) if start >= first else month >> (first - start)
            at = following
        return mask & 0xFFFF_FFFF_FFFF_FFFF

    def month(self, year: int, month: int, ordinal: int) -> int:
        """The days of one month that match; `ordinal` is that of its first day."""
        if not self.months >> month & 1:
            return 0
        if self.years is not None and (year < 1970 or not self.years >> (year - 1970) & 1):
            return 0
        length = month_length(year, month)
        first_weekday = ordinal % 7
        by_date = self._by_date(length, first_weekday)
        by_weekday = self._by_weekday(length, first_weekday)
        matching = by_date & by_weekday if self.both else by_date | by_weekday
        return matching & ((1 << length) - 1)

    def _by_date(self, length: int, first_weekday: int) -> int:
        mask = self.days
        for back in self.last:
            if back < length:
                mask |= 1 << (length - 1 - back)
        for day in self.nearest:
            if day <= length:
                mask |= 1 << (_working(day, length, first_weekday) - 1)
        for back in self.last_nearest:
            if back < length:
                mask |= 1 << (_working(length - back, length, first_weekday) - 1)
        if self.last_working:
            mask |= 1 << (_working(length, length, first_weekday) - 1)
        return mask

    def _by_weekday(self, length: int, first_weekday: int) -> int:
        mask = 0
        for weekday in range(7):
            if self.weekdays >> weekday & 1:
                mask |= _EVERY_WEEK << (weekday - first_weekday) % 7
        for weekday, nth in self.nth:
            mask |= 1 << (weekday - first_weekday) % 7 + 7 * (nth - 1)
        for weekday in self.last_weekday:
            first = (weekday - first_weekday) % 7
            mask |= 1 << first + (length - 1 - first) // 7 * 7
        return mask


def month_length(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def _working(day: int, length: int, first_weekday: int) -> int:
    """The Monday to Friday nearest to `day` that stays in the month."""
    weekday = (first_weekday + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


MAX_EXPRESSION_LENGTH = 256
EVERY = "@every"
DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = dict(
    zip(
        ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
        range(1, 13),
        strict=True,
    )
)
_DAYS = dict(zip(["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"], range(7), strict=True))
_QUARTZ_DAYS = {name: number + 1 for name, number in _DAYS.items()}

_RANGE = re.compile(r"(\*|[0-9]{1,4}|[A-Z]{3})?(?:-([0-9]{1,4}|[A-Z]{3}))?(?:/([0-9]{1,4}))?")
_LAST = re.compile(r"L(?:-([0-9]{1,2}))?(W)?")
_NEAREST = re.compile(r"([0-9]{1,2})W")
_NTH = re.compile(r"([0-9]|[A-Z]{3})#([0-9])")
_LAST_WEEKDAY = re.compile(r"([0-9]|[A-Z]{3})L")


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The range and names of one field. Compared by identity."""

    label: str
    low: int
    high: int
    names: dict[str, int]
    # The highest number that may be written, where it is an alias (7 for Sunday).
    alias: int | None = None


_SECOND = Part(_("second"), 0, 59, {})
_MINUTE = Part(_("minute"), 0, 59, {})
_HOUR = Part(_("hour"), 0, 23, {})
_DAY = Part(_("day-of-month"), 1, 31, {})
_MONTH = Part(_("month"), 1, 12, _MONTHS)
_WEEKDAY = Part(_("day-of-week"), 0, 6, _DAYS, 7)
_QUARTZ_WEEKDAY = Part(_("day-of-week"), 1, 7, _QUARTZ_DAYS)
_YEAR = Part(_("year"), 1970, 2199, {})


# --- hashed fields, as in Jenkins: `H` is one value of the field, `H(0-5)` one of a range, `H/15`
# every 15 from a hashed start on; `H(0-29)/10` both. Days of the month go up to 28.
_HASH = re.compile(r"H(?:\(([0-9]{1,2})-([0-9]{1,2})\))?(?:/([0-9]{1,2}))?")
_HASHED_FIELD = re.compile(r"(?:^|[ ,])H(?=[(/, ]|$)", re.IGNORECASE)


@lru_cache(maxsize=4096)
def has_hashes(expression: str) -> bool:
    """Whether an expression without a prefix has hashed fields."""
    return _HASHED_FIELD.search(expression) is not None


@lru_cache(maxsize=16384)
def expand_hashes(expression: str, dialect: str, seed: str) -> str:
    """The expression with the values that the seed chooses, each field by itself."""
    parts = expression.upper().split(" ")
    count = len(parts)
    quartz = dialect == "quartz" or (dialect == "auto" and count == 7)
    _check_count(expression, dialect, count)
    fields = {
        **({"second": _SECOND} if count > 5 else {}),
        "minute": _MINUTE,
        "hour": _HOUR,
        "day": _DAY,
        "month": _MONTH,
        "weekday": _QUARTZ_WEEKDAY if quartz else _WEEKDAY,
        "year": _YEAR,
    }
    return " ".join(
        ",".join(_expand_term(part, name, text, term, seed) for term in text.split(","))
        for (name, part), text in zip(fields.items(), parts, strict=False)
    )


def _expand_term(part: Part, name: str, text: str, term: str, seed: str) -> str:
    found = _HASH.fullmatch(term)
    if found is None:
        if term.startswith("H"):
            _wrong(part, text, _("{term} cannot be read", term=quote_text(term)))
        return term
    low, high = part.low, 28 if part is _DAY else part.high
    if part is _YEAR:
        _wrong(part, text, _("a year cannot be hashed"))
    if found[1] is not None:
        low, high = (_number(part, text, each.lstrip("0") or "0") for each in found.groups()[:2])
        if low > high:
            _wrong(part, text, _("a hashed range cannot wrap"))
    # The name of the field: minute and hour of one schedule differ.
    from hashlib import sha256

    digest = sha256(f"{seed}\0{name}".encode()).digest()
    number = int.from_bytes(digest[:8])
    if found[3] is None:
        return str(low + number % (high - low + 1))
    step = _step(part, text, found[3])
    start = low + number % min(step, high - low + 1)
    return f"{start}-{high}/{step}"


class CronFields(NamedTuple):
    """A parsed expression: masks of seconds, minutes of the day and days; and two texts."""

    seconds: int
    minutes: int
    days: DayFields
    minute_text: str
    hour_text: str


@lru_cache(maxsize=4096)
def parse_fields(expression: str, dialect: str) -> CronFields:
    """The masks of an expression that has no prefix and is not `@every`."""
    text = expression.upper()
    if text.startswith("@"):
        text = _expand_descriptor(expression)
    parts = text.split(" ")
    count = len(parts)
    quartz = dialect == "quartz" or (dialect == "auto" and count == 7)
    _check_count(expression, dialect, count)
    second, minute, hour, day, month, weekday, year = _seven(parts)
    return CronFields(
        seconds=_mask(_SECOND, second, quartz),
        minutes=_minutes(hour, minute, quartz),
        days=_days(day, month, weekday, year, quartz, count == 6),
        minute_text=minute,
        hour_text=hour,
    )


# Cached: ten thousand expressions share a few hundred day and minute parts.
@lru_cache(maxsize=4096)
def _minutes(hour: str, minute: str, quartz: bool) -> int:
    """The minutes of a day."""
    hours = _mask(_HOUR, hour, quartz)
    minutes = _mask(_MINUTE, minute, quartz)
    return sum(minutes << 60 * number for number in range(24) if hours >> number & 1)


def _expand_descriptor(expression: str) -> str:
    found = DESCRIPTORS.get(expression.lower())
    if found is None:
        _refuse(
            _(
                "Unknown descriptor {descriptor}; there are {known}, {every} <duration>",
                descriptor=quote_text(expression),
                known=", ".join(DESCRIPTORS),
                every=EVERY,
            ),
            "unknown_descriptor",
        )
    return found


_COUNTS = {"auto": (5, 6, 7), "unix": (5,), "seconds": (6,), "quartz": (6, 7)}
_COUNTS_IN_WORDS = {"auto": _("5 or 6 or 7"), "quartz": _("6 or 7")}


def _check_count(expression: str, dialect: str, count: int) -> None:
    if expression.startswith("@") or count in _COUNTS[dialect]:
        return
    _refuse(
        _(
            "A cron expression of dialect {dialect} has {wanted} fields; {expression} has {count}",
            dialect=dialect,
            wanted=_COUNTS_IN_WORDS.get(dialect, _COUNTS[dialect][0]),
            expression=quote_text(expression),
            count=count,
        ),
        "field_count",
    )


def _seven(parts: list[str]) -> list[str]:
    if len(parts) == 5:
        return ["0", *parts, "*"]
    return parts if len(parts) == 7 else [*parts, "*"]


def _refuse(message: str, code: str, hint: str | None = None) -> NoReturn:
    raise InvalidTrigger(message, field="expression", code=code, hint=hint)


def _wrong(part: Part, text: str, why: str) -> NoReturn:
    details = {
        "field": part.label,
        "text": quote_text(text),
        "why": why,
        "lowest": part.low,
        "highest": part.alias or part.high,
    }
    if part.names:
        first, *_unused, last = part.names
        message = _(
            "The {field} field {text} is wrong: {why}; "
            "allowed are {lowest}–{highest} or {first_name}…{last_name}",
            **details,
            first_name=first,
            last_name=last,
        )
    else:
        message = _(
            "The {field} field {text} is wrong: {why}; allowed are {lowest}–{highest}", **details
        )
    _refuse(message, "bad_field")


@lru_cache(maxsize=1024)
def _mask(part: Part, text: str, quartz: bool) -> int:
    mask = 0
    for term in text.split(","):
        mask |= _term(part, text, term, quartz)
    return mask


def _term(part: Part, text: str, term: str, quartz: bool) -> int:
    found = _RANGE.fullmatch(term)
    if found is None or not term:
        _wrong(
            part,
            text,
            _("{term} cannot be read", term=quote_text(term)) if term else _("an item is empty"),
        )
    first, last, step_text = found.groups()
    if first is None and not (quartz and step_text and last is None):
        _wrong(part, text, _("{term} has no start", term=quote_text(term)))
    step = _step(part, text, step_text)
    if first is None or first == "*":
        if last is not None:
            _wrong(part, text, _("a range cannot start with *"))
        return sum(1 << value - _base(part) for value in range(part.low, part.high + 1, step))
    start = _number(part, text, first)
    if last is not None:
        return _range(part, text, start, _number(part, text, last), step)
    if step_text is None:
        return 1 << _folded(part, start) - _base(part)
    return _range(part, text, _folded(part, start), part.high, step)


def _base(part: Part) -> int:
    return 1970 if part is _YEAR else 0


def _folded(part: Part, value: int) -> int:
    return part.low if value == part.alias else value


def _range(part: Part, text: str, start: int, stop: int, step: int) -> int:
    if start > stop:
        if part is _YEAR:
            _wrong(part, text, _("years cannot wrap"))
        start = _folded(part, start)
    if start > stop:
        stop += part.high - part.low + 1
    mask = 0
    for value in range(start, stop + 1, step):
        # The alias is one past the top, so it wraps to the bottom like any other overrun.
        value = value if value <= part.high else value - (part.high - part.low + 1)
        mask |= 1 << value - _base(part)
    return mask


def _step(part: Part, text: str, step_text: str | None) -> int:
    if step_text is None:
        return 1
    step = int(step_text)
    top = part.high - part.low if part is _YEAR else part.alias or part.high
    if not 1 <= step <= top:
        _wrong(part, text, _("a step of {step} is not between 1 and {most}", step=step, most=top))
    return step


def _number(part: Part, text: str, value: str) -> int:
    if value in part.names:
        return part.names[value]
    if not value.isdigit():
        _wrong(part, text, _("{value} is not a name", value=quote_text(value)))
    number = int(value)
    if not part.low <= number <= (part.alias or part.high):
        _wrong(part, text, _("{number} is out of range", number=number))
    return number


@lru_cache(maxsize=4096)
def _days(day: str, month: str, weekday: str, year: str, quartz: bool, six: bool) -> DayFields:
    if quartz:
        _check_quartz_days(day, weekday, six)
    by_date = _DateTerms()
    for term in ["*"] if day == "?" else day.split(","):
        by_date.read(day, term, quartz)
    by_weekday = _WeekdayTerms(quartz)
    for term in ["*"] if weekday == "?" else weekday.split(","):
        by_weekday.read(weekday, term)
    return DayFields(
        days=by_date.mask >> 1,
        months=_mask(_MONTH, month, quartz),
        weekdays=by_weekday.mask >> 1 if quartz else by_weekday.mask,
        both=quartz or day[0] in "*?" or weekday[0] in "*?",
        years=None if year == "*" else _mask(_YEAR, year, quartz),
        last=tuple(by_date.last),
        nearest=tuple(by_date.nearest),
        last_nearest=tuple(by_date.last_nearest),
        last_working=by_date.last_working,
        nth=tuple(by_weekday.nth),
        last_weekday=tuple(by_weekday.last),
    )


def _check_quartz_days(day: str, weekday: str, six: bool) -> None:
    """Require `?` in one of the two day fields.

    Seven fields are always Quartz, so `*` is accepted. Six fields could be seconds first, where
    weekday numbers mean other days, so `?` is required.
    """
    if day == "?" and weekday == "?":
        _refuse(_("Only one of day-of-month and day-of-week may be ?"), "quartz_days")
    if "?" in (day, weekday) or (not six and "*" in (day, weekday)):
        return
    _refuse(
        _("A Quartz expression must have ? as day-of-month or as day-of-week"),
        "quartz_days",
        hint=_("write ? in the day field that does not matter"),
    )


class _DateTerms:
    """The day-of-month field, term by term."""

    def __init__(self) -> None:
        self.mask = 0
        self.last: list[int] = []
        self.nearest: list[int] = []
        self.last_nearest: list[int] = []
        self.last_working = False

    def read(self, text: str, term: str, quartz: bool) -> None:
        if found := _LAST.fullmatch(term):
            back = int(found[1] or 0)
            if back > 30:
                _wrong(_DAY, text, _("L-{days} is more than 30 days back", days=back))
            if found[2] is None:
                self.last.append(back)
            elif found[1] is None:
                self.last_working = True
            else:
                self.last_nearest.append(back)
        elif found := _NEAREST.fullmatch(term):
            self.nearest.append(_number(_DAY, text, found[1]))
        else:
            self.mask |= _term(_DAY, text, term, quartz)


class _WeekdayTerms:
    """The day-of-week field, term by term."""

    def __init__(self, quartz: bool) -> None:
        self.part = _QUARTZ_WEEKDAY if quartz else _WEEKDAY
        self.quartz = quartz
        self.mask = 0
        self.nth: list[tuple[int, int]] = []
        self.last: list[int] = []

    def read(self, text: str, term: str) -> None:
        if term == "L":
            if text != "L":
                _wrong(self.part, text, _("L alone (Saturday) cannot be part of a list"))
            self.mask |= 1 << self.part.high
        elif found := _LAST_WEEKDAY.fullmatch(term):
            self.last.append(self._weekday(text, found[1]))
        elif found := _NTH.fullmatch(term):
            if not 1 <= int(found[2]) <= 5:
                _wrong(self.part, text, _("#{number} is not between #1 and #5", number=found[2]))
            self.nth.append((self._weekday(text, found[1]), int(found[2])))
        else:
            self.mask |= _term(self.part, text, term, self.quartz)

    def _weekday(self, text: str, value: str) -> int:
        return (_number(self.part, text, value) - self.quartz) % 7
