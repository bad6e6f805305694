"""Times and dates in digits, which all languages share."""

from __future__ import annotations

import re

from chimes.language.parsing.parts import Clock, Date, InZone, Part, Problem
from chimes.language.parsing.rules import AMBIGUOUS, IMPOSSIBLE, NO_DATE, Rule, clock, rule

#: Years from here on are counted from the Buddha (TIME "Words").
_FIRST_BUDDHIST = 2400
_BUDDHIST = 543
_LENGTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def christian_year(year: int, *, buddhist: bool = False) -> int:
    return year - _BUDDHIST if buddhist or year >= _FIRST_BUDDHIST else year


def date_of(year: int | None, month: int, day: int, *, every: bool = False) -> tuple[Part, ...]:
    """A date that can be, or a problem."""
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
    """`2027-02-10T09:00`; an offset does not know about clock changes (T11)."""
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
#: What is no time of day, however it is written.
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
