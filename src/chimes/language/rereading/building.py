"""From what a sentence says to a trigger, in the spelling that people use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from chimes.language.days import DateKind, DateTerm, Days, Weekdays
from chimes.language.masks import Numbers, steps, stretches, told
from chimes.language.times import At, Rate, Repeated, Times, Values
from chimes.triggers import Cron, Every, Once, Trigger
from chimes.triggers.calendar import DAY_NAMES

_DAY_NUMBERS = tuple("0123456")
_SPECIAL: dict[DateKind, str] = {
    "nearest": "{}W",
    "from_end": "L-{}",
    "nearest_from_end": "L-{}W",
    "last_working": "LW",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A moment, an interval, or times on days."""

    once: str | None = None
    every: timedelta | None = None
    anchor: str | None = None
    jitter: timedelta | None = None
    days: Days | None = None
    times: Times | None = None
    zone: str | None = None
    rules: str = "chimes"
    start_at: str | None = None
    end_at: str | None = None
    max_runs: int | None = None
    exclude: list[dict[str, object]] = field(default_factory=list)


def triggers(draft: Draft) -> Iterator[Trigger]:
    """What it may be, the likeliest first. Raises InvalidTrigger where it cannot be anything."""
    if draft.once is not None:
        yield Once(
            draft.once,
            timezone=draft.zone,
            start_at=draft.start_at,
            end_at=draft.end_at,
            max_runs=draft.max_runs,
            exclude=draft.exclude,
        )
    elif draft.every is not None:
        yield Every(
            draft.every,
            anchor=draft.anchor,
            jitter=draft.jitter,
            start_at=draft.start_at,
            end_at=draft.end_at,
            max_runs=draft.max_runs,
            exclude=draft.exclude,
        )
    else:
        assert draft.days is not None
        assert draft.times is not None
        for expression in _expressions(draft.days, draft.times):
            yield Cron(
                expression,
                timezone=draft.zone,
                dst=_rules(draft.rules),
                start_at=draft.start_at,
                end_at=draft.end_at,
                max_runs=draft.max_runs,
                exclude=draft.exclude,
            )


def _rules(name: str) -> Literal["chimes", "vixie", "robfig"]:
    match name:
        case "vixie" | "robfig":
            return name
        case _:
            return "chimes"


def _expressions(days: Days, times: Times) -> Iterator[str]:
    second, minute, hour = _clock_fields(times)
    month = "*" if days.months is None else _field(days.months, 1, 12)
    for date, weekday in _day_fields(days):
        if days.years is not None:
            year = _listed(days.years)
            yield " ".join((second, minute, hour, date, month, weekday, year))
        elif second != "0":
            yield " ".join((second, minute, hour, date, month, weekday))
        else:
            yield " ".join((minute, hour, date, month, weekday))


def _clock_fields(times: Times) -> tuple[str, str, str]:
    if isinstance(times, At):
        return _at(times)
    if isinstance(times, Repeated):
        return _repeated(times)
    hour = "*" if times.hours is None else _field(times.hours.numbers, 0, 23)
    which = _rated(times.which)
    if times.which.unit == "minute":
        return "0", which, hour
    return which, "*" if times.minutes is None else _field(times.minutes.numbers, 0, 59), hour


def _at(times: At) -> tuple[str, str, str]:
    parts = [[int(number) for number in clock.split(":")] for clock in times.clocks]
    hours, minutes, seconds = (
        _plain(_ordered(clock[place] for clock in parts if len(clock) > place))
        for place in range(3)
    )
    return seconds or "0", minutes, hours


