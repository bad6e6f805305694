"""English."""

from __future__ import annotations

from datetime import datetime, timedelta

from chimes.language import en_days
from chimes.language import en_limits as limits
from chimes.language.days import Days, days_phrase
from chimes.language.en_days import years_phrase
from chimes.language.en_limits import duration_words, every_words, moment_words, zone_words
from chimes.language.en_times import time_phrase
from chimes.language.times import Times
from chimes.triggers import Dst

__all__ = [
    "BETWEEN",
    "SHORT_WEEKDAYS",
    "clock_changes",
    "delayed",
    "every",
    "limits",
    "on_days",
    "once",
]

BETWEEN = "; "
SHORT_WEEKDAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")


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
