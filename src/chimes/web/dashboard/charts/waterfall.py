"""Waterfall chart of a run (waits, attempts, steps, deliveries), and chart of its retries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from markupsafe import Markup

from chimes.model.run import RunStatus
from chimes.web.dashboard.charts.svg import Chart, ChartTexts, chart, element

_LEFT, _WIDTH, _TOP, _ROW, _HIGH = 210, 640, 6, 26, 14
_RIGHT = 90


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    name: str
    start: datetime
    end: datetime
    #: None: waiting.
    status: RunStatus | None = None
    #: Indentation of the name: steps of a flow are nested.
    depth: int = 0
    address: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WaterfallTexts(ChartTexts):
    what: str
    start: str
    length: str
    moment: Callable[[datetime], str]
    span: Callable[[timedelta], str]


def waterfall(intervals: Sequence[Interval], texts: WaterfallTexts) -> Chart:
    """Intervals in the given order, scaled from the first start to the last end."""
    parts: list[Markup] = []
    if intervals:
        begin = min(each.start for each in intervals)
        whole = max(max(each.end for each in intervals) - begin, timedelta(milliseconds=1))
        for index, each in enumerate(intervals):
            parts.extend(_row(each, index, begin, whole, texts))
    return chart(
        texts,
        parts,
        (texts.what, texts.start, texts.length),
        lambda: [
            (each.name, texts.moment(each.start), texts.span(each.end - each.start))
            for each in intervals
        ],
        width=_LEFT + _WIDTH + _RIGHT,
        height=_TOP * 2 + _ROW * max(1, len(intervals)),
        kind="waterfall",
        links=any(each.address for each in intervals),
    )


def _row(
    each: Interval, index: int, begin: datetime, whole: timedelta, texts: WaterfallTexts
) -> list[Markup]:
    y = _TOP + index * _ROW
    x = _LEFT + _WIDTH * ((each.start - begin) / whole)
    width = max(2.0, _WIDTH * ((each.end - each.start) / whole))
    length = texts.span(each.end - each.start)
    label = f"{each.name} · {length}"
    bar = element(
        "rect",
        element("title", label),
        x=x,
        y=y + (_ROW - _HIGH) / 2,
        width=width,
        height=_HIGH,
        rx=2,
        class_=f"s-{each.status.value}" if each.status is not None else "wait",
    )
    shown = each.name if len(each.name) <= 26 else f"{each.name[:25]}…"
    return [
        element(
            "text", shown, element("title", each.name), x=8 + 14 * each.depth, y=y + 17,
            class_="name",
        ),
        element("a", bar, href=each.address, aria_label=label) if each.address else bar,
        element("text", length, x=min(x + width + 6, _LEFT + _WIDTH + 4), y=y + 17),
    ]  # fmt: skip


_LEFT_ATTEMPTS, _WIDTH_ATTEMPTS, _Y, _RADIUS = 12, 336, 26, 8
#: Minimum distance of two attempts.
_MIN_GAP = 17.0
#: Minimum width of a wait to be labelled.
_LABEL_WIDTH = 44.0


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptTexts(ChartTexts):
    attempt: str
    when: str
    after: str
    moment: Callable[[datetime], str]
    span: Callable[[timedelta], str]


def attempts_line(moments: Sequence[datetime], texts: AttemptTexts) -> Chart:
    """Start times of at least two attempts, to scale."""
    begin = moments[0]
    whole = max(moments[-1] - begin, timedelta(microseconds=1))
    places: list[float] = []
    for each in moments:
        x = _LEFT_ATTEMPTS + _WIDTH_ATTEMPTS * ((each - begin) / whole)
        places.append(max(x, places[-1] + _MIN_GAP) if places else x)
    parts: list[Markup] = [
        element("line", x1=places[0], x2=places[-1], y1=_Y, y2=_Y, class_="rule")
    ]
    for (left, right), (before, after) in zip(pairwise(places), pairwise(moments), strict=True):
        if right - left >= _LABEL_WIDTH:
            text = texts.span(after - before)
            parts.append(element("text", text, x=(left + right) / 2, y=_Y - 8, class_="middle"))
    for number, (x, at) in enumerate(zip(places, moments, strict=True), 1):
        label = f"{texts.attempt} {number} · {texts.moment(at)}"
        parts.append(element("circle", element("title", label), cx=x, cy=_Y, r=_RADIUS))
        parts.append(element("text", number, x=x, y=_Y + 4, class_="middle number"))
    return chart(
        texts,
        parts,
        (texts.attempt, texts.when, texts.after),
        lambda: [
            (number, texts.moment(at), texts.span(at - begin))
            for number, at in enumerate(moments, 1)
        ],
        width=max(places[-1], _LEFT_ATTEMPTS + _WIDTH_ATTEMPTS) + _LEFT_ATTEMPTS,
        height=_Y + _RADIUS + 4,
        kind="small attempts",
    )
