"""Chinese descriptions of triggers, in simplified characters."""

from __future__ import annotations

from collections.abc import Sequence

from chimes.language.semantics import At, DateTerm, Days, Numbers, Repeated, Times, Values, Weekdays
from chimes.language.words import Words, invariable


class _Chinese(Words):
    def hours_words(self, hours: Values) -> str:
        """`9点至17点和20点`."""
        return self.joined(self.ranges(hours.numbers, self.points["hour"]))

    def days_and_times(self, days: Days, times: Times) -> str:
        words = self.times_words(times)
        if _begins_with_part_of_day(times):
            return f"{self.days_words(days)} {words}".replace("） ", "）")
        return words if days.all else f"{self.days_words(days)}，{words}"

    def each_weekday(self, weekdays: Weekdays) -> str:
        return self.working_day if weekdays.working else super().each_weekday(weekdays)

    def dates_words(self, dates: Sequence[DateTerm], months: Numbers | None) -> str:
        """`每月1号`, `每年1月1号`, `每年1月和7月的1号`."""
        words = super().dates_words(dates, months)
        if months is not None and len(months) == 1 and dates[0].kind in ("day", "days"):
            return words.replace("月的", "月", 1)
        return words


def _begins_with_part_of_day(times: Times) -> bool:
    """These times must follow `每天` or another day."""
    if isinstance(times, Repeated):
        return bool(times.ranges or times.since or times.hours)
    return isinstance(times, At) or times.hours is not None


_WEEKDAYS = ("周日", "周一", "周二", "周三", "周四", "周五", "周六")

WORDS = _Chinese(
    comma="、",
    and_="和",
    or_="或",
    to="至",
    name_to="至",
    weekdays=_WEEKDAYS,
    short_weekdays=_WEEKDAYS,
    months=[f"{month}月" for month in range(1, 13)],
    nth=("第一个", "第二个", "第三个", "第四个", "第五个", "最后一个"),
    units={
        "hour": "小时",
        "minute": "分钟",
        "second": "秒",
        "millisecond": "毫秒",
        "microsecond": "微秒",
    },
    points={"hour": "点", "minute": "分", "second": "秒"},
    clocks="{clocks}",
    numbered=invariable("第{numbers}{point}"),
    stepped="第{first}至{last}{point}（每隔{step}{unit}）",
    at_values="{values}",
    every_unit="每{unit}",
    every="每隔{duration}",
    duration_part=invariable("{count}{unit}"),
    duration_gap="",
    rate_start="，从第{first}{point}起",
    repeated="{within}{rate}{at}",
    repeated_at="的{at}",
    since_clock="{clock}起，",
    in_hours="{hours}，",
    in_ranges="{ranges}，",
    clock_range="{first}至{last}",
    listed="{hours}{minutes}的{which}",
    listed_rate="{hours}{minutes}，{rate}",
    of_minutes="的{minutes}",
    every_day="每天",
    every_weekday="每{names}",
    working_day="工作日",
    days_in_months="{in_months}{days}",
    in_months="每年{months}的",
    days_of_months="{of_months}{days}",
    of_every_month="每月",
    of_months="每年{months}的",
    dates={
        "day": "{first}号",
        "days": "{first}号至{last}号",
        "step": "{first}号至{last}号（每{step}天）",
        "nearest": "最接近{first}号的工作日",
        "from_end": "{end}",
        "nearest_from_end": "最接近{end}的工作日",
        "last_working": "最后一个工作日",
    },
    # Counted from the end, the last day is number one.
    from_end=("最后一天", "倒数第2天", "倒数第{nth}天"),
    nth_weekday="{nth}{day}",
    nth_of_month="当月{day}",
    only_if="{dates}（仅限{days}）",
    as_well_as="{days}以及{others}",
    orders=("{days}{times}",),
    years="，仅限{years}",
    stepped_years="，仅限{first}年至{last}年（每{step}年）",
    year_mark="年",
    sentence="{words}{years}，{zone}",
    zone="{zone} 时间",
    moment="{year}年{month}{day}日{weekday} {clock}",
    dated_weekday="{weekday}",
    in_zone="（{zone}）",
    once="仅一次，{moment}，{zone}",
    every_days="每{days}天（每天按24小时计）",
    anchored="，从{moment}起计",
    delayed="，每次最多延后{duration}",
    between="；",
    clock_changes="时钟调整按 {rules} 的规则处理",
    since="自{moment}起",
    until="至{moment}止",
    only_once="只运行一次",
    at_most="最多{count}次",
    excepting="{days}除外",
    moved={
        "skip": "",
        "next": "，顺延至下一个工作日",
        "previous": "，提前至上一个工作日",
    },
    holidays="{country} 的公共假日",
    named_calendar="日历 {name} 中的日期",
    excluded_range="{first} 至 {last}",
    excluded_dates="{dates}",
    more_dates=invariable("另外{count}天"),
    window="{days} {start}至{next_day}{end}",
    window_all_day="{days}全天",
    next_day="次日",
)
