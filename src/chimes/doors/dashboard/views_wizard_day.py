"""The next day of a schedule among the others, what calendars take out of it, and its retries on a
line: the pictures beside the wizard's form (UX A.4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise

from chimes.doors.dashboard.charts.attempts import AttemptWords, attempts_line
from chimes.doors.dashboard.charts.day_strip import DayStripWords, Hour, day_strip
from chimes.doors.dashboard.charts.drawing import Chart
from chimes.doors.dashboard.look import Look
from chimes.doors.dashboard.times import absolute, span, zone_info
from chimes.model.ids import ScheduleId
from chimes.model.listing import ScheduleQuery, ScheduleSort
from chimes.model.schedule import Schedule
from chimes.triggers import Trigger
from chimes.wording import in_language, say

HOURS = 24
#: The neighbours that are looked at: one question to the store, whatever it has.
NEIGHBOURS = ScheduleQuery(enabled=True, sort=ScheduleSort.NEXT_RUN_AT, limit=60)
#: Fires of one schedule that are looked at one by one; more are counted by the hour.
_MOST_FIRES = 48
_AN_HOUR = timedelta(hours=1)
_TICK = timedelta(microseconds=1)
#: Fires that are held against the same without its calendars.
_LOOKED_AT = 400
_MOST_LEFT_OUT = 5
#: From here on it is worth a word that others fire at the same moment.
_CROWD = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Neighbours:
    chart: Chart
    #: Of the others, those that fire at the very moment of the first fire.
    at_once: int

    @property
    def crowded(self) -> bool:
        return self.at_once >= _CROWD


def neighbours_of(
    trigger: Trigger,
    others: Iterable[Schedule],
    look: Look,
    now: datetime,
    but: ScheduleId | None = None,
) -> Neighbours | None:
    """None where it does not fire within a day: there is nothing to hold against the others."""
    first = trigger.next_after(now)
    if first is None or first > now + HOURS * _AN_HOUR:
        return None
    known = [
        each for each in others if each.id != but and each.enabled and each.next_run_at is not None
    ]
    crowd = [0] * HOURS
    for each in known:
        for place, count in enumerate(by_hour(each.trigger, now)):
            crowd[place] += count
    mine = by_hour(trigger, now)
    zone = zone_info(trigger.zone)
    hours = [
        Hour(
            name=f"{(now + place * _AN_HOUR).astimezone(zone):%H:%M}",
            others=crowd[place],
            mine=mine[place],
        )
        for place in range(HOURS)
    ]
    at_once = sum(each.trigger.next_after(first - _TICK) == first for each in known)
    said = partial(in_language, language=look.language)
    words = DayStripWords(
        title=said(say("The next 24 hours among your other schedules")),
        description=said(
            say(
                "Each bar is an hour with the runs of other schedules, each dot an hour in which"
                " this one runs, by the clock of {zone}",
                zone=trigger.zone,
            )
        ),
        hour=said(say("From ({zone})", zone=trigger.zone)),
        others=said(say("Others")),
        mine=said(say("This one")),
    )
    return Neighbours(chart=day_strip(hours, words), at_once=at_once)


def by_hour(trigger: Trigger, now: datetime) -> list[int]:
    """How often it fires in each of the next 24 hours; an hour ends before the next begins. Of one
    that fires often, an hour that its calendars only cut into is counted as a whole."""
    edges = [now + place * _AN_HOUR for place in range(HOURS + 1)]
    bare = replace(trigger, exclude=()) if trigger.exclude else trigger
    if bare.count_between(now + _TICK, edges[-1]) > _MOST_FIRES:
        return [
            bare.count_between(max(start, now + _TICK), end - _TICK)
            if bare is trigger or _fires_between(trigger, max(start, now + _TICK), end)
            else 0
            for start, end in pairwise(edges)
        ]
    found, at = [0] * HOURS, trigger.next_after(now)
    while at is not None and at < edges[-1]:
        found[(at - now) // _AN_HOUR] += 1
        at = trigger.next_after(at)
    return found


def _fires_between(trigger: Trigger, start: datetime, end: datetime) -> bool:
    at = trigger.next_after(start - _TICK)
    return at is not None and at < end


def left_out(trigger: Trigger, look: Look, now: datetime) -> tuple[str, ...]:
    """The next times that its calendars take away or move, as its own clock would have had them."""
    if not trigger.exclude:
        return ()
    meant = [fire.at for fire in replace(trigger, exclude=()).fires(now, _LOOKED_AT)]
    kept = {fire.at for fire in trigger.fires(now, _LOOKED_AT)}
    gone = [at for at in meant if at not in kept and (not kept or at < max(kept))]
    return tuple(absolute(at, trigger.zone, look, now=now) for at in gone[:_MOST_LEFT_OUT])


def retry_picture(first: datetime, retries: Sequence[datetime], zone: str, look: Look) -> Chart:
    said = partial(in_language, language=look.language)
    return attempts_line(
        [first, *retries],
        AttemptWords(
            title=said(say("Attempts")),
            description=said(
                say("When each attempt would begin, were each one before to fail at once")
            ),
            attempt=said(say("Attempt")),
            when=said(say("When")),
            after=said(say("After the first")),
            moment=lambda at: absolute(at, zone, look, now=first, seconds=True),
            span=lambda length: span(length, look.language),
        ),
    )
