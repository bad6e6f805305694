"""Time zones by IANA name, from the pinned `tzdata` package.

The host's zone files are never read, so that results do not depend on the machine.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import date
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from chimes.errors import InvalidTrigger
from chimes.i18n import _

# --- TZif files (RFC 8536) as two sorted arrays: `instants[i]` is the UTC second at which the
# offset becomes `offsets[i + 1]`; `offsets[0]` applies before the first. Changes of name or DST
# flag alone
# are left out. Years after the last stored change follow the POSIX rule in the footer.

EPOCH_ORDINAL = 719163  # date(1970, 1, 1).toordinal()

_HEADER = struct.Struct(">4s1s15x6I")
_NAME = r"(?:<[^>]+>|[A-Za-z]+)"
_TIME = r"[+-]?\d+(?::\d+(?::\d+)?)?"
_FOOTER = re.compile(
    rf"{_NAME}({_TIME})(?:{_NAME}({_TIME})?,([^,/]+)(?:/({_TIME}))?,([^,/]+)(?:/({_TIME}))?)?"
)


class Transitions:
    """The changes of one zone up to `until_year`, as read from its TZif file."""

    __slots__ = ("instants", "offsets")

    def __init__(self, data: bytes, until_year: int) -> None:
        instants, offsets, footer = _read_body(data)
        self.instants: list[int] = []
        self.offsets: list[int] = offsets[:1]
        for instant, offset in zip(instants, offsets[1:], strict=True):
            self._append(instant, offset)
        for instant, offset in _rule_changes(footer, instants[-1] if instants else 0, until_year):
            self._append(instant, offset)

    def _append(self, instant: int, offset: int) -> None:
        if offset != self.offsets[-1]:
            self.instants.append(instant)
            self.offsets.append(offset)


def _read_body(data: bytes) -> tuple[list[int], list[int], str]:
    """The 64-bit block; the 32-bit block before it is only skipped."""
    _unused, _unused, isut, isstd, leap, times, types, chars = _HEADER.unpack_from(data, 0)
    start = 44 + times * 5 + types * 6 + chars + leap * 8 + isstd + isut
    _unused, _unused, isut, isstd, leap, times, types, chars = _HEADER.unpack_from(data, start)
    at = start + 44
    instants = list(struct.unpack_from(f">{times}q", data, at))
    at += times * 8
    kinds = data[at : at + times]
    at += times
    utoff = [struct.unpack_from(">i", data, at + 6 * n)[0] for n in range(types)]
    at += types * 6 + chars + leap * 12 + isstd + isut
    footer = data[at:].strip(b"\n").decode("ascii")
    return instants, [utoff[0], *(utoff[kind] for kind in kinds)], footer


def _rule_changes(footer: str, after: int, until_year: int) -> list[tuple[int, int]]:
    found = _FOOTER.fullmatch(footer)
    if found is None or found[3] is None:
        return []
    standard = -_seconds(found[1])
    summer = -_seconds(found[2]) if found[2] else standard + 3600
    begins, ends = _rule_day(found[3]), _rule_day(found[5])
    begin_time = _seconds(found[4] or "2")
    end_time = _seconds(found[6] or "2")
    first_year = date.fromordinal(after // 86400 + EPOCH_ORDINAL).year
    changes = []
    for year in range(first_year, until_year + 1):
        changes.append((begins(year) * 86400 + begin_time - standard, summer))
        changes.append((ends(year) * 86400 + end_time - summer, standard))
    return sorted(change for change in changes if change[0] > after)


def _seconds(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    parts = [int(part) for part in text.lstrip("+-").split(":")]
    return sign * sum(part * unit for part, unit in zip(parts, (3600, 60, 1), strict=False))


def _rule_day(rule: str) -> Callable[[int], int]:
    """Epoch day of `Mm.w.d`, `Jn` or `n` in a given year."""
    if rule.startswith("M"):
        month, week, weekday = (int(part) for part in rule[1:].split("."))

        def nth_weekday(year: int) -> int:
            first = date(year, month, 1).toordinal()
            day = first + (weekday - first) % 7 + 7 * (week - 1)
            after_month = date(year + month // 12, month % 12 + 1, 1).toordinal()
            return (day if day < after_month else day - 7) - EPOCH_ORDINAL

        return nth_weekday
    if rule.startswith("J"):
        number = int(rule[1:])

        def without_leap_day(year: int) -> int:
            leap = (
                number >= 60 and date(year, 3, 1).toordinal() - date(year, 1, 1).toordinal() == 60
            )
            return date(year, 1, 1).toordinal() + number - 1 + leap - EPOCH_ORDINAL

        return without_leap_day
    return lambda year: date(year, 1, 1).toordinal() + int(rule) - EPOCH_ORDINAL


# A longer jump is a change of calendar (e.g. Samoa 2011), not a clock change.
MAX_CLOCK_SHIFT = 3 * 3600
FOREVER = 1 << 60

# Searches that begin before 2110 end, 60 years later, within the near table.
_NEAR_UNTIL = 2172
NEAR_LIMIT = 4_417_977_600
_FAR_UNTIL = 9998

_MAX_NAME_LENGTH = 64


class Segment(NamedTuple):
    """A stretch [start, end) of UTC seconds with one offset.

    `fold_end` is the end of the repeated wall time at its start (the start itself if none),
    `gap_start` the wall second at which the gap before it begins (FOREVER if none). Shifts beyond
    MAX_CLOCK_SHIFT count as neither.
    """

    start: int
    end: int
    offset: int
    fold_end: int
    gap_start: int


class Table:
    """A zone as segments; the one that holds second s is `segments[bisect_right(instants, s)]`."""

    __slots__ = ("instants", "segments")

    def __init__(self, instants: list[int], offsets: list[int]) -> None:
        self.instants = instants
        ends = [*instants, FOREVER]
        self.segments = [Segment(-FOREVER, ends[0], offsets[0], -FOREVER, FOREVER)]
        for start, end, (before, after) in zip(instants, ends[1:], pairwise(offsets), strict=True):
            folds = 0 < before - after <= MAX_CLOCK_SHIFT
            jumps = 0 < after - before <= MAX_CLOCK_SHIFT
            fold_end = start + before - after if folds else start
            self.segments.append(
                Segment(start, end, after, fold_end, start + before if jumps else FOREVER)
            )


class Zone:
    """One IANA zone. Equal by name; obtained from `parse_zone`."""

    __slots__ = ("_data", "_far", "name", "near")

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self._data = data
        changes = Transitions(data, _NEAR_UNTIL)
        self.near = Table(changes.instants, changes.offsets)
        self._far: Table | None = None

    @classmethod
    def of_changes(cls, name: str, instants: list[int], offsets: list[int]) -> Zone:
        """A zone with these changes only; `offsets` has one more, that before the first."""
        found = cls.__new__(cls)
        found.name, found._data = name, b""
        found.near = found._far = Table(instants, offsets)
        return found

    def __repr__(self) -> str:
        return f"Zone({self.name!r})"

    def table(self, second: int) -> Table:
        """The segments to use for a search that starts at this UTC second."""
        if second < NEAR_LIMIT:
            return self.near
        if self._far is None:
            changes = Transitions(self._data, _FAR_UNTIL)
            self._far = Table(changes.instants, changes.offsets)
        return self._far

    def offset_at(self, second: int) -> int:
        """Seconds east of UTC at this UTC second."""
        table = self.table(second)
        return table.segments[bisect_right(table.instants, second)].offset

    def from_local(self, wall: int) -> tuple[int, bool]:
        """The UTC second of a wall-clock second, and whether a gap moved it.

        The first of two; the instant of the change if the wall time never was.
        """
        table = self.table(wall)
        first = bisect_right(table.instants, wall - 2 * 86400)
        segment = next(each for each in table.segments[first:] if wall - each.offset < each.end)
        second = wall - segment.offset
        return max(second, segment.start), second < segment.start


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """All valid zone names."""
    return frozenset(_packaged("zones").decode("ascii").split()) - {"Factory"}


@lru_cache(maxsize=1024)
def _load(name: str) -> Zone:
    return Zone(name, _packaged(f"zoneinfo/{name}"))


def _packaged(path: str) -> bytes:
    """A file of tzdata, without importlib.resources, whose import would slow the command line."""
    from pkgutil import get_data

    data = get_data("tzdata", path)
    assert data is not None
    return data


UTC_NAME = "UTC"
#: Zones as earlier data had them, by name; see `triggers.time_data`. None: the present data.
RECORDED_ZONES: ContextVar[Mapping[str, Zone] | None] = ContextVar("zones", default=None)


def parse_zone(name: object, *, field: str = "timezone") -> Zone:
    """The zone of this IANA name; InvalidTrigger with a hint for anything else."""
    if not isinstance(name, str):
        raise InvalidTrigger(
            _(
                "A timezone must be text, such as Asia/Bangkok, not {type}",
                type=type(name).__name__,
            ),
            field=field,
            code="wrong_type",
        )
    if name in zone_names():
        recorded = RECORDED_ZONES.get()
        return (recorded and recorded.get(name)) or _load(name)
    raise _unknown(name, field)


def _unknown(name: str, field: str) -> InvalidTrigger:
    shown = name if len(name) <= _MAX_NAME_LENGTH else f"{name[:_MAX_NAME_LENGTH]}…"
    return InvalidTrigger(
        _("Unknown timezone {name!r}; use an IANA name such as Asia/Bangkok", name=shown),
        field=field,
        code="unknown_zone",
        hint=_hint(name),
    )


def _hint(name: str) -> str | None:
    if len(name) > _MAX_NAME_LENGTH:
        return None
    bare = name.upper().removeprefix("UTC").removeprefix("GMT")
    if bare[:1] in ("+", "-") or bare[:1].isdigit():
        return _(
            "an offset does not know about clock changes; use an IANA name such as Asia/Bangkok"
        )
    if bare == "Z":
        return _("did you mean {name}?", name=UTC_NAME)
    from difflib import get_close_matches

    folded = {known.casefold(): known for known in sorted(zone_names())}
    near = get_close_matches(name.casefold(), folded, n=1, cutoff=0.7)
    if not near:
        cities = {known.rsplit("/", 1)[-1]: known for known in folded}
        near = [cities[city] for city in get_close_matches(name.casefold(), cities, 1, 0.8)]
    return _("did you mean {name}?", name=folded[near[0]]) if near else None
