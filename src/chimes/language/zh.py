"""Chinese, in simplified characters."""

from __future__ import annotations

from datetime import datetime, timedelta

from chimes.language import zh_days
from chimes.language import zh_limits as limits
from chimes.language.cautions import Caution, CautionCode, Unit
from chimes.language.days import Days, days_phrase
from chimes.language.times import Times
from chimes.language.zh_days import WEEKDAYS, years_phrase
from chimes.language.zh_limits import duration_words, every_words, in_zone, moment_words, zone_words
from chimes.language.zh_times import needs_day, time_phrase
from chimes.triggers import Dst, Note

__all__ = [
    "BETWEEN",
    "REMARK",
    "SHORT_WEEKDAYS",
    "caution",
    "clock_changes",
    "delayed",
    "every",
    "limits",
    "note",
    "on_days",
    "once",
]

BETWEEN = "；"
REMARK = "注意：{}。"
SHORT_WEEKDAYS = WEEKDAYS
_NOTES: dict[Note, str] = {
    "moved_by_gap": "时钟拨快时会跳过这个时间，改为在拨快的时刻运行",
    "repeated_hour_first": "时钟拨慢时这一小时会出现两次，这是第一次",
    "repeated_hour_second": "时钟拨慢时这一小时会出现两次，这是第二次",
    "repeated_hour_once": "时钟拨慢时这一小时会出现两次，只在第一次运行",
    "moved_by_calendar": "原定日期被排除，改在另一天运行",
}
_CAUTIONS: dict[CautionCode, str] = {
    "either_day": (
        "日期或星期有一个符合就运行，不要求两者同时符合；"
        "若要两者同时符合，请让其中一个字段以 * 开头"
    ),
    "both_days": "只有日期和星期同时符合的日子才运行",
    "uneven_step": "{step}{unit}的间隔每{larger}重新计算，交界处的间隔为{gap}{unit}",
    "uneven_months": "{step}天的间隔每月重新计算，因此交界处的间隔不同",
    "every_minute": ("在这些小时内每分钟都运行，每天{count}次；若要每小时一次，请在分钟字段填 0"),
    "often": "每天运行{count}次",
    "leap_years": "只在闰年运行",
    "short_months": "没有{count}号的月份不运行",
}
_UNITS: dict[Unit, tuple[str, str]] = {
    "second": ("秒", "分钟"),
    "minute": ("分钟", "小时"),
    "hour": ("小时", "天"),
    "day": ("天", "月"),
    "month": ("个月", "年"),
}


def on_days(days: Days, times: Times, zone: str) -> str:
    words = time_phrase(times)
    if needs_day(times):
        words = f"{days_phrase(days, zh_days)} {words}".replace("） ", "）")
    elif not days.all:
        words = f"{days_phrase(days, zh_days)}，{words}"
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
    return _NOTES[note]


def caution(caution: Caution) -> str:
    return caution.filled(_CAUTIONS, *_UNITS[caution.unit])
