"""Builds the HTTP application: native API, compatibility APIs and dashboard."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, FastAPI

from chimes.services.access import ByteBudget
from chimes.web.api import (
    account,
    agent_callbacks,
    notifications,
    route,
    runs,
    schedules,
    system,
    time,
)
from chimes.web.api.streams import StreamCounter
from chimes.web.compat.base import CompatRouter
from chimes.web.context import WebContext
from chimes.web.frame import build_frame
from chimes.web.health import health_router
from chimes.web.openapi import docs_router, operation_id

NATIVE_ROUTERS = (
    schedules.router,
    schedules.action_router,
    runs.router,
    notifications.router,
    notifications.inbox_router,
    time.router,
    account.router,
    account.filter_router,
    system.source_router,
    system.router,
    system.node_router,
    system.user_router,
    notifications.telegram_link_router,
    agent_callbacks.router,
)


def build_app(context: WebContext, *, compat: Sequence[APIRouter] = ()) -> FastAPI:
    """Mounts `compat` routers at the root; a CompatRouter also renders its own errors."""
    renderers = [
        (prefix, router.render)
        for router in compat
        if isinstance(router, CompatRouter)
        for prefix in router.prefixes
    ]
    app = build_frame(context, renderers, generate_unique_id_function=operation_id)
    app.state.streams = StreamCounter()
    app.state.kept_answers = ByteBudget(
        context.store, "answers", limit=route.MAX_KEPT_BYTES, period=route.KEEP
    )
    for router in (health_router(context), docs_router(app), *NATIVE_ROUTERS, *compat):
        app.include_router(router)
    return app
