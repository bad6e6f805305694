"""The grammar of Chinese."""

from __future__ import annotations

import re
from datetime import timedelta

from chimes.language.parser import parts, rules
from chimes.language.parser.rules import Common, Grammar, Parts, Rule, rule
from chimes.language.parser.text import is_chinese

# Numerals up to 99, in digits or characters.

_DIGITS = {"零": 0, "〇": 0, "一": 1, "二": 2, "两": 2, "三": 3, "四": 4, "五": 5, "六": 6}
_DIGITS |= {"七": 7, "八": 8, "九": 9}
_ONE = "[一二两三四五六七八九]"
WORD = rf"(?:{_ONE}?十{_ONE}?|廿{_ONE}?|卅{_ONE}?|[零〇]?{_ONE}|[零〇])"
NUMBER = rf"(?:[0-9]{{1,6}}|{WORD})"


def number(text: str) -> int:
    if text.isdigit() and text.isascii():
        return int(text)
    text = text.replace("廿", "二十").replace("卅", "三十")
    tens, ten, ones = text.rpartition("十")
    if not ten:
        return _DIGITS[text[-1]]
    return (_DIGITS[tens] if tens else 1) * 10 + (_DIGITS[ones] if ones else 0)


# Durations.

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


# Times of day.

_PORTIONS: dict[str, parts.Portion] = {
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
    minute = found["m"] or found["m2"] or found["m3"]
    return number(minute) if minute else 0


def _alone(found: re.Match[str]) -> Parts:
    """`9点` is the morning; 12点 and the small hours lead to a question unless written as 03点."""
    hour, minute = number(found["h"]), _minute(found)
    if found["unsure"]:
        return (parts.AMBIGUOUS,)
    read = rules.clock(hour, minute)
    if not isinstance(read, parts.Clock):
        return (read,)
    written = found["h"].startswith("0") or hour in (0, *range(13, 24))
    is_open = not written and (1 <= hour <= _LAST_OPEN or hour == 12)
    certainty: parts.Certainty = "certain" if written else "open" if is_open else "usual"
    whole = not (found["half"] or found["q"] or found["m"] or found["m2"] or found["m3"])
    return (parts.Clock(hour, minute, certainty=certainty, marked=bool(found["at"]), whole=whole),)


def _in_portion(found: re.Match[str]) -> Parts:
    if found["unsure"]:
        return (parts.AMBIGUOUS,)
    read = rules.in_portion(number(found["h"]), _minute(found), _PORTIONS[found["p"]])
    return rules.marked(read, found)


def _written(found: re.Match[str]) -> Parts:
    """`晚上8:30`."""
    return rules.marked(
        rules.in_portion(int(found["h"]), int(found["m"]), _PORTIONS[found["p"]]), found
    )


_CLOCK_RULES: list[Rule] = [
    rule(r"(?P<first>[0-9]{1,2}) ?(?:-|到|至) ?(?P<last>[0-9]{1,2}) ?(?:点|时)", rules.whole_hours),
    rule(rf"{_AT}{_PORTION} ?的? ?{_HOUR}{_MINUTE}", _in_portion),
    rule(rf"{_AT}{_HOUR}{_MINUTE}", _alone),
    rule(rf"{_AT}{_PORTION} ?的? ?(?P<h>[0-9]{{1,2}})[:.](?P<m>[0-9]{{2}})(?![0-9:])", _written),
    rule(rf"{_AT}(?:中午|正午)(?![0-9一二两十])", parts.Clock(12)),
    rule(rf"{_AT}(?:半夜|午夜|深夜|子夜)(?:12点|十二点|零点|0点)?", parts.Clock(0, midnight=True)),
    rule(
        rf"{_AT}(?:半夜|深夜|后半夜) ?{_HOUR}{_MINUTE}",
        lambda m: (parts.Clock(number(m["h"]) % 24, _minute(m), certainty="open"),),
    ),
    *(
        rule(rf"{word}(?![餐饭班会报操茶安好])", parts.PartOfDay(portion))
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
    bare = re.sub(r"每一?个?|逢", "", text)
    return rules.numbers_of(rf"{_WEEK}?({_NAME})(?:{_TO}{_WEEK}?({_NAME}))?", _DAY_NAMES, bare)


_common = Common(number, weekdays, duration, NUMBER)
_DAY_NUMBER = rf"(?:[0-9]{{1,2}}(?![0-9:.])|{NUMBER})"
_DAY_NUMBERS = (
    rf"(?P<days>{_DAY_NUMBER} ?[号日]?(?: ?(?:、|,|和|及|与) ?{_DAY_NUMBER} ?[号日]?){{0,9}})"
    r"(?<=[号日])"
)


def _from_end(found: re.Match[str]) -> Parts:
    back = number(found["n"]) - 1
    if not 0 <= back <= 30:
        return (parts.NO_DATE,)
    return (parts.MonthDays((f"L-{back}" if back else "L",), every=True),)


_NTH = rf"(?:第(?P<n>{NUMBER})个?|(?P<last>最后一?个?)|首个)的?(?P<w>{_W})"


def _date(found: re.Match[str]) -> Parts:
    year = None
    if found["year"]:
        if len(found["year"]) != 4:
            return (parts.AMBIGUOUS,)
        digits = "".join(str(number(each)) for each in found["year"])
        year = rules.christian_year(int(digits), buddhist=found["era"] == "佛历")
    return _common.date(found, year, number(found["month"]), every=bool(found["every"]))


_SHORT_PORTIONS: dict[str, parts.Portion] = {"早上?": "morning", "晚上?": "night", "夜": "night"}
_MONTH_ENDS = {
    r"(?:最后一?天|月底|月末)": "L",
    rf"最后一?个?{_WORKING}": "LW",
    rf"(?:第一个?|首个){_WORKING}": "1W",
}
_OF_WEEK = rf"{_WEEK}的?{_WEEK}?(?P<w>{_NAME})"
_MONTHLY = r"每一?个?月的?"
_DAY_RULES: list[Rule] = [
    rule(r"每一?[天日](?:一次)?的?|天天", parts.Daily()),
    *(
        each
        for word, portion in _SHORT_PORTIONS.items()
        for each in (
            rule(rf"每{word}", (parts.Daily(), parts.PartOfDay(portion))),
            rule(rf"今{word}(?!上)", (parts.RelativeDay(0), parts.PartOfDay(portion))),
            rule(rf"明{word}(?!上)", (parts.RelativeDay(1), parts.PartOfDay(portion))),
        )
    ),
    rule(rf"{_EVERY}?{_WORKING}", parts.WORKING_DAYS),
    rule(r"(?:每个?|每?逢)?(?:周末|双休日)", parts.WEEKEND),
    rule(rf"(?:每一?个?|每?逢)(?P<list>{_LIST})", _common.named(every=True)),
    rule(rf"(?P<list>{_LIST})", _common.named(every=False)),
    rule(rf"每一?个?{_WEEK}(?![日一二三四五六天1-7末])的?", parts.Period("week")),
    rule(_MONTHLY, parts.Period("month")),
    rule(r"每一?年的?", parts.Period("year")),
    rule(
        rf"每隔? ?(?:{NUMBER}|几|数) ?(?:天|日|周|个?星期|个?礼拜|个?月|年)(?!号)"
        r"|隔[天日周]|每隔一?[天日周月年]|每个?季度?|单日|双日|单周|双周",
        parts.NO_INTERVAL,
    ),
    rule(rf"{_MONTHLY}{_DAY_NUMBERS}", _common.month_days(every=True)),
    rule(_DAY_NUMBERS, _common.month_days(every=False)),
    rule(rf"{_MONTHLY}第(?P<days>{NUMBER})天", _common.month_days(every=True)),
    rule(rf"{_MONTHLY}倒数第(?P<n>{NUMBER})天", _from_end),
    rule(r"每个?(?:月底|月末)", parts.MonthDays(("L",), every=True)),
    *(
        each
        for word, term in _MONTH_ENDS.items()
        for each in (
            rule(rf"{_MONTHLY}{word}", parts.MonthDays((term,), every=True)),
            rule(word, parts.MonthDays((term,), every=False)),
        )
    ),
    rule(rf"{_MONTHLY}{_NTH}", _common.nth_weekday(every=True)),
    rule(_NTH, _common.nth_weekday(every=False)),
    rule(r"(?:每个?)?月(?:初|中旬?|上旬|下旬)", parts.Problem(("date",))),
    rule(
        r"(?P<every>每年的?)?(?:(?P<era>佛历|公元)? ?"
        r"(?P<year>[0-9]{4}|[0-9]{2}|[〇零一二三四五六七八九]{2,4}) ?年)? ?"
        rf"(?P<month>{NUMBER}) ?月 ?(?P<day>{NUMBER}) ?[日号](?: ?\(?(?P<w>{_W})\)?)?",
        _date,
    ),
    rule(r"今天|今日|当天", parts.RelativeDay(0)),
    rule(r"明天|明日", parts.RelativeDay(1)),
    rule(r"后天", parts.RelativeDay(2)),
    rule(r"大后天", parts.RelativeDay(3)),
    rule(r"[今明后]天的[今明后]天", parts.AMBIGUOUS),
    rule(rf"昨[天日晚]|前天|上个?{_W}", parts.YESTERDAY),
    rule(rf"(?P<n>{NUMBER}) ?(?P<u>天|周|个?星期|个?礼拜){_LATER}", _common.ahead("天")),
    rule(rf"下一?个?{_OF_WEEK}", _common.week(1)),
    rule(rf"下下个?{_OF_WEEK}", _common.week(2)),
    rule(rf"(?:本|这个?){_OF_WEEK}", _common.week(0)),
    rule(rf"下个?月的?(?P<day>{_DAY_NUMBER}) ?[号日]", _common.month_day(1)),
    rule(rf"(?:本|这个?|当)月的?(?P<day>{_DAY_NUMBER}) ?[号日]", _common.month_day(0)),
    rule(
        r"(?:下一?个?(?:周|星期|礼拜)(?![日一二三四五六天1-7])|下个?月(?![0-9])|明年)",
        parts.Problem(("date",), loose=True),
    ),
    rule(r"(?:只|仅)?一次(?!性)", parts.OnlyOnce()),
]


# Intervals, delays and limits.

_EACH = r"每(?:隔|过)? ?"
_NO_UNIT_BEHIND = r"(?! ?(?:个|小|分|秒|钟|天|日|周|星|礼|月|年|号|刻|点|时|[0-9:.]))"
_INTERVAL_RULES: list[Rule] = [
    rule(rf"{_EACH}{DURATION}(?:一次)?", _common.interval),
    rule(rf"{_EACH}个?(?:小时|钟头)(?:一次)?", parts.Interval(timedelta(hours=1))),
    rule(rf"{_EACH}分钟(?:一次)?", parts.Interval(timedelta(minutes=1))),
    rule(rf"{_EACH}秒钟?(?:一次)?", parts.Interval(timedelta(seconds=1))),
    rule(rf"{_EACH}(?:几|数|若干)个?{_UNIT}", parts.NO_INTERVAL),
    rule(rf"{_EACH}- ?[0-9]+ ?(?:个?{_UNIT})?", parts.NO_INTERVAL),
    rule(rf"{_EACH}[0-9]+{_NO_UNIT_BEHIND}", parts.NO_UNIT),
    rule(rf"(?:再?过|在)?{DURATION} ?(?:之后|以后|后)", _common.delay),
    rule(rf"再?过{DURATION}", _common.delay),
    rule(
        rf"{_EACH}(?:[一二两三四五六七八九]{{2}}|负{NUMBER}|[0-9]{{7,}}) ?个?{_UNIT}",
        parts.NO_INTERVAL,
    ),
    rule(rf"{_EACH}{NUMBER} ?(?:-|到|至|或) ?{NUMBER} ?个?{_UNIT}", parts.AMBIGUOUS),
    rule(
        r"(?:周末|双休日|法定|节?假日|假期|节日|国庆|春节|周[一二三四五六日天])[^,。 ]{0,6}除外",
        parts.LIMITED,
    ),
    rule(rf"[0-9]{{7,}} ?个?{_UNIT}(?:之后|以后|后)", parts.NO_INTERVAL),
    rule(rf"再?过[0-9]+{_NO_UNIT_BEHIND}|[0-9]+ ?(?:之后|以后|后)(?![天台])", parts.NO_UNIT),
    rule(rf"的?第(?P<n>{NUMBER}) ?分钟?(?:的时候|时)?", _common.minute),
    rule(r"(?:的|在)?整点", parts.AtMinutes(frozenset({0}))),
    rule(r"每到?个?整点", (parts.Interval(timedelta(hours=1)), parts.AtMinutes(frozenset({0})))),
    rule(r"大约|大概|约(?=[0-9早上下晚中])|差不多|接近", parts.VAGUE),
    rule(
        r"(?<=[点半刻分钟0-9])"
        r"(?: ?(?:左右|前后|上下|多钟?|来钟|出头|光景|许(?![可愿多诺]))"
        r"|之?前(?![端台往沿])|以前|之?后(?!台)|以后)",
        parts.AMBIGUOUS,
    ),
    rule(r"或者?(?:是)?|还是", parts.VAGUE),
    rule(r"从|自|在(?=.{1,8}之?间)", parts.SPAN_OR_RESIDUE),
    rule(r"除[了去]?[^,。]{1,12}?(?:以外|之外|外)", parts.LIMITED),
    rule(r"(?:除了?|不包括|不含|跳过)(?:法定)?(?:节假日|假期|节日|假日)", parts.LIMITED),
    rule(r"除[了去]?|直到|不包括|截止到?|到|至|开始于?", parts.RESIDUE),
    rule(
        rf"(?:连续|持续|为期|总?共|只) ?{NUMBER} ?(?:个?[天周月年次]|个?星期|个?礼拜)",
        parts.LIMITED,
    ),
]


# Recipients.

_END = r"(?=$|[ ,.;!),。;!)、]|如果|若|一旦|并|然后|吧)"
_SENDS = r"(?:发送|发布|发(?![现生展票])|推送|转发|通知|提醒|告诉|报告)"
_MAIL = r"(?:电子邮件|电邮|邮件|e-?mail)"

GRAMMAR = Grammar(
    code="zh",
    name="chinese",
    examples=(
        "每天早上9点总结新闻",
        "明天下午3点开会",
        "每周一 08:30 发送报告",
        "每隔15分钟检查网站",
    ),
    script=is_chinese,
    weight=3,
    rules=[*_CLOCK_RULES, *_DAY_RULES, *_INTERVAL_RULES],
    duration=duration,
    joining="在|于|的|之间",
    listing="和|及|与|以及|还有",
    ranging="到|至",
    between_and="和|与",
    request="请你?|麻烦你?|帮我|提醒我|叫我|通知我|告诉我|给我|我要|我想要?|让我|记得|设置|定时",
    local_time="(?:本地|当地)时间",
    place_time="(?P<place>PLACES|utc) ?(?:当地)?时间",
    unknown_zone=(
        r"[ ,(]*(?!休息|吃|用|服|上[课班]|下[课班]|学习|阅读|睡|午|晚餐|早餐|亲子|自由|茶歇|会议"
        r"|故事|家庭|运动|锻炼|打卡|截止|开会|起床|检查|整理|发送)[\u4e00-\u9fff]{2,5}时间"
        r"(?!表|管理|线|到|轴)"
    ),
    numeral=f"{WORD}|[百千万几数]",
    first_number=WORD,
    unit="小时|钟头|分钟|秒|天|周|星期|礼拜|月|年",
    number_link="[或到至和又加零点]",
    range_link="[到至]",
    negation=(
        "农历|阴历|旧历|(?<!要)不|不是|不要|不用|不必|别|勿|至少|最多|少于|多于|不到|不超过|超过|将近|接近"
        "|取消|停止"
    ),
    before="[和及与的]",
    which_before="[这本下上]个?",
    year_before="(?:年|月)(?:之?后|以后)?",
    left_over=(
        r"(?:和|及|到|至) ?(?:at )?[0-9]|或|[两二三四]次"
        r"|除了|除去|除非|直到|仅限|左右|之间|期间|早晚|不到|刚过|差(?=[0-9一二两三四五六七八九十])"
        r"|[加减](?=[0-9一二两三四五六七八九十])|多钟|半(?!小时|个|天|年|价|程|马|场|夜|身|球)"
        r"|起(?![床飞草身来诉航跑步夜锅驾名重火])"
        r"|[0-9一二两三四五六七八九十]+ ?(?:点|分(?!析|享|配|类)|小时|秒|号|刻"
        r"|(?:天|周)(?=[后内之以, ]|一次|$))"
    ),
    lasting=f"(?:持续|连续|为期|共) ?{DURATION}",
    about="关于|的",
    every="每|逢",
    then="然后|再|并",
    unread_every="每(?!个?人|位|家|名)",
    of_task=r"每[日天周月年](?=[\u4e00-\u9fff])",
    recipients=(
        (
            "telegram",
            rf"{_SENDS}.*?(?:到|至|给|去) ?(?:我的?)? ?{rules.TELEGRAM}"
            rf" ?(?:群组?|频道|上|里)?{_END}",
        ),
        (
            "telegram",
            rf"(?:通过|用|在|走) ?(?:我的)? ?{rules.TELEGRAM} ?上? ?{_SENDS}(?:给)?"
            r" ?(?:我|$|[,。,])",
        ),
        (
            "email",
            rf"(?:发送?|推送|转发).*?(?:到|至) ?我?的? ?(?:电子)?(?:邮箱|{_MAIL}){_END}"
            rf"|发送?(?:一?封)? ?{_MAIL} ?给 ?我|给我发送?(?:一?封)? ?{_MAIL}",
        ),
        ("email", rf"(?:通过|用|以) ?{_MAIL} ?(?:的?方式)? ?{_SENDS}(?:给)? ?我"),
        ("inbox", rf"(?:{_SENDS}|放).*?(?:到|进|至|入) ?我?的? ?收件箱{_END}"),
    ),
    to_address=rf"{_SENDS}.*?(?:到|给|至) ?|给 ?(?={rules.ADDRESS} ?发)",
    no_recipient="不要|不用|别(?!的)|无需|停止",
    on_failure=(
        "(?:如果|若是?|一旦|要是)?(?:失败|出错|出问题|报错|挂了)(?:时|了|的话|就|则|的时候|才)"
        "|(?:如果|若是?|一旦|要是)(?:失败|出错|出问题|报错|挂)"
    ),
)
