"""The way in: two routes, and nothing else of the dashboard until somebody comes.

Jinja, Babel and the pages cost memory and start-up time that a node without visitors does not
pay.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from chimes.web.compat.base import CompatRouter
from chimes.web.context import WebContext
from chimes.web.problems import Problem

if TYPE_CHECKING:
    from chimes.web.dashboard.site import Site


class Dashboard:
    def __init__(self, door: WebContext) -> None:
        self._door = door
        self._first = asyncio.Lock()
        self._ready = False

    @cached_property
    def _site(self) -> Site:
        from chimes.web.dashboard.site import Site

        return Site(self._door)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._ready:
            async with self._first:
                if not self._ready:
                    # In a thread: it takes longer than a schedule may be late.
                    await asyncio.to_thread(_prepare)
                    self._ready = True
        await self._site(scope, receive, send)

    def tell(self, request: Request, problem: Problem) -> Response:
        return self._site.tell(request, problem)


def _prepare() -> None:
    """Everything imported, every template compiled, every asset packed."""
    from jinja2 import TemplateSyntaxError

    from chimes.web.dashboard import site  # noqa: F401
    from chimes.web.dashboard.core.assets import assets
    from chimes.web.dashboard.core.templates import environment

    assets()
    templates = environment()
    for name in templates.list_templates():
        # One that cannot be read is the trouble of its own page.
        with suppress(TemplateSyntaxError):
            templates.get_template(name)


def dashboard_door(door: WebContext) -> CompatRouter:
    dashboard = Dashboard(door)
    router = CompatRouter(door="dashboard", prefixes=("/ui",), render=dashboard.tell)
    for path in ("/ui", "/ui/{rest:path}"):
        router.routes.append(Route(path, dashboard, include_in_schema=False))
    return router
