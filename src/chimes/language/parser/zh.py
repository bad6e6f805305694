"""Chinese patterns for times, days, intervals and limits."""

from __future__ import annotations

import re
from datetime import timedelta

from chimes.language.parser.rules import (
    AMBIGUOUS,
    IMPOSSIBLE,
    LIMITED,
    NO_DATE,
    NO_INTERVAL,
    NO_UNIT,
    ONE_OF,
    RESIDUE,
    SPAN_OR_RESIDUE,
    VAGUE,
    YESTERDAY,
    AtMinutes,
    Clock,
    Daily,
    Date,
    Delay,
    Interval,
    Meaning,
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
    Rule,
    Sure,
    christian_year,
    clock,
    date_of,
    in_portion,
    rule,
    whole_hours,
)

# Numerals up to 99, in digits or characters.

_DIGITS = {"零": 0, "〇": 0, "一": 1, "二": 2, "两": 2, "三": 3, "四": 4, "五": 5, "六": 6}
_DIGITS |= {"七": 7, "八": 8, "九": 9}
_ONE = "[一二两三四五六七八九]"
WORD = rf"(?:{_ONE}?十{_ONE}?|廿{_ONE}?|卅{_ONE}?|[零〇]?{_ONE}|[零〇])"
NUMBER = rf"(?:[0-9]{{1,6}}|{WORD})"


def number(text: str) -> int:
    if text.isdigit() and text.isascii():
        return int(text)
    said = text.replace("廿", "二十").replace("卅", "三十")
    tens, ten, ones = said.rpartition("十")
    if not ten:
        return _DIGITS[said[-1]]
    return (_DIGITS[tens] if tens else 1) * 10 + (_DIGITS[ones] if ones else 0)


# Times of day.

_PORTIONS: dict[str, Portion] = {
    "凌晨": "dawn",
    "清晨": "morning",
    "早晨": "morning",
    "早上": "morning",
    "早间": "morning",
    "上午": "morning",
    "中午": "noon",
    "正午": "noon",
    "下午": "afternoon",
    "午后": "afternoon",
    "傍晚": "evening",
    "黄昏": "evening",
    "晚上": "night",
    "晚间": "night",
    "夜里": "night",
    "夜间": "night",
    "晚": "night",
    "早": "morning",
}
_PORTION = rf"(?P<p>{'|'.join(_PORTIONS)})"
_AT = r"(?P<at>在|于)?"
_HOUR = rf"(?P<h>{NUMBER}) ?(?:点|时(?!间))"
#: Words after which the preceding number is not a count.
_UNCOUNTED = (
    r"(?! ?(?:[个条张人份名位次杯篇点时秒刻元块毛角页题组天周月年号岁斤米千百万圈遍%]|小时"
    r"|公里|公斤|分(?![析享配类发组])))"
)
_MINUTE = (
    r"(?:钟|整(?![理个合改顿])|正(?![在常式确])|(?P<half>半(?!小时|个|天|年|价|成))"
    rf"|(?P<q>[一三13])刻(?!钟)|过?(?P<m>{NUMBER}) ?分(?![钟种析享配类]|重要|紧急|关键|必要)"
    rf"|(?P<m2>[0-5][0-9])(?![0-9:.]){_UNCOUNTED}"
    rf"|(?P<unsure> [0-5][0-9])(?![0-9:./-]){_UNCOUNTED}"
    rf"|(?P<m3>[二三四五]?十[一二三四五六七八九]?|[零〇][一二三四五六七八九]){_UNCOUNTED})?"
)
#: Up to this hour, an hour without a part of the day may be in the afternoon.
_LAST_OPEN = 5


def _minute(found: re.Match[str]) -> int:
    if found["half"]:
        return 30
    if found["q"]:
        return 15 if found["q"] in "一1" else 45
    said = found["m"] or found["m2"] or found["m3"]
    return number(said) if said else 0


def _alone(found: re.Match[str]) -> tuple[Part, ...]:
    """`9点` is the morning; 12点 and the small hours lead to a question unless written as 03点."""
    hour, minute = number(found["h"]), _minute(found)
    if found["unsure"]:
        return (AMBIGUOUS,)
    read = clock(hour, minute)
    if not isinstance(read, Clock):
        return (read,)
    written = found["h"].startswith("0") or hour in (0, *range(13, 24))
    is_open = not written and (1 <= hour <= _LAST_OPEN or hour == 12)
    sure: Sure = "certain" if written else "open" if is_open else "usual"
    whole = not (found["half"] or found["q"] or found["m"] or found["m2"] or found["m3"])
    return (Clock(hour, minute, sure=sure, marked=bool(found["at"]), whole=whole),)


