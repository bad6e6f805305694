"""A cron expression as sets of numbers, the input of the describer.

Descriptions are made from the meaning of an expression, not from its spelling, so two spellings
of one schedule read the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from chimes.triggers import Cron
from chimes.triggers.cron_fields import EVERY, CronFields, DayFields, parse_fields

ALL_DATES = (1 << 31) - 1
ALL_WEEKDAYS = (1 << 7) - 1
ALL_MONTHS = tuple(range(1, 13))

Numbers = tuple[int, ...]


class Steps(NamedTuple):
    """An even progression."""

    first: int
    last: int
    step: int


@dataclass(frozen=True, slots=True)
class Reading:
    """The seconds, minutes, hours and days at which an expression fires."""

    seconds: Numbers
    minutes: Numbers
    hours: Numbers
    days: DayFields

    @property
    def fires_a_day(self) -> int:
        return len(self.seconds) * len(self.minutes) * len(self.hours)


@dataclass(frozen=True, slots=True)
class DayRule:
    """How the two day fields combine; None: the field allows every day."""

    by_date: DayFields | None
    by_weekday: DayFields | None
    #: A day must satisfy both, rather than either.
    both: bool


def body_of(trigger: Cron) -> str:
    """The expression without its zone prefix."""
    text = trigger.expression
    return text.partition(" ")[2] if text.startswith(("CRON_TZ=", "TZ=")) else text


def interval_of(trigger: Cron) -> str | None:
    """The duration of an `@every`."""
    body = body_of(trigger)
    return body[len(EVERY) :] if body.lower().startswith(f"{EVERY} ") else None


def read(trigger: Cron) -> Reading:
    """The values of an expression other than `@every`."""
    fields: CronFields = parse_fields(body_of(trigger), trigger.dialect)
    hour_mask = (1 << 60) - 1
    blocks = [fields.minutes >> 60 * hour & hour_mask for hour in range(24)]
    return Reading(
        seconds=numbers(fields.seconds),
        minutes=numbers(next(block for block in blocks if block)),
        hours=tuple(hour for hour, block in enumerate(blocks) if block),
        days=fields.days,
    )


def day_rule(days: DayFields) -> DayRule:
    any_date = days.days & ALL_DATES == ALL_DATES
    any_weekday = days.weekdays & ALL_WEEKDAYS == ALL_WEEKDAYS
    if not days.both and (any_date or any_weekday):
        return DayRule(None, None, both=True)
    return DayRule(None if any_date else days, None if any_weekday else days, both=days.both)


def numbers(mask: int, base: int = 0) -> Numbers:
    return tuple(base + bit for bit in range(mask.bit_length()) if mask >> bit & 1)


def spans(values: Numbers) -> list[tuple[int, int]]:
    """The values as contiguous ranges: (1, 2, 3, 7) is 1–3 and 7–7."""
    found: list[tuple[int, int]] = []
    for value in values:
        if found and found[-1][1] == value - 1:
            found[-1] = (found[-1][0], value)
        else:
            found.append((value, value))
    return found


def stretches(values: Numbers, *, least: int = 3) -> list[tuple[int, int]]:
    """Like `spans`; ranges with fewer than `least` values are listed one by one."""
    found: list[tuple[int, int]] = []
    for first, last in spans(values):
        if last - first + 1 >= least:
            found.append((first, last))
        else:
            found += [(value, value) for value in range(first, last + 1)]
    return found


def range_words(pairs: Iterable[tuple[int, int]], name: Callable[[int], str], to: str) -> list[str]:
    """Ranges in words: `Monday`, `Monday to Friday`."""
    return [
        name(first) if first == last else f"{name(first)}{to}{name(last)}" for first, last in pairs
    ]


def steps(values: Numbers, *, least: int = 4) -> Steps | None:
    """The values as an arithmetic progression with a step of two or more, else None."""
    if len(values) < least:
        return None
    step = values[1] - values[0]
    even = all(after - before == step for before, after in pairwise(values))
    return Steps(values[0], values[-1], step) if even and step > 1 else None


def cycle(values: Numbers, size: int) -> Steps | None:
    """A progression that wraps around its cycle with an even gap."""
    found = steps(values, least=2)
    if found is None or size % found.step or found.first >= found.step:
        return None
    return found if found.last + found.step >= size else None
