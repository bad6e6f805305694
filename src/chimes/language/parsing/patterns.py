"""Stable names for the forms of a phrase; the first four are the original's (R1.25–R1.28)."""

from __future__ import annotations

from chimes.language.parsing.combine import Meaning
from chimes.language.parsing.parts import Daily, MonthDays, Named, RelativeDay, RelativeWeekday

_LANGUAGES = {"th": "thai", "en": "english", "zh": "chinese"}


def pattern_of(said: Meaning, language: str) -> str:
    return f"{_LANGUAGES[language]}_{_form(said)}"


def _form(said: Meaning) -> str:
    if said.delay is not None:
        return "delay"
    if said.interval is not None:
        return "interval"
    if said.once is not None:
        return f"{_once(said)}_time"
    match said.again:
        case Daily():
            return "daily_time"
        case Named():
            return "weekday_time"
        case MonthDays():
            return "monthly_time"
        case _:
            return "yearly_time"


def _once(said: Meaning) -> str:
    match said.once:
        case RelativeDay(days=0):
            return "today"
        case RelativeDay(days=1):
            return "tomorrow"
        case RelativeDay():
            return "later_day"
        case RelativeWeekday():
            return "coming_weekday"
        case _:
            return "date"
