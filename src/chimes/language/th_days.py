"""Thai: the days."""

from __future__ import annotations

from collections.abc import Sequence

from chimes.language.days import DateKind, DateTerm, Weekdays, weekday_stretches
from chimes.language.masks import Numbers, steps, stretches, told
from chimes.language.th_times import glued, joined, ranges

WEEKDAYS = (
    *("วันอาทิตย์", "วันจันทร์", "วันอังคาร", "วันพุธ", "วันพฤหัสบดี"),
    *("วันศุกร์", "วันเสาร์"),
)
MONTHS = (
    *("มกราคม", "กุมภาพันธ์", "มีนาคม", "เมษายน", "พฤษภาคม", "มิถุนายน"),
    *("กรกฎาคม", "สิงหาคม", "กันยายน", "ตุลาคม", "พฤศจิกายน", "ธันวาคม"),
)
# In letters: วันเสาร์ที่ 2 could as well be a Saturday that is the second of its month.
_PLAIN = ("day", "days")
_DATES: dict[DateKind, str] = {
    "day": "วันที่ {first}",
    "days": "วันที่ {first} ถึง {last}",
    "step": "ทุก {step} วัน ตั้งแต่วันที่ {first} ถึง {last}",
    "nearest": "วันทำการที่ใกล้วันที่ {first} ที่สุด",
    "from_end": "{end}",
    "nearest_from_end": "วันทำการที่ใกล้ {end}ที่สุด",
    "last_working": "วันทำการสุดท้าย",
}
_NTH = ("แรก", "ที่สอง", "ที่สาม", "ที่สี่", "ที่ห้า")


def every_day(months: Numbers | None) -> str:
    return f"ทุกวัน{_in_months(months)}"


def on_dates(dates: Sequence[DateTerm], months: Numbers | None) -> str:
    """`ทุกวันที่ 1 ของเดือน`, `วันสุดท้ายของทุกเดือน`."""
    names = [_date(term) for term in dates]
    if all(term.kind in _PLAIN for term in dates):
        # วันที่ is said once for all of them.
        names[1:] = [name.removeprefix("วันที่ ") for name in names[1:]]
    if dates[0].kind in _PLAIN:
        return glued(f"ทุก{joined(names)}", "ของเดือน" if months is None else _of_months(months))
    return glued(joined(names), _of_months(months))


def on_weekdays(weekdays: Weekdays, months: Numbers | None) -> str:
    return f"ทุก{joined(_names(weekdays))}{_in_months(months)}"


def on_special(weekdays: Weekdays, months: Numbers | None) -> str:
    return f"{joined(_special(weekdays))}{_of_months(months)}"


def only_if(dates: str, weekdays: Weekdays) -> str:
    special = [f"{words}ของเดือน" for words in _special(weekdays)]
    return f"{dates} เฉพาะที่ตรงกับ{joined([*_names(weekdays), *special], 'หรือ')}"


def as_well_as(days: str, others: str) -> str:
    return f"{days} และ{others}"


def years_phrase(years: Numbers | None) -> str:
    if years is None:
        return ""
    if found := steps(years):
        return f" เฉพาะทุก {found.step} ปี ตั้งแต่ปี ค.ศ. {found.first} ถึง {found.last}"
    return f" เฉพาะปี ค.ศ. {joined(ranges(years))}"


def weekday_list(weekdays: Numbers) -> list[str]:
    """Names from Monday on; unbroken stretches as `วันจันทร์ถึงวันศุกร์`."""
    return told(weekday_stretches(weekdays), WEEKDAYS.__getitem__, "ถึง")


def _date(term: DateTerm) -> str:
    return _DATES[term.kind].format(
        first=term.first, last=term.last, step=term.step, end=_from_end(term.first)
    )


def _from_end(back: int) -> str:
    return f"{back} วันก่อนวันสุดท้าย" if back else "วันสุดท้าย"


def _names(weekdays: Weekdays) -> list[str]:
    return ["วันทำการ"] if weekdays.working else weekday_list(weekdays.every)


def _special(days: Weekdays) -> list[str]:
    found = [f"{WEEKDAYS[day]}{_NTH[nth - 1]}" for day, nth in days.nth]
    return found + [f"{WEEKDAYS[day]}สุดท้าย" for day in days.last]


def _in_months(months: Numbers | None) -> str:
    return "" if months is None else f"ในเดือน{_month_names(months)}"


def _of_months(months: Numbers | None) -> str:
    return "ของทุกเดือน" if months is None else f"ของเดือน{_month_names(months)}"


def _month_names(months: Numbers) -> str:
    return joined(told(stretches(months), lambda month: MONTHS[month - 1], "ถึง"))
