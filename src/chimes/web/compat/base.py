"""Router of a compatibility API: routes at the server root and its own error format."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from chimes.web.problems import Renderer
from chimes.web.requests import check_query


class CompatRoute(APIRoute):
    """Checks the query parameters before the handler."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            check_query(request)
            return await handle(request)

        return checked


class CompatRouter(APIRouter):
    """Routes at the root of the server. `render` renders problems under one of `prefixes`, also
    those that arise before routing, such as an oversized body."""

    def __init__(
        self,
        *,
        interface: str,
        prefixes: Sequence[str],
        render: Renderer,
        route_class: type[APIRoute] = CompatRoute,
    ) -> None:
        super().__init__(tags=[interface], route_class=route_class)
        self.interface = interface
        self.prefixes = tuple(prefixes)
        self.render = render
