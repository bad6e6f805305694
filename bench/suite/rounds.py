"""Interleaved rounds: every contestant runs once per round, so that other load affects all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TypeVar

T = TypeVar("T")


def interleave(rounds: int, contestants: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
    """Runs every contestant once per round and rotates the order; returns the samples by name."""
    found: dict[str, list[T]] = {name: [] for name in contestants}
    names = list(contestants)
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            print(f"  round {number + 1}/{rounds}: {name}", file=sys.stderr, flush=True)
            found[name].append(contestants[name]())
    return found


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the ratios within each round; if the numbers of rounds differ, the ratio of the
    medians."""
    if len(ours) == len(theirs):
        return median(one / other for one, other in zip(ours, theirs, strict=True))
    return median(ours) / median(theirs)


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
