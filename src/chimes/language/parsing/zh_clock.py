"""Chinese: times of day (TIME "Words")."""

from __future__ import annotations

import re

from chimes.language.parsing.parts import Clock, Part, PartOfDay, Portion, Sure
from chimes.language.parsing.rules import AMBIGUOUS, Rule, clock, in_portion, rule, whole_hours
from chimes.language.parsing.zh_numbers import NUMBER, number

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
#: Nothing is counted with the number before this.
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
#: Up to here an hour alone may as well be in the afternoon.
_LAST_OPEN = 5


def _minute(found: re.Match[str]) -> int:
    if found["half"]:
        return 30
    if found["q"]:
        return 15 if found["q"] in "一1" else 45
    said = found["m"] or found["m2"] or found["m3"]
    return number(said) if said else 0


def _alone(found: re.Match[str]) -> tuple[Part, ...]:
    """`9点` is the morning; 12点 and the small hours are asked about unless written as 03点."""
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


RULES: list[Rule] = [
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
