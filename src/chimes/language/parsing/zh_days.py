"""Chinese: days, intervals and delays."""

from __future__ import annotations

import re
from datetime import timedelta

from chimes.language.parsing.digits import christian_year, date_of
from chimes.language.parsing.parts import (
    AtMinutes,
    Daily,
    Delay,
    Interval,
    MonthDays,
    Named,
    OnlyOnce,
    Part,
    PartOfDay,
    Period,
    Problem,
    RelativeDay,
    RelativeMonthDay,
    RelativeWeekday,
)
from chimes.language.parsing.rules import (
    NO_DATE,
    NO_INTERVAL,
    NO_UNIT,
    RESIDUE,
    Rule,
    rule,
)
from chimes.language.parsing.zh_numbers import NUMBER, number

_DAY_NAMES = {"日": 0, "天": 0, "一": 1, "二": 2, "三": 3, "四": 4, "五": 5, "六": 6}
_DAY_NAMES |= {"1": 1, "2": 2, "3": 3, "4": 4, "5": 5, "6": 6, "7": 0}
_WEEK = r"(?:周|星期|礼拜)"
_NAME = r"(?:[日一二三四五六]|天(?!气)|[1-7](?![0-9:.点个天次条]))"
_TO = r" ?(?:到|至|-) ?"
_ITEM = rf"{_WEEK}?{_NAME}(?:{_TO}{_WEEK}?{_NAME})?"
_LINK = r" ?(?:、|,|和|及|与|以及|还有)? ?(?:每个?)?"
_LIST = rf"{_WEEK}{_NAME}(?:{_TO}{_WEEK}?{_NAME})?(?:{_LINK}{_ITEM})*"
_EVERY = r"(?:每一?个?|逢)"
_WORKING = r"(?:工作日|上班日|平日|平时工作日)"
_UNIT = r"(?:个?小时|个?钟头|分钟|分|秒钟|秒)"
_UNITS = {
    "小": timedelta(hours=1),
    "钟": timedelta(hours=1),
    "分": timedelta(minutes=1),
    "秒": timedelta(seconds=1),
}


def weekdays(text: str) -> frozenset[int]:
    """The days of `周一到周五、周日`."""
    found: set[int] = set()
    bare = re.sub(r"每个?|逢", "", text)
    for item in re.finditer(rf"{_WEEK}?({_NAME})(?:{_TO}{_WEEK}?({_NAME}))?", bare):
        first = _DAY_NAMES[item[1]]
        last = _DAY_NAMES[item[2]] if item[2] else first
        found |= {(first + step) % 7 for step in range((last - first) % 7 + 1)}
    return frozenset(found)


def _weekday_of(text: str) -> int:
    return next(iter(weekdays(text)))


_PIECE = rf"(?:{NUMBER} ?个?半?{_UNIT}半?|半个?(?:小时|钟头|钟)|[一三]刻钟)"
_DURATION = rf"(?:{_PIECE}(?:零|又|,|和)? ?)*{_PIECE}"


def _duration(text: str) -> timedelta:
    total = timedelta(0)
    pattern = rf"(半)个?(?:小时|钟头|钟)|([一三])刻钟|({NUMBER}) ?个?(半)?({_UNIT})(半)?"
    for item in re.finditer(pattern, text):
        if item[1]:
            total += timedelta(minutes=30)
        elif item[2]:
            total += timedelta(minutes=15 if item[2] == "一" else 45)
        else:
            unit = _UNITS[item[5].removeprefix("个")[0]]
            total += unit * number(item[3])
            total += unit / 2 * (bool(item[4]) + bool(item[6]))
    return total


def _interval(found: re.Match[str]) -> tuple[Part, ...]:
    step = _duration(found["d"])
    return (Interval(step),) if step else (NO_INTERVAL,)


def _delay(found: re.Match[str]) -> tuple[Part, ...]:
    after = _duration(found["d"])
    return (Delay(after),) if after else (NO_INTERVAL,)


_DAY_NUMBER = rf"(?:[0-9]{{1,2}}(?![0-9:.])|{NUMBER})"
_MONTH_DAYS = (
    rf"(?P<days>{_DAY_NUMBER} ?[号日]?(?: ?(?:、|,|和|及|与) ?{_DAY_NUMBER} ?[号日]?)*)(?<=[号日])"
)


