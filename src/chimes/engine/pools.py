"""Which places a node has for what. Runs that only wait for others (flows) have places of their
own: otherwise they would take those that their steps need, and nothing would ever move."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from chimes.targets.base import TargetRunner

#: Flows in hand at once: each costs little more than the rows of its steps.
FLOWS = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    #: As its duty is called in log lines.
    name: str
    #: The `target.needs` that may take its places.
    offers: frozenset[str]
    places: int


def pools_of(runners: Iterable[TargetRunner], *, workers: int) -> tuple[Pool, ...]:
    """The first is the one whose places are offered to runs as their schedules fire."""
    ordinary: frozenset[str] = frozenset()
    resumable: frozenset[str] = frozenset()
    for runner in runners:
        if runner.resumable:
            resumable |= runner.offers
        else:
            ordinary |= runner.offers
    pools = [Pool(name="worker", offers=ordinary, places=workers)]
    if resumable:
        pools.append(Pool(name="flow worker", offers=resumable, places=FLOWS))
    return tuple(pools)
