"""Chinese: intervals, delays, and words that limit a schedule."""

from __future__ import annotations

import re
from datetime import timedelta

from chimes.language.parsing.parts import AtMinutes, Delay, Interval, Part
from chimes.language.parsing.rules import (
    AMBIGUOUS,
    IMPOSSIBLE,
    LIMITED,
    NO_INTERVAL,
    NO_UNIT,
    ONE_OF,
    RESIDUE,
    SPAN_OR_RESIDUE,
    VAGUE,
    Rule,
    rule,
)
from chimes.language.parsing.zh_numbers import NUMBER, number

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


def _minute(found: re.Match[str]) -> tuple[Part, ...]:
    minute = number(found["n"])
    return (AtMinutes(frozenset({minute})) if minute < 60 else IMPOSSIBLE,)


_EACH = r"每(?:隔|过)? ?"
_NO_UNIT_BEHIND = r"(?! ?(?:个|小|分|秒|钟|天|日|周|星|礼|月|年|号|刻|点|时|[0-9:.]))"
RULES: list[Rule] = [
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
    rule(rf"的?第(?P<n>{NUMBER}) ?分钟?(?:的时候|时)?", _minute),
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