def _month_days(found: re.Match[str]) -> tuple[Part, ...]:
    days = [number(each) for each in re.findall(rf"({NUMBER}) ?[号日]?", found["days"])]
    if not all(1 <= day <= 31 for day in days):
        return (NO_DATE,)
    return (MonthDays(tuple(str(day) for day in sorted(set(days))), every=bool(found["every"])),)


def _nth_weekday(found: re.Match[str]) -> tuple[Part, ...]:
    weekday = _weekday_of(found["w"])
    every = bool(found["every"])
    if found["nth"].startswith("最后"):
        return (MonthDays((f"{weekday}L",), every, weekday=True),)
    count = 1 if found["nth"].startswith("首") else number(found["n"])
    if not 1 <= count <= 5:
        return (NO_DATE,)
    return (MonthDays((f"{weekday}#{count}",), every, weekday=True),)


def _fixed_days(term: str) -> object:
    return lambda found: (MonthDays((term,), every=bool(found["every"])),)


def _date(found: re.Match[str]) -> tuple[Part, ...]:
    year = None
    if found["year"]:
        if len(found["year"]) != 4:
            return (Problem(("ambiguous",)),)
        year = christian_year(int(found["year"]), buddhist=bool(found["era"]))
    every = bool(found["every"])
    made = date_of(year, number(found["month"]), number(found["day"]), every=every)
    if found["w"] and not isinstance(made[0], Problem):
        return (*made, Named(weekdays(found["w"]), every=False))
    return made


def _week(weeks: int):  # type: ignore[no-untyped-def]
    return lambda found: (RelativeWeekday(_weekday_of(_WEEK_PREFIX.sub("周", found[0])), weeks),)


