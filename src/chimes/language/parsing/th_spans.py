"""Thai: intervals, delays, and words that limit a schedule."""

from __future__ import annotations

import re
from datetime import timedelta

from chimes.language.parsing.parts import AtMinutes, Delay, Interval, Part
from chimes.language.parsing.rules import (
    AMBIGUOUS,
    IMPOSSIBLE,
    LIMITED,
    NO_INTERVAL,
    NO_UNIT,
    ONE_OF,
    RESIDUE,
    SPAN_OR_RESIDUE,
    VAGUE,
    Rule,
    rule,
)
from chimes.language.parsing.th_clock import HALF
from chimes.language.parsing.th_days import EVERY
from chimes.language.parsing.th_numbers import NUMBER, number

_UNITS = {"วินาที": timedelta(seconds=1), "นาที": timedelta(minutes=1)}
_UNIT = r"(?:วินาที|นาที|ชั่วโมง|ชม\.?)"
DURATION = (
    rf"(?P<d>ครึ่ง ?ชั่วโมง|(?:{NUMBER}(?:\.[0-9])? ?)?{_UNIT}(?:{HALF}| ?(?:นึง|หนึ่ง(?! ?นาที)))?"
    rf"(?: ?(?:(?:และ|กับ) ?)?{NUMBER} ?{_UNIT}){{0,3}})"
)


def duration(text: str) -> timedelta:
    """`1 ชั่วโมง 30 นาที`, `ชั่วโมงครึ่ง`, `ครึ่งชั่วโมง`."""
    total = timedelta(0)
    for item in re.finditer(rf"(?:(ครึ่ง)|({NUMBER})(?:\.([0-9]))?)? ?({_UNIT})( ?ครึ่ง)?", text):
        unit = _UNITS.get(item[4], timedelta(hours=1))
        count = 0 if item[1] else number(item[2]) if item[2] else 1
        tenths = int(item[3] or 0) + 5 * (bool(item[1]) + bool(item[5]))
        total += unit * count + unit * tenths / 10
    return total


def _interval(found: re.Match[str]) -> tuple[Part, ...]:
    step = duration(found["d"])
    return (Interval(step) if step else NO_INTERVAL,)


def _delay(found: re.Match[str]) -> tuple[Part, ...]:
    after = duration(found["d"])
    return (Delay(after) if after else NO_INTERVAL,)


def _minute(found: re.Match[str]) -> tuple[Part, ...]:
    minute = number(found["n"])
    return (AtMinutes(frozenset({minute})) if minute < 60 else IMPOSSIBLE,)


_NO_UNIT_BEHIND = r"(?! ?(?:วิ|นา|ชั่ว|ชม|วัน|สัป|อาทิ|เดือน|ปี|[0-9.:]|โมง|ทุ่ม))"
_COUNTABLE = r"(?:วัน|สัปดาห์|อาทิตย์|เดือน|ปี)"
RULES: list[Rule] = [
    rule(rf"{EVERY}{DURATION}(?: ?(?:1|หนึ่ง) ?ครั้ง)?", _interval),
    rule(rf"{EVERY}- ?[0-9]+ ?(?:{_UNIT})?", NO_INTERVAL),
    rule(rf"{EVERY}(?:ไม่กี่|หลาย) ?{_UNIT}", NO_INTERVAL),
    rule(rf"{EVERY}[0-9]+{_NO_UNIT_BEHIND}", NO_UNIT),
    rule(rf"(?:ใน)?(?:อีก|หลังจากนี้) ?{DURATION}(?:ข้างหน้า|จากนี้)?", _delay),
    rule(rf"{DURATION} ?(?:ข้างหน้า|จากนี้|นับจากนี้|ต่อจากนี้)", _delay),
    rule(rf"อีก ?[0-9]+{_NO_UNIT_BEHIND}", NO_UNIT),
    rule(rf"(?:อีก|{EVERY}) ?(?:-[0-9]+|[0-9]{{7,}}|[0-9]+[/⁄][0-9]+) ?{_UNIT}", NO_INTERVAL),
    rule(rf"อีก ?(?:ไม่กี่|หลาย) ?{_UNIT}", NO_INTERVAL),
    rule(rf"อีก ?(?:ประมาณ|ราว ?ๆ?|สัก|เกือบ) ?{DURATION}", AMBIGUOUS),
    rule(rf"(?:อีก|{EVERY}) ?{NUMBER} ?(?:-|ถึง|หรือ)? ?{NUMBER} ?{_UNIT}", AMBIGUOUS),
    rule(rf"(?:ตอน|ที่)? ?นาทีที่ ?(?P<n>{NUMBER})", _minute),
    rule(r"(?:ช่วง|สัก)?ประมาณ|ราว ?ๆ|ก่อน|หลัง|ไม่เกิน", VAGUE),
    rule(r"(?<=โมง)กว่า ?ๆ?|(?<=ทุ่ม)กว่า ?ๆ?|กว่า ?ๆ|โดยประมาณ", AMBIGUOUS),
    rule(r"(?<=[มงน0-9ี.])(?: ?(?:นิด ?ๆ|นิดหน่อย|หน่อย ?ๆ|ต้น ?ๆ|ปลาย ?ๆ|เศษ ?ๆ?))", AMBIGUOUS),
    rule(r"(?:ยกเว้น|เว้น|ไม่รวม) ?(?:วันหยุด|นักขัตฤกษ์|เทศกาล)[ก-๛]*", LIMITED),
    rule(r"หรือ", ONE_OF),
    rule(r"ตั้งแต่|ระหว่าง|จาก", SPAN_OR_RESIDUE),
    rule(r"ยกเว้น|เว้น|ไม่รวม|จนถึง|จนกว่า|จน|ถึง|เริ่ม(?:ตั้งแต่|จาก)?", RESIDUE),
    rule(
        rf"(?:เป็นเวลา|นาน|ตลอด|ติดต่อกัน|ติดกัน|จำนวน|เพียง|ครบ) ?{NUMBER} ?{_COUNTABLE}"
        rf"|{NUMBER} ?{_COUNTABLE} ?ติดต่อกัน|เป็นต้นไป",
        LIMITED,
    ),
]
