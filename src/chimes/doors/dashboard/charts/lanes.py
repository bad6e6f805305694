"""What a timeline consists of, before it is drawn: fires in lanes, what lies too near together to
be told apart, and where several lanes run at the same time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from chimes.model.run import RunStatus

#: As wide as all marks together.
WIDTH = 780
#: Shorter than this a fire is a dot.
DOT_BELOW = timedelta(minutes=1)
#: Dots nearer than this, and bars nearer than that, are one mark with a number.
_DOTS_APART, _BARS_APART = 10.0, 2.0
#: As wide as one of several fires gets; more of them are a further one.
_WIDEST = 32.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Fire:
    at: datetime
    #: How long it took, or is expected to; zero: nobody knows.
    length: timedelta = timedelta(0)
    #: Of one that has been; None: still to come.
    status: RunStatus | None = None
    address: str | None = None
    #: Whose it is, where a lane has those of several.
    name: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lane:
    name: str
    fires: Sequence[Fire]
    address: str | None = None
    #: There are more after the last one, which nobody has counted.
    more: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlap:
    """In which several lanes have something that runs, or is expected to."""

    start: datetime
    end: datetime
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    fires: tuple[Fire, ...]
    x: float
    width: float

    @property
    def overlaps(self) -> bool:
        """Whether one is expected to run into the next."""
        ends = ((first.at + first.length, second.at) for first, second in pairwise(self.fires))
        return any(end > start for end, start in ends)


def clusters(fires: Sequence[Fire], start: datetime, end: datetime) -> list[Cluster]:
    """Marks of one lane from left to right; what lies too near together is one. What has begun and
    what is only planned stay apart: one failure does not colour the hours to come."""
    whole = end - start
    found: list[Cluster] = []
    for fire in sorted(fires, key=lambda each: each.at):
        if not start <= fire.at < end:
            continue
        x = WIDTH * ((fire.at - start) / whole)
        width = WIDTH * (fire.length / whole) if fire.length >= DOT_BELOW else 0.0
        width = min(width, WIDTH - x)
        before = found[-1] if found else None
        alike = before is not None and (before.fires[-1].status is None) == (fire.status is None)
        if before is not None and alike and _touch(before, x, width):
            joined = max(before.x + before.width, x + width) - before.x
            found[-1] = Cluster(fires=(*before.fires, fire), x=before.x, width=joined)
        else:
            found.append(Cluster(fires=(fire,), x=x, width=width))
    return found


def _touch(before: Cluster, x: float, width: float) -> bool:
    apart = _BARS_APART if before.width and width else _DOTS_APART
    over = x - (before.x + before.width)
    return over < 0 or (over < apart and x - before.x < _WIDEST)


def overlaps_of(lanes: Sequence[Lane], start: datetime, end: datetime) -> list[Overlap]:
    """From left to right; of what takes less than a minute nobody can say."""
    edges: list[tuple[datetime, int, int]] = []
    for place, lane in enumerate(lanes):
        for fire in lane.fires:
            first, last = max(fire.at, start), min(fire.at + fire.length, end)
            if fire.length >= DOT_BELOW and first < last:
                edges += [(first, 1, place), (last, -1, place)]
    under_way: Counter[int] = Counter()
    found: list[Overlap] = []
    begun: datetime | None = None
    seen: set[int] = set()
    # Ends before beginnings: what follows at once does not overlap.
    for at, step, place in sorted(edges, key=lambda edge: edge[:2]):
        under_way[place] += step
        running = {each for each, count in under_way.items() if count > 0}
        if begun is not None and len(running) < 2:
            names = tuple(lanes[each].name for each in sorted(seen))
            found.append(Overlap(start=begun, end=at, names=names))
            begun, seen = None, set()
        elif len(running) > 1:
            begun = begun or at
            seen |= running
    return found
