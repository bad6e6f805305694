"""Builds a trigger from the meaning of a phrase."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta

from chimes.errors import InvalidTrigger
from chimes.language.parser import parts
from chimes.language.parser.parts import Unclear
from chimes.language.parser.phrases import Days, Meaning, SingleDay
from chimes.triggers import AnyOf, Cron, Every, Once, Trigger

_SECOND = timedelta(seconds=1)
_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)


def build(meaning: Meaning, now: datetime, zone: str, home: str) -> Trigger:
    """Raises Unclear if the time is past, never occurs, or does not fit one trigger exactly.

    `zone` is the named zone, else `home`, the zone of the author.
    """
    if _is_relative(meaning) and _today(now, zone) != _today(now, home):
        # "Tomorrow" differs between the named zone and the author's.
        raise Unclear("ambiguous", choice="date")
    try:
        trigger = _built(meaning, now, zone)
    except (InvalidTrigger, OverflowError):
        if (
            isinstance(meaning.once, parts.Date)
            and meaning.once.year
            and meaning.once.year < now.year
        ):
            raise Unclear("past") from None
        raise Unclear("date" if meaning.once else "interval") from None
    if trigger.next_after(now) is None:
        if isinstance(trigger, Once):
            raise Unclear("past")
        raise Unclear("date", "contradiction")
    return trigger


def _is_relative(meaning: Meaning) -> bool:
    return isinstance(
        meaning.once, parts.RelativeDay | parts.RelativeWeekday | parts.RelativeMonthDay
    )


def _today(now: datetime, zone: str) -> date:
    return Once(now, timezone=zone).local(now).date()


def _built(meaning: Meaning, now: datetime, zone: str) -> Trigger:
    if meaning.delay is not None:
        return _after(_whole_second(now + meaning.delay.after), zone)
    if meaning.interval is not None:
        return _interval(meaning, zone)
    if meaning.once is not None:
        return _once(meaning, now, zone)
    assert meaning.recurring is not None
    return _cron(_clock_fields(meaning.clocks), meaning, zone)


def _after(instant: datetime, zone: str) -> Once:
    """As wall time; as an instant if the wall time occurs twice."""
    local = Once(instant, timezone=zone).local(instant).replace(tzinfo=None)
    wall = Once(local.isoformat(), timezone=zone)
    return wall if wall.instant == instant else Once(instant, timezone=zone)


def _whole_second(moment: datetime) -> datetime:
    """Rounded up to a whole second."""
    return moment if moment.microsecond == 0 else moment.replace(microsecond=0) + _SECOND


def _once(meaning: Meaning, now: datetime, zone: str) -> Once:
    assert meaning.once is not None
    (clock,) = meaning.clocks
    day = _single_day(meaning.once, _today(now, zone))
    if meaning.weekday is not None and day.isoweekday() % 7 != meaning.weekday:
        raise Unclear("contradiction")
    at = datetime.combine(day, time(clock.hour, clock.minute, clock.second, clock.microsecond))
    return Once(at.isoformat(), timezone=zone)


def _single_day(day: SingleDay, today: date) -> date:
    match day:
        case parts.RelativeDay():
            return today + timedelta(days=day.days)
        case parts.RelativeWeekday():
            return _weekday(day, today)
        case parts.RelativeMonthDay():
            month = today.year * 12 + today.month - 1 + day.months
            return _real_date(month // 12, month % 12 + 1, day.day)
        case _:
            return _real_date(day.year or today.year, day.month, day.day)


def _real_date(year: int, month: int, day: int) -> date:
    try:
        return date(year, month, day)
    except ValueError:
        raise Unclear("date", "contradiction") from None


def _weekday(day: parts.RelativeWeekday, today: date) -> date:
    if day.weeks is None:
        ahead = (day.weekday - today.isoweekday()) % 7
        if ahead == 0:
            raise Unclear("ambiguous")
        return today + timedelta(days=ahead)
    monday = today - timedelta(days=today.weekday())
    found = monday + timedelta(days=(day.weekday - 1) % 7, weeks=day.weeks)
    if day.either and found - today > timedelta(days=7):
        # "Next Friday" on a Wednesday is ambiguous.
        raise Unclear("ambiguous", choice="next")
    return found


def _clock_fields(clocks: tuple[parts.Clock, ...]) -> tuple[str, str, str]:
    """Second, minute and hour fields; all times or none."""
    seconds = {each.second for each in clocks}
    minutes = {each.minute for each in clocks}
    hours = {each.hour for each in clocks}
    if len(seconds) * len(minutes) * len(hours) != len(clocks):
        raise Unclear("ambiguous")
    if any(each.microsecond for each in clocks):
        raise Unclear("time")
    return _numbers(seconds), _numbers(minutes), _numbers(hours)


def _numbers(values: set[int] | frozenset[int]) -> str:
    return ",".join(str(value) for value in sorted(values))


def _cron(times: tuple[str, str, str], meaning: Meaning, zone: str) -> Cron:
    second, minute, hour = times
    day, month, weekday = _day_fields(meaning.recurring or parts.Daily(), meaning.months)
    lead = "" if second == "0" else f"{second} "
    return Cron(f"{lead}{minute} {hour} {day} {month} {weekday}", timezone=zone)


def _day_fields(days: Days, months: frozenset[int]) -> tuple[str, str, str]:
    """Day-of-month, month and day-of-week fields."""
    match days:
        case parts.Daily():
            return "*", _months(months), "*"
        case parts.Weekdays():
            return "*", _months(months), _weekdays(days.weekdays)
        case parts.MonthDays():
            within = _months(months)
            terms = ",".join(days.terms)
            return ("*", within, terms) if days.weekday else (terms, within, "*")
        case _:
            return str(days.day), str(days.month), "*"


def _months(months: frozenset[int]) -> str:
    return _numbers(months) if months and len(months) < 12 else "*"


def _weekdays(weekdays: frozenset[int]) -> str:
    """From Monday on; three or more in a row as a range."""
    if len(weekdays) == 7:
        return "*"
    ordered = sorted((day - 1) % 7 for day in weekdays)
    if len(ordered) > 2 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"{ordered[0] + 1}-{ordered[-1] + 1}"
    return _numbers(weekdays)


def _interval(meaning: Meaning, zone: str) -> Trigger:
    assert meaning.interval is not None
    step = meaning.interval.step
    everywhere = meaning.recurring is None or isinstance(meaning.recurring, parts.Daily)
    if everywhere and not (meaning.span or meaning.minutes or meaning.months):
        # With a zone, an interval that divides the hour or day follows the clock of that zone.
        fields = _grid(step) if meaning.zone and meaning.recurring is None else None
        return Every(step) if fields is None else _cron(fields, meaning, zone)
    if meaning.minutes is not None:
        return _cron(_at_minutes(meaning, step), meaning, zone)
    fields = _grid(step)
    if meaning.span is not None and (both := _up_to_hour(step, meaning.span, fields)):
        return AnyOf([_cron(each, meaning, zone) for each in both])
    if meaning.span is not None:
        fields = _within(step, meaning.span)
    if fields is None:
        raise Unclear("interval")
    return _cron(fields, meaning, zone)


def _at_minutes(meaning: Meaning, step: timedelta) -> tuple[str, str, str]:
    assert meaning.minutes is not None
    if step % _HOUR or step >= _DAY or _DAY % step or meaning.span is not None:
        raise Unclear("contradiction")
    hours = "*" if step == _HOUR else f"*/{step // _HOUR}"
    return "0", _numbers(meaning.minutes.minutes), hours


def _grid(step: timedelta) -> tuple[str, str, str] | None:
    """Cron fields of an interval that divides the hour or the day."""
    if step < _MINUTE:
        seconds = step // _SECOND
        even = seconds and timedelta(seconds=seconds) == step and 60 % seconds == 0
        return (_every(seconds), "*", "*") if even else None
    if step < _HOUR and step % _MINUTE == timedelta(0) and _HOUR % step == timedelta(0):
        return "0", _every(step // _MINUTE), "*"
    if step % _HOUR == timedelta(0) and step < _DAY and _DAY % step == timedelta(0):
        return "0", "0", _every(step // _HOUR)
    return None


def _every(count: int) -> str:
    return "*" if count == 1 else f"*/{count}"


def _within(step: timedelta, span: parts.Span) -> tuple[str, str, str] | None:
    """Cron fields of an interval within a range of times, if both ends match exactly."""
    fields = _grid(step)
    if fields is None or step < _MINUTE:
        return None
    start, end = span.start, span.end
    if end is None:
        return _from(step, start)
    if start.hour > end.hour or start.second or end.second:
        raise Unclear("contradiction")
    if step >= _HOUR:
        return _hours_within(step // _HOUR, start, end)
    minutes = step // _MINUTE
    if start.whole and end.whole:
        # 9-17: up to 17:00, up to the last time before it, or up to the end of that hour?
        raise Unclear("ambiguous", choice="end")
    if start.minute >= minutes or end.minute != 60 - minutes + start.minute:
        return None
    field = fields[1] if start.minute == 0 else f"{start.minute}-59/{minutes}"
    hours = f"{start.hour}-{end.hour}" if start.hour != end.hour else str(start.hour)
    return "0", field, hours


def _up_to_hour(
    step: timedelta, span: parts.Span, fields: tuple[str, str, str] | None
) -> list[tuple[str, str, str]] | None:
    """The fields of `every 15 minutes from 9:00 to 17:00`, whose last time is in another hour; None
    for other spans."""
    start, end = span.start, span.end
    if fields is None or end is None or not _MINUTE <= step < _HOUR:
        return None
    if (start.whole and end.whole) or start.hour >= end.hour or start.second or end.second:
        return None
    if start.minute or end.minute:
        return None
    last = end.hour - 1
    hours = f"{start.hour}-{last}" if last > start.hour else str(start.hour)
    return [("0", fields[1], hours), ("0", "0", str(end.hour))]


def _hours_within(step: int, start: parts.Clock, end: parts.Clock) -> tuple[str, str, str] | None:
    if start.minute != end.minute or start.hour >= end.hour or (end.hour - start.hour) % step:
        return None
    if step == 1:
        return "0", str(start.minute), f"{start.hour}-{end.hour}"
    return "0", str(start.minute), _numbers(set(range(start.hour, end.hour + 1, step)))


def _from(step: timedelta, start: parts.Clock) -> tuple[str, str, str] | None:
    """`every 2 hours from 01:15`, all round the clock."""
    if step < _HOUR or start.hour >= step // _HOUR or start.second:
        return None
    hours = step // _HOUR
    if start.hour == 0:
        return "0", str(start.minute), _every(hours)
    return "0", str(start.minute), f"{start.hour}-23/{hours}"
