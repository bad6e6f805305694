"""English: intervals, delays, hours between which, and words that limit a schedule."""

from __future__ import annotations

import re
from datetime import timedelta

from chimes.language.parsing.en_numbers import NUMBER, WORD, number
from chimes.language.parsing.parts import AtMinutes, Delay, Interval, Part
from chimes.language.parsing.rules import (
    AMBIGUOUS,
    IMPOSSIBLE,
    LIMITED,
    NO_INTERVAL,
    NO_UNIT,
    ONE_OF,
    RESIDUE,
    SPAN_OR_RESIDUE,
    VAGUE,
    Rule,
    rule,
    whole_hours,
)

_END = r"(?![a-z0-9])"
_UNITS = {
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "milli": timedelta(milliseconds=1),
}
_UNIT = r"(?:hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s|milliseconds?)(?![a-z0-9])"
_COUNT = rf"(?:[0-9]{{1,6}}(?:\.[0-9]{{1,2}})?|{WORD}|an?)"
_PIECE = rf"{_COUNT}[ -]?{_UNIT}"
_LINK = r"(?:,? and |, ?| )"
_HALVES = (
    r"half(?:[ -]an?)?[ -]hour|half[ -]a[ -]minute|(?:a )?quarter(?: of)? an hour"
    r"|(?:a )?quarter[ -]hour"
)
# `2 hours and a half`, `two and a half hours`; "every hour and a half".
_AND_HALF = (
    rf"(?:(?:{_COUNT}[ -])?(?:hours?|hrs?|minutes?|mins?) and a half"
    rf"|{_COUNT} and a half (?:hours?|hrs?|minutes?|mins?))"
)
_SHORT = r"[0-9]{1,4}h[0-9]{1,4}m"
DURATION = rf"(?:(?:{_HALVES}|{_AND_HALF}|{_SHORT}){_END}|{_PIECE}(?:{_LINK}{_PIECE}){{0,3}})"


def duration(text: str) -> timedelta:
    if re.fullmatch(_HALVES, text):
        if "quarter" in text:
            return timedelta(minutes=15)
        return _UNITS["m" if "minute" in text else "h"] / 2
    if re.fullmatch(_AND_HALF, text):
        unit = _UNITS["m" if "min" in text else "h"]
        said = re.match(_COUNT, text)
        return duration(f"{said[0] if said else 'a'} {'m' if 'min' in text else 'h'}") + unit / 2
    if re.fullmatch(_SHORT, text):
        hours, _, minutes = text[:-1].partition("h")
        return timedelta(hours=int(hours), minutes=int(minutes))
    total = timedelta(0)
    for item in re.finditer(rf"({_COUNT})[ -]?({_UNIT})", text):
        unit = _UNITS["milli"] if item[2].startswith("milli") else _UNITS[item[2][0]]
        count = item[1]
        if count in ("a", "an"):
            total += unit
        elif "." in count:
            whole, _, part = count.partition(".")
            total += unit * int(whole) + unit * int(part) / 10 ** len(part)
        else:
            total += unit * number(count)
    return total


def _interval(found: re.Match[str]) -> tuple[Part, ...]:
    step = duration(found["d"])
    return (Interval(step),) if step else (NO_INTERVAL,)


def _delay(found: re.Match[str]) -> tuple[Part, ...]:
    after = duration(found["d"])
    return (Delay(after),) if after else (NO_INTERVAL,)


def _minutes(found: re.Match[str]) -> tuple[Part, ...]:
    minutes = frozenset(int(each) for each in re.findall("[0-9]+", found[0]))
    return (AtMinutes(minutes),) if max(minutes) <= 59 else (IMPOSSIBLE,)


