"""Thai: durations, moments, bounds and exclusions. Years are marked ค.ศ.; พ.ศ. is read, too."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from chimes.language.limits import (
    all_day,
    clock_words,
    duration_parts,
    minute_words,
    past_midnight,
    whole_days,
)
from chimes.language.masks import numbers
from chimes.language.th_days import MONTHS, WEEKDAYS, weekday_list
from chimes.language.th_times import UNITS, joined
from chimes.triggers import Window
from chimes.triggers.calendar import OnExcluded


def since(moment: datetime, zone: str | None) -> str:
    return f"ตั้งแต่{_in_zone(moment, zone)} เป็นต้นไป"


def until(moment: datetime, zone: str | None) -> str:
    return f"จนถึง{_in_zone(moment, zone)}"


def at_most(count: int) -> str:
    return "ครั้งเดียวเท่านั้น" if count == 1 else f"ไม่เกิน {count} ครั้ง"


def holidays(country: str) -> str:
    return f"วันหยุดราชการของ {country}"


def windows(windows: Sequence[Window]) -> str:
    return joined([_window(window) for window in windows])


def dates(shown: Sequence[str], more: int) -> str:
    return f"วันที่ {joined([*shown, f'อีก {more} วัน'] if more else shown)}"


def excepting(days: str, then: OnExcluded) -> str:
    words = f"ยกเว้น{days}"
    if then == "skip":
        return words
    moved = "ถัดไป" if then == "next" else "ก่อนหน้า"
    return f"{words} โดยเลื่อนไปวันทำการ{moved}"


def zone_words(zone: str) -> str:
    return f"ตามเวลา {zone}"


def every_words(value: timedelta) -> str:
    """`ทุกนาที`, `ทุก 24 ชั่วโมง`, `ทุก 7 วัน (วันละ 24 ชั่วโมง)`."""
    days = whole_days(value)
    if days is not None:
        return f"ทุก {days} วัน (วันละ 24 ชั่วโมง)"
    parts = duration_parts(value)
    if len(parts) == 1 and parts[0][0] == 1:
        return f"ทุก{UNITS[parts[0][1]]}"
    return f"ทุก {duration_words(value)}"


def duration_words(value: timedelta) -> str:
    """`1 นาที 30 วินาที`."""
    return " ".join(f"{count} {UNITS[unit]}" for count, unit in duration_parts(value))


def moment_words(moment: datetime, *, weekday: bool = False) -> str:
    """`วันอาทิตย์ที่ 10 กุมภาพันธ์ ค.ศ. 2030 เวลา 09:00 น.`"""
    name = f"{WEEKDAYS[moment.isoweekday() % 7]}ที่" if weekday else "วันที่"
    day = f"{moment.day} {MONTHS[moment.month - 1]} ค.ศ. {moment.year}"
    return f"{name} {day} เวลา {clock_words(moment)} น."


def _in_zone(moment: datetime, zone: str | None) -> str:
    words = moment_words(moment)
    return words if zone is None else f"{words} {zone_words(zone)}"


def _window(window: Window) -> str:
    days = joined(weekday_list(numbers(window.weekdays)))
    if all_day(window):
        return f"{days}ทั้งวัน"
    over = " ของวันถัดไป" if past_midnight(window) else ""
    return f"{days} เวลา {minute_words(window.start)} ถึง {minute_words(window.end)} น.{over}"
