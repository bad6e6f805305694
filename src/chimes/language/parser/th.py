"""The grammar of Thai."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta

from chimes.language.parser import parts, rules
from chimes.language.parser.rules import Common, Grammar, Parts, Rule, ToParts, rule
from chimes.language.parser.text import is_thai

# Numerals up to 99, in digits or words.

_ONES = ("หนึ่ง", "สอง", "สาม", "สี่", "ห้า", "หก", "เจ็ด", "แปด", "เก้า")
_OTHERS = {"ศูนย์": 0, "เอ็ด": 1, "ยี่": 2}
_ONE = "|".join(_ONES)
TENS = rf"(?:{_ONE}|ยี่)?สิบ(?:เอ็ด|{_ONE})?"
WORD = rf"(?:ศูนย์|{TENS}|{_ONE})"
NUMBER = rf"(?:[0-9]{{1,6}}|{WORD})"


def number(text: str) -> int:
    if text.isdigit():
        return int(text)
    tens, ten, ones = text.rpartition("สิบ")
    if not ten:
        return _one(text)
    return (_one(tens) if tens else 1) * 10 + (_one(ones) if ones else 0)


def _one(text: str) -> int:
    return _OTHERS[text] if text in _OTHERS else _ONES.index(text) + 1


# Durations.

#: Half past; not half of something that follows.
HALF = r"(?: ครึ่ง(?= |$)|ครึ่ง(?!แรก|หลัง|ราคา|ทาง|ตัว|หนึ่ง|วัน|เดือน|ปี|ชั่วโมง|เดียว|นาที))"
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


# Times of day.

_AT = r"(?P<at>(?:ณ ?)?(?:ใน)?(?:เวลา|ตอน|ช่วง) ?)?"
_HOUR = rf"(?P<h>{NUMBER})"
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
    minute = found["m1"] or found["m2"] or found["m3"] or found["m4"]
    return number(minute) if minute else 0


def _made(found: re.Match[str], hour: int, *, usual: bool = False) -> Parts:
    minute = _minute(found)
    if found["unsure"]:
        return (parts.AMBIGUOUS,)
    read = rules.clock(hour, minute)
    if not isinstance(read, parts.Clock):
        return (read,)
    made = replace(
        read,
        certainty="usual" if usual else "certain",
        midnight=hour == 0,
        whole=not any(found[each] for each in ("half", "m1", "m2", "m3", "m4")),
        thai_count=usual,
    )
    return rules.marked(made, found)


def _counted(base: int, first: int, last: int, *, usual: bool = False) -> ToParts:
    """Adds `base` to hours from `first` to `last`; other hours lead to a question."""

    def to_parts(found: re.Match[str]) -> Parts:
        hour = number(found["h"])
        if first <= hour <= last:
            return _made(found, base + hour, usual=usual)
        if not usual or hour > 12:
            return (parts.AMBIGUOUS if hour <= 12 else parts.IMPOSSIBLE,)
        read = parts.Clock(hour, _minute(found), certainty="open", whole=True, thai_count=True)
        return rules.marked(read, found)

    return to_parts


def _fixed(hour: int) -> ToParts:
    return lambda found: _made(found, hour)


def _official(found: re.Match[str]) -> Parts:
    """`14.30 น.`, `9 นาฬิกา`: the 24-hour clock, unambiguous."""
    read = rules.clock(int(found["oh"]), int(found["om"] or 0))
    if not isinstance(read, parts.Clock):
        return (read,)
    return rules.marked(replace(read, whole=not found["om"]), found)


def _written(found: re.Match[str]) -> Parts:
    """`บ่าย 2:30`, `ตี 2.30`."""
    hour = int(found["h"]) + (12 if found["p"] == "บ่าย" else 0)
    return rules.marked(parts.Clock(hour, int(found["m"])), found)


_OFFICIAL = r"(?P<oh>[0-9]{1,2})(?:[:.](?P<om>[0-9]{2}))? ?(?:น\.(?![สศพ]\.)|น(?![ก-๛.])|นาฬิกา)"
_OFFICIAL_WORDS = rf"{_HOUR} ?นาฬิกา{_MINUTES}"
# Not followed by letters that make it another word, such as the name of a dish.
_NEXT = rf"(?= |$|{NUMBER}|เวลา|ตอน)"
_DURING = r"(?:ใน)?(?:ตอน|ช่วง|เวลา) ?"
_CLOCK_RULES: list[Rule] = [
    rule(
        r"(?P<first>[0-9]{1,2}) ?(?:-|ถึง) ?(?P<last>[0-9]{1,2}) ?(?:น\.|นาฬิกา)", rules.whole_hours
    ),
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
    rule(rf"{_AT}(?:สอง|2) ?ยาม", parts.AMBIGUOUS),
    rule(rf"{_AT}เที่ยงคืน{_MINUTES}", _fixed(0)),
    rule(rf"{_AT}โมง ?เช้า", parts.AMBIGUOUS),
    rule(rf"(?:{_DURING})?เช้ามืด", parts.PartOfDay("dawn")),
    rule(rf"(?:{_DURING})?เช้า(?:ตรู่)?{_NEXT}", parts.PartOfDay("morning")),
    rule(rf"(?:{_DURING})?บ่าย{_NEXT}", parts.PartOfDay("afternoon")),
    rule(rf"(?:{_DURING})?(?:เย็น|ค่ำ){_NEXT}", parts.PartOfDay("evening")),
    rule(rf"{_DURING}(?:กลาง)?คืน", parts.PartOfDay("night")),
    rule(rf"{_DURING}กลางวัน", parts.PartOfDay("noon")),
]


# Days.

_WEEKDAYS = {
    **dict.fromkeys(("อาทิตย์", "อา."), 0),
    **dict.fromkeys(("จันทร์", "จ."), 1),
    **dict.fromkeys(("อังคาร", "อ."), 2),
    **dict.fromkeys(("พุธ", "พ."), 3),
    **dict.fromkeys(("พฤหัสบดี", "พฤหัสฯ", "พฤหัส", "พฤ."), 4),
    **dict.fromkeys(("ศุกร์", "ศ."), 5),
    **dict.fromkeys(("เสาร์", "ส."), 6),
}
_MONTH_NAMES = (
    *(("มกราคม", "มกรา", "ม.ค."), ("กุมภาพันธ์", "กุมภา", "ก.พ.")),
    *(("มีนาคม", "มีนา", "มี.ค."), ("เมษายน", "เมษา", "เม.ย.")),
    *(("พฤษภาคม", "พฤษภา", "พ.ค."), ("มิถุนายน", "มิถุนา", "มิ.ย.")),
    *(("กรกฎาคม", "กรกฎา", "ก.ค."), ("สิงหาคม", "สิงหา", "ส.ค.")),
    *(("กันยายน", "กันยา", "ก.ย."), ("ตุลาคม", "ตุลา", "ต.ค.")),
    *(("พฤศจิกายน", "พฤศจิกา", "พ.ย."), ("ธันวาคม", "ธันวา", "ธ.ค.")),
)
_MONTHS = {name: index + 1 for index, names in enumerate(_MONTH_NAMES) for name in names}
# `พ.` begins May, November and the Buddhist era, too, and `ส.` August.
_DAY = r"(?!พ\.[คยศ]\.|ส\.ค\.)" + rules.alternatives(_WEEKDAYS)
_MONTH = rules.alternatives(_MONTHS)
_W = rf"(?:วัน ?)?{_DAY}"
_TO = r" ?(?:ถึง|จนถึง|-) ?"
_ITEM = rf"{_W}(?:{_TO}{_W})?"
_LIST = rf"{_ITEM}(?: ?(?:(?:และ|กับ|แล้วก็|,|/) ?(?:ทุก ?)?)?{_ITEM}){{0,7}}"
_EVERY = r"(?:ประจำ)?(?:ทุก ?ๆ?|แต่ละ) ?"
_WORKING = r"วัน(?:ทำการ(?!บ้าน)|ทำงาน(?!บ้าน)|ธรรมดา)"
_OF_MONTH = r"(?: ?(?:ของ|ใน)? ?เดือน(?!นี้|หน้า|ที่))"
_OF_EACH = r"(?: ?(?:ของ|ใน)? ?(?:ทุก ?ๆ?|แต่ละ) ?เดือน)"
_DAY_NUMBER = rf"(?:[0-9]{{1,2}}(?![0-9:./])|(?![0-9]){NUMBER})"
_DAY_NUMBERS = rf"(?P<days>{_DAY_NUMBER}(?: ?(?:และ|กับ|,) ?(?:วันที่ ?)?{_DAY_NUMBER}){{0,9}})"


def weekdays(text: str) -> frozenset[int]:
    """The days of `จันทร์ถึงศุกร์ และ อาทิตย์`."""
    return rules.numbers_of(rf"({_DAY})(?:{_TO}(?:วัน ?)?({_DAY}))?", _WEEKDAYS, text)


_common = Common(number, weekdays, duration, NUMBER)


def _date(found: re.Match[str]) -> Parts:
    year = None
    if found["year"]:
        if len(found["year"]) < 4:
            return (parts.AMBIGUOUS,)
        year = rules.christian_year(int(found["year"]), buddhist=found["era"] == "พ.ศ.")
    every = bool(found["every"] or found["yearly"])
    return _common.date(found, year, _MONTHS[found["month"]], every=every)


_COUNTED: dict[str, parts.Part] = {
    "วัน": parts.Daily(),
    "สัปดาห์": parts.Period("week"),
    "อาทิตย์": parts.Period("week"),
    "เดือน": parts.Period("month"),
    "ปี": parts.Period("year"),
}


_PORTIONS: dict[str, parts.Portion] = {
    "เช้า": "morning",
    "บ่าย": "afternoon",
    "เย็น": "evening",
    "ค่ำ": "evening",
    "คืน": "night",
}
_MONTH_ENDS = {"วันสุดท้าย": "L", f"{_WORKING}สุดท้าย": "LW", f"{_WORKING}(?:แรก|ที่ ?1)": "1W"}
_NTH = rf"(?P<w>{_W}) ?(?:แรก|(?P<last>สุดท้าย)|ที่ ?(?P<n>{NUMBER})(?! ?{_MONTH}))"
_YEAR = (
    r"(?: ?(?P<era>พ\.ศ\.|ค\.ศ\.|ปี)? ?(?P<year>[12][0-9]{3}|[0-9]{2})"
    r"(?![0-9:.]| ?(?:โมง|ทุ่ม|น\.|นาฬิกา)))?"
)
_NEXT_WEEK = r"(?:สัปดาห์|อาทิตย์)(?:หน้า|ถัดไป)"
_THIS_WEEK = r"(?:สัปดาห์|อาทิตย์)นี้"
_ONCE_A = r"ละ ?(?:ครั้ง|หนึ่งครั้ง|1 ?ครั้ง)"
_DAY_RULES: list[Rule] = [
    rule(rf"{_EVERY}วัน(?!นี้|หยุด)(?: ?(?:1|หนึ่ง) ?ครั้ง)?|วัน{_ONCE_A}", parts.Daily()),
    *(
        rule(rf"{_EVERY}(?:ตอน)?{word}", (parts.Daily(), parts.PartOfDay(portion)))
        for word, portion in _PORTIONS.items()
    ),
    # Without "วัน" the name of Sunday means a week.
    rule(rf"{_EVERY}(?:วัน ?|(?!อาทิตย์))(?P<list>{_LIST})", _common.named(every=True)),
    rule(rf"{_EVERY}อาทิตย์(?! ?(?:วัน(?!ที่)|ละ))", parts.AMBIGUOUS),
    rule(r"(?:วัน)?เสาร์ ?-? ?(?:วัน)?อาทิตย์(?:นี้|หน้า)", parts.AMBIGUOUS),
    *(
        rule(
            rf"{_EVERY}(?:ตอน)?{word}(?:ของ)?(?P<list>(?=วัน){_LIST})",
            _common.named(True, parts.PartOfDay(portion)),
        )
        for word, portion in _PORTIONS.items()
    ),
    # Abbreviations match only as whole words; a single one may be a title: อ. สมชาย.
    rule(
        rf"(?:(?=วัน|[^.]{{3}})|(?<![ก-๛.])(?={_W}(?:{_TO}| ?(?:และ|กับ|แล้วก็|,|/) ?| ){_W}))"
        rf"(?P<list>{_LIST})",
        _common.named(every=False),
    ),
    rule(rf"(?:{_EVERY}|ใน)?{_WORKING}", parts.WORKING_DAYS),
    rule(
        rf"(?:{_EVERY})?(?:วัน)?(?:เสาร์ ?(?:-|และ|กับ)? ?(?:วัน)?อาทิตย์|สุดสัปดาห์)",
        parts.WEEKEND,
    ),
    rule(rf"{_EVERY}(?:สัปดาห์|อาทิตย์(?= ?(?:วัน|ละ)))|(?:สัปดาห์|อาทิตย์){_ONCE_A}", parts.Period("week")),
    rule(rf"{_EVERY}เดือน|เดือน{_ONCE_A}", parts.Period("month")),
    rule(rf"{_EVERY}ปี|ปี{_ONCE_A}", parts.Period("year")),
    rule(rf"{_EVERY}(?P<n>{NUMBER}) ?(?P<u>วัน|สัปดาห์|อาทิตย์|เดือน|ปี)", _common.counted(_COUNTED)),
    rule(r"วันเว้นวัน|สัปดาห์เว้นสัปดาห์|อาทิตย์เว้นอาทิตย์|เดือนเว้นเดือน", parts.NO_INTERVAL),
    rule(rf"{_EVERY}ไตรมาส", parts.NO_INTERVAL),
    rule(rf"{_EVERY}วันหยุด", parts.AMBIGUOUS),
    rule(rf"{_EVERY}วันที่ ?{_DAY_NUMBERS}{_OF_MONTH}?", _common.month_days(every=True)),
    rule(rf"วันที่ ?{_DAY_NUMBERS}{_OF_EACH}", _common.month_days(every=True)),
    rule(rf"วันที่ ?{_DAY_NUMBERS}{_OF_MONTH}?", _common.month_days(every=False)),
    rule(rf"{_EVERY}(?:วัน)?สิ้นเดือน|สิ้น{_OF_EACH}", parts.MonthDays(("L",), every=True)),
    rule(r"(?:วัน)?สิ้นเดือน", parts.MonthDays(("L",), every=False)),
    *(
        each
        for word, term in _MONTH_ENDS.items()
        for each in (
            rule(
                rf"{_EVERY}{word}{_OF_MONTH}|{word}{_OF_EACH}", parts.MonthDays((term,), every=True)
            ),
            rule(rf"{word}{_OF_MONTH}?", parts.MonthDays((term,), every=False)),
        )
    ),
    rule(rf"{_EVERY}(?:ต้น|กลาง|ปลาย)เดือน|(?:ต้น|กลาง|ปลาย)เดือน", parts.Problem(("date",))),
    rule(rf"{_EVERY}{_NTH}{_OF_MONTH}", _common.nth_weekday(every=True)),
    # The 5th of the month or the fifth day?
    rule(rf"{_EVERY}{_NTH}", parts.AMBIGUOUS),
    rule(rf"{_NTH}{_OF_EACH}", _common.nth_weekday(every=True)),
    rule(rf"{_NTH}{_OF_MONTH}", _common.nth_weekday(every=False)),
    rule(
        rf"(?P<every>{_EVERY}(?:ปี ?)?)?(?P<w>{_W} ?)?(?:วัน)?(?:ที่ ?)?(?P<day>{_DAY_NUMBER}) ?"
        rf"(?:เดือน ?)?(?P<month>{_MONTH}){_YEAR}(?P<yearly> ?(?:ของ)?ทุกปี)?",
        _date,
    ),
    rule(r"วันนี้", parts.RelativeDay(0)),
    rule(r"(?:วัน)?พรุ่งนี้|วันรุ่งขึ้น", parts.RelativeDay(1)),
    *(
        each
        for word, portion in _PORTIONS.items()
        for each in (
            rule(rf"{word}(?:วัน)?นี้", (parts.RelativeDay(0), parts.PartOfDay(portion))),
            rule(rf"{word}(?:วัน)?พรุ่งนี้", (parts.RelativeDay(1), parts.PartOfDay(portion))),
        )
    ),
    rule(r"(?:วัน)?มะรืน(?:นี้)?", parts.RelativeDay(2)),
    rule(r"เมื่อวาน(?:นี้|ซืน)?", parts.YESTERDAY),
    rule(rf"(?:ใน)?อีก ?(?P<n>{NUMBER}) ?(?P<u>วัน|สัปดาห์|อาทิตย์)(?:ข้างหน้า)?", _common.ahead("วัน")),
    rule(rf"(?!อาทิตย์)(?P<w>{_W}) ?นี้", _common.week(0)),
    rule(rf"(?P<w>{_W}) ?ที่จะถึง(?:นี้)?", _common.week(None)),
    rule(rf"(?!อาทิตย์)(?P<w>{_W}) ?(?:หน้า|ถัดไป)", _common.week(1, either=True)),
    rule(rf"(?P<w>{_W}) ?(?:ของ)?{_NEXT_WEEK}", _common.week(1)),
    rule(rf"{_NEXT_WEEK} ?(?P<w>{_W})", _common.week(1)),
    rule(rf"(?P<w>{_W}) ?(?:ของ)?{_THIS_WEEK}", _common.week(0)),
    rule(rf"{_THIS_WEEK} ?(?P<w>{_W})", _common.week(0)),
    rule(rf"วันที่ ?(?P<day>{_DAY_NUMBER}) ?(?:ของ)?เดือนหน้า", _common.month_day(1)),
    rule(rf"เดือนหน้า ?วันที่ ?(?P<day>{_DAY_NUMBER})", _common.month_day(1)),
    rule(rf"วันที่ ?(?P<day>{_DAY_NUMBER}) ?(?:ของ)?เดือนนี้", _common.month_day(0)),
    rule(rf"เดือนนี้ ?วันที่ ?(?P<day>{_DAY_NUMBER})", _common.month_day(0)),
    rule(r"(?:สัปดาห์|อาทิตย์|เดือน|ปี)(?:หน้า|นี้)", parts.Problem(("date",), loose=True)),
    rule(r"(?:แค่ ?|เพียง ?)?ครั้งเดียว", parts.OnlyOnce()),
]


# Intervals, delays and limits.

_NO_UNIT_BEHIND = r"(?! ?(?:วิ|นา|ชั่ว|ชม|วัน|สัป|อาทิ|เดือน|ปี|[0-9.:]|โมง|ทุ่ม))"
_COUNTABLE = r"(?:วัน|สัปดาห์|อาทิตย์|เดือน|ปี)"
_INTERVAL_RULES: list[Rule] = [
    rule(rf"{_EVERY}{DURATION}(?: ?(?:1|หนึ่ง) ?ครั้ง)?", _common.interval),
    rule(rf"{_EVERY}- ?[0-9]+ ?(?:{_UNIT})?", parts.NO_INTERVAL),
    rule(rf"{_EVERY}(?:ไม่กี่|หลาย) ?{_UNIT}", parts.NO_INTERVAL),
    rule(rf"{_EVERY}[0-9]+{_NO_UNIT_BEHIND}", parts.NO_UNIT),
    rule(rf"(?:ใน)?(?:อีก|หลังจากนี้) ?{DURATION}(?:ข้างหน้า|จากนี้)?", _common.delay),
    rule(rf"{DURATION} ?(?:ข้างหน้า|จากนี้|นับจากนี้|ต่อจากนี้)", _common.delay),
    rule(rf"อีก ?[0-9]+{_NO_UNIT_BEHIND}", parts.NO_UNIT),
    rule(rf"(?:อีก|{_EVERY}) ?(?:-[0-9]+|[0-9]{{7,}}|[0-9]+[/⁄][0-9]+) ?{_UNIT}", parts.NO_INTERVAL),
    rule(rf"อีก ?(?:ไม่กี่|หลาย) ?{_UNIT}", parts.NO_INTERVAL),
    rule(rf"อีก ?(?:ประมาณ|ราว ?ๆ?|สัก|เกือบ) ?{DURATION}", parts.AMBIGUOUS),
    rule(rf"(?:อีก|{_EVERY}) ?{NUMBER} ?(?:-|ถึง|หรือ)? ?{NUMBER} ?{_UNIT}", parts.AMBIGUOUS),
    rule(rf"(?:ตอน|ที่)? ?นาทีที่ ?(?P<n>{NUMBER})", _common.minute),
    rule(r"(?:ช่วง|สัก)?ประมาณ|ราว ?ๆ|ก่อน|หลัง|ไม่เกิน", parts.VAGUE),
    rule(r"(?<=โมง)กว่า ?ๆ?|(?<=ทุ่ม)กว่า ?ๆ?|กว่า ?ๆ|โดยประมาณ", parts.AMBIGUOUS),
    rule(r"(?<=[มงน0-9ี.])(?: ?(?:นิด ?ๆ|นิดหน่อย|หน่อย ?ๆ|ต้น ?ๆ|ปลาย ?ๆ|เศษ ?ๆ?))", parts.AMBIGUOUS),
    rule(r"(?:ยกเว้น|เว้น|ไม่รวม) ?(?:วันหยุด|นักขัตฤกษ์|เทศกาล)[ก-๛]*", parts.LIMITED),
    rule(r"หรือ", parts.VAGUE),
    rule(r"ตั้งแต่|ระหว่าง|จาก", parts.SPAN_OR_RESIDUE),
    rule(r"ยกเว้น|เว้น|ไม่รวม|จนถึง|จนกว่า|จน|ถึง|เริ่ม(?:ตั้งแต่|จาก)?", parts.RESIDUE),
    rule(
        rf"(?:เป็นเวลา|นาน|ตลอด|ติดต่อกัน|ติดกัน|จำนวน|เพียง|ครบ) ?{NUMBER} ?{_COUNTABLE}"
        rf"|{NUMBER} ?{_COUNTABLE} ?ติดต่อกัน|เป็นต้นไป",
        parts.LIMITED,
    ),
]


# Recipients.

_END = r"(?=$|[ ,.;!)]|แล้ว|และ|ถ้า|หาก|เมื่อ|หน่อย|ด้วย|นะ|ครับ|ค่ะ|คะ|ให้|ว่า)"
#: `ที่ส่ง` means "that was sent", not a request to send.
_SENDS = r"(?<!ที่)(?<!ถูก)(?:ส่ง|แจ้งเตือน|แจ้ง|เตือน|โพสต์|รายงาน|บอก|ทัก|ฝาก)"
_MAIL = r"(?:อีเมล์?|เมล์?|e-?mail)"
_INBOX = r"(?:กล่องข้อความ|กล่องขาเข้า|อินบ็อกซ์|inbox)"
_ME = r"(?:ฉัน|ผม|เรา|ดิฉัน|หนู)"
_INTO = r"(?:เข้า|ไปที่|ไปยัง|ไปทาง|ทาง|ผ่าน|มาที่|มาทาง|ลง|ไป|มา|ใน|ที่)"

GRAMMAR = Grammar(
    code="th",
    name="thai",
    examples=(
        "ทุกวัน 09:00 สรุปข่าว",
        "พรุ่งนี้ 14:30 โทรหาลูกค้า",
        "ทุกวันจันทร์ 08:30 ส่งรายงาน",
        "อีก 5 นาที เตือนประชุม",
    ),
    script=is_thai,
    rules=[*_CLOCK_RULES, *_DAY_RULES, *_INTERVAL_RULES],
    duration=duration,
    joining="วันที่(?= ?[0-9]+[/-])|เวลา|ตอน|ช่วง|ใน|ของ|ณ|ที่",
    listing="และ|กับ|แล้วก็",
    ranging="ถึง|จนถึง",
    between="ระหว่าง",
    between_and="และ|กับ",
    request=(
        "กรุณา|โปรด|รบกวน|ช่วย|ขอให้|ขอ|อยากให้|ให้|ตั้ง|เตือน|แจ้งเตือน|แจ้ง|บอก|ปลุก|"
        "ฉัน|ผม|เรา|หน่อย|ด้วย|ว่า|นะ|ครับ|ค่ะ|คะ"
    ),
    local_time="(?:ตาม)?เวลาท้องถิ่น",
    place_time=("(?:ตาม)?เวลา(?:ท้องถิ่น)?(?:ใน|ของ|ที่)? ?(?:ประเทศ|เมือง|นคร)?(?P<place>PLACES|utc)"),
    unknown_zone=(
        " ?(?:ตามเวลา|เวลา) ?(?!กิน|ทาน|เข้า|เลิก|พัก|นอน|ตื่น|ทำ|เรียน|ประชุม|ออก|อาหาร|งาน|ส่ง|เดิม)"
        "[ก-ฮเแโใไ]"
    ),
    numeral=f"{WORD}|ร้อย|พัน|หมื่น",
    first_number=f"{WORD}|วันที่ ?[0-9]",
    unit="ชั่วโมง|วินาที|นาที|วัน|สัปดาห์|เดือน|ปี",
    number_link="หรือ|ถึง|และ|กับ|บวก|จุด",
    range_link="ถึง|หรือ",
    negation=("ไม่ใช่|ไม่ต้อง|ไม่|อย่า|ห้าม|เลิก|ยกเลิก|อย่างน้อย|อย่างมาก|มากสุด|น้อยกว่า|มากกว่า|เกือบ|ไม่ถึง"),
    before="และ|กับ|ที่|ใน",
    year_before="ปี",
    left_over=(
        r"(?:และ|กับ|ถึง) ?(?:at )?[0-9]|หรือ|วันละ|(?:สอง|สาม|สี่) ?ครั้ง|แรก|สุดท้าย"
        r"|(?:นี้|หน้า(?!ที่)|ถัดไป|ที่แล้ว)|ยกเว้น|เว้นแต่|จนกว่า|จนถึง|เฉพาะ|[0-9]+ ?ครั้ง|ที่ ?[0-9]+ ?นาที"
        r"|บวก ?[0-9]|ลบ ?[0-9]|[0-9]* ?(?:โมง|ทุ่ม(?!เท)|นาที|ชั่วโมง|นาฬิกา|น\.(?![สศพ]\.))"
    ),
    # May be half past or part of the task.
    left_over_glued="ครึ่ง",
    of_event="ก่อน|หลัง",
    hours_and=rf"(?:[0-9]|{WORD}) ?(?:ชั่วโมง|ชม\.?)",
    lasting=f"(?:เป็นเวลา|นาน|ตลอด|ภายใน) ?{DURATION}",
    about="เรื่อง|เกี่ยวกับ|สำหรับ|ก่อน",
    every="ทุก|แต่ละ",
    then="แล้ว|และ|จากนั้น",
    unread_every="ทุก(?!คน|ท่าน|ฝ่าย|ทีม|อย่าง|เรื่อง)",
    of_task="(?:วัน ?)?(?:จันทร์|อังคาร|พุธ|พฤหัส(?:บดี)?|ศุกร์|เสาร์|อาทิตย์)(?=[ก-ฮเแโใไ])",
    recipients=(
        (
            "telegram",
            rf"{_SENDS}.*{_INTO} ?(?:กลุ่ม|ห้อง|แชท)? ?{rules.TELEGRAM}(?:ของ ?{_ME}|{_ME})?{_END}",
        ),
        ("email", rf"{_SENDS}.*{_INTO} ?{_MAIL} ?(?:ของ ?)?{_ME}?{_END}"),
        ("email", rf"(?:ส่ง|เขียน) ?{_MAIL} ?(?:มา)?(?:หา|ถึง|ให้) ?{_ME}"),
        ("inbox", rf"{_SENDS}.*{_INTO} ?{_INBOX}(?:ของ ?{_ME})?{_END}"),
    ),
    to_address=rf"{_SENDS}.*?(?:ไปที่|ไปยัง|ถึง|เข้า|หา|ให้|ที่|ไป|{_MAIL}) ?",
    no_recipient="ไม่ต้อง|อย่า|ห้าม|เลิก",
    on_failure=(
        "(?:ถ้า|หาก|เมื่อ|ตอน|กรณี)(?:ที่|มัน|เว็บ|ระบบ)* ?(?:ล้มเหลว|พัง|ผิดพลาด|ล่ม|ไม่สำเร็จ|มีปัญหา|error)"
    ),
)
