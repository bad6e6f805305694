"""English."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import assert_never

from chimes.language.cautions import Caution
from chimes.language.en_days import days_phrase, years_phrase
from chimes.language.en_limits import duration_words, limits, moment_words
from chimes.language.en_times import time_phrase
from chimes.language.masks import interval_of, read
from chimes.triggers import Cron, Every, Note, Once, Trigger, parse_duration


def sentence(trigger: Trigger) -> str:
    match trigger:
        case Cron():
            words = _cron(trigger)
        case Every():
            words = _interval(trigger.every, trigger.anchor)
            if trigger.jitter:
                words += f", each run up to {duration_words(trigger.jitter)} later"
        case Once():
            words = f"Once, on {moment_words(trigger.local(trigger.instant), weekday=True)}"
            words += f", {zone_words(trigger.zone)}"
        case _:
            assert_never(trigger)
    named = zone_words(trigger.zone)
    zone = "" if named in words.rpartition(", ")[2] else f" {named}"
    return "; ".join([words, *limits(trigger, zone)])


def _cron(trigger: Cron) -> str:
    every = interval_of(trigger)
    if every is not None:
        return _interval(parse_duration(every), trigger.anchor)
    reading = read(trigger)
    times, days = time_phrase(reading), days_phrase(reading.days)
    if times.startswith("at "):
        words = f"{days} {times}"
    else:
        words = times if days == "every day" else f"{times}, {days.removesuffix(',')}"
    words += years_phrase(reading.days)
    words = f"{words[0].upper()}{words[1:]}, {zone_words(trigger.zone)}"
    return words if trigger.dst == "chimes" else f"{words}; clock changes as in {trigger.dst}"


def _interval(step: timedelta, anchor: datetime | None) -> str:
    words = f"Every {duration_words(step, each=True)}"
    return words if anchor is None else f"{words}, counted from {moment_words(anchor)} UTC"


def zone_words(zone: str) -> str:
    return zone if zone == "UTC" else f"{zone} time"


def note(note: Note) -> str:
    match note:
        case "moved_by_gap":
            return "its time is skipped when the clocks go forward; it runs at the change"
        case "repeated_hour_first":
            return "this hour comes twice when the clocks go back; first time"
        case "repeated_hour_second":
            return "this hour comes twice when the clocks go back; second time"
        case "repeated_hour_once":
            return "this hour comes twice when the clocks go back; it runs the first time only"
        case "moved_by_calendar":
            return "its day is excluded; it runs on another one"
    assert_never(note)


def caution(caution: Caution) -> str:
    match caution.code:
        case "either_day":
            return (
                "A day counts if its date or its weekday matches, not only if both do; "
                "start one of the two fields with * to ask for both"
            )
        case "both_days":
            return "A day counts only if both its date and its weekday match"
        case "uneven_step":
            return _uneven(caution)
        case "every_minute":
            return (
                f"Runs in every minute of these hours, {caution.count} times a day; "
                "put 0 into the minute field for once an hour"
            )
        case "often":
            return f"Runs {caution.count} times a day"
        case "leap_years":
            return "Runs in leap years only"
        case "short_months":
            return f"Does not run in months without a day {caution.count}"
    assert_never(caution.code)


def _uneven(caution: Caution) -> str:
    larger = {
        "second": "minute",
        "minute": "hour",
        "hour": "day",
        "day": "month",
        "month": "year",
    }[caution.unit]
    start = f"The step of {caution.step} {caution.unit}s starts anew with each {larger}"
    if not caution.gap:
        return f"{start}, so the gap at its end is another"
    unit = caution.unit if caution.gap == 1 else f"{caution.unit}s"
    return f"{start}; the gap there is {caution.gap} {unit}"
