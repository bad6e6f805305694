"""Thai: days, intervals and delays."""

from __future__ import annotations

import re
from datetime import timedelta

from chimes.language.parsing.digits import christian_year, date_of
from chimes.language.parsing.parts import (
    AtMinutes,
    Daily,
    Delay,
    Interval,
    MonthDays,
    Named,
    OnlyOnce,
    Part,
    PartOfDay,
    Period,
    Problem,
    RelativeDay,
    RelativeMonthDay,
    RelativeWeekday,
)
from chimes.language.parsing.rules import (
    AMBIGUOUS,
    NO_INTERVAL,
    NO_UNIT,
    RESIDUE,
    Meaning,
    Rule,
    rule,
)
from chimes.language.parsing.th_numbers import NUMBER, number

_WEEKDAYS = {
    **dict.fromkeys(("อาทิตย์", "อา."), 0),
    **dict.fromkeys(("จันทร์", "จ."), 1),
    **dict.fromkeys(("อังคาร", "อ."), 2),
    **dict.fromkeys(("พุธ", "พ."), 3),
    **dict.fromkeys(("พฤหัสบดี", "พฤหัสฯ", "พฤหัส", "พฤ."), 4),
    **dict.fromkeys(("ศุกร์", "ศ."), 5),
    **dict.fromkeys(("เสาร์", "ส."), 6),
}
_MONTHS = (
    ("มกราคม", "มกรา", "ม.ค."),
    ("กุมภาพันธ์", "กุมภา", "ก.พ."),
    ("มีนาคม", "มีนา", "มี.ค."),
    ("เมษายน", "เมษา", "เม.ย."),
    ("พฤษภาคม", "พฤษภา", "พ.ค."),
    ("มิถุนายน", "มิถุนา", "มิ.ย."),
    ("กรกฎาคม", "กรกฎา", "ก.ค."),
    ("สิงหาคม", "สิงหา", "ส.ค."),
    ("กันยายน", "กันยา", "ก.ย."),
    ("ตุลาคม", "ตุลา", "ต.ค."),
    ("พฤศจิกายน", "พฤศจิกา", "พ.ย."),
    ("ธันวาคม", "ธันวา", "ธ.ค."),
)
_MONTH_NUMBERS = {name: index + 1 for index, names in enumerate(_MONTHS) for name in names}


def _either(names: dict[str, int]) -> str:
    ordered = sorted(names, key=len, reverse=True)
    return "(?:" + "|".join(re.escape(each) for each in ordered) + ")"


# `พ.` begins May, November and the Buddhist era, too.
_DAY_NAME = _either(_WEEKDAYS) + r"(?<!(?=พ\.[คยศ]\.)..)(?<!(?=ส\.ค\.)..)"
_MONTH = _either(_MONTH_NUMBERS)
_W = rf"(?:วัน)?{_DAY_NAME}"
_TO = r" ?(?:ถึง|จนถึง|-) ?"
_ITEM = rf"{_W}(?:{_TO}{_W})?"
_AND = r"(?: ?(?:และ|กับ|แล้วก็|,|/) ?(?:ทุก ?)?| ?)"
_LIST = rf"{_ITEM}(?:{_AND}{_ITEM})*"
_EVERY = r"(?:ทุก ?ๆ?|แต่ละ|ประจำ(?:ทุก)?) ?"
_WORKING = r"(?:วัน)?(?:ทำการ|ทำงาน|ธรรมดา)"
_OF_MONTH = r"(?: ?(?:ของ|ใน)?(?: ?(?:ทุก ?ๆ?|แต่ละ))? ?เดือน)"
_EVERY_MONTH = r"(?: ?(?:ของ|ใน)? ?(?:ทุก ?ๆ?|แต่ละ) ?เดือน)"
_DAY_NUMBER = rf"(?:[0-9]{{1,2}}(?![0-9:.])|{NUMBER})"
_UNITS = {"วินาที": timedelta(seconds=1), "นาที": timedelta(minutes=1), "ชั่วโมง": timedelta(hours=1)}
_UNIT = r"(?:วินาที|นาที|ชั่วโมง|ชม\.?)"


