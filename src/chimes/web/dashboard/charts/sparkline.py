"""Small charts: result strip, duration sparkline, and fires by hour of a day."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from markupsafe import Markup

from chimes.model.run import RunStatus
from chimes.web.dashboard.charts.svg import (
    Chart,
    ChartTexts,
    chart,
    element,
    empty_chart,
    worst_status,
)

MAX_POINTS = 50
MAX_CELLS = 30
_CELL, _GAP, _HIGH = 7, 2, 18


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """One mark of a strip: a run, or a bucket of several in which the worst wins."""

    status: RunStatus
    #: Time and status, for the tooltip.
    label: str
    #: The same, for the two columns of the table.
    when: str
    ended: str


def buckets(states: Sequence[RunStatus], limit: int = MAX_CELLS) -> list[tuple[RunStatus, int]]:
    """Oldest first; with more than fit, each mark has the worst status of its share."""
    if len(states) <= limit:
        return [(each, 1) for each in states]
    edges = [len(states) * step // limit for step in range(limit + 1)]
    return [(worst_status(states[start:end]), end - start) for start, end in pairwise(edges)]


def result_strip(results: Sequence[Result], *, title: str, heads: tuple[str, str]) -> Chart:
    """Oldest at the left. Failures have full height, skipped and missed runs half, so that the
    shape tells the status as well as the colour."""
    shown = results[-MAX_CELLS:]
    # As wide as a full strip, with the newest result at the right, so that strips of a list align.
    width, empty = MAX_CELLS * (_CELL + _GAP), MAX_CELLS - len(shown)
    parts = [
        element(
            "path",
            d="".join(
                f"M{index * (_CELL + _GAP)} {_HIGH - 2}h{_CELL}v2h-{_CELL}z"
                for index in range(empty)
            ),
            class_="s-none",
        )
    ]
    for index, result in enumerate(shown, empty):
        high = _height(result.status)
        mark = element(
            "rect",
            element("title", result.label),
            x=index * (_CELL + _GAP),
            y=_HIGH - high,
            width=_CELL,
            height=high,
            rx=1.5,
            class_=f"s-{result.status.value}",
        )
        parts.append(mark)
    return chart(
        ChartTexts(title=title, description=", ".join(result.label for result in shown[-5:])),
        parts,
        heads,
        lambda: [(each.when, each.ended) for each in reversed(shown)],
        width=width,
        height=_HIGH,
        kind="strip",
        stretched=True,
    )


def _height(status: RunStatus) -> int:
    match status:
        case RunStatus.FAILED | RunStatus.TIMEOUT | RunStatus.UNKNOWN:
            return _HIGH
        case RunStatus.SUCCEEDED | RunStatus.RUNNING | RunStatus.QUEUED:
            return 12
        case _:
            return 7


def downsampled(values: Sequence[float], limit: int = MAX_POINTS) -> list[float]:
    """At limit this many values, each the median of its share."""
    if len(values) <= limit:
        return list(values)
    edges = [len(values) * step // limit for step in range(limit + 1)]
    return [median(values[start:end]) for start, end in pairwise(edges)]


def sparkline(
    seconds: Sequence[float],
    *,
    title: str,
    format_span: Callable[[float], str],
    heads: tuple[str, str],
    width: int = 96,
    height: int = 24,
) -> Chart:
    """Durations, oldest first, with the median as a dashed line and the last as a dot. The table
    starts with the newest."""
    points = downsampled(seconds)
    if not points:
        return empty_chart(title, heads)
    middle = median(seconds)
    top = max(points) or 1.0
    step = (width - 6) / max(1, len(points) - 1)
    places = [
        (3 + index * step, height - 3 - (height - 6) * value / top)
        for index, value in enumerate(points)
    ]
    level = height - 3 - (height - 6) * middle / top
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts = [
        element("line", x1=0, x2=width, y1=level, y2=level, class_="median"),
        element("polyline", points=line, class_="line"),
        element("circle", cx=places[-1][0], cy=places[-1][1], r=2.5, class_="last"),
    ]
    description = f"{format_span(middle)} · {format_span(seconds[-1])}"
    return chart(
        ChartTexts(title=title, description=description),
        parts,
        heads,
        lambda: enumerate(map(format_span, reversed(points)), 1),
        width=width,
        height=height,
        kind="spark",
    )


_SLOT, _TOP, _STRIP_HIGH, _FOOT = 15, 14, 34, 14
_LABELLED = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Hour:
    #: Such as `14:00`.
    name: str
    others: int
    mine: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DayStripTexts(ChartTexts):
    hour: str
    others: str
    mine: str


def day_strip(hours: Sequence[Hour], texts: DayStripTexts) -> Chart:
    """Bars for the fires of other schedules by hour, and dots for those of this one."""
    maximum = max((each.others for each in hours), default=0) or 1
    parts: list[Markup] = []
    for place, each in enumerate(hours):
        x = place * _SLOT
        label = f"{each.name} · {texts.others}: {each.others} · {texts.mine}: {each.mine}"
        high = max(2.0, _STRIP_HIGH * each.others / maximum) if each.others else 0.0
        parts.append(
            element(
                "rect",
                element("title", label),
                x=x + 1, y=_TOP + _STRIP_HIGH - high, width=_SLOT - 2, height=high, class_="others",
            )
        )  # fmt: skip
        if each.mine:
            parts.append(
                element(
                    "circle", element("title", label), cx=x + _SLOT / 2, cy=7, r=4, class_="mine"
                )
            )
        if place % _LABELLED == 0:
            parts.append(element("text", each.name, x=x, y=_TOP + _STRIP_HIGH + _FOOT - 2))
    width = _SLOT * len(hours)
    parts.append(
        element(
            "line",
            x1=0,
            x2=width,
            y1=_TOP + _STRIP_HIGH,
            y2=_TOP + _STRIP_HIGH,
            class_="rule",
        )
    )
    return chart(
        texts,
        parts,
        (texts.hour, texts.mine, texts.others),
        lambda: [(each.name, each.mine, each.others) for each in hours],
        width=width,
        height=_TOP + _STRIP_HIGH + _FOOT,
        kind="small day-strip",
    )
