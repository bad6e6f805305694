"""English: durations, moments, bounds and exclusions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from chimes.language.en_days import MONTHS, WEEKDAYS, weekday_list
from chimes.language.en_times import joined
from chimes.language.limits import (
    all_day,
    clock_words,
    duration_parts,
    minute_words,
    past_midnight,
    whole_days,
)
from chimes.language.masks import numbers
from chimes.triggers import Window
from chimes.triggers.calendar import OnExcluded


def since(moment: datetime, zone: str | None) -> str:
    return f"from {_in_zone(moment, zone)} on"


def until(moment: datetime, zone: str | None) -> str:
    return f"until {_in_zone(moment, zone)}"


def at_most(count: int) -> str:
    return "only once" if count == 1 else f"at most {count} times"


def holidays(country: str) -> str:
    return f"on public holidays of {country}"


def windows(windows: Sequence[Window]) -> str:
    return joined([_window(window) for window in windows])


def dates(shown: Sequence[str], more: int) -> str:
    rest = [f"{more} more {'date' if more == 1 else 'dates'}"] if more else []
    return f"on {joined([*shown, *rest])}"


def excepting(days: str, then: OnExcluded) -> str:
    words = f"except {days}"
    return words if then == "skip" else f"{words}, then on the {then} business day"


def zone_words(zone: str) -> str:
    return zone if zone == "UTC" else f"{zone} time"


def every_words(value: timedelta) -> str:
    """As it stands behind "every": `minute`, `24 hours`, `7 days of 24 hours`."""
    days = whole_days(value)
    if days is not None:
        return f"{days} days of 24 hours"
    parts = duration_parts(value)
    if len(parts) == 1 and parts[0][0] == 1:
        return parts[0][1]
    return duration_words(value)


def duration_words(value: timedelta) -> str:
    """`1 minute and 30 seconds`."""
    return joined(
        [
            f"{count} {unit}" if count == 1 else f"{count} {unit}s"
            for count, unit in duration_parts(value)
        ]
    )


def moment_words(moment: datetime, *, weekday: bool = False) -> str:
    """`Sunday 10 February 2030 at 09:00`, as the datetime's own clock shows it."""
    name = f"{WEEKDAYS[moment.isoweekday() % 7]} " if weekday else ""
    day = f"{moment.day} {MONTHS[moment.month - 1]} {moment.year}"
    return f"{name}{day} at {clock_words(moment)}"


def _in_zone(moment: datetime, zone: str | None) -> str:
    words = moment_words(moment)
    return words if zone is None else f"{words} {zone_words(zone)}"


def _window(window: Window) -> str:
    days = f"on {joined(weekday_list(numbers(window.weekdays)))}"
    if all_day(window):
        return days
    over = " of the next day" if past_midnight(window) else ""
    return f"{days} from {minute_words(window.start)} to {minute_words(window.end)}{over}"
