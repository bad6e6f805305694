"""Describes triggers, and warns about expressions that often mean something else.

Each language has a module with its table, `WORDS`, which is imported on first use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from importlib import import_module
from typing import Literal, NamedTuple, cast

from chimes.i18n import Message, _, counted, in_language
from chimes.language.kinds import kind_in_words
from chimes.language.languages import LANGUAGES, named
from chimes.language.semantics import (
    ALL_DATES,
    cron_values,
    day_rule,
    expression_without_zone,
    interval_of,
    numbers,
)
from chimes.language.words import Words
from chimes.triggers import (
    AnyOf,
    Cron,
    EventTrigger,
    Every,
    Note,
    Once,
    OnFile,
    OnRunEnd,
    OnSql,
    Trigger,
    Webhook,
)
from chimes.triggers.cron_fields import DESCRIPTORS, DayFields

Unit = Literal["second", "minute", "hour", "day", "month"]

#: One fire per minute; a warning above that.
_MAX_FIRES_PER_DAY = 1440
# February has 28 days here: a 29th exists in leap years only.
_MONTH_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_STEP = re.compile(r"(?:\*|[0-9]+)/([0-9]+)")
#: The first value of each field and the number of its values.
_SIZES: dict[Unit, tuple[int, int]] = {
    "second": (0, 60),
    "minute": (0, 60),
    "hour": (0, 24),
    "day": (1, 31),
    "month": (1, 12),
}


class TriggerWarning(NamedTuple):
    #: Stable, for callers that select warnings.
    code: str
    message: Message


def trigger_warnings(trigger: Trigger) -> tuple[TriggerWarning, ...]:
    if not isinstance(trigger, Cron) or interval_of(trigger) is not None:
        return ()
    values = cron_values(trigger)
    found = [*_day_warnings(values.days), *_step_warnings(trigger)]
    count = values.fires_per_day
    if count > _MAX_FIRES_PER_DAY:
        found.append(TriggerWarning("often", _("Runs {count} times a day", count=count)))
    elif len(values.minutes) == 60 and len(values.hours) < 24:
        message = _(
            "Runs in every minute of these hours, {count} times a day; "
            "put 0 into the minute field for once an hour",
            count=count,
        )
        found.append(TriggerWarning("every_minute", message))
    return tuple(found)


def _day_warnings(days: DayFields) -> Iterator[TriggerWarning]:
    rule = day_rule(days)
    if rule.by_date and rule.by_weekday and rule.both:
        message = _("A day counts only if both its date and its weekday match")
        yield TriggerWarning("both_days", message)
    elif rule.by_date and rule.by_weekday:
        message = _(
            "A day counts if its date or its weekday matches, not only if both do; "
            "start one of the two fields with * to ask for both"
        )
        yield TriggerWarning("either_day", message)
    special = days.last or days.nearest or days.last_nearest or days.last_working
    dates = numbers(days.days & ALL_DATES, 1)
    alone = rule.by_date is not None and (rule.by_weekday is None or rule.both)
    if alone and dates and not special:
        if dates[0] == 29 and numbers(days.months) == (2,):
            yield TriggerWarning("leap_years", _("Runs in leap years only"))
        elif any(_MONTH_LENGTHS[month - 1] < dates[0] for month in numbers(days.months)):
            message = _("Does not run in months without a day {count}", count=dates[0])
            yield TriggerWarning("short_months", message)


def _step_warnings(trigger: Cron) -> Iterator[TriggerWarning]:
    """Steps that do not divide the range of their field."""
    body = expression_without_zone(trigger)
    fields = DESCRIPTORS.get(body.lower(), body).split(" ")
    if len(fields) == 5:
        fields = ["0", *fields]
    for (unit, (low, size)), text in zip(_SIZES.items(), fields, strict=False):
        found = _STEP.fullmatch(text)
        if found is None:
            continue
        step = int(found[1])
        first = low if text.startswith("*") else int(text.partition("/")[0])
        count = (low + size - 1 - first) // step + 1
        gap = size - (count - 1) * step
        if step == 1 or count == 1:
            continue
        if unit == "day":
            message = _(
                "The step of {step} days starts anew with each month, "
                "so the gap at its end is another",
                step=step,
            )
            yield TriggerWarning("uneven_months", message)
        elif gap != step:
            yield TriggerWarning("uneven_step", _uneven_step(unit, step, gap))


def _uneven_step(unit: Unit, step: int, gap: int) -> Message:
    match unit:
        case "second":
            return counted(
                "The step of {step} seconds starts anew with each minute; "
                "the gap there is {count} second",
                "The step of {step} seconds starts anew with each minute; "
                "the gap there is {count} seconds",
                gap,
                step=step,
            )
        case "minute":
            return counted(
                "The step of {step} minutes starts anew with each hour; "
                "the gap there is {count} minute",
                "The step of {step} minutes starts anew with each hour; "
                "the gap there is {count} minutes",
                gap,
                step=step,
            )
        case "hour":
            return counted(
                "The step of {step} hours starts anew with each day; the gap there is {count} hour",
                "The step of {step} hours starts anew with each day; "
                "the gap there is {count} hours",
                gap,
                step=step,
            )
        case _:
            return counted(
                "The step of {step} months starts anew with each year; "
                "the gap there is {count} month",
                "The step of {step} months starts anew with each year; "
                "the gap there is {count} months",
                gap,
                step=step,
            )


_NOTES: Mapping[Note, Message] = {
    "moved_by_gap": _("its time is skipped when the clocks go forward; it runs at the change"),
    "repeated_hour_first": _("this hour comes twice when the clocks go back; first time"),
    "repeated_hour_second": _("this hour comes twice when the clocks go back; second time"),
    "repeated_hour_once": _(
        "this hour comes twice when the clocks go back; it runs the first time only"
    ),
    "moved_by_calendar": _("its day is excluded; it runs on another one"),
}


def describe(trigger: Trigger, lang: str = "en") -> str:
    """The trigger in words: `Every day at 02:30, America/New_York time`."""
    return _described(trigger, lang)


@lru_cache(maxsize=4096)
def _described(trigger: Trigger, lang: str) -> str:
    # Lists describe every row; triggers are immutable.
    if isinstance(trigger, EventTrigger):
        words = words_of(lang)
        pace = _pace_in_words(trigger, words)
        parts = [_event_in_words(trigger, words, named(lang)), *([] if pace is None else [pace])]
        return words.between.join(in_language(each, named(lang)) for each in parts)
    words = words_of(lang)
    if isinstance(trigger, Cron | Every | Once):
        text = words.describe(trigger)
    else:
        text = kind_in_words(trigger, words, named(lang), lambda each: describe(each, lang))
    if not trigger.is_example or isinstance(trigger, AnyOf):
        return text
    return _as_example(text, lang)


def describe_example(trigger: Trigger, lang: str) -> str:
    """A trigger whose hashed fields are those of an example."""
    return _as_example(describe(trigger, lang), lang)


def _as_example(text: str, lang: str) -> str:
    return in_language(_("{rule} (an example: the schedule decides)", rule=text), named(lang))


def _event_in_words(trigger: EventTrigger, words: Words, lang: str) -> Message:
    match trigger:
        case Webhook(scheme="none"):
            return _("On a request to its webhook")
        case Webhook():
            return _("On a signed request to its webhook ({scheme})", scheme=trigger.scheme)
        case OnRunEnd(status=()):
            return _("When a run of {schedule} ends", schedule=trigger.schedule)
        case OnRunEnd():
            ends = words.joined([in_language(_ENDS[each], lang) for each in trigger.status])
            return _(
                "When a run of {schedule} ends: {statuses}",
                schedule=trigger.schedule,
                statuses=ends,
            )
        case OnFile():
            return _("When a file {path} appears or changes", path=trigger.path)
        case OnSql():
            return _(
                "When a query on {connection} begins to find something, checked every {interval}",
                connection=trigger.connection,
                interval=words.duration_words(trigger.interval),
            )
        case _:
            return _("On an event")


def _pace_in_words(trigger: EventTrigger, words: Words) -> Message | None:
    if trigger.debounce is not None:
        quiet = words.duration_words(trigger.debounce)
        return _("after {duration} without another event", duration=quiet)
    if trigger.throttle is not None:
        period = words.duration_words(trigger.throttle)
        return _("at most once in {duration}", duration=period)
    if trigger.batch is not None:
        within = words.duration_words(trigger.batch.within)
        return _(
            "{count} events at once, or those of {duration}",
            count=trigger.batch.count,
            duration=within,
        )
    return None


_ENDS: Mapping[str, Message] = {
    "succeeded": _("succeeded"),
    "failed": _("failed"),
    "timeout": _("timeout"),
    "canceled": _("canceled"),
    "skipped": _("skipped"),
    "missed": _("missed"),
    "unknown": _("unknown"),
}


def note_in_words(note: Note, lang: str = "en") -> str:
    """The text of a note that `Trigger.fires` attaches to a fire."""
    return in_language(_NOTES[note], named(lang))


def warnings_in_words(trigger: Trigger, lang: str = "en") -> tuple[str, ...]:
    """The texts of all warnings about a trigger, such as a step that does not divide the hour."""
    notes = [_NOTES[note] for note in trigger.warnings()]
    messages = [*notes, *(warning.message for warning in trigger_warnings(trigger))]
    return tuple(in_language(each, named(lang)) for each in messages)


def warning_line(warning: str, lang: str = "en") -> str:
    """A warning as a line: `Note: Runs in leap years only.`"""
    return in_language(_("Note: {remark}.", remark=warning), named(lang))


def short_weekday(moment: datetime, lang: str = "en") -> str:
    """`Mon`, `จ.`, `周一`, in the zone of the datetime."""
    return words_of(lang).short_weekdays[moment.isoweekday() % 7]


def words_of(lang: str) -> Words:
    """The table of a language."""
    return cast(Words, import_module(LANGUAGES[named(lang)]).WORDS)
