"""What will happen, before anything is saved: the fires of a trigger as the scheduler computes
them, clock changes in words, how often, and when retries would come (UX A.4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, islice

from chimes.doors.dashboard.charts.drawing import Chart
from chimes.doors.dashboard.clock_words import touched_in_words
from chimes.doors.dashboard.look import Look
from chimes.doors.dashboard.times import absolute, day, zone_info
from chimes.doors.dashboard.views_wizard_day import left_out, retry_picture
from chimes.language import describe, note_in_words, warnings_in_words
from chimes.language.cautions import cautions
from chimes.model.policy import Policy
from chimes.triggers import Every, Fire, Once, Trigger
from chimes.triggers.clock_changes import clock_changes, touched_by
from chimes.wording import in_language, say

FIRES = 5
#: Both clock changes of a year, and some days.
HORIZON = timedelta(days=400)
_MOST_NOTES = 4
#: Where fires have to be walked through to be counted, no further than this.
_MOST_COUNTED = 2000
_MOST_RETRIES = 5
#: Fires after a change that are looked at for the first usual one.
_LOOKED_AT = 3
_TICK = timedelta(microseconds=1)
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
    look: Look,
    now: datetime,
    policy: Policy | None = None,
    said: Trigger | None = None,
) -> Preview:
    """Of a trigger with its zone and anchor. `said`: the same as it was asked for, for the words:
    nobody asked for the very microsecond at which an interval begins."""
    fires = trigger.fires(now, min(FIRES, trigger.max_runs or FIRES))
    per_day, _ = _count(trigger, now, timedelta(days=1))
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


def _warnings(trigger: Trigger, look: Look, per_day: int) -> tuple[str, ...]:
    """What is easily meant otherwise; and how often that is, unless that was said with it."""
    found = tuple(warnings_in_words(trigger, look.language))
    if per_day < _OFTEN or any(caution.code in _SAID_HOW_OFTEN for caution in cautions(trigger)):
        return found
    often = say("Runs {count} times a day", count=per_day)
    return (*found, in_language(often, look.language))


def retry_moments(policy: Policy, first: datetime) -> tuple[datetime, ...]:
    """When the attempts after a failed one would begin, were each to fail at once."""
    found, at = [], first
    for attempt in range(1, min(policy.max_retries, _MOST_RETRIES) + 1):
        at += policy.retry_delay(attempt, run_id="", asked=None)
        found.append(at)
    return tuple(found)


def _shown(fire: Fire, trigger: Trigger, look: Look, now: datetime) -> FireShown:
    return FireShown(
        at=fire.at,
        there=_text(fire.at, trigger.zone, look, now),
        here=_text(fire.at, look.zone, look, now),
        note="" if fire.note is None else note_in_words(fire.note, look.language),
    )


def _text(at: datetime, zone: str, look: Look, now: datetime) -> str:
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
def clock_notes(trigger: Trigger, look: Look, now: datetime) -> Iterator[str]:
    """What the changes of the schedule's clock, and of the reader's, do within the horizon."""
    told = chain(_own_changes(trigger, look, now), _shifts_for_reader(trigger, look, now))
    for said in islice(told, _MOST_NOTES):
        yield in_language(said, look.language)


def _own_changes(trigger: Trigger, look: Look, now: datetime) -> Iterator[str]:
    for change in clock_changes(trigger.zone, now, now + HORIZON):
        touched = touched_by(trigger, change)
        if touched is not None:
            yield touched_in_words(touched, look, now)


def _shifts_for_reader(trigger: Trigger, look: Look, now: datetime) -> Iterator[str]:
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
            yield say(
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
