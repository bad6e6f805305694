"""Builds the HTTP application: native API, compatibility APIs and dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from chimes.services.access import ByteBudget
from chimes.web.api import (
    account,
    agent_callbacks,
    calendars,
    feeds,
    forecast,
    hooks,
    limits,
    monitors,
    notification_rules,
    notifications,
    proposals,
    route,
    runs,
    schedules,
    secrets,
    system,
    time,
    waits,
)
from chimes.web.api.streams import StreamCounter
from chimes.web.compat.base import CompatRouter
from chimes.web.frame import LazyApp, build_frame
from chimes.web.health import health_router
from chimes.web.live_updates import LiveUpdates
from chimes.web.middleware import BADGE, FEEDS, PING
from chimes.web.openapi import docs_router, operation_id
from chimes.web.pings import ping_router, render_plain
from chimes.web.problems import Problem
from chimes.web.requests import WebContext

if TYPE_CHECKING:
    from chimes.web.dashboard.site import Site

NATIVE_ROUTERS = (
    schedules.router,
    schedules.action_router,
    schedules.set_router,
    runs.router,
    notifications.router,
    notifications.inbox_router,
    notification_rules.routing_router,
    notification_rules.silence_router,
    notification_rules.template_router,
    time.set_router,
    time.router,
    forecast.set_router,
    forecast.router,
    feeds.router,
    account.router,
    account.filter_router,
    secrets.router,
    limits.router,
    calendars.router,
    monitors.import_router,
    monitors.router,
    proposals.set_router,
    proposals.router,
    waits.router,
    waits.event_router,
    waits.graph_router,
    system.source_router,
    system.router,
    system.node_router,
    system.maintenance_router,
    system.user_router,
    notifications.telegram_link_router,
    agent_callbacks.router,
    hooks.router,
)


def build_app(context: WebContext, *, compat: Sequence[APIRouter] = ()) -> FastAPI:
    """Mounts `compat` routers at the root; a CompatRouter also renders its own errors."""
    renderers = [
        (prefix, router.render)
        for router in compat
        if isinstance(router, CompatRouter)
        for prefix in router.prefixes
    ] + [(prefix.rstrip("/"), render_plain) for prefix in (PING, BADGE, FEEDS)]
    app = build_frame(context, renderers, generate_unique_id_function=operation_id)
    app.state.streams = StreamCounter()
    app.state.live_updates = LiveUpdates(context, app.state.streams)
    # The OpenAPI document that a path belongs to, if it is not that of the native API.
    app.state.compat_paths = {
        str(getattr(route, "path", "")): router.interface
        for router in compat
        if isinstance(router, CompatRouter)
        for route in router.routes
    }
    app.state.kept_answers = ByteBudget(
        context.store, "answers", limit=route.MAX_KEPT_BYTES, period=route.KEEP
    )
    for router in (
        health_router(context),
        docs_router(app),
        *NATIVE_ROUTERS,
        ping_router(context),
        feeds.feed_router(context),
        *compat,
    ):
        app.include_router(router)
    return app


def dashboard_router(context: WebContext) -> CompatRouter:
    """The dashboard, imported with the first request to it: Jinja, Babel and the pages cost memory
    and time that a node without dashboard users does not pay."""

    @cache
    def site() -> Site:
        from chimes.web.dashboard.site import Site

        return Site(context)

    def load() -> Site:
        from chimes.web.dashboard.site import prepare_pages

        prepare_pages()
        return site()

    def render(http: Request, problem: Problem) -> Response:
        return site().render_problem(http, problem)

    router = CompatRouter(interface="dashboard", prefixes=("/ui",), render=render)
    dashboard = LazyApp(load)
    for path in ("/ui", "/ui/{rest:path}"):
        router.routes.append(Route(path, dashboard, include_in_schema=False))
    return router
