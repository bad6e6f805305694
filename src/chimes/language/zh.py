"""Chinese descriptions of triggers, in simplified characters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from chimes.language import zh
from chimes.language.cron_sets import Numbers, numbers, range_words, steps, stretches
from chimes.language.forms import (
    At,
    ClockUnit,
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

# Times of day.

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
    """Whether it begins with a part of the day, so that `每天` must precede it."""
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
    """Each value with its word behind it, ranges of three or more as `9点至17点`."""
    return range_words(stretches(values), lambda value: f"{value}{point}", "至")


def joined(words: Sequence[str], link: str = "和") -> str:
    if len(words) < 2:
        return "".join(words)
    return f"{'、'.join(words[:-1])}{link}{words[-1]}"


# Days.

WEEKDAYS = ("周日", "周一", "周二", "周三", "周四", "周五", "周六")
_DATES: dict[DateKind, str] = {
    "day": "{first}号",
    "days": "{first}号至{last}号",
    "step": "{first}号至{last}号（每{step}天）",
    "nearest": "最接近{first}号的工作日",
    "from_end": "{end}",
    "nearest_from_end": "最接近{end}的工作日",
    "last_working": "最后一个工作日",
}
_NTH = ("第一个", "第二个", "第三个", "第四个", "第五个")


def every_day(months: Numbers | None) -> str:
    return f"{_in_months(months)}每天"


def on_dates(dates: Sequence[DateTerm], months: Numbers | None) -> str:
    """`每月1号`, `每年1月1号`, `每年1月和7月的1号`."""
    names = joined([_date(term) for term in dates])
    if months is not None and len(months) == 1 and dates[0].kind in ("day", "days"):
        return f"每年{months[0]}月{names}"
    return f"{_of_months(months)}{names}"


def on_weekdays(weekdays: Weekdays, months: Numbers | None) -> str:
    names = "工作日" if weekdays.working else f"每{joined(weekday_list(weekdays.every))}"
    return f"{_in_months(months)}{names}"


def on_special(weekdays: Weekdays, months: Numbers | None) -> str:
    return f"{_of_months(months)}{joined(_special(weekdays))}"


def only_if(dates: str, weekdays: Weekdays) -> str:
    found = ["工作日"] if weekdays.working else weekday_list(weekdays.every)
    special = [f"当月{words}" for words in _special(weekdays)]
    return f"{dates}（仅限{joined([*found, *special], '或')}）"


def as_well_as(days: str, others: str) -> str:
    return f"{days}以及{others}"


def years_phrase(years: Numbers | None) -> str:
    if years is None:
        return ""
    if found := steps(years):
        return f"，仅限{found.first}年至{found.last}年（每{found.step}年）"
    return f"，仅限{joined(ranges(years, '年'))}"


def weekday_list(weekdays: Numbers) -> list[str]:
    """Names from Monday on; ranges as `周一至周五`."""
    return range_words(weekday_stretches(weekdays), WEEKDAYS.__getitem__, "至")


def _date(term: DateTerm) -> str:
    return _DATES[term.kind].format(
        first=term.first, last=term.last, step=term.step, end=_from_end(term.first)
    )


def _from_end(back: int) -> str:
    # Counted from the end, the last day is number one.
    return f"倒数第{back + 1}天" if back else "最后一天"


def _special(days: Weekdays) -> list[str]:
    found = [f"{_NTH[nth - 1]}{WEEKDAYS[day]}" for day, nth in days.nth]
    return found + [f"最后一个{WEEKDAYS[day]}" for day in days.last]


def _in_months(months: Numbers | None) -> str:
    return "" if months is None else f"每年{joined(ranges(months, '月'))}的"


def _of_months(months: Numbers | None) -> str:
    return "每月" if months is None else _in_months(months)


# Durations, times, bounds and exclusions.


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


BETWEEN = "；"
SHORT_WEEKDAYS = WEEKDAYS


def on_days(days: Days, times: Times, zone: str) -> str:
    words = time_phrase(times)
    if needs_day(times):
        words = f"{days_phrase(days, zh)} {words}".replace("） ", "）")
    elif not days.all:
        words = f"{days_phrase(days, zh)}，{words}"
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
