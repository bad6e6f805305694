"""OpenTelemetry: a real node sends its spans and metrics to an OTLP collector."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.system.conftest import Start
from tests.system.node import Node, wait_until
from tests.system.otlp_collector import Collector
from tests.system.receiver import Receiver

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
RETRIES = {"max_retries": 1, "retry_backoff": "10ms"}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as found:
        yield found


def attributes(span: Span) -> dict[str, Any]:
    return {
        each.key: getattr(each.value, str(each.value.WhichOneof("value")))
        for each in span.attributes
    }


def of_run(spans: list[Span], name: str, run_id: str) -> list[Span]:
    found = [
        each
        for each in spans
        if each.name == name and attributes(each).get("chimes.run.id") == run_id
    ]
    return sorted(found, key=lambda span: span.start_time_unix_nano)


def ended(node: Node, run_id: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        run: dict[str, Any] = node.get(f"/api/v1/runs/{run_id}")
        return run if run["status"] in ("succeeded", "failed") else None

    return wait_until(look, "the end of the run")


def request_run(node: Node, target: dict[str, Any], traced: bool = True) -> str:
    body = {"target": target, "policy": RETRIES}
    answer = node.call("POST", "/api/v1/runs", body, TRACEPARENT if traced else {})
    assert answer.status in (200, 201, 202), answer.text
    return str(answer.json["id"])


def test_spans_of_request_run_attempts_and_tasks(
    tmp_path: Path, start: Start, receiver: Receiver, collector: Collector
) -> None:
    (tmp_path / "home").mkdir()
    shutil.copy(Path(__file__).with_name("traced_app.py"), tmp_path / "home")
    node = start(
        f"sqlite:///{tmp_path / 'chimes.db'}",
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
        OTEL_BSP_SCHEDULE_DELAY="100",
        CHIMES_APP="traced_app:app",
        CHIMES_LOG_FORMAT="json",
    )
    called = request_run(
        node, {"kind": "http", "url": receiver.answer("/hook", 500, 200), "method": "POST"}
    )
    tasks = {
        name: request_run(node, {"kind": "task", "name": name})
        for name in ("inline", "thread", "process")
    }
    flow = request_run(node, {"kind": "flow", "name": "steps"})
    rootless = request_run(node, {"kind": "task", "name": "inline"}, traced=False)
    runs = {each: ended(node, each) for each in (called, *tasks.values(), flow, rootless)}
    assert {run["status"] for run in runs.values()} == {"succeeded"}, [
        (run["target"], run["status"], run["error"]) for run in runs.values()
    ]
    assert node.stop() == 0
    spans = collector.spans
    assert collector.services == {"chimes"}
    by_id = {each.span_id: each for each in spans}

    # The request is a child of the caller's span, the run of the request, attempts of the run.
    (run,) = of_run(spans, "chimes.run", called)
    request = by_id[run.parent_span_id]
    assert (request.kind, request.name) == (Span.SPAN_KIND_SERVER, "POST")
    assert request.parent_span_id.hex() == PARENT
    first, second = of_run(spans, "chimes.attempt", called)
    assert {each.trace_id.hex() for each in (request, run, first, second)} == {TRACE}
    assert first.parent_span_id == second.parent_span_id == run.span_id
    assert [attributes(each)["chimes.attempt"] for each in (first, second)] == [1, 2]
    assert first.status.code == Status.STATUS_CODE_ERROR
    assert second.status.code == run.status.code == Status.STATUS_CODE_UNSET
    assert run.start_time_unix_nano <= first.start_time_unix_nano
    assert second.end_time_unix_nano <= run.end_time_unix_nano
    assert not any("url" in key and key != "url.path" for each in spans for key in attributes(each))

    # Each attempt sent its own span to the receiver.
    sent = [call.headers["traceparent"] for call in receiver.calls("/hook")]
    assert sent == [f"00-{TRACE}-{each.span_id.hex()}-01" for each in (first, second)]

    # Spans that tasks make are children of their attempt, in every kind of isolation.
    for name, run_id in tasks.items():
        (attempt,) = of_run(spans, "chimes.attempt", run_id)
        (inside,) = [
            each
            for each in spans
            if each.name == f"inside {name}" and each.parent_span_id == attempt.span_id
        ]
        assert inside.trace_id.hex() == TRACE
        assert runs[run_id]["result"]["value"] == TRACE
    # A step is a child of its flow.
    (attempt,) = of_run(spans, "chimes.attempt", flow)
    (step,) = [
        each
        for each in spans
        if attributes(each).get("chimes.step") == "first" and each.name == "chimes.run"
    ]
    assert step.parent_span_id == attempt.span_id
    # A run whose request had no trace is in the trace of the request that Chimes began.
    (alone,) = of_run(spans, "chimes.run", rootless)
    assert alone.trace_id.hex() != TRACE
    assert not by_id[alone.parent_span_id].parent_span_id

    # Log lines of a run have the id of its trace.
    lines = [json.loads(line) for line in node.output.splitlines() if line.startswith("{")]
    (line,) = [
        each for each in lines if each.get("run_id") == called and each["event"] == "run ended"
    ]
    assert line["trace_id"] == TRACE
    posts = [each for each in lines if each["event"] == "request" and each["method"] == "POST"]
    assert posts[0]["trace_id"] == TRACE
    assert bytes.fromhex(posts[0]["span_id"]) == request.span_id

    # Measurements refer to a span of theirs.
    durations = [each for each in collector.metrics if each.name == "chimes.attempt.duration"]
    exemplars = [
        exemplar.span_id
        for each in durations
        for point in each.histogram.data_points
        for exemplar in point.exemplars
    ]
    assert exemplars
    assert {by_id[each].name for each in exemplars} == {"chimes.attempt"}


def test_a_scheduled_run_begins_a_trace_and_nothing_is_sent_without_a_destination(
    tmp_path: Path, start: Start, receiver: Receiver, collector: Collector
) -> None:
    """Without the variables, callers' trace contexts are neither stored nor sent on."""
    node = start(f"sqlite:///{tmp_path / 'off.db'}")
    run_id = request_run(node, {"kind": "http", "url": receiver.answer("/off", 200)})
    ended(node, run_id)
    assert "traceparent" not in receiver.calls("/off")[0].headers
    assert node.stop() == 0
    node = start(f"sqlite:///{tmp_path / 'on.db'}", OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
    node.create(
        name="tick",
        trigger={"kind": "every", "every": "1s", "max_runs": 1},
        target={"kind": "http", "url": receiver.answer("/slot", 200)},
    )
    (call,) = receiver.wait_for("/slot", 1)
    ended(node, call.run_id)
    assert node.stop() == 0
    (run,) = of_run(collector.spans, "chimes.run", call.run_id)
    assert attributes(run)["chimes.schedule.name"] == "tick"
    assert call.headers["traceparent"].split("-")[1] == run.trace_id.hex()
    assert not run.parent_span_id
