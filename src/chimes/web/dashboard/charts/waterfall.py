"""Waterfall chart of a run (waits, attempts, steps, deliveries), and chart of its retries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from markupsafe import Markup

from chimes.model.run import RunStatus
from chimes.web.dashboard.charts.svg import (
    Chart,
    ChartTexts,
    chart,
    element,
    share_of,
    svg_image,
)

_NAMES, _TOP, _ROW, _HIGH = 170, 4, 24, 14
#: Share of the chart that the bars take; their lengths are labelled at the right.
_WIDTH, _RIGHT = 640, 80
#: Characters of a name that fit.
_LONGEST_NAME = 24


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
    #: Whether it has not ended; `end` is the current time.
    open: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class WaterfallTexts(ChartTexts):
    what: str
    start: str
    length: str
    moment: Callable[[datetime], str]
    span: Callable[[timedelta], str]


def waterfall(intervals: Sequence[Interval], texts: WaterfallTexts) -> Chart:
    """Intervals in the given order, scaled from the first start to the last end. The bars carry
    their times, so that a script lets those without an end grow."""
    height = _TOP * 2 + _ROW * max(1, len(intervals))
    bars: list[Markup] = []
    begin: datetime | None = None
    if intervals:
        begin = min(each.start for each in intervals)
        whole = max(max(each.end for each in intervals) - begin, timedelta(milliseconds=1))
        bars = [_bar(each, index, begin, whole, texts) for index, each in enumerate(intervals)]
    group = element(
        "g",
        *bars,
        data_begin=None if begin is None else _milliseconds(begin),
        data_wide=share_of(_WIDTH, _WIDTH + _RIGHT).rstrip("%"),
    )
    return chart(
        texts,
        [group],
        (texts.what, texts.start, texts.length),
        lambda: [
            (each.name, texts.moment(each.start), texts.span(each.end - each.start))
            for each in intervals
        ],
        width=_WIDTH + _RIGHT,
        height=height,
        kind="waterfall",
        links=any(each.address for each in intervals),
        fluid=True,
        names=svg_image(
            texts.what,
            texts.description,
            [_name(each, index) for index, each in enumerate(intervals)],
            width=_NAMES,
            height=height,
            kind="names",
        ),
    )


def _name(each: Interval, index: int) -> Markup:
    name = each.name
    shown = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
    return element(
        "text",
        shown,
        element("title", name),
        x=4 + 14 * each.depth,
        y=_TOP + index * _ROW + 16,
        class_="name",
    )


def _bar(
    each: Interval, index: int, begin: datetime, whole: timedelta, texts: WaterfallTexts
) -> Markup:
    y = _TOP + index * _ROW
    x = _WIDTH * ((each.start - begin) / whole)
    width = max(2.0, _WIDTH * ((each.end - each.start) / whole))
    length = texts.span(each.end - each.start)
    label = f"{each.name} · {length}"
    bar = element(
        "rect",
        element("title", label),
        x=share_of(x, _WIDTH + _RIGHT),
        y=y + (_ROW - _HIGH) / 2,
        width=share_of(width, _WIDTH + _RIGHT),
        height=_HIGH,
        rx=2,
        class_=f"s-{each.status.value}" if each.status is not None else "wait",
    )
    return element(
        "g",
        element("a", bar, href=each.address, aria_label=label) if each.address else bar,
        element(
            "text", length, x=share_of(min(x + width, _WIDTH), _WIDTH + _RIGHT), dx=6, y=y + 16
        ),
        data_start=_milliseconds(each.start),
        data_end=None if each.open else _milliseconds(each.end),
    )


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


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
