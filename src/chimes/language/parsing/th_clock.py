"""Thai: times of day (TIME "Words": Thai hours)."""

from __future__ import annotations

import re

from chimes.language.parsing.parts import Clock, Part, PartOfDay, Sure
from chimes.language.parsing.rules import (
    AMBIGUOUS,
    IMPOSSIBLE,
    Meaning,
    Rule,
    clock,
    rule,
    whole_hours,
)
from chimes.language.parsing.th_numbers import NUMBER, TENS, number

_AT = r"(?P<at>(?:ณ ?)?(?:ใน)?(?:เวลา|ตอน|ช่วง) ?)?"
_HOUR = rf"(?P<h>{NUMBER})"
#: Half past; not half of something that follows.
HALF = r"(?: ครึ่ง(?= |$)|ครึ่ง(?!แรก|หลัง|ราคา|ทาง|ตัว|หนึ่ง|วัน|เดือน|ปี|ชั่วโมง|เดียว|นาที))"
# A lone number behind an hour is its minutes only where nothing can be counted with it.
_MINUTES = (
    rf"(?:(?P<half>{HALF})| ?(?P<m1>{NUMBER}) ?นาที"
    rf"|(?P<m2>[0-9]{{2}})(?![0-9:.])|(?P<m3>{TENS})(?= |$)"
    r"|(?P<unsure> [0-5][0-9])(?![0-9:./-])(?! ?น\.)| (?P<m4>[0-9]{2})(?= ?น\.))?"
    r"(?: ?(?:ตรง|เป๊ะ))?(?: ?น\.)?"
)


def _minute(found: re.Match[str]) -> int:
    if found["half"]:
        return 30
    said = found["m1"] or found["m2"] or found["m3"] or found["m4"]
    return number(said) if said else 0


def _made(found: re.Match[str], hour: int, *, usual: bool = False) -> tuple[Part, ...]:
    minute = _minute(found)
    if found["unsure"]:
        return (AMBIGUOUS,)
    read = clock(hour, minute)
    if not isinstance(read, Clock):
        return (read,)
    whole = not any(found[each] for each in ("half", "m1", "m2", "m3", "m4"))
    sure: Sure = "usual" if usual else "certain"
    return (
        Clock(
            hour,
            minute,
            sure=sure,
            midnight=hour == 0,
            marked=bool(found["at"]),
            whole=whole,
            sixes=usual,
        ),
    )


def _counted(base: int, first: int, last: int, *, usual: bool = False) -> Meaning:
    """Hours from `first` to `last` are said on top of `base`; others are asked about."""

    def meaning(found: re.Match[str]) -> tuple[Part, ...]:
        hour = number(found["h"])
        if first <= hour <= last:
            return _made(found, base + hour, usual=usual)
        if not usual or hour > 12:
            return (AMBIGUOUS if hour <= 12 else IMPOSSIBLE,)
        return (
            Clock(
                hour,
                _minute(found),
                sure="open",
                marked=bool(found["at"]),
                whole=True,
                sixes=True,
            ),
        )

    return meaning


def _fixed(hour: int) -> Meaning:
    return lambda found: _made(found, hour)


def _official(found: re.Match[str]) -> tuple[Part, ...]:
    """`14.30 น.`, `9 นาฬิกา`: the 24-hour clock, nothing to move."""
    read = clock(int(found["oh"]), int(found["om"] or 0))
    if not isinstance(read, Clock):
        return (read,)
    return (Clock(read.hour, read.minute, marked=bool(found["at"]), whole=not found["om"]),)


def _written(found: re.Match[str]) -> tuple[Part, ...]:
    """`บ่าย 2:30`, `ตี 2.30`."""
    hour = int(found["h"]) + (12 if found["p"] == "บ่าย" else 0)
    return (Clock(hour, int(found["m"]), marked=bool(found["at"])),)


