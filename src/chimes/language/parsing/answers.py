"""The same text, made exact: what can be answered to a question by one press (UX A.4)."""

from __future__ import annotations

from collections.abc import Callable

from chimes.language.parsing.asking import Ask
from chimes.language.parsing.text import Text

#: Where no time was said at all.
_USUAL_TIMES = ("09:00", "12:00", "18:00")


def answers_to(ask: Ask, text: Text, reads: Callable[[str], bool]) -> tuple[str, ...]:
    """One for each reading, or with a usual time; only those that are then read without another
    question. Empty: there is none to offer."""
    if ask.place is None:
        return ()
    start, end = (text.origin[each] for each in ask.place)
    before, after = text.raw[:start].rstrip(), text.raw[end:].lstrip()
    times = ask.readings or _USUAL_TIMES
    found = (" ".join(part for part in (before, time, after) if part) for time in times)
    return tuple(each for each in found if reads(each))
