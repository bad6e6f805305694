"""Recognisers: a pattern and what it means. A language is a list of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import NamedTuple

from chimes.language.parsing.parts import Clock, Found, Part, Portion, Problem, Span

Meaning = Callable[[re.Match[str]], tuple[Part, ...]]

IMPOSSIBLE = Problem(("time", "contradiction"))
AMBIGUOUS = Problem(("ambiguous",))
NO_INTERVAL = Problem(("interval",))
NO_UNIT = Problem(("unit",))
NO_DATE = Problem(("date", "contradiction"))
YESTERDAY = Problem(("past",), loose=True)
#: "About", "before": not at a time but near it.
VAGUE = Problem(("ambiguous",), loose=True)
#: "Or".
ONE_OF = Problem(("ambiguous",), loose=True)
#: "Until", "except": limits that words cannot set.
RESIDUE = Problem(("residue",), loose=True)
#: "From": with an end of the same day a span, else a limit.
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

    Compiled when first used: most texts need those of one language only. `_any` finds in one step
    that none of them fits, which is what happens at most places of a text.
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
        """The reading that takes in most; of two equals the first."""
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
#: The beginning of a group that is kept.
_GROUP = re.compile(r"\((?:\?P<\w+>|(?!\?))")


def clock(hour: int, minute: int = 0, second: int = 0) -> Clock | Problem:
    """A time on the 24-hour clock that nothing moves."""
    if hour > 23 or minute > 59 or second > 59:
        return IMPOSSIBLE
    return Clock(hour, minute, second)


def in_portion(hour: int, minute: int, portion: Portion) -> Clock | Problem:
    """An hour said with its part of the day, `晚上8点` or `8 in the evening`."""
    if hour > 24 or minute > 59:
        return IMPOSSIBLE
    moved = moved_hour(hour, portion)
    if isinstance(moved, Problem):
        return moved
    return Clock(moved, minute, midnight=moved == minute == 0 and portion == "dawn")


#: For each portion: hours as said to hours of the day. Others are asked about or cannot be.
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
