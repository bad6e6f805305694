"""Semantics of a trigger: its days, times and durations as values, which `words.py` puts into
sentences.

They are computed from the parsed expression, not from its spelling, so two spellings of one
schedule have the same description.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import pairwise
from typing import Literal, NamedTuple

from chimes.triggers import Calendar, Cron, Window
from chimes.triggers.cron_fields import EVERY, CronFields, DayFields, parse_fields
from chimes.triggers.zones import EPOCH_ORDINAL

# Values of cron fields.

ALL_DATES = (1 << 31) - 1
ALL_WEEKDAYS = (1 << 7) - 1
ALL_MONTHS = tuple(range(1, 13))

Numbers = tuple[int, ...]


class Steps(NamedTuple):
    """An arithmetic progression."""

    first: int
    last: int
    step: int


@dataclass(frozen=True, slots=True)
class CronValues:
    """The seconds, minutes, hours and days at which an expression fires."""

    seconds: Numbers
    minutes: Numbers
    hours: Numbers
    days: DayFields

    @property
    def fires_per_day(self) -> int:
        return len(self.seconds) * len(self.minutes) * len(self.hours)


@dataclass(frozen=True, slots=True)
class DayRule:
    """How the two day fields combine; None: the field allows every day."""

    by_date: DayFields | None
    by_weekday: DayFields | None
    #: A day must satisfy both, rather than either.
    both: bool


def expression_without_zone(trigger: Cron) -> str:
    """With values in place of hashed fields."""
    return trigger.resolved


def interval_of(trigger: Cron) -> str | None:
    """The duration of an `@every`, else None."""
    body = expression_without_zone(trigger)
    return body[len(EVERY) :] if body.lower().startswith(f"{EVERY} ") else None


def cron_values(trigger: Cron) -> CronValues:
    """For expressions other than `@every`."""
    fields: CronFields = parse_fields(expression_without_zone(trigger), trigger.dialect)
    hour_mask = (1 << 60) - 1
    blocks = [fields.minutes >> 60 * hour & hour_mask for hour in range(24)]
    return CronValues(
        seconds=numbers(fields.seconds),
        minutes=numbers(next(block for block in blocks if block)),
        hours=tuple(hour for hour, block in enumerate(blocks) if block),
        days=fields.days,
    )


def day_rule(days: DayFields) -> DayRule:
    any_date = days.days & ALL_DATES == ALL_DATES
    any_weekday = days.weekdays & ALL_WEEKDAYS == ALL_WEEKDAYS
    if not days.both and (any_date or any_weekday):
        return DayRule(None, None, both=True)
    return DayRule(None if any_date else days, None if any_weekday else days, both=days.both)


def numbers(mask: int, base: int = 0) -> Numbers:
    return tuple(base + bit for bit in range(mask.bit_length()) if mask >> bit & 1)


def ranges(values: Numbers, *, shortest: int = 3) -> list[tuple[int, int]]:
    """The values as contiguous ranges: (1, 2, 3, 7) is 1–3 and 7–7. Values of a range with fewer
    than `shortest` are listed one by one."""
    found: list[tuple[int, int]] = []
    for value in values:
        if found and found[-1][1] == value - 1:
            found[-1] = (found[-1][0], value)
        else:
            found.append((value, value))
    listed: list[tuple[int, int]] = []
    for first, last in found:
        if last - first + 1 >= shortest:
            listed.append((first, last))
        else:
            listed += [(value, value) for value in range(first, last + 1)]
    return listed


def range_words(pairs: Iterable[tuple[int, int]], name: Callable[[int], str], to: str) -> list[str]:
    """Ranges in words: `Monday`, `Monday to Friday`."""
    return [
        name(first) if first == last else f"{name(first)}{to}{name(last)}" for first, last in pairs
    ]


def steps(values: Numbers, *, shortest: int = 4) -> Steps | None:
    """The values as an arithmetic progression with a step of two or more, else None."""
    if len(values) < shortest:
        return None
    step = values[1] - values[0]
    even = all(after - before == step for before, after in pairwise(values))
    return Steps(values[0], values[-1], step) if even and step > 1 else None


def even_cycle(values: Numbers, size: int) -> Steps | None:
    """The values as steps that divide a cycle evenly, such as minutes 5, 20, 35 and 50, else
    None."""
    found = steps(values, shortest=2)
    if found is None or size % found.step or found.first >= found.step:
        return None
    return found if found.last + found.step >= size else None


# Days.

WORKING = (1, 2, 3, 4, 5)
_FROM_MONDAY = (1, 2, 3, 4, 5, 6, 0)


DateKind = Literal["day", "days", "step", "nearest", "from_end", "nearest_from_end", "last_working"]


@dataclass(frozen=True, slots=True)
class DateTerm:
    """One kind of date of a month.

    `day`: `first`. `days`: from `first` to `last`. `step`: every `step` days of these.
    `nearest`: the Monday to Friday nearest to `first`. `from_end`: `first` days before the last;
    `nearest_from_end`: the Monday to Friday nearest to that. `last_working`: the last one.
    """

    kind: DateKind
    first: int = 0
    last: int = 0
    step: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Weekdays:
    """Days of the week, Sunday is 0."""

    every: Numbers = ()
    #: Pairs of weekday and its number in the month, from 1.
    nth: tuple[tuple[int, int], ...] = ()
    last: Numbers = ()

    @property
    def working(self) -> bool:
        return self.every == WORKING


@dataclass(frozen=True, slots=True, kw_only=True)
class Days:
    """Days by date, by weekday or by both; every day if both are None."""

    dates: tuple[DateTerm, ...] | None
    weekdays: Weekdays | None
    #: A day must match both instead of either.
    both: bool
    #: None: all.
    months: Numbers | None
    years: Numbers | None

    @property
    def all(self) -> bool:
        return self.dates is None and self.weekdays is None and self.months is None


def days_of(days: DayFields) -> Days:
    rule = day_rule(days)
    months = numbers(days.months)
    return Days(
        dates=None if rule.by_date is None else _dates(days),
        weekdays=None if rule.by_weekday is None else _weekdays(days),
        both=rule.both,
        months=None if months == ALL_MONTHS else months,
        years=None if days.years is None else numbers(days.years, 1970),
    )


def weekday_ranges(weekdays: Numbers, *, shortest: int = 3) -> list[tuple[int, int]]:
    """First and last day of each range, with Monday as the first day of the week."""
    ordered = tuple(sorted((day - 1) % 7 for day in weekdays))
    return [
        (_FROM_MONDAY[first], _FROM_MONDAY[last])
        for first, last in ranges(ordered, shortest=shortest)
    ]


def is_range(values: Numbers) -> bool:
    """Whether the values are three or more in a row."""
    return len(values) > 2 and len(ranges(values, shortest=1)) == 1


def _dates(days: DayFields) -> tuple[DateTerm, ...]:
    dates = numbers(days.days & ALL_DATES, 1)
    found: list[DateTerm] = []
    if stepped := steps(dates):
        found.append(DateTerm("step", stepped.first, stepped.last, stepped.step))
    else:
        found += [
            DateTerm("day" if first == last else "days", first, last)
            for first, last in ranges(dates)
        ]
    found += [DateTerm("nearest", day) for day in sorted(set(days.nearest))]
    found += [DateTerm("from_end", back) for back in sorted(set(days.last), reverse=True)]
    found += [
        DateTerm("nearest_from_end", back) for back in sorted(set(days.last_nearest), reverse=True)
    ]
    if days.last_working:
        found.append(DateTerm("last_working"))
    return tuple(found)


def _weekdays(days: DayFields) -> Weekdays:
    return Weekdays(
        every=numbers(days.weekdays),
        nth=tuple(sorted(set(days.nth))),
        last=tuple(sorted(set(days.last_weekday))),
    )


# Times of day.

#: At most this many times of a day are listed one by one.
_MAX_LISTED_TIMES = 6
#: At most this many ranges of hours are listed; beyond that the hours are.
_MAX_CLOCK_RANGES = 3

ClockUnit = Literal["second", "minute", "hour"]
#: Start and end time of a part of the day, as text.
ClockRange = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Values:
    """Some values of a unit: minutes 5, 10 and 20."""

    unit: ClockUnit
    numbers: Numbers


@dataclass(frozen=True, slots=True)
class Rate:
    """Every `step` units, starting at `first` of the next larger unit: every 15 minutes from
    minute 5 on."""

    unit: ClockUnit
    step: int = 1
    first: int = 0


@dataclass(frozen=True, slots=True)
class At:
    """Single times of day, as text: `09:00`, `17:30`."""

    clocks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """A rate, all day or during a part of it."""

    rate: Rate
    #: Minutes of each hour, or seconds of each minute.
    at: Values | None = None
    #: First time of a rate in hours.
    since: str | None = None
    #: Parts of the day; `hours` instead if there are many.
    ranges: tuple[ClockRange, ...] = ()
    hours: Values | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """Single minutes or seconds within larger units; None means within each.

    `minutes` is None if `which` are minutes.
    """

    which: Values | Rate
    minutes: Values | None
    hours: Values | None


Times = At | Repeated | Listed


def times_of(values: CronValues) -> Times:
    seconds, minutes, hours = values.seconds, values.minutes, values.hours
    if values.fires_per_day <= _MAX_LISTED_TIMES:
        return At(_clocks(hours, minutes, seconds))
    if seconds != (0,):
        return _with_seconds(seconds, minutes, hours)
    if len(minutes) == 1:
        return _hourly(minutes[0], hours)
    rate = _rate("minute", minutes)
    if rate is None:
        return Listed(which=Values("minute", minutes), minutes=None, hours=_hours(hours))
    return _in_hours(rate, None, hours, f":{minutes[0]:02d}", f":{minutes[-1]:02d}")


def _with_seconds(seconds: Numbers, minutes: Numbers, hours: Numbers) -> Times:
    rate = _rate("second", seconds)
    if len(minutes) < 60:
        which = rate or Values("second", seconds)
        return Listed(which=which, minutes=Values("minute", minutes), hours=_hours(hours))
    if rate is None:
        return _in_hours(Rate("minute"), Values("second", seconds), hours, ":00", ":59")
    return _in_hours(rate, None, hours, f":00:{seconds[0]:02d}", f":59:{seconds[-1]:02d}")


def _hourly(minute: int, hours: Numbers) -> Times:
    if len(hours) == 24:
        return Repeated(rate=Rate("hour"), at=Values("minute", (minute,)) if minute else None)
    if found := even_cycle(hours, 24):
        first = f"{found.first:02d}:{minute:02d}"
        return Repeated(rate=Rate("hour", found.step), since=first)
    clock_ranges = _clock_ranges(hours, f":{minute:02d}", f":{minute:02d}")
    if clock_ranges and all(last - first >= 2 for first, last in ranges(hours, shortest=1)):
        return Repeated(rate=Rate("hour"), ranges=clock_ranges)
    return At(_clocks(hours, (minute,), (0,)))


def _in_hours(rate: Rate, at: Values | None, hours: Numbers, first: str, last: str) -> Repeated:
    if len(hours) == 24:
        return Repeated(rate=rate, at=at)
    if clock_ranges := _clock_ranges(hours, first, last):
        # The range shows the first time, so the rate does not.
        return Repeated(rate=Rate(rate.unit, rate.step), at=at, ranges=clock_ranges)
    return Repeated(rate=rate, at=at, hours=_hours(hours))


def _rate(unit: ClockUnit, values: Numbers) -> Rate | None:
    if len(values) == 60:
        return Rate(unit)
    found = even_cycle(values, 60)
    return None if found is None else Rate(unit, found.step, found.first)


def _hours(hours: Numbers) -> Values | None:
    return None if len(hours) == 24 else Values("hour", hours)


def _clock_ranges(hours: Numbers, first: str, last: str) -> tuple[ClockRange, ...]:
    """Ranges of hours as times; empty if there are many."""
    found = ranges(hours, shortest=1)
    if len(found) > _MAX_CLOCK_RANGES:
        return ()
    return tuple((f"{start:02d}{first}", f"{end:02d}{last}") for start, end in found)


def _clocks(hours: Numbers, minutes: Numbers, seconds: Numbers) -> tuple[str, ...]:
    end = "" if seconds == (0,) else ":{:02d}"
    return tuple(
        f"{hour:02d}:{minute:02d}{end.format(second)}"
        for hour in hours
        for minute in minutes
        for second in seconds
    )


# Durations, times and exclusions.

DurationUnit = Literal["hour", "minute", "second", "millisecond", "microsecond"]

_SHOWN_DATES = 5
#: The largest first.
DURATION_SIZES: dict[DurationUnit, timedelta] = {
    "hour": timedelta(hours=1),
    "minute": timedelta(minutes=1),
    "second": timedelta(seconds=1),
    "millisecond": timedelta(milliseconds=1),
    "microsecond": timedelta(microseconds=1),
}
_DAY = timedelta(days=1)
_WHOLE_DAY = (0, 1440)


def duration_parts(value: timedelta) -> list[tuple[int, DurationUnit]]:
    """Counts by unit, largest first, without zeros."""
    parts: list[tuple[int, DurationUnit]] = []
    for unit, size in DURATION_SIZES.items():
        count, value = divmod(value, size)
        if count:
            parts.append((count, unit))
    return parts or [(0, "second")]


def whole_days(value: timedelta) -> int | None:
    """The number of days of 24 hours if it is two or more, else None."""
    return value // _DAY if value % _DAY == timedelta(0) and value > _DAY else None


def clock_words(moment: datetime) -> str:
    """`09:00`, `09:00:05.25`: without trailing zeros."""
    if moment.microsecond:
        return f"{moment:%H:%M:%S.%f}".rstrip("0")
    return f"{moment:%H:%M:%S}" if moment.second else f"{moment:%H:%M}"


def minute_words(minute: int) -> str:
    """A minute of the day as `HH:MM`."""
    return f"{minute // 60:02d}:{minute % 60:02d}"


def shown_dates(calendar: Calendar) -> tuple[list[str], int]:
    """The first dates of a calendar and the number of remaining ones."""
    days = calendar.dates
    shown = [date.fromordinal(day + EPOCH_ORDINAL).isoformat() for day in days[:_SHOWN_DATES]]
    return shown, len(days) - len(shown)


def all_day(window: Window) -> bool:
    return (window.start, window.end) == _WHOLE_DAY


def past_midnight(window: Window) -> bool:
    return window.end <= window.start
