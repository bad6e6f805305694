"""Meanings of time words, independent of language. A phrase is a sequence of parts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

#: What a question may ask for.
Missing = Literal[
    "time", "date", "past", "ambiguous", "contradiction", "residue", "interval", "unit"
]
#: The choices of an ambiguous text.
Choice = Literal["weekly", "next", "night", "zone", "date", "end"]
Portion = Literal["dawn", "morning", "noon", "afternoon", "evening", "night"]
#: See Clock.
Certainty = Literal["certain", "usual", "open"]
#: Each term as cron writes it: `15`, `L`, `LW`, `1W` for dates; `1#2`, `5L` for weekdays.
Terms = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day.

    `certain`: unambiguous. `usual`: the morning unless a portion of the day is named. `open`:
    either half of the day unless a portion is named.
    """

    hour: int
    minute: int = 0
    second: int = 0
    microsecond: int = 0
    certainty: Certainty = "certain"
    midnight: bool = False
    #: With "at": may be separated from its day.
    marked: bool = False
    #: An hour without minutes; in `9-17` it stands for the whole hour.
    whole: bool = False
    #: Thai hour count: 3 โมง is 15:00, or 09:00, but never 03:00; 9 โมง is never 21:00.
    thai_count: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """A range of times of day; `end` None: open."""

    start: Clock
    end: Clock | None


@dataclass(frozen=True, slots=True)
class PartOfDay:
    portion: Portion


@dataclass(frozen=True, slots=True)
class Daily:
    pass


@dataclass(frozen=True, slots=True)
class Weekdays:
    """Weekdays, Sunday is 0. Without `every` a single one may mean the coming one."""

    weekdays: frozenset[int]
    every: bool


@dataclass(frozen=True, slots=True)
class Period:
    """Every week, month or year; another part names the day."""

    unit: Literal["week", "month", "year"]


@dataclass(frozen=True, slots=True)
class MonthDays:
    """Days of a month: by date, or by weekday (`weekday`)."""

    terms: Terms
    every: bool
    weekday: bool = False


@dataclass(frozen=True, slots=True)
class Date:
    """A calendar date; without a year this year's, or with `every` each year's."""

    month: int
    day: int
    year: int | None = None
    every: bool = False


@dataclass(frozen=True, slots=True)
class RelativeDay:
    """A number of days from today."""

    days: int


@dataclass(frozen=True, slots=True)
class RelativeWeekday:
    """A weekday of this week (0) or the next (1), or the next such day (None).

    `either`: next week's or just the next one.
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
    """A delay from now."""

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
    """Time words that lead to a question.

    `loose`: only if a time follows, because they have other uses. `opens_span`: unless a span
    follows.
    """

    missing: tuple[Missing, ...]
    loose: bool = False
    opens_span: bool = False
    choice: Choice | None = None


Time = Clock | Span | PartOfDay | AtMinutes | Interval | Delay
Day = Daily | Weekdays | MonthDays | Date | RelativeDay | RelativeWeekday | RelativeMonthDay
Part = Time | Day | Period | InMonths | InZone | OnlyOnce | Problem

WORKING_DAYS = Weekdays(frozenset(range(1, 6)), every=True)
WEEKEND = Weekdays(frozenset({0, 6}), every=True)

IMPOSSIBLE = Problem(("time", "contradiction"))
AMBIGUOUS = Problem(("ambiguous",))
NO_INTERVAL = Problem(("interval",))
NO_UNIT = Problem(("unit",))
NO_DATE = Problem(("date", "contradiction"))
YESTERDAY = Problem(("past",), loose=True)
#: "About", "before", "or": near a time.
VAGUE = Problem(("ambiguous",), loose=True)
#: "Until", "except": limits that sentences cannot set.
RESIDUE = Problem(("residue",), loose=True)
#: "From": a span with an end on the same day, else a limit.
SPAN_OR_RESIDUE = Problem(("residue",), loose=True, opens_span=True)
#: "For three days".
LIMITED = Problem(("residue",))


class Unclear(Exception):
    """The text is ambiguous or incomplete; `parse` turns it into NeedsClarification.

    `words`: the unreadable part of the folded text; `readings`: possible times of an hour;
    `choice`: other choices; `place`: where in the folded text a time would answer the question.
    """

    def __init__(
        self,
        *missing: Missing,
        words: str = "",
        readings: tuple[str, ...] = (),
        choice: Choice | None = None,
    ) -> None:
        super().__init__(*missing)
        self.missing = missing
        self.words = words
        self.readings = readings
        self.choice = choice
        self.place: tuple[int, int] | None = None
