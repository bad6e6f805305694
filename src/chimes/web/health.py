"""What machines ask about the server: health, readiness, metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chimes.errors import StoreError, StoreLost
from chimes.i18n import ENGLISH, _
from chimes.model.listing import Counts
from chimes.model.notification import DeliveryState
from chimes.model.run import RunStatus
from chimes.retelling import retold
from chimes.web.auth import authenticate
from chimes.web.context import WebContext
from chimes.web.locale import language_of_headers

STORE_SECONDS = 2.0
#: Counting is work for the store; scrapers may come as often as they like.
COUNTS_SECONDS = 5.0


def operations(context: WebContext) -> APIRouter:
    router = APIRouter(tags=["operations"])
    counted = _Counted(context)

    @router.get("/health")
    async def health(request: Request) -> JSONResponse:
        """Whether the process is alive; 200 even when it is not in full order."""
        # The body of a node in order is Ksana's, to the letter.
        reason = _told(request, await _store_trouble(context))
        state = {"status": "degraded", "reason": reason} if reason else {"status": "ok"}
        return JSONResponse(state)

    @router.get("/ready", responses={503: {"description": "This node wants no traffic now"}})
    async def ready(request: Request) -> JSONResponse:
        """Whether this node wants traffic."""
        reason = context.not_ready() or await _store_trouble(context, only_if_down=True)
        if reason:
            content = {"status": "not ready", "reason": _told(request, reason)}
            return JSONResponse(content, status_code=503)
        return JSONResponse({"status": "ready"})

    @router.get("/metrics", responses={200: {"content": {"text/plain": {}}}})
    async def metrics(request: Request) -> Response:
        """Prometheus text; no owners, no names."""
        await authenticate(request, interface="metrics")
        text = generate_latest(context.metrics) + generate_latest(await counted.registry())
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    return router


async def _store_trouble(context: WebContext, *, only_if_down: bool = False) -> str:
    try:
        async with asyncio.timeout(STORE_SECONDS):
            status = await context.store.status()
            # A store on a server is asked; another one reads a clock.
            await context.store.now()
    except StoreLost as error:
        return error.message
    except (StoreError, TimeoutError):
        return _("the store cannot be reached")
    return "" if only_if_down else status.degraded


def _told(request: Request, reason: str) -> str:
    """Nobody is known here, so nobody's preference is."""
    return retold(reason, language_of_headers(request) or ENGLISH)


class _Seen(NamedTuple):
    """What the store said when it was asked last."""

    counts: Counts
    #: Those whose lease is alive.
    nodes: int


class _Counted:
    """Gauges that the store computes."""

    def __init__(self, context: WebContext) -> None:
        self._context = context
        self._seen: _Seen | None = None
        self._at = float("-inf")

    async def registry(self) -> CollectorRegistry:
        now = self._context.clock.monotonic()
        if self._seen is None or now - self._at >= COUNTS_SECONDS:
            self._seen = await self._look()
            self._at = now
        registry = CollectorRegistry()
        registry.register(_Gauges(self._seen))
        return registry

    async def _look(self) -> _Seen | None:
        """None: the store does not answer, which is worth a number, too."""
        store = self._context.store
        try:
            async with asyncio.timeout(STORE_SECONDS):
                counts, now = await store.counts(), await store.now()
                alive = sum(node.lease_until > now for node in await store.nodes())
        except (StoreError, TimeoutError):
            return None
        return _Seen(counts, alive)


class _Gauges(Collector):
    def __init__(self, seen: _Seen | None) -> None:
        self._seen = seen

    def collect(self) -> Iterator[GaugeMetricFamily]:
        up = self._seen is not None
        yield GaugeMetricFamily("chimes_store_up", "1 if the store answers", value=float(up))
        if self._seen is None:
            return
        counts = self._seen.counts
        yield GaugeMetricFamily(
            "chimes_nodes", "Nodes whose lease is alive", value=self._seen.nodes
        )
        schedules = GaugeMetricFamily(
            "chimes_schedules", "Schedules that are not deleted", labels=["state"]
        )
        schedules.add_metric(["enabled"], counts.enabled)
        schedules.add_metric(["paused"], counts.schedules - counts.enabled)
        yield schedules
        yield GaugeMetricFamily("chimes_schedules_due", "Due and not yet fired", value=counts.due)
        runs = GaugeMetricFamily("chimes_runs", "Runs on record", labels=["status"])
        for status in RunStatus:
            runs.add_metric([status.value], counts.runs.get(status, 0))
        yield runs
        outbox = GaugeMetricFamily("chimes_outbox", "Deliveries on record", labels=["state"])
        for state in DeliveryState:
            outbox.add_metric([state.value], counts.deliveries.get(state, 0))
        yield outbox
