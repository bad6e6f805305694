"""Prometheus metrics, counted from the engine's events. They contain no names or owners."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from itertools import accumulate
from typing import TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from chimes.engine.events import (
    AttemptAbandoned,
    BreakerClosed,
    BreakerOpened,
    CompletionFenced,
    DeliveryEnded,
    DeliveryFenced,
    DeliveryRetrying,
    DutyFailed,
    Event,
    FallbackEnded,
    FallbackStarted,
    NodeHeartbeat,
    NodeLost,
    PauseEnded,
    RunDeferred,
    RunEnded,
    RunReleased,
    RunRescued,
    RunRetrying,
    RunsPruned,
    RunStarted,
    ScheduleBroken,
    SchedulesFired,
    SlotsAlreadyTaken,
    StoreClockJumped,
    StoreRegressed,
    TargetStuck,
)
from chimes.errors import StoreUnavailable
from chimes.model.ids import RunId
from chimes.model.notification import Delivery, DeliveryState
from chimes.model.recipient import Channel
from chimes.model.run import Run, RunStatus

# Plain Python numbers instead of prometheus_client's: those take a lock and several calls for each
# change, and every run changes eight of them, which was a tenth of the cost of a run.


class Counter:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, by: float = 1) -> None:
        self.value += by


class LabeledCounter:
    """One count for each combination of labels."""

    __slots__ = ("labels", "values")

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = tuple(labels)
        self.values: dict[tuple[str, ...], float] = {}

    def inc(self, *labels: str, by: float = 1) -> None:
        self.values[labels] = self.values.get(labels, 0.0) + by


class Gauge:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def set(self, value: float) -> None:
        self.value = value


class SizeGauge:
    """The size of a collection when it is read."""

    __slots__ = ("_of",)

    def __init__(self, of: Sized) -> None:
        self._of = of

    @property
    def value(self) -> float:
        return float(len(self._of))


class Histogram:
    """Counts per bucket; a bound belongs to the bucket below it."""

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


Instrument = Counter | LabeledCounter | Gauge | SizeGauge | Histogram
InstrumentT = TypeVar("InstrumentT", bound=Instrument)


class MetricsCollector(Collector):
    """Exports the instruments when a registry collects."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._instruments: dict[str, tuple[str, Instrument]] = {}
        registry.register(self)

    def counter(self, name: str, text: str) -> Counter:
        return self._add(name, text, Counter())

    def labeled_counter(self, name: str, text: str, labels: Sequence[str]) -> LabeledCounter:
        return self._add(name, text, LabeledCounter(labels))

    def gauge(self, name: str, text: str) -> Gauge:
        return self._add(name, text, Gauge())

    def size_gauge(self, name: str, text: str, of: Sized) -> SizeGauge:
        return self._add(name, text, SizeGauge(of))

    def histogram(self, name: str, text: str, bounds: Sequence[float]) -> Histogram:
        return self._add(name, text, Histogram(bounds))

    def _add(self, name: str, text: str, instrument: InstrumentT) -> InstrumentT:
        self._instruments[f"chimes_{name}"] = (text, instrument)
        return instrument

    def collect(self) -> Iterable[Metric]:
        for name, (text, instrument) in self._instruments.items():
            match instrument:
                case Counter():
                    yield CounterMetricFamily(name, text, value=instrument.value)
                case LabeledCounter():
                    family = CounterMetricFamily(name, text, labels=instrument.labels)
                    for labels, value in instrument.values.items():
                        family.add_metric(labels, value)
                    yield family
                case Gauge() | SizeGauge():
                    yield GaugeMetricFamily(name, text, value=instrument.value)
                case Histogram():
                    yield HistogramMetricFamily(
                        name, text, buckets=instrument.buckets, sum_value=instrument.total
                    )


LAG_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600)
RUN_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900)
OUTCOMES = ("delivered", "retried", "dead", "fenced", "suppressed")
FAILURES = (RunStatus.FAILED, RunStatus.TIMEOUT, RunStatus.UNKNOWN)


