"""Thai patterns for times, days, intervals and limits."""

from __future__ import annotations

import re
from datetime import timedelta

from chimes.language.parser.rules import (
    AMBIGUOUS,
    IMPOSSIBLE,
    LIMITED,
    NO_DATE,
    NO_INTERVAL,
    NO_UNIT,
    ONE_OF,
    RESIDUE,
    SPAN_OR_RESIDUE,
    VAGUE,
    YESTERDAY,
    AtMinutes,
    Clock,
    Daily,
    Date,
    Delay,
    Interval,
    Meaning,
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
    Rule,
    Sure,
    christian_year,
    clock,
    date_of,
    rule,
    whole_hours,
)

# Numerals up to 99, in digits or words.

_ONES = ("หนึ่ง", "สอง", "สาม", "สี่", "ห้า", "หก", "เจ็ด", "แปด", "เก้า")
_OTHERS = {"ศูนย์": 0, "เอ็ด": 1, "ยี่": 2}
_ONE = "|".join(_ONES)
TENS = rf"(?:{_ONE}|ยี่)?สิบ(?:เอ็ด|{_ONE})?"
WORD = rf"(?:ศูนย์|(?:{_ONE}|ยี่)?สิบ(?:เอ็ด|{_ONE})?|{_ONE})"
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


# Times of day.

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
    """Adds `base` to hours from `first` to `last`; other hours lead to a question."""

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
    """`14.30 น.`, `9 นาฬิกา`: the 24-hour clock, unambiguous."""
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
# Not followed by letters that make it another word, such as the name of a dish.
_NEXT = rf"(?= |$|{NUMBER}|เวลา|ตอน)"
CLOCK_RULES: list[Rule] = [
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


def _days_counted(found: re.Match[str]) -> tuple[Part, ...]:
    """`ทุก 2 วัน`: ambiguous without a first day."""
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
DAYS_RULES: list[Rule] = [
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
    # Abbreviations match only as whole words; a single one may be a title: อ. สมชาย.
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
    rule(rf"{EVERY}(?P<n>{NUMBER}) ?(?P<u>วัน|สัปดาห์|อาทิตย์|เดือน|ปี)", _days_counted),
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
    # The 5th of the month or the fifth day?
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


# Intervals, delays and limits.

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


def _spans_minute(found: re.Match[str]) -> tuple[Part, ...]:
    minute = number(found["n"])
    return (AtMinutes(frozenset({minute})) if minute < 60 else IMPOSSIBLE,)


_NO_UNIT_BEHIND = r"(?! ?(?:วิ|นา|ชั่ว|ชม|วัน|สัป|อาทิ|เดือน|ปี|[0-9.:]|โมง|ทุ่ม))"
_COUNTABLE = r"(?:วัน|สัปดาห์|อาทิตย์|เดือน|ปี)"
SPANS_RULES: list[Rule] = [
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
    rule(rf"(?:ตอน|ที่)? ?นาทีที่ ?(?P<n>{NUMBER})", _spans_minute),
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


RULES = [*CLOCK_RULES, *DAYS_RULES, *SPANS_RULES]
#: Joining words without a meaning of their own.
JOINING = r"วันที่(?= ?[0-9]+[/-])|เวลา|ตอน|ช่วง|ใน|ของ|ณ|ที่"
#: Conjunctions between two parts of one kind.
LISTING = r"และ|กับ|แล้วก็"
#: Requests; may precede the time words or stand between them.
REQUEST = re.compile(
    r"กรุณา|โปรด|รบกวน|ช่วย|ขอให้|ขอ|อยากให้|ให้|ตั้ง|เตือน|แจ้งเตือน|แจ้ง|บอก|ปลุก|"
    r"ฉัน|ผม|เรา|หน่อย|ด้วย|ว่า|นะ|ครับ|ค่ะ|คะ"
)
