"""What the System page shows, from values to what a template needs; nothing here asks a store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import quote

from chimes.i18n import ENGLISH, _, in_language
from chimes.model.audit import AuditEntry
from chimes.model.ids import NodeId
from chimes.model.insights import LagBucket, LagHistogram, merge_lags
from chimes.model.node import Node, NodeEvent, NodeState
from chimes.model.run import RunStatus

#: A clock that is further off than this is worth a word.
CLOCK_WARNING = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeCard:
    node: Node
    state: NodeState
    #: Since its last heartbeat.
    age: timedelta
    running: int
    clock_off: bool
    #: Asked to drain, and of a version that does not tell whether it has heard.
    deaf: bool

    @property
    def alive(self) -> bool:
        return self.state is not NodeState.GONE

    @property
    def share(self) -> float:
        return self.running / self.node.capacity if self.node.capacity else 0.0


def node_cards(
    nodes: Iterable[Node], running: Mapping[NodeId, int], now: datetime
) -> tuple[NodeCard, ...]:
    """Those alive first, the youngest before the others. `running`: as the store has it, for nodes
    that do not tell."""
    cards = [
        NodeCard(
            node=node,
            state=node.state(now),
            age=max(now - node.heartbeat_at, timedelta(0)),
            running=running.get(node.id, 0) if node.facts is None else node.facts.running,
            clock_off=abs(node.clock_offset) > CLOCK_WARNING,
            deaf=node.drain and node.facts is None,
        )
        for node in nodes
    ]
    return tuple(sorted(cards, key=lambda card: (not card.alive, card.age)))


def nobody_works(cards: Iterable[NodeCard]) -> bool:
    """Whether some are alive, and all of those were asked to drain."""
    alive = [card for card in cards if card.alive]
    return bool(alive) and all(card.node.drain for card in alive)


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    field: str
    before: str
    after: str


def changes_of(entry: AuditEntry) -> tuple[Change, ...]:
    """Field by field; what is no pair stands as what came after."""
    found = []
    for field, value in entry.changes.items():
        pair = value if isinstance(value, list | tuple) and len(value) == 2 else ("", value)
        found.append(Change(field=field, before=_text(pair[0]), after=_text(pair[1])))
    return tuple(found)


def _text(value: object) -> str:
    if value is None:
        return "–"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 300 else f"{text[:300]}…"


#: Where an entry's object has a page of its own.
_PAGES = {"schedule": "/ui/schedules/{id}", "run": "/ui/runs/{id}", "node": "/ui/system"}


def page_of(entry: AuditEntry) -> str:
    return _PAGES.get(entry.object_kind, "").format(id=quote(entry.object_id, safe=""))


def waiting_and_running(runs: Mapping[RunStatus, int]) -> tuple[int, int]:
    return runs.get(RunStatus.QUEUED, 0), runs.get(RunStatus.RUNNING, 0)


# @@ How late runs begin, over time and by node, and what happened to the nodes meanwhile (picture
# 6); from values to what a template and the chart need.

_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_TONES = {"p50": "ok", "p95": "accent", "p99": "warn"}
#: More marks than this would hide the lines.
MOST_MARKS = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class LagRow:
    at: datetime
    count: int
    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeLag:
    node: str
    count: int
    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Happening:
    at: datetime
    #: A whole sentence, said.
    text: str
    #: Short, for the picture.
    label: str


def lag_rows(
    starts: Sequence[datetime], buckets: Iterable[LagBucket], node: str = ""
) -> tuple[LagRow, ...]:
    """One for each start; `node`: of this one only."""
    found: dict[datetime, list[LagHistogram]] = {}
    for bucket in buckets:
        if not node or bucket.node == node:
            found.setdefault(bucket.at, []).append(bucket.lags)
    return tuple(_row(at, merge_lags(found.get(at, ()))) for at in starts)


def lags_by_node(buckets: Iterable[LagBucket]) -> tuple[NodeLag, ...]:
    """Of the whole window, the latest first."""
    found: dict[str, list[LagHistogram]] = {}
    for bucket in buckets:
        if bucket.node is not None:
            found.setdefault(bucket.node, []).append(bucket.lags)
    rows = []
    for node, several in found.items():
        lags = merge_lags(several)
        quantiles = {name: _seconds(lags, share) for name, share in _QUANTILES.items()}
        rows.append(NodeLag(node=node, count=lags.total, **quantiles))
    return tuple(sorted(rows, key=lambda row: (-(row.p95 or 0.0), row.node)))


def happenings(marks: Sequence[NodeEvent]) -> tuple[Happening, ...]:
    """Oldest first. A version that was not there before among these is a deploy."""
    found = []
    known: set[str] = set()
    for mark in marks:
        new = mark.joined and mark.version not in known and bool(known)
        known.add(mark.version)
        given = {"node": mark.node_id, "version": mark.version}
        if new:
            text = _("{node} joined with new version {version}", **given)
            found.append(Happening(at=mark.at, text=text, label=f"▲ {mark.version}"))
        elif mark.joined:
            text = _("{node} joined with version {version}", **given)
            found.append(Happening(at=mark.at, text=text, label=f"+ {_short(mark.node_id)}"))
        else:
            text = _("{node} left or was lost", **given)
            found.append(Happening(at=mark.at, text=text, label=f"− {_short(mark.node_id)}"))
    return tuple(found)


def lag_data(
    rows: Sequence[LagRow],
    zone: str,
    limit: float,
    events: Sequence[Happening] = (),
    until: datetime | None = None,
    language: str = ENGLISH,
) -> dict[str, object]:
    """As `static/chart.js` wants it. `until`: where the picture ends, so that what happened in the
    last stretch is on it."""
    ends = [] if until is None else [int(until.timestamp())]
    lines = [
        {
            "name": name,
            "values": [*(getattr(row, name) for row in rows), *(None for _unused in ends)],
            "tone": tone,
        }
        for name, tone in _TONES.items()
    ]
    times = [*(int(row.at.timestamp()) for row in rows), *ends]
    marks = [{"at": int(each.at.timestamp()), "text": each.label} for each in events[-MOST_MARKS:]]
    return {
        "times": times,
        "when": in_language(_("Time"), language),
        "lines": lines,
        # Unfilled: the script has the numbers.
        "unit": in_language(_("{count} s"), language),
        "zone": zone,
        "limit": limit,
        "marks": marks,
    }


def _row(at: datetime, lags: LagHistogram) -> LagRow:
    quantiles = {name: _seconds(lags, share) for name, share in _QUANTILES.items()}
    return LagRow(at=at, count=lags.total, **quantiles)


def _seconds(lags: LagHistogram, share: float) -> float | None:
    found = lags.quantile(share)
    return None if found is None else round(found.total_seconds(), 4)


def _short(node_id: str) -> str:
    """Without the random end."""
    return node_id.rpartition("-")[0] or node_id
