"""Thai: the days."""

from __future__ import annotations

from typing import assert_never

from chimes.language.days import DateTerm, Days, Weekdays, weekday_stretches
from chimes.language.masks import Numbers, steps, stretches
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
_NTH = ("แรก", "ที่สอง", "ที่สาม", "ที่สี่", "ที่ห้า")
_WORKING = "วันทำการ"


def days_phrase(days: Days) -> str:
    """`ทุกวัน`, `ทุกวันจันทร์`, `ทุกวันที่ 1 ของเดือน`, `วันสุดท้ายของทุกเดือน`, …"""
    if days.dates is None:
        if days.weekdays is None:
            return f"ทุกวัน{_in_months(days.months)}"
        return _on_weekdays(days.weekdays, days.months)
    dates = _on_dates(days.dates, days.months)
    if days.weekdays is None:
        return dates
    if days.both:
        return f"{dates} เฉพาะที่ตรงกับ{_as_condition(days.weekdays)}"
    return f"{dates} และ{_on_weekdays(days.weekdays, days.months)}"


def years_phrase(years: Numbers | None) -> str:
    if years is None:
        return ""
    if found := steps(years):
        return f" เฉพาะทุก {found.step} ปี ตั้งแต่ปี ค.ศ. {found.first} ถึง {found.last}"
    return f" เฉพาะปี ค.ศ. {joined(ranges(years))}"


def weekday_list(weekdays: Numbers) -> list[str]:
    """Names from Monday on; unbroken stretches as `วันจันทร์ถึงวันศุกร์`."""
    return [
        WEEKDAYS[first] if first == last else f"{WEEKDAYS[first]}ถึง{WEEKDAYS[last]}"
        for first, last in weekday_stretches(weekdays)
    ]


def _on_dates(dates: tuple[DateTerm, ...], months: Numbers | None) -> str:
    if all(term.kind == "days" for term in dates):
        names = f"วันที่ {joined([_span(term) for term in dates])}"
    else:
        names = joined([_date(term) for term in dates])
    if dates[0].kind == "days":
        return glued(f"ทุก{names}", "ของเดือน" if months is None else _of_months(months))
    return glued(names, _of_months(months))


def _span(term: DateTerm) -> str:
    return str(term.first) if term.first == term.last else f"{term.first} ถึง {term.last}"


def _date(term: DateTerm) -> str:
    match term.kind:
        case "days":
            return f"วันที่ {_span(term)}"
        case "step":
            return f"ทุก {term.step} วัน ตั้งแต่วันที่ {term.first} ถึง {term.last}"
        case "nearest":
            return f"{_WORKING}ที่ใกล้วันที่ {term.first} ที่สุด"
        case "from_end":
            return _from_end(term.first)
        case "nearest_from_end":
            return glued(glued(f"{_WORKING}ที่ใกล้", _from_end(term.first)), "ที่สุด")
        case "last_working":
            return f"{_WORKING}สุดท้าย"
    assert_never(term.kind)


def _from_end(back: int) -> str:
    return f"{back} วันก่อนวันสุดท้าย" if back else "วันสุดท้าย"


def _on_weekdays(days: Weekdays, months: Numbers | None) -> str:
    special = _special(days)
    of_months = f"{joined(special)}{_of_months(months)}"
    if not days.every:
        return of_months
    names = _WORKING if days.working else joined(weekday_list(days.every))
    plain = f"ทุก{names}{_in_months(months)}"
    return f"{plain} และ{of_months}" if special else plain


def _special(days: Weekdays) -> list[str]:
    found = [f"{WEEKDAYS[day]}{_NTH[nth - 1]}" for day, nth in days.nth]
    return found + [f"{WEEKDAYS[day]}สุดท้าย" for day in days.last]


def _as_condition(days: Weekdays) -> str:
    found = [_WORKING] if days.working else weekday_list(days.every)
    return joined([*found, *(f"{words}ของเดือน" for words in _special(days))], "หรือ")


def _in_months(months: Numbers | None) -> str:
    return "" if months is None else f"ในเดือน{_month_names(months)}"


def _of_months(months: Numbers | None) -> str:
    return "ของทุกเดือน" if months is None else f"ของเดือน{_month_names(months)}"


def _month_names(months: Numbers) -> str:
    return joined(
        [
            MONTHS[first - 1] if first == last else f"{MONTHS[first - 1]}ถึง{MONTHS[last - 1]}"
            for first, last in stretches(months)
        ]
    )
