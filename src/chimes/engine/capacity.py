"""The places of a pool: how many of its runs a node may carry out at once, and who has them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from chimes.targets.base import TargetRunner

# @@ Which places a node has for what. Runs that only wait for others (flows) have places of their
# own: otherwise they would take those that their steps need, and nothing would ever move. So have
# those whose number is limited by itself (sync tasks).


@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    #: As its duty is called in log lines.
    name: str
    runners: tuple[TargetRunner, ...]
    places: int

    @property
    def offers(self) -> frozenset[str]:
        """The `target.needs` that may take its places."""
        if len(self.runners) == 1:
            return self.runners[0].offers
        return frozenset[str]().union(*(runner.offers for runner in self.runners))


def pools_of(runners: Iterable[TargetRunner], *, workers: int) -> tuple[Pool, ...]:
    """The first is the one whose places are offered to runs as their schedules fire."""
    given = tuple(runners)
    ordinary = tuple(runner for runner in given if runner.places is None)
    return (
        Pool(name="worker", runners=ordinary, places=workers),
        *(
            Pool(name=f"{runner.kind} worker", runners=(runner,), places=runner.places)
            for runner in given
            if runner.places
        ),
    )


#: Seconds; longer than other nodes take to look into the queue.
STAND_BACK = 5.0


@dataclass(slots=True)
class Reserved:
    """ClaimRequest held while the store is asked for runs; `used` is set to how many came."""

    free: int
    used: int = 0


class Capacity:
    def __init__(self, pool: Pool, stirred: asyncio.Event) -> None:
        """`stirred` is set when there may be runs of this node that it does not know of."""
        self.pool = pool
        self.total = pool.places
        self._taken = 0
        self._reserved = 0
        #: Set while there is a free place.
        self.room = asyncio.Event()
        #: Runs may be waiting in the queue that were there before anything that fires now: new
        #: runs then queue up by rank instead of overtaking them.
        self.backlog = True
        #: How often the store was asked for runs, and whether an answer may have been lost: the
        #: store may then have given this node runs that it does not know of (F03, F23).
        self.asked = 0
        self.doubtful = False
        self._stirred = stirred
        #: What is left to other nodes, by how often.
        self._resting: Counter[str] = Counter()
        self._signal()

    @property
    def offers(self) -> frozenset[str]:
        """What may be claimed now."""
        offers = self.pool.offers
        return offers.difference(self._resting) if self._resting else offers

    def stand_back(self, needs: str) -> None:
        """For a while others come first: what was given back would be claimed again at once."""
        self._resting[needs] += 1
        asyncio.get_running_loop().call_later(STAND_BACK, self._step_up, needs)

    def _step_up(self, needs: str) -> None:
        self._resting[needs] -= 1
        if not self._resting[needs]:
            del self._resting[needs]

    @property
    def free(self) -> int:
        return max(0, self.total - self._taken - self._reserved)

    @property
    def asking(self) -> bool:
        """Whether the store is just being asked for runs."""
        return self._reserved > 0

    @contextmanager
    def reserve(self, most: int | None = None) -> Iterator[Reserved]:
        """All free places, or `most` of them, so that two questions on their way never bring more
        than fit."""
        reserved = Reserved(self.free if most is None else min(most, self.free))
        self._reserved += reserved.free
        self.asked += 1
        self._signal()
        try:
            yield reserved
        except BaseException:
            self.doubtful = True
            self._stirred.set()
            raise
        finally:
            self._reserved -= reserved.free
            self._taken += reserved.used
            self._signal()

    def give_back(self) -> None:
        self._taken -= 1
        self._signal()

    def _signal(self) -> None:
        if self.free:
            self.room.set()
        else:
            self.room.clear()
