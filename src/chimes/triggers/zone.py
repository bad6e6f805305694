"""Zones by their IANA name (T11), from the pinned `tzdata` package and nowhere else.

The host's own zone files are never read, so that an answer does not depend on the machine.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache

from chimes.errors import InvalidTrigger
from chimes.triggers.tzif import Transitions

# T7: a jump longer than this is a change of calendar, not a clock change.
LONGEST_SHIFT = 3 * 3600
FOREVER = 1 << 60

# Searches that begin before 2110 end, 60 years later, within the near table.
_NEAR_UNTIL = 2172
_NEAR_LIMIT = 4_417_977_600
_FAR_UNTIL = 9998

_LONGEST_NAME = 64


class Table:
    """A zone as segments of constant offset.

    Segment i is [starts[i], ends[i]) with offsets[i]. `fold_ends[i]` is where the repeated wall
    time at its start is over (equal to the start if there is none), `gap_starts[i]` the wall
    second at which the gap before it begins (FOREVER if there is none); both know T7's limit.
    """

    __slots__ = ("ends", "fold_ends", "gap_starts", "instants", "offsets", "starts")

    def __init__(self, instants: list[int], offsets: list[int]) -> None:
        self.instants = instants
        self.offsets = offsets
        self.starts = [-FOREVER, *instants]
        self.ends = [*instants, FOREVER]
        self.fold_ends = list(self.starts)
        self.gap_starts = [FOREVER] * len(offsets)
        for index, instant in enumerate(instants, 1):
            before, after = offsets[index - 1], offsets[index]
            if 0 < before - after <= LONGEST_SHIFT:
                self.fold_ends[index] = instant + before - after
            elif 0 < after - before <= LONGEST_SHIFT:
                self.gap_starts[index] = instant + before


class Zone:
    """One IANA zone. Equal by name; obtained from `parse_zone`."""

    __slots__ = ("_data", "_far", "_near", "name")

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self._data = data
        near = Transitions(data, _NEAR_UNTIL)
        self._near = Table(near.instants, near.offsets)
        self._far: Table | None = None

    def __repr__(self) -> str:
        return f"Zone({self.name!r})"

    def table(self, second: int) -> Table:
        """The segments to use for a search that starts at this UTC second."""
        if second < _NEAR_LIMIT:
            return self._near
        if self._far is None:
            far = Transitions(self._data, _FAR_UNTIL)
            self._far = Table(far.instants, far.offsets)
        return self._far

    def offset_at(self, second: int) -> int:
        """Seconds east of UTC at this UTC second."""
        table = self.table(second)
        return table.offsets[bisect_right(table.instants, second)]

    def from_local(self, wall: int) -> tuple[int, bool]:
        """The UTC second of a wall-clock second, and whether a gap moved it (T10).

        The first of two; the instant of the change if the wall time never was.
        """
        table = self.table(wall)
        low = bisect_right(table.instants, wall - 2 * 86400)
        for index in range(low, len(table.offsets)):
            second = wall - table.offsets[index]
            if second < table.starts[index]:
                return table.starts[index], True
            if second < table.ends[index]:
                return second, False
        raise AssertionError("the last segment has no end")


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """Every name that may be given as a zone."""
    from importlib.resources import files

    listed = files("tzdata").joinpath("zones").read_text(encoding="ascii").split()
    return frozenset(listed) - {"Factory"}


@lru_cache(maxsize=1024)
def _load(name: str) -> Zone:
    from importlib.resources import files

    return Zone(name, files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes())


UTC_NAME = "UTC"


def parse_zone(name: object, *, field: str = "timezone") -> Zone:
    """The zone of this IANA name; InvalidTrigger with a hint for anything else."""
    if not isinstance(name, str):
        raise InvalidTrigger(
            f"A timezone must be text, such as Asia/Bangkok, not {type(name).__name__}",
            field=field,
            code="wrong_type",
        )
    if name in zone_names():
        return _load(name)
    raise _unknown(name, field)


def _unknown(name: str, field: str) -> InvalidTrigger:
    shown = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
    return InvalidTrigger(
        f"Unknown timezone {shown!r}; use an IANA name such as Asia/Bangkok",
        field=field,
        code="unknown_zone",
        hint=_hint(name),
    )


def _hint(name: str) -> str | None:
    if len(name) > _LONGEST_NAME:
        return None
    bare = name.upper().removeprefix("UTC").removeprefix("GMT")
    if bare[:1] in ("+", "-") or bare[:1].isdigit():
        return "an offset does not know about clock changes; use an IANA name such as Asia/Bangkok"
    if bare == "Z":
        return "did you mean UTC?"
    from difflib import get_close_matches

    folded = {known.casefold(): known for known in sorted(zone_names())}
    near = get_close_matches(name.casefold(), folded, n=1, cutoff=0.7)
    if not near:
        cities = {known.rsplit("/", 1)[-1]: known for known in folded}
        near = [cities[city] for city in get_close_matches(name.casefold(), cities, 1, 0.8)]
    return f"did you mean {folded[near[0]]}?" if near else None
