"""English."""

from __future__ import annotations

from datetime import datetime, timedelta

from chimes.language import en_days
from chimes.language import en_limits as limits
from chimes.language.cautions import Caution, CautionCode, Unit
from chimes.language.days import Days, days_phrase
from chimes.language.en_days import years_phrase
from chimes.language.en_limits import duration_words, every_words, moment_words, zone_words
from chimes.language.en_times import time_phrase
from chimes.language.times import Times
from chimes.triggers import Dst, Note

__all__ = [
    "BETWEEN",
    "REMARK",
    "SHORT_WEEKDAYS",
    "caution",
    "clock_changes",
    "delayed",
    "every",
    "limits",
    "note",
    "on_days",
    "once",
]

BETWEEN = "; "
REMARK = "Note: {}."
SHORT_WEEKDAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
_NOTES: dict[Note, str] = {
    "moved_by_gap": "its time is skipped when the clocks go forward; it runs at the change",
    "repeated_hour_first": "this hour comes twice when the clocks go back; first time",
    "repeated_hour_second": "this hour comes twice when the clocks go back; second time",
    "repeated_hour_once": (
        "this hour comes twice when the clocks go back; it runs the first time only"
    ),
    "moved_by_calendar": "its day is excluded; it runs on another one",
}
_CAUTIONS: dict[CautionCode, str] = {
    "either_day": (
        "A day counts if its date or its weekday matches, not only if both do; "
        "start one of the two fields with * to ask for both"
    ),
    "both_days": "A day counts only if both its date and its weekday match",
    "uneven_step": "The step of {step} {unit}s starts anew with each {larger}; "
    "the gap there is {gap} {unit}s",
    "uneven_months": "The step of {step} days starts anew with each month, "
    "so the gap at its end is another",
    "every_minute": (
        "Runs in every minute of these hours, {count} times a day; "
        "put 0 into the minute field for once an hour"
    ),
    "often": "Runs {count} times a day",
    "leap_years": "Runs in leap years only",
    "short_months": "Does not run in months without a day {count}",
}
_LARGER: dict[Unit, str] = {
    "second": "minute",
    "minute": "hour",
    "hour": "day",
    "day": "month",
    "month": "year",
}


def on_days(days: Days, times: Times, zone: str) -> str:
    which, when = days_phrase(days, en_days), time_phrase(times)
    if when.startswith("at "):
        words = f"{which} {when}"
    else:
        words = when if days.all else f"{when}, {which.removesuffix(',')}"
    words += years_phrase(days.years)
    return f"{words[0].upper()}{words[1:]}, {zone_words(zone)}"


def once(moment: datetime, zone: str) -> str:
    return f"Once, on {moment_words(moment, weekday=True)}, {zone_words(zone)}"


def every(step: timedelta, anchor: datetime | None) -> str:
    words = f"Every {every_words(step)}"
    return words if anchor is None else f"{words}, counted from {moment_words(anchor)} UTC"


def delayed(jitter: timedelta) -> str:
    return f", each run up to {duration_words(jitter)} later"


def clock_changes(rules: Dst) -> str:
    return f"clock changes as in {rules}"


def note(note: Note) -> str:
    return _NOTES[note]


def caution(caution: Caution) -> str:
    words = caution.filled(_CAUTIONS, caution.unit, _LARGER[caution.unit])
    return words.removesuffix("s") if caution.gap == 1 else words
