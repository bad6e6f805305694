"""Rules of the grammars: patterns and the parts that they produce.

A language is a `Grammar`. Functions that several languages need are here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import Literal, NamedTuple

from chimes.language.parser import parts

Parts = tuple[parts.Part, ...]
ToParts = Callable[[re.Match[str]], Parts]
RecipientChannel = Literal["inbox", "telegram", "email"]
#: The names of Telegram, and an e-mail address.
TELEGRAM = r"(?:telegram|เทเลแกรม|เทเลแกรม์|电报|tg)"
ADDRESS = r"[a-z0-9._%+-]+@[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]{2,}"


class Found(NamedTuple):
    """Recognised parts up to (not including) `end`."""

    parts: Parts
    end: int


class Rule(NamedTuple):
    source: str
    to_parts: ToParts


def rule(pattern: str, meaning: ToParts | parts.Part | Parts) -> Rule:
    """`meaning` is a function of the match, or the parts themselves."""
    if callable(meaning):
        return Rule(pattern, meaning)
    given = meaning if isinstance(meaning, tuple) else (meaning,)
    return Rule(pattern, lambda _: given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """The words of one language, as patterns over folded text.

    Patterns are tried together with those of the other languages, because texts mix languages.
    An empty one means that the language has no such words.
    """

    # In the examples, which are English, the words that a pattern matches are between bars.

    #: "en".
    code: str
    #: Its name in `Parsed.pattern`: "english".
    name: str
    #: Sentences that can be parsed, for questions: "every 15 minutes check the site".
    examples: tuple[str, ...]
    #: Whether a character is of its script: "ท" of Thai. None: Latin.
    script: Callable[[str], bool] | None = None
    #: How many letters of other scripts a character counts for: 3 for "每", a whole
    #: word.
    weight: int = 1

    # Inside a phrase.
    #: The phrases that mean a part of a time: "|9am|", "|every Monday|", "|in 5 minutes|".
    rules: list[Rule]
    #: The length of a text such as "two and a half hours".
    duration: Callable[[str], timedelta]
    #: Between parts of different kinds: "Monday |at| 9am".
    joining: str
    #: Between parts of one kind: "Monday |and| Friday".
    listing: str
    #: Between the ends of a range: "9am |to| 5pm".
    ranging: str
    #: Before a range: "|between| 9am and 5pm". Empty: the language has only `ranging`.
    between: str = ""
    #: Between the ends of such a range: "between 9am |and| 5pm".
    between_and: str
    #: Before the time words or between them: "|please| |remind me| |to| call at 9am".
    request: str

    # Zones.
    #: The zone of the user: "9am |local time|".
    local_time: str
    #: "9am |Paris time|". PLACES stands for the known places in the script of the language.
    place_time: str
    #: A zone that is not known, so that the text is not clear: "9am| Mars time|".
    unknown_zone: str

    # Words before a phrase that change it.
    #: The number began before the phrase: "|two| or three minutes".
    numeral: str
    #: The duration began before the phrase: "two |hours| 5 minutes".
    unit: str
    #: How a phrase begins that continues a number: "two or |three| minutes".
    first_number: str
    #: Between the numbers of a range or a choice: "two |or| three minutes".
    number_link: str
    #: The same before a time of day: "5 |to |9am".
    range_link: str
    #: The phrase is not meant, or not exactly: "|not| on Monday", "|at least| every hour".
    negation: str
    #: May stand between these words and the phrase: "not |on| |the| 1st".
    before: str
    #: Which day: "|next |Monday".
    which_before: str = ""
    #: Which year: "in two |years| on 1 May".
    year_before: str

    # Words behind a phrase that change it; no task begins with them.
    #: "Every day |except| Monday", "at 9 |or| 10", "at 9 |o'clock|".
    left_over: str
    #: The same without a space before it, in a script without spaces.
    left_over_glued: str = ""
    #: The phrase counts from an event: "in five minutes |after| lunch".
    of_event: str = ""
    #: Hours that a number of minutes follows: "every |1 hour| 20".
    hours_and: str = ""
    #: How long, not when: "at 9am |for two hours|"; group d is the duration.
    lasting: str

    # Words between phrases.
    #: What follows belongs to the task: "at 9am ask |about| Monday".
    about: str
    #: "|Every| day at 9am".
    every: str
    #: Before a second time: "at 9am call, |then| at 10am write".
    then: str
    #: In front of an unknown word: "|every| full moon".
    unread_every: str
    #: Part of the task: "send the |daily| report", "prepare the |Monday| meeting". Group adverb:
    #: never part of the time.
    of_task: str

    # Recipients named in a task.
    #: "|Send the report to Telegram|", "|e-mail me| the report".
    recipients: tuple[tuple[RecipientChannel, str], ...]
    #: Before an address: "|send the report to |ann@example.com".
    to_address: str
    #: The channel is not meant: "|don't| send it to Telegram".
    no_recipient: str
    #: Only of failures: "e-mail me |if it fails|".
    on_failure: str


class RuleSet:
    """Rules that are tried together.

    Compiled on first use, because most texts need one language only. `_any` rejects most positions
    of a text with one match.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = list(rules)

    @cached_property
    def _compiled(self) -> list[tuple[re.Pattern[str], ToParts]]:
        return [(re.compile(source), to_parts) for source, to_parts in self._rules]

    @cached_property
    def _any(self) -> re.Pattern[str]:
        sources = (_GROUP.sub("(?:", each.source) for each in self._rules)
        return re.compile("|".join(f"(?:{source})" for source in sources))

    def longest(self, text: str, at: int) -> Found | None:
        """The longest match; the first of equal ones."""
        if self._any.match(text, at) is None:
            return None
        best: Found | None = None
        for pattern, to_parts in self._compiled:
            found = pattern.match(text, at)
            if found and _MARK.match(text, found.end()):
                continue
            if found and found.end() > at and (best is None or found.end() > best.end):
                best = Found(to_parts(found), found.end())
        return best


