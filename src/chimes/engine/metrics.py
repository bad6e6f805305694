"""Counts what the engine tells, for Prometheus. No name or owner of a schedule appears (S69)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from chimes.engine.events import (
    CompletionFenced,
    DeliveryEnded,
    DeliveryFenced,
    DeliveryRetrying,
    DutyFailed,
    Event,
    FallbackBegan,
    FallbackEnded,
    NodeBeat,
    NodeLost,
    PauseEnded,
    RunDropped,
    RunEnded,
    RunHandedOn,
    RunRescued,
    RunRetrying,
    RunsPruned,
    RunStarted,
    ScheduleBroken,
    SchedulesFired,
    SlotsTaken,
    StoreClockJumped,
    StoreRegressed,
    TargetStuck,
)
from chimes.errors import StoreUnavailable
from chimes.model.ids import RunId
from chimes.model.notification import Delivery, DeliveryState
from chimes.model.recipient import Channel
from chimes.model.run import Run, RunStatus

# @@ Numbers for Prometheus, kept as plain Python until somebody asks for them.
#
# The library's own counters take a lock and go through several calls at each change; every run
# changes eight of them, on one event loop, so that was a tenth of what a run costs.


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
    """Executor the numbers over to a registry when it collects."""

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


LAG_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600)
RUN_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900)
OUTCOMES = ("delivered", "retried", "dead", "fenced")
FAILURES = (RunStatus.FAILED, RunStatus.TIMEOUT, RunStatus.UNKNOWN)


class Metrics:
    """A listener with its own registry, so that two engines in one process do not mix."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        #: An attempt that is stopped before it began ends without having been counted.
        self._begun: set[RunId] = set()
        self.registry = registry or CollectorRegistry()
        self._tallies = Tallies(self.registry)
        self.scheduled = self._counter("scheduled", "Slots that became runs")
        self.dispatched = self._counter("dispatched", "Attempts that began")
        self.success = self._counter("success", "Runs that succeeded")
        self.failed = self._counter("failed", "Runs that failed, timed out or were lost for good")
        self.canceled = self._counter("canceled", "Runs that were canceled while running")
        self.missed = self._counter("missed", "Slots passed over by the misfire policy")
        self.skipped = self._counter("skipped", "Slots skipped, by overlap or dependency")
        self.retries = self._counter("retries", "Attempts that failed and are tried again")
        self.fenced = self._counter("fenced", "Verdicts refused because ownership was lost")
        self.dropped = self._counter("dropped", "Attempts stopped without a verdict")
        self.rescued = self._counter("rescued", "Runs taken from nodes whose lease had ended")
        self.stuck = self._counter("stuck", "Targets that did not stop when told")
        self.broken = self._counter("broken", "Schedules that could not be planned")
        self.pauses_ended = self._counter("pauses_ended", "Pauses that ended by themselves")
        self.pruned = self._counter("pruned", "Runs forgotten after the retention")
        self.leases_lost = self._counter("leases_lost", "Times this node lost its lease")
        self.clock_jumped = self._counter(
            "db_clock_jumped", "Times the store's clock was put forward"
        )
        self.clock_regressed = self._counter(
            "db_clock_regressed", "Times the store's clock was put back"
        )
        self.regressed = self._counter("store_regressed", "Times the store had gone back")
        self.store_errors = self._counter("store_errors", "Passes that the store did not answer")
        self.engine_errors = self._counter("engine_errors", "Passes that ended in a bug")
        self.duplicates = self._counter(
            "duplicates", "Slots timed in memory that another node had taken first"
        )
        #: Every channel and outcome is there from the start, so that a rate can be taken of it.
        self.deliveries = self._counters(
            "deliveries",
            "Attempts to deliver a message, by what came of them",
            ("channel", "outcome"),
        )
        for channel in Channel:
            for outcome in OUTCOMES:
                self.deliveries.inc(channel.value, outcome, by=0)
        self.dead_letters = self._counter("dead_letters", "Deliveries that were given up")
        self.agent_tokens = self._counters(
            "agent_tokens", "Tokens that agent runs used", ("direction",)
        )
        self.agent_cost = self._counter("agent_cost", "What agent runs cost, by the prices set")
        for direction in ("prompt", "completion"):
            self.agent_tokens.inc(direction, by=0)
        self.fallback = self._gauge("fallback", "1 while schedules are timed from memory (R2.33)")
        self.running = self._gauge("running", "Attempts in progress")
        self.clock_skew = self._gauge(
            "clock_skew_seconds", "This machine's clock ahead of the store's"
        )
        self.lag = self._histogram(
            "lag_seconds", "From the planned moment to the start", LAG_BUCKETS
        )
        self.run_seconds = self._histogram("run_seconds", "Length of attempts", RUN_BUCKETS)
        self.delivery_seconds = self._histogram(
            "delivery_seconds", "Length of attempts to deliver", RUN_BUCKETS
        )
        self.fire_seconds = self._histogram(
            "fire_batch_seconds", "One batch of due schedules, in the store", RUN_BUCKETS
        )

    def text(self) -> bytes:
        """In the exposition format."""
        return generate_latest(self.registry)

    def __call__(self, event: Event) -> None:
        match event:
            case RunStarted():
                self.dispatched.inc()
                self._begun.add(event.run.id)
                self.running.set(len(self._begun))
                if event.run.attempt == 1:
                    self.lag.observe(max(0.0, event.lag))
            case RunEnded():
                self._attempt_over(event.run, event.seconds)
                self._run_over(event.run)
                if event.run.target.kind == "agent":
                    self._used(event.run)
            case RunRetrying():
                self._attempt_over(event.run, event.seconds)
                self.retries.inc()
            case CompletionFenced():
                self._attempt_over(event.run, None)
                self.fenced.inc()
            case RunDropped():
                self._attempt_over(event.run, None)
                self.dropped.inc()
            case RunHandedOn():
                self._attempt_over(event.run, None)
            case SchedulesFired():
                self._fired(event)
            case NodeBeat():
                self.clock_skew.set(event.clock_skew)
            case DeliveryEnded() | DeliveryRetrying() | DeliveryFenced():
                self._delivery(event)
            case _:
                self._rarely(event)

    def _rarely(self, event: Event) -> None:
        match event:
            case RunRescued():
                self.rescued.inc()
                self._run_over(event.run)
            case TargetStuck():
                self.stuck.inc()
            case ScheduleBroken():
                self.broken.inc()
            case PauseEnded():
                self.pauses_ended.inc()
            case RunsPruned():
                self.pruned.inc(event.count)
            case NodeLost():
                self.leases_lost.inc()
            case StoreRegressed() | StoreClockJumped():
                self._strange(event)
            case FallbackBegan():
                self.fallback.set(1)
            case FallbackEnded():
                self.fallback.set(0)
            case SlotsTaken():
                self.duplicates.inc(event.count)
            case DutyFailed():
                unavailable = isinstance(event.error, StoreUnavailable)
                (self.store_errors if unavailable else self.engine_errors).inc()
            case _:
                pass

    def _strange(self, event: StoreRegressed | StoreClockJumped) -> None:
        if isinstance(event, StoreRegressed):
            self.regressed.inc()
        else:
            (self.clock_jumped if event.seconds > 0 else self.clock_regressed).inc()

    def _used(self, run: Run) -> None:
        result = run.result or {}
        usage, cost = result.get("usage"), result.get("cost")
        if isinstance(usage, Mapping):
            for direction in ("prompt", "completion"):
                tokens = usage.get(f"{direction}_tokens")
                if isinstance(tokens, int):
                    self.agent_tokens.inc(direction, by=tokens)
        if isinstance(cost, int | float):
            self.agent_cost.inc(cost)

    def _delivery(self, event: DeliveryEnded | DeliveryRetrying | DeliveryFenced) -> None:
        if isinstance(event, DeliveryFenced):
            self._delivered(event.delivery, "fenced")
            return
        self.delivery_seconds.observe(event.seconds)
        match event.delivery.state:
            case DeliveryState.DELIVERED:
                self._delivered(event.delivery, "delivered")
            case DeliveryState.DEAD:
                self._delivered(event.delivery, "dead")
                self.dead_letters.inc()
            case DeliveryState.PENDING:
                self._delivered(event.delivery, "retried")

    def _delivered(self, delivery: Delivery, outcome: str) -> None:
        self.deliveries.inc(delivery.recipient.channel.value, outcome)

    def _fired(self, event: SchedulesFired) -> None:
        self.fire_seconds.observe(event.seconds)
        for run in event.runs:
            match run.status:
                case RunStatus.MISSED:
                    self.missed.inc(run.missed_count or 1)
                case RunStatus.SKIPPED:
                    self.skipped.inc()
                case _:
                    self.scheduled.inc()

    def _attempt_over(self, run: Run, seconds: float | None) -> None:
        self._begun.discard(run.id)
        self.running.set(len(self._begun))
        if seconds is not None:
            self.run_seconds.observe(seconds)

    def _run_over(self, run: Run) -> None:
        if run.status is RunStatus.SUCCEEDED:
            self.success.inc()
        elif run.status in FAILURES:
            self.failed.inc()
        elif run.status is RunStatus.CANCELED:
            self.canceled.inc()

    def _counter(self, name: str, text: str) -> Count:
        return self._tallies.count(f"chimes_{name}", text)

    def _counters(self, name: str, text: str, labels: tuple[str, ...]) -> Counts:
        return self._tallies.counts(f"chimes_{name}", text, labels)

    def _gauge(self, name: str, text: str) -> Level:
        return self._tallies.level(f"chimes_{name}", text)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Spread:
        return self._tallies.spread(f"chimes_{name}", text, buckets)
