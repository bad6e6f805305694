"""Spans of runs: sampling, trace contexts of callers, and the variables that switch tracing on."""

from __future__ import annotations

import io
import json
import logging
from datetime import timedelta

import httpx2
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from chimes.client.client import _request
from chimes.client.transport import Call
from chimes.engine.events import RunEnded
from chimes.engine.spans import RunTracing
from chimes.log import configure_logging
from chimes.model import replace
from chimes.model.run import AttemptEnd, Outcome, Run, RunStatus
from chimes.telemetry import configure, current_traceparent, is_traceparent, use_traceparent
from tests.builders import NOW, a_run

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"


def tracing(provider: TracerProvider) -> tuple[RunTracing, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("chimes")
    return RunTracing(provider, tracer), exporter  # type: ignore[arg-type]


def execute(spans: RunTracing, run: Run) -> str:
    """One attempt and the end of the run; returns what a callback is sent."""
    span = spans.start_attempt(run, NOW)
    with spans.current(span):
        sent = current_traceparent()
    spans.end_attempt(span, run, Outcome(end=AttemptEnd.SUCCEEDED), NOW, 0.5)
    ended = replace(run, status=RunStatus.SUCCEEDED, finished_at=NOW + timedelta(seconds=1))
    spans(RunEnded(run=ended, seconds=0.5))
    return sent


def with_trace(trace: str) -> Run:
    run = a_run()
    return replace(run, definition=replace(run.definition, trace=trace))


def test_callers_decide_whether_a_run_is_sampled() -> None:
    spans, exporter = tracing(TracerProvider())
    sent = execute(spans, with_trace(UNSAMPLED))
    assert exporter.get_finished_spans() == ()
    # Receivers are told not to sample either.
    assert sent.startswith(f"00-{TRACE}-")
    assert sent.endswith("-00")
    assert execute(spans, with_trace(SAMPLED)).endswith("-01")
    attempt, run = exporter.get_finished_spans()
    assert run.parent is not None
    assert f"{run.parent.span_id:016x}" == SPAN
    assert attempt.parent is not None
    assert run.context is not None
    assert attempt.parent.span_id == run.context.span_id


def test_a_run_and_its_attempts_are_sampled_together_on_any_node() -> None:
    nodes = [tracing(TracerProvider(sampler=ParentBased(TraceIdRatioBased(0.5)))) for _ in "ab"]
    sampled = 0
    for _number in range(60):
        run = with_trace("")
        for spans, exporter in nodes:
            exporter.clear()
            execute(spans, run)
        found = [exporter.get_finished_spans() for _spans, exporter in nodes]
        assert len(found[0]) == len(found[1]) in (0, 2)
        ids = {span.context and span.context.trace_id for each in found for span in each}
        runs = {
            span.context and span.context.span_id
            for each in found
            for span in each
            if span.name == "chimes.run"
        }
        assert len(ids) == len(runs) == bool(found[0])
        sampled += bool(found[0])
    assert 10 < sampled < 50


def test_the_current_span_is_sent_by_clients_and_written_to_logs() -> None:
    stream = io.StringIO()
    handler = configure_logging("info", "json", stream=stream)
    with httpx2.Client(base_url="http://127.0.0.1:9") as http:
        call = Call(method="GET", path="/runs")
        assert "traceparent" not in _request(http, call).headers
        logging.getLogger("test").info("before")
        with use_traceparent(SAMPLED):
            assert _request(http, call).headers["traceparent"] == SAMPLED
            logging.getLogger("test").info("within")
    logging.getLogger().removeHandler(handler)
    before, within = (json.loads(line) for line in stream.getvalue().splitlines())
    assert "trace_id" not in before
    assert (within["trace_id"], within["span_id"]) == (TRACE, SPAN)


def test_trace_contexts_that_are_not_valid_begin_a_new_trace() -> None:
    for text in (
        *("", "nonsense", SAMPLED.upper(), f"ff-{TRACE}-{SPAN}-01", f"{SAMPLED}-more"),
        *(f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", f" {SAMPLED}"),
    ):
        assert not is_traceparent(text), text
        spans, exporter = tracing(TracerProvider())
        execute(spans, with_trace(text))
        _attempt, run = exporter.get_finished_spans()
        assert run.parent is None, text


def test_variables_that_are_not_supported_are_named(caplog: pytest.LogCaptureFixture) -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    for given, message in (
        ({}, ""),
        ({"OTEL_TRACES_EXPORTER": "none", **endpoint}, ""),
        ({"OTEL_SDK_DISABLED": "true", **endpoint}, ""),
        ({"OTEL_TRACES_EXPORTER": "zipkin", **endpoint}, "zipkin is not supported: set otlp"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", **endpoint}, "grpc is not supported"),
    ):
        caplog.clear()
        assert configure(environ=given) is None
        assert message in caplog.text
        assert bool(message) == bool(caplog.text), given
