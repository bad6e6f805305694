"""Chinese: the days."""

from __future__ import annotations

from collections.abc import Sequence

from chimes.language.days import DateKind, DateTerm, Weekdays, weekday_stretches
from chimes.language.masks import Numbers, steps, told
from chimes.language.zh_times import joined, ranges

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
    """Names from Monday on; unbroken stretches as `周一至周五`."""
    return told(weekday_stretches(weekdays), WEEKDAYS.__getitem__, "至")


def _date(term: DateTerm) -> str:
    return _DATES[term.kind].format(
        first=term.first, last=term.last, step=term.step, end=_from_end(term.first)
    )


def _from_end(back: int) -> str:
    # Counted from the end the last day is the first, so one before it is the second.
    return f"倒数第{back + 1}天" if back else "最后一天"


def _special(days: Weekdays) -> list[str]:
    found = [f"{_NTH[nth - 1]}{WEEKDAYS[day]}" for day, nth in days.nth]
    return found + [f"最后一个{WEEKDAYS[day]}" for day in days.last]


def _in_months(months: Numbers | None) -> str:
    return "" if months is None else f"每年{joined(ranges(months, '月'))}的"


def _of_months(months: Numbers | None) -> str:
    return "每月" if months is None else _in_months(months)
