"""Thai: the times of a day. There is a space wherever a number or a foreign word meets Thai."""

from __future__ import annotations

from collections.abc import Sequence

from chimes.language.limits import DurationUnit
from chimes.language.masks import Numbers, steps, stretches, told
from chimes.language.times import At, Listed, Rate, Repeated, Times, Values

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
    """Each value, stretches of three or more as `1 ถึง 7`."""
    return told(stretches(values), str, " ถึง ")


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
    """The two with a space between them where one is needed."""
    close = _is_thai(before[-1]) and _is_thai(after[0])
    return f"{before}{after}" if close or before[-1] == " " else f"{before} {after}"


def _is_thai(character: str) -> bool:
    return "\u0e00" <= character <= "\u0e7f"
