"""Thai."""

from __future__ import annotations

from datetime import datetime, timedelta

from chimes.language import th_days
from chimes.language import th_limits as limits
from chimes.language.cautions import Caution, CautionCode, Unit
from chimes.language.days import Days, days_phrase
from chimes.language.th_days import years_phrase
from chimes.language.th_limits import duration_words, every_words, moment_words, zone_words
from chimes.language.th_times import time_phrase
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
REMARK = "หมายเหตุ: {}"
SHORT_WEEKDAYS = ("อา.", "จ.", "อ.", "พ.", "พฤ.", "ศ.", "ส.")
_NOTES: dict[Note, str] = {
    "moved_by_gap": "เวลานี้ถูกข้ามไปเมื่อปรับนาฬิกาไปข้างหน้า จึงทำงานในขณะที่ปรับ",
    "repeated_hour_first": "ชั่วโมงนี้มีสองรอบเมื่อปรับนาฬิกาถอยหลัง นี่คือรอบแรก",
    "repeated_hour_second": "ชั่วโมงนี้มีสองรอบเมื่อปรับนาฬิกาถอยหลัง นี่คือรอบที่สอง",
    "repeated_hour_once": "ชั่วโมงนี้มีสองรอบเมื่อปรับนาฬิกาถอยหลัง ทำงานเฉพาะรอบแรก",
    "moved_by_calendar": "วันเดิมเป็นวันที่ยกเว้นไว้ จึงทำงานในวันอื่นแทน",
}
_CAUTIONS: dict[CautionCode, str] = {
    "either_day": (
        "นับวันที่ตรงกับวันที่หรือวันในสัปดาห์อย่างใดอย่างหนึ่ง ไม่ต้องตรงทั้งสองอย่าง "
        "หากต้องการให้ตรงทั้งสองอย่าง ให้ขึ้นต้นช่องใดช่องหนึ่งด้วย *"
    ),
    "both_days": "นับเฉพาะวันที่ตรงทั้งวันที่และวันในสัปดาห์",
    "uneven_step": "รอบทุก {step} {unit} เริ่มนับใหม่ทุก{larger} ช่วงรอยต่อจึงห่างกัน {gap} {unit}",
    "uneven_months": "รอบทุก {step} วัน เริ่มนับใหม่ทุกเดือน ช่วงรอยต่อจึงห่างไม่เท่าช่วงอื่น",
    "every_minute": ("ทำงานทุกนาทีในชั่วโมงเหล่านี้ วันละ {count} ครั้ง หากต้องการชั่วโมงละครั้ง ให้ใส่ 0 ในช่องนาที"),
    "often": "ทำงานวันละ {count} ครั้ง",
    "leap_years": "ทำงานเฉพาะปีอธิกสุรทิน",
    "short_months": "ไม่ทำงานในเดือนที่ไม่มีวันที่ {count}",
}
_UNITS: dict[Unit, tuple[str, str]] = {
    "second": ("วินาที", "นาที"),
    "minute": ("นาที", "ชั่วโมง"),
    "hour": ("ชั่วโมง", "วัน"),
    "day": ("วัน", "เดือน"),
    "month": ("เดือน", "ปี"),
}


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


def note(note: Note) -> str:
    return _NOTES[note]


def caution(caution: Caution) -> str:
    return caution.filled(_CAUTIONS, *_UNITS[caution.unit])