#: Thai vowels and tone marks that belong to the letter before them.
_MARK = re.compile("[ะัาำิ-ฺ็-๎ๅ]")
#: The beginning of a capturing group.
_GROUP = re.compile(r"\((?:\?P<\w+>|(?!\?))")


@dataclass(frozen=True)
class Common:
    """Meanings that rules of several languages share.

    A language supplies how it reads a number, weekdays and a duration.
    """

    number: Callable[[str], int]
    weekdays: Callable[[str], frozenset[int]]
    duration: Callable[[str], timedelta]
    number_pattern: str = "[0-9]+"

    def interval(self, found: re.Match[str]) -> Parts:
        step = self.duration(found["d"])
        return (parts.Interval(step) if step else parts.NO_INTERVAL,)

    def delay(self, found: re.Match[str]) -> Parts:
        after = self.duration(found["d"])
        return (parts.Delay(after) if after else parts.NO_INTERVAL,)

    def minute(self, found: re.Match[str]) -> Parts:
        minute = self.number(found["n"])
        return (parts.AtMinutes(frozenset({minute})) if minute < 60 else parts.IMPOSSIBLE,)

    def counted(self, units: Mapping[str, parts.Part]) -> ToParts:
        """`every 2 days`: ambiguous without a first day."""
        return lambda found: (
            units[found["u"]] if self.number(found["n"]) == 1 else parts.NO_INTERVAL,
        )

    def ahead(self, day: str) -> ToParts:
        """`in 2 days`, `in 2 weeks`; `day` is the word for the first."""

        def to_parts(found: re.Match[str]) -> Parts:
            days = self.number(found["n"]) * (1 if found["u"] == day else 7)
            return (parts.RelativeDay(days) if days else parts.AMBIGUOUS,)

        return to_parts

    def named(self, every: bool, *more: parts.Part) -> ToParts:
        return lambda found: (parts.Weekdays(self.weekdays(found["list"]), every), *more)

    def week(self, weeks: int | None, *, either: bool = False) -> ToParts:
        return lambda found: (parts.RelativeWeekday(self.weekday(found["w"]), weeks, either),)

    def weekday(self, text: str) -> int:
        return min(self.weekdays(text))

    def month_day(self, months: int) -> ToParts:
        return lambda found: (parts.RelativeMonthDay(self.number(found["day"]), months),)

    def month_days(self, every: bool) -> ToParts:
        def to_parts(found: re.Match[str]) -> Parts:
            texts = re.findall(self.number_pattern, found["days"])
            days = sorted({self.number(text) for text in texts})
            if days[0] < 1 or days[-1] > 31:
                return (parts.NO_DATE,)
            return (parts.MonthDays(tuple(str(day) for day in days), every),)

        return to_parts

    def nth_weekday(self, every: bool) -> ToParts:
        """Groups: w; last, or n for another than the first."""

        def to_parts(found: re.Match[str]) -> Parts:
            nth = self.number(found["n"]) if found["n"] else 1
            if not 1 <= nth <= 5:
                return (parts.NO_DATE,)
            term = f"{self.weekday(found['w'])}{'L' if found['last'] else f'#{nth}'}"
            return (parts.MonthDays((term,), every, weekday=True),)

        return to_parts

    def date(
        self, found: re.Match[str], year: int | None, month: int, *, every: bool = False
    ) -> Parts:
        """Groups: day; w is the weekday that may be named with it."""
        made = date_of(year, month, self.number(found["day"]), every=every)
        if found["w"] and isinstance(made[0], parts.Date):
            return (*made, parts.Weekdays(self.weekdays(found["w"]), every=False))
        return made


