"""The way of every native request: who, what (strictly), whether it is a repeat, then the handler.

In this order, so that a stranger learns nothing from how a body is judged.
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
from chimes.web.api.idempotency import answered_once, idempotency_key
from chimes.web.auth import authenticate
from chimes.web.context import WebContext
from chimes.web.requests import check_query, read_json


class NativeRequest(Request):
    """Its JSON is the strict reading of the body."""

    async def json(self) -> object:
        if not hasattr(self, "_strict"):
            self._strict = await read_json(self)
        return self._strict


class NativeRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def on_the_way(plain: Request) -> Response:
            request = NativeRequest(plain.scope, plain.receive)
            actor = await authenticate(request)
            _check_characters(request)
            body = await request.json() if self.body_field is not None else None
            key = idempotency_key(request)
            if key is None:
                return await handle(request)
            return await answered_once(request, actor, key, body, handle)

        return on_the_way


def _check_characters(request: Request) -> None:
    """No id has a NUL, and some stores would choke on one."""
    if "\0" in request.url.path or any("\0" in str(v) for v in request.path_params.values()):
        raise NotFound()
    check_query(request)


# Coroutines, because a plain function would be called in a thread each time.
async def _context(request: Request) -> WebContext:
    context: WebContext = request.app.state.context
    return context


async def _actor(request: Request) -> Actor:
    actor: Actor = request.state.actor
    return actor


Context = Annotated[WebContext, Depends(_context)]
Caller = Annotated[Actor, Depends(_actor)]
