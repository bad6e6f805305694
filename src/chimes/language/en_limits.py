"""English: durations, moments, bounds and exclusions."""

from __future__ import annotations

from datetime import date, datetime, timedelta

from chimes.language.en_days import MONTHS, WEEKDAYS, weekday_list
from chimes.language.en_times import joined
from chimes.language.masks import numbers
from chimes.triggers import Calendar, Trigger, Window
from chimes.triggers.tzif import EPOCH_ORDINAL

_SHOWN_DATES = 5
_UNITS = (
    ("hour", timedelta(hours=1)),
    ("minute", timedelta(minutes=1)),
    ("second", timedelta(seconds=1)),
    ("millisecond", timedelta(milliseconds=1)),
    ("microsecond", timedelta(microseconds=1)),
)
_DAY = timedelta(days=1)
_WHOLE_DAY = 1440


def limits(trigger: Trigger, zone: str) -> list[str]:
    """What bounds the fires, one phrase each; `zone` stands behind each time."""
    found: list[str] = []
    if trigger.start_at is not None:
        found.append(f"from {moment_words(trigger.local(trigger.start_at))}{zone} on")
    if trigger.end_at is not None:
        found.append(f"until {moment_words(trigger.local(trigger.end_at))}{zone}")
    if trigger.max_runs is not None:
        found.append("only once" if trigger.max_runs == 1 else f"at most {trigger.max_runs} times")
    found += [_except(calendar) for calendar in trigger.exclude]
    return found


def duration_words(value: timedelta, *, each: bool = False) -> str:
    """`5 minutes`; with `each`, as it stands behind "every": `minute`, `24 hours`."""
    if each and value % _DAY == timedelta(0) and value > _DAY:
        return f"{value // _DAY} days of 24 hours"
    parts: list[str] = []
    left = value
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}" if count == 1 else f"{count} {unit}s")
    if each and len(parts) == 1:
        return parts[0].removeprefix("1 ")
    return joined(parts) or "0 seconds"


def moment_words(moment: datetime, *, weekday: bool = False) -> str:
    """`Sunday 10 February 2030 at 09:00`, as the datetime's own clock shows it."""
    day = f"{moment.day} {MONTHS[moment.month - 1]} {moment.year}"
    clock = f"{moment:%H:%M:%S.%f}".rstrip("0").rstrip(".") if moment.microsecond else ""
    clock = clock or (f"{moment:%H:%M:%S}" if moment.second else f"{moment:%H:%M}")
    name = f"{WEEKDAYS[moment.isoweekday() % 7]} " if weekday else ""
    return f"{name}{day} at {clock}"


def _except(calendar: Calendar) -> str:
    if calendar.holidays is not None:
        words = f"except on public holidays of {calendar.holidays}"
    elif calendar.weekly:
        words = f"except {joined([_window(window) for window in calendar.weekly])}"
    else:
        words = f"except on {_dates(calendar.dates)}"
    if calendar.on_excluded == "skip":
        return words
    return f"{words}, then on the {calendar.on_excluded} business day"


def _dates(days: tuple[int, ...]) -> str:
    shown = [date.fromordinal(day + EPOCH_ORDINAL).isoformat() for day in days[:_SHOWN_DATES]]
    more = len(days) - len(shown)
    if more:
        shown.append(f"{more} more {'date' if more == 1 else 'dates'}")
    return joined(shown)


def _window(window: Window) -> str:
    days = f"on {joined(weekday_list(numbers(window.weekdays)))}"
    if (window.start, window.end) == (0, _WHOLE_DAY):
        return days
    over = " of the next day" if window.end <= window.start else ""
    return f"{days} from {_clock(window.start)} to {_clock(window.end)}{over}"


def _clock(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"
