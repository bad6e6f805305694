"""Thai descriptions of triggers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from chimes.language import th
from chimes.language.cron_sets import Numbers, numbers, range_words, steps, stretches
from chimes.language.forms import (
    At,
    DateKind,
    DateTerm,
    Days,
    DurationUnit,
    Listed,
    Rate,
    Repeated,
    Times,
    Values,
    Weekdays,
    all_day,
    clock_words,
    days_phrase,
    duration_parts,
    minute_words,
    past_midnight,
    weekday_stretches,
    whole_days,
)
from chimes.triggers import Dst, Window
from chimes.triggers.calendars import OnExcluded

# Times of day. A space separates Thai from numbers and foreign words.

UNITS: dict[DurationUnit, str] = {
    "hour": "ชั่วโมง",
    "minute": "นาที",
    "second": "วินาที",
    "millisecond": "มิลลิวินาที",
    "microsecond": "ไมโครวินาที",
}


def time_phrase(times: Times) -> str:
    if isinstance(times, At):
        return f"เวลา {joined(times.clocks)} น."
    return _repeated(times) if isinstance(times, Repeated) else _listed(times)


def _repeated(times: Repeated) -> str:
    found = [_rate(times.rate)]
    if times.at is not None:
        found.append(_at(times.at))
    if times.since is not None:
        found.append(f"ตั้งแต่ {times.since} น.")
    if times.hours is not None:
        found.append(f"ใน{_numbered(times.hours)}")
    if times.stretches:
        parts = [f"ตั้งแต่ {first} น. ถึง {last} น." for first, last in times.stretches]
        found.append(joined(parts))
    return " ".join(found)


def _listed(times: Listed) -> str:
    hours = "ทุกชั่วโมง" if times.hours is None else _numbered(times.hours)
    larger = f"ของ{hours}" if times.minutes is None else f"{_of(times.minutes)} ของ{hours}"
    if isinstance(times.which, Rate):
        return f"{_rate(times.which)} ใน{larger}"
    link = " ของ" if times.minutes is not None else " "
    return f"{_at(times.which)}{link}{larger}"


def _rate(rate: Rate) -> str:
    unit = UNITS[rate.unit]
    if rate.step == 1:
        return f"ทุก{unit}"
    words = f"ทุก {rate.step} {unit}"
    return f"{words} ตั้งแต่{unit}ที่ {rate.first}" if rate.first else words


def _at(values: Values) -> str:
    return _of(values) if steps(values.numbers) else f"ที่{_of(values)}"


def _of(values: Values) -> str:
    found = steps(values.numbers)
    if found is None:
        return _numbered(values)
    unit = UNITS[values.unit]
    return f"ทุก {found.step} {unit} ตั้งแต่{unit}ที่ {found.first} ถึง {found.last}"


def _numbered(values: Values) -> str:
    return f"{UNITS[values.unit]}ที่ {joined(ranges(values.numbers))}"


def ranges(values: Numbers) -> list[str]:
    """Each value, ranges of three or more as `1 ถึง 7`."""
    return range_words(stretches(values), str, " ถึง ")


def joined(words: Sequence[str], link: str = "และ") -> str:
    """`1, 2 และ 5`; `วันจันทร์และวันศุกร์`; `วันจันทร์ วันพุธ และวันศุกร์`."""
    if len(words) < 2:
        return "".join(words)
    *others, last = words
    between = " " if all(_is_thai(word[-1]) and _is_thai(word[0]) for word in words) else ", "
    start = between.join(others)
    if len(others) > 1:
        start += " "
    return glued(glued(start, link), last)


def glued(before: str, after: str) -> str:
    """Joins two texts with a space where Thai needs one."""
    close = _is_thai(before[-1]) and _is_thai(after[0])
    return f"{before}{after}" if close or before[-1] == " " else f"{before} {after}"


def _is_thai(character: str) -> bool:
    return "\u0e00" <= character <= "\u0e7f"


# Days.

WEEKDAYS = (
    *("วันอาทิตย์", "วันจันทร์", "วันอังคาร", "วันพุธ", "วันพฤหัสบดี"),
    *("วันศุกร์", "วันเสาร์"),
)
MONTHS = (
    *("มกราคม", "กุมภาพันธ์", "มีนาคม", "เมษายน", "พฤษภาคม", "มิถุนายน"),
    *("กรกฎาคม", "สิงหาคม", "กันยายน", "ตุลาคม", "พฤศจิกายน", "ธันวาคม"),
)
# In letters, because วันเสาร์ที่ 2 may also be a Saturday that is the 2nd of its month.
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
        # วันที่ appears once for the whole list.
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
    """Names from Monday on; ranges as `วันจันทร์ถึงวันศุกร์`."""
    return range_words(weekday_stretches(weekdays), WEEKDAYS.__getitem__, "ถึง")


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
    return joined(range_words(stretches(months), lambda month: MONTHS[month - 1], "ถึง"))


# Durations, times, bounds and exclusions. Years are marked ค.ศ.; the parser also reads พ.ศ.


def since(moment: datetime, zone: str | None) -> str:
    return f"ตั้งแต่{_in_zone(moment, zone)} เป็นต้นไป"


def until(moment: datetime, zone: str | None) -> str:
    return f"จนถึง{_in_zone(moment, zone)}"


def at_most(count: int) -> str:
    return "ครั้งเดียวเท่านั้น" if count == 1 else f"ไม่เกิน {count} ครั้ง"


def holidays(country: str) -> str:
    return f"วันหยุดราชการของ {country}"


def windows(windows: Sequence[Window]) -> str:
    return joined([_window(window) for window in windows])


def dates(shown: Sequence[str], more: int) -> str:
    return f"วันที่ {joined([*shown, f'อีก {more} วัน'] if more else shown)}"


def excepting(days: str, then: OnExcluded) -> str:
    words = f"ยกเว้น{days}"
    if then == "skip":
        return words
    moved = "ถัดไป" if then == "next" else "ก่อนหน้า"
    return f"{words} โดยเลื่อนไปวันทำการ{moved}"


def zone_words(zone: str) -> str:
    return f"ตามเวลา {zone}"


def every_words(value: timedelta) -> str:
    """`ทุกนาที`, `ทุก 24 ชั่วโมง`, `ทุก 7 วัน (วันละ 24 ชั่วโมง)`."""
    days = whole_days(value)
    if days is not None:
        return f"ทุก {days} วัน (วันละ 24 ชั่วโมง)"
    parts = duration_parts(value)
    if len(parts) == 1 and parts[0][0] == 1:
        return f"ทุก{UNITS[parts[0][1]]}"
    return f"ทุก {duration_words(value)}"


def duration_words(value: timedelta) -> str:
    """`1 นาที 30 วินาที`."""
    return " ".join(f"{count} {UNITS[unit]}" for count, unit in duration_parts(value))


def moment_words(moment: datetime, *, weekday: bool = False) -> str:
    """`วันอาทิตย์ที่ 10 กุมภาพันธ์ ค.ศ. 2030 เวลา 09:00 น.`"""
    name = f"{WEEKDAYS[moment.isoweekday() % 7]}ที่" if weekday else "วันที่"
    day = f"{moment.day} {MONTHS[moment.month - 1]} ค.ศ. {moment.year}"
    return f"{name} {day} เวลา {clock_words(moment)} น."


def _in_zone(moment: datetime, zone: str | None) -> str:
    words = moment_words(moment)
    return words if zone is None else f"{words} {zone_words(zone)}"


def _window(window: Window) -> str:
    days = joined(weekday_list(numbers(window.weekdays)))
    if all_day(window):
        return f"{days}ทั้งวัน"
    over = " ของวันถัดไป" if past_midnight(window) else ""
    return f"{days} เวลา {minute_words(window.start)} ถึง {minute_words(window.end)} น.{over}"


BETWEEN = "; "
SHORT_WEEKDAYS = ("อา.", "จ.", "อ.", "พ.", "พฤ.", "ศ.", "ส.")


def on_days(days: Days, times: Times, zone: str) -> str:
    words = time_phrase(times)
    if not (days.all and words.startswith("ทุก")):
        words = f"{days_phrase(days, th)} {words}"
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