def _in_portion(found: re.Match[str]) -> tuple[Part, ...]:
    if found["unsure"]:
        return (AMBIGUOUS,)
    read = in_portion(number(found["h"]), _minute(found), _PORTIONS[found["p"]])
    return (_marked(read, found),) if isinstance(read, Clock) else (read,)


def _marked(read: Clock, found: re.Match[str]) -> Clock:
    return Clock(read.hour, read.minute, midnight=read.midnight, marked=bool(found["at"]))


def _written(found: re.Match[str]) -> tuple[Part, ...]:
    """`晚上8:30`."""
    read = in_portion(int(found["h"]), int(found["m"]), _PORTIONS[found["p"]])
    return (_marked(read, found),) if isinstance(read, Clock) else (read,)


CLOCK_RULES: list[Rule] = [
    rule(r"(?P<first>[0-9]{1,2}) ?(?:-|到|至) ?(?P<last>[0-9]{1,2}) ?(?:点|时)", whole_hours),
    rule(rf"{_AT}{_PORTION} ?的? ?{_HOUR}{_MINUTE}", _in_portion),
    rule(rf"{_AT}{_HOUR}{_MINUTE}", _alone),
    rule(rf"{_AT}{_PORTION} ?的? ?(?P<h>[0-9]{{1,2}})[:.](?P<m>[0-9]{{2}})(?![0-9:])", _written),
    rule(rf"{_AT}(?:中午|正午)(?![0-9一二两十])", Clock(12)),
    rule(rf"{_AT}(?:半夜|午夜|深夜|子夜)(?:12点|十二点|零点|0点)?", Clock(0, midnight=True)),
    rule(
        rf"{_AT}(?:半夜|深夜|后半夜) ?{_HOUR}{_MINUTE}",
        lambda m: (Clock(number(m["h"]) % 24, _minute(m), sure="open"),),
    ),
    *(
        rule(rf"{word}(?![餐饭班会报操茶安好])", PartOfDay(portion))
        for word, portion in _PORTIONS.items()
        if len(word) > 1 and portion != "noon"
    ),
]


# Days.

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


