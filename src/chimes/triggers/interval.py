"""Slots at anchor + k·N in real elapsed time (T9), on integer microseconds.

Zones play no part; calendars are read in UTC. Without an anchor the slots lie on the grid of the
Unix epoch and have no first one.
"""

from __future__ import annotations

from chimes.triggers.calendar import Calendar
from chimes.triggers.cron_search import SEARCH_SECONDS
from chimes.triggers.exclusions import FARTHEST_MOVE, Band, bands
from chimes.triggers.notes import Note

_DAY = 86_400_000_000
_MINUTE = 60_000_000
SEARCH_DAYS = SEARCH_SECONDS // 86400


class IntervalSearch:
    """The slots of one interval."""

    __slots__ = ("_anchor", "_bands", "_first", "_reach", "_step")

    def __init__(self, step: int, anchor: int | None, calendars: tuple[Calendar, ...]) -> None:
        self._step = step
        self._anchor = anchor or 0
        self._first = anchor
        self._bands = self._relevant(bands(calendars)) if calendars else None
        moves = any(calendar.on_excluded != "skip" for calendar in calendars)
        self._reach = FARTHEST_MOVE if moves else 0

    def _relevant(self, found: list[Band]) -> list[Band]:
        if self._step % _DAY:
            return found
        minute = self._anchor % _DAY // _MINUTE
        return [band for band in found if band.start <= minute < band.end]

    def number(self, slot: int) -> int:
        """k of the slot at, or last before, this instant."""
        return (slot - self._anchor) // self._step

    def slot_from(self, start: int) -> int:
        """The first slot at or after `start`, calendars aside."""
        if self._first is not None and start <= self._first:
            return self._first
        return self._anchor - (self._anchor - start) // self._step * self._step

    def slot_until(self, end: int) -> int | None:
        """The last slot at or before `end`, calendars aside."""
        if self._first is not None and end < self._first:
            return None
        return self._anchor + (end - self._anchor) // self._step * self._step

    def after(self, moment: int) -> int | None:
        """The first fire after this instant."""
        if self._bands is None:
            return self.slot_from(moment + 1)
        day = moment // _DAY
        last = day + SEARCH_DAYS if self._bands else day - 1
        while day <= last:
            found = [
                slot
                for band in self._bands
                for source in band.sources(day)
                if (slot := self._first_in(band, source, day, moment + 1)) is not None
            ]
            if found:
                return min(found)
            # Days too far from any slot to receive one are passed over.
            near = self.slot_from((day + 1 - self._reach) * _DAY)
            day = max(day + 1, near // _DAY - self._reach)
        return None

    def before(self, moment: int) -> int | None:
        """The last fire before this instant."""
        if self._bands is None:
            return self.slot_until(moment - 1)
        day = moment // _DAY
        last = day - SEARCH_DAYS if self._bands else day + 1
        while day >= last:
            found = [
                slot
                for band in self._bands
                for source in band.sources(day)
                if (slot := self._last_in(band, source, day, moment - 1)) is not None
            ]
            if found:
                return max(found)
            near = self.slot_until((day + self._reach) * _DAY - 1)
            if near is None:
                return None
            day = min(day - 1, near // _DAY + self._reach)
        return None

    def count(self, first: int, last: int) -> int:
        """How many fires lie from `first` to `last`; walked through only where calendars are."""
        if self._bands:
            found, at = 0, self.after(first - 1)
            while at is not None and at <= last:
                found, at = found + 1, self.after(at)
            return found
        end = self.slot_until(last)
        start = self.slot_from(first)
        return 0 if end is None or end < start else (end - start) // self._step + 1

    def note(self, fire: int) -> Note | None:
        return "moved_by_calendar" if self.slot_until(fire) != fire else None

    def _first_in(self, band: Band, source: int, day: int, start: int) -> int | None:
        shift = (day - source) * _DAY
        opens = source * _DAY + band.start * _MINUTE
        slot = self.slot_from(max(opens, start - shift))
        return slot + shift if slot < source * _DAY + band.end * _MINUTE else None

    def _last_in(self, band: Band, source: int, day: int, end: int) -> int | None:
        shift = (day - source) * _DAY
        closes = source * _DAY + band.end * _MINUTE
        slot = self.slot_until(min(closes - 1, end - shift))
        if slot is None or slot < source * _DAY + band.start * _MINUTE:
            return None
        return slot + shift
