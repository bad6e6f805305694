"""Scatter chart of runs over time: durations or lags, with median and p95."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil, log10
from math import floor as floor_of
from statistics import median

from markupsafe import Markup

from chimes.model.run import RunStatus
from chimes.web.dashboard.charts.svg import (
    Chart,
    ChartTexts,
    chart,
    element,
    empty_chart,
    share_of,
)

_WIDTH, _TOP, _HIGH, _BOTTOM = 860, 12, 150, 22
#: Shares of the width: labels of the levels, the points, and labels of the two lines.
_LEFT, _RIGHT = 0.08, 0.87
#: Height of a label.
_LINE = 13
#: Space above the highest point.
_HEADROOM = 1.08
#: Points above this multiple of the p95 are drawn at the upper edge, so that they do not flatten
#: all others.
_OUTLIER, _ABOVE_P95 = 2.0, 1.3
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_LEVELS = 4


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
    #: Formats a time for the axis.
    clock: Callable[[datetime], str] = str


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that is not exceeded by this share of the values."""
    ordered = sorted(values)
    return ordered[max(0, ceil(share * len(ordered)) - 1)]


def scatter_chart(
    points: Sequence[Point],
    texts: ScatterTexts,
    *,
    ticks: Sequence[datetime] = (),
    usual: float | None = None,
) -> Chart:
    """Each point links to its run; shape and colour show its status. `ticks` are the times with an
    axis label, `usual` is the value of the line in the middle (otherwise the median)."""
    heads = (texts.when, texts.value, texts.status)
    if not points:
        return empty_chart(texts.title, heads)
    values = [each.seconds for each in points]
    p95 = quantile(values, 0.95)
    middle = median(values) if usual is None else usual
    clipped = max(values) > _OUTLIER * p95 > 0
    top = max(p95 * _ABOVE_P95 if clipped else max(values) * _HEADROOM, middle * _HEADROOM) or 1.0
    first, last = min(each.at for each in points), max(each.at for each in points)
    whole = (last - first).total_seconds() or 1.0

    def place(at: datetime) -> str:
        share = (at - first).total_seconds() / whole if last > first else 0.5
        return share_of(_LEFT + 0.01 + (_RIGHT - _LEFT - 0.02) * share, 1)

    def level(seconds: float) -> float:
        return _TOP + _HIGH * (1 - min(seconds, top) / top)

    floor = _TOP + _HIGH
    left, right = share_of(_LEFT, 1), share_of(_RIGHT, 1)
    parts: list[Markup] = []
    for value in _levels(top):
        y = level(value)
        kind = "rule" if value else "axis"
        parts.append(element("line", x1=left, x2=right, y1=y, y2=y, class_=kind))
        text = texts.span(value)
        parts.append(element("text", text, x=left, dx=-6, y=y + 4, class_="end"))
    for tick in ticks:
        if first <= tick <= last:
            x = place(tick)
            parts.append(element("line", x1=x, x2=x, y1=_TOP, y2=floor, class_="rule"))
            parts.append(element("text", texts.clock(tick), x=x, y=floor + 16, class_="middle"))
    below: float | None = None
    for name, value in sorted([(texts.median, middle), (texts.p95, p95)], key=lambda each: each[1]):
        y = level(value)
        # Keeps the two labels apart.
        text_at = y + 4 if below is None else min(y + 4, below - _LINE)
        below = text_at
        label = f"{name} {texts.span(value)}"
        parts.append(
            element("line", element("title", label), x1=left, x2=right, y1=y, y2=y, class_="median")
        )
        parts.append(element("text", label, x=right, dx=6, y=text_at))
    parts.extend(
        _mark(each, place(each.at), level(each.seconds), texts, above=each.seconds > top)
        for each in points
    )
    return chart(
        texts,
        parts,
        heads,
        lambda: [
            (texts.moment(each.at), texts.span(each.seconds), texts.state(each.status))
            for each in sorted(points, key=lambda each: each.at, reverse=True)
        ],
        width=_WIDTH,
        height=floor + _BOTTOM,
        kind="points",
        links=True,
        fluid=True,
    )


def _levels(top: float) -> list[float]:
    """Round values from 0 to `top`, for horizontal lines: about `_LEVELS` of them."""
    step = next((float(each) for each in _STEPS if top / each <= _LEVELS), 0.0)
    if not step or top / step < 1:
        # Days, or fractions of a second.
        scale = 10.0 ** floor_of(log10(top / _LEVELS))
        step = next(each * scale for each in (1, 2, 5, 10) if top / (each * scale) <= _LEVELS)
    return [step * number for number in range(floor_of(top / step) + 1)]


def _mark(point: Point, x: str, y: float, texts: ScatterTexts, *, above: bool) -> Markup:
    """Successful runs are dots, others squares; a triangle means that the value is above the
    chart."""
    label = f"{texts.state(point.status)}, {texts.moment(point.at)}, {texts.span(point.seconds)}"
    kind = f"s-{point.status.value}"
    if above:
        arrow = element("path", d="M-5 8H5L0 -1Z", class_=kind)
        shape = element("svg", arrow, x=x, y=y, overflow="visible")
    elif point.status is RunStatus.SUCCEEDED:
        shape = element("circle", cx=x, cy=y, r=4, class_=kind)
    else:
        square = element("rect", x=-4, y=-4, width=8, height=8, class_=kind)
        shape = element("svg", square, x=x, y=y, overflow="visible")
    return element("a", element("title", label), shape, href=point.address, aria_label=label)
