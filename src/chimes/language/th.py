"""Thai."""

from __future__ import annotations

from datetime import datetime, timedelta

from chimes.language import th_days
from chimes.language import th_limits as limits
from chimes.language.days import Days, days_phrase
from chimes.language.th_days import years_phrase
from chimes.language.th_limits import duration_words, every_words, moment_words, zone_words
from chimes.language.th_times import time_phrase
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
SHORT_WEEKDAYS = ("อา.", "จ.", "อ.", "พ.", "พฤ.", "ศ.", "ส.")


def on_days(days: Days, times: Times, zone: str) -> str:
    words = time_phrase(times)
    if not (days.all and words.startswith("ทุก")):
        words = f"{days_phrase(days, th_days)} {words}"
    return f"{words}{years_phrase(days.years)} {zone_words(zone)}"


def once(moment: datetime, zone: str) -> str:
    return f"ครั้งเดียว {moment_words(moment, weekday=True)} {zone_words(zone)}"


def every(step: timedelta, anchor: datetime | None) -> str:
    words = every_words(step)
    if anchor is None:
        return words
    return f"{words} นับจาก{moment_words(anchor)} {zone_words('UTC')}"


def delayed(jitter: timedelta) -> str:
    return f" แต่ละครั้งช้าได้ไม่เกิน {duration_words(jitter)}"


def clock_changes(rules: Dst) -> str:
    return f"เมื่อปรับนาฬิกาให้ใช้กฎของ {rules}"
