"""System page: nodes, lag, queue and store."""

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
from chimes.model.node import Node
from chimes.model.notification import DeliveryState
from chimes.services.system import NodeService, StoreHealth, may_control
from chimes.web.dashboard.core.page_request import ConfirmDialog, PageRequest, PageRouter, Undo
from chimes.web.dashboard.system.views import (
    all_drained,
    lag_data,
    lag_rows,
    lags_by_node,
    node_cards,
    node_history,
    queued_and_running,
)

router = PageRouter()
#: Lag in seconds that counts as late.
LATE = 1.0
#: Store latency in seconds that counts as slow.
SLOW_STORE = 0.1
_SPANS = {
    "24h": (timedelta(hours=24), timedelta(minutes=15)),
    "7d": (timedelta(days=7), timedelta(hours=2)),
}
_MAX_RUNNING = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreFigures:
    """State of the store and of this server."""

    store: StoreHealth
    #: Open dashboard pages that receive live updates from this node.
    listeners: int

    @property
    def slow(self) -> bool:
        return self.store.latency > SLOW_STORE

    @property
    def undelivered(self) -> int:
        return self.store.counts.deliveries.get(DeliveryState.DEAD, 0)

    @property
    def to_deliver(self) -> int:
        return self.store.counts.deliveries.get(DeliveryState.PENDING, 0)


@router.get("/system")
async def system(request: PageRequest) -> Response:
    require_operator(request)
    span = request.query.get("span", "24h")
    span = span if span in _SPANS else "24h"
    length, step = _SPANS[span]
    window = Window.last(length, request.now)
    nodes, figures, lags, marks = await asyncio.gather(
        request.context.nodes.list_nodes(request.actor),
        _store_figures(request),
        request.context.insights.list_lag(request.actor, window, step, by_node=True),
        request.context.nodes.list_events(request.actor, window.since),
    )
    cards = node_cards(nodes, await _running(request, nodes), request.now)
    queued, running = queued_and_running(figures.store.counts.runs)
    events, by_node = node_history(marks), lags_by_node(lags)
    node = request.query.get("node", "")
    node = node if node in {each.node for each in by_node} else ""
    rows = lag_rows(window.starts(step), lags, node)
    return request.render_page_or_block(
        "system/page.html",
        "body",
        cards=cards,
        may_control=may_control(request.actor),
        all_drained=all_drained(cards),
        figures=figures,
        queued=queued,
        running=running,
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


async def _store_figures(request: PageRequest) -> StoreFigures:
    return StoreFigures(
        store=await request.context.system.get_store_health(request.actor),
        listeners=int(request.http.scope["state"].get("listeners", 0)),
    )


async def _running(request: PageRequest, nodes: Sequence[Node]) -> Counter[NodeId]:
    """Counts claims in the store if a node does not report its runs."""
    if all(node.report is not None for node in nodes):
        return Counter()
    claimed = await request.context.insights.list_running(request.actor, limit=_MAX_RUNNING)
    return Counter(run.holder for run in claimed if run.holder)


def require_operator(request: PageRequest) -> None:
    """Pages about all owners are only for actors that see everything."""
    if not request.actor.sees_everything:
        raise NotAllowed()


# --- node actions -----------------------------------------------------------------------------
_PATH = "/ui/system"


@router.post("/system/nodes/{id}/drain")
async def drain(request: PageRequest) -> Response:
    nodes, node_id = _node_in(request)
    reason = request.form.text("reason")
    return await request.run_confirmed(
        ConfirmDialog(
            title=_("Drain this node?"),
            text=_(
                "The node finishes its active runs and claims no new ones, until it is resumed or "
                "restarted. Other nodes are not affected."
            ),
            button=_("Drain"),
            names=[(await nodes.get(request.actor, node_id)).id],
            reason=True,
        ),
        lambda: nodes.drain(request.actor, node_id, reason=reason),
        _("{node} will drain from its next heartbeat.", node=node_id),
        to=request.back_url(_PATH),
        undo=Undo(action=f"/ui/system/nodes/{node_id}/resume"),
    )


@router.post("/system/nodes/{id}/resume")
async def resume(request: PageRequest) -> Response:
    nodes, node_id = _node_in(request)
    await nodes.resume(request.actor, node_id, reason=request.form.text("reason"))
    undo = Undo(action=f"/ui/system/nodes/{node_id}/drain", fields={"sure": "yes"})
    text = _("{node} will resume with its next heartbeat.", node=node_id)
    return request.redirect_with_toast(text, to=request.back_url(_PATH), undo=undo)


@router.post("/system/nodes/{id}/forget")
async def forget(request: PageRequest) -> Response:
    nodes, node_id = _node_in(request)
    reason = request.form.text("reason")
    return await request.run_confirmed(
        ConfirmDialog(
            title=_("Forget this node?"),
            text=_("Its lease has expired. Other nodes take over its runs."),
            button=_("Forget"),
            names=[(await nodes.get(request.actor, node_id)).id],
            reason=True,
        ),
        lambda: nodes.forget(request.actor, node_id, reason=reason),
        _("{node} forgotten.", node=node_id),
        to=request.back_url(_PATH),
    )


def _node_in(request: PageRequest) -> tuple[NodeService, NodeId]:
    return request.context.nodes, NodeId(request.path_params["id"])
