"""What will happen, before anything is saved: the fires of a trigger as the scheduler computes
them, clock changes in words, how often, and when retries would come (UX A.4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, islice, pairwise

from chimes.i18n import _, in_language
from chimes.language import describe, note_in_words, warnings_in_words
from chimes.language.description import cautions
from chimes.model.ids import ScheduleId
from chimes.model.listing import ScheduleQuery, ScheduleSort
from chimes.model.policy import Policy
from chimes.model.schedule import Schedule
from chimes.triggers import Every, Fire, Once, Trigger
from chimes.triggers.clock_changes import clock_changes, touched_by
from chimes.web.dashboard.charts.sparkline import DayStripWords, Hour, day_strip
from chimes.web.dashboard.charts.svg import Chart
from chimes.web.dashboard.charts.waterfall import AttemptWords, attempts_line
from chimes.web.dashboard.core.preferences import DisplayPreferences
from chimes.web.dashboard.core.times import absolute, day, span, touched_in_words, zone_info

# @@ The next day of a schedule among the others, what calendars take out of it, and its retries
# on a line: the pictures beside the wizard's form (UX A.4).

HOURS = 24
#: The neighbours that are looked at: one question to the store, whatever it has.
NEIGHBOURS = ScheduleQuery(enabled=True, sort=ScheduleSort.NEXT_RUN_AT, limit=60)
#: Fires of one schedule that are looked at one by one; more are counted by the hour.
_MOST_FIRES = 48
_AN_HOUR = timedelta(hours=1)
_TICK = timedelta(microseconds=1)
#: Fires that are held against the same without its calendars.
_LOOKED_AT_VIEWS_WIZARD_DAY = 400
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
    look: DisplayPreferences,
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
        title=said(_("The next 24 hours among your other schedules")),
        description=said(
            _(
                "Each bar is an hour with the runs of other schedules, each dot an hour in which"
                " this one runs, by the clock of {zone}",
                zone=trigger.zone,
            )
        ),
        hour=said(_("From ({zone})", zone=trigger.zone)),
        others=said(_("Others")),
        mine=said(_("This one")),
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


def left_out(trigger: Trigger, look: DisplayPreferences, now: datetime) -> tuple[str, ...]:
    """The next times that its calendars take away or move, as its own clock would have had them."""
    if not trigger.exclude:
        return ()
    meant = [
        fire.at for fire in replace(trigger, exclude=()).fires(now, _LOOKED_AT_VIEWS_WIZARD_DAY)
    ]
    kept = {fire.at for fire in trigger.fires(now, _LOOKED_AT_VIEWS_WIZARD_DAY)}
    gone = [at for at in meant if at not in kept and (not kept or at < max(kept))]
    return tuple(absolute(at, trigger.zone, look, now=now) for at in gone[:_MOST_LEFT_OUT])


def retry_picture(
    first: datetime, retries: Sequence[datetime], zone: str, look: DisplayPreferences
) -> Chart:
    said = partial(in_language, language=look.language)
    return attempts_line(
        [first, *retries],
        AttemptWords(
            title=said(_("Attempts")),
            description=said(
                _("When each attempt would begin, were each one before to fail at once")
            ),
            attempt=said(_("Attempt")),
            when=said(_("When")),
            after=said(_("After the first")),
            moment=lambda at: absolute(at, zone, look, now=first, seconds=True),
            span=lambda length: span(length, look.language),
        ),
    )


FIRES = 5
#: Both clock changes of a year, and some days.
HORIZON = timedelta(days=400)
_MOST_NOTES = 4
#: Where fires have to be walked through to be counted, no further than this.
_MOST_COUNTED = 2000
_MOST_RETRIES = 5
#: Fires after a change that are looked at for the first usual one.
_LOOKED_AT = 3
#: Once a minute and more is worth a word.
_OFTEN = 1440
_SAID_HOW_OFTEN = ("often", "every_minute")


@dataclass(frozen=True, kw_only=True, slots=True)
class FireShown:
    at: datetime
    #: By the schedule's clock, and by the reader's.
    there: str
    here: str
    note: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    words: str
    zone: str
    fires: tuple[FireShown, ...]
    warnings: tuple[str, ...]
    #: What clock changes do to it within a year.
    notes: tuple[str, ...]
    per_day: int
    per_month: int
    #: The count of a month is of more than that.
    more: bool
    #: If the first fire fails, and every retry too.
    retries: tuple[datetime, ...]
    #: The same on a line.
    attempts: Chart | None
    #: Times that calendars take away, in words.
    left_out: tuple[str, ...]

    @property
    def first(self) -> datetime | None:
        return self.fires[0].at if self.fires else None


def preview_of(
    trigger: Trigger,
    look: DisplayPreferences,
    now: datetime,
    policy: Policy | None = None,
    said: Trigger | None = None,
) -> Preview:
    """Of a trigger with its zone and anchor. `said`: the same as it was asked for, for the words:
    nobody asked for the very microsecond at which an interval begins."""
    fires = trigger.fires(now, min(FIRES, trigger.max_runs or FIRES))
    per_day, _unused = _count(trigger, now, timedelta(days=1))
    per_month, more = _count(trigger, now, timedelta(days=30))
    if trigger.max_runs is not None:
        per_day, per_month = min(per_day, trigger.max_runs), min(per_month, trigger.max_runs)
    retries = retry_moments(policy, fires[0].at) if policy and fires else ()
    return Preview(
        words=describe(said or trigger, look.language),
        zone=trigger.zone,
        fires=tuple(_shown(fire, trigger, look, now) for fire in fires),
        warnings=_warnings(trigger, look, per_day),
        notes=tuple(clock_notes(trigger, look, now)),
        per_day=per_day,
        per_month=per_month,
        more=more,
        retries=retries,
        attempts=retry_picture(fires[0].at, retries, trigger.zone, look) if retries else None,
        left_out=left_out(trigger, look, now),
    )


def _warnings(trigger: Trigger, look: DisplayPreferences, per_day: int) -> tuple[str, ...]:
    """What is easily meant otherwise; and how often that is, unless that was said with it."""
    found = tuple(warnings_in_words(trigger, look.language))
    if per_day < _OFTEN or any(caution.code in _SAID_HOW_OFTEN for caution in cautions(trigger)):
        return found
    often = _("Runs {count} times a day", count=per_day)
    return (*found, in_language(often, look.language))


def retry_moments(policy: Policy, first: datetime) -> tuple[datetime, ...]:
    """When the attempts after a failed one would begin, were each to fail at once."""
    found, at = [], first
    for attempt in range(1, min(policy.max_retries, _MOST_RETRIES) + 1):
        at += policy.retry_delay(attempt, run_id="", asked=None)
        found.append(at)
    return tuple(found)


def _shown(fire: Fire, trigger: Trigger, look: DisplayPreferences, now: datetime) -> FireShown:
    return FireShown(
        at=fire.at,
        there=_text(fire.at, trigger.zone, look, now),
        here=_text(fire.at, look.zone, look, now),
        note="" if fire.note is None else note_in_words(fire.note, look.language),
    )


def _text(at: datetime, zone: str, look: DisplayPreferences, now: datetime) -> str:
    return absolute(at, zone, look, now=now, seconds=bool(at.second or at.microsecond))


def _count(trigger: Trigger, now: datetime, span: timedelta) -> tuple[int, bool]:
    """How many fires the span has. Calendars make counting a walk: that ends somewhere."""
    if not trigger.exclude:
        return trigger.count_between(now + _TICK, now + span), False
    found, at = 0, trigger.next_after(now)
    while at is not None and at <= now + span:
        found += 1
        if found >= _MOST_COUNTED:
            return found, True
        at = trigger.next_after(at)
    return found, False


# --- clock changes -----------------------------------------------------------------------------
def clock_notes(trigger: Trigger, look: DisplayPreferences, now: datetime) -> Iterator[str]:
    """What the changes of the schedule's clock, and of the reader's, do within the horizon."""
    told = chain(_own_changes(trigger, look, now), _shifts_for_reader(trigger, look, now))
    for said in islice(told, _MOST_NOTES):
        yield in_language(said, look.language)


def _own_changes(trigger: Trigger, look: DisplayPreferences, now: datetime) -> Iterator[str]:
    for change in clock_changes(trigger.zone, now, now + HORIZON):
        touched = touched_by(trigger, change)
        if touched is not None:
            yield touched_in_words(touched, look, now)


def _shifts_for_reader(trigger: Trigger, look: DisplayPreferences, now: datetime) -> Iterator[str]:
    """The same time there is another time here, once one of the two clocks has changed."""
    if isinstance(trigger, Once | Every) or trigger.zone == look.zone:
        return
    if trigger.count_between(now + _TICK, now + timedelta(days=7)) > 7 * 24:
        return
    here, there = zone_info(look.zone), zone_info(trigger.zone)
    changes = {
        each.at: zone
        for zone in (look.zone, trigger.zone)
        for each in clock_changes(zone, now, now + HORIZON)
    }
    for change, zone in sorted(changes.items()):
        before, after = trigger.previous_before(change), _first_after(trigger, change)
        if before is None or after is None or before <= now:
            continue
        if before.astimezone(there).time() != after.astimezone(there).time():
            continue
        was, becomes = before.astimezone(here), after.astimezone(here)
        if was.time() != becomes.time():
            yield _(
                "{day}: a clock changes, and this moves from {was} to {becomes} for you ({zone}).",
                # By the clock that changes: its first fire may be days later.
                day=day(change, zone, look, now=now),
                was=f"{was:%H:%M}",
                becomes=f"{becomes:%H:%M}",
                zone=look.zone,
            )


def _first_after(trigger: Trigger, change: datetime) -> datetime | None:
    """The first fire at its usual time: one whose time is left out that night says nothing about
    those after it."""
    fires = trigger.fires(change - _TICK, _LOOKED_AT)
    return next((fire.at for fire in fires if fire.note != "moved_by_gap"), None)
