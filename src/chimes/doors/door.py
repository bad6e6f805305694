"""What a compat door hands to the server: its routes, and its own words for errors."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter
from fastapi.routing import APIRoute

from chimes.doors.problems import Renderer


class DoorRouter(APIRouter):
    """Routes at the root of the server. A problem under one of `prefixes` is told by `render`,
    also when it arises before any route is reached (an oversized body, say)."""

    def __init__(
        self,
        *,
        door: str,
        prefixes: Sequence[str],
        render: Renderer,
        route_class: type[APIRoute] = APIRoute,
    ) -> None:
        super().__init__(tags=[door], route_class=route_class)
        self.door = door
        self.prefixes = tuple(prefixes)
        self.render = render
