"""Runs as points over time: how long they took, or how late they began (UX A.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from statistics import median

from markupsafe import Markup

from chimes.model.run import RunStatus
from chimes.web.dashboard.charts.svg import Chart, element, picture, table

_LEFT, _WIDTH, _TOP, _HIGH, _BOTTOM = 84, 680, 10, 150, 22
#: For the words of the two lines.
_RIGHT, _LINE = 130, 13
#: Above the highest point, so that it is not cut.
_ROOM = 1.08


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    at: datetime
    seconds: float
    status: RunStatus
    address: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PointWords:
    title: str
    description: str
    when: str
    value: str
    status: str
    #: A word for the line and its value.
    median: str
    p95: str
    span: Callable[[float], str]
    state: Callable[[RunStatus], str]
    #: With its zone.
    moment: Callable[[datetime], str]


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, ceil(share * len(ordered)) - 1)]


def points_chart(points: Sequence[Point], words: PointWords) -> Chart:
    """Each a link to its run; the shape says how it ended as well as the colour does."""

    def twin() -> Markup:
        rows = [
            (words.moment(each.at), words.span(each.seconds), words.state(each.status))
            for each in sorted(points, key=lambda each: each.at, reverse=True)
        ]
        return table(words.title, (words.when, words.value, words.status), rows)

    if not points:
        return Chart(title=words.title, svg=Markup(""), twin=twin)
    values = [each.seconds for each in points]
    top = max(values) * _ROOM or 1.0
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
        element("text", words.span(0.0), x=_LEFT - 6, y=floor, class_="end"),
        element("text", words.span(max(values)), x=_LEFT - 6, y=level(max(values)) + 8,
                class_="end"),
        element("text", words.moment(first), x=_LEFT, y=floor + 16),
        element("text", words.moment(last), x=_LEFT + _WIDTH, y=floor + 16, class_="end"),
    ]  # fmt: skip
    below: float | None = None
    for name, value in ((words.median, median(values)), (words.p95, quantile(values, 0.95))):
        y = level(value)
        # The words of one line never stand on those of the other.
        text_at = y + 4 if below is None else min(y + 4, below - _LINE)
        below = text_at
        title = element("title", f"{name}: {words.span(value)}")
        parts.append(
            element("line", title, x1=_LEFT, x2=_LEFT + _WIDTH, y1=y, y2=y, class_="median")
        )
        label = f"{name} {words.span(value)}"
        parts.append(element("text", label, x=_LEFT + _WIDTH + 4, y=text_at))
    parts.extend(_mark(each, place(each.at), level(each.seconds), words) for each in points)
    return Chart(
        title=words.title,
        svg=picture(
            words.title,
            words.description,
            parts,
            width=_LEFT + _WIDTH + _RIGHT,
            height=floor + _BOTTOM,
            kind="points",
            links=True,
        ),
        twin=twin,
    )


def _mark(point: Point, x: float, y: float, words: PointWords) -> Markup:
    label = f"{words.state(point.status)}, {words.moment(point.at)}, {words.span(point.seconds)}"
    kind = f"s-{point.status.value}"
    if point.status is RunStatus.SUCCEEDED:
        shape = element("circle", cx=x, cy=y, r=4, class_=kind)
    else:
        shape = element("rect", x=x - 4, y=y - 4, width=8, height=8, class_=kind)
    return element("a", element("title", label), shape, href=point.address, aria_label=label)
