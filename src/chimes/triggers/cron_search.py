"""The next and previous fire of a cron expression, on integers.

The wall clock is searched by masks (`WallTimes`), one segment of constant UTC offset at a time
(`CronSearch`), so clock changes matter only where two segments meet. A segment that begins with a
repeated hour or after a gap knows so; what that means for this expression is two flags:

| dst | fires at T for what the gap swallowed | fires in the second pass |
|---|---|---|
| chimes | unless the hour has `*` or `/` (T2–T4) | if minute or hour has `*` or `/` (T5, T6) |
| vixie | if neither minute nor hour begins with `*` | if minute or hour begins with `*` |
| robfig | never | always |

`vixie` is Debian's cron: wildcard jobs follow real time, all others run right after a gap and once
in a repeated hour. `robfig` is every real instant whose wall time matches; the endless loop of the
original at Pacific/Apia 2011 and its rounding at half-hour shifts are not kept.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Protocol

from chimes.triggers.cron_days import DaySet
from chimes.triggers.cron_fields import CronFields
from chimes.triggers.notes import Note
from chimes.triggers.zone import FOREVER, Table, Zone

# T14. Leap days on a given weekday are up to 40 years apart.
SEARCH_YEARS = 60
SEARCH_SECONDS = SEARCH_YEARS * 366 * 86400
# No two offsets of a zone differ by as much, so a wall time repeats only within this.
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


class WallTimes:
    """A set of days crossed with a set of minutes of the day and a set of seconds."""

    __slots__ = (
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
        days = self._days.block(day >> 6) >> (day & 63)
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
        number = day >> 6
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


class WallUnion:
    """Several sets of wall times as one; how a day cut up by blackout windows is searched."""

    __slots__ = ("_parts",)

    def __init__(self, parts: list[WallTimes]) -> None:
        self._parts = parts

    def at_or_after(self, wall: int, limit: int) -> int:
        return min((part.at_or_after(wall, limit) for part in self._parts), default=NEVER)

    def at_or_before(self, wall: int, limit: int) -> int:
        return max((part.at_or_before(wall, limit) for part in self._parts), default=-NEVER)


class CronSearch:
    """One expression in one zone under one policy for clock changes."""

    __slots__ = ("_plain", "_zone", "after_gap", "twice", "wall")

    def __init__(
        self, wall: Wall, zone: Zone, *, after_gap: bool, twice: bool, plain: Wall | None = None
    ) -> None:
        self.wall = wall
        # The same without calendars, to tell which fires they moved.
        self._plain = plain
        self._zone = zone
        self.after_gap = after_gap
        self.twice = twice

    def at_or_after(self, second: int) -> int | None:
        """The first fire from this UTC second on, within the search bound."""
        limit = second + SEARCH_SECONDS
        table = self._zone.table(second)
        while second <= limit:
            index = bisect_right(table.instants, second)
            offset = table.offsets[index]
            if second == table.starts[index] and self.fills_gap(table, index):
                return second
            start = second if self.twice else max(second, table.fold_ends[index])
            found = self.wall.at_or_after(start + offset, limit) - offset
            end = table.ends[index]
            if found < end:
                return found
            # Nothing matches from here to `found`, whatever the offset: unless the clock goes
            # back right now, all segments in between can be passed over.
            second = end if end < start + _TWO_DAYS else max(end, found - _TWO_DAYS)
        return None

    def at_or_before(self, second: int) -> int | None:
        """The last fire up to this UTC second, within the search bound."""
        limit = second - SEARCH_SECONDS
        table = self._zone.table(second)
        while second >= limit:
            index = bisect_right(table.instants, second)
            offset = table.offsets[index]
            start = table.starts[index]
            found = self.wall.at_or_before(second + offset, limit) - offset
            if found >= (start if self.twice else table.fold_ends[index]):
                return found
            if self.fills_gap(table, index):
                return start
            second = start - 1 if start > second - _TWO_DAYS else min(start - 1, found + _TWO_DAYS)
        return None

    def fills_gap(self, table: Table, index: int) -> bool:
        """Whether a fire lost in the gap before this segment happens at its start (T2, T3)."""
        if not self.after_gap or table.gap_starts[index] == FOREVER:
            return False
        lost, resumes = table.gap_starts[index], table.starts[index] + table.offsets[index]
        return self.wall.at_or_after(lost, resumes) < resumes

    def note(self, second: int) -> Note | None:
        """What is special about the fire at this UTC second."""
        table = self._zone.table(second)
        index = bisect_right(table.instants, second)
        wall = second + table.offsets[index]
        if self.wall.at_or_after(wall, wall) != wall:
            return "moved_by_gap"
        if self._plain is not None and self._plain.at_or_after(wall, wall) != wall:
            return "moved_by_calendar"
        if index and wall < table.starts[index] + table.offsets[index - 1]:
            return "repeated_hour_second"
        if index + 1 < len(table.offsets) and wall >= table.ends[index] + table.offsets[index + 1]:
            again = self.twice or table.fold_ends[index + 1] == table.ends[index]
            return "repeated_hour_first" if again else "repeated_hour_once"
        return None


def clock_change_flags(fields: CronFields, dst: str) -> tuple[bool, bool]:
    """(fires at T after a gap, fires in both passes) for this expression and policy."""
    minute, hour = fields.minute_text, fields.hour_text
    if dst == "robfig":
        return False, True
    if dst == "vixie":
        wild = minute.startswith("*") or hour.startswith("*")
        return not wild, wild
    hourly = "*" in hour or "/" in hour
    return not hourly, hourly or "*" in minute or "/" in minute
