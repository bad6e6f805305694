"""Phrases that skip periods or count business days: every other Tuesday, every 3rd month, the third
business day of the month, the last workday of the quarter.

Such words are replaced by those of the nearest phrase that the grammar reads (every other Tuesday:
every Tuesday), and the trigger of that phrase is changed accordingly.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Literal

from chimes.language.parser.parts import Unclear
from chimes.language.parser.text import Text
from chimes.triggers import BusinessDay, Cron, RRule, Trigger
from chimes.triggers.rrule_text import WEEKDAYS

Unit = Literal["DAILY", "WEEKLY", "MONTHLY", "quarter", "business", "plain"]
#: What is a guess: the period with which it begins, the half of the day.
Guess = Literal["start", "hour"]


@dataclass(frozen=True, slots=True)
class Repeated:
    """A trigger, the words around the phrase, and what was guessed."""

    text: str
    trigger: Callable[[Trigger, datetime], Trigger]
    guesses: tuple[Guess, ...]


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    unit: Unit
    #: With {n} for the number.
    words: str


_NUMBERS = {
    "first": 1,
    "other": 2,
    "second": 2,
    "third": 3,
    "fourth": 4,
    "fifth": 5,
    "sixth": 6,
    "two": 2,
    "three": 3,
    "four": 4,
    "six": 6,
    "หนึ่ง": 1,
    "สอง": 2,
    "สาม": 3,
    "สี่": 4,
    "ห้า": 5,
    "หก": 6,
    "一": 1,
    "二": 2,
    "两": 2,
    "三": 3,
    "四": 4,
    "五": 5,
    "六": 6,
}
_EN = r"(?P<n>other|second|third|fourth|sixth|two|three|four|six|[0-9]{1,2}(?:st|nd|rd|th)?)"
_NTH = r"(?P<n>first|second|third|fourth|fifth|[0-9]{1,2}(?:st|nd|rd|th)?)"
_DAY = r"(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?s?\b"
_TH = r"(?P<n>[0-9]{1,2}|สอง|สาม|สี่|ห้า|หก)"
_TH_DAY = "(?:จันทร์|อังคาร|พุธ|พฤหัส|ศุกร์|เสาร์|อาทิตย์|หยุด)"
_ZH = r"(?P<n>[0-9]{1,2}|[一二两三四五六])"
_OF_MONTH = r"of (?:the|each|every) month\b"
_WORKDAY = r"(?:business|working|work)[ -]?day|weekday"


def _rule(pattern: str, unit: Unit, words: str) -> _Rule:
    return _Rule(re.compile(pattern), unit, words)


#: The first that is found applies.
_RULES = (
    _rule(
        rf"\b(?:on )?(?:the )?last (?:{_WORKDAY}) of (?:the|each|every) quarter\b",
        "quarter",
        "on the last weekday of every month",
    ),
    _rule(
        r"\b(?:on )?(?:the )?last day of (?:the|each|every) quarter\b",
        "quarter",
        "on the last day of every month",
    ),
    _rule(
        rf"\b(?:on )?(?:the )?last (?:{_WORKDAY}) {_OF_MONTH}",
        "plain",
        "on the last weekday of every month",
    ),
    _rule(
        rf"\b(?:on )?(?:the )?{_NTH} (?:business|working|work)[ -]?day {_OF_MONTH}",
        "business",
        "on day {n} of every month",
    ),
    _rule(
        rf"\b(?:on )?(?:business|working|work)[ -]?day (?P<n>[0-9]{{1,2}}) {_OF_MONTH}",
        "business",
        "on day {n} of every month",
    ),
    # "Every second Tuesday" may be that of the month.
    _rule(rf"\bevery other (?={_DAY})(?!.*{_OF_MONTH})", "WEEKLY", "every "),
    _rule(rf"\bevery {_EN} weeks?\b", "WEEKLY", "every week"),
    _rule(rf"\bevery {_EN} days?\b", "DAILY", "every day"),
    _rule(rf"\bevery {_EN} months?\b", "MONTHLY", "every month"),
    _rule(r"(?:ทุก)?วันทำการสุดท้ายของ(?:ทุก|แต่ละ)?ไตรมาส", "quarter", "ทุกเดือนวันทำการสุดท้าย"),
    _rule(r"(?:ทุก)?วันทำการสุดท้ายของ(?:ทุก|แต่ละ)?เดือน", "plain", "ทุกเดือนวันทำการสุดท้าย"),
    _rule(
        r"(?:ทุก)?วันทำการที่ ?(?P<n>[0-9]{1,2}) ?ของ(?:ทุก|แต่ละ)?เดือน",
        "business",
        "ทุกวันที่ {n} ของเดือน",
    ),
    _rule(rf"ทุก ?{_TH} ?(?:สัปดาห์|อาทิตย์)", "WEEKLY", "ทุกสัปดาห์"),
    _rule(r"(?<=[ก-๛]) ?เว้น(?:สัปดาห์|อาทิตย์)", "WEEKLY", ""),
    _rule(rf"(?:ทุก)?วันเว้นวัน(?!{_TH_DAY})", "DAILY", "ทุกวัน"),
    _rule(rf"ทุก ?{_TH} ?วัน(?=[ 0-9])", "DAILY", "ทุกวัน"),
    _rule(rf"ทุก ?{_TH} ?เดือน", "MONTHLY", "ทุกเดือน"),
    _rule(r"每个?季度的?(?:最后一个|最后)工作日", "quarter", "每月最后一个工作日"),
    _rule(rf"每个?月的?第 ?{_ZH} ?个工作日", "business", "每月{n}号"),
    _rule(r"每隔(?:一|1)个?(?:周|星期|礼拜)的?(?=周|星期|礼拜)", "WEEKLY", "每"),
    _rule(rf"每 ?{_ZH} ?个?(?:周|星期|礼拜)的?(?=周|星期|礼拜)", "WEEKLY", "每"),
    _rule(r"每隔(?:一|1)天", "DAILY", "每天"),
    _rule(rf"每 ?{_ZH} ?天", "DAILY", "每天"),
    _rule(rf"每 ?{_ZH} ?个月的?", "MONTHLY", "每月"),
)
#: A bare hour in the morning, which such phrases take as that.
_HOUR = re.compile(r"\bat ([6-9]|1[01])(?![0-9:.]| ?[ap]\.?m)")
#: How a description says with which period it begins.
_START = re.compile(r",? (?:from|เริ่ม|自) ?([0-9]{4}-[0-9]{2}-[0-9]{2})(?: on| 起|起)?")


def counts_business_days(text: Text) -> bool:
    """Whether the text names a business day by its number, or a quarter: the grammar would read
    the number as a date."""
    return any(
        rule.unit in ("business", "quarter") and rule.pattern.search(text.folded) for rule in _RULES
    )


def find_recurrence(text: Text) -> Repeated | None:
    """The phrase in the text, if there is one."""
    for rule in _RULES:
        found = rule.pattern.search(text.folded)
        if found is None:
            continue
        number = _number(found.groupdict().get("n"))
        if rule.unit in ("DAILY", "WEEKLY", "MONTHLY") and number < 2:
            return None
        edits = [(found.start(), found.end(), rule.words.format(n=number))]
        guesses: list[Guess] = []
        begins = _START.search(text.folded)
        if rule.unit in ("DAILY", "WEEKLY", "MONTHLY"):
            if begins is not None and begins.start() >= found.end():
                edits.append((begins.start(), begins.end(), ""))
            else:
                guesses.append("start")
                begins = None
            if hour := _HOUR.search(text.folded):
                edits.append((hour.start(), hour.end(), f"at {int(hour[1]):02d}:00"))
                guesses.append("hour")
        changed = text.raw
        for start, end, words in sorted(edits, reverse=True):
            changed = f"{changed[: text.origin[start]]}{words}{changed[text.origin[end] :]}"
        day = None if begins is None else begins[1]

        def change(trigger: Trigger, now: datetime) -> Trigger:
            return _changed(trigger, rule.unit, number, now, day)  # noqa: B023

        return Repeated(changed, change, tuple(guesses))
    return None


def _number(text: str | None) -> int:
    if text is None:
        return 2
    return _NUMBERS.get(text) or int(re.sub(r"[a-z]", "", text))


def _changed(
    trigger: Trigger, unit: Unit, number: int, now: datetime, begins: str | None
) -> Trigger:
    """The trigger of the phrase, from that of the nearest one."""
    if unit == "plain":
        return trigger
    if not isinstance(trigger, Cron):
        raise Unclear("interval")
    fields = trigger.expression.split(" ")
    if len(fields) != 5 or any(each in field for field in fields[:2] for each in "*/-"):
        raise Unclear("interval")
    minute, hour, day, month, weekday = fields
    if unit == "quarter":
        if month != "*":
            raise Unclear("contradiction")
        return Cron(f"{minute} {hour} {day} 3,6,9,12 {weekday}", timezone=trigger.zone)
    if unit == "business":
        if day != str(number) or "," in minute + hour or month != "*":
            raise Unclear("interval")
        if number == 1:
            return Cron(f"{minute} {hour} 1W * *", timezone=trigger.zone)
        at = f"{int(hour):02d}:{int(minute):02d}"
        return BusinessDay(number, at=at, timezone=trigger.zone)
    if month != "*":
        raise Unclear("interval")
    rule = f"FREQ={unit};INTERVAL={number}{_by_days(unit, trigger, day, weekday)}"
    if "," in minute or "," in hour:
        rule += f";BYHOUR={hour};BYMINUTE={minute}"
    return RRule(rule, dtstart=_start(trigger, now, begins), timezone=trigger.zone)


def _by_days(unit: Unit, trigger: Cron, day: str, weekday: str) -> str:
    """The part of the rule that names its days."""
    if unit == "DAILY" and (day, weekday) == ("*", "*"):
        return ""
    if unit == "WEEKLY" and day == "*" and re.fullmatch(r"[0-6](?:[,-][0-6])*", weekday):
        return f";BYDAY={_by_day(trigger)}"
    if unit == "MONTHLY":
        return _by_month_day(day, weekday)
    raise Unclear("interval")


def _by_day(trigger: Cron) -> str:
    """The weekdays on which it fires, within two weeks."""
    week = [datetime(2026, 1, 5 + day, tzinfo=UTC) for day in range(7)]
    plain = Cron(trigger.expression, timezone="UTC")
    return ",".join(
        WEEKDAYS[each.weekday()]
        for each in week
        if (at := plain.next_after(each - timedelta(seconds=1))) is not None
        and at.date() == each.date()
    )


def _by_month_day(day: str, weekday: str) -> str:
    if weekday == "*" and re.fullmatch(r"[0-9]+(?:,[0-9]+)*", day):
        return f";BYMONTHDAY={day}"
    if (day, weekday) == ("L", "*"):
        return ";BYMONTHDAY=-1"
    if (day, weekday) == ("LW", "*"):
        return ";BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1"
    if day == "*" and (found := re.fullmatch(r"([0-6])(?:#([1-5])|(L))", weekday)):
        name = WEEKDAYS[(int(found[1]) - 1) % 7]
        return f";BYDAY={found[2] or '-1'}{name}"
    raise Unclear("date")


def _start(trigger: Cron, now: datetime, begins: str | None) -> str:
    """The next time of the phrase that is not skipped."""
    if begins is not None:
        hour, minute = (trigger.expression.split(" ")[place].split(",")[0] for place in (1, 0))
        return f"{date.fromisoformat(begins)}T{int(hour):02d}:{int(minute):02d}:00"
    at = trigger.next_after(now)
    if at is None:
        raise Unclear("date", "contradiction")
    return trigger.local(at).replace(tzinfo=None).isoformat()
