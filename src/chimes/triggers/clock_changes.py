"""Clock changes of a zone and their effect on the fires of a trigger."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from chimes.triggers import AnyOf, BusinessDay, RRule, Sun, Trigger
from chimes.triggers.cron import Cron
from chimes.triggers.every import Every
from chimes.triggers.once import Once
from chimes.triggers.zones import UTC_NAME, parse_zone

_MICROSECOND = timedelta(microseconds=1)
#: Fires around a change that are checked for an effect.
_FIRES_CHECKED = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class ClockChange:
    zone: str
    at: datetime
    #: How far the clock moves forward; negative: back.
    by: timedelta


class Effect(StrEnum):
    #: Its time does not exist on that day; it fires at the change.
    MOVED = "moved"
    #: Its time happens twice, and it fires the first time only, or both times.
    ONCE = "once"
    TWICE = "twice"


@dataclass(frozen=True, kw_only=True, slots=True)
class AffectedFire:
    """The effect of a change on one fire: intended and actual wall time."""

    change: ClockChange
    effect: Effect
    meant: datetime
    fires: datetime


def clock_changes(zone: str, start: datetime, end: datetime) -> tuple[ClockChange, ...]:
    """The changes after `start`, up to `end`."""
    if zone == UTC_NAME:
        return ()
    first, last = int(start.timestamp()), int(end.timestamp())
    table = parse_zone(zone).table(first)
    place = bisect_right(table.instants, first)
    found: list[ClockChange] = []
    while place < len(table.instants) and table.instants[place] <= last:
        before, after = table.segments[place], table.segments[place + 1]
        at = datetime.fromtimestamp(after.start, UTC)
        by = timedelta(seconds=after.offset - before.offset)
        found.append(ClockChange(zone=zone, at=at, by=by))
        place += 1
    return tuple(found)


def affected_fire(trigger: Trigger, change: ClockChange) -> AffectedFire | None:
    """The fire that the change affects, or None."""
    if isinstance(trigger, AnyOf):
        found = (affected_fire(each, change) for each in trigger.of)
        return next((each for each in found if each is not None), None)
    if isinstance(trigger, Every | Sun) or trigger.zone != change.zone:
        return None
    width = abs(change.by)
    wall = _wall_time(change)
    meant = _intended_fire(trigger, wall, wall + width)
    if meant is None:
        return None
    for fire in trigger.fires(change.at - width - _MICROSECOND, _FIRES_CHECKED):
        match fire.note:
            case "moved_by_gap":
                effect = Effect.MOVED
            case "repeated_hour_once":
                effect = Effect.ONCE
            case "repeated_hour_first" | "repeated_hour_second":
                effect = Effect.TWICE
            case _:
                continue
        return AffectedFire(change=change, effect=effect, meant=meant, fires=fire.local)
    return None


def _wall_time(change: ClockChange) -> datetime:
    """The first wall time that is skipped or repeated."""
    second = int(change.at.timestamp())
    zone = parse_zone(change.zone)
    return change.at + timedelta(seconds=min(zone.offset_at(second - 1), zone.offset_at(second)))


def _intended_fire(trigger: Trigger, start: datetime, end: datetime) -> datetime | None:
    """The first wall time between these two at which the trigger fires by its expression. Wall
    times are represented in UTC, which has no clock changes."""
    if isinstance(trigger, Once):
        if trigger.at.endswith("Z"):
            return None
        wall = datetime.fromisoformat(trigger.at).replace(tzinfo=UTC)
        return wall if start <= wall < end else None
    if isinstance(trigger, RRule | BusinessDay) and "Z" not in getattr(trigger, "dtstart", ""):
        fire = replace(trigger, timezone=UTC_NAME).next_after(start - _MICROSECOND)
        return fire if fire is not None and fire < end else None
    if not isinstance(trigger, Cron) or "@every" in trigger.expression:
        return None
    found = Cron(trigger.resolved, timezone=UTC_NAME, dialect=trigger.dialect).next_after(
        start - _MICROSECOND
    )
    return found if found is not None and found < end else None
