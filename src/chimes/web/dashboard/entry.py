"""Entry point of the dashboard: loads the pages with the first request.

Jinja, Babel and the pages cost memory and start-up time that a node without dashboard users does
not pay.
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
    def __init__(self, context: WebContext) -> None:
        self._context = context
        self._loading = asyncio.Lock()
        self._loaded = False

    @cached_property
    def _site(self) -> Site:
        from chimes.web.dashboard.site import Site

        return Site(self._context)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._loaded:
            async with self._loading:
                if not self._loaded:
                    # In a thread, so that loading does not delay due schedules.
                    await asyncio.to_thread(_load)
                    self._loaded = True
        await self._site(scope, receive, send)

    def render_problem(self, http: Request, problem: Problem) -> Response:
        return self._site.render_problem(http, problem)


def _load() -> None:
    """Imports all pages, compiles all templates and compresses all assets."""
    from jinja2 import TemplateSyntaxError

    from chimes.web.dashboard import site  # noqa: F401
    from chimes.web.dashboard.core.templates import assets, environment

    assets()
    templates = environment()
    for name in templates.list_templates():
        # A broken template fails when its own page is rendered.
        with suppress(TemplateSyntaxError):
            templates.get_template(name)


def dashboard_router(context: WebContext) -> CompatRouter:
    dashboard = Dashboard(context)
    router = CompatRouter(interface="dashboard", prefixes=("/ui",), render=dashboard.render_problem)
    for path in ("/ui", "/ui/{rest:path}"):
        router.routes.append(Route(path, dashboard, include_in_schema=False))
    return router
