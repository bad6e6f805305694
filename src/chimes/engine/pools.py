"""Which places a node has for what. Runs that only wait for others (flows) have places of their
own: otherwise they would take those that their steps need, and nothing would ever move. So have
those whose number is limited by itself (sync tasks)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from chimes.targets.base import TargetRunner


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
