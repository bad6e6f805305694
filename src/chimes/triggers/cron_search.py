"""Finds the next and previous fire of a cron expression, on integers.

The wall clock is searched by masks (`WallTimes`), one segment of constant UTC offset at a time
(`CronSearch`), so clock changes matter only where two segments meet. A segment knows
whether it begins with a repeated hour or after a gap; two flags decide what the expression does:

| dst | fires after the gap for times in the gap | fires in the second pass |
|---|---|---|
| chimes | unless the hour has `*` or `/` | if minute or hour has `*` or `/` |
| vixie | if neither minute nor hour begins with `*` | if minute or hour begins with `*` |
| robfig | never | always |

`vixie` is Debian's cron: wildcard jobs follow real time, all others run right after a gap and once
in a repeated hour. `robfig` is every real instant whose wall time matches; the endless loop of the
original at Pacific/Apia 2011 and its rounding at half-hour shifts are not reproduced.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Protocol

from chimes.triggers.base import Note
from chimes.triggers.cron_fields import CronFields, DaySet
from chimes.triggers.zones import FOREVER, NEAR_LIMIT, Segment, Zone

# Leap days on a given weekday are up to 40 years apart.
SEARCH_YEARS = 60
SEARCH_SECONDS = SEARCH_YEARS * 366 * 86400
# Offsets of a zone differ by less, so a wall time repeats only within this.
_TWO_DAYS = 2 * 86400
# Beyond the end of every segment, so that "none" is never taken for a fire in the last one.
NEVER = 4 * FOREVER


class Wall(Protocol):
    """A set of wall-clock seconds."""

    def at_or_after(self, wall: int, limit: int) -> int:
        """The first one from `wall` on; NEVER if there is none up to the day of `limit`."""
        ...

    def at_or_before(self, wall: int, limit: int) -> int:
        """The last one up to `wall`; -NEVER if there is none back to the day of `limit`."""
        ...

    def count(self, first: int, last: int) -> int:
        """How many lie from `first` to `last`, both included."""
        ...


class WallTimes:
    """A set of days crossed with a set of minutes of the day and a set of seconds."""

    __slots__ = (
        "_blocks",
        "_days",
        "_first",
        "_first_second",
        "_last",
        "_last_second",
        "_minutes",
        "_seconds",
    )

    def __init__(self, days: DaySet, minutes: int, seconds: int) -> None:
        self._days = days
        self._blocks = days.blocks
        self._minutes = minutes
        self._seconds = seconds
        self._first_second = (seconds & -seconds).bit_length() - 1
        self._last_second = seconds.bit_length() - 1
        self._first = ((minutes & -minutes).bit_length() - 1) * 60 + self._first_second
        self._last = (minutes.bit_length() - 1) * 60 + self._last_second

    def at_or_after(self, wall: int, limit: int) -> int:
        minute, second = divmod(wall, 60)
        if second > self._last_second:
            minute += 1
            second = 0
        day, within = divmod(minute, 1440)
        number = day >> 6
        days = self._blocks.get(number)
        days = (self._days.block(number) if days is None else days) >> (day & 63)
        if days & 1:
            minutes = self._minutes >> within
            if minutes & 1:
                seconds = self._seconds >> second
                return minute * 60 + second + (seconds & -seconds).bit_length() - 1
            if minutes:
                minute += (minutes & -minutes).bit_length() - 1
                return minute * 60 + self._first_second
            days -= 1
        last_block = limit // 86400 >> 6
        while not days:
            number += 1
            if number > last_block:
                return NEVER
            day = number << 6
            days = self._days.block(number)
        return (day + (days & -days).bit_length() - 1) * 86400 + self._first

    def at_or_before(self, wall: int, limit: int) -> int:
        minute, second = divmod(wall, 60)
        if second < self._first_second:
            minute -= 1
            second = 59
        day, within = divmod(minute, 1440)
        number = day >> 6
        days = self._days.block(number) & (2 << (day & 63)) - 1
        if days >> (day & 63):
            minutes = self._minutes & (2 << within) - 1
            if minutes >> within:
                seconds = self._seconds & (2 << second) - 1
                return minute * 60 + seconds.bit_length() - 1
            if minutes:
                return (day * 1440 + minutes.bit_length() - 1) * 60 + self._last_second
            days ^= 1 << (day & 63)
        first_block = limit // 86400 >> 6
        while not days:
            number -= 1
            if number < first_block:
                return -NEVER
            days = self._days.block(number)
        return ((number << 6) + days.bit_length() - 1) * 86400 + self._last

    def count(self, first: int, last: int) -> int:
        (day, start), (last_day, end) = divmod(first, 86400), divmod(last, 86400)
        whole = self._days_from(day, last_day - 1) * self._below(86400)
        partly = self._below(end + 1) if self._has(last_day) else 0
        before = self._below(start) if self._has(day) else 0
        return whole + partly - before

    def _has(self, day: int) -> int:
        return self._days.block(day >> 6) >> (day & 63) & 1

    def _days_from(self, first: int, last: int) -> int:
        """How many days of the set lie from `first` to `last`."""
        found = 0
        for number in range(first >> 6, (last >> 6) + 1 if first <= last else first >> 6):
            days = self._days.block(number)
            if number == last >> 6:
                days &= (2 << (last & 63)) - 1
            if number == first >> 6:
                days &= -1 << (first & 63)
            found += days.bit_count()
        return found

    def _below(self, second: int) -> int:
        """How many seconds of a day of the set lie before this one."""
        minute, within = divmod(second, 60)
        full = (self._minutes & (1 << minute) - 1).bit_count() * self._seconds.bit_count()
        if not self._minutes >> minute & 1:
            return full
        return full + (self._seconds & (1 << within) - 1).bit_count()


class WallUnion:
    """The union of several sets of wall times, for days divided by blackout windows."""

    __slots__ = ("_parts",)

    def __init__(self, parts: list[WallTimes]) -> None:
        self._parts = parts

    def at_or_after(self, wall: int, limit: int) -> int:
        return min((part.at_or_after(wall, limit) for part in self._parts), default=NEVER)

    def at_or_before(self, wall: int, limit: int) -> int:
        return max((part.at_or_before(wall, limit) for part in self._parts), default=-NEVER)

    def count(self, first: int, last: int) -> int:
        # The parts are different times of the day, so none counts twice.
        return sum(part.count(first, last) for part in self._parts)


class CronSearch:
    """One expression in one zone under one policy for clock changes."""

    __slots__ = ("_after_gap", "_near", "_plain", "_twice", "_wall", "_zone")

    def __init__(
        self, wall: Wall, plain: Wall, zone: Zone, *, after_gap: bool, twice: bool
    ) -> None:
        self._wall = wall
        # Without calendars, to detect fires that they moved.
        self._plain = plain
        self._zone = zone
        self._near = zone.near
        self._after_gap = after_gap
        self._twice = twice

    def after(self, moment: int) -> int | None:
        """The first fire after this microsecond, within the search bound."""
        second = moment // 1_000_000 + 1
        limit = second + SEARCH_SECONDS
        table = self._near if second < NEAR_LIMIT else self._zone.table(second)
        while second <= limit:
            segment = table.segments[bisect_right(table.instants, second)]
            start, end, offset, fold_end, _ = segment
            if second == start and self._fills_gap(segment):
                return second * 1_000_000
            if second < fold_end and not self._twice:
                second = fold_end
            found = self._wall.at_or_after(second + offset, limit) - offset
            if found < end:
                return found * 1_000_000
            # Nothing matches up to `found` at any offset: unless the clock goes back here, all
            # segments in between can be skipped.
            second = end if end < second + _TWO_DAYS else max(end, found - _TWO_DAYS)
        return None

    def before(self, moment: int) -> int | None:
        """The last fire before this microsecond, within the search bound."""
        second = (moment - 1) // 1_000_000
        limit = second - SEARCH_SECONDS
        table = self._near if second < NEAR_LIMIT else self._zone.table(second)
        while second >= limit:
            segment = table.segments[bisect_right(table.instants, second)]
            start, _, offset, fold_end, _ = segment
            found = self._wall.at_or_before(second + offset, limit) - offset
            if found >= fold_end or (found >= start and self._twice):
                return found * 1_000_000
            if self._fills_gap(segment):
                return start * 1_000_000
            recent = start > second - _TWO_DAYS
            second = start - 1 if recent else min(start - 1, found + _TWO_DAYS)
        return None

    def count(self, first: int, last: int) -> int:
        """How many fires lie from one microsecond to another, by counting wall times."""
        second, final = -(-first // 1_000_000), last // 1_000_000
        found = 0
        while second <= final:
            table = self._near if second < NEAR_LIMIT else self._zone.table(second)
            segment = table.segments[bisect_right(table.instants, second)]
            start, end, offset, fold_end, _ = segment
            if second == start and self._fills_gap(segment):
                found += 1
                second += 1
            if not self._twice:
                second = max(second, fold_end)
            until = min(final, end - 1)
            if second <= until:
                found += self._wall.count(second + offset, until + offset)
            second = max(end, second)
        return found

    def _fills_gap(self, segment: Segment) -> bool:
        """Whether a fire lost in the gap before this segment happens at its start."""
        if not self._after_gap or segment.gap_start == FOREVER:
            return False
        resumes = segment.start + segment.offset
        return self._wall.at_or_after(segment.gap_start, resumes) < resumes

    def note(self, fire: int) -> Note | None:
        """The note of this fire."""
        second = fire // 1_000_000
        table = self._zone.table(second)
        index = bisect_right(table.instants, second)
        segment = table.segments[index]
        wall = second + segment.offset
        if self._wall.at_or_after(wall, wall) != wall:
            return "moved_by_gap"
        if self._plain.at_or_after(wall, wall) != wall:
            return "moved_by_calendar"
        if index and wall < segment.start + table.segments[index - 1].offset:
            return "repeated_hour_second"
        if index + 1 < len(table.segments):
            following = table.segments[index + 1]
            if wall >= following.start + following.offset:
                again = self._twice or following.fold_end == following.start
                return "repeated_hour_first" if again else "repeated_hour_once"
        return None


def clock_change_flags(fields: CronFields, dst: str) -> tuple[bool, bool]:
    """(fires at the end of a gap, fires in both passes) for this expression and policy."""
    minute, hour = fields.minute_text, fields.hour_text
    if dst == "robfig":
        return False, True
    if dst == "vixie":
        wild = minute.startswith("*") or hour.startswith("*")
        return not wild, wild
    hourly = "*" in hour or "/" in hour
    return not hourly, hourly or "*" in minute or "/" in minute
