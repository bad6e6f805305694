"""Thai: days."""

from __future__ import annotations

import re

from chimes.language.parsing.digits import christian_year, date_of
from chimes.language.parsing.parts import (
    Daily,
    Date,
    MonthDays,
    Named,
    OnlyOnce,
    Part,
    PartOfDay,
    Period,
    Portion,
    Problem,
    RelativeDay,
    RelativeMonthDay,
    RelativeWeekday,
)
from chimes.language.parsing.rules import (
    AMBIGUOUS,
    NO_DATE,
    NO_INTERVAL,
    YESTERDAY,
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
_MONTH_NAMES = (
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
_MONTHS = {name: index + 1 for index, names in enumerate(_MONTH_NAMES) for name in names}


def _either(names: dict[str, int]) -> str:
    ordered = sorted(names, key=len, reverse=True)
    return "(?:" + "|".join(re.escape(each) for each in ordered) + ")"


# `พ.` begins May, November and the Buddhist era, too, and `ส.` August.
_DAY = r"(?!พ\.[คยศ]\.|ส\.ค\.)" + _either(_WEEKDAYS)
_MONTH = _either(_MONTHS)
_W = rf"(?:วัน ?)?{_DAY}"
_TO = r" ?(?:ถึง|จนถึง|-) ?"
_ITEM = rf"{_W}(?:{_TO}{_W})?"
_LIST = rf"{_ITEM}(?: ?(?:(?:และ|กับ|แล้วก็|,|/) ?(?:ทุก ?)?)?{_ITEM}){{0,7}}"
EVERY = r"(?:ประจำ)?(?:ทุก ?ๆ?|แต่ละ) ?"
_WORKING = r"วัน(?:ทำการ(?!บ้าน)|ทำงาน(?!บ้าน)|ธรรมดา)"
_OF_MONTH = r"(?: ?(?:ของ|ใน)? ?เดือน(?!นี้|หน้า|ที่))"
_OF_EACH = r"(?: ?(?:ของ|ใน)? ?(?:ทุก ?ๆ?|แต่ละ) ?เดือน)"
_NUMBER = rf"(?:[0-9]{{1,2}}(?![0-9:./])|(?![0-9]){NUMBER})"
_NUMBERS = rf"(?P<days>{_NUMBER}(?: ?(?:และ|กับ|,) ?(?:วันที่ ?)?{_NUMBER}){{0,9}})"


def weekdays(text: str) -> frozenset[int]:
    """The days of `จันทร์ถึงศุกร์ และ อาทิตย์`."""
    found: set[int] = set()
    for item in re.finditer(rf"({_DAY})(?:{_TO}(?:วัน ?)?({_DAY}))?", text):
        first = _WEEKDAYS[item[1]]
        last = _WEEKDAYS[item[2]] if item[2] else first
        found |= {(first + step) % 7 for step in range((last - first) % 7 + 1)}
    return frozenset(found)


def _weekday_of(text: str) -> int:
    return min(weekdays(text))


def _named(every: bool) -> Meaning:
    return lambda found: (Named(weekdays(found[0]), every),)


def _named_portion(portion: Portion) -> Meaning:
    """`ทุกเช้าวันจันทร์`."""
    return lambda found: (Named(weekdays(found["list"]), every=True), PartOfDay(portion))


def _month_days(every: bool) -> Meaning:
    def meaning(found: re.Match[str]) -> tuple[Part, ...]:
        days = sorted({number(each) for each in re.findall(NUMBER, found["days"])})
        if days[0] < 1 or days[-1] > 31:
            return (NO_DATE,)
        return (MonthDays(tuple(str(day) for day in days), every),)

    return meaning


def _nth_weekday(every: bool) -> Meaning:
    def meaning(found: re.Match[str]) -> tuple[Part, ...]:
        weekday, nth = _weekday_of(found["w"]), found["nth"]
        if nth == "สุดท้าย":
            return (MonthDays((f"{weekday}L",), every, weekday=True),)
        count = 1 if nth == "แรก" else number(nth.removeprefix("ที่").strip())
        if not 1 <= count <= 5:
            return (NO_DATE,)
        return (MonthDays((f"{weekday}#{count}",), every, weekday=True),)

    return meaning


def _date(found: re.Match[str]) -> tuple[Part, ...]:
    year = None
    if found["year"]:
        if len(found["year"]) < 4:
            return (AMBIGUOUS,)
        year = christian_year(int(found["year"]), buddhist=found["era"] == "พ.ศ.")
    every = bool(found["every"] or found["yearly"])
    made = date_of(year, _MONTHS[found["month"]], number(found["day"]), every=every)
    if found["w"] and isinstance(made[0], Date):
        return (*made, Named(frozenset({_weekday_of(found["w"])}), every=False))
    return made


_COUNTED: dict[str, Part] = {
    "วัน": Daily(),
    "สัปดาห์": Period("week"),
    "อาทิตย์": Period("week"),
    "เดือน": Period("month"),
    "ปี": Period("year"),
}


def _counted(found: re.Match[str]) -> tuple[Part, ...]:
    """`ทุก 2 วัน`, which no clock keeps without a first day."""
    return (_COUNTED[found["u"]] if number(found["n"]) == 1 else NO_INTERVAL,)


def _ahead(found: re.Match[str]) -> tuple[Part, ...]:
    days = number(found["n"]) * (1 if found["u"] == "วัน" else 7)
    return (RelativeDay(days) if days else AMBIGUOUS,)


def _week(weeks: int | None, *, either: bool = False) -> Meaning:
    return lambda found: (RelativeWeekday(_weekday_of(found["w"]), weeks, either),)


def _this_month(months: int) -> Meaning:
    return lambda found: (RelativeMonthDay(number(found["day"]), months),)


_PORTIONS: dict[str, Portion] = {
    "เช้า": "morning",
    "บ่าย": "afternoon",
    "เย็น": "evening",
    "ค่ำ": "evening",
    "คืน": "night",
}
_MONTH_ENDS = {"วันสุดท้าย": "L", f"{_WORKING}สุดท้าย": "LW", f"{_WORKING}(?:แรก|ที่ ?1)": "1W"}
_NTH = rf"(?P<w>{_W}) ?(?P<nth>แรก|สุดท้าย|ที่ ?{NUMBER}(?! ?{_MONTH}))"
_YEAR = (
    r"(?: ?(?P<era>พ\.ศ\.|ค\.ศ\.|ปี)? ?(?P<year>[12][0-9]{3}|[0-9]{2})"
    r"(?![0-9:.]| ?(?:โมง|ทุ่ม|น\.|นาฬิกา)))?"
)
_NEXT_WEEK = r"(?:สัปดาห์|อาทิตย์)(?:หน้า|ถัดไป)"
_THIS_WEEK = r"(?:สัปดาห์|อาทิตย์)นี้"
_ONCE_A = r"ละ ?(?:ครั้ง|หนึ่งครั้ง|1 ?ครั้ง)"
RULES: list[Rule] = [
    rule(rf"{EVERY}วัน(?!นี้|หยุด)(?: ?(?:1|หนึ่ง) ?ครั้ง)?|วัน{_ONCE_A}", Daily()),
    *(
        rule(rf"{EVERY}(?:ตอน)?{word}", (Daily(), PartOfDay(portion)))
        for word, portion in _PORTIONS.items()
    ),
    # Without "วัน" the name of Sunday means a week.
    rule(rf"{EVERY}(?:วัน ?|(?!อาทิตย์)){_LIST}", _named(every=True)),
    rule(rf"{EVERY}อาทิตย์(?! ?(?:วัน(?!ที่)|ละ))", AMBIGUOUS),
    rule(r"(?:วัน)?เสาร์ ?-? ?(?:วัน)?อาทิตย์(?:นี้|หน้า)", AMBIGUOUS),
    *(
        rule(
            rf"{EVERY}(?:ตอน)?{word}(?:ของ)?(?P<list>(?=วัน){_LIST})",
            _named_portion(portion),
        )
        for word, portion in _PORTIONS.items()
    ),
    # Abbreviations are too short to be found inside other words; a lone one is a title: อ. สมชาย.
    rule(
        rf"(?:(?=วัน|[^.]{{3}})|(?<![ก-๛.])(?={_W}(?:{_TO}| ?(?:และ|กับ|แล้วก็|,|/) ?| ){_W})){_LIST}",
        _named(every=False),
    ),
    rule(rf"(?:{EVERY}|ใน)?{_WORKING}", Named(frozenset(range(1, 6)), every=True)),
    rule(
        rf"(?:{EVERY})?(?:วัน)?(?:เสาร์ ?(?:-|และ|กับ)? ?(?:วัน)?อาทิตย์|สุดสัปดาห์)",
        Named(frozenset({0, 6}), every=True),
    ),
    rule(rf"{EVERY}(?:สัปดาห์|อาทิตย์(?= ?(?:วัน|ละ)))|(?:สัปดาห์|อาทิตย์){_ONCE_A}", Period("week")),
    rule(rf"{EVERY}เดือน|เดือน{_ONCE_A}", Period("month")),
    rule(rf"{EVERY}ปี|ปี{_ONCE_A}", Period("year")),
    rule(rf"{EVERY}(?P<n>{NUMBER}) ?(?P<u>วัน|สัปดาห์|อาทิตย์|เดือน|ปี)", _counted),
    rule(r"วันเว้นวัน|สัปดาห์เว้นสัปดาห์|อาทิตย์เว้นอาทิตย์|เดือนเว้นเดือน", NO_INTERVAL),
    rule(rf"{EVERY}ไตรมาส", NO_INTERVAL),
    rule(rf"{EVERY}วันหยุด", AMBIGUOUS),
    rule(rf"{EVERY}วันที่ ?{_NUMBERS}{_OF_MONTH}?", _month_days(every=True)),
    rule(rf"วันที่ ?{_NUMBERS}{_OF_EACH}", _month_days(every=True)),
    rule(rf"วันที่ ?{_NUMBERS}{_OF_MONTH}?", _month_days(every=False)),
    rule(rf"{EVERY}(?:วัน)?สิ้นเดือน|สิ้น{_OF_EACH}", MonthDays(("L",), every=True)),
    rule(r"(?:วัน)?สิ้นเดือน", MonthDays(("L",), every=False)),
    *(
        each
        for word, term in _MONTH_ENDS.items()
        for each in (
            rule(rf"{EVERY}{word}{_OF_MONTH}|{word}{_OF_EACH}", MonthDays((term,), every=True)),
            rule(rf"{word}{_OF_MONTH}?", MonthDays((term,), every=False)),
        )
    ),
    rule(rf"{EVERY}(?:ต้น|กลาง|ปลาย)เดือน|(?:ต้น|กลาง|ปลาย)เดือน", Problem(("date",))),
    rule(rf"{EVERY}{_NTH}{_OF_MONTH}", _nth_weekday(every=True)),
    # Of the month, or the fifth day of it?
    rule(rf"{EVERY}{_NTH}", AMBIGUOUS),
    rule(rf"{_NTH}{_OF_EACH}", _nth_weekday(every=True)),
    rule(rf"{_NTH}{_OF_MONTH}", _nth_weekday(every=False)),
    rule(
        rf"(?P<every>{EVERY}(?:ปี ?)?)?(?P<w>{_W} ?)?(?:วัน)?(?:ที่ ?)?(?P<day>{_NUMBER}) ?"
        rf"(?:เดือน ?)?(?P<month>{_MONTH}){_YEAR}(?P<yearly> ?(?:ของ)?ทุกปี)?",
        _date,
    ),
    rule(r"วันนี้", RelativeDay(0)),
    rule(r"(?:วัน)?พรุ่งนี้|วันรุ่งขึ้น", RelativeDay(1)),
    *(
        each
        for word, portion in _PORTIONS.items()
        for each in (
            rule(rf"{word}(?:วัน)?นี้", (RelativeDay(0), PartOfDay(portion))),
            rule(rf"{word}(?:วัน)?พรุ่งนี้", (RelativeDay(1), PartOfDay(portion))),
        )
    ),
    rule(r"(?:วัน)?มะรืน(?:นี้)?", RelativeDay(2)),
    rule(r"เมื่อวาน(?:นี้|ซืน)?", YESTERDAY),
    rule(rf"(?:ใน)?อีก ?(?P<n>{NUMBER}) ?(?P<u>วัน|สัปดาห์|อาทิตย์)(?:ข้างหน้า)?", _ahead),
    rule(rf"(?!อาทิตย์)(?P<w>{_W}) ?นี้", _week(0)),
    rule(rf"(?P<w>{_W}) ?ที่จะถึง(?:นี้)?", _week(None)),
    rule(rf"(?!อาทิตย์)(?P<w>{_W}) ?(?:หน้า|ถัดไป)", _week(1, either=True)),
    rule(rf"(?P<w>{_W}) ?(?:ของ)?{_NEXT_WEEK}", _week(1)),
    rule(rf"{_NEXT_WEEK} ?(?P<w>{_W})", _week(1)),
    rule(rf"(?P<w>{_W}) ?(?:ของ)?{_THIS_WEEK}", _week(0)),
    rule(rf"{_THIS_WEEK} ?(?P<w>{_W})", _week(0)),
    rule(rf"วันที่ ?(?P<day>{_NUMBER}) ?(?:ของ)?เดือนหน้า", _this_month(1)),
    rule(rf"เดือนหน้า ?วันที่ ?(?P<day>{_NUMBER})", _this_month(1)),
    rule(rf"วันที่ ?(?P<day>{_NUMBER}) ?(?:ของ)?เดือนนี้", _this_month(0)),
    rule(rf"เดือนนี้ ?วันที่ ?(?P<day>{_NUMBER})", _this_month(0)),
    rule(r"(?:สัปดาห์|อาทิตย์|เดือน|ปี)(?:หน้า|นี้)", Problem(("date",), loose=True)),
    rule(r"(?:แค่ ?|เพียง ?)?ครั้งเดียว", OnlyOnce()),
]
