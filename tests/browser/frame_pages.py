"""Trial pages for tests of the page frame: a list with a confirmed action and undo.

Served in this process, together with the real pages.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from jinja2 import FileSystemLoader
from prometheus_client import CollectorRegistry
from starlette.responses import JSONResponse, Response

from chimes.clock import SystemClock
from chimes.config import Settings
from chimes.errors import Conflict
from chimes.i18n import _, counted
from chimes.services.access import AccessService
from chimes.services.runs import RunService
from chimes.services.schedules.rules import ScheduleRules
from chimes.services.schedules.service import ScheduleService
from chimes.store.memory import MemoryStore
from chimes.web.dashboard import site
from chimes.web.dashboard.core.page_request import ConfirmDialog, PageRequest, PageRouter, Undo
from chimes.web.dashboard.core.templates import environment
from chimes.web.requests import WebContext
from chimes.web.server import build_app, dashboard_router

TEMPLATES = Path(__file__).parent / "templates"
HOSTILE = '<img src=x onerror=alert(1)>"></script><svg onload=alert(2)>'


class TrialPages:
    """Routes and data of the trial pages."""

    def __init__(self) -> None:
        self.names = ["one", "two", HOSTILE]
        self.more = False
        self.router = PageRouter()
        self.router.get("/trial")(self.show)
        self.router.get("/trial/newer")(self.newer)
        self.router.post("/trial/remove")(self.remove)
        self.router.post("/trial/add")(self.add)
        self.router.post("/trial/fail")(self.fail)

    async def show(self, request: PageRequest) -> Response:
        if "after" in request.query:
            return request.render_page_or_block(
                "trial.html", "rows", names=["five", "six"], more=""
            )
        more = "/ui/trial?after=4" if self.more else ""
        return request.render_page_or_block("trial.html", "rows", names=self.names, more=more)

    async def newer(self, request: PageRequest) -> Response:
        return JSONResponse({"count": 3, "text": "3 new rows – show"})

    async def remove(self, request: PageRequest) -> Response:
        names = request.form.all("name")
        if not request.is_confirmed:
            return request.confirm(
                ConfirmDialog(
                    title=counted("Remove {count} row?", "Remove {count} rows?", len(names)),
                    button=_("Remove"),
                    names=names,
                    reason=True,
                )
            )
        self.names = [each for each in self.names if each not in names]
        return request.redirect_with_toast(
            _("Removed: {reason}", reason=request.form.text("reason")),
            to=request.back_url("/ui/trial"),
            undo=Undo(action="/ui/trial/add", fields={"name": names[0]}),
        )

    async def add(self, request: PageRequest) -> Response:
        self.names.append(request.form.raw("name"))
        return request.redirect_with_toast(_("There again."), to=request.back_url("/ui/trial"))

    async def fail(self, request: PageRequest) -> Response:
        raise Conflict(_("not now: {name}", name=HOSTILE))


class TrialSite:
    """Like `Site` of conftest, but served in this process."""

    def __init__(self, trial: TrialPages, store: MemoryStore, server: uvicorn.Server) -> None:
        self.trial = trial
        self.store = store
        self._server = server

    @property
    def url(self) -> str:
        port = self._server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"


class _SignallingServer(uvicorn.Server):
    """Sets `ready` when the server accepts connections."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def main_loop(self) -> None:
        self.ready.set()
        await super().main_loop()


@contextmanager
def serve_trial_pages() -> Iterator[TrialSite]:
    trial, clock = TrialPages(), SystemClock()
    store = MemoryStore(clock)
    loader = environment().loader
    assert isinstance(loader, FileSystemLoader)
    context = WebContext(
        schedules=ScheduleService(store, ScheduleRules(store, check_target=lambda target: None)),
        runs=RunService(store),
        access=AccessService(store, clock),
        store=store,
        settings=Settings(),
        clock=clock,
        metrics=CollectorRegistry(),
        version="1.2.3",
        port=0,
        not_ready=lambda: "",
    )
    before = site.PAGE_ROUTERS
    loader.searchpath.append(str(TEMPLATES))
    site.PAGE_ROUTERS = (*before, trial.router)
    app = build_app(context, compat=[dashboard_router(context)])
    config = uvicorn.Config(
        app, port=0, lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=1
    )
    server = _SignallingServer(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        assert server.ready.wait(30)
        yield TrialSite(trial, store, server)
    finally:
        server.should_exit = True
        thread.join(10)
        site.PAGE_ROUTERS = before
        loader.searchpath.remove(str(TEMPLATES))
