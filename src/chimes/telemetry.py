"""Trace context of this process: W3C `traceparent`, and the OpenTelemetry SDK of the extra `otel`.

The SDK is imported by `configure`, if standard `OTEL_*` variables name a destination, or by the
application that embeds Chimes. Without it every function here returns at once.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import SpanContext

_SDK = "opentelemetry.sdk.trace"
_TRACE_PARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})"
)
_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_HTTP = "http/protobuf"
_log = logging.getLogger("chimes.telemetry")


def is_traceparent(text: str) -> bool:
    """Whether the text is a W3C trace context of version 00, or the start of a later one."""
    return _TRACE_PARENT.fullmatch(text) is not None


def current_traceparent() -> str:
    """The current span as W3C trace context; empty if there is none."""
    if _SDK not in sys.modules:
        return ""
    from opentelemetry.trace import get_current_span

    return traceparent_of(get_current_span().get_span_context())


def traceparent_of(span: SpanContext) -> str:
    if not span.is_valid:
        return ""
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}"


def remote_context(traceparent: str) -> Context:
    """The context whose spans are children of a span in another process; a root context if the
    text is not a trace context."""
    from opentelemetry.context import Context
    from opentelemetry.trace import (
        NonRecordingSpan,
        SpanContext,
        TraceFlags,
        set_span_in_context,
    )

    found = _TRACE_PARENT.fullmatch(traceparent)
    if found is None:
        return Context()
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    span = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return set_span_in_context(NonRecordingSpan(span), Context())


def log_fields() -> Mapping[str, str]:
    """`trace_id` and `span_id` of the current span, for log lines."""
    if _SDK not in sys.modules:
        return {}
    from opentelemetry.trace import get_current_span

    span = get_current_span().get_span_context()
    if not span.is_valid:
        return {}
    return {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"}


@contextmanager
def request_span(method: str, path: str, traceparent: str) -> Iterator[Callable[[int], None]]:
    """The span of a request that this process serves. Yields a function that takes the status of
    the response. The path is without the query, in which some APIs accept keys."""
    provider = find_provider()
    if provider is None:
        yield lambda _status: None
        return
    from opentelemetry.trace import SpanKind, StatusCode

    with provider.get_tracer("chimes.http").start_as_current_span(
        method,
        context=remote_context(traceparent),
        kind=SpanKind.SERVER,
        attributes={"http.request.method": method, "url.path": path},
    ) as span:

        def set_status(status: int) -> None:
            span.set_attribute("http.response.status_code", status)
            if status >= 500:
                span.set_status(StatusCode.ERROR)

        yield set_status


@contextmanager
def use_traceparent(traceparent: str) -> Iterator[None]:
    """Makes the span of another process the current one."""
    from opentelemetry import context

    token = context.attach(remote_context(traceparent))
    try:
        yield
    finally:
        context.detach(token)


def find_provider() -> TracerProvider | None:
    """The SDK's provider of this process, which `configure` or the application has set."""
    if _SDK not in sys.modules:
        return None
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import get_tracer_provider

    provider = get_tracer_provider()
    return provider if isinstance(provider, TracerProvider) else None


# --- setup by the environment ---------------------------------------------------------------------
def _exports(signal: str, environ: Mapping[str, str]) -> bool:
    """Whether the variables name a destination of this signal (`TRACES`, `METRICS`)."""
    exporter = environ.get(f"OTEL_{signal}_EXPORTER", "").strip().lower()
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or exporter == "none":
        return False
    endpoints = (_ENDPOINT, f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    return exporter == "otlp" or any(environ.get(name, "").strip() for name in endpoints)


def configure(
    service: str = "chimes", *, metrics: bool = True, environ: Mapping[str, str] = os.environ
) -> Callable[[], None] | None:
    """Sets up the SDK as the `OTEL_*` variables say, unless the application has done it. Returns a
    function that sends what is left; None: nothing was set up."""
    if not _exports("TRACES", environ) or find_provider() is not None:
        return None
    if (problem := _problem(environ)) is not None:
        _log.warning(problem)
        return None
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        _log.warning(
            "OTEL_* variables are set, but OpenTelemetry is not installed:"
            " pip install 'chimes[otel]'"
        )
        return None
    # `create` lets OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override it.
    given = "OTEL_SERVICE_NAME" in environ or "service.name=" in environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    resource = Resource.create({} if given else {"service.name": service})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    ends: list[Callable[[], None]] = [provider.shutdown]
    if metrics and _exports("METRICS", environ):
        from opentelemetry import metrics as metrics_api
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        reader = PeriodicExportingMetricReader(OTLPMetricExporter())
        meters = MeterProvider(resource=resource, metric_readers=[reader], shutdown_on_exit=False)
        metrics_api.set_meter_provider(meters)
        ends.append(meters.shutdown)

    def end() -> None:
        for each in ends:
            each()

    return end


def _problem(environ: Mapping[str, str]) -> str | None:
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if exporter not in ("", "otlp"):
        return f"OTEL_TRACES_EXPORTER={exporter} is not supported: set otlp or none; no traces sent"
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if protocol := environ.get(name, "").strip().lower():
            if protocol == _HTTP:
                return None
            return f"{name}={protocol} is not supported: set {_HTTP}; no traces sent"
    return None
