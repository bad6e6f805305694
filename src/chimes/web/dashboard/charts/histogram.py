"""Histogram of run counts by status, and heat map of runs by day and hour."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from markupsafe import Markup

from chimes.model.run import RunStatus
from chimes.web.dashboard.charts.svg import (
    WORST_FIRST,
    Chart,
    ChartTexts,
    chart,
    element,
    escaped,
    safe,
    svg_image,
)

_LEFT, _WIDTH, _TOP, _HIGH, _BOTTOM = 44, 760, 10, 110, 20
#: Minimum height of a bar.
_MIN_HEIGHT = 2.0
#: Width of an axis label.
_LABEL_WIDTH = 34.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    start: datetime
    end: datetime
    counts: Mapping[RunStatus, int] = field(default_factory=dict)
    #: URL of the list of these runs.
    address: str | None = None

    @property
    def total(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class HistogramTexts(ChartTexts):
    when: str
    #: Label of a status, and of the total.
    state: Callable[[RunStatus], str]
    total: str
    #: Label of a bar.
    bar: Callable[[Bar], str]
    clock: Callable[[datetime], str]
    moment: Callable[[datetime], str]
    number: Callable[[float], str]


def histogram(bars: Sequence[Bar], texts: HistogramTexts) -> Chart:
    """Stacked bars with the worst status at the bottom."""
    maximum = max((bar.total for bar in bars), default=0) or 1
    step = _WIDTH / max(1, len(bars))
    floor = _TOP + _HIGH
    parts = [
        element("line", x1=_LEFT, x2=_LEFT + _WIDTH, y1=floor, y2=floor, class_="axis"),
        element("text", texts.number(maximum), x=_LEFT - 6, y=_TOP + 8, class_="end"),
        element("text", "0", x=_LEFT - 6, y=floor, class_="end"),
    ]
    used = [each for each in WORST_FIRST if any(bar.counts.get(each) for bar in bars)]
    every = max(1, len(bars) // 8)
    for index, bar in enumerate(bars):
        x, y = _LEFT + index * step, float(floor)
        pieces = [
            # The whole column is clickable.
            element("rect", element("title", texts.bar(bar)), x=x, y=_TOP, width=step,
                    height=_HIGH, fill="transparent")
        ]  # fmt: skip
        for status in used:
            count = bar.counts.get(status, 0)
            if not count:
                continue
            high = max(_MIN_HEIGHT, _HIGH * count / maximum)
            y -= high
            pieces.append(
                element("rect", x=x + step * 0.1, y=y, width=step * 0.8, height=high,
                        class_=f"s-{status.value}")
            )  # fmt: skip
        group = element("g", *pieces, data_from=bar.start.isoformat(), data_to=bar.end.isoformat())
        linked = bar.address and bar.total
        parts.append(
            element("a", group, href=bar.address, aria_label=texts.bar(bar)) if linked else group
        )
        if index % every == 0:
            # Labels at the right edge are right-aligned, so that they are not cut off.
            last = x > _LEFT + _WIDTH - _LABEL_WIDTH
            parts.append(
                element(
                    "text", texts.clock(bar.start), x=_LEFT + _WIDTH + 6 if last else x,
                    y=floor + 14, class_="end" if last else None,
                )
            )  # fmt: skip
    heads = (texts.when, *(texts.state(each) for each in used), texts.total)
    return chart(
        texts,
        parts,
        heads,
        lambda: [
            (texts.moment(bar.start), *(bar.counts.get(each, 0) for each in used), bar.total)
            for bar in bars
            if bar.total
        ],
        width=_LEFT + _WIDTH + 6,
        height=floor + _BOTTOM,
        kind="histogram",
        links=any(bar.address and bar.total for bar in bars),
    )


_CELL, _NAMES, _TOP_HEAT = 24, 76, 20


@dataclass(frozen=True, kw_only=True, slots=True)
class HeatCell:
    count: int = 0
    failed: int = 0
    address: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class HeatMapTexts(ChartTexts):
    #: Labels of the rows: days.
    rows: Sequence[str]
    day: str
    hour: str
    runs: str
    failed: str
    cell: Callable[[str, int, HeatCell], str]


def heat_map(cells: Sequence[Sequence[HeatCell]], texts: HeatMapTexts) -> Chart:
    """One row of 24 cells for each of `texts.rows`. The shade shows the number of runs; a corner,
    the share of failed runs."""
    maximum = max((cell.count for row in cells for cell in row), default=0)
    parts = [
        element("text", f"{hour:02d}", x=hour * _CELL + _CELL / 2, y=_TOP_HEAT - 6, class_="middle")
        for hour in range(0, 24, 3)
    ]
    for row, (name, hours) in enumerate(zip(texts.rows, cells, strict=True)):
        y = _TOP_HEAT + row * _CELL
        parts.extend(
            _cell(cell, texts.cell(name, hour, cell), hour * _CELL, y, maximum)
            for hour, cell in enumerate(hours)
        )
    names = [
        element(
            "text", name, x=_NAMES - 8, y=_TOP_HEAT + row * _CELL + _CELL / 2 + 4, class_="end name"
        )
        for row, name in enumerate(texts.rows)
    ]
    height = _TOP_HEAT + len(cells) * _CELL
    return chart(
        texts,
        parts,
        (texts.day, texts.hour, texts.runs, texts.failed),
        lambda: [
            (name, f"{hour:02d}:00", cell.count, cell.failed)
            for name, hours in zip(texts.rows, cells, strict=True)
            for hour, cell in enumerate(hours)
            if cell.count
        ],
        width=24 * _CELL,
        height=height,
        kind="heat",
        links=any(cell.address and cell.count for row in cells for cell in row),
        names=svg_image(
            texts.day, texts.description, names, width=_NAMES, height=height, kind="names"
        ),
    )


def _cell(cell: HeatCell, text: str, x: int, y: int, maximum: int) -> Markup:
    """Built from strings instead of elements, for speed: a page has hundreds."""
    label, side = escaped(text), _CELL - 2
    mark = (
        f'<rect x="{x}" y="{y}" width="{side}" height="{side}" rx="3"'
        f' class="h{shade(cell.count, maximum)}"><title>{label}</title></rect>'
    )
    if cell.failed:
        right, share = x + side, corner(cell)
        mark += f'<path d="M{right - share} {y}H{right}V{y + share}Z" class="corner"/>'
    if cell.address and cell.count:
        mark = f'<a href="{escaped(cell.address)}" aria-label="{label}">{mark}</a>'
    return safe(mark)


def corner(cell: HeatCell) -> int:
    """Side of the red corner: from a quarter of the cell to the whole cell."""
    least, whole = _CELL // 4, _CELL - 2
    return least + round((whole - least) * min(1.0, cell.failed / max(1, cell.count)))


def shade(count: int, maximum: int) -> int:
    """0 for no runs, then four steps relative to the fullest cell."""
    if not count:
        return 0
    return min(4, 1 + 4 * (count - 1) // max(1, maximum))
