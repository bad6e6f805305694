"""Scatter chart of runs over time: durations or lags, with median and p95."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from statistics import median

from markupsafe import Markup

from chimes.model.run import RunStatus
from chimes.web.dashboard.charts.svg import Chart, ChartTexts, chart, element, empty_chart

_LEFT, _WIDTH, _TOP, _HIGH, _BOTTOM = 84, 680, 10, 150, 22
#: Space for the labels of the two lines, and their height.
_RIGHT, _LINE = 130, 13
#: Space above the highest point.
_HEADROOM = 1.08


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    at: datetime
    seconds: float
    status: RunStatus
    address: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ScatterTexts(ChartTexts):
    when: str
    value: str
    status: str
    #: Labels of the two lines.
    median: str
    p95: str
    span: Callable[[float], str]
    state: Callable[[RunStatus], str]
    #: Formats a time with the zone.
    moment: Callable[[datetime], str]


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that is not exceeded by this share of the values."""
    ordered = sorted(values)
    return ordered[max(0, ceil(share * len(ordered)) - 1)]


def scatter_chart(points: Sequence[Point], texts: ScatterTexts) -> Chart:
    """Each point links to its run; shape and colour show its status."""
    heads = (texts.when, texts.value, texts.status)
    if not points:
        return empty_chart(texts.title, heads)
    values = [each.seconds for each in points]
    top = max(values) * _HEADROOM or 1.0
    first, last = min(each.at for each in points), max(each.at for each in points)
    whole = (last - first).total_seconds() or 1.0

    def place(at: datetime) -> float:
        share = (at - first).total_seconds() / whole if last > first else 0.5
        return _LEFT + 8 + (_WIDTH - 16) * share

    def level(seconds: float) -> float:
        return _TOP + _HIGH * (1 - seconds / top)

    floor = _TOP + _HIGH
    parts = [
        element("line", x1=_LEFT, x2=_LEFT + _WIDTH, y1=floor, y2=floor, class_="axis"),
        element("text", texts.span(0.0), x=_LEFT - 6, y=floor, class_="end"),
        element("text", texts.span(max(values)), x=_LEFT - 6, y=level(max(values)) + 8,
                class_="end"),
        element("text", texts.moment(first), x=_LEFT, y=floor + 16),
        element("text", texts.moment(last), x=_LEFT + _WIDTH, y=floor + 16, class_="end"),
    ]  # fmt: skip
    below: float | None = None
    for name, value in ((texts.median, median(values)), (texts.p95, quantile(values, 0.95))):
        y = level(value)
        # Keeps the two labels apart.
        text_at = y + 4 if below is None else min(y + 4, below - _LINE)
        below = text_at
        title = element("title", f"{name}: {texts.span(value)}")
        parts.append(
            element("line", title, x1=_LEFT, x2=_LEFT + _WIDTH, y1=y, y2=y, class_="median")
        )
        label = f"{name} {texts.span(value)}"
        parts.append(element("text", label, x=_LEFT + _WIDTH + 4, y=text_at))
    parts.extend(_mark(each, place(each.at), level(each.seconds), texts) for each in points)
    return chart(
        texts,
        parts,
        heads,
        lambda: [
            (texts.moment(each.at), texts.span(each.seconds), texts.state(each.status))
            for each in sorted(points, key=lambda each: each.at, reverse=True)
        ],
        width=_LEFT + _WIDTH + _RIGHT,
        height=floor + _BOTTOM,
        kind="points",
        links=True,
    )


def _mark(point: Point, x: float, y: float, texts: ScatterTexts) -> Markup:
    label = f"{texts.state(point.status)}, {texts.moment(point.at)}, {texts.span(point.seconds)}"
    kind = f"s-{point.status.value}"
    if point.status is RunStatus.SUCCEEDED:
        shape = element("circle", cx=x, cy=y, r=4, class_=kind)
    else:
        shape = element("rect", x=x - 4, y=y - 4, width=8, height=8, class_=kind)
    return element("a", element("title", label), shape, href=point.address, aria_label=label)
