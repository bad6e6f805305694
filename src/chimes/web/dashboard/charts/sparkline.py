"""Pictures that fit into a row: how the last runs ended, and how long they took."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from markupsafe import Markup

from chimes.model.run import RunStatus
from chimes.web.dashboard.charts.svg import Chart, element, picture, table, worst

MOST_POINTS = 50
MOST_CELLS = 30
_CELL, _GAP, _HIGH = 7, 2, 18


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """One mark of a strip: a run, or a bucket of several in which the worst wins."""

    status: RunStatus
    #: What to say of it: when, and the word of its state.
    label: str
    #: The same for the two cells of a row.
    when: str
    ended: str


def buckets(states: Sequence[RunStatus], most: int = MOST_CELLS) -> list[tuple[RunStatus, int]]:
    """Oldest first; where there are more than fit, each mark is the worst of its share."""
    if len(states) <= most:
        return [(each, 1) for each in states]
    edges = [len(states) * step // most for step in range(most + 1)]
    return [(worst(states[start:end]), end - start) for start, end in pairwise(edges)]


def result_strip(results: Sequence[Result], *, title: str, heads: tuple[str, str]) -> Chart:
    """Oldest at the left. Failures are full height, what did not run is half: shape, not only
    colour."""
    shown = results[-MOST_CELLS:]
    width = max(1, len(shown)) * (_CELL + _GAP)
    parts = []
    for index, result in enumerate(shown):
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
    description = ", ".join(result.label for result in shown[-5:])
    return Chart(
        title=title,
        svg=picture(title, description, parts, width=width, height=_HIGH, kind="strip"),
        twin=lambda: table(title, heads, [(each.when, each.ended) for each in reversed(shown)]),
    )


def _height(status: RunStatus) -> int:
    match status:
        case RunStatus.FAILED | RunStatus.TIMEOUT | RunStatus.UNKNOWN:
            return _HIGH
        case RunStatus.SUCCEEDED | RunStatus.RUNNING | RunStatus.QUEUED:
            return 12
        case _:
            return 7


def thinned(values: Sequence[float], most: int = MOST_POINTS) -> list[float]:
    """At most so many: each the median of its share, so that one outlier does not rule."""
    if len(values) <= most:
        return list(values)
    edges = [len(values) * step // most for step in range(most + 1)]
    return [median(values[start:end]) for start, end in pairwise(edges)]


def sparkline(
    seconds: Sequence[float],
    *,
    title: str,
    say_span: Callable[[float], str],
    heads: tuple[str, str],
    width: int = 96,
    height: int = 24,
) -> Chart:
    """Durations, oldest first, with the median as a dashed line and the last as a dot. The table
    counts them from the newest on."""
    points = thinned(seconds)

    def twin() -> Markup:
        return table(title, heads, enumerate(map(say_span, reversed(points)), 1))

    if not points:
        return Chart(title=title, svg=Markup(""), twin=twin)
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
    description = f"{say_span(middle)} · {say_span(seconds[-1])}"
    return Chart(
        title=title,
        svg=picture(title, description, parts, width=width, height=height, kind="spark"),
        twin=twin,
    )


# @@ A day at one glance, small: how much else fires in each hour, and when this one does.

_SLOT, _TOP, _STRIP_HIGH, _FOOT = 15, 14, 34, 14
_LABELLED = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Hour:
    #: `14:00`, by the clock that the caption names.
    name: str
    others: int
    mine: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DayStripWords:
    title: str
    description: str
    hour: str
    others: str
    mine: str


def day_strip(hours: Sequence[Hour], words: DayStripWords) -> Chart:
    """From now on, one slot for each hour; a dot where this one fires."""
    most = max((each.others for each in hours), default=0) or 1
    parts: list[Markup] = []
    for place, each in enumerate(hours):
        x = place * _SLOT
        label = f"{each.name} · {words.others}: {each.others} · {words.mine}: {each.mine}"
        high = max(2.0, _STRIP_HIGH * each.others / most) if each.others else 0.0
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
    return Chart(
        title=words.title,
        svg=picture(
            words.title,
            words.description,
            parts,
            width=width,
            height=_TOP + _STRIP_HIGH + _FOOT,
            kind="small day-strip",
        ),
        twin=lambda: table(
            words.title,
            (words.hour, words.mine, words.others),
            [(each.name, each.mine, each.others) for each in hours],
        ),
    )
