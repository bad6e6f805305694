"""The next hours at one glance: a lane for each schedule or label, a mark for each fire, and where
several run at the same time (UX picture 1)."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from markupsafe import Markup

from chimes.model.run import RunStatus
from chimes.web.dashboard.charts.svg import (
    SHAPES,
    Chart,
    element,
    picture,
    plain,
    safe,
    table,
    worst,
    written,
)

# @@ What a timeline consists of, before it is drawn: fires in lanes, what lies too near together
# to be told apart, and where several lanes run at the same time.

#: As wide as all marks together.
WIDTH = 780
#: Shorter than this a fire is a dot.
DOT_BELOW = timedelta(minutes=1)
#: Dots nearer than this, and bars nearer than that, are one mark with a number.
_DOTS_APART, _BARS_APART = 10.0, 2.0
#: As wide as one of several fires gets; more of them are a further one.
_WIDEST = 32.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Fire:
    at: datetime
    #: How long it took, or is expected to; zero: nobody knows.
    length: timedelta = timedelta(0)
    #: Of one that has been; None: still to come.
    status: RunStatus | None = None
    address: str | None = None
    #: Whose it is, where a lane has those of several.
    name: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lane:
    name: str
    fires: Sequence[Fire]
    address: str | None = None
    #: There are more after the last one, which nobody has counted.
    more: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlap:
    """In which several lanes have something that runs, or is expected to."""

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
        """Whether one is expected to run into the next."""
        ends = ((first.at + first.length, second.at) for first, second in pairwise(self.fires))
        return any(end > start for end, start in ends)


def clusters(fires: Sequence[Fire], start: datetime, end: datetime) -> list[Cluster]:
    """Marks of one lane from left to right; what lies too near together is one. What has begun and
    what is only planned stay apart: one failure does not colour the hours to come."""
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
    apart = _BARS_APART if before.width and width else _DOTS_APART
    over = x - (before.x + before.width)
    return over < 0 or (over < apart and x - before.x < _WIDEST)


def overlaps_of(lanes: Sequence[Lane], start: datetime, end: datetime) -> list[Overlap]:
    """From left to right; of what takes less than a minute nobody can say."""
    edges: list[tuple[datetime, int, int]] = []
    for place, lane in enumerate(lanes):
        for fire in lane.fires:
            first, last = max(fire.at, start), min(fire.at + fire.length, end)
            if fire.length >= DOT_BELOW and first < last:
                edges += [(first, 1, place), (last, -1, place)]
    under_way: Counter[int] = Counter()
    found: list[Overlap] = []
    begun: datetime | None = None
    seen: set[int] = set()
    # Ends before beginnings: what follows at once does not overlap.
    for at, step, place in sorted(edges, key=lambda edge: edge[:2]):
        under_way[place] += step
        running = {each for each, count in under_way.items() if count > 0}
        if begun is not None and len(running) < 2:
            names = tuple(lanes[each].name for each in sorted(seen))
            found.append(Overlap(start=begun, end=at, names=names))
            begun, seen = None, set()
        elif len(running) > 1:
            begun = begun or at
            seen |= running
    return found


_LEFT, _NAMES, _TOP, _LANE, _HIGH = 8, 150, 24, 30, 14
#: Of a dot with a sign in it.
_SIGNED = 6.5
_WITHOUT_SIGN = (None, RunStatus.SUCCEEDED, RunStatus.RUNNING, RunStatus.QUEUED)
#: From here on the number stands within.
_ROOMY = 24.0
#: Of a word of the axis, such as Thu 12 Nov.
_HALF_A_SIGN = 3.4


def first_address(fires: Sequence[Fire]) -> str | None:
    return fires[0].address


@dataclass(frozen=True, kw_only=True, slots=True)
class TimelineWords:
    title: str
    description: str
    lane: str
    when: str
    status: str
    now: str
    #: Of a change of the clocks.
    change: str
    #: What a mark says: the lane's name, its fires.
    mark: Callable[[str, Sequence[Fire]], str]
    #: A time for the axis, short, in the zone that the caption names.
    clock: Callable[[datetime], str]
    #: A time for the table, with its zone.
    moment: Callable[[datetime], str]
    #: The word of a state; None: planned.
    state: Callable[[RunStatus | None], str]
    #: Heads of the columns for whose a fire is in a lane of several, and for what runs meanwhile.
    name: str = ""
    meanwhile: str = ""
    #: What an overlap says.
    together: Callable[[Overlap], str] = str
    #: Where a mark of these leads.
    address: Callable[[Sequence[Fire]], str | None] = first_address


def timeline(
    lanes: Sequence[Lane],
    *,
    start: datetime,
    end: datetime,
    now: datetime,
    ticks: Sequence[datetime],
    changes: Sequence[datetime] = (),
    words: TimelineWords,
) -> Chart:
    """`ticks`: where the axis has a word. `changes`: moments at which the clocks change."""
    height = _TOP + _LANE * max(1, len(lanes)) + 6

    def place(moment: datetime) -> float:
        return _LEFT + WIDTH * ((moment - start) / (end - start))

    parts: list[Markup] = [_background(index, _LEFT + WIDTH + 10) for index in range(len(lanes))]
    shared = overlaps_of(lanes, start, end)
    for overlap in shared:
        x = place(overlap.start)
        parts.append(
            element(
                "rect",
                element("title", words.together(overlap)),
                x=x, y=_TOP, width=max(2.0, place(overlap.end) - x), height=height - _TOP,
                class_="together",
            )
        )  # fmt: skip
    for tick in ticks:
        x = place(tick)
        parts.append(element("line", x1=x, x2=x, y1=_TOP - 4, y2=height, class_="rule"))
        parts.append(_tick(words.clock(tick), x))
    for index, lane in enumerate(lanes):
        parts.extend(_lane(lane, index, start=start, end=end, now=now, words=words))
    for change in changes:
        if start <= change < end:
            x = place(change)
            parts.append(
                element(
                    "line",
                    element("title", words.change),
                    x1=x, x2=x, y1=_TOP - 4, y2=height, class_="dst",
                )
            )  # fmt: skip
            parts.append(element("text", words.change, x=x + 4, y=height - 2))
    if start <= now < end:
        x = place(now)
        parts.append(
            element(
                "line",
                element("title", words.now),
                x1=x, x2=x, y1=_TOP - 4, y2=height, class_="now",
            )
        )  # fmt: skip
    return Chart(
        title=words.title,
        svg=picture(
            words.title,
            words.description,
            parts,
            width=_LEFT + WIDTH + 10,
            height=height,
            kind="timeline",
            links=any(fire.address for lane in lanes for fire in lane.fires),
        ),
        names=picture(
            words.lane,
            words.description,
            [_name(lane, index) for index, lane in enumerate(lanes)],
            width=_NAMES,
            height=height,
            kind="names",
            links=any(lane.address for lane in lanes),
        ),
        twin=lambda: _twin(lanes, shared, start, end, words),
    )


def _tick(text: str, x: float) -> Markup:
    """In the middle of its line, and beside it where it would be cut at an edge."""
    half = _HALF_A_SIGN * len(text)
    if x < half:
        return element("text", text, x=0, y=_TOP - 8)
    if x > _LEFT + WIDTH + 10 - half:
        return element("text", text, x=_LEFT + WIDTH + 10, y=_TOP - 8, class_="end")
    return element("text", text, x=x, y=_TOP - 8, class_="middle")


def _twin(
    lanes: Sequence[Lane],
    shared: Sequence[Overlap],
    start: datetime,
    end: datetime,
    words: TimelineWords,
) -> Markup:
    """Whose a fire is, and what runs meanwhile, only where there is any to tell of."""
    found = sorted(
        ((fire.at, lane.name, fire) for lane in lanes for fire in lane.fires),
        key=lambda each: each[:2],
    )
    named = any(fire.name for _, _, fire in found)
    heads = [words.when, words.lane, words.status]
    heads[2:2] = [words.name] if named else []
    heads += [words.meanwhile] if shared else []
    rows: list[list[str]] = []
    for at, lane, fire in found:
        if start <= at < end:
            row = [words.moment(at), lane, words.state(fire.status)]
            row[2:2] = [fire.name] if named else []
            rows.append([*row, _meanwhile(lane, fire, shared)] if shared else row)
    return table(words.title, heads, rows)


def _meanwhile(lane: str, fire: Fire, shared: Sequence[Overlap]) -> str:
    if fire.length < DOT_BELOW:
        return ""
    names = (
        name
        for each in shared
        if lane in each.names and each.start < fire.at + fire.length and fire.at < each.end
        for name in each.names
        if name != lane
    )
    return ", ".join(dict.fromkeys(names))


def _background(index: int, width: float) -> Markup:
    kind = "lane odd" if index % 2 else "lane"
    return element("rect", x=0, y=_TOP + index * _LANE, width=width, height=_LANE, class_=kind)


def _name(lane: Lane, index: int) -> Markup:
    name = element(
        "text",
        _short(lane.name),
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
    words: TimelineWords,
) -> list[Markup]:
    y = _TOP + index * _LANE
    parts: list[Markup] = []
    marks = clusters(lane.fires, start, end)
    if lane.more and marks:
        parts.append(_rest(marks[-1], y))
    return [
        *parts,
        *(
            _mark(each, lane.name, y, now, words, more=lane.more and each is marks[-1])
            for each in marks
        ),
    ]


def _rest(last: Cluster, y: float) -> Markup:
    """What follows the last one: more of the same, as far as the picture goes."""
    x = _LEFT + last.x + last.width + (_ROOMY + 12 if last.width < _ROOMY else 4)
    if x >= _LEFT + WIDTH:
        return Markup("")
    return element(
        "line", x1=x, x2=_LEFT + WIDTH, y1=y + _LANE / 2, y2=y + _LANE / 2, class_="rest"
    )


def _mark(
    cluster: Cluster, name: str, y: float, now: datetime, words: TimelineWords, *, more: bool
) -> Markup:
    """Written out, and not of elements: there are hundreds on a page."""
    label = written(words.mark(name, cluster.fires))
    x, middle, width = _LEFT + cluster.x, y + _LANE / 2, cluster.width
    ended = _worst_of(cluster.fires)
    status = f"s-{ended.value}" if ended is not None else "planned"
    # Shape and not only colour: what did not go well has its sign.
    sign = SHAPES[ended] if ended not in _WITHOUT_SIGN and len(cluster.fires) == 1 else ""
    past = ' class="past"' if cluster.fires[-1].at < now else ""
    pieces = [f"<g{past}><title>{label}</title>"]
    if width and (not sign or width >= 2 * _SIGNED):
        pieces.append(
            f'<rect x="{plain(x)}" y="{plain(middle - _HIGH / 2)}" width="{plain(max(4.0, width))}"'
            f' height="{_HIGH}" rx="3" class="{status}"/>'
        )
    else:
        radius = plain(_SIGNED if sign else 5.0)
        pieces.append(
            f'<circle cx="{plain(x)}" cy="{plain(middle)}" r="{radius}" class="{status}"/>'
        )
    if sign:
        place = x + (width / 2 if width >= 2 * _SIGNED else 0)
        kind = "sign dark" if ended in (RunStatus.SKIPPED, RunStatus.CANCELED) else "sign"
        pieces.append(element("text", sign, x=place, y=middle + 3.5, class_=kind))
    if cluster.overlaps:
        pieces.append(
            element("rect", x=x, y=y + 1, width=max(8.0, width), height=_LANE - 2, class_="overlap")
        )
    if len(cluster.fires) > 1:
        pieces.append(_number(cluster, x, middle, more=more))
    pieces.append("</g>")
    if address := words.address(cluster.fires):
        pieces = [f'<a href="{written(address)}" aria-label="{label}">', *pieces, "</a>"]
    return safe("".join(pieces))


def _number(cluster: Cluster, x: float, middle: float, *, more: bool) -> Markup:
    text = f"×{len(cluster.fires)}{'+' if more else ''}"
    if cluster.width >= _ROOMY:
        return element("text", text, x=x + cluster.width / 2, y=middle + 4, class_="sign")
    if cluster.x + cluster.width > WIDTH - _ROOMY:
        return element("text", text, x=x - 8, y=middle + 4, class_="end")
    return element("text", text, x=x + max(8.0, cluster.width) + 2, y=middle + 4)


def _worst_of(fires: Sequence[Fire]) -> RunStatus | None:
    """None: all of them are still to come."""
    ended = [fire.status for fire in fires if fire.status is not None]
    return worst(ended) if ended else None


#: What a name may take of its column, in em of its letters, and what signs take at most.
_ROOM = 13.0
_EM = {
    sign: wide
    for wide, signs in (
        (0.3, "ijl.,:;'|!I เโใไ"),
        (0.42, "ftr-/()[]ะาำๅ"),
        (0.56, "aceksvxyzJLรว"),
        (0.95, "mMW@%…ฌญฒณ"),
    )
    for sign in signs
}
#: Said after the letter that they stand before.
_THAI_BEFORE = "เแโใไ"


def _short(name: str) -> str:
    """As much of it as its column has room for, with its dots."""
    if sum(map(_em, name)) <= _ROOM:
        return name
    taken, end = _em("…"), 0
    for sign in name:
        taken += _em(sign)
        if taken > _ROOM:
            break
        end += 1
    return f"{name[:end].rstrip(_THAI_BEFORE + ' ')}…"


def _em(sign: str) -> float:
    if unicodedata.category(sign) in ("Mn", "Me", "Cf"):
        return 0.0
    if unicodedata.east_asian_width(sign) in "WF":
        return 1.0
    return _EM.get(sign, 0.78 if sign.isupper() or sign == "w" else 0.64)
