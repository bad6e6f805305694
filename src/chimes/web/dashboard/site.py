"""Routes of the dashboard, its error pages, and the events that keep open pages up to date.

Imported with the first request to the dashboard.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from urllib.parse import urlencode

from jinja2 import TemplateSyntaxError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from chimes.errors import NotAuthenticated, StoreError
from chimes.services.insights import ClockWatch
from chimes.services.single_sign_on import OidcProvider
from chimes.services.users import SessionService, UserService
from chimes.web.api.streams import empty_stream, event_stream
from chimes.web.dashboard.account import routes as account_routes
from chimes.web.dashboard.approvals import routes as approvals_routes
from chimes.web.dashboard.core import lists as core_lists
from chimes.web.dashboard.core.auth import (
    DashboardServices,
    authenticate_form,
    authenticate_page,
    display_preferences,
    previous_page,
    resendable_form,
    resume_after_login,
    session_is_active,
)
from chimes.web.dashboard.core.page_request import (
    HTML_HEADERS,
    PageRequest,
    PageRoute,
    frame_values,
    local_url,
    reword_problem,
)
from chimes.web.dashboard.core.preferences import GUARD, DisplayPreferences, set_cookie
from chimes.web.dashboard.core.templates import (
    assets,
    environment,
    render_template,
    serve_asset,
    viewer_context,
)
from chimes.web.dashboard.editor import routes as editor_routes
from chimes.web.dashboard.forecast import routes as forecast_routes
from chimes.web.dashboard.inbox import routes as inbox_routes
from chimes.web.dashboard.monitors import routes as monitors_routes
from chimes.web.dashboard.proposals import routes as proposals_routes
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
from chimes.web.dashboard.system import limits as system_limits
from chimes.web.dashboard.system import routes as system_routes
from chimes.web.dashboard.system import settings as system_settings
from chimes.web.dashboard.today import routes as today_routes
from chimes.web.live_updates import LiveUpdates, parse_event_id
from chimes.web.problems import Problem, request_id
from chimes.web.requests import WebContext

#: The first matching route wins: `/schedules/new` precedes `/schedules/{id}`.
PAGE_ROUTERS = (
    today_routes.router,
    editor_routes.router,
    schedules_routes.router,
    schedules_bulk.router,
    schedules_importer.router,
    schedule_routes.router,
    schedule_actions.router,
    schedule_definition.router,
    runs_routes.router,
    run_routes.router,
    monitors_routes.router,
    forecast_routes.router,
    inbox_routes.router,
    proposals_routes.router,
    approvals_routes.router,
    system_routes.router,
    system_audit.router,
    system_access.router,
    system_channels.router,
    system_limits.router,
    system_settings.router,
    system_about.router,
    core_lists.router,
    account_routes.router,
)


def prepare_pages() -> None:
    """Compiles all templates and compresses all assets."""
    assets()
    templates = environment()
    for name in templates.list_templates():
        # A broken template fails when its own page is rendered.
        with suppress(TemplateSyntaxError):
            templates.get_template(name)


class Site:
    def __init__(self, context: WebContext) -> None:
        users = UserService(context.store)
        self._context = context
        self._services = DashboardServices(
            context=context,
            users=users,
            sessions=SessionService(context.store, context.access, users, context.clock),
            oidc=OidcProvider(context.settings, context.clock)
            if context.settings.oidc_issuer
            else None,
            clock_watch=ClockWatch(context.store, context.clock),
        )
        self._live = LiveUpdates(context)
        self._router = Router(
            [
                Route("/ui", _redirect_home),
                Route("/ui/static/{mark}/{name:path}", serve_asset),
                Route("/ui/events", events_route(self._services, self._live)),
                *(self._route(page) for router in PAGE_ROUTERS for page in router.routes),
            ],
            redirect_slashes=False,
            default=self._not_found,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Errors before authentication use the language of cookie and headers.
        display = display_preferences(self._context, Request(scope))
        scope["state"]["language"] = display.language
        scope["state"]["listeners"] = self._live.streams.count
        await self._router(scope, receive, send)

    async def _not_found(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Authenticates first, so that the error page has the user's language."""
        with suppress(StoreError):
            await authenticate_page(self._services, Request(scope, receive), public=True)
        raise HTTPException(404)

    def _route(self, page: PageRoute) -> Route:
        return Route(f"/ui{page.path}", self._endpoint(page), methods=[page.method])

    def _endpoint(self, page: PageRoute) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(http: Request) -> Response:
            if page.method == "GET":
                request = await authenticate_page(self._services, http, public=page.public)
                if not request.is_htmx and not page.public:
                    event_id = await self._live.current_event_id(request.actor)
                    request = replace(request, last_event_id=event_id)
                response = await page.handler(request)
            else:
                try:
                    request = await authenticate_form(self._services, http, public=page.public)
                except NotAuthenticated:
                    request = await authenticate_page(self._services, http, public=True)
                    login = await resume_after_login(request)
                    if login is None:
                        raise
                    response = login
                else:
                    event_id = self._live.cached_event_id(request.actor)
                    request = replace(request, last_event_id=event_id)
                    response = await page.handler(request)
                    self._live.invalidate()
            if http.scope["state"].get("new_csrf_secret"):
                set_cookie(http, response, GUARD, request.csrf_secret)
            return response

        return endpoint

    def render_problem(self, http: Request, problem: Problem) -> Response:
        """An error page, or a toast for htmx. Does not use the store, which may be unavailable."""
        headers = {
            name: value
            for name, value in problem.headers.items()
            if name.lower() != "www-authenticate"
        }
        if problem.status == 401:
            return _redirect_to_login(http)
        problem = reword_problem(problem)
        authenticated: DisplayPreferences | None = http.scope["state"].get("display")
        display = authenticated or display_preferences(self._context, http)
        is_htmx = _is_htmx(http)
        page: PageRequest | None = http.scope["state"].get("page_request")
        # The navigation needs no store, but its pages do.
        framed = page is not None and problem.status < 500 and not is_htmx
        frame = {} if page is None or not framed else frame_values(page)
        with viewer_context(display, self._context.clock.now()):
            text = render_template(
                "error_part.html" if is_htmx else "error.html",
                {
                    **frame,
                    "framed": framed,
                    "toast": None,
                    "problem": problem,
                    "pending": resendable_form(http, problem),
                    "request_id": request_id(http),
                    "version": self._context.version,
                },
            )
        if is_htmx:
            # Shown as a toast; the target of the request keeps its content.
            headers |= {"HX-Retarget": "#toasts", "HX-Reswap": "beforeend"}
        headers |= {**HTML_HEADERS, "Content-Language": display.language}
        return HTMLResponse(text, status_code=problem.status, headers=headers)


