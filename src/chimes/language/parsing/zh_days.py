"""Chinese: days."""

from __future__ import annotations

import re

from chimes.language.parsing.digits import christian_year, date_of
from chimes.language.parsing.parts import (
    Daily,
    Date,
    MonthDays,
    Named,
    OnlyOnce,
    Part,
    PartOfDay,
    Period,
    Portion,
    Problem,
    RelativeDay,
    RelativeMonthDay,
    RelativeWeekday,
)
from chimes.language.parsing.rules import (
    AMBIGUOUS,
    NO_DATE,
    NO_INTERVAL,
    YESTERDAY,
    Meaning,
    Rule,
    rule,
)
from chimes.language.parsing.zh_numbers import NUMBER, number

_DAY_NAMES = {"日": 0, "天": 0, "一": 1, "二": 2, "三": 3, "四": 4, "五": 5, "六": 6}
_DAY_NAMES |= {"1": 1, "2": 2, "3": 3, "4": 4, "5": 5, "6": 6, "7": 0}
_WEEK = r"(?:周|星期|礼拜)"
_NAME = r"(?:[日一二三四五六](?!次|天(?!气))|天(?!气)|[1-7](?![0-9:.点时个天次条]))"
# Without 周, one of several: 周六日, 周一、三、五; 天 is then a day, and 日报 a newspaper.
_BARE = (
    r"(?:日(?![报志程常记历期])|[一二三四五六](?![次天起些下样直共份])"
    r"|[1-7](?![0-9:.点时个天次条]))"
)
_TO = r" ?(?:到|至|-) ?"
_W = rf"{_WEEK}{_NAME}"
# Behind the first, a lone character must not begin a time: 周一 三点.
_MORE = rf"(?:{_WEEK}{_NAME}|{_BARE}(?! ?(?:点|时|个|十|月|天|次|条|分|刻)))"
_LIST = (
    rf"{_W}(?:{_TO}{_WEEK}?{_NAME})?"
    rf"(?: ?(?:(?:、|,|和|及|与|以及|还有) ?)?(?:每个?(?=周|星期|礼拜))?{_MORE}"
    rf"(?:{_TO}{_WEEK}?{_NAME})?){{0,7}}"
)
_EVERY = r"(?:每一?个?|每?逢|每周的?)"
_WORKING = r"(?:工作日|上班日|平日)"
_LATER = r"(?:之后|以后|后)"


def weekdays(text: str) -> frozenset[int]:
    """The days of `周一到周五、周日`."""
    found: set[int] = set()
    bare = re.sub(r"每一?个?|逢", "", text)
    for item in re.finditer(rf"{_WEEK}?({_NAME})(?:{_TO}{_WEEK}?({_NAME}))?", bare):
        first = _DAY_NAMES[item[1]]
        last = _DAY_NAMES[item[2]] if item[2] else first
        found |= {(first + step) % 7 for step in range((last - first) % 7 + 1)}
    return frozenset(found)


def _named(every: bool) -> Meaning:
    return lambda found: (Named(weekdays(found["list"]), every),)


_NUMBER = rf"(?:[0-9]{{1,2}}(?![0-9:.])|{NUMBER})"
_NUMBERS = (
    rf"(?P<days>{_NUMBER} ?[号日]?(?: ?(?:、|,|和|及|与) ?{_NUMBER} ?[号日]?){{0,9}})(?<=[号日])"
)


def _month_days(every: bool) -> Meaning:
    def meaning(found: re.Match[str]) -> tuple[Part, ...]:
        days = sorted({number(each) for each in re.findall(NUMBER, found["days"])})
        if days[0] < 1 or days[-1] > 31:
            return (NO_DATE,)
        return (MonthDays(tuple(str(day) for day in days), every),)

    return meaning


def _from_end(found: re.Match[str]) -> tuple[Part, ...]:
    back = number(found["n"]) - 1
    if not 0 <= back <= 30:
        return (NO_DATE,)
    return (MonthDays((f"L-{back}" if back else "L",), every=True),)


_NTH = rf"(?P<nth>第(?P<n>{NUMBER})个?|最后一?个?|首个)的?(?P<w>{_W})"


def _nth_weekday(every: bool) -> Meaning:
    def meaning(found: re.Match[str]) -> tuple[Part, ...]:
        weekday = min(weekdays(found["w"]))
        if found["nth"].startswith("最"):
            return (MonthDays((f"{weekday}L",), every, weekday=True),)
        count = number(found["n"]) if found["n"] else 1
        if not 1 <= count <= 5:
            return (NO_DATE,)
        return (MonthDays((f"{weekday}#{count}",), every, weekday=True),)

    return meaning


def _date(found: re.Match[str]) -> tuple[Part, ...]:
    year = None
    if found["year"]:
        if len(found["year"]) != 4:
            return (AMBIGUOUS,)
        digits = "".join(str(number(each)) for each in found["year"])
        year = christian_year(int(digits), buddhist=found["era"] == "佛历")
    every = bool(found["every"])
    made = date_of(year, number(found["month"]), number(found["day"]), every=every)
    if found["w"] and isinstance(made[0], Date):
        return (*made, Named(weekdays(found["w"]), every=False))
    return made