_OFFICIAL = r"(?P<oh>[0-9]{1,2})(?:[:.](?P<om>[0-9]{2}))? ?(?:น\.(?![สศพ]\.)|น(?![ก-๛.])|นาฬิกา)"
_OFFICIAL_WORDS = rf"{_HOUR} ?นาฬิกา{_MINUTES}"
# Nothing that could make another word of it, such as the name of a dish.
_NEXT = rf"(?= |$|{NUMBER}|เวลา|ตอน)"
RULES: list[Rule] = [
    rule(r"(?P<first>[0-9]{1,2}) ?(?:-|ถึง) ?(?P<last>[0-9]{1,2}) ?(?:น\.|นาฬิกา)", whole_hours),
    rule(_AT + _OFFICIAL, _official),
    rule(_AT + _OFFICIAL_WORDS, lambda found: _made(found, number(found["h"]))),
    rule(
        rf"{_AT}(?P<p>บ่าย|ตี) ?(?P<h>[1-5])[:.](?P<m>[0-5][0-9])(?![0-9:.])(?: ?(?:น\.|โมง))?",
        _written,
    ),
    rule(rf"{_AT}ตี ?{_HOUR}{_MINUTES}", _counted(0, 1, 5)),
    rule(rf"{_AT}{_HOUR} ?โมง ?เช้า{_MINUTES}", _counted(0, 6, 11)),
    rule(rf"{_AT}{_HOUR} ?โมง{_MINUTES}", _counted(0, 6, 11, usual=True)),
    rule(rf"{_AT}{_HOUR} ?โมง{_MINUTES} ?เช้า", _counted(0, 6, 11)),
    rule(rf"{_AT}เที่ยง(?!ธรรม|แท้)(?:วัน)?{_MINUTES}", _fixed(12)),
    rule(rf"{_AT}บ่าย ?โมง{_MINUTES}", _fixed(13)),
    rule(rf"{_AT}บ่าย ?{_HOUR}(?: ?โมง)?{_MINUTES}", _counted(12, 1, 5)),
    rule(rf"{_AT}{_HOUR} ?โมง ?เย็น{_MINUTES}", _counted(12, 4, 6)),
    rule(rf"{_AT}{_HOUR} ?โมง{_MINUTES} ?เย็น", _counted(12, 4, 6)),
    rule(rf"{_AT}{_HOUR} ?ทุ่ม{_MINUTES}", _counted(18, 1, 5)),
    rule(rf"{_AT}ทุ่ม(?:หนึ่ง|นึง)?(?![ก-ฮ]*เท){_MINUTES}", _fixed(19)),
    rule(rf"{_AT}(?:สอง|2) ?ยาม", AMBIGUOUS),
    rule(rf"{_AT}เที่ยงคืน{_MINUTES}", _fixed(0)),
    rule(rf"{_AT}โมง ?เช้า", AMBIGUOUS),
    rule(r"(?:(?:ใน)?(?:ตอน|ช่วง|เวลา) ?)?เช้ามืด", PartOfDay("dawn")),
    rule(rf"(?:(?:ใน)?(?:ตอน|ช่วง|เวลา) ?)?เช้า(?:ตรู่)?{_NEXT}", PartOfDay("morning")),
    rule(rf"(?:(?:ใน)?(?:ตอน|ช่วง|เวลา) ?)?บ่าย{_NEXT}", PartOfDay("afternoon")),
    rule(rf"(?:(?:ใน)?(?:ตอน|ช่วง|เวลา) ?)?เย็น{_NEXT}", PartOfDay("evening")),
    rule(rf"(?:(?:ใน)?(?:ตอน|ช่วง|เวลา) ?)?ค่ำ{_NEXT}", PartOfDay("evening")),
    rule(r"(?:ใน)?(?:ตอน|ช่วง|เวลา) ?(?:กลาง)?คืน", PartOfDay("night")),
    rule(r"(?:ใน)?(?:ตอน|ช่วง|เวลา) ?กลางวัน", PartOfDay("noon")),
]
