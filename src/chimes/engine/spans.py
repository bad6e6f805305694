"""OpenTelemetry spans and metrics of runs.

A run has one span, from its planned time to its end, and a child span for each attempt, in which
the target executes. The nodes that make the attempts may differ, so nothing about the span of a run
is kept in memory: its id is computed from the id of the run. It is exported when the run ends. Its
parent is the request that made the run (`RunDefinition.trace`); the run of a slot begins a trace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from opentelemetry import context as contexts
from opentelemetry import metrics
from opentelemetry.context import Context
from opentelemetry.sdk.trace import Tracer, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    get_current_span,
    set_span_in_context,
)

from chimes.clock import MICROSECOND
from chimes.engine.events import Event, RunEnded, RunRescued
from chimes.model.run import AttemptEnd, Outcome, Run, RunStatus
from chimes.model.target import TaskTarget
from chimes.telemetry import find_provider, remote_context
from chimes.triggers.values import EPOCH

_FAILED = (RunStatus.FAILED, RunStatus.TIMEOUT, RunStatus.UNKNOWN)
_FAILED_ENDS = (AttemptEnd.FAILED, AttemptEnd.TIMEOUT)
_RUN_SPAN, _ATTEMPT_SPAN = "chimes.run", "chimes.attempt"


def build_run_tracing(version: str) -> RunTracing | None:
    """None: this process does not trace."""
    provider = find_provider()
    if provider is None:
        return None
    tracer = provider.get_tracer("chimes", version)
    return RunTracing(provider, tracer) if isinstance(tracer, Tracer) else None


class _Ids(IdGenerator):
    """Returns chosen ids once, then those of the provider."""

    def __init__(self, others: IdGenerator) -> None:
        self._others = others
        self.trace_id = self.span_id = 0

    def generate_trace_id(self) -> int:
        chosen, self.trace_id = self.trace_id, 0
        return chosen or self._others.generate_trace_id()

    def generate_span_id(self) -> int:
        chosen, self.span_id = self.span_id, 0
        return chosen or self._others.generate_span_id()


class RunTracing:
    """A listener of the engine's events that also opens the spans of attempts."""

    event_types = (RunEnded, RunRescued)

    def __init__(self, provider: TracerProvider, tracer: Tracer) -> None:
        self._tracer = tracer
        self._ids = _Ids(provider.id_generator)
        # The tracer belongs to this module, so other spans of the process keep their ids.
        tracer.id_generator = self._ids
        meter = metrics.get_meter("chimes")
        self._duration = meter.create_histogram(
            "chimes.attempt.duration", "s", "Duration of an attempt"
        )
        self._lag = meter.create_histogram(
            "chimes.attempt.lag", "s", "Seconds from the planned time to the start of an attempt"
        )

    def start_attempt(self, run: Run, now: datetime) -> Span:
        return self._tracer.start_span(
            _ATTEMPT_SPAN,
            context=self._context_of(run),
            kind=SpanKind.CONSUMER,
            attributes=_attributes(run) | {"chimes.attempt": run.attempt},
            start_time=_nanoseconds(now),
        )

    @contextmanager
    def current(self, span: Span) -> Iterator[None]:
        token = contexts.attach(set_span_in_context(span, Context()))
        try:
            yield
        finally:
            contexts.detach(token)

    def end_attempt(
        self, span: Span, run: Run, outcome: Outcome | None, now: datetime, seconds: float
    ) -> None:
        """`outcome`: None if the attempt was given up and another one follows."""
        end = "abandoned" if outcome is None else outcome.end.value
        span.set_attribute("chimes.attempt.end", end)
        if outcome is not None and outcome.code:
            span.set_attribute("error.type", outcome.code)
        if outcome is None or outcome.end in _FAILED_ENDS:
            span.set_status(Status(StatusCode.ERROR, end))
        span.end(_nanoseconds(now))
        labels = {"chimes.target.kind": run.target.kind, "chimes.attempt.end": end}
        # The span in the context becomes the exemplar of the measurement.
        within = set_span_in_context(span, Context())
        self._duration.record(seconds, labels, within)
        due = run.planned_at if run.attempt == 1 else run.available_at
        lag = (now - due).total_seconds() - seconds
        self._lag.record(max(lag, 0.0), {"chimes.target.kind": run.target.kind}, within)

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunEnded | RunRescued) and event.run.status.terminal:
            self._export_run(event.run)

    def _export_run(self, run: Run) -> None:
        self._ids.trace_id, self._ids.span_id = _trace_id(run), _span_id(run)
        span = self._tracer.start_span(
            _RUN_SPAN,
            context=remote_context(run.definition.trace),
            kind=SpanKind.INTERNAL,
            attributes=_attributes(run) | {"chimes.run.status": run.status.value},
            start_time=_nanoseconds(run.planned_at),
        )
        # A span with a parent takes the parent's trace id and leaves the chosen one unused.
        self._ids.trace_id = self._ids.span_id = 0
        if run.reason:
            span.set_attribute("error.type", run.reason)
        if run.status in _FAILED:
            span.set_status(Status(StatusCode.ERROR, run.status.value))
        span.end(_nanoseconds(max(run.finished_at or run.planned_at, run.planned_at)))

    def trace_id(self, run: Run) -> str:
        return f"{_trace_id(run):032x}"

    def _context_of(self, run: Run) -> Context:
        """The context of the span of a run, sampled or not as this span will be."""
        parent = remote_context(run.definition.trace)
        decision = self._tracer.sampler.should_sample(
            parent, _trace_id(run), _RUN_SPAN, SpanKind.INTERNAL, _attributes(run), ()
        ).decision
        sampled = decision is Decision.RECORD_AND_SAMPLE
        flags = TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT
        span = SpanContext(
            _trace_id(run), _span_id(run), is_remote=True, trace_flags=TraceFlags(flags)
        )
        return set_span_in_context(NonRecordingSpan(span), Context())


def _attributes(run: Run) -> dict[str, str | int]:
    """Without URLs, arguments and owners, which may be private."""
    found: dict[str, str | int] = {"chimes.run.id": run.id, "chimes.target.kind": run.target.kind}
    if run.schedule_id is not None:
        found["chimes.schedule.id"] = run.schedule_id
    if run.schedule_name:
        found["chimes.schedule.name"] = run.schedule_name
    if isinstance(run.target, TaskTarget):
        found["chimes.task"] = run.target.name
    if run.step:
        found["chimes.step"] = run.step
    return found


def _trace_id(run: Run) -> int:
    if run.definition.trace:
        span = get_current_span(remote_context(run.definition.trace)).get_span_context()
        if span.is_valid:
            return span.trace_id
    return int.from_bytes(_digest(run)[:16]) or 1


def _span_id(run: Run) -> int:
    return int.from_bytes(_digest(run)[16:24]) or 1


def _digest(run: Run) -> bytes:
    return hashlib.sha256(f"chimes.run:{run.id}".encode()).digest()


def _nanoseconds(moment: datetime) -> int:
    return (moment - EPOCH) // MICROSECOND * 1000
