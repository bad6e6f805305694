"""Chart of a simulation: what starts, waits, is skipped and is missed over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from chimes.web.dashboard.charts.svg import Chart, ChartTexts, chart, element

_WIDTH, _HIGH, _LOW, _TOP, _FOOT, _LEFT = 960, 120, 60, 14, 18, 40
_LABELS = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadPart:
    name: str
    started: int
    late: int
    skipped: int
    missed: int
    concurrent: int
    lateness: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadTexts(ChartTexts):
    when: str
    started: str
    late: str
    skipped: str
    missed: str
    concurrent: str
    lateness: str


def load_chart(parts: Sequence[LoadPart], texts: LoadTexts) -> Chart:
    """Stacked bars of the slots above, the most runs at once below."""
    step = (_WIDTH - _LEFT) / max(1, len(parts))
    highest = max((each.started + each.skipped + each.missed for each in parts), default=0) or 1
    busiest = max((each.concurrent for each in parts), default=0) or 1
    base = _TOP + _HIGH
    floor = base + 24 + _LOW
    marks: list[Markup] = [
        element("text", str(highest), x=_LEFT - 4, y=_TOP + 8, text_anchor="end"),
        element("text", "0", x=_LEFT - 4, y=base, text_anchor="end"),
        element("text", str(busiest), x=_LEFT - 4, y=base + 32, text_anchor="end"),
        element("text", texts.concurrent, x=_LEFT, y=base + 18),
        element("line", x1=_LEFT, x2=_WIDTH, y1=base, y2=base, class_="rule"),
        element("line", x1=_LEFT, x2=_WIDTH, y1=floor, y2=floor, class_="rule"),
    ]
    for place, each in enumerate(parts):
        x, bottom = _LEFT + place * step, float(base)
        title = (
            f"{each.name} · {texts.started}: {each.started} · {texts.late}: {each.late} · "
            f"{texts.skipped}: {each.skipped} · {texts.missed}: {each.missed} · "
            f"{texts.concurrent}: {each.concurrent} · {texts.lateness}: {each.lateness}"
        )
        for number, status in (
            (each.started - each.late, "succeeded"),
            (each.late, "running"),
            (each.skipped, "skipped"),
            (each.missed, "missed"),
        ):
            if number:
                high = max(1.0, _HIGH * number / highest)
                bottom -= high
                marks.append(
                    element(
                        "rect",
                        element("title", title),
                        x=x,
                        y=bottom,
                        width=max(1.0, step - 0.5),
                        height=high,
                        class_=f"s-{status}",
                    )
                )
        if each.concurrent:
            high = max(1.0, _LOW * each.concurrent / busiest)
            marks.append(
                element(
                    "rect",
                    element("title", title),
                    x=x,
                    y=floor - high,
                    width=max(1.0, step - 0.5),
                    height=high,
                    class_="others",
                )
            )
        if place % max(1, len(parts) // _LABELS) == 0:
            marks.append(element("text", each.name, x=x, y=floor + _FOOT - 4))
    return chart(
        texts,
        marks,
        (
            *(texts.when, texts.started, texts.late, texts.skipped),
            *(texts.missed, texts.concurrent, texts.lateness),
        ),
        lambda: [
            (
                *(each.name, each.started, each.late, each.skipped),
                *(each.missed, each.concurrent, each.lateness),
            )
            for each in parts
            if each.started or each.skipped or each.missed or each.concurrent
        ],
        width=_WIDTH,
        height=floor + _FOOT,
        kind="load day-strip",
    )
