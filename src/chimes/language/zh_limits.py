"""Chinese: durations, moments, bounds and exclusions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from chimes.language.limits import (
    all_day,
    clock_words,
    duration_parts,
    minute_words,
    past_midnight,
    whole_days,
)
from chimes.language.masks import numbers
from chimes.language.zh_days import WEEKDAYS, weekday_list
from chimes.language.zh_times import UNITS, joined
from chimes.triggers import Window
from chimes.triggers.calendar import OnExcluded


def since(moment: datetime, zone: str | None) -> str:
    return f"自{in_zone(moment, zone)}起"


def until(moment: datetime, zone: str | None) -> str:
    return f"至{in_zone(moment, zone)}止"


def at_most(count: int) -> str:
    return "只运行一次" if count == 1 else f"最多{count}次"


def holidays(country: str) -> str:
    return f"{country} 的公共假日"


def windows(windows: Sequence[Window]) -> str:
    return joined([_window(window) for window in windows])


def dates(shown: Sequence[str], more: int) -> str:
    return joined([*shown, f"另外{more}天"] if more else shown)


def excepting(days: str, then: OnExcluded) -> str:
    words = f"{days}除外"
    if then == "skip":
        return words
    return f"{words}，{'顺延至下一个工作日' if then == 'next' else '提前至上一个工作日'}"


def zone_words(zone: str) -> str:
    return f"{zone} 时间"


def every_words(value: timedelta) -> str:
    """`每分钟`, `每隔24小时`, `每7天（每天按24小时计）`."""
    days = whole_days(value)
    if days is not None:
        return f"每{days}天（每天按24小时计）"
    parts = duration_parts(value)
    if len(parts) == 1 and parts[0][0] == 1:
        return f"每{UNITS[parts[0][1]]}"
    return f"每隔{duration_words(value)}"


def duration_words(value: timedelta) -> str:
    """`1分钟30秒`."""
    return "".join(f"{count}{UNITS[unit]}" for count, unit in duration_parts(value))


def moment_words(moment: datetime, *, weekday: bool = False) -> str:
    """`2030年2月10日周日 09:00`."""
    name = WEEKDAYS[moment.isoweekday() % 7] if weekday else ""
    return f"{moment.year}年{moment.month}月{moment.day}日{name} {clock_words(moment)}"


def in_zone(moment: datetime, zone: str | None) -> str:
    words = moment_words(moment)
    return words if zone is None else f"{words}（{zone_words(zone)}）"


def _window(window: Window) -> str:
    days = joined(weekday_list(numbers(window.weekdays)))
    if all_day(window):
        return f"{days}全天"
    over = "次日" if past_midnight(window) else ""
    return f"{days} {minute_words(window.start)}至{over}{minute_words(window.end)}"