_EVERY = r"(?:once )?(?:every|each) "
_UNIT_WORD = r"(?:h|hr|hour|m|min|minute|s|sec|second|millisecond|day|week|month|year)"
_TIME_BEHIND = (
    r"(?= (?:at |on )?(?:[0-9]|noon|midnight|mon|tue|wed|thu|fri|sat|sun|tomorrow|today|every))"
)
RULES: list[Rule] = [
    rule(rf"{_EVERY}(?P<d>{DURATION})", _interval),
    rule(
        rf"{_EVERY}(?P<d>hour|minute|second(?! (?:day|week|month|year|\w+day))){_END}",
        lambda found: (Interval(_UNITS[found["d"][0]]),),
    ),
    rule(rf"(?:hourly|once an hour){_END}", Interval(timedelta(hours=1))),
    rule(
        rf"every (?P<n>{NUMBER}) days of 24 hours{_END}",
        lambda found: (Interval(timedelta(days=number(found["n"]))),),
    ),
    rule(rf"every (?:other|few|couple of|several|some) {_UNIT_WORD}s?{_END}", NO_INTERVAL),
    rule(rf"every - ?[0-9]+ ?{_UNIT}", NO_INTERVAL),
    rule(
        r"every -? ?[0-9]+(?:\.[0-9]+)?(?![0-9.:/]|st|nd|rd|th)"
        rf"(?! ?(?:{_UNIT_WORD}s?|[ap]\.?m)(?![a-z]))",
        NO_UNIT,
    ),
    rule(rf"(?:in|after) (?P<d>{DURATION})(?: time| from now)?{_END}", _delay),
    rule(rf"(?P<d>{DURATION}) (?:from now|later){_END}", _delay),
    rule(r"in [0-9]+(?= ?$)", NO_UNIT),
    rule(
        rf"(?:(?<=me )|^)in [0-9]{{1,6}}(?= [a-z])(?! ?(?:{_UNIT_WORD}s?|[ap]\.?m)(?![a-z]))",
        NO_UNIT,
    ),
    rule(
        rf"(?:in|{_EVERY.rstrip()}) (?:[0-9]{{7,}}|[0-9]+[/⁄][0-9]+)(?: of)?(?: an?)? ?{_UNIT}",
        NO_INTERVAL,
    ),
    rule(rf"(?:in|{_EVERY.rstrip()}) {NUMBER} ?(?:-|to|or) ?{NUMBER} ?{_UNIT}", AMBIGUOUS),
    rule(rf"in (?:a few|a couple of|several|some) {_UNIT_WORD}s?{_END}", NO_INTERVAL),
    rule(rf"in (?:about|around|roughly|approximately|maybe|almost) {DURATION}", AMBIGUOUS),
    rule(r"at :[0-9]{2}(?:(?:,| and) ?:[0-9]{2}){0,11}(?![0-9])", _minutes),
    rule(
        r"(?:at )?minutes? [0-9]{1,2}(?:(?:, ?| and )[0-9]{1,2}){0,11}(?![0-9:.])"
        r"(?: past(?: the hour)?)?",
        _minutes,
    ),
    rule(rf"(?:at )?[0-9]{{1,2}} (?:minutes )?past(?: the)? (?:every |each )?hour{_END}", _minutes),
    rule(rf"(?:at )?(?:a )?quarter past(?: the| every)? hour{_END}", AtMinutes(frozenset({15}))),
    rule(
        rf"on the half[ -]hour{_END}|(?:at )?half past (?:the|every) hour{_END}",
        AtMinutes(frozenset({30})),
    ),
    rule(rf"on the hour{_END}", AtMinutes(frozenset({0}))),
    rule(
        r"(?:from |between )?(?P<first>[0-9]{1,2}) ?(?:-|to|and) ?(?P<last>[0-9]{1,2})"
        r"(?![0-9:.a-z%/]| ?[ap]\.?m)(?: ?(?:hours|hrs|h)(?![a-z]))?",
        whole_hours,
    ),
    rule(
        r"(?:around|about|approximately|approx\.?|roughly|circa|sometime|some time|near|before"
        r"|after|by|past)(?= (?:[0-9]|noon|midnight|at|in the|tomorrow|today|next|this))",
        VAGUE,
    ),
    rule(rf"or{_TIME_BEHIND}", ONE_OF),
    rule(
        r"(?:until|till|except(?: for)?(?: on)?|excluding|but(?: not)?(?: on)?|other than"
        r"|through|thru|starting(?: from| on)?|beginning(?: on)?|since|ending|unless"
        r"|skip(?:ping)?)(?![a-z])",
        RESIDUE,
    ),
    rule(
        r"(?:except(?: for)?|excluding|but not|other than|skip(?:ping)?)(?: on)?(?: the| any| all)?"
        rf"(?: public| bank| national)? (?:holidays?|weekends?){_END}",
        LIMITED,
    ),
    rule(r"from(?![a-z])", SPAN_OR_RESIDUE),
    rule(
        rf"for (?:the )?(?:next |first )?(?:an?|{NUMBER}) (?:day|week|month|year|time)s?(?! of)"
        rf"{_END}"
        rf"|onwards?{_END}|at the latest{_END}|or so{_END}|-?ish{_END}",
        LIMITED,
    ),
]
