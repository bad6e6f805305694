"""What the System page shows, from values to what a template needs; nothing here asks a store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import quote

from chimes.model.audit import AuditEntry
from chimes.model.ids import NodeId
from chimes.model.node import Node, NodeState
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