def _repeated(times: Repeated) -> tuple[str, str, str]:
    start = times.stretches[0][0].split(":") if times.stretches else ["0", "0", "0"]
    hour = "*"
    if times.hours is not None:
        hour = _field(times.hours.numbers, 0, 23)
    elif times.stretches:
        hour = _plain(
            _ordered(
                number
                for first, last in times.stretches
                for number in range(int(first[:2]), int(last[:2]) + 1)
            )
        )
    rate, at = times.rate, times.at
    if rate.unit == "hour":
        minute = str(int(start[1])) if at is None else _plain(at.numbers)
        if times.since is None:
            return "0", minute, hour
        first = times.since.split(":")
        return "0", str(int(first[1])), _from(int(first[0]), rate.step)
    if rate.unit == "minute":
        minute = _from(rate.first or int(start[1]), rate.step)
        return "0" if at is None else _field(at.numbers, 0, 59), minute, hour
    second = int(start[2]) if len(start) > 2 else 0
    return _from(rate.first or second, rate.step), "*", hour


def _rated(which: Values | Rate) -> str:
    if isinstance(which, Rate):
        return _from(which.first, which.step)
    return _field(which.numbers, 0, 59)


def _from(first: int, step: int) -> str:
    if step == 1:
        return "*"
    return f"{first}/{step}" if first else f"*/{step}"


def _ordered(numbers: Iterable[int]) -> Numbers:
    return tuple(sorted(set(numbers)))


def _plain(numbers: Numbers) -> str:
    """Without steps: FIXED times stay so (T2)."""
    return ",".join(told(stretches(numbers), str, "-"))


def _listed(numbers: Numbers) -> str:
    """Stepped where it is a progression."""
    found = steps(numbers)
    return f"{found.first}-{found.last}/{found.step}" if found else _plain(numbers)


def _field(numbers: Numbers, low: int, high: int) -> str:
    found = steps(numbers)
    if found is not None and found.first == low and found.last + found.step > high:
        return f"*/{found.step}"
    return _listed(numbers)


def _day_fields(days: Days) -> Iterator[tuple[str, str]]:
    quartz = days.years is not None
    if days.weekdays is None:
        dates = "*" if days.dates is None else _dates(days.dates)
        yield dates, "?" if quartz and days.dates is not None else "*"
    elif days.dates is None:
        yield "?" if quartz else "*", _weekdays(days.weekdays, quartz=quartz)
    elif not days.both:
        yield _dates(days.dates), _weekdays(days.weekdays)
    else:
        # T12: both count where one of the fields begins with a star.
        for date in _starred(_single_dates(days.dates), range(1, 32), 31):
            yield ",".join([date, *_special_dates(days.dates)]), _weekdays(days.weekdays)
        for weekday in _starred(days.weekdays.every, range(7), 7):
            special = _special_weekdays(days.weekdays)
            yield _dates(days.dates), ",".join([weekday, *special])


def _starred(numbers: Numbers, field: range, most: int) -> Iterator[str]:
    """Ways to write them that begin with a star and a step of up to `most`."""
    for step in range(2, most + 1):
        if set(field[::step]) <= set(numbers):
            rest = tuple(number for number in numbers if number not in field[::step])
            yield ",".join([f"*/{step}", *told(stretches(rest), str, "-")])


def _single_dates(terms: tuple[DateTerm, ...]) -> Numbers:
    return _ordered(
        day
        for term in terms
        if term.kind in ("day", "days", "step")
        for day in range(term.first, (term.last or term.first) + 1, term.step)
    )


def _dates(terms: tuple[DateTerm, ...]) -> str:
    single = _single_dates(terms)
    return ",".join([*([_listed(single)] if single else []), *_special_dates(terms)])


def _special_dates(terms: tuple[DateTerm, ...]) -> list[str]:
    found = [_SPECIAL[term.kind].format(term.first) for term in terms if term.kind in _SPECIAL]
    return ["L" if each == "L-0" else each for each in found]


def _weekdays(days: Weekdays, *, quartz: bool = False) -> str:
    # Quartz counts from another day, so its days go by their names.
    names = DAY_NAMES if quartz else _DAY_NUMBERS
    plain = told(stretches(days.every), names.__getitem__, "-")
    return ",".join([*plain, *_special_weekdays(days, names)])


def _special_weekdays(days: Weekdays, names: Sequence[str] = _DAY_NUMBERS) -> list[str]:
    found = [f"{names[day]}#{nth}" for day, nth in days.nth]
    return found + [f"{names[day]}L" for day in days.last]
