"""What a run did when: waiting, attempts, pauses between them, steps, deliveries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from markupsafe import Markup

from chimes.doors.dashboard.charts.drawing import Chart, element, picture, table
from chimes.model.run import RunStatus

_LEFT, _WIDTH, _TOP, _ROW, _HIGH = 210, 640, 6, 26, 14
_RIGHT = 90


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    name: str
    start: datetime
    end: datetime
    #: None: waiting, or between two attempts.
    status: RunStatus | None = None
    #: How far in its name stands: a step of a flow within it.
    depth: int = 0
    address: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WaterfallWords:
    title: str
    description: str
    what: str
    start: str
    length: str
    moment: Callable[[datetime], str]
    span: Callable[[timedelta], str]


def waterfall(stretches: Sequence[Stretch], words: WaterfallWords) -> Chart:
    """In the order given. The scale is from the first start to the last end."""
    parts: list[Markup] = []
    if stretches:
        begin = min(each.start for each in stretches)
        whole = max(max(each.end for each in stretches) - begin, timedelta(milliseconds=1))
        for index, each in enumerate(stretches):
            parts.extend(_row(each, index, begin, whole, words))
    rows = [
        (each.name, words.moment(each.start), words.span(each.end - each.start))
        for each in stretches
    ]
    return Chart(
        title=words.title,
        svg=picture(
            words.title,
            words.description,
            parts,
            width=_LEFT + _WIDTH + _RIGHT,
            height=_TOP * 2 + _ROW * max(1, len(stretches)),
            kind="waterfall",
            links=any(each.address for each in stretches),
        ),
        twin=lambda: table(words.title, (words.what, words.start, words.length), rows),
    )


def _row(
    each: Stretch, index: int, begin: datetime, whole: timedelta, words: WaterfallWords
) -> list[Markup]:
    y = _TOP + index * _ROW
    x = _LEFT + _WIDTH * ((each.start - begin) / whole)
    width = max(2.0, _WIDTH * ((each.end - each.start) / whole))
    length = words.span(each.end - each.start)
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
