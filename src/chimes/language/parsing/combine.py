"""From a row of parts to what they say together; all or nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from chimes.language.parsing.asking import Ask
from chimes.language.parsing.parts import (
    AtMinutes,
    Clock,
    Daily,
    Date,
    Delay,
    InMonths,
    Interval,
    InZone,
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
    Span,
)
from chimes.language.parsing.rules import moved_hour
from chimes.language.parsing.scan import Phrase

#: A day that comes once.
SingleDay = Date | RelativeDay | RelativeWeekday | RelativeMonthDay
#: Days that come again.
Days = Daily | Named | MonthDays | Date
P = TypeVar("P")
_NIGHT_ENDS = 6
#: The hours of Thai that go with a portion: 9 โมงเช้า, บ่าย 3 โมง, 5 โมงเย็น.
_SIXES: dict[Portion, range] = {
    "morning": range(6, 12),
    "afternoon": range(1, 6),
    "evening": range(4, 7),
}


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a phrase says, checked for being one thing. Exactly one of three shapes:

    a delay; an interval, perhaps on some days and within some hours; clock times of a day.
    """

    zone: str | None = None
    delay: Delay | None = None
    interval: Interval | None = None
    span: Span | None = None
    minutes: AtMinutes | None = None
    clocks: tuple[Clock, ...] = ()
    #: The day, if it comes once.
    once: SingleDay | None = None
    #: The weekday that a date was said to be.
    weekday: int | None = None
    #: The days, if they come again.
    again: Days | None = None
    months: frozenset[int] = frozenset()


def meaning(phrase: Phrase) -> Meaning:
    """Raises Ask."""
    phrase = _with_spans(phrase)
    parts = phrase.parts
    problem = next((part for part in parts if isinstance(part, Problem)), None)
    if problem is not None:
        raise Ask(*problem.missing, choice=problem.choice)
    zone = _only([part.name for part in parts if isinstance(part, InZone)])
    delay = _only(_of(parts, Delay))
    if delay is not None:
        if not all(isinstance(part, Delay | InZone | OnlyOnce) for part in parts):
            raise Ask("contradiction")
        return Meaning(zone, delay=delay)
    said = _days(phrase)
    interval = _only(_of(parts, Interval))
    found = replace(
        said,
        zone=zone,
        interval=interval,
        span=_only(_of(parts, Span)),
        minutes=_only(_of(parts, AtMinutes)),
        clocks=_clocks(phrase),
    )
    if interval is not None:
        return _checked_interval(found, parts)
    return _checked_clocks(found, parts)


def _with_spans(phrase: Phrase) -> Phrase:
    """`from` read with what follows it, if that is a span or, for an interval, a time."""
    repeats = any(isinstance(part, Interval) for part in phrase.parts)
    parts: list[Part] = []
    listed: list[bool] = []
    for part, is_listed in zip(phrase.parts, phrase.listed, strict=True):
        before = parts[-1] if parts else None
        if isinstance(before, Problem) and before.opens_span:
            if isinstance(part, Span):
                parts[-1] = part
                continue
            if isinstance(part, Clock) and repeats:
                parts[-1] = Span(part, None)
                continue
        parts.append(part)
        listed.append(is_listed)
    return replace(phrase, parts=tuple(parts), listed=tuple(listed))


def _of(parts: Iterable[Part], kind: type[P]) -> list[P]:
    return [part for part in parts if isinstance(part, kind)]


def _only(found: list[P]) -> P | None:
    """The one thing that was said, perhaps twice."""
    if not found:
        return None
    if any(each != found[0] for each in found):
        raise Ask("contradiction")
    return found[0]


def _checked_interval(found: Meaning, parts: tuple[Part, ...]) -> Meaning:
    if found.once is not None or found.clocks or _of(parts, OnlyOnce):
        raise Ask("contradiction")
    if _of(parts, PartOfDay):
        raise Ask("ambiguous")
    return found


def _checked_clocks(found: Meaning, parts: tuple[Part, ...]) -> Meaning:
    if found.span is not None:
        raise Ask("ambiguous" if found.once else "interval")
    if found.minutes is not None:
        raise Ask("contradiction" if found.clocks else "time")
    if _of(parts, OnlyOnce) and found.again is not None:
        raise Ask("contradiction")
    days = found.once is not None or found.again is not None
    if not found.clocks:
        raise Ask("time") if days else Ask("date", "time")
    if not days:
        raise Ask("date")
    if found.once is not None:
        if len(found.clocks) > 1:
            raise Ask("ambiguous")
        if found.clocks[0].midnight:
            # Of which of the two nights around that day?
            raise Ask("ambiguous", choice="night")
    return found


def _clocks(phrase: Phrase) -> tuple[Clock, ...]:
    portions = {part.portion for part in phrase.parts if isinstance(part, PartOfDay)}
    if len(portions) > 1:
        raise Ask("contradiction")
    found: list[Clock] = []
    for part, listed in zip(phrase.parts, phrase.listed, strict=True):
        if not isinstance(part, Clock):
            continue
        if found and not listed and part not in found:
            raise Ask("contradiction")
        found.append(part)
    read = [_placed(each, portions) for each in found]
    ordered = sorted(set(read), key=lambda each: (each.hour, each.minute, each.second))
    return tuple(ordered)


