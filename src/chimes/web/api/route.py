"""Route class of the native API: authentication, strict body, idempotency, then the handler.

Authentication comes first, so that validation tells unauthenticated callers nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from chimes.errors import NotFound
from chimes.model.access import Actor
from chimes.web.api.idempotency import idempotency_key, respond_once
from chimes.web.auth import authenticate
from chimes.web.context import WebContext
from chimes.web.requests import check_query, read_json


class NativeRequest(Request):
    """Parses the body with `strict_json`."""

    async def json(self) -> object:
        if not hasattr(self, "_strict"):
            self._strict = await read_json(self)
        return self._strict


class NativeRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def checked(plain: Request) -> Response:
            request = NativeRequest(plain.scope, plain.receive)
            actor = await authenticate(request)
            _check_characters(request)
            body = await request.json() if self.body_field is not None else None
            key = idempotency_key(request)
            if key is None:
                return await handle(request)
            return await respond_once(request, actor, key, body, handle)

        return checked


def _check_characters(request: Request) -> None:
    """A NUL in the path is 404: no id has one, and some stores fail on it."""
    if "\0" in request.url.path or any("\0" in str(v) for v in request.path_params.values()):
        raise NotFound()
    check_query(request)


# Coroutines, because FastAPI calls plain functions in a thread.
async def _context(request: Request) -> WebContext:
    context: WebContext = request.app.state.context
    return context


async def _actor(request: Request) -> Actor:
    actor: Actor = request.state.actor
    return actor


Context = Annotated[WebContext, Depends(_context)]
Caller = Annotated[Actor, Depends(_actor)]
