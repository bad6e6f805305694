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
from chimes.web.dashboard.core.forms import FORM_ERRORS, ConfirmDialog
from chimes.web.dashboard.core.page_request import PageRequest
from chimes.web.dashboard.core.router import PageRouter
from chimes.web.dashboard.system.views import (
    happenings,
    lag_data,
    lag_rows,
    lags_by_node,
    nobody_works,
    node_cards,
    waiting_and_running,
)

router = PageRouter()
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
    #: PageRouter that are open at this node and follow it.
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


@router.get("/system")
async def system(request: PageRequest) -> Response:
    operators_only(request)
    store = request.context.store
    span = request.query.get("span", "24h")
    span = span if span in _SPANS else "24h"
    length, step = _SPANS[span]
    window = Window.last(length, request.now)
    nodes, figures, lags, marks = await asyncio.gather(
        store.nodes(),
        _figures(request),
        InsightService(store).lag_series(request.actor, window, step, by_node=True),
        store.node_marks(window.since),
    )
    cards = node_cards(nodes, await _running(request, nodes), request.now)
    waiting, going = waiting_and_running(figures.counts.runs)
    events, by_node = happenings(marks), lags_by_node(lags)
    node = request.query.get("node", "")
    node = node if node in {each.node for each in by_node} else ""
    rows = lag_rows(window.starts(step), lags, node)
    return request.render_page_or_block(
        "system/page.html",
        "body",
        cards=cards,
        may_control=may_control(request.actor),
        nobody_works=nobody_works(cards),
        figures=figures,
        waiting=waiting,
        running=going,
        events=tuple(reversed(events)),
        span=span,
        spans=tuple(_SPANS),
        not_ready=request.context.not_ready(),
        late=LATE,
        rows=[row for row in rows if row.count],
        lag=lag_data(
            rows, request.display.zone, LATE, events, window.until, request.display.language
        ),
        by_node=by_node,
        of_node=node,
    )


async def _figures(request: PageRequest) -> Figures:
    store, clock = request.context.store, request.context.clock
    before = clock.monotonic()
    await store.now()
    latency = clock.monotonic() - before
    status, counts, size = await asyncio.gather(store.status(), store.counts(), store.size())
    return Figures(
        status=status,
        counts=counts,
        latency=latency,
        size=size,
        listeners=int(request.http.scope["state"].get("listeners", 0)),
    )


async def _running(request: PageRequest, nodes: Sequence[Node]) -> Counter[NodeId]:
    """As the store has it, where a node does not tell."""
    if all(node.facts is not None for node in nodes):
        return Counter()
    held = await request.context.insights.held(request.actor, limit=_MOST_RUNNING)
    return Counter(run.holder for run in held if run.holder)


def operators_only(request: PageRequest) -> None:
    """What is about everybody is for those who see everything (C15)."""
    if not request.actor.sees_everything:
        raise NotAllowed()


# @@ System, nodes: drain, resume, forget.

HERE = "/ui/system"


@router.post("/system/nodes/{id}/drain")
async def drain(request: PageRequest) -> Response:
    nodes, node_id = _service(request)
    question = ConfirmDialog(
        title=_("Drain this node?"),
        text=_(
            "It takes nothing new from its next heartbeat on and finishes what it has. The "
            "other nodes go on. It stays so until it is resumed or started anew."
        ),
        button=_("Drain"),
        names=[(await nodes.get(request.actor, node_id)).id],
        reason=True,
    )
    if not request.is_confirmed:
        return request.confirm(question)
    try:
        await nodes.drain(request.actor, node_id, reason=request.form.text("reason"))
    except FORM_ERRORS as error:
        return request.confirm(question, await request.form_error(error))
    undo = Undo(action=f"/ui/system/nodes/{node_id}/resume")
    text = _("{node} will drain from its next heartbeat.", node=node_id)
    return request.redirect_with_toast(text, to=request.back_url(HERE), undo=undo)


@router.post("/system/nodes/{id}/resume")
async def resume(request: PageRequest) -> Response:
    nodes, node_id = _service(request)
    await nodes.resume(request.actor, node_id, reason=request.form.text("reason"))
    undo = Undo(action=f"/ui/system/nodes/{node_id}/drain", fields={"sure": "yes"})
    text = _("{node} will resume with its next heartbeat.", node=node_id)
    return request.redirect_with_toast(text, to=request.back_url(HERE), undo=undo)


@router.post("/system/nodes/{id}/forget")
async def forget(request: PageRequest) -> Response:
    nodes, node_id = _service(request)
    question = ConfirmDialog(
        title=_("Remove this node?"),
        text=_("Its lease has expired. Other nodes take over its runs."),
        button=_("Remove"),
        names=[(await nodes.get(request.actor, node_id)).id],
        reason=True,
    )
    if not request.is_confirmed:
        return request.confirm(question)
    try:
        await nodes.forget(request.actor, node_id, reason=request.form.text("reason"))
    except FORM_ERRORS as error:
        return request.confirm(question, await request.form_error(error))
    return request.redirect_with_toast(
        _("{node} removed.", node=node_id), to=request.back_url(HERE)
    )


def _service(request: PageRequest) -> tuple[NodeService, NodeId]:
    return request.context.nodes, NodeId(request.path_params["id"])
