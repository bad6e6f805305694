"""A day at one glance, small: how much else fires in each hour, and when this one does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from chimes.doors.dashboard.charts.drawing import Chart, element, picture, table

_SLOT, _TOP, _HIGH, _FOOT = 15, 14, 34, 14
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
        high = max(2.0, _HIGH * each.others / most) if each.others else 0.0
        parts.append(
            element(
                "rect",
                element("title", label),
                x=x + 1, y=_TOP + _HIGH - high, width=_SLOT - 2, height=high, class_="others",
            )
        )  # fmt: skip
        if each.mine:
            parts.append(
                element(
                    "circle", element("title", label), cx=x + _SLOT / 2, cy=7, r=4, class_="mine"
                )
            )
        if place % _LABELLED == 0:
            parts.append(element("text", each.name, x=x, y=_TOP + _HIGH + _FOOT - 2))
    width = _SLOT * len(hours)
    parts.append(element("line", x1=0, x2=width, y1=_TOP + _HIGH, y2=_TOP + _HIGH, class_="rule"))
    return Chart(
        title=words.title,
        svg=picture(
            words.title,
            words.description,
            parts,
            width=width,
            height=_TOP + _HIGH + _FOOT,
            kind="small day-strip",
        ),
        twin=lambda: table(
            words.title,
            (words.hour, words.mine, words.others),
            [(each.name, each.mine, each.others) for each in hours],
        ),
    )
