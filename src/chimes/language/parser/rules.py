"""Rules of the grammar: patterns, the parts they produce, and text normalisation."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Literal, NamedTuple

# Parts: meanings independent of language. A phrase is a sequence of parts.

#: What a question may ask for.
Missing = Literal[
    "time", "date", "past", "ambiguous", "contradiction", "residue", "interval", "unit"
]
#: The choices of an ambiguous text.
Choice = Literal["weekly", "next", "night", "zone", "date"]
Portion = Literal["dawn", "morning", "noon", "afternoon", "evening", "night"]
#: See Clock.
Sure = Literal["certain", "usual", "open"]
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
    sure: Sure = "certain"
    midnight: bool = False
    #: With "at": may be separated from its day.
    marked: bool = False
    #: An hour without minutes; in `9-17` it stands for the whole hour.
    whole: bool = False
    #: Thai hour count: 3 โมง is 15:00, or 09:00, but never 03:00; 9 โมง is never 21:00.
    sixes: bool = False


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
class Named:
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
    """Recognised parts up to (not including) `end`."""

    parts: tuple[Part, ...]
    end: int


Meaning = Callable[[re.Match[str]], tuple[Part, ...]]

IMPOSSIBLE = Problem(("time", "contradiction"))
AMBIGUOUS = Problem(("ambiguous",))
NO_INTERVAL = Problem(("interval",))
NO_UNIT = Problem(("unit",))
NO_DATE = Problem(("date", "contradiction"))
YESTERDAY = Problem(("past",), loose=True)
#: "About", "before": near a time.
VAGUE = Problem(("ambiguous",), loose=True)
#: "Or".
ONE_OF = Problem(("ambiguous",), loose=True)
#: "Until", "except": limits that sentences cannot set.
RESIDUE = Problem(("residue",), loose=True)
#: "From": a span with an end on the same day, else a limit.
SPAN_OR_RESIDUE = Problem(("residue",), loose=True, opens_span=True)
#: "For three days".
LIMITED = Problem(("residue",))


class Rule(NamedTuple):
    source: str
    meaning: Meaning


def rule(pattern: str, meaning: Meaning | Part | tuple[Part, ...]) -> Rule:
    """`meaning` is a function of the match, or the parts themselves."""
    if callable(meaning):
        return Rule(pattern, meaning)
    parts = meaning if isinstance(meaning, tuple) else (meaning,)
    return Rule(pattern, lambda _: parts)


class Book:
    """Rules that are tried together.

    Compiled on first use, because most texts need one language only. `_any` rejects most positions
    of a text with one match.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = list(rules)

    @cached_property
    def _compiled(self) -> list[tuple[re.Pattern[str], Meaning]]:
        return [(re.compile(source), meaning) for source, meaning in self._rules]

    @cached_property
    def _any(self) -> re.Pattern[str]:
        sources = (_GROUP.sub("(?:", each.source) for each in self._rules)
        return re.compile("|".join(f"(?:{source})" for source in sources))

    def longest(self, text: str, at: int) -> Found | None:
        """The longest match; the first of equal ones."""
        if self._any.match(text, at) is None:
            return None
        best: Found | None = None
        for pattern, meaning in self._compiled:
            found = pattern.match(text, at)
            if found and _MARK.match(text, found.end()):
                continue
            if found and found.end() > at and (best is None or found.end() > best.end):
                best = Found(meaning(found), found.end())
        return best


#: Thai vowels and tone marks that belong to the letter before them.
_MARK = re.compile("[ะัาำิ-ฺ็-๎ๅ]")
#: The beginning of a capturing group.
_GROUP = re.compile(r"\((?:\?P<\w+>|(?!\?))")


def clock(hour: int, minute: int = 0, second: int = 0) -> Clock | Problem:
    """An unambiguous time on the 24-hour clock."""
    if hour > 23 or minute > 59 or second > 59:
        return IMPOSSIBLE
    return Clock(hour, minute, second)


def in_portion(hour: int, minute: int, portion: Portion) -> Clock | Problem:
    """An hour with its part of the day, `晚上8点` or `8 in the evening`."""
    if hour > 24 or minute > 59:
        return IMPOSSIBLE
    moved = moved_hour(hour, portion)
    if isinstance(moved, Problem):
        return moved
    return Clock(moved, minute, midnight=moved == minute == 0 and portion == "dawn")