def weekdays(text: str) -> frozenset[int]:
    """The days of `จันทร์ถึงศุกร์ และ อาทิตย์`."""
    found: set[int] = set()
    for item in re.finditer(rf"({_DAY_NAME})(?:{_TO}(?:วัน)?({_DAY_NAME}))?", text):
        first = _WEEKDAYS[item[1]]
        last = _WEEKDAYS[item[2]] if item[2] else first
        found |= {(first + step) % 7 for step in range((last - first) % 7 + 1)}
    return frozenset(found)


def _named(every: bool) -> Meaning:
    return lambda found: (Named(weekdays(found[0]), every),)


def _weekday_of(text: str) -> int:
    return next(iter(weekdays(text)))


def _month_days(found: re.Match[str]) -> tuple[Part, ...]:
    days = [number(each) for each in re.findall(NUMBER, found["days"])]
    if not all(1 <= day <= 31 for day in days):
        return (Problem(("date", "contradiction")),)
    return (MonthDays(tuple(str(day) for day in sorted(set(days))), every=bool(found["every"])),)


_NTH = {"แรก": "1", "ที่หนึ่ง": "1", "ที่สอง": "2", "ที่สาม": "3", "ที่สี่": "4", "ที่ห้า": "5"}
_NTH_WORDS = rf"(?P<nth>แรก|สุดท้าย|ที่ ?(?:{NUMBER}))"


def _nth_weekday(found: re.Match[str]) -> tuple[Part, ...]:
    weekday, nth = _weekday_of(found["w"]), found["nth"]
    every = bool(found["every"] or found["month"])
    if nth == "สุดท้าย":
        return (MonthDays((f"{weekday}L",), every, weekday=True),)
    count = 1 if nth == "แรก" else number(nth.removeprefix("ที่").strip())
    if not 1 <= count <= 5:
        return (Problem(("date", "contradiction")),)
    return (MonthDays((f"{weekday}#{count}",), every, weekday=True),)


def _date(found: re.Match[str]) -> tuple[Part, ...]:
    year = None
    if found["year"]:
        if len(found["year"]) < 4:
            return (AMBIGUOUS,)
        buddhist = bool(found["era"]) and found["era"].startswith("พ")
        year = christian_year(int(found["year"]), buddhist=buddhist)
    month = _MONTH_NUMBERS[found["month"]]
    made = date_of(year, month, number(found["day"]), every=bool(found["every"]))
    if found["w"] and not isinstance(made[0], Problem):
        return (*made, Named(frozenset({_weekday_of(found["w"])}), every=False))
    return made


def _duration(text: str) -> timedelta | None:
    """`1 ชั่วโมง 30 นาที`, `ชั่วโมงครึ่ง`, `ครึ่งชั่วโมง`; None for what has no fixed length."""
    total = timedelta(0)
    for item in re.finditer(rf"(?:(ครึ่ง)|({NUMBER})(?:\.([0-9]))?)? ?({_UNIT})( ?ครึ่ง)?", text):
        unit = _UNITS.get(item[4], timedelta(hours=1))
        count = 0 if item[1] else number(item[2]) if item[2] else 1
        total += unit * count
        total += unit * int(item[3] or 0) / 10
        total += unit / 2 * (bool(item[1]) + bool(item[5]))
    return total


_DURATION = (
    rf"(?:ครึ่ง ?ชั่วโมง|(?:{NUMBER}(?:\.[0-9])? ?)?{_UNIT}(?: ?ครึ่ง)?"
    rf"(?: ?(?:และ|กับ)? ?{NUMBER} ?{_UNIT})*)"
)


def _interval(found: re.Match[str]) -> tuple[Part, ...]:
    step = _duration(found["d"])
    return (Interval(step),) if step else (NO_INTERVAL,)


