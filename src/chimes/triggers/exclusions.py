"""Calendars compiled for searching.

The edges of all blackout windows cut the day into bands. Within a band it depends on the day alone
whether a slot is excluded and where it goes, so each band is a mapping from days to days, and a
search passes over a blackout the way it passes over any day that does not match.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from chimes.triggers.calendar import MINUTES_A_DAY, Calendar, OnExcluded
from chimes.triggers.cron_days import DaySet

FARTHEST_MOVE = 366


@dataclass(frozen=True, slots=True)
class Band:
    """The minutes [start, end) of every day, as the calendars see them."""

    start: int
    end: int
    # Each calendar with the weekdays on which its windows cover this band.
    rules: tuple[tuple[int, Calendar], ...]
    moves: bool
    _policies: dict[int, OnExcluded | None] = field(default_factory=dict, compare=False)

    def policy(self, day: int) -> OnExcluded | None:
        """What happens to slots of this day; None if they fire where they are."""
        if day not in self._policies:
            self._policies[day] = self._decide(day)
        return self._policies[day]

    def _decide(self, day: int) -> OnExcluded | None:
        weekday = (day + 4) % 7
        for weekdays, calendar in self.rules:
            if weekdays >> weekday & 1 or calendar.covers(day):
                return calendar.on_excluded
        return None

    def always_closed(self) -> bool:
        """Whether windows cover it on every weekday, so that nothing can fire or move here."""
        covered = 0
        for weekdays, _ in self.rules:
            covered |= weekdays
        return covered == 0b1111111

    def business(self, day: int) -> bool:
        return 0 < (day + 4) % 7 < 6 and self.policy(day) is None

    def sources(self, day: int) -> list[int]:
        """The days whose slots fire on this one: itself, and those moved here."""
        if self.policy(day) is not None:
            return []
        found = [day]
        if self.moves and self.business(day):
            found += self._run(day, -1, "next")
            found += self._run(day, 1, "previous")
        return found

    def moved(self, day: int, policy: OnExcluded) -> int | None:
        """The day on which slots of an excluded day fire, if there is one near enough."""
        step = 1 if policy == "next" else -1
        for distance in range(1, FARTHEST_MOVE + 1):
            if self.business(day + step * distance):
                return day + step * distance
        return None

    def _run(self, day: int, step: int, policy: OnExcluded) -> list[int]:
        found = []
        for distance in range(1, FARTHEST_MOVE + 1):
            other = day + step * distance
            if self.business(other):
                break
            if self.policy(other) == policy:
                found.append(other)
        return found


def bands(calendars: tuple[Calendar, ...]) -> list[Band]:
    """The day cut up so that each band is excluded as a whole or not at all.

    Bands that are never open are left out.
    """
    edges = sorted({0, MINUTES_A_DAY}.union(*(calendar.edges() for calendar in calendars)))
    moves = any(calendar.on_excluded != "skip" for calendar in calendars)
    found = [
        Band(start, end, tuple((each.weekdays(start), each) for each in calendars), moves)
        for start, end in pairwise(edges)
    ]
    return [band for band in found if not band.always_closed()]


class OpenDays:
    """The days on which slots of `days` fire within a band."""

    __slots__ = ("_band", "_days", "blocks")

    def __init__(self, days: DaySet, band: Band) -> None:
        self._days = days
        self._band = band
        self.blocks: dict[int, int] = {}

    def block(self, number: int) -> int:
        mask = self.blocks.get(number)
        if mask is None:
            mask = self.blocks[number] = self._compute(number)
        return mask

    def _compute(self, number: int) -> int:
        first = number << 6
        if not self._band.moves:
            mask = self._days.block(number)
            for bit in range(64):
                if mask >> bit & 1 and self._band.policy(first + bit) is not None:
                    mask ^= 1 << bit
            return mask
        return sum(
            1 << bit
            for bit in range(64)
            if any(
                self._days.block(day >> 6) >> (day & 63) & 1
                for day in self._band.sources(first + bit)
            )
        )
