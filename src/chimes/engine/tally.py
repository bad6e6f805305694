"""Numbers for Prometheus, kept as plain Python until somebody asks for them.

The library's own counters take a lock and go through several calls at each change; every run
changes eight of them, on one event loop, so that was a tenth of what a run costs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector


class Count:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, by: float = 1) -> None:
        self.value += by


class Counts:
    """One count for each combination of labels that has come up."""

    __slots__ = ("labels", "values")

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = tuple(labels)
        self.values: dict[tuple[str, ...], float] = {}

    def inc(self, *labels: str, by: float = 1) -> None:
        self.values[labels] = self.values.get(labels, 0.0) + by


class Level:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def set(self, value: float) -> None:
        self.value = value


class Spread:
    """How many values fell into which bucket; a bound belongs to the bucket below it."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def buckets(self) -> list[tuple[str, float]]:
        names = [*(str(float(bound)) for bound in self.bounds), "+Inf"]
        return list(zip(names, accumulate(self.counts), strict=True))


class Tallies(Collector):
    """Hands the numbers over to a registry when it collects."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._kept: dict[str, tuple[str, Count | Counts | Level | Spread]] = {}
        registry.register(self)

    def count(self, name: str, text: str) -> Count:
        kept = Count()
        self._kept[name] = (text, kept)
        return kept

    def counts(self, name: str, text: str, labels: Sequence[str]) -> Counts:
        kept = Counts(labels)
        self._kept[name] = (text, kept)
        return kept

    def level(self, name: str, text: str) -> Level:
        kept = Level()
        self._kept[name] = (text, kept)
        return kept

    def spread(self, name: str, text: str, bounds: Sequence[float]) -> Spread:
        kept = Spread(bounds)
        self._kept[name] = (text, kept)
        return kept

    def collect(self) -> Iterable[Metric]:
        for name, (text, kept) in self._kept.items():
            match kept:
                case Count():
                    yield CounterMetricFamily(name, text, value=kept.value)
                case Counts():
                    family = CounterMetricFamily(name, text, labels=kept.labels)
                    for labels, value in kept.values.items():
                        family.add_metric(labels, value)
                    yield family
                case Level():
                    yield GaugeMetricFamily(name, text, value=kept.value)
                case Spread():
                    yield HistogramMetricFamily(
                        name, text, buckets=kept.buckets, sum_value=kept.total
                    )
