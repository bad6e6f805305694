"""Thai descriptions of triggers.

A space separates Thai from numbers and foreign words. Years are marked ค.ศ., because the parser
also reads years of the Buddhist era.
"""

from __future__ import annotations

from collections.abc import Sequence

from chimes.language.semantics import DateTerm, Days, Numbers, Times, Values, steps
from chimes.language.words import Words, invariable

_PLAIN = ("day", "days")


class _Thai(Words):
    def joined(self, words: Sequence[str], link: str = "") -> str:
        """`1, 2 และ 5`; `วันจันทร์และวันศุกร์`; `วันจันทร์ วันพุธ และวันศุกร์`."""
        if len(words) < 2:
            return "".join(words)
        *others, last = words
        all_thai = all(_is_thai(word[-1]) and _is_thai(word[0]) for word in words)
        start = (" " if all_thai else self.comma).join(others)
        if len(others) > 1:
            start += " "
        return _glued(_glued(start, link or self.and_), last)

    def at_words(self, values: Values) -> str:
        if steps(values.numbers):
            return self.values_words(values)
        return super().at_words(values)

    def hours_words(self, hours: Values) -> str:
        return self.numbered_words(hours)

    def days_and_times(self, days: Days, times: Times) -> str:
        words = self.times_words(times)
        if days.all and words.startswith("ทุก"):
            return words
        return f"{self.days_words(days)} {words}"

    def dates_words(self, dates: Sequence[DateTerm], months: Numbers | None) -> str:
        """`ทุกวันที่ 1 ของเดือน`, `วันสุดท้ายของทุกเดือน`."""
        names = [self.date_words(term) for term in dates]
        if all(term.kind in _PLAIN for term in dates):
            # วันที่ appears once for the whole list.
            names[1:] = [name.removeprefix("วันที่ ") for name in names[1:]]
        of_months = self.of_months_words(months)
        if dates[0].kind not in _PLAIN:
            return _glued(self.joined(names), of_months)
        return _glued(f"ทุก{self.joined(names)}", "ของเดือน" if months is None else of_months)


def _glued(before: str, after: str) -> str:
    """Joins two texts with a space where Thai needs one."""
    close = _is_thai(before[-1]) and _is_thai(after[0])
    return f"{before}{after}" if close or before[-1] == " " else f"{before} {after}"


def _is_thai(character: str) -> bool:
    return "\u0e00" <= character <= "\u0e7f"


WORDS = _Thai(
    comma=", ",
    and_="และ",
    or_="หรือ",
    to=" ถึง ",
    name_to="ถึง",
    weekdays=(
        *("วันอาทิตย์", "วันจันทร์", "วันอังคาร", "วันพุธ", "วันพฤหัสบดี"),
        *("วันศุกร์", "วันเสาร์"),
    ),
    short_weekdays=("อา.", "จ.", "อ.", "พ.", "พฤ.", "ศ.", "ส."),
    months=(
        *("มกราคม", "กุมภาพันธ์", "มีนาคม", "เมษายน", "พฤษภาคม", "มิถุนายน"),
        *("กรกฎาคม", "สิงหาคม", "กันยายน", "ตุลาคม", "พฤศจิกายน", "ธันวาคม"),
    ),
    # In letters, because วันเสาร์ที่ 2 may also be a Saturday that is the 2nd of its month.
    nth=("แรก", "ที่สอง", "ที่สาม", "ที่สี่", "ที่ห้า", "สุดท้าย"),
    units={
        "hour": "ชั่วโมง",
        "minute": "นาที",
        "second": "วินาที",
        "millisecond": "มิลลิวินาที",
        "microsecond": "ไมโครวินาที",
    },
    points={"hour": "ชั่วโมง", "minute": "นาที", "second": "วินาที"},
    clocks="เวลา {clocks} น.",
    numbered=invariable("{point}ที่ {numbers}"),
    stepped="ทุก {step} {unit} ตั้งแต่{point}ที่ {first} ถึง {last}",
    at_values="ที่{values}",
    every_unit="ทุก{unit}",
    every="ทุก {duration}",
    duration_part=invariable("{count} {unit}"),
    duration_gap=" ",
    rate_start=" ตั้งแต่{point}ที่ {first}",
    repeated="{rate}{at}{within}",
    repeated_at=" {at}",
    since_clock=" ตั้งแต่ {clock} น.",
    in_hours=" ใน{hours}",
    in_ranges=" {ranges}",
    clock_range="ตั้งแต่ {first} น. ถึง {last} น.",
    listed="{which} ของ{minutes}{hours}",
    listed_rate="{rate} ใน{minutes}{hours}",
    of_minutes="{minutes} ของ",
    every_day="ทุกวัน",
    every_weekday="ทุก{names}",
    working_day="วันทำการ",
    days_in_months="{days}{in_months}",
    in_months="ในเดือน{months}",
    days_of_months="{days}{of_months}",
    of_every_month="ของทุกเดือน",
    of_months="ของเดือน{months}",
    dates={
        "day": "วันที่ {first}",
        "days": "วันที่ {first} ถึง {last}",
        "step": "ทุก {step} วัน ตั้งแต่วันที่ {first} ถึง {last}",
        "nearest": "วันทำการที่ใกล้วันที่ {first} ที่สุด",
        "from_end": "{end}",
        "nearest_from_end": "วันทำการที่ใกล้ {end}ที่สุด",
        "last_working": "วันทำการสุดท้าย",
    },
    from_end=("วันสุดท้าย", "1 วันก่อนวันสุดท้าย", "{back} วันก่อนวันสุดท้าย"),
    nth_weekday="{day}{nth}",
    nth_of_month="{day}ของเดือน",
    only_if="{dates} เฉพาะที่ตรงกับ{days}",
    as_well_as="{days} และ{others}",
    orders=("{days} {times}",),
    years=" เฉพาะปี ค.ศ. {years}",
    stepped_years=" เฉพาะทุก {step} ปี ตั้งแต่ปี ค.ศ. {first} ถึง {last}",
    sentence="{words}{years} {zone}",
    zone="ตามเวลา {zone}",
    moment="{weekday} {day} {month} ค.ศ. {year} เวลา {clock} น.",
    dated_weekday="{weekday}ที่",
    no_weekday="วันที่",
    in_zone=" {zone}",
    once="ครั้งเดียว {moment} {zone}",
    every_days="ทุก {days} วัน (วันละ 24 ชั่วโมง)",
    anchored=" นับจาก{moment}",
    delayed=" แต่ละครั้งช้าได้ไม่เกิน {duration}",
    between="; ",
    clock_changes="เมื่อปรับนาฬิกาให้ใช้กฎของ {rules}",
    since="ตั้งแต่{moment} เป็นต้นไป",
    until="จนถึง{moment}",
    only_once="ครั้งเดียวเท่านั้น",
    at_most="ไม่เกิน {count} ครั้ง",
    excepting="ยกเว้น{days}",
    moved={
        "skip": "",
        "next": " โดยเลื่อนไปวันทำการถัดไป",
        "previous": " โดยเลื่อนไปวันทำการก่อนหน้า",
    },
    holidays="วันหยุดราชการของ {country}",
    named_calendar="วันในปฏิทิน {name}",
    excluded_range="ตั้งแต่ {first} ถึง {last}",
    excluded_dates="วันที่ {dates}",
    more_dates=invariable("อีก {count} วัน"),
    window="{days} เวลา {start} ถึง {end} น.{next_day}",
    window_all_day="{days}ทั้งวัน",
    next_day=" ของวันถัดไป",
)
