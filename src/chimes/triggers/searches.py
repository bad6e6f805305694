"""The set of fires of a trigger as a search, and searches that change another one.

A search is exact in both directions: `after` and `before` are inverses on the same set.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Literal, NoReturn, Protocol

from chimes.errors import InvalidTrigger
from chimes.i18n import _
from chimes.triggers.calendars import Band
from chimes.triggers.zones import Zone

# Stable codes that explain a fire in a preview:
# - moved_by_gap: a clock change skips its time; it fires at the change
# - repeated_hour_first, repeated_hour_second: its time happens twice, and it fires both times
# - repeated_hour_once: its time happens twice, and it fires the first time only
# - moved_by_calendar: its day is excluded; it fires on another

Note = Literal[
    "moved_by_gap",
    "repeated_hour_first",
    "repeated_hour_second",
    "repeated_hour_once",
    "moved_by_calendar",
]

# Leap days on a given weekday are up to 40 years apart.
SEARCH_YEARS = 60
SEARCH_SECONDS = SEARCH_YEARS * 366 * 86400
_SEARCH = SEARCH_SECONDS * 1_000_000
_DAY = 86400
#: Fires in a row that an exception may remove; a longer run of them counts as the end.
MAX_REMOVED = 50_000


class Search(Protocol):
    """The set F of a trigger, before its bounds, in microseconds since 1970."""

    def after(self, moment: int) -> int | None: ...

    def before(self, moment: int) -> int | None: ...

    def count(self, first: int, last: int) -> int:
        """How many lie from `first` to `last`, both included."""
        ...

    def note(self, fire: int) -> Note | None: ...


def contains(search: Search, moment: int) -> bool:
    return search.after(moment - 1) == moment


def count_one_by_one(search: Search, first: int, last: int) -> int:
    found, at = 0, search.after(first - 1)
    while at is not None and at <= last:
        found, at = found + 1, search.after(at)
    return found


class UnresolvedSearch:
    """The fires of a trigger that names a calendar whose contents are not known."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def _fail(self) -> NoReturn:
        raise InvalidTrigger(
            _("the contents of the calendar {name} are not known here", name=self._name),
            field="exclude",
            code="unresolved_calendar",
            hint=_("only a schedule or a preview of the server knows named calendars"),
        )

    def after(self, moment: int) -> int | None:
        self._fail()

    def before(self, moment: int) -> int | None:
        self._fail()

    def count(self, first: int, last: int) -> int:
        self._fail()

    def note(self, fire: int) -> Note | None:
        self._fail()


class SpanSearch:
    """Fires outside of spans of time, which include their start and exclude their end."""

    __slots__ = ("_ends", "_search", "_starts")

    def __init__(self, search: Search, spans: Sequence[tuple[int, int]]) -> None:
        self._search = search
        merged: list[tuple[int, int]] = []
        for start, end in sorted(spans):
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        self._starts = [start for start, _end in merged]
        self._ends = [end for _start, end in merged]

    def _span(self, moment: int) -> int | None:
        index = bisect_right(self._starts, moment) - 1
        return index if index >= 0 and moment < self._ends[index] else None

    def after(self, moment: int) -> int | None:
        found = self._search.after(moment)
        while found is not None and (index := self._span(found)) is not None:
            found = self._search.after(self._ends[index] - 1)
        return found

    def before(self, moment: int) -> int | None:
        found = self._search.before(moment)
        while found is not None and (index := self._span(found)) is not None:
            found = self._search.before(self._starts[index])
        return found

    def count(self, first: int, last: int) -> int:
        found = self._search.count(first, last)
        for start, end in zip(self._starts, self._ends, strict=True):
            low, high = max(start, first), min(end - 1, last)
            if low <= high:
                found -= self._search.count(low, high)
        return found

    def note(self, fire: int) -> Note | None:
        return self._search.note(fire)


class BoundedSearch:
    """Fires from one instant to another, both included."""

    __slots__ = ("_first", "_last", "_search")

    def __init__(self, search: Search, first: int | None, last: int | None) -> None:
        self._search = search
        self._first = first
        self._last = last

    def after(self, moment: int) -> int | None:
        if self._first is not None:
            moment = max(moment, self._first - 1)
        found = self._search.after(moment)
        return None if found is None or (self._last is not None and found > self._last) else found

    def before(self, moment: int) -> int | None:
        if self._last is not None:
            moment = min(moment, self._last + 1)
        found = self._search.before(moment)
        return None if found is None or (self._first is not None and found < self._first) else found

    def count(self, first: int, last: int) -> int:
        first = first if self._first is None else max(first, self._first)
        last = last if self._last is None else min(last, self._last)
        return self._search.count(first, last) if first <= last else 0

    def note(self, fire: int) -> Note | None:
        return self._search.note(fire)