#: For each portion: spoken hours to hours of the day. Others are ambiguous or impossible.
_HOURS: dict[Portion, dict[int, int]] = {
    "dawn": {**{hour: hour for hour in range(7)}, 12: 0},
    "morning": {hour: hour for hour in range(1, 12)},
    "noon": {10: 10, 11: 11, 12: 12, 1: 13, 2: 14, 13: 13, 14: 14},
    "afternoon": {12: 12, **{hour: hour + 12 for hour in range(1, 8)}},
    "evening": {hour: hour + 12 for hour in range(4, 12)},
    "night": {hour: hour + 12 for hour in range(5, 12)},
}
_AFTER_NOON: dict[Portion, range] = {
    "afternoon": range(12, 20),
    "evening": range(16, 24),
    "night": range(17, 24),
}


def moved_hour(hour: int, portion: Portion) -> int | Problem:
    known = _HOURS[portion].get(hour)
    if known is not None:
        return known
    if hour in _AFTER_NOON.get(portion, ()):
        return hour
    return AMBIGUOUS if hour <= 12 else Problem(("contradiction",))


def whole_hours(found: re.Match[str]) -> tuple[Part, ...]:
    """`9-17`: hours of the 24-hour clock, since the second is past noon."""
    first, last = int(found["first"]), int(found["last"])
    if last > 23 or first > 23:
        return (IMPOSSIBLE,)
    if last <= 12:
        return (AMBIGUOUS,)
    return (Span(Clock(first, whole=True), Clock(last, whole=True)),)


# Normalised text: NFKC, ASCII digits, lower case, single spaces. Every character keeps its
# original position, so that the task keeps its spelling.

_DASHES = dict.fromkeys("‐‑‒–—―−~〜～→", "-")
_QUOTES = {"’": "'", "‘": "'", "ʼ": "'", "“": '"', "”": '"'}
# Traditional to simplified, only for characters of the grammar.
_SIMPLIFIED = dict(
    zip(
        "點鐘鍾週個後兩時號間禮這從開紐約東倫內過淩雙單當為終經隔當節兒幾壹貳參倆敦復舊羅馬韓國臺灣",
        "点钟钟周个后两时号间礼这从开纽约东伦内过凌双单当为终经隔当节儿几一二三两敦复旧罗马韩国台湾",
        strict=True,
    )
)
_SAME = _DASHES | _QUOTES | _SIMPLIFIED
_NIKHAHIT, _SARA_AA, _SARA_AM, _SARA_E, _SARA_AE = "\u0e4d", "\u0e32", "\u0e33", "\u0e40", "\u0e41"


@dataclass(frozen=True, slots=True)
class Text:
    """`folded` is the normalised text; `origin[i]` is the position of its character i in `raw`."""

    raw: str
    folded: str
    origin: tuple[int, ...]

    def between(self, start: int, end: int) -> str:
        """The original text of a range of `folded`."""
        return self.raw[self.origin[start] : self.origin[end]]


def fold(raw: str) -> Text:
    found: list[str] = []
    origin: list[int] = []
    for index, each in enumerate(raw):
        for character in _folded(each):
            if character == " " and (not found or found[-1] == " "):
                continue
            if found and (joined := _JOINED.get((found[-1], character))):
                found[-1] = joined
                continue
            if found and found[-1] in _TONES and character in _VOWELS:
                # Combining marks in another order look the same.
                found[-1], character = character, found[-1]
            found.append(character)
            origin.append(index)
    return Text(raw, "".join(found), (*origin, len(raw)))


_TONES, _VOWELS = frozenset("่้๊๋"), frozenset("ัิีึืุู")
#: NFKC takes the Thai vowel AM apart, and many type AE as two E.
_JOINED = {(_NIKHAHIT, _SARA_AA): _SARA_AM, (_SARA_E, _SARA_E): _SARA_AE}


def _folded(character: str) -> str:
    if character.isascii():
        return " " if character.isspace() else _SAME.get(character, character.lower())
    found = []
    for each in unicodedata.normalize("NFKC", character).lower():
        category = unicodedata.category(each)
        if category == "Nd":
            found.append(str(unicodedata.decimal(each)))
        elif each.isspace():
            found.append(" ")
        elif category not in ("Cf", "Cc"):
            found.append(_SAME.get(each, each))
    return "".join(found)


def language_of(text: str) -> str:
    """By script: `th`, `zh`, else `en`; of two scripts the one with more letters."""
    thai = sum(map(is_thai, text))
    chinese = sum(map(is_chinese, text))
    if thai or chinese:
        # One Chinese character counts as three Thai letters.
        return "th" if thai >= 3 * chinese else "zh"
    return "en"


def is_chinese(character: str) -> bool:
    return "\u3400" <= character <= "\u9fff"


