"""Node cards, audit changes and lag chart of the System page; no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from chimes.i18n import ENGLISH, _, in_language
from chimes.model.ids import NodeId
from chimes.model.insights import LagBucket, LagHistogram, merge_lags
from chimes.model.node import Node, NodeEvent, NodeState
from chimes.model.run import RunStatus

#: Clock offset in seconds above which a node shows a warning.
CLOCK_WARNING = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeCard:
    node: Node
    state: NodeState
    #: Since its last heartbeat.
    age: timedelta
    running: int
    clock_off: bool
    #: Draining was requested, but the version of the node does not support it.
    cannot_drain: bool

    @property
    def alive(self) -> bool:
        return self.state is not NodeState.GONE

    @property
    def share(self) -> float:
        return self.running / self.node.capacity if self.node.capacity else 0.0


def node_cards(
    nodes: Iterable[Node], running: Mapping[NodeId, int], now: datetime
) -> tuple[NodeCard, ...]:
    """Builds the cards, active nodes first. `running` counts the claims of nodes that report no
    statistics."""
    cards = [
        NodeCard(
            node=node,
            state=node.state(now),
            age=max(now - node.heartbeat_at, timedelta(0)),
            running=running.get(node.id, 0) if node.report is None else node.report.running,
            clock_off=abs(node.clock_offset) > CLOCK_WARNING,
            cannot_drain=node.drain and node.report is None,
        )
        for node in nodes
    ]
    return tuple(sorted(cards, key=lambda card: (not card.alive, card.age)))


def all_drained(cards: Iterable[NodeCard]) -> bool:
    """Whether there are active nodes and all of them drain."""
    alive = [card for card in cards if card.alive]
    return bool(alive) and all(card.node.drain for card in alive)


def queued_and_running(runs: Mapping[RunStatus, int]) -> tuple[int, int]:
    return runs.get(RunStatus.QUEUED, 0), runs.get(RunStatus.RUNNING, 0)


# --- lag --------------------------------------------------------------------------------------
_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_TONES = {"p50": "ok", "p95": "accent", "p99": "warn"}
#: Limit of node events in the chart.
MAX_MARKS = 30


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
class NodeHistoryEntry:
    at: datetime
    #: Full sentence.
    text: str
    #: Short label for the chart.
    label: str


def lag_rows(
    starts: Sequence[datetime], buckets: Iterable[LagBucket], node: str = ""
) -> tuple[LagRow, ...]:
    """Returns one row per bucket; `node` restricts the rows to one node."""
    found: dict[datetime, list[LagHistogram]] = {}
    for bucket in buckets:
        if not node or bucket.node == node:
            found.setdefault(bucket.at, []).append(bucket.lags)
    return tuple(_row(at, merge_lags(found.get(at, ()))) for at in starts)


def lags_by_node(buckets: Iterable[LagBucket]) -> tuple[NodeLag, ...]:
    """Returns the lag of each node over the whole window, highest first."""
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


def node_history(marks: Sequence[NodeEvent]) -> tuple[NodeHistoryEntry, ...]:
    """Describes node events, oldest first. A version seen for the first time is a deployment."""
    found = []
    known: set[str] = set()
    for mark in marks:
        new = mark.joined and mark.version not in known and bool(known)
        known.add(mark.version)
        given = {"node": mark.node_id, "version": mark.version}
        if new:
            text = _("{node} joined with new version {version}", **given)
            found.append(NodeHistoryEntry(at=mark.at, text=text, label=f"▲ {mark.version}"))
        elif mark.joined:
            text = _("{node} joined with version {version}", **given)
            found.append(NodeHistoryEntry(at=mark.at, text=text, label=f"+ {_short(mark.node_id)}"))
        else:
            text = _("{node} left or was lost", **given)
            found.append(NodeHistoryEntry(at=mark.at, text=text, label=f"− {_short(mark.node_id)}"))
    return tuple(found)


def lag_data(
    rows: Sequence[LagRow],
    zone: str,
    limit: float,
    events: Sequence[NodeHistoryEntry] = (),
    until: datetime | None = None,
    language: str = ENGLISH,
) -> dict[str, object]:
    """Returns the data for `static/chart.js`. `until` extends the time axis to the end of the last
    bucket, so that its events are visible."""
    ends = [] if until is None else [int(until.timestamp())]
    lines = [
        {
            "name": name,
            "values": [*(getattr(row, name) for row in rows), *(None for _end in ends)],
            "tone": tone,
        }
        for name, tone in _TONES.items()
    ]
    times = [*(int(row.at.timestamp()) for row in rows), *ends]
    marks = [{"at": int(each.at.timestamp()), "text": each.label} for each in events[-MAX_MARKS:]]
    return {
        "times": times,
        "when": in_language(_("Time"), language),
        "lines": lines,
        # The script fills in the numbers.
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
    """Returns the node id without its random suffix."""
    return node_id.rpartition("-")[0] or node_id
