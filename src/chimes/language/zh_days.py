"""Chinese: the days."""

from __future__ import annotations

from chimes.language.days import DateKind, DateTerm, Days, Weekdays, weekday_stretches
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
_WORKING = "工作日"


def days_phrase(days: Days) -> str:
    """`每天`, `每周一`, `每月1号`, `每年1月1号`, …"""
    if days.dates is None:
        if days.weekdays is None:
            return f"{_in_months(days.months)}每天"
        return _on_weekdays(days.weekdays, days.months)
    dates = _on_dates(days.dates, days.months)
    if days.weekdays is None:
        return dates
    if days.both:
        return f"{dates}（仅限{_as_condition(days.weekdays)}）"
    return f"{dates}以及{_on_weekdays(days.weekdays, days.months)}"


def years_phrase(years: Numbers | None) -> str:
    if years is None:
        return ""
    if found := steps(years):
        return f"，仅限{found.first}年至{found.last}年（每{found.step}年）"
    return f"，仅限{joined(ranges(years, '年'))}"


def weekday_list(weekdays: Numbers) -> list[str]:
    """Names from Monday on; unbroken stretches as `周一至周五`."""
    return told(weekday_stretches(weekdays), WEEKDAYS.__getitem__, "至")


def _on_dates(dates: tuple[DateTerm, ...], months: Numbers | None) -> str:
    names = joined([_date(term) for term in dates])
    if months is not None and len(months) == 1 and dates[0].kind in ("day", "days"):
        return f"每年{months[0]}月{names}"
    return f"{_of_months(months)}{names}"


def _date(term: DateTerm) -> str:
    return _DATES[term.kind].format(
        first=term.first, last=term.last, step=term.step, end=_from_end(term.first)
    )


def _from_end(back: int) -> str:
    # Counted from the end the last day is the first, so one before it is the second.
    return f"倒数第{back + 1}天" if back else "最后一天"


def _on_weekdays(days: Weekdays, months: Numbers | None) -> str:
    special = _special(days)
    of_months = f"{_of_months(months)}{joined(special)}"
    if not days.every:
        return of_months
    names = _WORKING if days.working else f"每{joined(weekday_list(days.every))}"
    plain = f"{_in_months(months)}{names}"
    return f"{plain}以及{of_months}" if special else plain


def _special(days: Weekdays) -> list[str]:
    found = [f"{_NTH[nth - 1]}{WEEKDAYS[day]}" for day, nth in days.nth]
    return found + [f"最后一个{WEEKDAYS[day]}" for day in days.last]


def _as_condition(days: Weekdays) -> str:
    found = [_WORKING] if days.working else weekday_list(days.every)
    return joined([*found, *(f"当月{words}" for words in _special(days))], "或")


def _in_months(months: Numbers | None) -> str:
    return "" if months is None else f"每年{joined(ranges(months, '月'))}的"


def _of_months(months: Numbers | None) -> str:
    return "每月" if months is None else _in_months(months)
