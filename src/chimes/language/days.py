"""The days of a cron expression as forms of speech: what every language says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from chimes.language.masks import (
    ALL_DATES,
    ALL_MONTHS,
    Numbers,
    day_rule,
    numbers,
    spans,
    steps,
    stretches,
)
from chimes.triggers.cron_days import DayFields

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
    """Days of the week, Sunday is 0; all that is empty: none of these."""

    every: Numbers = ()
    #: Pairs of a day and which of its kind in the month, from 1.
    nth: tuple[tuple[int, int], ...] = ()
    last: Numbers = ()

    @property
    def working(self) -> bool:
        return self.every == WORKING


@dataclass(frozen=True, slots=True, kw_only=True)
class Days:
    """By date, by weekday, by both or, where both are None, every day."""

    dates: tuple[DateTerm, ...] | None
    weekdays: Weekdays | None
    #: A day must satisfy both, rather than either.
    both: bool
    #: None: all of them.
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


class DayWords(Protocol):
    """The words of one language for days; `months` None: in all of them."""

    def every_day(self, months: Numbers | None) -> str: ...

    def on_dates(self, dates: Sequence[DateTerm], months: Numbers | None) -> str: ...

    def on_weekdays(self, weekdays: Weekdays, months: Numbers | None) -> str:
        """Those of `every`; there are some."""

    def on_special(self, weekdays: Weekdays, months: Numbers | None) -> str:
        """Those of `nth` and `last`; there are some."""

    def only_if(self, dates: str, weekdays: Weekdays) -> str:
        """The dates, which are in words already, where they fall on these weekdays."""

    def as_well_as(self, days: str, others: str) -> str: ...


def days_phrase(days: Days, words: DayWords) -> str:
    """`every day`, `every Monday`, `on the 1st of every month`, …"""
    months = days.months
    if days.dates is None:
        return (
            words.every_day(months)
            if days.weekdays is None
            else _weekdays_phrase(days.weekdays, months, words)
        )
    dates = words.on_dates(days.dates, months)
    if days.weekdays is None:
        return dates
    if days.both:
        return words.only_if(dates, days.weekdays)
    return words.as_well_as(dates, _weekdays_phrase(days.weekdays, months, words))


def _weekdays_phrase(weekdays: Weekdays, months: Numbers | None, words: DayWords) -> str:
    if not weekdays.every:
        return words.on_special(weekdays, months)
    plain = words.on_weekdays(weekdays, months)
    if not (weekdays.nth or weekdays.last):
        return plain
    return words.as_well_as(plain, words.on_special(weekdays, months))


def weekday_stretches(weekdays: Numbers, *, least: int = 3) -> list[tuple[int, int]]:
    """First and last of each unbroken stretch, the week beginning on Monday."""
    ordered = tuple(sorted((day - 1) % 7 for day in weekdays))
    return [
        (_FROM_MONDAY[first], _FROM_MONDAY[last]) for first, last in stretches(ordered, least=least)
    ]


def is_stretch(values: Numbers) -> bool:
    """Whether they are three or more in a row."""
    return len(values) > 2 and len(spans(values)) == 1


def _dates(days: DayFields) -> tuple[DateTerm, ...]:
    dates = numbers(days.days & ALL_DATES, 1)
    found: list[DateTerm] = []
    if stepped := steps(dates):
        found.append(DateTerm("step", stepped.first, stepped.last, stepped.step))
    else:
        found += [
            DateTerm("day" if first == last else "days", first, last)
            for first, last in stretches(dates)
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
