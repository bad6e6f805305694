"""English: times of day."""

from __future__ import annotations

import re

from chimes.language.parsing.digits import NO_PRICE
from chimes.language.parsing.en_numbers import HOUR, NUMBER, WORD, number
from chimes.language.parsing.parts import Clock, Part, PartOfDay, Portion, Problem, Sure
from chimes.language.parsing.rules import AMBIGUOUS, IMPOSSIBLE, Rule, clock, in_portion, rule

END = r"(?![a-z0-9])"
_AT = r"(?P<at>(?:at|@)(?: exactly)? ?)?"
_HOUR = rf"(?P<h>{HOUR})"
_HALF = r"(?P<half>a\.?m\.?|p\.?m\.?)(?![a-z0-9])"
_SHARP = r"(?: ?(?:sharp|exactly|on the dot))?"


def _halved(hour: int, minute: int, half: str, second: int = 0) -> Clock | Problem:
    """On the 12-hour clock: 12am is midnight, 12pm noon."""
    if not 1 <= hour <= 12:
        return Problem(("contradiction",))
    read = clock(hour % 12 + (12 if half.startswith("p") else 0), minute, second)
    if isinstance(read, Clock) and read.hour == read.minute == 0:
        return Clock(0, 0, second, midnight=True)
    return read


def _with_half(found: re.Match[str]) -> tuple[Part, ...]:
    minute, second = number(found["m"] or "0"), int(found["s"] or 0)
    return (_marked(_halved(number(found["h"]), minute, found["half"], second), found),)


def _marked(read: Clock | Problem, found: re.Match[str]) -> Clock | Problem:
    if isinstance(read, Problem):
        return read
    return Clock(
        read.hour,
        read.minute,
        read.second,
        sure=read.sure,
        midnight=read.midnight,
        marked=bool(found["at"]),
        whole=read.whole,
    )


def _official(found: re.Match[str]) -> tuple[Part, ...]:
    """`09:00`, `at 9:30`, `15:00 hrs`."""
    hour, minute = int(found["h"]), int(found["m"])
    read = clock(hour, minute, int(found["s"] or 0))
    if isinstance(read, Problem):
        return (read,)
    sure: Sure = "usual" if 1 <= hour <= 12 else "certain"
    return (
        Clock(
            hour,
            minute,
            read.second,
            int((found["f"] or "").ljust(6, "0")),
            sure,
            marked=bool(found["at"]),
        ),
    )


def _bare(found: re.Match[str]) -> tuple[Part, ...]:
    """`at 9`, `9 o'clock`: open up to twelve, on the 24-hour clock from thirteen on."""
    hour = number(found["h"])
    if hour > 23:
        return (IMPOSSIBLE,)
    sure: Sure = "certain" if hour > 12 else "open"
    return (Clock(hour, sure=sure, marked=bool(found["at"]), whole=True),)


def _military(found: re.Match[str]) -> tuple[Part, ...]:
    return (_marked(clock(int(found["h"]), int(found["m"])), found),)


_PORTIONS: dict[str, Portion] = {
    "in the morning": "morning",
    "in the afternoon": "afternoon",
    "in the evening": "evening",
    "at night": "night",
}


def _with_portion(found: re.Match[str]) -> tuple[Part, ...]:
    """`9 in the morning`, which can be one of a list."""
    minute = int(found["m"] or 0)
    read = in_portion(number(found["h"]), minute, _PORTIONS[found["portion"]])
    return (_marked(read, found),)


_MINUTES = {"half": 30, "quarter": 15, "a quarter": 15}


