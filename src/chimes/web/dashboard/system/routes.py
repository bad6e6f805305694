"""System: nodes and lag. Audit, access, channels and settings have modules of their own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from starlette.responses import Response

from chimes.errors import NotAllowed
from chimes.i18n import _
from chimes.model.ids import NodeId
from chimes.model.insights import Window
from chimes.model.listing import Counts
from chimes.model.node import Node
from chimes.model.notification import DeliveryState
from chimes.services.insights import InsightService
from chimes.services.nodes import NodeService, may_control
from chimes.store.port import StoreStatus
from chimes.web.dashboard.core.flash import Undo
from chimes.web.dashboard.core.forms import REFUSALS, Question
from chimes.web.dashboard.core.page_request import PageRequest
from chimes.web.dashboard.core.router import Pages
from chimes.web.dashboard.system.views import (
    happenings,
    lag_data,
    lag_rows,
    lags_by_node,
    nobody_works,
    node_cards,
    waiting_and_running,
)

pages = Pages()
#: What the chart calls late, in seconds.
LATE = 1.0
#: A store that takes longer than this to tell the time, in seconds, is slow.
SLOW_STORE = 0.1
_SPANS = {
    "24h": (timedelta(hours=24), timedelta(minutes=15)),
    "7d": (timedelta(days=7), timedelta(hours=2)),
}
_MOST_RUNNING = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """Of the store and of this server."""

    status: StoreStatus
    counts: Counts
    #: Seconds.
    latency: float
    size: int | None
    #: Pages that are open at this node and follow it.
    listeners: int

    @property
    def slow(self) -> bool:
        return self.latency > SLOW_STORE

    @property
    def undelivered(self) -> int:
        return self.counts.deliveries.get(DeliveryState.DEAD, 0)

    @property
    def to_deliver(self) -> int:
        return self.counts.deliveries.get(DeliveryState.PENDING, 0)


@pages.get("/system")
async def system(visit: PageRequest) -> Response:
    operators_only(visit)
    store = visit.door.store
    span = visit.query.get("span", "24h")
    span = span if span in _SPANS else "24h"
    length, step = _SPANS[span]
    window = Window.last(length, visit.now)
    nodes, figures, lags, marks = await asyncio.gather(
        store.nodes(),
        _figures(visit),
        InsightService(store).lag_series(visit.actor, window, step, by_node=True),
        store.node_marks(window.since),
    )
    cards = node_cards(nodes, await _running(visit, nodes), visit.now)
    waiting, going = waiting_and_running(figures.counts.runs)
    events, by_node = happenings(marks), lags_by_node(lags)
    node = visit.query.get("node", "")
    node = node if node in {each.node for each in by_node} else ""
    rows = lag_rows(window.starts(step), lags, node)
    return visit.page_or_part(
        "system/page.html",
        "body",
        cards=cards,
        may_control=may_control(visit.actor),
        nobody_works=nobody_works(cards),
        figures=figures,
        waiting=waiting,
        running=going,
        events=tuple(reversed(events)),
        span=span,
        spans=tuple(_SPANS),
        not_ready=visit.door.not_ready(),
        late=LATE,
        rows=[row for row in rows if row.count],
        lag=lag_data(rows, visit.look.zone, LATE, events, window.until, visit.look.language),
        by_node=by_node,
        of_node=node,
    )


async def _figures(visit: PageRequest) -> Figures:
    store, clock = visit.door.store, visit.door.clock
    before = clock.monotonic()
    await store.now()
    latency = clock.monotonic() - before
    status, counts, size = await asyncio.gather(store.status(), store.counts(), store.size())
    return Figures(
        status=status,
        counts=counts,
        latency=latency,
        size=size,
        listeners=int(visit.request.scope["state"].get("listeners", 0)),
    )


async def _running(visit: PageRequest, nodes: Sequence[Node]) -> Counter[NodeId]:
    """As the store has it, where a node does not tell."""
    if all(node.facts is not None for node in nodes):
        return Counter()
    held = await InsightService(visit.door.store).held(visit.actor, limit=_MOST_RUNNING)
    return Counter(run.holder for run in held if run.holder)


def operators_only(visit: PageRequest) -> None:
    """What is about everybody is for those who see everything (C15)."""
    if not visit.actor.sees_everything:
        raise NotAllowed()


# @@ System, nodes: drain, resume, forget.

HERE = "/ui/system"


@pages.post("/system/nodes/{id}/drain")
async def drain(visit: PageRequest) -> Response:
    nodes, node_id = _service(visit)
    question = Question(
        title=_("Drain this node?"),
        text=_(
            "It takes nothing new from its next heartbeat on and finishes what it has. The "
            "other nodes go on. It stays so until it is resumed or started anew."
        ),
        button=_("Drain"),
        names=[(await nodes.get(visit.actor, node_id)).id],
        reason=True,
    )
    if not visit.sure:
        return visit.ask(question)
    try:
        await nodes.drain(visit.actor, node_id, reason=visit.form.text("reason"))
    except REFUSALS as error:
        return visit.ask(question, await visit.refused(error))
    undo = Undo(action=f"/ui/system/nodes/{node_id}/resume")
    text = _("{node} was asked to drain; it hears of it with its next heartbeat.", node=node_id)
    return visit.done(text, to=visit.back(HERE), undo=undo)


@pages.post("/system/nodes/{id}/resume")
async def resume(visit: PageRequest) -> Response:
    nodes, node_id = _service(visit)
    await nodes.resume(visit.actor, node_id, reason=visit.form.text("reason"))
    undo = Undo(action=f"/ui/system/nodes/{node_id}/drain", fields={"sure": "yes"})
    text = _("{node} was asked to go on.", node=node_id)
    return visit.done(text, to=visit.back(HERE), undo=undo)


@pages.post("/system/nodes/{id}/forget")
async def forget(visit: PageRequest) -> Response:
    nodes, node_id = _service(visit)
    question = Question(
        title=_("Forget this node?"),
        text=_("Its lease is over. What it still held is taken over by the others."),
        button=_("Forget"),
        names=[(await nodes.get(visit.actor, node_id)).id],
        reason=True,
    )
    if not visit.sure:
        return visit.ask(question)
    try:
        await nodes.forget(visit.actor, node_id, reason=visit.form.text("reason"))
    except REFUSALS as error:
        return visit.ask(question, await visit.refused(error))
    return visit.done(_("{node} was forgotten.", node=node_id), to=visit.back(HERE))


def _service(visit: PageRequest) -> tuple[NodeService, NodeId]:
    return NodeService(visit.door.store), NodeId(visit.path["id"])
