"""What a compat door hands to the server: its routes, and its own words for errors."""

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
    """Odd queries are refused before a door reads them, so that none has to think of it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def on_the_way(request: Request) -> Response:
            check_query(request)
            return await handle(request)

        return on_the_way


class CompatRouter(APIRouter):
    """Routes at the root of the server. A problem under one of `prefixes` is told by `render`,
    also when it arises before any route is reached (an oversized body, say)."""

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