def is_latin(character: str) -> bool:
    """A letter or digit that is part of a word between spaces."""
    return character.isascii() and character.isalnum()


def is_thai(character: str) -> bool:
    return "\u0e00" <= character <= "\u0e7f"


# Times and dates in digits, shared by all languages.

#: Years from here on are of the Buddhist era.
_FIRST_BUDDHIST = 2400
_BUDDHIST = 543
_LENGTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def christian_year(year: int, *, buddhist: bool = False) -> int:
    return year - _BUDDHIST if buddhist or year >= _FIRST_BUDDHIST else year


def date_of(year: int | None, month: int, day: int, *, every: bool = False) -> tuple[Part, ...]:
    """A valid date, or a problem."""
    if not 1 <= month <= 12 or not 1 <= day <= _LENGTHS[month - 1]:
        return (NO_DATE,)
    if year is not None and month == 2 and day == 29 and not _is_leap(year):
        return (NO_DATE,)
    return (Date(month, day, year, every),)


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _clock(found: re.Match[str]) -> tuple[Part, ...]:
    hour, minute = int(found[1]), int(found[2])
    if len(found[2]) == 1:
        return (IMPOSSIBLE,)
    fraction = (found[4] or "").ljust(6, "0")
    read = clock(hour, minute, int(found[3] or 0))
    if isinstance(read, Problem):
        return (read,)
    return (
        Clock(
            hour,
            minute,
            read.second,
            int(fraction),
            sure="usual" if 1 <= hour <= 12 else "certain",
        ),
    )


def _ordered(found: re.Match[str]) -> tuple[Part, ...]:
    return date_of(christian_year(int(found[1])), int(found[2]), int(found[3]))


def _iso(found: re.Match[str]) -> tuple[Part, ...]:
    """`2027-02-10T09:00`; an offset is rejected because it has no clock changes."""
    day = date_of(christian_year(int(found[1])), int(found[2]), int(found[3]))
    time = clock(int(found[4]), int(found[5]), int(found[6] or 0))
    if found[8]:
        return (AMBIGUOUS,)
    return (*day, time, *((InZone("UTC"),) if found[7] else ()))


def _either_order(found: re.Match[str]) -> tuple[Part, ...]:
    """`10/02/2027` is in February here and in October there; a Buddhist year tells."""
    first, second, year = int(found[1]), int(found[2]), int(found[3])
    if len(found[3]) == 2:
        return (AMBIGUOUS,)
    if year >= _FIRST_BUDDHIST or first > 12 or first == second:
        return date_of(christian_year(year), second, first)
    if second > 12:
        return date_of(year, first, second)
    return (_WHICH_DATE,)


_WHICH_DATE = Problem(("ambiguous",), choice="date")
_END = r"(?![0-9])(?![:.,][0-9])"
#: Not a time of day.
NO_PRICE = (
    r"(?! ?(?:%|บาท|สตางค์|ล้าน|กก|กม|baht|usd|eur|dollars?|euros?|kg|km|元|块|美元|泰铢|公里|公斤))"
)
RULES: list[Rule] = [
    rule(
        r"([0-9]{4})-([0-9]{2})-([0-9]{2})t([0-9]{2}):([0-9]{2})(?::([0-9]{2}))?"
        r"(?:(z)|([+-][0-9]{2}:?[0-9]{2}))?(?![0-9a-z])",
        _iso,
    ),
    rule(
        r"(?!1:1(?![0-9]))([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{2})(?:\.([0-9]{1,6}))?)?" + _END,
        _clock,
    ),
    rule(r"([0-9]{1,2})\.([0-9]{2})()()" + _END + NO_PRICE, _clock),
    rule(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})" + _END.replace(":.,", "."), _ordered),
    rule(
        r"([0-9]{4})[/.]([0-9]{1,2})[/.]([0-9]{1,2})" + _END,
        _ordered,
    ),
    rule(r"([0-9]{1,2})/([0-9]{1,2})/([0-9]{4}|[0-9]{2})" + _END, _either_order),
    rule(r"([0-9]{1,2})-([0-9]{1,2})-([0-9]{4}|[0-9]{2})" + _END, _either_order),
    rule(r"([0-9]{1,2})\.([0-9]{1,2})\.([0-9]{4}|[0-9]{2})" + _END, _either_order),
    rule(r"([0-9]{1,2})/([0-9]{1,2})(?![0-9/])", _WHICH_DATE),
]


# A question; `parse` turns it into NeedsClarification.


class Ask(Exception):
    """The text is ambiguous or incomplete.

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
