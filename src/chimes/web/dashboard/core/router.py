"""Router of dashboard pages: each page module declares one, and `site.py` mounts it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.responses import Response

from chimes.web.dashboard.core.page_request import PageRequest

Handler = Callable[[PageRequest], Awaitable[Response]]


@dataclass(frozen=True, kw_only=True, slots=True)
class PageRoute:
    #: Path below /ui, with `{parameters}`.
    path: str
    method: str
    handler: Handler
    #: Whether the page needs no session.
    public: bool = False


class PageRouter:
    """The routes of one module. GET handlers change nothing; POST handlers get a form whose CSRF
    token was checked."""

    def __init__(self) -> None:
        self.routes: list[PageRoute] = []

    def get(self, path: str, *, public: bool = False) -> Callable[[Handler], Handler]:
        return self._register(path, "GET", public)

    def post(self, path: str, *, public: bool = False) -> Callable[[Handler], Handler]:
        return self._register(path, "POST", public)

    def _register(self, path: str, method: str, public: bool) -> Callable[[Handler], Handler]:
        def register(handler: Handler) -> Handler:
            self.routes.append(PageRoute(path=path, method=method, handler=handler, public=public))
            return handler

        return register
