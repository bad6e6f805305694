"""System: nodes and lag. Audit, access, channels and settings have modules of their own."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from starlette.responses import Response

from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.views_system import (
    lag_data,
    lag_rows,
    node_cards,
    waiting_and_running,
)
from chimes.doors.dashboard.visit import Visit
from chimes.errors import NotAllowed
from chimes.model.insights import Window
from chimes.service.insights import InsightService

pages = Pages()
#: What the chart calls late.
LATE = 1.0
_SPANS = {
    "24h": (timedelta(hours=24), timedelta(minutes=15)),
    "7d": (timedelta(days=7), timedelta(hours=2)),
}
_MOST_RUNNING = 1000


@pages.get("/system")
async def system(visit: Visit) -> Response:
    operators_only(visit)
    insights, store = InsightService(visit.door.store), visit.door.store
    chosen = visit.query.get("span", "24h")
    length, step = _SPANS.get(chosen, _SPANS["24h"])
    state, counts = await store.status(), await store.counts()
    held = await insights.held(visit.actor, limit=_MOST_RUNNING)
    running = Counter(run.holder for run in held if run.holder)
    rows = lag_rows(await insights.lag_series(visit.actor, Window.last(length, visit.now), step))
    waiting, going = waiting_and_running(counts.runs)
    return visit.page_or_part(
        "system/page.html",
        "body",
        cards=node_cards(await store.nodes(), running, visit.now),
        state=state,
        counts=counts,
        waiting=waiting,
        running=going,
        rows=[row for row in rows if row.count],
        lag=lag_data(rows, visit.look.zone, LATE),
        span=chosen if chosen in _SPANS else "24h",
        spans=tuple(_SPANS),
        not_ready=visit.door.not_ready(),
    )


def operators_only(visit: Visit) -> None:
    """What is about everybody is for those who see everything (C15)."""
    if not visit.actor.sees_everything:
        raise NotAllowed()