def numbers_of(
    pattern: str, numbers: Mapping[str, int], text: str, *, first: int = 0
) -> frozenset[int]:
    """Weekdays or months named in a text; the pattern captures a name and the end of a range.

    `first` is the number of the first one.
    """
    size = len(set(numbers.values()))
    found: set[int] = set()
    for item in re.finditer(pattern, text):
        start, end = numbers[item[1]], numbers[item[2] or item[1]]
        length = (end - start) % size
        found |= {(start - first + step) % size + first for step in range(length + 1)}
    return frozenset(found)


def alternatives(names: Iterable[str]) -> str:
    """Any of the names; the longest first."""
    ordered = sorted(names, key=len, reverse=True)
    return f"(?:{'|'.join(re.escape(name) for name in ordered)})"


def marked(read: parts.Clock | parts.Problem, found: re.Match[str]) -> Parts:
    """The time, marked if the group at matched."""
    return (replace(read, marked=bool(found["at"])) if isinstance(read, parts.Clock) else read,)


def clock(hour: int, minute: int = 0, second: int = 0) -> parts.Clock | parts.Problem:
    """An unambiguous time on the 24-hour clock."""
    if hour > 23 or minute > 59 or second > 59:
        return parts.IMPOSSIBLE
    return parts.Clock(hour, minute, second)


def in_portion(hour: int, minute: int, portion: parts.Portion) -> parts.Clock | parts.Problem:
    """An hour with its part of the day, `晚上8点` or `8 in the evening`."""
    if hour > 24 or minute > 59:
        return parts.IMPOSSIBLE
    moved = moved_hour(hour, portion)
    if isinstance(moved, parts.Problem):
        return moved
    return parts.Clock(moved, minute, midnight=moved == minute == 0 and portion == "dawn")


#: For each portion: spoken hours to hours of the day. Others are ambiguous or impossible.
_HOURS: dict[parts.Portion, dict[int, int]] = {
    "dawn": {**{hour: hour for hour in range(7)}, 12: 0},
    "morning": {hour: hour for hour in range(1, 12)},
    "noon": {10: 10, 11: 11, 12: 12, 1: 13, 2: 14, 13: 13, 14: 14},
    "afternoon": {12: 12, **{hour: hour + 12 for hour in range(1, 8)}},
    "evening": {hour: hour + 12 for hour in range(4, 12)},
    "night": {hour: hour + 12 for hour in range(5, 12)},
}
_AFTER_NOON: dict[parts.Portion, range] = {
    "afternoon": range(12, 20),
    "evening": range(16, 24),
    "night": range(17, 24),
}


def moved_hour(hour: int, portion: parts.Portion) -> int | parts.Problem:
    known = _HOURS[portion].get(hour)
    if known is not None:
        return known
    if hour in _AFTER_NOON.get(portion, ()):
        return hour
    return parts.AMBIGUOUS if hour <= 12 else parts.Problem(("contradiction",))


