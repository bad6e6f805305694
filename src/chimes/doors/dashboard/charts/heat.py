"""Days by twenty-four hours: how much runs when, and where it fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from chimes.doors.dashboard.charts.drawing import Chart, element, picture, safe, table, written

_CELL, _NAMES, _TOP = 24, 76, 20


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
        element("text", f"{hour:02d}", x=hour * _CELL + _CELL / 2, y=_TOP - 6, class_="middle")
        for hour in range(0, 24, 3)
    ]
    for row, (name, hours) in enumerate(zip(words.rows, cells, strict=True)):
        y = _TOP + row * _CELL
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
        element("text", name, x=_NAMES - 8, y=_TOP + row * _CELL + _CELL / 2 + 4, class_="end name")
        for row, name in enumerate(words.rows)
    ]
    height = _TOP + len(cells) * _CELL
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