_DAYS_PORTIONS: dict[str, Portion] = {"早上?": "morning", "晚上?": "night", "夜": "night"}
_MONTH_ENDS = {
    r"(?:最后一?天|月底|月末)": "L",
    rf"最后一?个?{_WORKING}": "LW",
    rf"(?:第一个?|首个){_WORKING}": "1W",
}
_OF_WEEK = rf"{_WEEK}的?{_WEEK}?(?P<day>{_NAME})"
_MONTHLY = r"每一?个?月的?"
DAYS_RULES: list[Rule] = [
    rule(r"每一?[天日](?:一次)?的?|天天", Daily()),
    *(
        each
        for word, portion in _DAYS_PORTIONS.items()
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


# Intervals, delays and limits.

_UNITS = {
    "小": timedelta(hours=1),
    "钟": timedelta(hours=1),
    "分": timedelta(minutes=1),
    "秒": timedelta(seconds=1),
}
_UNIT = r"(?:小时|钟头|分钟|分(?![析享配类发组种成期之家店开手别布散解])|秒钟?)"
_PIECE = rf"(?:{NUMBER} ?个?半?{_UNIT}半?|半个?(?:小时|钟头|分钟)|[一三]刻钟)"
DURATION = rf"(?P<d>{_PIECE}(?:(?:零|又|和)? ?{_PIECE}){{0,3}})"


def duration(text: str) -> timedelta:
    total = timedelta(0)
    pattern = rf"半个?({_UNIT})|([一三])刻钟|({NUMBER}) ?个?(半)?({_UNIT})(半)?"
    for item in re.finditer(pattern, text):
        if item[1]:
            total += _UNITS[item[1][0]] / 2
        elif item[2]:
            total += timedelta(minutes=15 if item[2] == "一" else 45)
        else:
            unit = _UNITS[item[5][0]]
            total += unit * number(item[3]) + unit / 2 * (bool(item[4]) + bool(item[6]))
    return total


def _interval(found: re.Match[str]) -> tuple[Part, ...]:
    step = duration(found["d"])
    return (Interval(step) if step else NO_INTERVAL,)


def _delay(found: re.Match[str]) -> tuple[Part, ...]:
    after = duration(found["d"])
    return (Delay(after) if after else NO_INTERVAL,)


def _spans_minute(found: re.Match[str]) -> tuple[Part, ...]:
    minute = number(found["n"])
    return (AtMinutes(frozenset({minute})) if minute < 60 else IMPOSSIBLE,)


_EACH = r"每(?:隔|过)? ?"
_NO_UNIT_BEHIND = r"(?! ?(?:个|小|分|秒|钟|天|日|周|星|礼|月|年|号|刻|点|时|[0-9:.]))"
SPANS_RULES: list[Rule] = [
    rule(rf"{_EACH}{DURATION}(?:一次)?", _interval),
    rule(rf"{_EACH}个?(?:小时|钟头)(?:一次)?", Interval(timedelta(hours=1))),
    rule(rf"{_EACH}分钟(?:一次)?", Interval(timedelta(minutes=1))),
    rule(rf"{_EACH}秒钟?(?:一次)?", Interval(timedelta(seconds=1))),
    rule(rf"{_EACH}(?:几|数|若干)个?{_UNIT}", NO_INTERVAL),
    rule(rf"{_EACH}- ?[0-9]+ ?(?:个?{_UNIT})?", NO_INTERVAL),
    rule(rf"{_EACH}[0-9]+{_NO_UNIT_BEHIND}", NO_UNIT),
    rule(rf"(?:再?过|在)?{DURATION} ?(?:之后|以后|后)", _delay),
    rule(rf"再?过{DURATION}", _delay),
    rule(
        rf"{_EACH}(?:[一二两三四五六七八九]{{2}}|负{NUMBER}|[0-9]{{7,}}) ?个?{_UNIT}", NO_INTERVAL
    ),
    rule(rf"{_EACH}{NUMBER} ?(?:-|到|至|或) ?{NUMBER} ?个?{_UNIT}", AMBIGUOUS),
    rule(
        r"(?:周末|双休日|法定|节?假日|假期|节日|国庆|春节|周[一二三四五六日天])[^,。 ]{0,6}除外",
        LIMITED,
    ),
    rule(rf"[0-9]{{7,}} ?个?{_UNIT}(?:之后|以后|后)", NO_INTERVAL),
    rule(rf"再?过[0-9]+{_NO_UNIT_BEHIND}|[0-9]+ ?(?:之后|以后|后)(?![天台])", NO_UNIT),
    rule(rf"的?第(?P<n>{NUMBER}) ?分钟?(?:的时候|时)?", _spans_minute),
    rule(r"(?:的|在)?整点", AtMinutes(frozenset({0}))),
    rule(r"每到?个?整点", (Interval(timedelta(hours=1)), AtMinutes(frozenset({0})))),
    rule(r"大约|大概|约(?=[0-9早上下晚中])|差不多|接近", VAGUE),
    rule(
        r"(?<=[点半刻分钟0-9])"
        r"(?: ?(?:左右|前后|上下|多钟?|来钟|出头|光景|许(?![可愿多诺]))"
        r"|之?前(?![端台往沿])|以前|之?后(?!台)|以后)",
        AMBIGUOUS,
    ),
    rule(r"或者?(?:是)?|还是", ONE_OF),
    rule(r"从|自|在(?=.{1,8}之?间)", SPAN_OR_RESIDUE),
    rule(r"除[了去]?[^,。]{1,12}?(?:以外|之外|外)", LIMITED),
    rule(r"(?:除了?|不包括|不含|跳过)(?:法定)?(?:节假日|假期|节日|假日)", LIMITED),
    rule(r"除[了去]?|直到|不包括|截止到?|到|至|开始于?", RESIDUE),
    rule(
        rf"(?:连续|持续|为期|总?共|只) ?{NUMBER} ?(?:个?[天周月年次]|个?星期|个?礼拜)",
        LIMITED,
    ),
]


RULES = [*CLOCK_RULES, *DAYS_RULES, *SPANS_RULES]
#: Joining words without a meaning of their own.
JOINING = r"在|于|的|之间"
#: Conjunctions between two parts of one kind.
LISTING = r"和|及|与|以及|还有"
#: Requests; may precede the time words or stand between them.
REQUEST = re.compile(
    r"(?:请你?|麻烦你?|帮我|提醒我|叫我|通知我|告诉我|给我|我要|我想要?|让我|记得|设置|定时)"
)