class DatesSearch:
    """Fires with some instants added, some removed, and an end."""

    __slots__ = ("_added", "_last", "_removed", "_search")

    def __init__(
        self,
        search: Search,
        added: Sequence[int],
        removed: frozenset[int],
        last: int | None = None,
    ) -> None:
        self._search = search
        self._added = sorted(set(added) - removed)
        self._removed = removed
        #: The last instant of `search` that counts.
        self._last = last

    def after(self, moment: int) -> int | None:
        found = self._search.after(moment)
        while found is not None and found in self._removed:
            found = self._search.after(found)
        if found is not None and self._last is not None and found > self._last:
            found = None
        index = bisect_right(self._added, moment)
        if index == len(self._added):
            return found
        return self._added[index] if found is None else min(found, self._added[index])

    def before(self, moment: int) -> int | None:
        end = moment if self._last is None else min(moment, self._last + 1)
        found = self._search.before(end)
        while found is not None and found in self._removed:
            found = self._search.before(found)
        index = bisect_left(self._added, moment) - 1
        if index < 0:
            return found
        return self._added[index] if found is None else max(found, self._added[index])

    def count(self, first: int, last: int) -> int:
        end = last if self._last is None else min(last, self._last)
        found = self._search.count(first, end) if first <= end else 0
        for each in self._removed:
            found -= first <= each <= end and contains(self._search, each)
        for each in self._added:
            if first <= each <= last:
                found += each > end or not contains(self._search, each)
        return found

    def note(self, fire: int) -> Note | None:
        return self._search.note(fire) if contains(self._search, fire) else None


class UnionSearch:
    """The fires of several searches without those of others."""

    __slots__ = ("_others", "_searches")

    def __init__(self, searches: Sequence[Search], others: Sequence[Search]) -> None:
        self._searches = tuple(searches)
        self._others = tuple(others)

    def after(self, moment: int) -> int | None:
        for _attempt in range(MAX_REMOVED):
            found = [at for each in self._searches if (at := each.after(moment)) is not None]
            if not found:
                return None
            moment = min(found)
            if not any(contains(each, moment) for each in self._others):
                return moment
        return None

    def before(self, moment: int) -> int | None:
        for _attempt in range(MAX_REMOVED):
            found = [at for each in self._searches if (at := each.before(moment)) is not None]
            if not found:
                return None
            moment = max(found)
            if not any(contains(each, moment) for each in self._others):
                return moment
        return None

    def count(self, first: int, last: int) -> int:
        if len(self._searches) == 1 and not self._others:
            return self._searches[0].count(first, last)
        return count_one_by_one(self, first, last)

    def note(self, fire: int) -> Note | None:
        """The note of the first of the searches that has this fire."""
        return next((each.note(fire) for each in self._searches if contains(each, fire)), None)


class OpenFires:
    """The fires of a search that has no wall times of its own, after exclusion calendars: a fire of
    an excluded day is dropped, or happens at the same time of day on a business day."""

    __slots__ = ("_bands", "_days", "_search", "_zone")

    def __init__(self, search: Search, bands: list[Band], zone: Zone) -> None:
        self._search = search
        self._bands = bands
        self._zone = zone
        self._days: dict[int, list[int]] = {}

    def after(self, moment: int) -> int | None:
        day = self._day(moment)
        last = self._day(moment + _SEARCH)
        while day <= last:
            for fire in self._fires(day):
                if fire > moment:
                    return fire
            day = self._skip(day, 1)
        return None

    def before(self, moment: int) -> int | None:
        day = self._day(moment)
        last = max(self._day(moment - _SEARCH), 0)
        while day >= last:
            for fire in reversed(self._fires(day)):
                if fire < moment:
                    return fire
            day = self._skip(day, -1)
        return None

    def count(self, first: int, last: int) -> int:
        return count_one_by_one(self, first, last)

    def note(self, fire: int) -> Note | None:
        own = contains(self._search, fire)
        return self._search.note(fire) if own else "moved_by_calendar"

    def _day(self, moment: int) -> int:
        second = moment // 1_000_000
        return (second + self._zone.offset_at(second)) // _DAY

    def _bounds(self, day: int) -> tuple[int, int]:
        start = self._zone.from_local(day * _DAY)[0] * 1_000_000
        return start, self._zone.from_local((day + 1) * _DAY)[0] * 1_000_000

    def _skip(self, day: int, step: int) -> int:
        """The next day that may have fires: days far from any fire are left out."""
        start, end = self._bounds(day)
        near = self._search.after(end - 1) if step > 0 else self._search.before(start)
        if near is None:
            # A fire may still have moved here from an earlier day.
            return day + step
        reach = 367 if any(band.moves for band in self._bands) else 0
        found = self._day(near) - step * reach
        return max(day + 1, found) if step > 0 else min(day - 1, found)

    def _fires(self, day: int) -> list[int]:
        found = self._days.get(day)
        if found is None:
            if len(self._days) > 64:
                self._days.clear()
            found = self._days[day] = self._compute(day)
        return found

    def _compute(self, day: int) -> list[int]:
        found: set[int] = set()
        for source in {each for band in self._bands for each in band.sources(day)}:
            start, end = self._bounds(source)
            at = self._search.after(start - 1)
            while at is not None and at < end:
                second, fraction = divmod(at, 1_000_000)
                wall = second + self._zone.offset_at(second)
                minute = wall % _DAY // 60
                band = next((b for b in self._bands if b.start <= minute < b.end), None)
                if band is not None and source in band.sources(day):
                    if source == day:
                        found.add(at)
                    else:
                        moved, in_gap = self._zone.from_local(wall + (day - source) * _DAY)
                        found.add(moved * 1_000_000 + (0 if in_gap else fraction))
                at = self._search.after(at)
        return sorted(found)
