"""Chinese, in simplified characters."""

from __future__ import annotations

from datetime import datetime, timedelta

from chimes.language import zh_days
from chimes.language import zh_limits as limits
from chimes.language.days import Days, days_phrase
from chimes.language.times import Times
from chimes.language.zh_days import WEEKDAYS, years_phrase
from chimes.language.zh_limits import duration_words, every_words, in_zone, moment_words, zone_words
from chimes.language.zh_times import needs_day, time_phrase
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

BETWEEN = "；"
SHORT_WEEKDAYS = WEEKDAYS


def on_days(days: Days, times: Times, zone: str) -> str:
    words = time_phrase(times)
    if needs_day(times):
        words = f"{days_phrase(days, zh_days)} {words}".replace("） ", "）")
    elif not days.all:
        words = f"{days_phrase(days, zh_days)}，{words}"
    return f"{words}{years_phrase(days.years)}，{zone_words(zone)}"


def once(moment: datetime, zone: str) -> str:
    return f"仅一次，{moment_words(moment, weekday=True)}，{zone_words(zone)}"


def every(step: timedelta, anchor: datetime | None) -> str:
    words = every_words(step)
    return words if anchor is None else f"{words}，从{in_zone(anchor, 'UTC')}起计"


def delayed(jitter: timedelta) -> str:
    return f"，每次最多延后{duration_words(jitter)}"


def clock_changes(rules: Dst) -> str:
    return f"时钟调整按 {rules} 的规则处理"
