"""The HTTP server: all doors behind the same walls."""

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
from chimes.web.api.streams import Followers
from chimes.web.auth import Authenticator
from chimes.web.compat.base import CompatRouter
from chimes.web.context import WebContext
from chimes.web.health import operations
from chimes.web.middleware import Envelope, RequestLimits
from chimes.web.openapi import documentation, operation_name
from chimes.web.problems import answer_to, request_id

_log = logging.getLogger("chimes.http")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
NATIVE_ROUTERS = (
    schedules.router,
    schedules.router_actions,
    runs.router,
    notifications.router,
    notifications.router_inbox,
    time.router,
    account.router,
    account.router_filters,
    system.router_sources,
    system.router,
    system.router_nodes,
    system.router_users,
    notifications.router_telegram,
    agent_callbacks.router,
)


def build_app(context: WebContext, *, compat: Sequence[APIRouter] = ()) -> FastAPI:
    """`compat` routers are mounted at the root; a CompatRouter also words its own errors."""
    app = FastAPI(
        title="Chimes",
        version=context.version,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=operation_name,
    )
    app.state.context = context
    app.state.authenticator = Authenticator(context)
    app.state.followers = Followers()
    app.state.renderers = [
        (prefix, router.render)
        for router in compat
        if isinstance(router, CompatRouter)
        for prefix in router.prefixes
    ]
    for error in (ChimesError, RequestValidationError, HTTPException):
        app.add_exception_handler(error, _answer)
    for router in (operations(context), documentation(app), *NATIVE_ROUTERS, *compat):
        app.include_router(router)
    # The last one added is the outermost.
    if context.settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(context.settings.cors_origins),
            allow_methods=["GET", "POST", "PATCH", "PUT", "DELETE"],
            allow_headers=["*"],
            expose_headers=["ETag", "Link", "Location", "X-Request-Id", "Idempotency-Replayed"],
        )
    app.add_middleware(RequestLimits, context=context)
    app.add_middleware(Envelope, clock=context.clock)
    return app


async def _answer(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.status_code == 405:
        allowed = {"Allow": ", ".join(_allowed_methods(request))}
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=allowed)
        error = HTTPException(405, headers=allowed)
    if isinstance(error, NotAllowed | QuotaExceeded) and "actor" in request.scope["state"]:
        await request.app.state.authenticator.refused(request, request.state.actor, error)
    if isinstance(error, StoreError):
        _log.warning("the store failed", exc_info=error, extra={"request_id": request_id(request)})
    return await answer_to(request, error)


def _allowed_methods(request: Request) -> list[str]:
    """Of all routes of this path; the framework names those of the first one only."""

    def matches(method: str) -> bool:
        scope = {**request.scope, "method": method}
        return any(route.matches(scope)[0] is Match.FULL for route in request.app.router.routes)

    found = [method for method in METHODS if matches(method)]
    return [*found, *(["HEAD"] if "GET" in found else []), "OPTIONS"]
