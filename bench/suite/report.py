"""Results of the rows, as a text table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median


@dataclass(frozen=True, kw_only=True, slots=True)
class Faults:
    """Counts of slots that ran more than once and of slots that did not run."""

    duplicates: int = 0
    missed: int = 0

    def __add__(self, other: Faults) -> Faults:
        return Faults(
            duplicates=self.duplicates + other.duplicates, missed=self.missed + other.missed
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line of the table. The goal applies to `value` or `ratio`; a reference has no goal."""

    row: str
    what: str
    unit: str
    samples: tuple[float, ...]
    #: The median of the samples, or a count.
    value: float
    goal: str = ""
    #: `value` relative to a reference, where the goal is a ratio.
    ratio: float | None = None
    met: bool | None = None
    how: str = ""
    #: Set on the line that counts slots.
    faults: Faults | None = None


@dataclass(slots=True)
class Report:
    machine: Mapping[str, object]
    lines: list[Line] = field(default_factory=list)
    #: Rows that ended with an error.
    failed: list[str] = field(default_factory=list)

    def add(self, lines: Sequence[Line]) -> None:
        self.lines.extend(lines)

    @property
    def missed_goals(self) -> list[Line]:
        return [line for line in self.lines if line.met is False]

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "machine": dict(self.machine),
            "lines": [asdict(line) for line in self.lines],
            "failed": self.failed,
        }
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def line(
    row: str,
    what: str,
    unit: str,
    samples: Sequence[float],
    *,
    goal: str = "",
    ratio: float | None = None,
    met: bool | None = None,
    how: str = "",
    faults: Faults | None = None,
) -> Line:
    return Line(
        row=row,
        what=what,
        unit=unit,
        samples=tuple(samples),
        value=median(samples),
        goal=goal,
        ratio=ratio,
        met=met,
        how=how,
        faults=faults,
    )


def faults_line(row: str, faults: Faults) -> Line:
    """The goal of every row that fires: no duplicate and no missed slot."""
    found = faults.duplicates + faults.missed
    return Line(
        row=row,
        what="duplicates + missed slots",
        unit="slots",
        samples=(),
        value=found,
        goal="0 and 0",
        met=found == 0,
        how=f"{faults.duplicates} duplicates, {faults.missed} missed, counted in the store",
        faults=faults,
    )


_HEAD = ("row", "what", "measured", "spread", "goal", "ratio", "", "how")


def table(lines: Sequence[Line]) -> str:
    rows = [_HEAD, *(_cells(each) for each in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD) - 1)]
    shown = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        shown.append("  ".join([*cells, row[-1]]).rstrip())
    shown.insert(1, "-" * (sum(widths) + 2 * len(widths) + 3))
    return "\n".join(shown)


def _cells(found: Line) -> tuple[str, ...]:
    spread = ""
    if len(found.samples) > 1:
        spread = f"{number(min(found.samples))}..{number(max(found.samples))}"
    met = "" if found.met is None else "met" if found.met else "NOT MET"
    return (
        found.row,
        found.what,
        f"{number(found.value)} {found.unit}",
        spread,
        found.goal,
        "" if found.ratio is None else f"{found.ratio:.2f}",
        met,
        found.how,
    )


def number(value: float) -> str:
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
