"""Describes triggers, and warns about expressions that often mean something else.

The words of a language are a module with a table, `WORDS`, which is imported on first use.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from importlib import import_module
from typing import Literal, cast

from chimes.i18n import Message, _, counted, in_language
from chimes.language.forms import ALL_DATES, body_of, day_rule, interval_of, numbers, read
from chimes.language.languages import LANGUAGES, named
from chimes.language.words import Words
from chimes.triggers import Cron, Note, Trigger
from chimes.triggers.cron_fields import DESCRIPTORS, DayFields

# Warnings about expressions that often mean something else than intended.

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

#: Warn above one fire per minute.
_OFTEN = 1440
# February has 28 days here: a 29th exists in leap years only.
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
    #: uneven_step: the field, its step, and the gap where it wraps. uneven_months: the step in
    #: days; the gap depends on the month.
    unit: Unit = "minute"
    step: int = 0
    gap: int = 0
    #: every_minute, often: fires per day. short_months: the first day that some months lack.
    count: int = 0


def cautions(trigger: Trigger) -> tuple[Caution, ...]:
    if not isinstance(trigger, Cron) or interval_of(trigger) is not None:
        return ()
    reading = read(trigger)
    found = [*_day_cautions(reading.days), *_step_cautions(trigger)]
    if reading.fires_a_day > _OFTEN:
        found.append(Caution(code="often", count=reading.fires_a_day))
    elif len(reading.minutes) == 60 and len(reading.hours) < 24:
        found.append(Caution(code="every_minute", count=reading.fires_a_day))
    return tuple(found)


def _day_cautions(days: DayFields) -> list[Caution]:
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


def _step_cautions(trigger: Cron) -> list[Caution]:
    body = body_of(trigger)
    parts = DESCRIPTORS.get(body.lower(), body).split(" ")
    if len(parts) == 5:
        parts = ["0", *parts]
    units: tuple[Unit, ...] = ("second", "minute", "hour", "day", "month")
    found = []
    for unit, text in zip(units, parts, strict=False):
        step = _STEP.fullmatch(text)
        if step and (caution := _uneven_step(unit, text, int(step[1]))):
            found.append(caution)
    return found


def _uneven_step(unit: Unit, text: str, step: int) -> Caution | None:
    low, size = _SIZES[unit]
    first = low if text.startswith("*") else int(text.partition("/")[0])
    count = (low + size - 1 - first) // step + 1
    if step == 1 or count == 1:
        return None
    if unit == "day":
        return Caution(code="uneven_months", unit=unit, step=step)
    gap = low + size + first - low - (first + (count - 1) * step)
    return None if gap == step else Caution(code="uneven_step", unit=unit, step=step, gap=gap)


# Notes and warnings in words.

_NOTES: Mapping[Note, Message] = {
    "moved_by_gap": _("its time is skipped when the clocks go forward; it runs at the change"),
    "repeated_hour_first": _("this hour comes twice when the clocks go back; first time"),
    "repeated_hour_second": _("this hour comes twice when the clocks go back; second time"),
    "repeated_hour_once": _(
        "this hour comes twice when the clocks go back; it runs the first time only"
    ),
    "moved_by_calendar": _("its day is excluded; it runs on another one"),
}


def of_note(note: Note) -> Message:
    """The message for a note on one fire."""
    return _NOTES[note]


def of_caution(caution: Caution) -> Message:
    """The message for a warning."""
    match caution.code:
        case "either_day":
            return _(
                "A day counts if its date or its weekday matches, not only if both do; "
                "start one of the two fields with * to ask for both"
            )
        case "both_days":
            return _("A day counts only if both its date and its weekday match")
        case "uneven_step":
            return _uneven_message(caution)
        case "uneven_months":
            return _(
                "The step of {step} days starts anew with each month, "
                "so the gap at its end is another",
                step=caution.step,
            )
        case "every_minute":
            return _(
                "Runs in every minute of these hours, {count} times a day; "
                "put 0 into the minute field for once an hour",
                count=caution.count,
            )
        case "often":
            return _("Runs {count} times a day", count=caution.count)
        case "leap_years":
            return _("Runs in leap years only")
        case "short_months":
            return _("Does not run in months without a day {count}", count=caution.count)


def _uneven_message(caution: Caution) -> Message:
    match caution.unit:
        case "second":
            return counted(
                "The step of {step} seconds starts anew with each minute; "
                "the gap there is {count} second",
                "The step of {step} seconds starts anew with each minute; "
                "the gap there is {count} seconds",
                caution.gap,
                step=caution.step,
            )
        case "minute":
            return counted(
                "The step of {step} minutes starts anew with each hour; "
                "the gap there is {count} minute",
                "The step of {step} minutes starts anew with each hour; "
                "the gap there is {count} minutes",
                caution.gap,
                step=caution.step,
            )
        case "hour":
            return counted(
                "The step of {step} hours starts anew with each day; the gap there is {count} hour",
                "The step of {step} hours starts anew with each day; "
                "the gap there is {count} hours",
                caution.gap,
                step=caution.step,
            )
        case _:
            return counted(
                "The step of {step} months starts anew with each year; "
                "the gap there is {count} month",
                "The step of {step} months starts anew with each year; "
                "the gap there is {count} months",
                caution.gap,
                step=caution.step,
            )


def describe(trigger: Trigger, lang: str = "en") -> str:
    """The trigger in words: `Every day at 02:30, America/New_York time`."""
    return _described(trigger, lang)


@lru_cache(maxsize=4096)
def _described(trigger: Trigger, lang: str) -> str:
    # Lists describe every row; triggers are immutable.
    return words_of(lang).describe(trigger)


def note_in_words(note: Note, lang: str = "en") -> str:
    """The note of a fire (`trigger.fires`) in words."""
    return in_language(of_note(note), named(lang))


def warnings_in_words(trigger: Trigger, lang: str = "en") -> tuple[str, ...]:
    """Warnings in words, such as a step that does not divide the hour."""
    notes = [of_note(note) for note in trigger.warnings()]
    messages = (*notes, *(of_caution(each) for each in cautions(trigger)))
    return tuple(in_language(each, named(lang)) for each in messages)


def remark(words: str, lang: str = "en") -> str:
    """A warning as a line: `Note: Runs in leap years only.`"""
    return in_language(_("Note: {remark}.", remark=words), named(lang))


def short_weekday(moment: datetime, lang: str = "en") -> str:
    """`Mon`, `จ.`, `周一`, in the zone of the datetime."""
    return words_of(lang).short_weekdays[moment.isoweekday() % 7]


def words_of(lang: str) -> Words:
    """The table of a language."""
    return cast(Words, import_module(LANGUAGES[named(lang)]).WORDS)
