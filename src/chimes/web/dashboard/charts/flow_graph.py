"""Picture of a flow: its steps in columns by dependency, with the state of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from markupsafe import Markup

from chimes.model.run import RunStatus
from chimes.services.flow_pictures import FlowPicture, StepState
from chimes.web.dashboard.charts.svg import STATUS_SYMBOLS, Chart, ChartTexts, chart, element

_WIDTH, _HEIGHT, _ACROSS, _DOWN, _EDGE = 168, 44, 36, 14, 8
_SIGN, _SHOWN = 9, 20
#: What a step waits for, as a sign behind its name.
_WAIT_SIGNS = {"approval": "✋", "time": "⏲", "event": "✉"}


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowTexts(ChartTexts):
    step: str
    after: str
    status: str
    #: Names of the statuses; None: not begun.
    statuses: Mapping[RunStatus | None, str]
    #: What a step of each kind waits for, and a short word for all of them.
    waits: Mapping[str, str]
    waiting: str
    #: How many runs of a mapped step have ended.
    progress: Callable[[int, int], str]


def flow_graph(picture: FlowPicture, texts: FlowTexts, address: Callable[[str], str]) -> Chart:
    tallest = max((len(layer) for layer in picture.layers), default=1)
    height = 2 * _EDGE + tallest * _HEIGHT + (tallest - 1) * _DOWN
    places: dict[str, tuple[float, float]] = {}
    for column, layer in enumerate(picture.layers):
        used = len(layer) * _HEIGHT + (len(layer) - 1) * _DOWN
        top = (height - used) / 2
        for row, step in enumerate(layer):
            x = _EDGE + column * (_WIDTH + _ACROSS)
            places[step.name] = float(x), top + row * (_HEIGHT + _DOWN)
    edges = [
        _edge(places[name], places[step.name])
        for step in picture.steps
        for name in step.after
        if name in places
    ]
    boxes = [_box(step, places[step.name], texts, address) for step in picture.steps]
    columns = max(1, len(picture.layers))
    return chart(
        texts,
        [*edges, *boxes],
        (texts.step, texts.after, texts.status),
        lambda: [
            (step.name, ", ".join(step.after) or "–", _state(step, texts)) for step in picture.steps
        ],
        width=2 * _EDGE + columns * _WIDTH + (columns - 1) * _ACROSS,
        height=height,
        kind="flow",
        links=any(step.run_id for step in picture.steps),
    )


def _state(step: StepState, texts: FlowTexts) -> str:
    status = texts.statuses[step.status]
    if step.wait and step.status is RunStatus.QUEUED:
        return texts.waits[step.wait]
    return status if step.runs <= 1 else f"{status} ({texts.progress(step.ended, step.runs)})"


def _edge(start: tuple[float, float], end: tuple[float, float]) -> Markup:
    x1, y1 = start[0] + _WIDTH, start[1] + _HEIGHT / 2
    x2, y2 = end[0], end[1] + _HEIGHT / 2
    bend = (x2 - x1) / 2
    path = f"M{x1:g} {y1:g} C{x1 + bend:g} {y1:g} {x2 - bend:g} {y2:g} {x2:g} {y2:g}"
    return element("path", d=path, class_="edge")


def _box(
    step: StepState, place: tuple[float, float], texts: FlowTexts, address: Callable[[str], str]
) -> Markup:
    x, y = place
    status = step.status.value if step.status is not None else "none"
    shown = step.name if len(step.name) <= _SHOWN else f"{step.name[: _SHOWN - 1]}…"
    detail = _detail(step, texts)
    sign = STATUS_SYMBOLS[step.status] if step.status is not None else "·"
    dark = step.status in (None, RunStatus.SKIPPED, RunStatus.CANCELED)
    parts = [
        element("title", f"{step.name}: {_state(step, texts)}"),
        element("rect", x=x, y=y, width=_WIDTH, height=_HEIGHT, rx=6, class_="box"),
        element("circle", cx=x + 18, cy=y + _HEIGHT / 2, r=_SIGN, class_=f"s-{status}"),
        element(
            "text", sign, x=x + 18, y=y + _HEIGHT / 2 + 3.5, aria_hidden="true",
            class_="sign dark" if dark else "sign",
        ),
        element("text", shown, x=x + 34, y=y + 19, class_="name"),
        element("text", detail, x=x + 34, y=y + 34),
    ]  # fmt: skip
    if step.wait:
        parts.append(
            element(
                "text", _WAIT_SIGNS[step.wait], x=x + _WIDTH - 12, y=y + 19, class_="end",
                aria_hidden="true",
            )
        )  # fmt: skip
    if step.run_id is not None:
        # Named by its content, which begins with the title.
        return element("a", *parts, href=address(step.run_id))
    return element("g", *parts)


def _detail(step: StepState, texts: FlowTexts) -> str:
    status = texts.statuses[step.status]
    if step.runs > 1:
        return f"{status} {step.ended}/{step.runs}"
    if step.wait and step.status is RunStatus.QUEUED:
        return texts.waiting
    return status