class Metrics:
    """A listener with its own registry, so that two engines in one process do not mix."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        #: Attempts that started: only these are counted as running.
        self._started: set[RunId] = set()
        self.registry = registry or CollectorRegistry()
        metrics = MetricsCollector(self.registry)
        self.scheduled = metrics.counter("scheduled", "Slots that became runs")
        self.dispatched = metrics.counter("dispatched", "Attempts that started")
        self.success = metrics.counter("success", "Runs that succeeded")
        self.failed = metrics.counter("failed", "Runs that failed, timed out or were lost for good")
        self.canceled = metrics.counter("canceled", "Runs that were canceled while running")
        self.missed = metrics.counter("missed", "Slots passed over by the misfire policy")
        self.skipped = metrics.counter("skipped", "Slots skipped because of overlap or dependency")
        self.retries = metrics.counter("retries", "Attempts that failed and are retried")
        self.fenced = metrics.counter("fenced", "Completions refused because ownership was lost")
        self.deferred = metrics.counter(
            "limit_waits", "Times a run went back to the queue to wait for a named limit"
        )
        self.breakers_opened = metrics.counter(
            "breakers_opened", "Times the circuit breaker of a named limit opened"
        )
        self.breakers_closed = metrics.counter(
            "breakers_closed", "Times the circuit breaker of a named limit closed"
        )
        self.dropped = metrics.counter("dropped", "Attempts stopped without a completion")
        self.rescued = metrics.counter("rescued", "Runs taken from nodes whose lease had ended")
        self.stuck = metrics.counter("stuck", "Targets that did not stop when canceled")
        self.broken = metrics.counter("broken", "Schedules that could not be planned")
        self.pauses_ended = metrics.counter("pauses_ended", "Pauses that ended automatically")
        self.pruned = metrics.counter("pruned", "Runs deleted after the retention")
        self.leases_lost = metrics.counter("leases_lost", "Times this node lost its lease")
        self.clock_jumped = metrics.counter(
            "db_clock_jumped", "Times the store's clock was set forward"
        )
        self.clock_regressed = metrics.counter(
            "db_clock_regressed", "Times the store's clock was set back"
        )
        self.regressed = metrics.counter(
            "store_regressed", "Times the store had lost committed data"
        )
        self.store_errors = metrics.counter(
            "store_errors", "Passes that failed because the store was unavailable"
        )
        self.engine_errors = metrics.counter(
            "engine_errors", "Passes that failed with an unexpected error"
        )
        self.duplicates = metrics.counter(
            "duplicates", "Slots timed in memory that another node had run first"
        )
        #: Every channel and outcome exists from the start, so that rates can be computed.
        self.deliveries = metrics.labeled_counter(
            "deliveries",
            "Delivery attempts by outcome",
            ("channel", "outcome"),
        )
        for channel in Channel:
            for outcome in OUTCOMES:
                self.deliveries.inc(channel.value, outcome, by=0)
        self.dead_letters = metrics.counter("dead_letters", "Deliveries that were given up")
        self.agent_tokens = metrics.labeled_counter(
            "agent_tokens", "Tokens that agent runs used", ("direction",)
        )
        self.agent_cost = metrics.counter(
            "agent_cost", "Cost of agent runs at the configured prices"
        )
        for direction in ("prompt", "completion"):
            self.agent_tokens.inc(direction, by=0)
        self.fallback = metrics.gauge("fallback", "1 while schedules are timed from memory")
        self.running = metrics.size_gauge("running", "Attempts in progress", self._started)
        self.clock_skew = metrics.gauge(
            "clock_skew_seconds", "Seconds that this machine's clock is ahead of the store's"
        )
        self.lag = metrics.histogram(
            "lag_seconds", "From the planned time to the start", LAG_BUCKETS
        )
        self.run_seconds = metrics.histogram("run_seconds", "Duration of attempts", RUN_BUCKETS)
        self.delivery_seconds = metrics.histogram(
            "delivery_seconds", "Duration of delivery attempts", RUN_BUCKETS
        )
        self.fire_seconds = metrics.histogram(
            "fire_batch_seconds", "Duration of firing one batch of due schedules", RUN_BUCKETS
        )

        self.handlers: Mapping[type[Event], Callable[..., None]] = {
            RunStarted: self._count_started,
            RunEnded: self._count_ended,
        }

    def text(self) -> bytes:
        """In the exposition format."""
        return generate_latest(self.registry)

    def __call__(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._count_started(event)
            case RunEnded():
                self._count_ended(event)
            case RunRetrying():
                self._count_attempt(event.run, event.seconds)
                self.retries.inc()
            case CompletionFenced():
                self._count_attempt(event.run, None)
                self.fenced.inc()
            case AttemptAbandoned():
                self._count_attempt(event.run, None)
                self.dropped.inc()
            case RunReleased():
                self._count_attempt(event.run, None)
            case SchedulesFired():
                self._count_fired(event)
            case NodeHeartbeat():
                self.clock_skew.set(event.clock_skew)
            case DeliveryEnded() | DeliveryRetrying() | DeliveryFenced():
                self._count_delivery(event)
            case RunDeferred() | BreakerOpened() | BreakerClosed():
                self._count_limit(event)
            case _:
                self._count_rare(event)

    def _count_started(self, event: RunStarted) -> None:
        self.dispatched.value += 1
        self._started.add(event.run.id)
        if event.run.attempt == 1:
            self.lag.observe(event.lag if event.lag > 0.0 else 0.0)

    def _count_ended(self, event: RunEnded) -> None:
        run = event.run
        self._started.discard(run.id)
        self.run_seconds.observe(event.seconds)
        self._count_run(run)
        if run.definition.target.kind == "agent":
            self._count_usage(run)

    def _count_limit(self, event: RunDeferred | BreakerOpened | BreakerClosed) -> None:
        match event:
            case RunDeferred():
                self.deferred.inc()
            case BreakerOpened():
                self.breakers_opened.inc()
            case BreakerClosed():
                self.breakers_closed.inc()

    def _count_rare(self, event: Event) -> None:
        match event:
            case RunRescued():
                self.rescued.inc()
                self._count_run(event.run)
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
                self._count_store_fault(event)
            case FallbackStarted():
                self.fallback.set(1)
            case FallbackEnded():
                self.fallback.set(0)
            case SlotsAlreadyTaken():
                self.duplicates.inc(event.count)
            case DutyFailed():
                unavailable = isinstance(event.error, StoreUnavailable)
                (self.store_errors if unavailable else self.engine_errors).inc()
            case _:
                pass

    def _count_store_fault(self, event: StoreRegressed | StoreClockJumped) -> None:
        if isinstance(event, StoreRegressed):
            self.regressed.inc()
        else:
            (self.clock_jumped if event.seconds > 0 else self.clock_regressed).inc()

    def _count_usage(self, run: Run) -> None:
        result = run.result or {}
        usage, cost = result.get("usage"), result.get("cost")
        if isinstance(usage, Mapping):
            for direction in ("prompt", "completion"):
                tokens = usage.get(f"{direction}_tokens")
                if isinstance(tokens, int):
                    self.agent_tokens.inc(direction, by=tokens)
        if isinstance(cost, int | float):
            self.agent_cost.inc(cost)

    def _count_delivery(self, event: DeliveryEnded | DeliveryRetrying | DeliveryFenced) -> None:
        if isinstance(event, DeliveryFenced):
            self._count_outcome(event.delivery, "fenced")
            return
        self.delivery_seconds.observe(event.seconds)
        match event.delivery.state:
            case DeliveryState.DELIVERED:
                self._count_outcome(event.delivery, "delivered")
            case DeliveryState.DEAD:
                self._count_outcome(event.delivery, "dead")
                self.dead_letters.inc()
            case DeliveryState.SUPPRESSED:
                self._count_outcome(event.delivery, "suppressed")
            case DeliveryState.PENDING:
                self._count_outcome(event.delivery, "retried")

    def _count_outcome(self, delivery: Delivery, outcome: str) -> None:
        self.deliveries.inc(delivery.recipient.channel.value, outcome)

    def _count_fired(self, event: SchedulesFired) -> None:
        self.fire_seconds.observe(event.seconds)
        for run in event.runs:
            match run.status:
                case RunStatus.MISSED:
                    self.missed.inc(run.missed_count or 1)
                case RunStatus.SKIPPED:
                    self.skipped.inc()
                case _:
                    self.scheduled.inc()

    def _count_attempt(self, run: Run, seconds: float | None) -> None:
        self._started.discard(run.id)
        if seconds is not None:
            self.run_seconds.observe(seconds)

    def _count_run(self, run: Run) -> None:
        if run.status is RunStatus.SUCCEEDED:
            self.success.value += 1
        elif run.status in FAILURES:
            self.failed.inc()
        elif run.status is RunStatus.CANCELED:
            self.canceled.inc()
