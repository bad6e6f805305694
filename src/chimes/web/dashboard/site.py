"""Routes of the dashboard, its error pages, and the events that keep open pages up to date.

Imported with the first request to the dashboard.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from jinja2 import TemplateSyntaxError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from chimes.errors import NotAuthenticated, RateLimited, StoreError
from chimes.model.access import Actor, Owner
from chimes.services.insights import TOPICS, ClockWatch
from chimes.services.users import SessionService, UserService
from chimes.web.api.streams import StreamCounter
from chimes.web.dashboard.account import routes as account_routes
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
    PageRoute,
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
    inbox_routes.router,
    system_routes.router,
    system_audit.router,
    system_access.router,
    system_channels.router,
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
        with viewer_context(display, self._context.clock.now()):
            text = render_template(
                "error_part.html" if is_htmx else "error.html",
                {
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
# Server-sent events tell open tabs which topics have changed. They carry no data: the page requests
# what changed, with the permissions of its user. Stores do not push every change, so while tabs are
# connected a few indexed queries are made every two seconds, shared by all streams with the same
# permissions. The id of an event is a fingerprint of the state, so that a tab that reconnects, to
# any node, gets the events it missed. A page carries the id from before it was rendered, so that no
# change is lost between rendering and connecting.

#: Seconds between two polls of the store; the minimum applies after a local change.
POLL_INTERVAL, MIN_POLL_INTERVAL = 2.0, 1.0
HEARTBEAT_INTERVAL = 10.0
#: Maximum age in seconds of the snapshot that a page refers to. With an older one, more events
#: would repeat what the page shows already.
MAX_SNAPSHOT_AGE = 5.0
#: Pollers that are kept, one per owner.
MAX_POLLERS = 256
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of the store as one fingerprint per topic."""

    fingerprints: tuple[str, ...]

    @property
    def id(self) -> str:
        return ".".join(self.fingerprints)

    def changed_since(self, other: Snapshot) -> tuple[str, ...]:
        pairs = zip(TOPICS, self.fingerprints, other.fingerprints, strict=True)
        return tuple(topic for topic, mine, theirs in pairs if mine != theirs)


def parse_event_id(text: str) -> Snapshot | None:
    """From `Last-Event-ID`; None if it is invalid."""
    parts = tuple(text.split("."))
    valid = len(parts) == len(TOPICS) and all(len(part) == 8 and part.isalnum() for part in parts)
    return Snapshot(parts) if valid else None


class ChangePoller:
    """Polls the store on behalf of all streams with the same permissions."""

    def __init__(self, context: WebContext, actor: Actor) -> None:
        self._clock = context.clock
        self._detector = context.change_detector(actor)
        self._latest: Snapshot | None = None
        self._polled_at = float("-inf")
        self._local_changes = -1
        self._invalidated = False
        self._lock = asyncio.Lock()
        self.streams = 0

    async def poll(self) -> Snapshot:
        """At most two seconds old, or one second after a local change. StoreError."""
        async with self._lock:
            age = self._age()
            changed = self._invalidated or self._detector.local_changes() != self._local_changes
            if (
                self._latest is None
                or age >= POLL_INTERVAL
                or (age >= MIN_POLL_INTERVAL and changed)
            ):
                return await self._take_snapshot()
            return self._latest

    async def snapshot_for_page(self) -> Snapshot:
        """For a page that is about to be rendered: not newer than the page, and includes the
        actions of this process. StoreError."""
        async with self._lock:
            if self._latest is None or self._invalidated or self._age() > MAX_SNAPSHOT_AGE:
                return await self._take_snapshot()
            return self._latest

    @property
    def latest_id(self) -> str:
        return "" if self._latest is None else self._latest.id

    def invalidate(self) -> None:
        self._invalidated = True

    def _age(self) -> float:
        return self._clock.monotonic() - self._polled_at

    async def _take_snapshot(self) -> Snapshot:
        local_changes, self._invalidated = self._detector.local_changes(), False
        self._latest = Snapshot(await self._detector.fingerprints())
        self._polled_at, self._local_changes = self._clock.monotonic(), local_changes
        return self._latest


class LiveUpdates:
    """All event streams of this server."""

    def __init__(self, context: WebContext) -> None:
        self._context = context
        #: Least recently used first.
        self._pollers: dict[Owner | None, ChangePoller] = {}
        #: Apart from the streams of logs, with the same limits.
        self.streams = StreamCounter()

    async def current_event_id(self, actor: Actor) -> str:
        """The id from which the stream of a page resumes; empty if the store is unavailable."""
        try:
            return (await self._poller(actor).snapshot_for_page()).id
        except StoreError:
            return ""

    def cached_event_id(self, actor: Actor) -> str:
        """As `current_event_id` without polling, for a form that is shown again; empty before the
        first poll."""
        poller = self._pollers.get(_owner_of(actor))
        return poller.latest_id if poller is not None else ""

    def invalidate(self) -> None:
        """After an action, whose result the next page shows already."""
        for poller in self._pollers.values():
            poller.invalidate()

    def _poller(self, actor: Actor) -> ChangePoller:
        owner = _owner_of(actor)
        poller = self._pollers.pop(owner, None) or ChangePoller(self._context, actor)
        self._pollers[owner] = poller
        if len(self._pollers) > MAX_POLLERS:
            idle = next((name for name, each in self._pollers.items() if not each.streams), owner)
            if idle != owner:
                del self._pollers[idle]
        return poller

    async def stream(
        self, actor: Actor, known: Snapshot | None, is_active: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[str]:
        poller = self._poller(actor)
        poller.streams += 1
        try:
            with self.streams.open(actor):
                yield "retry: 1000\n\n"
                async for event in self._events(poller, known, is_active):
                    yield event
        except RateLimited:
            yield "retry: 10000\n\n"
        finally:
            poller.streams -= 1

    async def _events(
        self,
        poller: ChangePoller,
        known: Snapshot | None,
        is_active: Callable[[], Awaitable[bool]],
    ) -> AsyncIterator[str]:
        clock = self._context.clock
        last_heartbeat = float("-inf")
        while self._context.not_ready() != "draining":
            try:
                snapshot = await poller.poll()
            except StoreError:
                # The page shows that it is not live, because heartbeats are missing.
                await asyncio.sleep(POLL_INTERVAL)
                continue
            for topic in snapshot.changed_since(known) if known is not None else ():
                yield f"id: {snapshot.id}\nevent: {topic}.changed\ndata: {{}}\n\n"
            if clock.monotonic() - last_heartbeat >= HEARTBEAT_INTERVAL or known is None:
                if not await is_active():
                    return
                last_heartbeat = clock.monotonic()
                # An event and not a comment, because scripts cannot see comments.
                yield f"id: {snapshot.id}\nevent: beat\ndata: {{}}\n\n"
            known = snapshot
            await asyncio.sleep(MIN_POLL_INTERVAL)


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
            return Response(media_type="text/event-stream", headers=_HEADERS)
        return StreamingResponse(stream, media_type="text/event-stream", headers=_HEADERS)

    return events


def _owner_of(actor: Actor) -> Owner | None:
    """None for an actor who sees the objects of all owners."""
    return None if actor.sees_everything else actor.owner
