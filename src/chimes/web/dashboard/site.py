"""All pages behind one router. Imported with the first request for one (`door.py`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from chimes.errors import NotAuthenticated, StoreError
from chimes.services.insights import ClockWatch
from chimes.services.users import SignInService, UserService
from chimes.web.context import WebContext
from chimes.web.dashboard.account import routes as account_routes
from chimes.web.dashboard.account import telegram as account_telegram
from chimes.web.dashboard.core import lists as core_lists
from chimes.web.dashboard.core.assets import serve_asset
from chimes.web.dashboard.core.auth import (
    Reception,
    arrive,
    arrive_with_form,
    page_before,
    seen_look,
    sign_in_again,
)
from chimes.web.dashboard.core.forms import in_our_words, unsent_in
from chimes.web.dashboard.core.live import Live, events_route
from chimes.web.dashboard.core.locale import speaking_to
from chimes.web.dashboard.core.page_request import HTML_HEADERS, local_address
from chimes.web.dashboard.core.preferences import GUARD, DisplayPreferences, set_cookie
from chimes.web.dashboard.core.router import Page
from chimes.web.dashboard.core.templates import rendered
from chimes.web.dashboard.editor import routes as editor_routes
from chimes.web.dashboard.editor import trial_run as editor_trial_run
from chimes.web.dashboard.inbox import routes as inbox_routes
from chimes.web.dashboard.run import routes as run_routes
from chimes.web.dashboard.runs import routes as runs_routes
from chimes.web.dashboard.schedule import actions as schedule_actions
from chimes.web.dashboard.schedule import definition as schedule_definition
from chimes.web.dashboard.schedule import routes as schedule_routes
from chimes.web.dashboard.schedules import bulk as schedules_bulk
from chimes.web.dashboard.schedules import importer as schedules_importer
from chimes.web.dashboard.schedules import routes as schedules_routes
from chimes.web.dashboard.system import about as system_about
from chimes.web.dashboard.system import access as system_access
from chimes.web.dashboard.system import audit as system_audit
from chimes.web.dashboard.system import channels as system_channels
from chimes.web.dashboard.system import routes as system_routes
from chimes.web.dashboard.system import settings as system_settings
from chimes.web.dashboard.today import routes as today_routes
from chimes.web.problems import Problem, request_id

#: One line each. `new` before `{id}`: the first that matches is taken.
ALL_PAGES = (
    today_routes.pages,
    editor_routes.pages,
    editor_trial_run.pages,
    schedules_routes.pages,
    schedules_bulk.pages,
    schedules_importer.pages,
    schedule_routes.pages,
    schedule_actions.pages,
    schedule_definition.pages,
    runs_routes.pages,
    run_routes.pages,
    inbox_routes.pages,
    account_telegram.pages,
    system_routes.pages,
    system_audit.pages,
    system_access.pages,
    system_channels.pages,
    system_settings.pages,
    system_about.pages,
    core_lists.pages,
    account_routes.pages,
)


class Site:
    def __init__(self, door: WebContext) -> None:
        users = UserService(door.store)
        self._door = door
        self._reception = Reception(
            door=door,
            users=users,
            sign_ins=SignInService(door.store, door.access, users, door.clock),
            clock_watch=ClockWatch(door.store, door.clock),
        )
        self._live = Live(door)
        self._router = Router(
            [
                Route("/ui", _to_start),
                Route("/ui/static/{mark}/{name:path}", serve_asset),
                Route("/ui/events", events_route(self._reception, self._live)),
                *(self._route(page) for pages in ALL_PAGES for page in pages.listed),
            ],
            redirect_slashes=False,
            default=self._unknown,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # What goes wrong on the way is told in the language of the page.
        scope["state"]["language"] = seen_look(self._door, Request(scope)).language
        scope["state"]["listeners"] = self._live.count
        await self._router(scope, receive, send)

    async def _unknown(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Told as to anybody whom we know, in the language that they have chosen."""
        with suppress(StoreError):
            await arrive(self._reception, Request(scope, receive), public=True)
        raise HTTPException(404)

    def _route(self, page: Page) -> Route:
        return Route(f"/ui{page.path}", self._endpoint(page), methods=[page.method])

    def _endpoint(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            if page.method == "GET":
                visit = await arrive(self._reception, request, public=page.public)
                if not visit.partial and not page.public:
                    visit = replace(visit, seen=await self._live.seen_by(visit.actor))
                response = await page.handler(visit)
            else:
                try:
                    visit = await arrive_with_form(self._reception, request, public=page.public)
                except NotAuthenticated:
                    visit = await arrive(self._reception, request, public=True)
                    again = await sign_in_again(visit)
                    if again is None:
                        raise
                    response = again
                else:
                    visit = replace(visit, seen=self._live.last_seen_by(visit.actor))
                    response = await page.handler(visit)
                    self._live.touch()
            if request.scope["state"].get("new_guard"):
                set_cookie(request, response, GUARD, visit.guard)
            return response

        return answer

    def tell(self, request: Request, problem: Problem) -> Response:
        """A problem as a page, or as a line for htmx. The store may be away: nothing is asked."""
        headers = {
            name: value
            for name, value in problem.headers.items()
            if name.lower() != "www-authenticate"
        }
        if problem.status == 401:
            return _to_login(request)
        problem = in_our_words(problem)
        look = _look_known(request) or seen_look(self._door, request)
        partial = request.headers.get("hx-request", "").lower() == "true"
        template = "error_part.html" if partial else "error.html"
        with speaking_to(look, self._door.clock.now()):
            text = rendered(
                template,
                {
                    "problem": problem,
                    "unsent": unsent_in(request, problem),
                    "request_id": request_id(request),
                    "version": self._door.version,
                },
            )
        if partial:
            # Beside the list, not in its place.
            headers |= {"HX-Retarget": "#toasts", "HX-Reswap": "beforeend"}
        headers |= {**HTML_HEADERS, "Content-Language": look.language}
        return HTMLResponse(text, status_code=problem.status, headers=headers)


def _look_known(request: Request) -> DisplayPreferences | None:
    """Of somebody who had come in before it went wrong."""
    look: DisplayPreferences | None = request.scope["state"].get("look")
    return look


async def _to_start(request: Request) -> Response:
    return RedirectResponse("/ui/", status_code=308)


def _to_login(request: Request) -> Response:
    partial = request.headers.get("hx-request", "").lower() == "true"
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    if partial or request.method != "GET":
        wanted = page_before(request)
    address = f"/ui/login?{urlencode({'next': local_address(wanted)})}"
    if partial:
        return Response(status_code=401, headers={"HX-Redirect": address})
    if "text/html" not in request.headers.get("accept", "text/html"):
        return Response(status_code=401)
    return RedirectResponse(address, status_code=303)
