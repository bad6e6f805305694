"""The frame of the HTTP application: state, error responses and middleware, without the APIs.

The APIs and their schemas cost 11 MB of memory, which a node without API users does not pay.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from chimes.errors import ChimesError, NotAllowed, QuotaExceeded, StoreError
from chimes.web.health import health_router
from chimes.web.middleware import RequestLimits, ResponseHeaders
from chimes.web.problems import Renderer, error_response, request_id
from chimes.web.requests import Authenticator, WebContext

_log = logging.getLogger("chimes.http")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


class LazyApp:
    """An application that is loaded with its first request."""

    def __init__(self, load: Callable[[], ASGIApp]) -> None:
        self._load = load
        self._loading = asyncio.Lock()
        self._loaded: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._loaded is None:
            async with self._loading:
                if self._loaded is None:
                    # In a thread, so that loading does not delay due schedules.
                    self._loaded = await asyncio.to_thread(self._load)
        await self._loaded(scope, receive, send)


class MonitoredApp(LazyApp):
    """Answers requests for health, readiness and metrics itself until another request loads the
    application: monitoring alone does not load it."""

    def __init__(self, context: WebContext, load: Callable[[], ASGIApp]) -> None:
        super().__init__(load)
        self._health = build_frame(context)
        self._health.include_router(router := health_router(context))
        self._paths = {route.path for route in router.routes if isinstance(route, Route)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._loaded is None and scope["path"] in self._paths:
            await self._health(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def build_frame(
    context: WebContext, renderers: Sequence[tuple[str, Renderer]] = (), **options: Any
) -> FastAPI:
    """An application without routes. `renderers`: of errors, by prefix of the path. `options`: for
    FastAPI."""
    app = FastAPI(
        title="Chimes",
        version=context.version,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # Its spans would contain query strings, in which some APIs accept keys; those of
        # `ResponseHeaders` do not.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        **options,
    )
    app.state.context = context
    app.state.authenticator = Authenticator(context)
    app.state.renderers = renderers
    for error in (ChimesError, RequestValidationError, HTTPException):
        app.add_exception_handler(error, _error_response)
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
