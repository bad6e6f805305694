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

from chimes.doors.context import Doorway
from chimes.doors.dashboard import (
    cookies,
    routes_account,
    routes_choices,
    routes_inbox,
    routes_inbox_actions,
    routes_lists,
    routes_palette,
    routes_run,
    routes_run_actions,
    routes_run_log,
    routes_runs,
    routes_runs_bulk,
    routes_runs_export,
    routes_schedule,
    routes_schedule_actions,
    routes_schedule_backfill,
    routes_schedule_definition,
    routes_schedule_deliveries,
    routes_schedules,
    routes_schedules_bulk,
    routes_schedules_import,
    routes_schedules_run,
    routes_system,
    routes_system_about,
    routes_system_access,
    routes_system_audit,
    routes_system_channels,
    routes_system_nodes,
    routes_system_settings,
    routes_telegram,
    routes_today,
    routes_today_actions,
    routes_today_attention,
    routes_wizard,
    routes_wizard_trial,
)
from chimes.doors.dashboard.assets import serve_asset
from chimes.doors.dashboard.entering import (
    Reception,
    arrive,
    arrive_with_form,
    seen_look,
)
from chimes.doors.dashboard.live import Live, events_route
from chimes.doors.dashboard.look import Look
from chimes.doors.dashboard.pages import Page
from chimes.doors.dashboard.refusing import in_our_words, unsent_in
from chimes.doors.dashboard.signed_out import page_before, sign_in_again
from chimes.doors.dashboard.speaking import speaking_to
from chimes.doors.dashboard.templating import rendered
from chimes.doors.dashboard.visit import HTML_HEADERS, local_address
from chimes.doors.problems import Problem, request_id
from chimes.errors import NotAuthenticated, StoreError
from chimes.service.clock_watch import ClockWatch
from chimes.service.signins import SignInService
from chimes.service.users import UserService

#: One line each. `new` before `{id}`: the first that matches is taken.
ALL_PAGES = (
    routes_today.pages,
    routes_today_actions.pages,
    routes_today_attention.pages,
    routes_wizard.pages,
    routes_wizard_trial.pages,
    routes_schedules.pages,
    routes_schedules_bulk.pages,
    routes_schedules_import.pages,
    routes_schedules_run.pages,
    routes_schedule.pages,
    routes_schedule_actions.pages,
    routes_schedule_definition.pages,
    routes_schedule_deliveries.pages,
    routes_schedule_backfill.pages,
    routes_runs.pages,
    routes_runs_bulk.pages,
    routes_runs_export.pages,
    routes_run.pages,
    routes_run_actions.pages,
    routes_run_log.pages,
    routes_inbox.pages,
    routes_inbox_actions.pages,
    routes_telegram.pages,
    routes_system.pages,
    routes_system_nodes.pages,
    routes_system_audit.pages,
    routes_system_access.pages,
    routes_system_channels.pages,
    routes_system_settings.pages,
    routes_system_about.pages,
    routes_lists.pages,
    routes_palette.pages,
    routes_choices.pages,
    routes_account.pages,
)


class Site:
    def __init__(self, door: Doorway) -> None:
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
                cookies.set_cookie(request, response, cookies.GUARD, visit.guard)
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


def _look_known(request: Request) -> Look | None:
    """Of somebody who had come in before it went wrong."""
    look: Look | None = request.scope["state"].get("look")
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