def _is_htmx(http: Request) -> bool:
    return http.headers.get("hx-request", "").lower() == "true"


async def _redirect_home(http: Request) -> Response:
    return RedirectResponse("/ui/", status_code=308)


def _redirect_to_login(http: Request) -> Response:
    is_htmx = _is_htmx(http)
    next_url = http.url.path + (f"?{http.url.query}" if http.url.query else "")
    if is_htmx or http.method != "GET":
        next_url = previous_page(http)
    address = f"/ui/login?{urlencode({'next': local_url(next_url)})}"
    if is_htmx:
        return Response(status_code=401, headers={"HX-Redirect": address})
    if "text/html" not in http.headers.get("accept", "text/html"):
        return Response(status_code=401)
    return RedirectResponse(address, status_code=303)


# --- events of open pages -------------------------------------------------------------------------
def events_route(
    services: DashboardServices, live: LiveUpdates
) -> Callable[[Request], Awaitable[Response]]:
    async def events(http: Request) -> Response:
        request = await authenticate_page(services, http)
        live.streams.check_limit(request.actor)
        given = http.headers.get("last-event-id") or http.query_params.get("after", "")
        stream = live.stream(
            request.actor,
            parse_event_id(given),
            lambda: session_is_active(request.context, request.sessions, http),
        )
        if http.scope["state"].get("head"):
            return event_stream(empty_stream())
        return event_stream(stream)

    return events
