"""The same text, made exact: what can be answered to a question by one press (UX A.4)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from chimes.language.parsing.asking import Ask
from chimes.language.parsing.text import Text

#: Where no time was said at all.
_USUAL_TIMES = ("09:00", "12:00", "18:00")
#: What people mean by abbreviations that several places share, or that say nothing about summer.
_ZONES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("est", "edt", "eastern"), ("America/New_York",)),
    **dict.fromkeys(("cdt", "central"), ("America/Chicago",)),
    **dict.fromkeys(("mdt", "mountain"), ("America/Denver",)),
    **dict.fromkeys(("pst", "pdt", "pacific"), ("America/Los_Angeles",)),
    **dict.fromkeys(("cet", "cest"), ("Europe/Berlin", "Europe/Paris")),
    **dict.fromkeys(("aest", "aedt"), ("Australia/Sydney",)),
    **dict.fromkeys(("nzst", "nzdt"), ("Pacific/Auckland",)),
    "cst": ("America/Chicago", "Asia/Shanghai"),
    "mst": ("America/Denver", "America/Phoenix"),
    "ist": ("Asia/Kolkata", "Europe/Dublin", "Asia/Jerusalem"),
    "bst": ("Europe/London",),
    "eet": ("Europe/Athens",),
    "ict": ("Asia/Bangkok", "Asia/Ho_Chi_Minh"),
    "jst": ("Asia/Tokyo",),
    "kst": ("Asia/Seoul",),
    "hkt": ("Asia/Hong_Kong",),
    "sgt": ("Asia/Singapore",),
    "msk": ("Europe/Moscow",),
    "wib": ("Asia/Jakarta",),
}


def answers_to(ask: Ask, text: Text, reads: Callable[[str], bool]) -> tuple[str, ...]:
    """One for each time or zone that may be meant, or with a usual time; only those that are read
    without another question. Empty: there is none to offer."""
    if ask.place is None:
        return ()
    start, end = (text.origin[each] for each in ask.place)
    before, after = text.raw[:start].rstrip(), text.raw[end:].lstrip()
    meant = ask.readings or _USUAL_TIMES
    if ask.choice == "zone":
        meant = _zones(text.folded[ask.place[0] : ask.place[1]])
    found = (" ".join(part for part in (before, each, after) if part) for each in meant)
    return tuple(each for each in found if reads(each))


def _zones(said: str) -> tuple[str, ...]:
    return next((_ZONES[word] for word in re.findall("[a-z]+", said) if word in _ZONES), ())
