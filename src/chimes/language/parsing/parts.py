"""What words of time mean, apart from any language. A phrase is a row of parts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, NamedTuple

#: What a clarification may ask for.
Missing = Literal[
    "time", "date", "past", "ambiguous", "contradiction", "residue", "interval", "unit"
]
#: Between what, where words can be read in two ways.
Choice = Literal["weekly", "next", "night", "zone", "date"]
Portion = Literal["dawn", "morning", "noon", "afternoon", "evening", "night"]
#: See Clock.
Sure = Literal["certain", "usual", "open"]
#: Each term as cron writes it: `15`, `L`, `LW`, `1W` for dates; `1#2`, `5L` for weekdays.
Terms = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day.

    `certain`: nothing can move it. `usual`: it means the morning unless a portion of the day is
    named with it. `open`: without one it may be either half of the day.
    """

    hour: int
    minute: int = 0
    second: int = 0
    microsecond: int = 0
    sure: Sure = "certain"
    midnight: bool = False
    #: Said with "at": it can stand apart from its day.
    marked: bool = False
    #: A whole hour without minutes, which in `9-17` stands for all of the hour.
    whole: bool = False
    #: Counted as in Thai: 3 โมง is 15:00, or 09:00, but never 03:00; 9 โมง is never 21:00.
    sixes: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """From one time of day to another; `end` None: from here on."""

    start: Clock
    end: Clock | None


@dataclass(frozen=True, slots=True)
class PartOfDay:
    portion: Portion


@dataclass(frozen=True, slots=True)
class Daily:
    pass


@dataclass(frozen=True, slots=True)
class Named:
    """Weekdays, Sunday is 0. Without `every` a single one may be the coming one."""

    weekdays: frozenset[int]
    every: bool


@dataclass(frozen=True, slots=True)
class Period:
    """Every week, month or year, which day being said elsewhere."""

    unit: Literal["week", "month", "year"]


@dataclass(frozen=True, slots=True)
class MonthDays:
    """Days of a month: by date, or by weekday (`weekday`)."""

    terms: Terms
    every: bool
    weekday: bool = False


@dataclass(frozen=True, slots=True)
class Date:
    """A calendar date; without a year the one of this year, or with `every` of each."""

    month: int
    day: int
    year: int | None = None
    every: bool = False


@dataclass(frozen=True, slots=True)
class RelativeDay:
    """So many days from today."""

    days: int


@dataclass(frozen=True, slots=True)
class RelativeWeekday:
    """A weekday of this week (0) or the next (1), or the next such day (None).

    `either`: it may mean that of the next week or just the next.
    """

    weekday: int
    weeks: int | None
    either: bool = False


@dataclass(frozen=True, slots=True)
class RelativeMonthDay:
    """A date of this month (0) or of the next (1)."""

    day: int
    months: int


@dataclass(frozen=True, slots=True)
class Interval:
    step: timedelta


@dataclass(frozen=True, slots=True)
class Delay:
    """So long from now."""

    after: timedelta


@dataclass(frozen=True, slots=True)
class AtMinutes:
    """At these minutes of each hour."""

    minutes: frozenset[int]


@dataclass(frozen=True, slots=True)
class InMonths:
    """In these months only."""

    months: frozenset[int]


@dataclass(frozen=True, slots=True)
class InZone:
    name: str


@dataclass(frozen=True, slots=True)
class OnlyOnce:
    pass


@dataclass(frozen=True, slots=True)
class Problem:
    """Words of time that must be asked about.

    `loose`: only if something of time follows, since they have other uses. `opens_span`: unless a
    span follows.
    """

    missing: tuple[Missing, ...]
    loose: bool = False
    opens_span: bool = False
    choice: Choice | None = None


Part = (
    Clock
    | Span
    | PartOfDay
    | Daily
    | Named
    | Period
    | MonthDays
    | Date
    | RelativeDay
    | RelativeWeekday
    | RelativeMonthDay
    | Interval
    | Delay
    | AtMinutes
    | InMonths
    | InZone
    | OnlyOnce
    | Problem
)


class Found(NamedTuple):
    """Parts that were recognised, up to (not including) `end`."""

    parts: tuple[Part, ...]
    end: int
