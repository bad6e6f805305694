"""Pools of a node, and the permits that limit how many runs of a pool execute at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from chimes.targets.base import TargetRunner


@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    """Runners that share permits."""

    #: The name of its duty in log lines.
    name: str
    runners: tuple[TargetRunner, ...]
    permits: int

    @property
    def capabilities(self) -> frozenset[str]:
        """The `target.needs` that its runners can execute."""
        if len(self.runners) == 1:
            return self.runners[0].capabilities
        return frozenset[str]().union(*(runner.capabilities for runner in self.runners))


def build_pools(runners: Iterable[TargetRunner], *, workers: int) -> tuple[Pool, ...]:
    """The first pool also takes runs as their schedules fire.

    Runners with a limit of their own get their own pool. Flows need it: they only wait for their
    steps, and in a shared pool they would hold the permits that the steps wait for."""
    runners = tuple(runners)
    shared = tuple(runner for runner in runners if runner.permits is None)
    return (
        Pool(name="worker", runners=shared, permits=workers),
        *(
            Pool(name=f"{runner.kind} worker", runners=(runner,), permits=runner.permits)
            for runner in runners
            if runner.permits
        ),
    )


#: Seconds for which a returned requirement is not claimed again; longer than other nodes need to
#: poll the queue.
YIELD_SECONDS = 5.0


@dataclass(slots=True)
class Reservation:
    """Permits reserved while the store is asked for runs; the caller sets `used`."""

    free: int
    used: int = 0


class Capacity:
    """The permits of one pool."""

    def __init__(self, pool: Pool, reconcile: asyncio.Event) -> None:
        """`reconcile` is set when the store may have given this node runs that it does not know
        of."""
        self.pool = pool
        self.total = pool.permits
        self._used = 0
        self._reserved = 0
        #: Set while a permit is free.
        self.available = asyncio.Event()
        #: The queue may have runs that are older than what fires now: new runs are then queued by
        #: rank instead of overtaking them.
        self.backlog = True
        #: How often the store was asked for runs, and whether an answer may have been lost.
        self.claims = 0
        self.claim_in_doubt = False
        self._reconcile = reconcile
        #: Requirements that are left to other nodes, by how many runs were returned.
        self._yielded: Counter[str] = Counter()
        self._update()

    @property
    def capabilities(self) -> frozenset[str]:
        """What may be claimed now."""
        capabilities = self.pool.capabilities
        return capabilities.difference(self._yielded) if self._yielded else capabilities

    def yield_requirement(self, requirement: str) -> None:
        """Lets other nodes claim first: otherwise a returned run would be claimed here again."""
        self._yielded[requirement] += 1
        asyncio.get_running_loop().call_later(YIELD_SECONDS, self._end_yield, requirement)

    def _end_yield(self, requirement: str) -> None:
        self._yielded[requirement] -= 1
        if not self._yielded[requirement]:
            del self._yielded[requirement]

    @property
    def free(self) -> int:
        return max(0, self.total - self._used - self._reserved)

    @property
    def is_claiming(self) -> bool:
        """Whether a request for runs is under way."""
        return self._reserved > 0

    @contextmanager
    def reserve(self, limit: int | None = None) -> Iterator[Reservation]:
        """Reserves all free permits, or up to `limit`, so that concurrent requests never return
        more runs than fit."""
        reservation = Reservation(self.free if limit is None else min(limit, self.free))
        self._reserved += reservation.free
        self.claims += 1
        self._update()
        try:
            yield reservation
        except BaseException:
            self.claim_in_doubt = True
            self._reconcile.set()
            raise
        finally:
            self._reserved -= reservation.free
            self._used += reservation.used
            self._update()

    def release(self) -> None:
        self._used -= 1
        self._update()

    def _update(self) -> None:
        if self.free:
            self.available.set()
        else:
            self.available.clear()
