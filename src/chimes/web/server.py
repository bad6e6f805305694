"""Builds the HTTP application: native API, compatibility APIs, dashboard and middleware."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from chimes.errors import ChimesError, NotAllowed, QuotaExceeded, StoreError
from chimes.web.api import (
    account,
    agent_callbacks,
    notifications,
    runs,
    schedules,
    system,
    time,
)
from chimes.web.api.streams import StreamCounter
from chimes.web.auth import Authenticator
from chimes.web.compat.base import CompatRouter
from chimes.web.context import WebContext
from chimes.web.health import health_router
from chimes.web.middleware import RequestLimits, ResponseHeaders
from chimes.web.openapi import docs_router, operation_id
from chimes.web.problems import error_response, request_id

_log = logging.getLogger("chimes.http")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
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
    app = FastAPI(
        title="Chimes",
        version=context.version,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=operation_id,
    )
    app.state.context = context
    app.state.authenticator = Authenticator(context)
    app.state.streams = StreamCounter()
    app.state.renderers = [
        (prefix, router.render)
        for router in compat
        if isinstance(router, CompatRouter)
        for prefix in router.prefixes
    ]
    for error in (ChimesError, RequestValidationError, HTTPException):
        app.add_exception_handler(error, _error_response)
    for router in (health_router(context), docs_router(app), *NATIVE_ROUTERS, *compat):
        app.include_router(router)
    # The middleware added last is the outermost.
    if context.settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(context.settings.cors_origins),
            allow_methods=["GET", "POST", "PATCH", "PUT", "DELETE"],
            allow_headers=["*"],
            expose_headers=["ETag", "Link", "Location", "X-Request-Id", "Idempotency-Replayed"],
        )
    app.add_middleware(RequestLimits, context=context)
    app.add_middleware(ResponseHeaders, clock=context.clock)
    return app


async def _error_response(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.status_code == 405:
        allowed = {"Allow": ", ".join(_allowed_methods(request))}
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=allowed)
        error = HTTPException(405, headers=allowed)
    if isinstance(error, NotAllowed | QuotaExceeded) and "actor" in request.scope["state"]:
        await request.app.state.authenticator.audit_refusal(request, request.state.actor, error)
    if isinstance(error, StoreError):
        _log.warning("store error", exc_info=error, extra={"request_id": request_id(request)})
    return await error_response(request, error)


def _allowed_methods(request: Request) -> list[str]:
    """Methods of all routes of this path; Starlette reports those of the first route only."""

    def matches(method: str) -> bool:
        scope = {**request.scope, "method": method}
        return any(route.matches(scope)[0] is Match.FULL for route in request.app.router.routes)

    found = [method for method in METHODS if matches(method)]
    return [*found, *(["HEAD"] if "GET" in found else []), "OPTIONS"]
