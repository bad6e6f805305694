"""How a page is added: a `Pages` in its module, and a line in `site.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.responses import Response

from chimes.web.dashboard.core.page_request import PageRequest

Handler = Callable[[PageRequest], Awaitable[Response]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    #: Below /ui; `{id}` as everywhere.
    path: str
    method: str
    handler: Handler
    #: Also for those who have not signed in.
    public: bool = False


class Pages:
    """The routes of one module. `get` changes nothing; `post` has a form with a token (S49)."""

    def __init__(self) -> None:
        self.listed: list[Page] = []

    def get(self, path: str, *, public: bool = False) -> Callable[[Handler], Handler]:
        return self._added(path, "GET", public)

    def post(self, path: str, *, public: bool = False) -> Callable[[Handler], Handler]:
        return self._added(path, "POST", public)

    def _added(self, path: str, method: str, public: bool) -> Callable[[Handler], Handler]:
        def add(handler: Handler) -> Handler:
            self.listed.append(Page(path=path, method=method, handler=handler, public=public))
            return handler

        return add
