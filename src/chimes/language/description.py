"""Describes triggers in English, Thai and Chinese.

The order of a sentence is the same in every language; a language is a module that implements
`Language` and is imported on first use.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from importlib import import_module
from typing import Literal, Protocol, cast

from chimes.i18n import Message, _, counted, in_language
from chimes.language.cron_sets import ALL_DATES, body_of, day_rule, interval_of, numbers, read
from chimes.language.forms import Days, Times, days_of, shown_dates, times_of
from chimes.language.languages import LANGUAGES, named
from chimes.triggers import Calendar, Cron, Dst, Every, Note, Once, Trigger, Window, parse_duration
from chimes.triggers.calendars import OnExcluded
from chimes.triggers.cron_fields import DESCRIPTORS, DayFields


class Limits(Protocol):
    """Words of one language for bounds and exclusions."""

    def since(self, moment: datetime, zone: str | None) -> str:
        """The start; the zone is None if the sentence already names it."""

    def until(self, moment: datetime, zone: str | None) -> str: ...

    def at_most(self, count: int) -> str: ...

    def holidays(self, country: str) -> str: ...

    def windows(self, windows: Sequence[Window]) -> str: ...

    def dates(self, shown: Sequence[str], more: int) -> str:
        """Single dates, and the number of dates that are not shown."""

    def excepting(self, days: str, then: OnExcluded) -> str:
        """Excluded days (already in words) and what happens to their slots."""


class Language(Limits, Protocol):
    """Words of one language. Times are shown in the zone of the datetime."""

    #: Separator of clauses.
    BETWEEN: str
    #: Sunday first.
    SHORT_WEEKDAYS: Sequence[str]

    def on_days(self, days: Days, times: Times, zone: str) -> str:
        """Times on days, with the zone."""

    def once(self, moment: datetime, zone: str) -> str: ...

    def every(self, step: timedelta, anchor: datetime | None) -> str:
        """An interval; the anchor is in UTC."""

    def delayed(self, jitter: timedelta) -> str:
        """Continues `every`: the jitter."""

    def clock_changes(self, rules: Dst) -> str: ...


def sentence(language: Language, trigger: Trigger) -> str:
    """Describes the trigger exactly; names the zone where one applies."""
    if isinstance(trigger, Once):
        words = language.once(trigger.local(trigger.instant), trigger.zone)
    elif isinstance(trigger, Cron) and interval_of(trigger) is None:
        reading = read(trigger)
        words = language.on_days(days_of(reading.days), times_of(reading), trigger.zone)
    else:
        return language.BETWEEN.join(
            [_interval(language, trigger), *_limits(language, trigger, trigger.zone)]
        )
    return language.BETWEEN.join([words, *_limits(language, trigger, None)])


def _interval(language: Language, trigger: Cron | Every) -> str:
    if isinstance(trigger, Cron):
        return language.every(parse_duration(interval_of(trigger) or ""), trigger.anchor)
    words = language.every(trigger.every, trigger.anchor)
    return words + language.delayed(trigger.jitter) if trigger.jitter else words


def _limits(language: Language, trigger: Trigger, zone: str | None) -> list[str]:
    found: list[str] = []
    if isinstance(trigger, Cron) and trigger.dst != "chimes":
        found.append(language.clock_changes(trigger.dst))
    if trigger.start_at is not None:
        found.append(language.since(trigger.local(trigger.start_at), zone))
    if trigger.end_at is not None:
        found.append(language.until(trigger.local(trigger.end_at), zone))
    if trigger.max_runs is not None:
        found.append(language.at_most(trigger.max_runs))
    return [*found, *(_excluded(language, each) for each in trigger.exclude)]


def _excluded(words: Limits, calendar: Calendar) -> str:
    if calendar.holidays is not None:
        days = words.holidays(calendar.holidays)
    elif calendar.weekly:
        days = words.windows(calendar.weekly)
    else:
        days = words.dates(*shown_dates(calendar))
    return words.excepting(days, calendar.on_excluded)


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
    found = [*_days(reading.days), *_uneven_cautions(trigger)]
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


def _uneven_cautions(trigger: Cron) -> list[Caution]:
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
            return _uneven(caution)
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


def _uneven(caution: Caution) -> Message:
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
    return sentence(_language(lang), trigger)


def note_in_words(note: Note, lang: str = "en") -> str:
    """The note of a fire (`trigger.fires`) in words."""
    return in_language(of_note(note), named(lang))


def warnings_in_words(trigger: Trigger, lang: str = "en") -> tuple[str, ...]:
    """Warnings in words, such as a step that does not divide the hour."""
    own = [of_note(note) for note in trigger.warnings()]
    range_words = (*own, *(of_caution(each) for each in cautions(trigger)))
    return tuple(in_language(each, named(lang)) for each in range_words)


def remark(words: str, lang: str = "en") -> str:
    """A warning as a line: `Note: Runs in leap years only.`"""
    return in_language(_("Note: {remark}.", remark=words), named(lang))


def short_weekday(moment: datetime, lang: str = "en") -> str:
    """`Mon`, `จ.`, `周一`, in the zone of the datetime."""
    return _language(lang).SHORT_WEEKDAYS[moment.isoweekday() % 7]


def _language(lang: str) -> Language:
    return cast(Language, import_module(LANGUAGES[named(lang)]))
