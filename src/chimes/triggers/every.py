"""The every trigger: a fixed interval of elapsed time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import ClassVar, Literal, Self

from chimes.errors import InvalidTrigger
from chimes.i18n import _
from chimes.triggers.base import TriggerBase, parse_bound
from chimes.triggers.calendars import MAX_MOVE_DAYS, Band, Calendar, bands
from chimes.triggers.searches import SEARCH_SECONDS, Note, Search
from chimes.triggers.values import (
    format_duration_iso,
    format_moment,
    from_microseconds,
    parse_duration,
    to_microseconds,
)
from chimes.triggers.zones import UTC_NAME, parse_zone

# Slots are at anchor + k·N, in integer microseconds, independent of zones; calendars apply in UTC.
# Without an anchor the slots are aligned to the Unix epoch.

_MINUTE = 60_000_000
_DAY = 86_400_000_000
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
        self._reach = MAX_MOVE_DAYS if moves else 0

    def _relevant(self, found: list[Band]) -> list[Band]:
        if self._step % _DAY:
            return found
        minute = self._anchor % _DAY // _MINUTE
        return [band for band in found if band.start <= minute < band.end]

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
            # Skip days too far from any slot.
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
        """How many fires lie from `first` to `last`; iterates only with calendars."""
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


MIN_INTERVAL = timedelta(milliseconds=1)
MAX_INTERVAL = timedelta(days=3653)
MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, init=False)
class Every(TriggerBase):
    """Fires at anchor + k·every, k ≥ 0; a future anchor is the first slot.

    Without an anchor the slots are aligned to the Unix epoch; a schedule sets an anchor with
    `anchored`. `jitter` delays each run by a hash of the schedule's id
    and k in [0, jitter); it is never longer than `every`, so runs keep their order.
    """

    kind: ClassVar[Literal["every"]] = "every"
    json_keys: ClassVar[tuple[str, ...]] = ("every", "anchor")

    every: timedelta
    anchor: datetime | None
    jitter: timedelta | None
    start_at: datetime | None
    end_at: datetime | None
    max_runs: int | None
    exclude: tuple[Calendar, ...]
    spread: timedelta | None
    _search: Search = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        every: str | timedelta,
        *,
        anchor: datetime | str | None = None,
        jitter: str | timedelta | None = None,
        start_at: datetime | str | None = None,
        end_at: datetime | str | None = None,
        max_runs: int | None = None,
        exclude: Iterable[object] = (),
        spread: str | timedelta | None = None,
    ) -> None:
        step = parse_interval(every, "every")
        put = object.__setattr__
        put(self, "every", step)
        put(self, "anchor", parse_bound(anchor, None, "anchor"))
        self._set_bounds(start_at, end_at, max_runs, exclude, None, jitter, spread)
        if self.jitter is not None and self.jitter > step:
            raise InvalidTrigger(
                _("jitter must not be longer than the interval"),
                field="jitter",
                code="out_of_range",
            )
        first = None if self.anchor is None else to_microseconds(self.anchor)

        def search() -> Search:
            return IntervalSearch(step // MICROSECOND, first, self.exclude)

        put(self, "_search", self._compile(search, parse_zone(UTC_NAME)))

    def anchored(self, moment: datetime) -> Self:
        aware = from_microseconds(to_microseconds(moment))
        return self if self.anchor is not None else replace(self, anchor=aware)

    def _slot_number(self, slot: datetime) -> int:
        anchor = 0 if self.anchor is None else to_microseconds(self.anchor)
        return (to_microseconds(slot, "slot") - anchor) // (self.every // MICROSECOND)

    def to_dict(self) -> dict[str, object]:
        found: dict[str, object] = {"kind": self.kind, "every": format_duration_iso(self.every)}
        if self.anchor is not None:
            found["anchor"] = format_moment(self.anchor)
        return found | self._bounds_dict()


def parse_interval(value: str | timedelta, name: str) -> timedelta:
    """A duration that may be used as an interval."""
    step = parse_duration(value, field=name)
    if not MIN_INTERVAL <= step <= MAX_INTERVAL:
        raise InvalidTrigger(
            _("{field} must be between 1ms and 10 years", field=name),
            field=name,
            code="out_of_range",
        )
    return step
