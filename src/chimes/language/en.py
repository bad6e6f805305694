"""English."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import assert_never

from chimes.language.cautions import Caution
from chimes.language.days import Days
from chimes.language.en_days import days_phrase, years_phrase
from chimes.language.en_limits import (
    at_most,
    dates,
    duration_words,
    every_words,
    excepting,
    holidays,
    moment_words,
    since,
    until,
    windows,
    zone_words,
)
from chimes.language.en_times import time_phrase
from chimes.language.times import Times
from chimes.triggers import Dst, Note

__all__ = [
    "BETWEEN",
    "at_most",
    "caution",
    "clock_changes",
    "dates",
    "delayed",
    "every",
    "excepting",
    "holidays",
    "note",
    "on_days",
    "once",
    "since",
    "until",
    "windows",
]

BETWEEN = "; "


def on_days(days: Days, times: Times, zone: str) -> str:
    which, when = days_phrase(days), time_phrase(times)
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
    match note:
        case "moved_by_gap":
            return "its time is skipped when the clocks go forward; it runs at the change"
        case "repeated_hour_first":
            return "this hour comes twice when the clocks go back; first time"
        case "repeated_hour_second":
            return "this hour comes twice when the clocks go back; second time"
        case "repeated_hour_once":
            return "this hour comes twice when the clocks go back; it runs the first time only"
        case "moved_by_calendar":
            return "its day is excluded; it runs on another one"
    assert_never(note)


def caution(caution: Caution) -> str:
    match caution.code:
        case "either_day":
            return (
                "A day counts if its date or its weekday matches, not only if both do; "
                "start one of the two fields with * to ask for both"
            )
        case "both_days":
            return "A day counts only if both its date and its weekday match"
        case "uneven_step":
            return _uneven(caution)
        case "every_minute":
            return (
                f"Runs in every minute of these hours, {caution.count} times a day; "
                "put 0 into the minute field for once an hour"
            )
        case "often":
            return f"Runs {caution.count} times a day"
        case "leap_years":
            return "Runs in leap years only"
        case "short_months":
            return f"Does not run in months without a day {caution.count}"
    assert_never(caution.code)


def _uneven(caution: Caution) -> str:
    larger = {
        "second": "minute",
        "minute": "hour",
        "hour": "day",
        "day": "month",
        "month": "year",
    }[caution.unit]
    start = f"The step of {caution.step} {caution.unit}s starts anew with each {larger}"
    if not caution.gap:
        return f"{start}, so the gap at its end is another"
    unit = caution.unit if caution.gap == 1 else f"{caution.unit}s"
    return f"{start}; the gap there is {caution.gap} {unit}"
