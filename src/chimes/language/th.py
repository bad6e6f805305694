"""Thai."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import assert_never

from chimes.language.cautions import Caution
from chimes.language.days import Days
from chimes.language.th_days import days_phrase, years_phrase
from chimes.language.th_limits import (
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
from chimes.language.th_times import time_phrase
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
    words = time_phrase(times)
    if not (days.all and words.startswith("ทุก")):
        words = f"{days_phrase(days)} {words}"
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


def note(note: Note) -> str:
    match note:
        case "moved_by_gap":
            return "เวลานี้ถูกข้ามไปเมื่อปรับนาฬิกาไปข้างหน้า จึงทำงานในขณะที่ปรับ"
        case "repeated_hour_first":
            return "ชั่วโมงนี้มีสองรอบเมื่อปรับนาฬิกาถอยหลัง นี่คือรอบแรก"
        case "repeated_hour_second":
            return "ชั่วโมงนี้มีสองรอบเมื่อปรับนาฬิกาถอยหลัง นี่คือรอบที่สอง"
        case "repeated_hour_once":
            return "ชั่วโมงนี้มีสองรอบเมื่อปรับนาฬิกาถอยหลัง ทำงานเฉพาะรอบแรก"
        case "moved_by_calendar":
            return "วันเดิมเป็นวันที่ยกเว้นไว้ จึงทำงานในวันอื่นแทน"
    assert_never(note)


def caution(caution: Caution) -> str:
    match caution.code:
        case "either_day":
            return (
                "นับวันที่ตรงกับวันที่หรือวันในสัปดาห์อย่างใดอย่างหนึ่ง ไม่ต้องตรงทั้งสองอย่าง "
                "หากต้องการให้ตรงทั้งสองอย่าง ให้ขึ้นต้นช่องใดช่องหนึ่งด้วย *"
            )
        case "both_days":
            return "นับเฉพาะวันที่ตรงทั้งวันที่และวันในสัปดาห์"
        case "uneven_step":
            return _uneven(caution)
        case "every_minute":
            return (
                f"ทำงานทุกนาทีในชั่วโมงเหล่านี้ วันละ {caution.count} ครั้ง "
                "หากต้องการชั่วโมงละครั้ง ให้ใส่ 0 ในช่องนาที"
            )
        case "often":
            return f"ทำงานวันละ {caution.count} ครั้ง"
        case "leap_years":
            return "ทำงานเฉพาะปีอธิกสุรทิน"
        case "short_months":
            return f"ไม่ทำงานในเดือนที่ไม่มีวันที่ {caution.count}"
    assert_never(caution.code)


def _uneven(caution: Caution) -> str:
    unit, larger = {
        "second": ("วินาที", "นาที"),
        "minute": ("นาที", "ชั่วโมง"),
        "hour": ("ชั่วโมง", "วัน"),
        "day": ("วัน", "เดือน"),
        "month": ("เดือน", "ปี"),
    }[caution.unit]
    start = f"รอบทุก {caution.step} {unit} เริ่มนับใหม่ทุก{larger}"
    if not caution.gap:
        return f"{start} ช่วงรอยต่อจึงห่างไม่เท่าช่วงอื่น"
    return f"{start} ช่วงรอยต่อจึงห่างกัน {caution.gap} {unit}"
