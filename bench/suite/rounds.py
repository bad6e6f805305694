"""Interleaved rounds: every contestant once a round, so that a busy moment hits all of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TypeVar

T = TypeVar("T")


def interleaved(rounds: int, contestants: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
    """The order turns from round to round: nobody always comes after the same neighbour."""
    found: dict[str, list[T]] = {name: [] for name in contestants}
    names = list(contestants)
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            print(f"  round {number + 1}/{rounds}: {name}", file=sys.stderr, flush=True)
            found[name].append(contestants[name]())
    return found


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median over the rounds of ours against theirs in the same round; where one side had
    fewer rounds, of the medians."""
    if len(ours) == len(theirs):
        return median(one / other for one, other in zip(ours, theirs, strict=True))
    return median(ours) / median(theirs)


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
