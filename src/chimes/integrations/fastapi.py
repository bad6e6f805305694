"""Chimes inside a FastAPI (or Starlette) application: a lifespan with a node, the native API and
the dashboard on the same server."""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from chimes.i18n import _
from chimes.sdk.app import Chimes

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[Any]]


def chimes_lifespan(
    app: Chimes,
    *,
    node: bool = True,
    queues: Collection[str] | None = None,
    inner: Lifespan | None = None,
) -> Lifespan:
    """The lifespan of a FastAPI application: opens the application of the SDK, and starts and
    drains a node in this process.

        application = FastAPI(lifespan=chimes_lifespan(app))

    `node`: False for processes that only enqueue, next to `chimes worker`. `queues`: of the node;
    None: all. `inner`: a lifespan of your own, which runs while Chimes is open.
    """

    @asynccontextmanager
    async def lifespan(application: FastAPI) -> AsyncIterator[Any]:
        await (app.start(queues=queues) if node else app.open())
        try:
            if inner is None:
                yield
            else:
                async with inner(application) as state:
                    yield state
        finally:
            await (app.stop() if node else app.close())

    return lifespan


def mount_chimes(application: FastAPI, app: Chimes, *, api: bool = True, ui: bool = True) -> None:
    """Serves the native API under /api/v1 and the dashboard under /ui, which links to both by these
    paths. Routes of the application that were declared before take precedence.

    Without API keys and users (open mode) only clients on this machine are served: everyone else
    could run what they like. Behind a proxy create a key first.
    """
    prefixes = (*(("/api/v1",) if api else ()), *(("/ui",) if ui else ()))
    application.router.routes.append(_ChimesRoutes(app, prefixes))


class _ChimesRoutes(BaseRoute):
    """Passes requests below the prefixes on with their whole path, unlike a mount."""

    def __init__(self, app: Chimes, prefixes: tuple[str, ...]) -> None:
        self._app = app
        self._prefixes = prefixes
        self._served: tuple[object, ASGIApp] | None = None

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path = str(scope.get("path", ""))
        ours = any(path == each or path.startswith(f"{each}/") for each in self._prefixes)
        return (Match.FULL if ours and scope["type"] == "http" else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        runtime = self._app.runtime()
        if await self._refuses(scope):
            text = _("Chimes has no API key yet, so it serves only clients on this machine")
            await JSONResponse({"detail": text}, status_code=403)(scope, receive, send)
            return
        if self._served is None or self._served[0] is not runtime:
            from chimes.runtime.http_server import build_asgi_app

            server = scope.get("server")
            port = int(server[1]) if server and server[1] else runtime.settings.port
            self._served = runtime, build_asgi_app(runtime, self._app.node, port=port)
        await self._served[1](dict(scope), receive, send)

    async def _refuses(self, scope: Scope) -> bool:
        if await self._app.runtime().services.access.auth_enabled():
            return False
        client = scope.get("client")
        try:
            return client is None or not ipaddress.ip_address(client[0]).is_loopback
        except ValueError:
            return True
