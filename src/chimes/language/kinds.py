"""Descriptions of recurrence rules, business days, sunrise and sunset, and unions.

Their sentences are messages of the catalogues; names of days and lists come from the table of the
language.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from chimes.i18n import Message, _, counted, in_language
from chimes.language.words import Words
from chimes.triggers import AnyOf, BusinessDay, RRule, Sun, Trigger
from chimes.triggers.rrule_text import Rule, parse_rule

_WORKING = (0, 1, 2, 3, 4)
#: Times of the day that are listed one by one.
_MAX_CLOCKS = 6


def kind_in_words(
    trigger: AnyOf | RRule | BusinessDay | Sun,
    words: Words,
    lang: str,
    describe: Callable[[Trigger], str],
) -> str:
    """`describe` is for the parts of a union."""
    if isinstance(trigger, AnyOf):
        main = in_language(_union_in_words(trigger, describe), lang)
    elif isinstance(trigger, BusinessDay):
        main = _at_zone(_business_day(trigger), trigger.at, trigger.zone, words, lang)
        if trigger.calendar is not None:
            main = in_language(
                _("{rule}; workdays of {calendar}", rule=main, calendar=trigger.calendar), lang
            )
    elif isinstance(trigger, Sun):
        main = in_language(_sun(trigger, words), lang)
    else:
        main = _rrule(trigger, words, lang)
    return words.between.join([main + words.delay_words(trigger), *words.clauses(trigger, None)])


def _union_in_words(trigger: AnyOf, describe: Callable[[Trigger], str]) -> Message:
    parts = " / ".join(map(describe, trigger.of))
    if not trigger.except_:
        return _("Any of: {triggers}", triggers=parts)
    others = " / ".join(map(describe, trigger.except_))
    return _("Any of: {triggers}; but not when: {others}", triggers=parts, others=others)


def _business_day(trigger: BusinessDay) -> Message:
    if trigger.day == -1:
        return _("On the last business day of every month")
    if trigger.day < 0:
        return counted(
            "{count} business day before the last of every month",
            "{count} business days before the last of every month",
            -trigger.day - 1,
        )
    return _("On business day {number} of every month", number=trigger.day)


def _sun(trigger: Sun, words: Words) -> Message:
    place = f"{trigger.latitude:g}, {trigger.longitude:g}"
    rises = trigger.event == "sunrise"
    if not trigger.offset and rises:
        return _("At sunrise at {place}", place=place)
    if not trigger.offset:
        return _("At sunset at {place}", place=place)
    length = words.duration_words(abs(trigger.offset))
    if trigger.offset < timedelta(0):
        return (
            _("{duration} before sunrise at {place}", duration=length, place=place)
            if rises
            else _("{duration} before sunset at {place}", duration=length, place=place)
        )
    return (
        _("{duration} after sunrise at {place}", duration=length, place=place)
        if rises
        else _("{duration} after sunset at {place}", duration=length, place=place)
    )


def _at_zone(rule: Message, clock: str, zone: str, words: Words, lang: str) -> str:
    at = words.clocks.format(clocks=clock)
    return in_language(
        _(
            "{rule} {time}, {zone}",
            rule=in_language(rule, lang),
            time=at,
            zone=words.zone_words(zone),
        ),
        lang,
    )


def _rrule(trigger: RRule, words: Words, lang: str) -> str:
    rule = parse_rule(trigger.rule)
    text = _simple_rule(rule, trigger, words, lang)
    if text is None:
        text = in_language(
            _(
                "By the rule {rule} from {start} on, {zone}",
                rule=trigger.rule,
                start=trigger.dtstart,
                zone=words.zone_words(trigger.zone),
            ),
            lang,
        )
    notes: list[Message] = []
    if rule.most is not None:
        notes.append(counted("{count} time", "{count} times", rule.most))
    if rule.until is not None:
        notes.append(
            _("until {moment}", moment=str(rule.until.local)[: 10 if rule.until.whole_day else 16])
        )
    if trigger.exdates:
        notes.append(counted("without {count} date", "without {count} dates", len(trigger.exdates)))
    if trigger.rdates:
        notes.append(
            counted("with {count} more date", "with {count} more dates", len(trigger.rdates))
        )
    return words.between.join([text, *(in_language(each, lang) for each in notes)])


def _simple_rule(rule: Rule, trigger: RRule, words: Words, lang: str) -> str | None:
    """None for a rule whose parts have no words."""
    if rule.elapsed:
        if rule.names_days or rule.months or rule.hours or rule.minutes or rule.seconds:
            return None
        every = in_language(_every(rule), lang)
        return in_language(
            _("{every}, counted from {moment}", every=every, moment=trigger.dtstart), lang
        )
    if rule.seconds or rule.weeks or rule.year_days or rule.nth or trigger.dtstart.endswith("Z"):
        return None
    clocks = [
        f"{int(hour):02d}:{int(minute):02d}"
        for hour in rule.hours or (trigger.dtstart[11:13],)
        for minute in rule.minutes or (trigger.dtstart[14:16],)
    ]
    if len(clocks) > _MAX_CLOCKS:
        return None
    days = _days(rule, int(trigger.dtstart[8:10]), words, lang)
    if days is None:
        return None
    text = _at_zone(days, words.joined(clocks), trigger.zone, words, lang)
    if rule.interval == 1:
        return text
    # The first period decides which ones count.
    return in_language(_("{rule}, from {date} on", rule=text, date=trigger.dtstart[:10]), lang)


def _days(rule: Rule, start: int, words: Words, lang: str) -> Message | None:
    """The days of a rule whose DTSTART is on this day of the month."""
    every = in_language(_every(rule), lang)
    if rule.positions:
        if rule.freq != "MONTHLY" or rule.weekdays != _WORKING or rule.positions != (-1,):
            return None
        if rule.months == (3, 6, 9, 12) and rule.interval == 1 and not rule.month_days:
            return _("On the last workday of every quarter")
        if rule.months or rule.month_days:
            return None
        return _("{every} on its last workday", every=every)
    if rule.months or rule.freq == "YEARLY" or (rule.weekdays and rule.month_days):
        return None
    if rule.weekdays:
        names = [words.weekdays[(day + 1) % 7] for day in rule.weekdays]
        return _("{every} on {days}", every=every, days=words.joined(names))
    if rule.freq == "MONTHLY":
        if rule.month_days == (-1,):
            return _("{every} on the last day", every=every)
        dates = rule.month_days or (start,)
        if min(dates) > 0:
            return _("{every} on day {days}", every=every, days=words.joined([*map(str, dates)]))
        return None
    return None if rule.month_days or rule.freq == "WEEKLY" else _every(rule)


def _every(rule: Rule) -> Message:
    count = rule.interval
    match rule.freq:
        case "YEARLY":
            return counted("Every year", "Every {count} years", count)
        case "MONTHLY":
            return counted("Every month", "Every {count} months", count)
        case "WEEKLY":
            return counted("Every week", "Every {count} weeks", count)
        case "DAILY":
            return counted("Every day", "Every {count} days", count)
        case "HOURLY":
            return counted("Every hour", "Every {count} hours", count)
        case "MINUTELY":
            return counted("Every minute", "Every {count} minutes", count)
        case _:
            return counted("Every second", "Every {count} seconds", count)