def _placed(clock: Clock, portions: Iterable[Portion]) -> Clock:
    """The clock, on the half of the day that it was said to be in."""
    plain = replace(clock, sure="certain", marked=False, whole=False, sixes=False)
    for portion in portions:
        if clock.sixes and clock.hour not in _SIXES.get(portion, ()):
            raise Ask("ambiguous", readings=_halves(clock) if clock.sure == "open" else ())
        if clock.midnight:
            raise Ask("ambiguous")
        if clock.sure == "certain" and portion == "night" and clock.hour < _NIGHT_ENDS:
            # As good as midnight: the night before that day, or the one after it?
            return replace(plain, midnight=True)
        hour = moved_hour(clock.hour, portion)
        if clock.sure == "certain":
            # 9 am "in the evening" is moved, and so is no evening.
            allowed = clock.hour == hour or (clock.hour >= 12 and isinstance(hour, int))
            if not allowed or isinstance(hour, Problem):
                raise Ask("contradiction")
            return plain
        if isinstance(hour, Problem):
            raise Ask(*hour.missing)
        return replace(plain, hour=hour)
    if clock.sure == "open":
        raise Ask("ambiguous", readings=_halves(clock))
    return plain


def _halves(clock: Clock) -> tuple[str, str]:
    """The two times of day that an open hour may be."""
    late = clock.hour % 12 + 12
    early = clock.hour + 6 if clock.sixes and clock.hour < _NIGHT_ENDS else late - 12
    return f"{early:02}:{clock.minute:02}", f"{late:02}:{clock.minute:02}"


def _days(phrase: Phrase) -> Meaning:
    """Which days: of all day parts together, one reading."""
    parts = phrase.parts
    period = _only(_of(parts, Period))
    months = frozenset[int]().union(*(each.months for each in _of(parts, InMonths)))
    once: list[SingleDay] = [
        part
        for part in parts
        if isinstance(part, RelativeDay | RelativeWeekday | RelativeMonthDay)
        or (isinstance(part, Date) and not part.every and (period is None or period.unit != "year"))
    ]
    named = _named(phrase)
    month_days = _month_days(phrase)
    yearly = [
        replace(part, every=True)
        for part in _of(parts, Date)
        if part.every or (period is not None and period.unit == "year")
    ]
    daily = _of(parts, Daily)[:1]
    if daily and named and _is_each_of(parts, named):
        daily = []
    if once:
        return _once(once, named, bool(daily or month_days or yearly or period or months))
    kinds: list[Days] = [
        *daily,
        *([named] if named else []),
        *([month_days] if month_days else []),
        *yearly[:1],
    ]
    _only(list(yearly))
    if len(kinds) > 1:
        raise Ask("contradiction")
    if not kinds:
        if period is not None:
            raise Ask("date") if _of(parts, Clock) else Ask("date", "time")
        return Meaning(months=months)
    return Meaning(again=_recurring(kinds[0], period), months=months)


def _is_each_of(parts: tuple[Part, ...], named: Named) -> bool:
    """`周一到周五每天`: every one of the days that were named before."""
    kinds = [type(part) for part in parts if isinstance(part, Daily | Named)]
    return len(named.weekdays) > 1 and kinds[-1] is Daily and kinds.count(Daily) == 1


def _once(once: list[SingleDay], named: Named | None, others: bool) -> Meaning:
    day = _only(once)
    if others or (named is not None and (named.every or len(named.weekdays) > 1)):
        raise Ask("contradiction")
    weekday = None if named is None else next(iter(named.weekdays))
    return Meaning(once=day, weekday=weekday)


def _recurring(days: Days, period: Period | None) -> Days:
    unit = None if period is None else period.unit
    if isinstance(days, Daily):
        if unit is not None:
            raise Ask("contradiction")
    elif isinstance(days, Named):
        if unit not in (None, "week"):
            raise Ask("contradiction")
        if not days.every and unit is None and len(days.weekdays) == 1:
            # The coming one, or every one?
            raise Ask("ambiguous", choice="weekly")
    elif isinstance(days, MonthDays):
        if unit not in (None, "month"):
            raise Ask("contradiction")
        if not days.every and unit is None:
            raise Ask("date")
    return days


def _named(phrase: Phrase) -> Named | None:
    found: Named | None = None
    for part, listed in zip(phrase.parts, phrase.listed, strict=True):
        if not isinstance(part, Named):
            continue
        if found is None or part.weekdays == found.weekdays:
            found = Named(part.weekdays, part.every or (found is not None and found.every))
        elif listed:
            found = Named(found.weekdays | part.weekdays, found.every or part.every)
        else:
            raise Ask("contradiction")
    return found


def _month_days(phrase: Phrase) -> MonthDays | None:
    found: MonthDays | None = None
    for part, listed in zip(phrase.parts, phrase.listed, strict=True):
        if not isinstance(part, MonthDays):
            continue
        if found is None:
            found = part
        elif listed and found.weekday == part.weekday:
            terms = (*found.terms, *(term for term in part.terms if term not in found.terms))
            found = replace(found, terms=terms, every=found.every or part.every)
        else:
            raise Ask("contradiction")
    return found