def whole_hours(found: re.Match[str]) -> Parts:
    """`9-17`: hours of the 24-hour clock, since the second is past noon."""
    first, last = int(found["first"]), int(found["last"])
    if last > 23 or first > 23:
        return (parts.IMPOSSIBLE,)
    if last <= 12:
        return (parts.AMBIGUOUS,)
    return (parts.Span(parts.Clock(first, whole=True), parts.Clock(last, whole=True)),)


# Times and dates in digits, shared by all languages.

#: Years from here on are of the Buddhist era.
_FIRST_BUDDHIST = 2400
_BUDDHIST = 543
_LENGTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def christian_year(year: int, *, buddhist: bool = False) -> int:
    return year - _BUDDHIST if buddhist or year >= _FIRST_BUDDHIST else year


def date_of(year: int | None, month: int, day: int, *, every: bool = False) -> Parts:
    """A valid date, or a problem."""
    if not 1 <= month <= 12 or not 1 <= day <= _LENGTHS[month - 1]:
        return (parts.NO_DATE,)
    if year is not None and month == 2 and day == 29 and not _is_leap(year):
        return (parts.NO_DATE,)
    return (parts.Date(month, day, year, every),)


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def digital(
    hour: str, minute: str, second: str | None, fraction: str | None, *, at: bool = False
) -> Parts:
    """`09:00:05.25`: up to twelve usually in the morning."""
    read = clock(int(hour), int(minute), int(second or 0))
    if isinstance(read, parts.Problem):
        return (read,)
    certainty: parts.Certainty = "usual" if 1 <= read.hour <= 12 else "certain"
    microsecond = int((fraction or "").ljust(6, "0"))
    return (replace(read, microsecond=microsecond, certainty=certainty, marked=at),)


def _clock(found: re.Match[str]) -> Parts:
    return (parts.IMPOSSIBLE,) if len(found[2]) == 1 else digital(*found.groups())


def _ordered(found: re.Match[str]) -> Parts:
    return date_of(christian_year(int(found[1])), int(found[2]), int(found[3]))


def _iso(found: re.Match[str]) -> Parts:
    """`2027-02-10T09:00`; an offset is rejected because it has no clock changes."""
    day = date_of(christian_year(int(found[1])), int(found[2]), int(found[3]))
    time = clock(int(found[4]), int(found[5]), int(found[6] or 0))
    if found[8]:
        return (parts.AMBIGUOUS,)
    return (*day, time, *((parts.InZone("UTC"),) if found[7] else ()))


def _either_order(found: re.Match[str]) -> Parts:
    """`10/02/2027` is in February here and in October there; a Buddhist year tells."""
    first, second, year = int(found[1]), int(found[2]), int(found[3])
    if len(found[3]) == 2:
        return (parts.AMBIGUOUS,)
    if year >= _FIRST_BUDDHIST or first > 12 or first == second:
        return date_of(christian_year(year), second, first)
    if second > 12:
        return date_of(year, first, second)
    return (_WHICH_DATE,)


_WHICH_DATE = parts.Problem(("ambiguous",), choice="date")
_END = r"(?![0-9])(?![:.,][0-9])"
#: Not a time of day.
NO_PRICE = (
    r"(?! ?(?:%|บาท|สตางค์|ล้าน|กก|กม|baht|usd|eur|dollars?|euros?|kg|km|元|块|美元|泰铢|公里|公斤))"
)
DIGIT_RULES: list[Rule] = [
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
    rule(r"([0-9]{4})[/.]([0-9]{1,2})[/.]([0-9]{1,2})" + _END, _ordered),
    rule(r"([0-9]{1,2})/([0-9]{1,2})/([0-9]{4}|[0-9]{2})" + _END, _either_order),
    rule(r"([0-9]{1,2})-([0-9]{1,2})-([0-9]{4}|[0-9]{2})" + _END, _either_order),
    rule(r"([0-9]{1,2})\.([0-9]{1,2})\.([0-9]{4}|[0-9]{2})" + _END, _either_order),
    rule(r"([0-9]{1,2})/([0-9]{1,2})(?![0-9/])", _WHICH_DATE),
]
