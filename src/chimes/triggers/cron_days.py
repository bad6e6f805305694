"""Which days a cron expression names, as bit masks.

A month becomes a mask of its days (bit 0 is the 1st) with L, W and # resolved for that month; 64
consecutive days become a block (bit 0 is day 64·b since 1970), so that a search steps from day to
day, or over empty weeks, with a shift. Blocks are kept with the interned expression.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import Protocol

from chimes.triggers.tzif import EPOCH_ORDINAL

_LAST_ORDINAL = date.max.toordinal()
# 0b...0000001 repeated every seven days, enough for any month.
_EVERY_WEEK = sum(1 << day for day in range(0, 42, 7))


class DaySet(Protocol):
    """Days since 1970, 64 at a time; `blocks` are the masks made so far."""

    @property
    def blocks(self) -> dict[int, int]: ...

    def block(self, number: int) -> int:
        """The mask of days 64·number … 64·number + 63."""
        ...


@dataclass(frozen=True, slots=True)
class DayFields:
    """The day-of-month, month, day-of-week and year fields, parsed. Sunday is 0.

    `nearest` and `last_nearest` are the `nW` and `L-nW` terms, `last` the offsets of `L-n`
    (`LW` is kept apart because it never leaves the end of the month), `nth` and `last_weekday` the
    `d#n` and `dL` terms.
    """

    days: int
    months: int
    weekdays: int
    both: bool
    years: int | None = None
    last: tuple[int, ...] = ()
    nearest: tuple[int, ...] = ()
    last_nearest: tuple[int, ...] = ()
    last_working: bool = False
    nth: tuple[tuple[int, int], ...] = ()
    last_weekday: tuple[int, ...] = ()
    blocks: dict[int, int] = field(default_factory=dict, compare=False, repr=False)

    def block(self, number: int) -> int:
        mask = self.blocks.get(number)
        if mask is None:
            mask = self.blocks[number] = self._compute(number)
        return mask

    def _compute(self, number: int) -> int:
        first = number * 64 + EPOCH_ORDINAL
        stop = min(first + 64, _LAST_ORDINAL + 1)
        mask = 0
        at = max(first, 1)
        while at < stop:
            day = date.fromordinal(at)
            start = at - day.day + 1
            following = start + _length(day.year, day.month)
            month = self.month(day.year, day.month, start)
            mask |= month << (start - first) if start >= first else month >> (first - start)
            at = following
        return mask & 0xFFFF_FFFF_FFFF_FFFF

    def month(self, year: int, month: int, ordinal: int) -> int:
        """The days of one month that match; `ordinal` is that of its first day."""
        if not self.months >> month & 1:
            return 0
        if self.years is not None and (year < 1970 or not self.years >> (year - 1970) & 1):
            return 0
        length = _length(year, month)
        first_weekday = ordinal % 7
        by_date = self._by_date(length, first_weekday)
        by_weekday = self._by_weekday(length, first_weekday)
        matching = by_date & by_weekday if self.both else by_date | by_weekday
        return matching & ((1 << length) - 1)

    def _by_date(self, length: int, first_weekday: int) -> int:
        mask = self.days
        for back in self.last:
            if back < length:
                mask |= 1 << (length - 1 - back)
        for day in self.nearest:
            if day <= length:
                mask |= 1 << (_working(day, length, first_weekday) - 1)
        for back in self.last_nearest:
            if back < length:
                mask |= 1 << (_working(length - back, length, first_weekday) - 1)
        if self.last_working:
            mask |= 1 << (_working(length, length, first_weekday) - 1)
        return mask

    def _by_weekday(self, length: int, first_weekday: int) -> int:
        mask = 0
        for weekday in range(7):
            if self.weekdays >> weekday & 1:
                mask |= _EVERY_WEEK << (weekday - first_weekday) % 7
        for weekday, nth in self.nth:
            mask |= 1 << (weekday - first_weekday) % 7 + 7 * (nth - 1)
        for weekday in self.last_weekday:
            first = (weekday - first_weekday) % 7
            mask |= 1 << first + (length - 1 - first) // 7 * 7
        return mask


def _length(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def _working(day: int, length: int, first_weekday: int) -> int:
    """The Monday to Friday nearest to `day` that stays in the month (T13)."""
    weekday = (first_weekday + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day
