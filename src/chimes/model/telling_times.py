"""When people want to hear of runs: quiet hours and digests, by the wall clock of a zone (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import assert_never

from chimes.errors import InvalidInput
from chimes.model.occasion import Occasion
from chimes.triggers import parse_zone
from chimes.triggers.zone import UTC_NAME, Zone

#: As programs name them, from 0 on.
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_EPOCH = date(1970, 1, 1)
_DAY = timedelta(days=1)


class Period(StrEnum):
    HOUR = "hourly"
    DAY = "daily"
    WEEK = "weekly"


@dataclass(frozen=True, kw_only=True, slots=True)
class Quiet:
    """From `start` to `end` by the wall clock of the zone, over midnight if need be."""

    start: time
    end: time
    #: Empty until it is saved.
    zone: str = ""
    #: Told all the same.
    but: tuple[Occasion, ...] = ()

    def until(self, moment: datetime) -> datetime | None:
        """When it is over, if it is quiet at that moment."""
        found = self.around(moment)
        return None if found is None else found[1]

    def around(self, moment: datetime) -> tuple[datetime, datetime] | None:
        """From when until when it is quiet, if it is at that moment."""
        zone = _zone(self.zone)
        today = _local_day(zone, moment)
        over_midnight = _DAY if self.end <= self.start else timedelta()
        for day in (today - _DAY, today):
            start = _instant(zone, day, self.start)
            end = _instant(zone, day + over_midnight, self.end)
            if start <= moment < end:
                return start, end
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Digest:
    """One message for each period instead of one for each run."""

    every: Period
    #: By the wall clock of the zone; of an hourly one only the minute counts.
    at: time = time(8)
    #: Of a weekly one: 0 is Monday.
    weekday: int = 0
    #: Empty until it is saved.
    zone: str = ""
    #: Told by themselves, at once.
    but: tuple[Occasion, ...] = ()

    def end_after(self, moment: datetime) -> datetime:
        """The end of the period that the moment lies in; it begins with the end before it."""
        zone = _zone(self.zone)
        match self.every:
            case Period.HOUR:
                return _hour_after(zone, moment, self.at.minute)
            case Period.DAY | Period.WEEK:
                ends = (_instant(zone, day, self.at) for day in self._days(zone, moment))
                return next(end for end in ends if end > moment)
            case _:
                assert_never(self.every)

    @property
    def length(self) -> timedelta:
        """About so long."""
        match self.every:
            case Period.HOUR:
                return timedelta(hours=1)
            case Period.DAY:
                return _DAY
            case Period.WEEK:
                return 7 * _DAY
            case _:
                assert_never(self.every)

    def _days(self, zone: Zone, moment: datetime) -> Iterator[date]:
        day = _local_day(zone, moment) - _DAY
        while True:
            if self.every is Period.DAY or day.weekday() == self.weekday:
                yield day
            day += _DAY


def _zone(name: str) -> Zone:
    """UTC if there is none of that name (any more): the run that is told of ends all the same."""
    try:
        return parse_zone(name or UTC_NAME)
    except InvalidInput:
        return parse_zone(UTC_NAME)


def _local_day(zone: Zone, moment: datetime) -> date:
    second = int(moment.timestamp())
    return _EPOCH + timedelta(days=(second + zone.offset_at(second)) // 86400)


def _instant(zone: Zone, day: date, at: time) -> datetime:
    """The first of two; the end of the gap where the clock jumps over it."""
    wall = (day - _EPOCH).days * 86400 + at.hour * 3600 + at.minute * 60
    second, _ = zone.from_local(wall)
    return datetime.fromtimestamp(second, UTC)


def _hour_after(zone: Zone, moment: datetime, minute: int) -> datetime:
    second = int(moment.timestamp())
    shift = zone.offset_at(second) - minute * 60
    return datetime.fromtimestamp(((second + shift) // 3600 + 1) * 3600 - shift, UTC)
