"""An application whose tasks make spans of their own, each in its kind of isolation."""

from __future__ import annotations

from opentelemetry import trace

from chimes import Chimes

app = Chimes()


def make_span(name: str) -> str:
    with trace.get_tracer("traced_app").start_as_current_span(name) as span:
        return f"{span.get_span_context().trace_id:032x}"


@app.task(name="inline")
async def inline() -> str:
    return make_span("inside inline")


@app.task(name="thread", isolation="thread")
def thread() -> str:
    return make_span("inside thread")


@app.task(name="process", isolation="process")
def process() -> str:
    return make_span("inside process")


flow = app.flow("steps")


@flow.step(name="first")
async def first() -> None: ...
