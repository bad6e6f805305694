"""Starts several claiming processes and runs them at the same time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from suite.children import Child

#: Between the command and the common start.
AHEAD_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class ClaimResult:
    began: float
    #: (committed at, number of runs)
    batches: tuple[tuple[float, int], ...]

    @property
    def count(self) -> int:
        return sum(count for _, count in self.batches)

    @property
    def seconds(self) -> float:
        return max((moment for moment, _ in self.batches), default=self.began) - self.began

    @property
    def rate(self) -> float:
        return self.count / self.seconds

    def waits(self) -> list[float]:
        """Per schedule: seconds from the common start to the commit of its claim."""
        return [moment - self.began for moment, count in self.batches for _ in range(count)]


def run_claimers(
    children: Sequence[Child], command: dict[str, object], *, seconds: float = 120.0
) -> ClaimResult:
    began = time.monotonic() + AHEAD_SECONDS
    for child in children:
        child.send(command | {"at": began})
    answers = [child.receive(seconds) for child in children]
    batches = [(moment, count) for each in answers for moment, count in each["batches"]]
    return ClaimResult(began, tuple(batches))


def start_claimers(program: str, url: str, size: int, processes: int) -> list[Child]:
    children = [Child([program, url, str(size)]) for _ in range(processes)]
    for child in children:
        child.receive(60)
    return children