def _week(weeks: int) -> Meaning:
    return lambda found: (RelativeWeekday(_DAY_NAMES[found["day"]], weeks),)


def _this_month(months: int) -> Meaning:
    return lambda found: (RelativeMonthDay(number(found["day"]), months),)


def _ahead(found: re.Match[str]) -> tuple[Part, ...]:
    days = number(found["n"]) * (1 if found["u"] == "天" else 7)
    return (RelativeDay(days) if days else AMBIGUOUS,)


_PORTIONS: dict[str, Portion] = {"早上?": "morning", "晚上?": "night", "夜": "night"}
_MONTH_ENDS = {
    r"(?:最后一?天|月底|月末)": "L",
    rf"最后一?个?{_WORKING}": "LW",
    rf"(?:第一个?|首个){_WORKING}": "1W",
}
_OF_WEEK = rf"{_WEEK}的?{_WEEK}?(?P<day>{_NAME})"
_MONTHLY = r"每一?个?月的?"
RULES: list[Rule] = [
    rule(r"每一?[天日](?:一次)?的?|天天", Daily()),
    *(
        each
        for word, portion in _PORTIONS.items()
        for each in (
            rule(rf"每{word}", (Daily(), PartOfDay(portion))),
            rule(rf"今{word}(?!上)", (RelativeDay(0), PartOfDay(portion))),
            rule(rf"明{word}(?!上)", (RelativeDay(1), PartOfDay(portion))),
        )
    ),
    rule(rf"{_EVERY}?{_WORKING}", Named(frozenset(range(1, 6)), every=True)),
    rule(r"(?:每个?|每?逢)?(?:周末|双休日)", Named(frozenset({0, 6}), every=True)),
    rule(rf"(?:每一?个?|每?逢)(?P<list>{_LIST})", _named(every=True)),
    rule(rf"(?P<list>{_LIST})", _named(every=False)),
    rule(rf"每一?个?{_WEEK}(?![日一二三四五六天1-7末])的?", Period("week")),
    rule(_MONTHLY, Period("month")),
    rule(r"每一?年的?", Period("year")),
    rule(
        rf"每隔? ?(?:{NUMBER}|几|数) ?(?:天|日|周|个?星期|个?礼拜|个?月|年)(?!号)"
        r"|隔[天日周]|每隔一?[天日周月年]|每个?季度?|单日|双日|单周|双周",
        NO_INTERVAL,
    ),
    rule(rf"{_MONTHLY}{_NUMBERS}", _month_days(every=True)),
    rule(_NUMBERS, _month_days(every=False)),
    rule(rf"{_MONTHLY}第(?P<days>{NUMBER})天", _month_days(every=True)),
    rule(rf"{_MONTHLY}倒数第(?P<n>{NUMBER})天", _from_end),
    rule(r"每个?(?:月底|月末)", MonthDays(("L",), every=True)),
    *(
        each
        for word, term in _MONTH_ENDS.items()
        for each in (
            rule(rf"{_MONTHLY}{word}", MonthDays((term,), every=True)),
            rule(word, MonthDays((term,), every=False)),
        )
    ),
    rule(rf"{_MONTHLY}{_NTH}", _nth_weekday(every=True)),
    rule(_NTH, _nth_weekday(every=False)),
    rule(r"(?:每个?)?月(?:初|中旬?|上旬|下旬)", Problem(("date",))),
    rule(
        r"(?P<every>每年的?)?(?:(?P<era>佛历|公元)? ?"
        r"(?P<year>[0-9]{4}|[0-9]{2}|[〇零一二三四五六七八九]{2,4}) ?年)? ?"
        rf"(?P<month>{NUMBER}) ?月 ?(?P<day>{NUMBER}) ?[日号](?: ?\(?(?P<w>{_W})\)?)?",
        _date,
    ),
    rule(r"今天|今日|当天", RelativeDay(0)),
    rule(r"明天|明日", RelativeDay(1)),
    rule(r"后天", RelativeDay(2)),
    rule(r"大后天", RelativeDay(3)),
    rule(r"[今明后]天的[今明后]天", AMBIGUOUS),
    rule(rf"昨[天日晚]|前天|上个?{_W}", YESTERDAY),
    rule(rf"(?P<n>{NUMBER}) ?(?P<u>天|周|个?星期|个?礼拜){_LATER}", _ahead),
    rule(rf"下一?个?{_OF_WEEK}", _week(1)),
    rule(rf"下下个?{_OF_WEEK}", _week(2)),
    rule(rf"(?:本|这个?){_OF_WEEK}", _week(0)),
    rule(rf"下个?月的?(?P<day>{_NUMBER}) ?[号日]", _this_month(1)),
    rule(rf"(?:本|这个?|当)月的?(?P<day>{_NUMBER}) ?[号日]", _this_month(0)),
    rule(
        r"(?:下一?个?(?:周|星期|礼拜)(?![日一二三四五六天1-7])|下个?月(?![0-9])|明年)",
        Problem(("date",), loose=True),
    ),
    rule(r"(?:只|仅)?一次(?!性)", OnlyOnce()),
]