_WEEK_PREFIX = re.compile(r"^(?:下个?|本|这个?|上个?)(?:周|星期|礼拜)的?(?:周|星期|礼拜)?")
_MONTHLY = r"(?P<every>每个?月的?|每月)"
_THIS_WEEK = r"(?:本|这个?)"
RULES: list[Rule] = [
    rule(r"(?:每一?天|每日|天天|日复一日)", Daily()),
    *(
        rule(rf"每(?:天|日)?的?{word}", (Daily(), PartOfDay(portion)))  # type: ignore[arg-type]
        for word, portion in {
            "早上": "morning",
            "早晨": "morning",
            "清晨": "morning",
            "上午": "morning",
            "下午": "afternoon",
            "傍晚": "evening",
            "晚上": "night",
            "晚": "night",
            "夜": "night",
        }.items()
        if word not in ("晚", "夜")
    ),
    rule(rf"(?:{_EVERY}|每周的?|每逢)?{_WORKING}", Named(frozenset(range(1, 6)), every=True)),
    rule(r"(?:每个?|每逢)?(?:周末|双休日)", Named(frozenset({0, 6}), every=True)),
    rule(rf"(?:每个?|逢|每逢){_LIST}", lambda m: (Named(weekdays(m[0]), every=True),)),
    rule(_LIST, lambda m: (Named(weekdays(m[0]), every=False),)),
    rule(r"每一?个?(?:周|星期|礼拜)(?![日一二三四五六天1-7末])的?", Period("week")),
    rule(r"每一?个?月的?", Period("month")),
    rule(r"每一?年的?", Period("year")),
    rule(rf"{_MONTHLY}{_MONTH_DAYS}", _month_days),
    rule(rf"(?P<every>){_MONTH_DAYS}", _month_days),
    *(
        rule(pattern, meaning)  # type: ignore[arg-type]
        for term, words in {
            "L": r"(?:最后一?天|月底|月末|末日)",
            "LW": rf"(?:最后一?个?{_WORKING})",
            "1W": rf"(?:第一个?{_WORKING}|首个{_WORKING})",
        }.items()
        for pattern, meaning in (
            (rf"{_MONTHLY}{words}", _fixed_days(term)),
            (rf"(?P<every>){words}", _fixed_days(term)),
        )
    ),
    rule(rf"(?P<every>每个?)(?:月底|月末)", MonthDays(("L",), every=True)),
    rule(
        rf"{_MONTHLY}(?P<nth>第(?P<n>{NUMBER})个?|最后一?个?|首个)的?(?P<w>{_WEEK}{_NAME})",
        _nth_weekday,
    ),
    rule(
        rf"(?P<every>)(?P<nth>第(?P<n>{NUMBER})个|最后一?个|首个)(?P<w>{_WEEK}{_NAME})",
        _nth_weekday,
    ),
    rule(r"每个?月(?:初|中|中旬|上旬|下旬)", Problem(("date",))),
    rule(
        rf"(?P<every>每年的?)?(?:(?P<era>佛历|公元)? ?(?P<year>[0-9]{{4}}|[0-9]{{2}}) ?年)? ?(?P<month>{NUMBER}) ?月 ?(?P<day>{NUMBER}) ?[日号](?: ?\(?(?P<w>{_WEEK}{_NAME})\)?)?",
        _date,
    ),
    rule(r"今天|今日|当天", RelativeDay(0)),
    rule(r"今晚", (RelativeDay(0), PartOfDay("night"))),
    rule(r"今早", (RelativeDay(0), PartOfDay("morning"))),
    rule(r"明天|明日", RelativeDay(1)),
    rule(r"明晚", (RelativeDay(1), PartOfDay("night"))),
    rule(r"明早", (RelativeDay(1), PartOfDay("morning"))),
    rule(r"(?<!大)后天", RelativeDay(2)),
    rule(r"大后天", RelativeDay(3)),
    rule(r"昨天|前天|昨晚|昨日", Problem(("past",), loose=True)),
    rule(
        rf"(?P<n>{NUMBER}) ?(?P<u>天|个?星期|周|个?礼拜)(?:之?后|以后)",
        lambda m: (RelativeDay(number(m["n"]) * (1 if m["u"] == "天" else 7)),),
    ),
    rule(rf"下个?{_WEEK}的?{_WEEK}?{_NAME}", _week(1)),
    rule(rf"{_THIS_WEEK}{_WEEK}的?{_WEEK}?{_NAME}", _week(0)),
    rule(rf"上个?{_WEEK}{_NAME}", Problem(("past",), loose=True)),
    rule(
        rf"(?P<which>下|本|这)个?月的?(?P<day>{_DAY_NUMBER}) ?[号日]",
        lambda m: (RelativeMonthDay(number(m["day"]), int(m["which"] == "下")),),
    ),
    rule(
        r"(?:下个?(?:周|星期|礼拜|月)|明年)(?![日一二三四五六天1-7])",
        Problem(("date",), loose=True),
    ),
    rule(rf"每(?:隔|过)?(?P<d>{_DURATION})", _interval),
    rule(r"每(?:隔|过)?一?个?(?:小时|钟头)", Interval(timedelta(hours=1))),
    rule(r"每(?:隔|过)?一?分钟", Interval(timedelta(minutes=1))),
    rule(r"每(?:隔|过)?一?秒钟?", Interval(timedelta(seconds=1))),
    rule(
        rf"每(?:隔)?(?P<n>{NUMBER}|几|数) ?(?:天|日|周|个?星期|个?礼拜|个?月|年)(?![号])|隔天|隔日|隔周|每隔一?[天日周月年]|每季度?|每两周",
        NO_INTERVAL,
    ),
    rule(r"每(?:隔)?(?:几|数)个?(?:小时|分钟|秒)", NO_INTERVAL),
    rule(
        rf"每(?:隔)? ?-? ?(?:[0-9]+)(?! ?(?:个|小|分|秒|钟|天|日|周|星|礼|月|年|号|刻|点|[0-9:.]))",
        NO_UNIT,
    ),
    rule(rf"(?:过|再过|在)?(?P<d>{_DURATION}) ?(?:之后|以后|后)", _delay),
    rule(rf"(?:再)?过(?P<d>{_DURATION})", _delay),
    rule(
        rf"(?:的?第)?(?P<n>{NUMBER}) ?分(?:的时候|时)",
        lambda m: (AtMinutes(frozenset({number(m["n"])})),),
    ),
    rule(r"(?:只|仅)?一次", OnlyOnce()),
    rule(r"大约|大概|约|左右|差不多|前后", Problem(("ambiguous",), loose=True)),
    rule(r"除了|除|直到|从|自|到(?=周|星期|[0-9]+月)|开始|截止|为止|或者?|不包括", RESIDUE),
]
