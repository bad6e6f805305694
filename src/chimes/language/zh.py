"""Chinese, in simplified characters."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import assert_never

from chimes.language.cautions import Caution
from chimes.language.days import Days
from chimes.language.times import Times
from chimes.language.zh_days import days_phrase, years_phrase
from chimes.language.zh_limits import (
    at_most,
    dates,
    duration_words,
    every_words,
    excepting,
    holidays,
    in_zone,
    moment_words,
    since,
    until,
    windows,
    zone_words,
)
from chimes.language.zh_times import needs_day, time_phrase
from chimes.triggers import Dst, Note

__all__ = [
    "BETWEEN",
    "at_most",
    "caution",
    "clock_changes",
    "dates",
    "delayed",
    "every",
    "excepting",
    "holidays",
    "note",
    "on_days",
    "once",
    "since",
    "until",
    "windows",
]

BETWEEN = "；"


def on_days(days: Days, times: Times, zone: str) -> str:
    words = time_phrase(times)
    if needs_day(times):
        words = f"{days_phrase(days)} {words}".replace("） ", "）")
    elif not days.all:
        words = f"{days_phrase(days)}，{words}"
    return f"{words}{years_phrase(days.years)}，{zone_words(zone)}"


def once(moment: datetime, zone: str) -> str:
    return f"仅一次，{moment_words(moment, weekday=True)}，{zone_words(zone)}"


def every(step: timedelta, anchor: datetime | None) -> str:
    words = every_words(step)
    return words if anchor is None else f"{words}，从{in_zone(anchor, 'UTC')}起计"


def delayed(jitter: timedelta) -> str:
    return f"，每次最多延后{duration_words(jitter)}"


def clock_changes(rules: Dst) -> str:
    return f"时钟调整按 {rules} 的规则处理"


def note(note: Note) -> str:
    match note:
        case "moved_by_gap":
            return "时钟拨快时会跳过这个时间，改为在拨快的时刻运行"
        case "repeated_hour_first":
            return "时钟拨慢时这一小时会出现两次，这是第一次"
        case "repeated_hour_second":
            return "时钟拨慢时这一小时会出现两次，这是第二次"
        case "repeated_hour_once":
            return "时钟拨慢时这一小时会出现两次，只在第一次运行"
        case "moved_by_calendar":
            return "原定日期被排除，改在另一天运行"
    assert_never(note)


def caution(caution: Caution) -> str:
    match caution.code:
        case "either_day":
            return (
                "日期或星期有一个符合就运行，不要求两者同时符合；"
                "若要两者同时符合，请让其中一个字段以 * 开头"
            )
        case "both_days":
            return "只有日期和星期同时符合的日子才运行"
        case "uneven_step":
            return _uneven(caution)
        case "every_minute":
            return (
                f"在这些小时内每分钟都运行，每天{caution.count}次；若要每小时一次，请在分钟字段填 0"
            )
        case "often":
            return f"每天运行{caution.count}次"
        case "leap_years":
            return "只在闰年运行"
        case "short_months":
            return f"没有{caution.count}号的月份不运行"
    assert_never(caution.code)


def _uneven(caution: Caution) -> str:
    unit, larger = {
        "second": ("秒", "分钟"),
        "minute": ("分钟", "小时"),
        "hour": ("小时", "天"),
        "day": ("天", "月"),
        "month": ("个月", "年"),
    }[caution.unit]
    start = f"{caution.step}{unit}的间隔每{larger}重新计算"
    if not caution.gap:
        return f"{start}，因此交界处的间隔不同"
    return f"{start}，交界处的间隔为{caution.gap}{unit}"
