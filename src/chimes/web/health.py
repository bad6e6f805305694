"""Health, readiness and metrics endpoints."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chimes.errors import StoreError, StoreLost
from chimes.i18n import ENGLISH, _, in_language
from chimes.model.listing import Counts
from chimes.model.monitor import MonitorStatus
from chimes.model.notification import DeliveryState
from chimes.model.run import RunStatus
from chimes.services.monitors import MonitorDocuments
from chimes.web.requests import WebContext, authenticate, language_of_headers

#: A reference, because the models would load the APIs.
_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemOut"}}}
_HEALTH: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/HealthOut"}}}}
}
_READINESS = {"application/json": {"schema": {"$ref": "#/components/schemas/ReadinessOut"}}}
_READY: dict[int | str, dict[str, Any]] = {
    200: {"content": _READINESS},
    503: {"description": "This node should get no traffic", "content": _READINESS},
}
_METRICS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
    401: {"description": "A valid key is required", "content": _PROBLEM},
    403: {"description": "The key does not have the right to do that", "content": _PROBLEM},
    429: {"description": "Too many requests", "content": _PROBLEM},
    503: {"description": "The store cannot answer at the moment", "content": _PROBLEM},
}
STORE_SECONDS = 2.0
#: Counts are cached for this long: they cost the store more than a scrape should.
COUNTS_SECONDS = 5.0


def health_router(context: WebContext) -> APIRouter:
    router = APIRouter(tags=["operations"])
    store_gauges = _StoreGauges(context)

    @router.get("/health", responses=_HEALTH)
    async def get_health(request: Request) -> JSONResponse:
        """Liveness of the process; 200 even when it is degraded."""
        # Ksana clients expect exactly this body from a healthy node.
        reason = _translated(request, await _store_problem(context))
        state = {"status": "degraded", "reason": reason} if reason else {"status": "ok"}
        return JSONResponse(state)

    @router.get("/ready", responses=_READY)
    async def get_readiness(request: Request) -> JSONResponse:
        """Readiness of this node for traffic."""
        reason = context.not_ready() or await _store_problem(context, ignore_degraded=True)
        if reason:
            content = {"status": "not ready", "reason": _translated(request, reason)}
            return JSONResponse(content, status_code=503)
        return JSONResponse({"status": "ready"})

    @router.get("/metrics", responses=_METRICS, response_class=Response)
    async def get_metrics(request: Request) -> Response:
        """Metrics in the Prometheus text format."""
        await authenticate(request, interface="metrics")
        text = generate_latest(context.metrics) + generate_latest(await store_gauges.registry())
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    return router


async def _store_problem(context: WebContext, *, ignore_degraded: bool = False) -> str:
    try:
        async with asyncio.timeout(STORE_SECONDS):
            status = await context.store.status()
            # A query on a database server; a clock reading on other stores.
            await context.store.now()
    except StoreLost as error:
        return error.message
    except (StoreError, TimeoutError):
        return _("the store cannot be reached")
    return "" if ignore_degraded else status.degraded


def _translated(request: Request, reason: str) -> str:
    """Translates by the headers only: the caller is not authenticated here."""
    return in_language(reason, language_of_headers(request) or ENGLISH)


class _StoreCounts(NamedTuple):
    """Counts as the store last reported them."""

    counts: Counts
    #: Those whose lease is alive.
    nodes: int
    monitors: Mapping[MonitorStatus, int]


class _StoreGauges:
    """Gauges computed by the store, cached for COUNTS_SECONDS."""

    def __init__(self, context: WebContext) -> None:
        self._context = context
        self._counts: _StoreCounts | None = None
        self._read_at = float("-inf")

    async def registry(self) -> CollectorRegistry:
        now = self._context.clock.monotonic()
        if self._counts is None or now - self._read_at >= COUNTS_SECONDS:
            self._counts = await self._read()
            self._read_at = now
        registry = CollectorRegistry()
        registry.register(_GaugeCollector(self._counts))
        return registry

    async def _read(self) -> _StoreCounts | None:
        """None if the store does not answer; `chimes_store_up` is then 0."""
        store = self._context.store
        try:
            async with asyncio.timeout(STORE_SECONDS):
                counts, now = await store.counts(), await store.now()
                alive = sum(node.lease_until > now for node in await store.nodes())
                index = await MonitorDocuments(store).read_index()
        except (StoreError, TimeoutError):
            return None
        return _StoreCounts(counts, alive, Counter(each.status for each in index))


class _GaugeCollector(Collector):
    def __init__(self, counts: _StoreCounts | None) -> None:
        self._counts = counts

    def collect(self) -> Iterator[GaugeMetricFamily]:
        up = self._counts is not None
        yield GaugeMetricFamily("chimes_store_up", "1 if the store answers", value=float(up))
        if self._counts is None:
            return
        counts = self._counts.counts
        yield GaugeMetricFamily(
            "chimes_nodes", "Nodes whose lease is alive", value=self._counts.nodes
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
        monitors = GaugeMetricFamily("chimes_monitors", "Monitors on record", labels=["status"])
        for each in MonitorStatus:
            monitors.add_metric([each.value], self._counts.monitors.get(each, 0))
        yield monitors