def _spoken(found: re.Match[str]) -> tuple[Part, ...]:
    """`half past 9`, `quarter to 9am`, `ten past noon`."""
    said = found["n"]
    minute = _MINUTES[said] if said in _MINUTES else number(said)
    if minute > 59:
        return (IMPOSSIBLE,)
    if found["way"] != "past" and said.isdigit() and int(said) <= 12 and not found["unit"]:
        # "10 to 11am" is ten minutes, or an hour.
        return (AMBIGUOUS,)
    hour = 12 if found["noon"] else number(found["h"])
    if not 1 <= hour <= 12:
        return (Problem(("contradiction",)),)
    half = "pm" if found["noon"] else found["half"]
    sure: Sure = "certain" if half else "open"
    if half:
        hour = hour % 12 + (12 if half.startswith("p") else 0)
    total = hour * 60 + (minute if found["way"] == "past" else -minute)
    return (Clock(total // 60 % 24, total % 60, sure=sure, marked=bool(found["at"])),)


_PAST = (
    rf"{_AT}(?P<n>half|a quarter|quarter|{NUMBER})(?P<unit> minutes?| mins?)? "
    r"(?P<way>past|to|before|till) "
)
_THE = r"(?:(?:in|during) the )"
RULES: list[Rule] = [
    rule(rf"{_AT}(?P<h>{WORD})[ -](?P<m>{WORD})(?P<s>) ?{_HALF}{_SHARP}", _with_half),
    rule(rf"{_AT}(?P<h>[0-9]{{1,2}})h(?P<m>[0-9]{{2}}){END}", _military),
    rule(
        rf"{_AT}{_HOUR}(?:[:.](?P<m>[0-9]{{2}})(?::(?P<s>[0-9]{{2}}))?)? ?{_HALF}{_SHARP}",
        _with_half,
    ),
    rule(
        rf"{_AT}(?P<h>[0-9]{{1,2}})[:.](?P<m>[0-9]{{2}})"
        r"(?::(?P<s>[0-9]{2})(?:\.(?P<f>[0-9]{1,6}))?)?"
        rf"(?: ?(?:hours|hrs?|h|o'?clock))?(?![a-z0-9]|[:.,][0-9]){NO_PRICE}{_SHARP}",
        _official,
    ),
    rule(rf"(?P<at>(?:at|@) ?){_HOUR}(?: ?o'? ?clock)?(?![a-z0-9]|[:.,/][0-9]| ?%){_SHARP}", _bare),
    rule(rf"(?P<at>){_HOUR} ?o'? ?clock{END}{_SHARP}", _bare),
    rule(
        rf"{_AT}{_HOUR}(?:[:.](?P<m>[0-9]{{2}}))?(?: ?o'? ?clock)? "
        rf"(?P<portion>{'|'.join(_PORTIONS)}){END}",
        _with_portion,
    ),
    rule(
        r"(?P<at>(?:at|@) ?)(?P<h>[0-9]{2})(?P<m>[0-9]{2})(?: ?(?:hours|hrs?|h))?(?![a-z0-9:.-])",
        _military,
    ),
    rule(r"(?P<at>)(?P<h>[0-9]{2})(?P<m>[0-9]{2}) ?(?:hours|hrs|h)(?![a-z0-9])", _military),
    rule(r"(?P<at>)(?P<h>0[0-9])(?P<m>[0-5][0-9])(?![a-z0-9:.,/-])", _military),
    rule(
        rf"{_PAST}(?:{_HOUR}(?: ?{_HALF}|(?: ?o'? ?clock)?{END})|(?P<noon>noon|midday){END})",
        _spoken,
    ),
    rule(
        rf"{_AT}(?:12(?::00)? )?(?:noon|midday|noontime){END}",
        lambda m: (Clock(12, marked=bool(m["at"])),),
    ),
    rule(
        rf"{_AT}(?:12(?::00)? )?midnight{END}",
        lambda m: (Clock(0, midnight=True, marked=bool(m["at"])),),
    ),
    rule(rf"{_THE}?(?:early |late )?mornings?{END}", PartOfDay("morning")),
    rule(rf"{_THE}?(?:early |late )?afternoons?{END}", PartOfDay("afternoon")),
    rule(rf"{_THE}?(?:early |late )?evenings?{END}", PartOfDay("evening")),
    rule(rf"(?:at |{_THE})?(?:late )?nights?{END}", PartOfDay("night")),
]
