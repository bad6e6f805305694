"""Durations, moments and exclusions as forms of speech: what the languages share of them."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Literal

from chimes.triggers import Calendar, Window
from chimes.triggers.tzif import EPOCH_ORDINAL

DurationUnit = Literal["hour", "minute", "second", "millisecond", "microsecond"]

_SHOWN_DATES = 5
_SIZES: tuple[tuple[DurationUnit, timedelta], ...] = (
    ("hour", timedelta(hours=1)),
    ("minute", timedelta(minutes=1)),
    ("second", timedelta(seconds=1)),
    ("millisecond", timedelta(milliseconds=1)),
    ("microsecond", timedelta(microseconds=1)),
)
_DAY = timedelta(days=1)
_WHOLE_DAY = (0, 1440)


def duration_parts(value: timedelta) -> list[tuple[int, DurationUnit]]:
    """The largest units first; those of which there are none are left out."""
    parts: list[tuple[int, DurationUnit]] = []
    for unit, size in _SIZES:
        count, value = divmod(value, size)
        if count:
            parts.append((count, unit))
    return parts or [(0, "second")]


def whole_days(value: timedelta) -> int | None:
    """How many days of 24 hours it is, if it is two or more of them."""
    return value // _DAY if value % _DAY == timedelta(0) and value > _DAY else None


def clock_words(moment: datetime) -> str:
    """`09:00`, `09:00:05.25`: no more digits than it takes."""
    if moment.microsecond:
        return f"{moment:%H:%M:%S.%f}".rstrip("0")
    return f"{moment:%H:%M:%S}" if moment.second else f"{moment:%H:%M}"


def minute_words(minute: int) -> str:
    """A minute of the day as a clock shows it."""
    return f"{minute // 60:02d}:{minute % 60:02d}"


def shown_dates(calendar: Calendar) -> tuple[list[str], int]:
    """The first dates of a calendar, and how many more it has."""
    days = calendar.dates
    shown = [date.fromordinal(day + EPOCH_ORDINAL).isoformat() for day in days[:_SHOWN_DATES]]
    return shown, len(days) - len(shown)


def all_day(window: Window) -> bool:
    return (window.start, window.end) == _WHOLE_DAY


def past_midnight(window: Window) -> bool:
    return window.end <= window.start