def _delay(found: re.Match[str]) -> tuple[Part, ...]:
    after = _duration(found["d"])
    return (Delay(after),) if after else (NO_INTERVAL,)


def _every_days(found: re.Match[str]) -> tuple[Part, ...]:
    if number(found["n"]) != 1:
        return (NO_INTERVAL,)
    unit = found["u"]
    if unit == "วัน":
        return (Daily(),)
    return (Period({"สัปดาห์": "week", "อาทิตย์": "week", "เดือน": "month", "ปี": "year"}[unit]),)  # type: ignore[arg-type]


_MONDAY_TO_FRIDAY = frozenset(range(1, 6))
_WEEKEND = frozenset({0, 6})
RULES: list[Rule] = [
    rule(_EVERY + r"วัน(?!นี้)", Daily()),
    rule(r"(?:ราย|ประจำ)วัน", Daily()),
    rule(_EVERY + r"(?:วัน)?(?:ตอน)? ?เช้า", (Daily(), PartOfDay("morning"))),
    rule(_EVERY + r"(?:วัน)?(?:ตอน)? ?บ่าย", (Daily(), PartOfDay("afternoon"))),
    rule(_EVERY + r"(?:วัน)?(?:ตอน)? ?(?:เย็น|ค่ำ)", (Daily(), PartOfDay("evening"))),
    rule(_EVERY + r"(?:วัน)?(?:ตอน)? ?คืน", (Daily(), PartOfDay("night"))),
    rule(rf"{_EVERY}{_LIST}", _named(every=True)),
    rule(rf"(?:(?=วัน|[^.]{{3}})|(?<![ก-๛.])){_LIST}", _named(every=False)),
    rule(rf"(?:{_EVERY}|ใน)?{_WORKING}", Named(_MONDAY_TO_FRIDAY, every=True)),
    rule(
        rf"(?:{_EVERY})?(?:วัน)?(?:เสาร์ ?(?:-|และ|กับ)? ?(?:วัน)?อาทิตย์|สุดสัปดาห์)",
        Named(_WEEKEND, every=True),
    ),
    rule(
        _EVERY + r"(?:สัปดาห์|อาทิตย์(?= ?(?:วัน|ละ)))|รายสัปดาห์|สัปดาห์ละ(?:ครั้ง|หนึ่งครั้ง| ?1 ?ครั้ง)",
        Period("week"),
    ),
    rule(_EVERY + r"เดือน|รายเดือน|เดือนละ(?:ครั้ง|หนึ่งครั้ง| ?1 ?ครั้ง)", Period("month")),
    rule(_EVERY + r"ปี|รายปี|ปีละ(?:ครั้ง|หนึ่งครั้ง| ?1 ?ครั้ง)", Period("year")),
    rule(_EVERY + rf"(?P<n>{NUMBER}) ?(?P<u>วัน|สัปดาห์|อาทิตย์|เดือน|ปี)", _every_days),
    rule(r"(?:วัน|สัปดาห์|อาทิตย์|เดือน)เว้น(?:วัน|สัปดาห์|อาทิตย์|เดือน)", NO_INTERVAL),
    rule(_EVERY + r"(?:วันหยุด|ไตรมาส)", AMBIGUOUS),
    rule(
        rf"(?P<every>{_EVERY})?วันที่ ?(?P<days>{_DAY_NUMBER}(?:(?: ?(?:และ|กับ|,) ?)(?:วันที่ ?)?{_DAY_NUMBER})*){_OF_MONTH}?",
        _month_days,
    ),
    rule(
        rf"วันที่ ?(?P<days>{_DAY_NUMBER}(?:(?: ?(?:และ|กับ|,) ?)(?:วันที่ ?)?{_DAY_NUMBER})*)(?P<every>{_EVERY_MONTH})",
        _month_days,
    ),
    rule(rf"{_EVERY}(?:วัน)?สิ้นเดือน", MonthDays(("L",), every=True)),
    rule(
        rf"{_EVERY}วันสุดท้าย{_OF_MONTH}|วันสุดท้าย{_EVERY_MONTH}|สิ้น{_EVERY_MONTH}",
        MonthDays(("L",), every=True),
    ),
    rule(rf"วันสุดท้าย{_OF_MONTH}?|(?:วัน)?สิ้นเดือน", MonthDays(("L",), every=False)),
    rule(
        rf"{_EVERY}{_WORKING}สุดท้าย{_OF_MONTH}|{_WORKING}สุดท้าย{_EVERY_MONTH}",
        MonthDays(("LW",), every=True),
    ),
    rule(rf"{_WORKING}สุดท้าย{_OF_MONTH}?", MonthDays(("LW",), every=False)),
    rule(
        rf"{_EVERY}{_WORKING}แรก{_OF_MONTH}|{_WORKING}แรก{_EVERY_MONTH}",
        MonthDays(("1W",), every=True),
    ),
    rule(rf"{_WORKING}แรก{_OF_MONTH}?", MonthDays(("1W",), every=False)),
    rule(rf"{_EVERY}(?:ต้น|กลาง|ปลาย)เดือน", Problem(("date",))),
    rule(
        rf"(?P<every>{_EVERY})?(?P<w>{_W}) ?{_NTH_WORDS}(?P<month>)(?:{_OF_MONTH})?", _nth_weekday
    ),
    rule(rf"(?P<every>)(?P<w>{_W}) ?{_NTH_WORDS}(?P<month>{_EVERY_MONTH})", _nth_weekday),
    rule(
        rf"(?P<every>{_EVERY}(?:ปี ?)?)?(?P<w>{_W} ?)?(?:วัน)?(?:ที่ ?)?(?P<day>{_DAY_NUMBER}) ?(?:เดือน ?)?(?P<month>{_MONTH})"
        r"(?: ?(?P<era>พ\.ศ\.|ค\.ศ\.|ปี)? ?(?P<year>[12][0-9]{3}|[0-9]{2})(?![0-9:.]| ?(?:โมง|ทุ่ม|น\.|นาฬิกา)))?"
        r"(?P<yearly> ?(?:ของ)?ทุกปี)?",
        lambda found: _yearly(found),
    ),
    rule(r"วันนี้", RelativeDay(0)),
    rule(r"คืนนี้", (RelativeDay(0), PartOfDay("night"))),
    rule(r"(?:เย็น|ค่ำ)(?:วัน)?นี้", (RelativeDay(0), PartOfDay("evening"))),
    rule(r"บ่าย(?:วัน)?นี้", (RelativeDay(0), PartOfDay("afternoon"))),
    rule(r"เช้า(?:วัน)?นี้", (RelativeDay(0), PartOfDay("morning"))),
    rule(r"(?:วัน)?พรุ่งนี้|วันรุ่งขึ้น", RelativeDay(1)),
    rule(r"(?:คืน|ค่ำ)(?:วัน)?พรุ่งนี้", (RelativeDay(1), PartOfDay("night"))),
    rule(r"เย็น(?:วัน)?พรุ่งนี้", (RelativeDay(1), PartOfDay("evening"))),
    rule(r"บ่าย(?:วัน)?พรุ่งนี้", (RelativeDay(1), PartOfDay("afternoon"))),
    rule(r"เช้า(?:วัน)?พรุ่งนี้", (RelativeDay(1), PartOfDay("morning"))),
    rule(r"(?:วัน)?มะรืน(?:นี้)?", RelativeDay(2)),
    rule(r"เมื่อวาน(?:นี้)?(?:ซืน)?", Problem(("past",), loose=True)),
    rule(
        rf"(?:ใน)?(?:อีก) ?(?P<n>{NUMBER}) ?(?P<u>วัน|สัปดาห์|อาทิตย์)(?:ข้างหน้า)?",
        lambda m: _days_ahead(m),
    ),
    rule(rf"(?P<w>{_W}) ?นี้", lambda m: (RelativeWeekday(_weekday_of(m["w"]), 0),)),
    rule(
        rf"(?P<w>{_W}) ?(?:หน้า|ถัดไป)",
        lambda m: (RelativeWeekday(_weekday_of(m["w"]), 1, either=True),),
    ),
    rule(
        rf"(?P<w>{_W}) ?(?:ของ)?(?:สัปดาห์|อาทิตย์)(?:หน้า|ถัดไป)|(?:สัปดาห์|อาทิตย์)(?:หน้า|ถัดไป) ?(?P<w2>{_W})",
        lambda m: (RelativeWeekday(_weekday_of(m["w"] or m["w2"]), 1),),
    ),
    rule(
        rf"(?P<w>{_W}) ?(?:ของ)?(?:สัปดาห์|อาทิตย์)นี้|(?:สัปดาห์|อาทิตย์)นี้ ?(?P<w2>{_W})",
        lambda m: (RelativeWeekday(_weekday_of(m["w"] or m["w2"]), 0),),
    ),
    rule(
        rf"วันที่ ?(?P<day>{_DAY_NUMBER}) ?(?:ของ)?เดือน(?P<which>หน้า|นี้)|เดือน(?P<which2>หน้า|นี้) ?วันที่ ?(?P<day2>{_DAY_NUMBER})",
        lambda m: (
            RelativeMonthDay(
                number(m["day"] or m["day2"]), int("หน้า" in (m["which"], m["which2"]))
            ),
        ),
    ),
    rule(r"(?:สัปดาห์|อาทิตย์|เดือน|ปี)หน้า", Problem(("date",), loose=True)),
    rule(rf"{_EVERY}(?P<d>{_DURATION})", _interval),
    rule(r"รายชั่วโมง", Interval(timedelta(hours=1))),
    rule(rf"{_EVERY}-? ?[0-9]+(?! ?(?:วิ|นา|ชั่ว|ชม|วัน|สัป|อาทิ|เดือน|ปี|[0-9.:]|โมง|ทุ่ม))", NO_UNIT),
    rule(rf"{_EVERY}- ?[0-9]+ ?{_UNIT}", NO_INTERVAL),
    rule(rf"(?:ภาย)?(?:ใน)?(?:อีก|หลังจากนี้) ?(?P<d>{_DURATION})(?:ข้างหน้า|จากนี้)?", _delay),
    rule(rf"(?P<d>{_DURATION}) ?(?:ข้างหน้า|จากนี้|นับจากนี้|ต่อจากนี้)", _delay),
    rule(
        rf"(?:ตอน|ที่)? ?นาทีที่ ?(?P<n>{NUMBER})", lambda m: (AtMinutes(frozenset({number(m["n"])})),)
    ),
    rule(r"(?:แค่ ?|เพียง ?)?ครั้งเดียว", OnlyOnce()),
    rule(
        r"ประมาณ|ราวๆ|ราว ๆ|ช่วงประมาณ|สักประมาณ|ก่อน(?= ?[0-9])|หลัง(?= ?[0-9])",
        Problem(("ambiguous",), loose=True),
    ),
    rule(
        r"ยกเว้น|เว้น(?!วัน)|จนถึง|จนกว่า|ตั้งแต่|เริ่ม(?:ตั้งแต่|จาก|วันที่|พรุ่งนี้)?|นาน(?= ?[0-9])|เป็นเวลา|หรือ(?= ?(?:[0-9]|วัน))|ถึง(?= ?(?:วัน|[0-9]))",
        RESIDUE,
    ),
]


def _yearly(found: re.Match[str]) -> tuple[Part, ...]:
    made = _date(found)
    if found["yearly"] and not isinstance(made[0], Problem):
        return (*made, Period("year"))
    return made


def _days_ahead(found: re.Match[str]) -> tuple[Part, ...]:
    return (RelativeDay(number(found["n"]) * (1 if found["u"] == "วัน" else 7)),)
