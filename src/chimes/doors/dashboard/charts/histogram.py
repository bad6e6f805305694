"""How many runs ended how, over time: stacked bars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from chimes.doors.dashboard.charts.drawing import WORST_FIRST, Chart, element, picture, table
from chimes.model.run import RunStatus

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
