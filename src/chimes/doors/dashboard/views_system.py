"""What the System page shows, from values to what a template needs; nothing here asks a store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from chimes.model.audit import AuditEntry
from chimes.model.ids import NodeId
from chimes.model.insights import LagBucket
from chimes.model.node import Node
from chimes.model.run import RunStatus

#: A clock that is further off than this is worth a word.
CLOCK_WARNING = 1.0
_QUANTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeCard:
    node: Node
    alive: bool
    #: Since its last heartbeat.
    age: timedelta
    running: int
    clock_off: bool

    @property
    def share(self) -> float:
        return self.running / self.node.capacity if self.node.capacity else 0.0


def node_cards(
    nodes: Iterable[Node], running: Mapping[NodeId, int], now: datetime
) -> tuple[NodeCard, ...]:
    """Those alive first, the youngest before the others."""
    cards = [
        NodeCard(
            node=node,
            alive=node.lease_until > now,
            age=max(now - node.heartbeat_at, timedelta(0)),
            running=running.get(node.id, 0),
            clock_off=abs(node.clock_offset) > CLOCK_WARNING,
        )
        for node in nodes
    ]
    return tuple(sorted(cards, key=lambda card: (not card.alive, card.age)))


@dataclass(frozen=True, kw_only=True, slots=True)
class LagRow:
    at: datetime
    count: int
    p50: float | None
    p95: float | None
    p99: float | None


def lag_rows(buckets: Sequence[LagBucket]) -> tuple[LagRow, ...]:
    return tuple(
        LagRow(
            at=bucket.at,
            count=bucket.lags.total,
            p50=_seconds(bucket, 0.5),
            p95=_seconds(bucket, 0.95),
            p99=_seconds(bucket, 0.99),
        )
        for bucket in buckets
    )


def lag_data(rows: Sequence[LagRow], zone: str, limit: float) -> dict[str, object]:
    """As `static/chart.js` wants it."""
    tones = {"p50": "ok", "p95": "accent", "p99": "warn"}
    lines = [
        {"name": name, "values": [getattr(row, name) for row in rows], "tone": tones[name]}
        for name, _ in _QUANTILES
    ]
    times = [int(row.at.timestamp()) for row in rows]
    return {"times": times, "lines": lines, "unit": "s", "zone": zone, "limit": limit}


def _seconds(bucket: LagBucket, share: float) -> float | None:
    found = bucket.lags.quantile(share)
    return None if found is None else round(found.total_seconds(), 4)


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
_PAGES = {"schedule": "/ui/schedules/{id}", "run": "/ui/runs/{id}"}


def page_of(entry: AuditEntry) -> str:
    return _PAGES.get(entry.object_kind, "").format(id=entry.object_id)


def waiting_and_running(runs: Mapping[RunStatus, int]) -> tuple[int, int]:
    return runs.get(RunStatus.QUEUED, 0), runs.get(RunStatus.RUNNING, 0)
