"""How late runs began, as counts in brackets that grow by a fifth each, from a millisecond to a
month. A quantile read from them is within 10 % of the exact one (9.1 % at worst); less than a
millisecond reads as none."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from chimes.errors import InvalidInput
from chimes.wording import say

_MICROSECOND = timedelta(microseconds=1)
_GROWTH = 1.2
_SHORTEST, _LONGEST = 1_000, 31 * 86_400 * 1_000_000


def _bounds() -> tuple[int, ...]:
    found = [_SHORTEST]
    while found[-1] < _LONGEST:
        found.append(int(found[-1] * _GROWTH))
    return tuple(found)


#: Where brackets begin, in microseconds. Stores keep numbers of brackets: never change these.
BOUNDS = _bounds()


def bracket_of(lag: timedelta) -> int:
    """How many of the bounds it has reached."""
    return bracket_of_micros(lag // _MICROSECOND)


def bracket_of_micros(lag: int) -> int:
    return bisect_right(BOUNDS, lag)


def lag_in(bracket: int) -> timedelta:
    """What a lag of this bracket is taken for: as far from its lowest as from its highest, in
    proportion."""
    if bracket <= 0:
        return timedelta(0)
    if bracket >= len(BOUNDS):
        return BOUNDS[-1] * _MICROSECOND
    low, high = BOUNDS[bracket - 1], BOUNDS[bracket]
    return (2 * low * high // (low + high)) * _MICROSECOND


@dataclass(frozen=True, slots=True)
class Lags:
    #: By bracket; those that are not there have none.
    counts: Mapping[int, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def quantile(self, share: float) -> timedelta | None:
        """The lag that this share of the runs did not exceed; None: there were none."""
        if not 0 < share <= 1:
            raise InvalidInput(say("a share lies above 0 and not above 1"), field="share")
        left = share * self.total
        for bracket in sorted(self.counts):
            left -= self.counts[bracket]
            if left <= 1e-9:
                return lag_in(bracket)
        return None


NO_LAGS = Lags()


def joined(several: Iterable[Lags]) -> Lags:
    counts: dict[int, int] = {}
    for lags in several:
        for bracket, number in lags.counts.items():
            counts[bracket] = counts.get(bracket, 0) + number
    return Lags(counts)
