"""How many runs ended how, over time: stacked bars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from markupsafe import Markup

from chimes.model.run import RunStatus
from chimes.web.dashboard.charts.svg import (
    WORST_FIRST,
    Chart,
    element,
    picture,
    safe,
    table,
    written,
)

_LEFT, _WIDTH, _TOP, _HIGH, _BOTTOM = 44, 760, 10, 110, 20
#: Of one run among thousands: still to be seen.
_LEAST = 2.0
#: Room for a word of the axis.
_WORD = 34.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    start: datetime
    end: datetime
    counts: Mapping[RunStatus, int] = field(default_factory=dict)
    #: The list of just these.
    address: str | None = None

    @property
    def total(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class HistogramWords:
    title: str
    description: str
    when: str
    #: The word of a state, and of all.
    state: Callable[[RunStatus], str]
    total: str
    #: What a bar says.
    bar: Callable[[Bar], str]
    clock: Callable[[datetime], str]
    moment: Callable[[datetime], str]
    number: Callable[[float], str]


def histogram(bars: Sequence[Bar], words: HistogramWords) -> Chart:
    """Worst at the bottom, where it is seen first."""
    most = max((bar.total for bar in bars), default=0) or 1
    step = _WIDTH / max(1, len(bars))
    floor = _TOP + _HIGH
    parts = [
        element("line", x1=_LEFT, x2=_LEFT + _WIDTH, y1=floor, y2=floor, class_="axis"),
        element("text", words.number(most), x=_LEFT - 6, y=_TOP + 8, class_="end"),
        element("text", "0", x=_LEFT - 6, y=floor, class_="end"),
    ]
    used = [each for each in WORST_FIRST if any(bar.counts.get(each) for bar in bars)]
    every = max(1, len(bars) // 8)
    for index, bar in enumerate(bars):
        x, y = _LEFT + index * step, float(floor)
        pieces = [
            # All of the column can be pressed, however low the bar is.
            element("rect", element("title", words.bar(bar)), x=x, y=_TOP, width=step,
                    height=_HIGH, fill="transparent")
        ]  # fmt: skip
        for status in used:
            count = bar.counts.get(status, 0)
            if not count:
                continue
            high = max(_LEAST, _HIGH * count / most)
            y -= high
            pieces.append(
                element("rect", x=x + step * 0.1, y=y, width=step * 0.8, height=high,
                        class_=f"s-{status.value}")
            )  # fmt: skip
        group = element("g", *pieces, data_from=bar.start.isoformat(), data_to=bar.end.isoformat())
        linked = bar.address and bar.total
        parts.append(
            element("a", group, href=bar.address, aria_label=words.bar(bar)) if linked else group
        )
        if index % every == 0:
            # The last ones end at the edge instead of being cut there.
            last = x > _LEFT + _WIDTH - _WORD
            parts.append(
                element(
                    "text", words.clock(bar.start), x=_LEFT + _WIDTH + 6 if last else x,
                    y=floor + 14, class_="end" if last else None,
                )
            )  # fmt: skip
    heads = (words.when, *(words.state(each) for each in used), words.total)
    rows = [
        (words.moment(bar.start), *(bar.counts.get(each, 0) for each in used), bar.total)
        for bar in bars
        if bar.total
    ]
    return Chart(
        title=words.title,
        svg=picture(
            words.title,
            words.description,
            parts,
            width=_LEFT + _WIDTH + 6,
            height=floor + _BOTTOM,
            kind="histogram",
            links=any(bar.address and bar.total for bar in bars),
        ),
        twin=lambda: table(words.title, heads, rows),
    )


# @@ Days by twenty-four hours: how much runs when, and where it fails.

_CELL, _NAMES, _TOP_HEAT = 24, 76, 20


@dataclass(frozen=True, kw_only=True, slots=True)
class HeatCell:
    count: int = 0
    failed: int = 0
    address: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class HeatWords:
    """All in the reader's language."""

    title: str
    description: str
    #: Of the rows: weekdays, or days.
    rows: Sequence[str]
    day: str
    hour: str
    runs: str
    failed: str
    cell: Callable[[str, int, HeatCell], str]


def heat_map(cells: Sequence[Sequence[HeatCell]], words: HeatWords) -> Chart:
    """One row of twenty-four cells for each of `words.rows`. A cell is darker the more runs it
    has; a corner says that some of them failed, the larger the greater their share."""
    most = max((cell.count for row in cells for cell in row), default=0)
    parts = [
        element("text", f"{hour:02d}", x=hour * _CELL + _CELL / 2, y=_TOP_HEAT - 6, class_="middle")
        for hour in range(0, 24, 3)
    ]
    for row, (name, hours) in enumerate(zip(words.rows, cells, strict=True)):
        y = _TOP_HEAT + row * _CELL
        parts.extend(
            _cell(cell, words.cell(name, hour, cell), hour * _CELL, y, most)
            for hour, cell in enumerate(hours)
        )
    rows = [
        (name, f"{hour:02d}:00", cell.count, cell.failed)
        for name, hours in zip(words.rows, cells, strict=True)
        for hour, cell in enumerate(hours)
        if cell.count
    ]
    names = [
        element(
            "text", name, x=_NAMES - 8, y=_TOP_HEAT + row * _CELL + _CELL / 2 + 4, class_="end name"
        )
        for row, name in enumerate(words.rows)
    ]
    height = _TOP_HEAT + len(cells) * _CELL
    return Chart(
        title=words.title,
        svg=picture(
            words.title,
            words.description,
            parts,
            width=24 * _CELL,
            height=height,
            kind="heat",
            links=any(cell.address and cell.count for row in cells for cell in row),
        ),
        names=picture(
            words.day, words.description, names, width=_NAMES, height=height, kind="names"
        ),
        twin=lambda: table(words.title, (words.day, words.hour, words.runs, words.failed), rows),
    )


def _cell(cell: HeatCell, text: str, x: int, y: int, most: int) -> Markup:
    """Written out, and not of elements: there are hundreds on a page."""
    label, side = written(text), _CELL - 2
    mark = (
        f'<rect x="{x}" y="{y}" width="{side}" height="{side}" rx="3"'
        f' class="h{shade(cell.count, most)}"><title>{label}</title></rect>'
    )
    if cell.failed:
        right, share = x + side, corner(cell)
        mark += f'<path d="M{right - share} {y}H{right}V{y + share}Z" class="corner"/>'
    if cell.address and cell.count:
        mark = f'<a href="{written(cell.address)}" aria-label="{label}">{mark}</a>'
    return safe(mark)


def corner(cell: HeatCell) -> int:
    """The side of the mark: from a quarter of the cell to the whole of it."""
    least, whole = _CELL // 4, _CELL - 2
    return least + round((whole - least) * min(1.0, cell.failed / max(1, cell.count)))


def shade(count: int, most: int) -> int:
    """0 for nothing, then four steps by share of the fullest cell."""
    if not count:
        return 0
    return min(4, 1 + 4 * (count - 1) // max(1, most))
