"""What is easily meant otherwise: found here, worded by `remarks`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from chimes.language.masks import ALL_DATES, body_of, day_rule, interval_of, numbers, read
from chimes.triggers import Cron, Trigger
from chimes.triggers.cron_days import DayFields
from chimes.triggers.cron_fields import DESCRIPTORS

CautionCode = Literal[
    "either_day",
    "both_days",
    "uneven_step",
    "uneven_months",
    "every_minute",
    "often",
    "short_months",
    "leap_years",
]
Unit = Literal["second", "minute", "hour", "day", "month"]

#: More fires a day than one a minute are worth a word.
_OFTEN = 1440
# February counts as short here even in leap years: in the others it has no 29th.
_LONGEST = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_STEP = re.compile(r"(?:\*|[0-9]+)/([0-9]+)")
_SIZES: dict[Unit, tuple[int, int]] = {
    "second": (0, 60),
    "minute": (0, 60),
    "hour": (0, 24),
    "day": (1, 31),
    "month": (1, 12),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Caution:
    code: CautionCode
    #: uneven_step: the field, its step, and the gap at the seam; where that depends on the month,
    #: uneven_months: days and their step.
    unit: Unit = "minute"
    step: int = 0
    gap: int = 0
    #: every_minute, often: fires a day. short_months: the first day that some months lack.
    count: int = 0


def cautions(trigger: Trigger) -> tuple[Caution, ...]:
    if not isinstance(trigger, Cron) or interval_of(trigger) is not None:
        return ()
    reading = read(trigger)
    found = [*_days(reading.days), *_uneven(trigger)]
    if reading.fires_a_day > _OFTEN:
        found.append(Caution(code="often", count=reading.fires_a_day))
    elif len(reading.minutes) == 60 and len(reading.hours) < 24:
        found.append(Caution(code="every_minute", count=reading.fires_a_day))
    return tuple(found)


def _days(days: DayFields) -> list[Caution]:
    rule = day_rule(days)
    found = []
    if rule.by_date and rule.by_weekday:
        found.append(Caution(code="both_days" if rule.both else "either_day"))
    special = days.last or days.nearest or days.last_nearest or days.last_working
    dates = numbers(days.days & ALL_DATES, 1)
    alone = rule.by_date is not None and (rule.by_weekday is None or rule.both)
    if alone and dates and not special:
        lacking = [month for month in numbers(days.months) if _LONGEST[month - 1] < dates[0]]
        if dates[0] == 29 and numbers(days.months) == (2,):
            found.append(Caution(code="leap_years"))
        elif lacking:
            found.append(Caution(code="short_months", count=dates[0]))
    return found


def _uneven(trigger: Cron) -> list[Caution]:
    body = body_of(trigger)
    parts = DESCRIPTORS.get(body.lower(), body).split(" ")
    if len(parts) == 5:
        parts = ["0", *parts]
    units: tuple[Unit, ...] = ("second", "minute", "hour", "day", "month")
    found = []
    for unit, text in zip(units, parts, strict=False):
        step = _STEP.fullmatch(text)
        if step and (caution := _seam(unit, text, int(step[1]))):
            found.append(caution)
    return found


def _seam(unit: Unit, text: str, step: int) -> Caution | None:
    low, size = _SIZES[unit]
    first = low if text.startswith("*") else int(text.partition("/")[0])
    count = (low + size - 1 - first) // step + 1
    if step == 1 or count == 1:
        return None
    if unit == "day":
        return Caution(code="uneven_months", unit=unit, step=step)
    gap = low + size + first - low - (first + (count - 1) * step)
    return None if gap == step else Caution(code="uneven_step", unit=unit, step=step, gap=gap)
