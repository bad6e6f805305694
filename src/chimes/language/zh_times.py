"""Chinese: the times of a day."""

from __future__ import annotations

from collections.abc import Sequence

from chimes.language.limits import DurationUnit
from chimes.language.masks import Numbers, steps, stretches, told
from chimes.language.times import At, ClockUnit, Listed, Rate, Repeated, Times, Values

UNITS: dict[DurationUnit, str] = {
    "hour": "小时",
    "minute": "分钟",
    "second": "秒",
    "millisecond": "毫秒",
    "microsecond": "微秒",
}
_POINTS: dict[ClockUnit, str] = {"second": "秒", "minute": "分", "hour": "点"}


def time_phrase(times: Times) -> str:
    """`09:00和18:00`; `09:00至17:45，每隔15分钟`; `每小时的第5、10和20分`."""
    if isinstance(times, At):
        return joined(times.clocks)
    return _repeated(times) if isinstance(times, Repeated) else _listed(times)


def needs_day(times: Times) -> bool:
    """Whether it begins with a part of the day, so that a bare `每天` belongs before it."""
    if isinstance(times, Repeated):
        return bool(times.stretches or times.since or times.hours)
    return isinstance(times, At) or times.hours is not None


def _repeated(times: Repeated) -> str:
    rate = _rate(times.rate)
    if times.at is not None:
        rate += f"的{_values(times.at)}"
    if times.since is not None:
        return f"{times.since}起，{rate}"
    if times.hours is not None:
        return f"{_values(times.hours)}，{rate}"
    if times.stretches:
        return f"{joined([f'{first}至{last}' for first, last in times.stretches])}，{rate}"
    return rate


def _listed(times: Listed) -> str:
    words = "每小时" if times.hours is None else _values(times.hours)
    if times.minutes is not None:
        words += f"的{_values(times.minutes)}"
    if isinstance(times.which, Rate):
        return f"{words}，{_rate(times.which)}"
    return f"{words}的{_values(times.which)}"


def _rate(rate: Rate) -> str:
    unit = UNITS[rate.unit]
    if rate.step == 1:
        return f"每{unit}"
    start = f"，从第{rate.first}{_POINTS[rate.unit]}起" if rate.first else ""
    return f"每隔{rate.step}{unit}{start}"


def _values(values: Values) -> str:
    point = _POINTS[values.unit]
    if values.unit == "hour":
        return joined(ranges(values.numbers, point))
    if found := steps(values.numbers):
        unit = UNITS[values.unit]
        return f"第{found.first}至{found.last}{point}（每隔{found.step}{unit}）"
    return f"第{joined(ranges(values.numbers))}{point}"


def ranges(values: Numbers, point: str = "") -> list[str]:
    """Each value with its word behind it, stretches of three or more as `9点至17点`."""
    return told(stretches(values), lambda value: f"{value}{point}", "至")


def joined(words: Sequence[str], link: str = "和") -> str:
    if len(words) < 2:
        return "".join(words)
    return f"{'、'.join(words[:-1])}{link}{words[-1]}"
