"""Charts of runs over time.

Timeline: a lane per schedule or label, a mark per fire, and overlaps between lanes. Histogram of
run counts by status. Heat map of runs by day and hour.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

from markupsafe import Markup

from chimes.model.insights import Result
from chimes.model.run import RunStatus
from chimes.web.dashboard.charts.svg import (
    STATUS_SYMBOLS,
    WORST_FIRST,
    Chart,
    ChartTexts,
    chart,
    element,
    escaped,
    format_number,
    safe,
    share_of,
    svg_image,
    worst_status,
)

#: Width of the area with the marks.
WIDTH = 780
#: Shorter fires are drawn as a dot.
DOT_BELOW = timedelta(minutes=1)
#: Marks with smaller gaps are merged into one with a number.
_DOT_GAP, _BAR_GAP = 10.0, 2.0
#: Maximum width of a merged mark.
_MAX_CLUSTER_WIDTH = 32.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Fire:
    at: datetime
    #: Actual or expected duration; zero if unknown.
    length: timedelta = timedelta(0)
    #: None: upcoming.
    status: RunStatus | None = None
    address: str | None = None
    #: Name of the schedule, in lanes with several schedules.
    name: str = ""


def past_fire(result: Result) -> Fire:
    return Fire(
        at=result.planned_at,
        length=result.duration or timedelta(0),
        status=result.status,
        address=f"/ui/runs/{result.run_id}",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Lane:
    name: str
    fires: Sequence[Fire]
    address: str | None = None
    #: Whether further fires follow the last one.
    more: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlap:
    """A time in which runs of several lanes overlap, or are expected to."""

    start: datetime
    end: datetime
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    fires: tuple[Fire, ...]
    x: float
    width: float

    @property
    def overlaps(self) -> bool:
        """Whether a run is expected to last until the next one starts."""
        ends = ((first.at + first.length, second.at) for first, second in pairwise(self.fires))
        return any(end > start for end, start in ends)


def clusters(fires: Sequence[Fire], start: datetime, end: datetime) -> list[Cluster]:
    """Marks of one lane from left to right; close fires are merged. Past and upcoming fires are not
    merged, so that a failure does not colour upcoming fires."""
    whole = end - start
    found: list[Cluster] = []
    for fire in sorted(fires, key=lambda each: each.at):
        if not start <= fire.at < end:
            continue
        x = WIDTH * ((fire.at - start) / whole)
        width = WIDTH * (fire.length / whole) if fire.length >= DOT_BELOW else 0.0
        width = min(width, WIDTH - x)
        before = found[-1] if found else None
        alike = before is not None and (before.fires[-1].status is None) == (fire.status is None)
        if before is not None and alike and _touch(before, x, width):
            joined = max(before.x + before.width, x + width) - before.x
            found[-1] = Cluster(fires=(*before.fires, fire), x=before.x, width=joined)
        else:
            found.append(Cluster(fires=(fire,), x=x, width=width))
    return found


def _touch(before: Cluster, x: float, width: float) -> bool:
    apart = _BAR_GAP if before.width and width else _DOT_GAP
    over = x - (before.x + before.width)
    return over < 0 or (over < apart and x - before.x < _MAX_CLUSTER_WIDTH)


def overlaps_of(lanes: Sequence[Lane], start: datetime, end: datetime) -> list[Overlap]:
    """From left to right; ignores fires that are drawn as dots."""
    edges: list[tuple[datetime, int, int]] = []
    for place, lane in enumerate(lanes):
        for fire in lane.fires:
            first, last = max(fire.at, start), min(fire.at + fire.length, end)
            if fire.length >= DOT_BELOW and first < last:
                edges += [(first, 1, place), (last, -1, place)]
    active: Counter[int] = Counter()
    found: list[Overlap] = []
    begun: datetime | None = None
    seen: set[int] = set()
    # Ends sort before starts: a run that starts when another ends does not overlap it.
    for at, step, place in sorted(edges, key=lambda edge: edge[:2]):
        active[place] += step
        running = {each for each, count in active.items() if count > 0}
        if begun is not None and len(running) < 2:
            names = tuple(lanes[each].name for each in sorted(seen))
            found.append(Overlap(start=begun, end=at, names=names))
            begun, seen = None, set()
        elif len(running) > 1:
            begun = begun or at
            seen |= running
    return found


_LEFT, _NAMES, _TOP, _LANE, _HIGH = 8, 150, 24, 30, 14
#: Width of the whole chart, without the names, for which the marks are laid out. A wider container
#: stretches it.
_WHOLE = _LEFT + WIDTH + 10
#: Radius of a dot with a status symbol.
_SYMBOL_RADIUS = 6.5
_WITHOUT_SYMBOL = (None, RunStatus.SUCCEEDED, RunStatus.RUNNING, RunStatus.QUEUED)
#: Wider marks contain their number.
_NUMBER_WIDTH = 24.0
#: Half the width of a character of an axis label.
_HALF_CHARACTER = 3.4


def first_address(fires: Sequence[Fire]) -> str | None:
    return fires[0].address


@dataclass(frozen=True, kw_only=True, slots=True)
class TimelineTexts(ChartTexts):
    lane: str
    when: str
    status: str
    now: str
    #: Label of a clock change.
    clock_change: str
    #: Label of a mark, from the lane's name and the fires.
    mark: Callable[[str, Sequence[Fire]], str]
    #: Formats a time for the axis.
    clock: Callable[[datetime], str]
    #: Formats a time for the table, with the zone.
    moment: Callable[[datetime], str]
    #: Label of a status; None: planned.
    state: Callable[[RunStatus | None], str]
    #: Column headers of the schedule, in lanes of several, and of overlapping runs.
    name: str = ""
    overlaps: str = ""
    #: Label of an overlap.
    overlap: Callable[[Overlap], str] = str
    #: URL of a mark.
    address: Callable[[Sequence[Fire]], str | None] = first_address


def timeline(
    lanes: Sequence[Lane],
    *,
    start: datetime,
    end: datetime,
    now: datetime,
    ticks: Sequence[datetime],
    clock_changes: Sequence[datetime] = (),
    texts: TimelineTexts,
) -> Chart:
    """`ticks` are the times with an axis label."""
    height = _TOP + _LANE * max(1, len(lanes)) + 6

    def place(moment: datetime) -> float:
        return _LEFT + WIDTH * ((moment - start) / (end - start))

    def rule(x: float, kind: str, *content: Markup) -> Markup:
        at = _across(x)
        return element("line", *content, x1=at, x2=at, y1=_TOP - 4, y2=height, class_=kind)

    parts: list[Markup] = [_background(index, "100%") for index in range(len(lanes))]
    overlaps = overlaps_of(lanes, start, end)
    for overlap in overlaps:
        x = place(overlap.start)
        parts.append(
            element(
                "rect",
                element("title", texts.overlap(overlap)),
                x=_across(x), y=_TOP, width=_across(max(2.0, place(overlap.end) - x)),
                height=height - _TOP,
                class_="together",
            )
        )  # fmt: skip
    for tick in ticks:
        x = place(tick)
        parts.append(rule(x, "rule"))
        parts.append(_tick(texts.clock(tick), x))
    for index, lane in enumerate(lanes):
        parts.extend(_lane(lane, index, start=start, end=end, now=now, texts=texts))
    for clock_change in clock_changes:
        if start <= clock_change < end:
            x = place(clock_change)
            parts.append(rule(x, "dst", element("title", texts.clock_change)))
            parts.append(element("text", texts.clock_change, x=_across(x), dx=4, y=height - 2))
    if start <= now < end:
        parts.append(rule(place(now), "now", element("title", texts.now)))
    # Columns for the schedule and for overlaps appear only if there are any.
    named = any(fire.name for lane in lanes for fire in lane.fires)
    names = [texts.name] if named else []
    return chart(
        texts,
        parts,
        [texts.when, texts.lane, *names, texts.status, *([texts.overlaps] if overlaps else [])],
        lambda: _rows(lanes, overlaps, start, end, texts, named=named),
        width=_WHOLE,
        height=height,
        kind="timeline",
        fluid=True,
        links=any(fire.address for lane in lanes for fire in lane.fires),
        names=svg_image(
            texts.lane,
            texts.description,
            [_name(lane, index) for index, lane in enumerate(lanes)],
            width=_NAMES,
            height=height,
            kind="names",
            links=any(lane.address for lane in lanes),
        ),
    )


def _tick(text: str, x: float) -> Markup:
    """Centred on its line; aligned with the edge where it would be cut off."""
    half = _HALF_CHARACTER * len(text)
    if x < half:
        return element("text", text, x=0, y=_TOP - 8)
    if x > _WHOLE - half:
        return element("text", text, x="100%", y=_TOP - 8, class_="end")
    return element("text", text, x=_across(x), y=_TOP - 8, class_="middle")


def _across(x: float) -> str:
    return share_of(x, _WHOLE)


def _rows(
    lanes: Sequence[Lane],
    overlaps: Sequence[Overlap],
    start: datetime,
    end: datetime,
    texts: TimelineTexts,
    *,
    named: bool,
) -> Iterator[list[str]]:
    """Of the table, by time and lane."""
    fires = ((fire.at, lane.name, fire) for lane in lanes for fire in lane.fires)
    for at, lane, fire in sorted(fires, key=lambda each: each[:2]):
        if start <= at < end:
            names = [fire.name] if named else []
            others = [_overlapping_names(lane, fire, overlaps)] if overlaps else []
            yield [texts.moment(at), lane, *names, texts.state(fire.status), *others]


def _overlapping_names(lane: str, fire: Fire, overlaps: Sequence[Overlap]) -> str:
    if fire.length < DOT_BELOW:
        return ""
    names = (
        name
        for each in overlaps
        if lane in each.names and each.start < fire.at + fire.length and fire.at < each.end
        for name in each.names
        if name != lane
    )
    return ", ".join(dict.fromkeys(names))


def _background(index: int, width: float | str) -> Markup:
    kind = "lane odd" if index % 2 else "lane"
    return element("rect", x=0, y=_TOP + index * _LANE, width=width, height=_LANE, class_=kind)


def _name(lane: Lane, index: int) -> Markup:
    name = element(
        "text",
        _truncated(lane.name),
        element("title", lane.name),
        x=8,
        y=_TOP + index * _LANE + 19,
        class_="name",
    )
    link = element("a", name, href=lane.address) if lane.address else name
    return element("g", _background(index, _NAMES), link)


def _lane(
    lane: Lane,
    index: int,
    *,
    start: datetime,
    end: datetime,
    now: datetime,
    texts: TimelineTexts,
) -> list[Markup]:
    y = _TOP + index * _LANE
    parts: list[Markup] = []
    marks = clusters(lane.fires, start, end)
    if lane.more and marks:
        parts.append(_rest(marks[-1], y))
    return [
        *parts,
        *(
            _mark(each, lane.name, y, now, texts, more=lane.more and each is marks[-1])
            for each in marks
        ),
    ]


def _rest(last: Cluster, y: float) -> Markup:
    """A line to the end of the chart, for the fires after the last mark."""
    x = _LEFT + last.x + last.width + (_NUMBER_WIDTH + 12 if last.width < _NUMBER_WIDTH else 4)
    if x >= _LEFT + WIDTH:
        return Markup("")
    return element(
        "line",
        x1=_across(x),
        x2=_across(_LEFT + WIDTH),
        y1=y + _LANE / 2,
        y2=y + _LANE / 2,
        class_="rest",
    )


def _mark(
    cluster: Cluster, name: str, y: float, now: datetime, texts: TimelineTexts, *, more: bool
) -> Markup:
    """Built from strings instead of elements, for speed: a page has hundreds."""
    label = escaped(texts.mark(name, cluster.fires))
    x, middle, width = _LEFT + cluster.x, y + _LANE / 2, cluster.width
    ended = _worst_of(cluster.fires)
    status = f"s-{ended.value}" if ended is not None else "planned"
    # A symbol besides the colour marks unsuccessful runs.
    symbol = (
        STATUS_SYMBOLS[ended] if ended not in _WITHOUT_SYMBOL and len(cluster.fires) == 1 else ""
    )
    past = ' class="past"' if cluster.fires[-1].at < now else ""
    pieces = [f"<g{past}><title>{label}</title>"]
    if width and (not symbol or width >= 2 * _SYMBOL_RADIUS):
        pieces.append(
            f'<rect x="{_across(x)}" y="{format_number(middle - _HIGH / 2)}"'
            f' width="{_across(max(4.0, width))}" height="{_HIGH}" rx="3" class="{status}"/>'
        )
    else:
        radius = format_number(_SYMBOL_RADIUS if symbol else 5.0)
        pieces.append(
            f'<circle cx="{_across(x)}" cy="{format_number(middle)}" r="{radius}"'
            f' class="{status}"/>'
        )
    if symbol:
        place = x + (width / 2 if width >= 2 * _SYMBOL_RADIUS else 0)
        kind = "sign dark" if ended in (RunStatus.SKIPPED, RunStatus.CANCELED) else "sign"
        pieces.append(element("text", symbol, x=_across(place), y=middle + 3.5, class_=kind))
    if cluster.overlaps:
        pieces.append(
            element(
                "rect",
                x=_across(x),
                y=y + 1,
                width=_across(max(8.0, width)),
                height=_LANE - 2,
                class_="overlap",
            )
        )
    if len(cluster.fires) > 1:
        pieces.append(_number(cluster, x, middle, more=more))
    pieces.append("</g>")
    if address := texts.address(cluster.fires):
        pieces = [f'<a href="{escaped(address)}" aria-label="{label}">', *pieces, "</a>"]
    return safe("".join(pieces))


def _number(cluster: Cluster, x: float, middle: float, *, more: bool) -> Markup:
    text = f"×{len(cluster.fires)}{'+' if more else ''}"
    if cluster.width >= _NUMBER_WIDTH:
        at = _across(x + cluster.width / 2)
        return element("text", text, x=at, y=middle + 4, class_="sign")
    if cluster.x + cluster.width > WIDTH - _NUMBER_WIDTH:
        return element("text", text, x=_across(x), dx=-8, y=middle + 4, class_="end")
    at = _across(x + max(8.0, cluster.width))
    return element("text", text, x=at, dx=2, y=middle + 4)


def _worst_of(fires: Sequence[Fire]) -> RunStatus | None:
    """None if all are upcoming."""
    ended = [fire.status for fire in fires if fire.status is not None]
    return worst_status(ended) if ended else None


#: Width of the name column in em, and estimated widths of characters.
_NAME_WIDTH = 13.0
_EM = {
    char: width
    for width, chars in (
        (0.3, "ijl.,:;'|!I เโใไ"),
        (0.42, "ftr-/()[]ะาำๅ"),
        (0.56, "aceksvxyzJLรว"),
        (0.95, "mMW@%…ฌญฒณ"),
    )
    for char in chars
}
#: Thai vowels that are written before their consonant.
_THAI_LEADING_VOWELS = "เแโใไ"


def _truncated(name: str) -> str:
    """The name, truncated to the width of its column."""
    if sum(map(_em, name)) <= _NAME_WIDTH:
        return name
    taken, end = _em("…"), 0
    for char in name:
        taken += _em(char)
        if taken > _NAME_WIDTH:
            break
        end += 1
    return f"{name[:end].rstrip(_THAI_LEADING_VOWELS + ' ')}…"


def _em(char: str) -> float:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0.0
    if unicodedata.east_asian_width(char) in "WF":
        return 1.0
    return _EM.get(char, 0.78 if char.isupper() or char == "w" else 0.64)


# --- histogram and heat map -----------------------------------------------------------------------
_BARS_LEFT, _BARS_WIDTH, _BARS_RIGHT, _BARS_TOP, _BARS_HIGH, _BARS_BOTTOM = 36, 760, 4, 8, 72, 20
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
    """Stacked bars with the worst status at the bottom; as wide as its container."""
    maximum = max((bar.total for bar in bars), default=0) or 1
    top = nice_maximum(maximum)
    width = _BARS_LEFT + _BARS_WIDTH + _BARS_RIGHT
    step = _BARS_WIDTH / max(1, len(bars))
    floor = _BARS_TOP + _BARS_HIGH

    def across(x: float) -> str:
        return share_of(x, width)

    parts: list[Markup] = []
    for value in dict.fromkeys((0, top // 2 if top % 2 == 0 else 0, top)):
        y = floor - _BARS_HIGH * value / top
        kind = "rule" if value else "axis"
        parts.append(element("line", x1=across(_BARS_LEFT), x2="100%", y1=y, y2=y, class_=kind))
        parts.append(
            element("text", texts.number(value), x=across(_BARS_LEFT - 6), y=y + 4, class_="end")
        )
    used = [each for each in WORST_FIRST if any(bar.counts.get(each) for bar in bars)]
    every = max(1, len(bars) // 8)
    for index, bar in enumerate(bars):
        x, y = _BARS_LEFT + index * step, float(floor)
        pieces = [
            # The whole column is clickable.
            element("rect", element("title", texts.bar(bar)), x=across(x), y=_BARS_TOP,
                    width=across(step), height=_BARS_HIGH, fill="transparent")
        ]  # fmt: skip
        for status in used:
            count = bar.counts.get(status, 0)
            if not count:
                continue
            high = max(_MIN_HEIGHT, _BARS_HIGH * count / top)
            y -= high
            pieces.append(
                element("rect", x=across(x + step * 0.1), y=y, width=across(step * 0.8),
                        height=high, class_=f"s-{status.value}")
            )  # fmt: skip
        group = element("g", *pieces, data_from=bar.start.isoformat(), data_to=bar.end.isoformat())
        linked = bar.address and bar.total
        parts.append(
            element("a", group, href=bar.address, aria_label=texts.bar(bar)) if linked else group
        )
        if index % every == 0:
            # Labels at the right edge are right-aligned, so that they are not cut off.
            last = x > _BARS_LEFT + _BARS_WIDTH - _LABEL_WIDTH
            parts.append(
                element(
                    "text", texts.clock(bar.start), x="100%" if last else across(x),
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
        width=width,
        height=floor + _BARS_BOTTOM,
        kind="histogram",
        links=any(bar.address and bar.total for bar in bars),
        fluid=True,
    )


def nice_maximum(value: int) -> int:
    """The end of an axis from 0: the smallest 1, 2, 4, 6 or 8 with zeros that is not exceeded."""
    scale = 1
    while value > 10 * scale:
        scale *= 10
    return next(each * scale for each in (1, 2, 4, 6, 8, 10) if value <= each * scale)


_HEAT_CELL, _HEAT_NAMES, _HEAT_TOP = 24, 76, 20


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
        element(
            "text",
            f"{hour:02d}",
            x=share_of(hour + 0.5, 24),
            y=_HEAT_TOP - 6,
            class_="middle",
        )
        for hour in range(0, 24, 3)
    ]
    for row, (name, hours) in enumerate(zip(texts.rows, cells, strict=True)):
        y = _HEAT_TOP + row * _HEAT_CELL
        parts.extend(
            _cell(cell, texts.cell(name, hour, cell), hour, y, maximum)
            for hour, cell in enumerate(hours)
        )
    names = [
        element(
            "text",
            name,
            x=_HEAT_NAMES - 8,
            y=_HEAT_TOP + row * _HEAT_CELL + _HEAT_CELL / 2 + 4,
            class_="end name",
        )
        for row, name in enumerate(texts.rows)
    ]
    height = _HEAT_TOP + len(cells) * _HEAT_CELL
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
        width=24 * _HEAT_CELL,
        height=height,
        kind="heat",
        fluid=True,
        links=any(cell.address and cell.count for row in cells for cell in row),
        names=svg_image(
            texts.day, texts.description, names, width=_HEAT_NAMES, height=height, kind="names"
        ),
    )


def _cell(cell: HeatCell, text: str, hour: int, y: int, maximum: int) -> Markup:
    """Built from strings instead of elements, for speed: a page has hundreds."""
    label, side = escaped(text), _HEAT_CELL - 2
    mark = (
        f'<rect x="{share_of(hour, 24)}" y="{y}" width="{share_of(0.94, 24)}" height="{side}"'
        f' rx="3" class="h{shade(cell.count, maximum)}"><title>{label}</title></rect>'
    )
    if cell.failed:
        share = corner(cell)
        mark += (
            f'<svg x="{share_of(hour + 0.94, 24)}" y="{y}" overflow="visible">'
            f'<path d="M-{share} 0H0V{share}Z" class="corner"/></svg>'
        )
    if cell.address and cell.count:
        mark = f'<a href="{escaped(cell.address)}" aria-label="{label}">{mark}</a>'
    return safe(mark)


def corner(cell: HeatCell) -> int:
    """Side of the red corner: from a quarter of the cell to the whole cell."""
    least, whole = _HEAT_CELL // 4, _HEAT_CELL - 2
    return least + round((whole - least) * min(1.0, cell.failed / max(1, cell.count)))


def shade(count: int, maximum: int) -> int:
    """0 for no runs, then four steps relative to the fullest cell."""
    if not count:
        return 0
    return min(4, 1 + 4 * (count - 1) // max(1, maximum))
