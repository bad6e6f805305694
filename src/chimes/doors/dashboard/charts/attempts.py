"""Retries on a line: how far apart the attempts lie, in their real proportions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from markupsafe import Markup

from chimes.doors.dashboard.charts.drawing import Chart, element, picture, table

_LEFT, _WIDTH, _Y, _RADIUS = 12, 336, 26, 8
#: Nearer than this, a number would stand on the one before.
_APART = 17.0
#: A wait is named above its line where there is room for the words.
_ROOM = 44.0


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptWords:
    title: str
    description: str
    attempt: str
    when: str
    after: str
    moment: Callable[[datetime], str]
    span: Callable[[timedelta], str]


def attempts_line(moments: Sequence[datetime], words: AttemptWords) -> Chart:
    """Of at least two attempts, the first one first."""
    begin = moments[0]
    whole = max(moments[-1] - begin, timedelta(microseconds=1))
    places: list[float] = []
    for each in moments:
        x = _LEFT + _WIDTH * ((each - begin) / whole)
        places.append(max(x, places[-1] + _APART) if places else x)
    parts: list[Markup] = [
        element("line", x1=places[0], x2=places[-1], y1=_Y, y2=_Y, class_="rule")
    ]
    for (left, right), (before, after) in zip(pairwise(places), pairwise(moments), strict=True):
        if right - left >= _ROOM:
            text = words.span(after - before)
            parts.append(element("text", text, x=(left + right) / 2, y=_Y - 8, class_="middle"))
    for number, (x, at) in enumerate(zip(places, moments, strict=True), 1):
        label = f"{words.attempt} {number} · {words.moment(at)}"
        parts.append(element("circle", element("title", label), cx=x, cy=_Y, r=_RADIUS))
        parts.append(element("text", number, x=x, y=_Y + 4, class_="middle number"))
    rows = [
        (number, words.moment(at), words.span(at - begin)) for number, at in enumerate(moments, 1)
    ]
    return Chart(
        title=words.title,
        svg=picture(
            words.title,
            words.description,
            parts,
            width=max(places[-1], _LEFT + _WIDTH) + _LEFT,
            height=_Y + _RADIUS + 4,
            kind="small attempts",
        ),
        twin=lambda: table(words.title, (words.attempt, words.when, words.after), rows),
    )
