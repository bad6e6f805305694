"""The times of a day as forms of speech: what every language says, before it says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from chimes.language.masks import Numbers, Reading, cycle, spans

_LISTED = 6
_MOST_STRETCHES = 3

ClockUnit = Literal["second", "minute", "hour"]
#: From one time of the day to another, as clocks show them.
Stretch = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Values:
    """Some of the numbers of a unit: minutes 5, 10 and 20."""

    unit: ClockUnit
    numbers: Numbers


@dataclass(frozen=True, slots=True)
class Rate:
    """Every `step` units; `first` is where it starts within the next larger one."""

    unit: ClockUnit
    step: int = 1
    first: int = 0


@dataclass(frozen=True, slots=True)
class At:
    """These times of the day, as clocks show them."""

    clocks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """At a rate, all day or in a part of it."""

    rate: Rate
    #: Every hour at these minutes, every minute at these seconds.
    at: Values | None = None
    #: Every few hours, the first time at this one.
    since: str | None = None
    #: The part of the day; where the stretches would be many, its hours.
    stretches: tuple[Stretch, ...] = ()
    hours: Values | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """Single minutes or seconds within the larger units; None: within every one of them.

    `minutes` is None where `which` are minutes themselves.
    """

    which: Values | Rate
    minutes: Values | None
    hours: Values | None


Times = At | Repeated | Listed


def times_of(reading: Reading) -> Times:
    seconds, minutes, hours = reading.seconds, reading.minutes, reading.hours
    if reading.fires_a_day <= _LISTED:
        return At(_clocks(hours, minutes, seconds))
    if seconds != (0,):
        return _with_seconds(seconds, minutes, hours)
    if len(minutes) == 1:
        return _hourly(minutes[0], hours)
    rate = _rate("minute", minutes)
    if rate is None:
        return Listed(which=Values("minute", minutes), minutes=None, hours=_hours(hours))
    return _in_hours(rate, None, hours, f":{minutes[0]:02d}", f":{minutes[-1]:02d}")


def _with_seconds(seconds: Numbers, minutes: Numbers, hours: Numbers) -> Times:
    rate = _rate("second", seconds)
    if len(minutes) < 60:
        which = rate or Values("second", seconds)
        return Listed(which=which, minutes=Values("minute", minutes), hours=_hours(hours))
    if rate is None:
        return _in_hours(Rate("minute"), Values("second", seconds), hours, ":00", ":59")
    return _in_hours(rate, None, hours, f":00:{seconds[0]:02d}", f":59:{seconds[-1]:02d}")


def _hourly(minute: int, hours: Numbers) -> Times:
    if len(hours) == 24:
        return Repeated(rate=Rate("hour"), at=Values("minute", (minute,)) if minute else None)
    if found := cycle(hours, 24):
        first = f"{found.first:02d}:{minute:02d}"
        return Repeated(rate=Rate("hour", found.step), since=first)
    stretches = _stretches(hours, f":{minute:02d}", f":{minute:02d}")
    if stretches and all(last - first >= 2 for first, last in spans(hours)):
        return Repeated(rate=Rate("hour"), stretches=stretches)
    return At(_clocks(hours, (minute,), (0,)))


def _in_hours(rate: Rate, at: Values | None, hours: Numbers, first: str, last: str) -> Repeated:
    if len(hours) == 24:
        return Repeated(rate=rate, at=at)
    if stretches := _stretches(hours, first, last):
        # A stretch shows the first time, so the rate need not.
        return Repeated(rate=Rate(rate.unit, rate.step), at=at, stretches=stretches)
    return Repeated(rate=rate, at=at, hours=_hours(hours))


def _rate(unit: ClockUnit, values: Numbers) -> Rate | None:
    if len(values) == 60:
        return Rate(unit)
    found = cycle(values, 60)
    return None if found is None else Rate(unit, found.step, found.first)


def _hours(hours: Numbers) -> Values | None:
    return None if len(hours) == 24 else Values("hour", hours)


def _stretches(hours: Numbers, first: str, last: str) -> tuple[Stretch, ...]:
    """From the first hour's to the last hour's, unless there are many of them."""
    found = spans(hours)
    if len(found) > _MOST_STRETCHES:
        return ()
    return tuple((f"{start:02d}{first}", f"{end:02d}{last}") for start, end in found)


def _clocks(hours: Numbers, minutes: Numbers, seconds: Numbers) -> tuple[str, ...]:
    end = "" if seconds == (0,) else ":{:02d}"
    return tuple(
        f"{hour:02d}:{minute:02d}{end.format(second)}"
        for hour in hours
        for minute in minutes
        for second in seconds
    )
