"""A trigger as a sentence: its order is the same in every language, its words are the language's.

A language is a module that offers what `Language` lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from chimes.language.days import Days, days_of
from chimes.language.limits import shown_dates
from chimes.language.masks import interval_of, read
from chimes.language.times import Times, times_of
from chimes.triggers import Calendar, Cron, Dst, Every, Once, Trigger, Window, parse_duration
from chimes.triggers.calendar import OnExcluded


class Limits(Protocol):
    """The words of one language for what bounds the fires."""

    def since(self, moment: datetime, zone: str | None) -> str:
        """The first moment; the zone is None where the sentence has named it already."""

    def until(self, moment: datetime, zone: str | None) -> str: ...

    def at_most(self, count: int) -> str: ...

    def holidays(self, country: str) -> str: ...

    def windows(self, windows: Sequence[Window]) -> str: ...

    def dates(self, shown: Sequence[str], more: int) -> str:
        """Single dates, and how many more there are that are not shown."""

    def excepting(self, days: str, then: OnExcluded) -> str:
        """Not on those days, which are in words already; and what happens instead."""


class Language(Protocol):
    """The words of one language. Moments are worded as their own clock shows them."""

    #: Between the clauses of a sentence.
    BETWEEN: str
    #: Sunday first.
    SHORT_WEEKDAYS: Sequence[str]

    @property
    def limits(self) -> Limits: ...

    def on_days(self, days: Days, times: Times, zone: str) -> str:
        """At times of some days; the zone is named."""

    def once(self, moment: datetime, zone: str) -> str: ...

    def every(self, step: timedelta, anchor: datetime | None) -> str:
        """An interval; the anchor is in UTC."""

    def delayed(self, jitter: timedelta) -> str:
        """Goes on from `every`: each run up to this much later."""

    def clock_changes(self, rules: Dst) -> str: ...


def sentence(language: Language, trigger: Trigger) -> str:
    """What the trigger does, exactly; the zone is always named where one applies."""
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
        found.append(language.limits.since(trigger.local(trigger.start_at), zone))
    if trigger.end_at is not None:
        found.append(language.limits.until(trigger.local(trigger.end_at), zone))
    if trigger.max_runs is not None:
        found.append(language.limits.at_most(trigger.max_runs))
    return [*found, *(_excluded(language.limits, each) for each in trigger.exclude)]


def _excluded(words: Limits, calendar: Calendar) -> str:
    if calendar.holidays is not None:
        days = words.holidays(calendar.holidays)
    elif calendar.weekly:
        days = words.windows(calendar.weekly)
    else:
        days = words.dates(*shown_dates(calendar))
    return words.excepting(days, calendar.on_excluded)
