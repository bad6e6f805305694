"""Authentication of dashboard requests, CSRF protection, and resuming a form after login.

In open mode the local machine needs no login; otherwise a session cookie is required.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from chimes.errors import InvalidInput, NotAuthenticated, NotFound, RateLimited, StoreError
from chimes.i18n import Message, _
from chimes.model.access import ANONYMOUS_OWNER, Actor, Role
from chimes.services.insights import ClockWatch
from chimes.services.preferences import Preferences
from chimes.services.single_sign_on import PROXY_ISSUER, Identity, OidcProvider
from chimes.services.users import INTERFACE, Session, SessionService, UserService
from chimes.web.dashboard.core import preferences as cookies
from chimes.web.dashboard.core.page_request import HOME, Form, PageRequest, local_url, read_form
from chimes.web.dashboard.core.preferences import COOKIE, DisplayPreferences, resolve_display
from chimes.web.middleware import TRUSTED_PROXY
from chimes.web.problems import Problem
from chimes.web.requests import Authenticator, RequestRejected, WebContext

#: Actor of a request without a session; only the login page accepts it.
ANONYMOUS = Actor(owner=ANONYMOUS_OWNER, role=Role.VIEWER, interface=INTERFACE)
CSRF_FIELD, CSRF_HEADER = "csrf", "x-chimes-form"


@dataclass(frozen=True, kw_only=True, slots=True)
class DashboardServices:
    """Objects that all requests of the dashboard share."""

    context: WebContext
    users: UserService
    sessions: SessionService
    oidc: OidcProvider | None
    clock_watch: ClockWatch


async def authenticate_page(
    services: DashboardServices, http: Request, *, public: bool = False
) -> PageRequest:
    """Raises NotAuthenticated without a valid session, unless the page is `public`."""
    context = services.context
    _check_characters(http)
    try:
        actor, session = await _authenticate(context, services.sessions, http)
    except NotAuthenticated:
        if not public:
            raise
        actor, session = ANONYMOUS, None
    http.state.actor = actor
    preferred = await context.preferences.get(actor.owner) if session is not None else None
    display = display_preferences(context, http, preferred)
    http.state.language, http.state.display = display.language, display
    page_request = PageRequest(
        http=http,
        context=context,
        users=services.users,
        sessions=services.sessions,
        oidc=services.oidc,
        clock_watch=services.clock_watch,
        actor=actor,
        session=session,
        display=display,
        now=await context.now(),
        csrf_secret=_csrf_secret(http, session),
    )
    if actor is not ANONYMOUS:
        # For an error page with the navigation.
        http.state.page_request = page_request
    return page_request


async def authenticate_form(
    services: DashboardServices, http: Request, *, public: bool = False
) -> PageRequest:
    """As `authenticate_page`, for a POST: reads the form and checks its CSRF token."""
    if http.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise _foreign_form()
    try:
        request = await authenticate_page(services, http, public=public)
    except (RateLimited, StoreError):
        await _keep_unauthenticated_form(http)
        raise
    except NotAuthenticated:
        with suppress(RequestRejected, InvalidInput):
            await _keep_unauthenticated_form(http, signed_out=True)
        raise
    form: Form = await read_form(http)
    # The page of a public form may have been loaded before or after a login.
    secrets = (request.csrf_secret, *_cookie_secrets(http)) if public else (request.csrf_secret,)
    if not any(cookies.token_matches(secret, _given_token(http, form)) for secret in secrets):
        if request.session is not None and _is_same_origin(http):
            # The user signed in again in another tab: offer to send the form again.
            keep_pending_form(http, form, request.csrf_secret)
        raise _foreign_form()
    keep_pending_form(http, form, request.csrf_secret)
    return replace(request, form=form)


async def _keep_unauthenticated_form(http: Request, *, signed_out: bool = False) -> None:
    """Keeps a form whose user is not authenticated but whose token is valid."""
    form = await read_form(http)
    for secret in _cookie_secrets(http):
        if cookies.token_matches(secret, _given_token(http, form)):
            keep_pending_form(http, form, secret)
            return
    if signed_out and not cookies.cookie(http, cookies.SESSION) and _is_same_origin(http):
        # The session cookie has expired, so there is no secret to check the token with.
        keep_pending_form(http, form, "")


def _cookie_secrets(http: Request) -> tuple[str, str]:
    return cookies.cookie(http, cookies.SESSION), cookies.cookie(http, cookies.GUARD)


def _is_same_origin(http: Request) -> bool:
    """Whether the browser states that the request comes from a page of this server. Other sites
    cannot forge the header; older browsers do not send it."""
    return http.headers.get("sec-fetch-site") == "same-origin"


def _given_token(http: Request, form: Form) -> str:
    return form.text(CSRF_FIELD) or http.headers.get(CSRF_HEADER, "")


def _check_characters(http: Request) -> None:
    """Rejects NUL characters: no name contains one, and some stores fail on them."""
    if "\0" in http.url.path or any("\0" in str(v) for v in http.path_params.values()):
        raise NotFound()
    if any("\0" in part for pair in http.query_params.multi_items() for part in pair):
        raise InvalidInput(_("a parameter contains a NUL character"), code="bad_character")


def display_preferences(
    context: WebContext, http: Request, preferred: Preferences | None = None
) -> DisplayPreferences:
    return resolve_display(
        http.cookies.get(COOKIE, ""),
        accept_language=",".join(http.headers.getlist("accept-language")),
        default_zone=context.settings.default_timezone,
        preferred=preferred,
    )


async def _authenticate(
    context: WebContext, sessions: SessionService, http: Request, *, counted: bool = True
) -> tuple[Actor, Session | None]:
    authenticator: Authenticator = http.app.state.authenticator
    if not await context.access.auth_enabled():
        try:
            return await authenticator.authenticate(http, interface=INTERFACE, accepts=()), None
        except NotAuthenticated:
            raise _open_mode_behind_proxy() from None
    secret = cookies.cookie(http, cookies.SESSION)
    if not secret:
        raise NotAuthenticated(presented=False)
    address = http.client.host if http.client else ""
    session = await sessions.authenticate(secret, address=address)
    if session.user is not None and session.user.issuer == PROXY_ISSUER:
        named = proxy_identity(context, http)
        if named is None or named.name != session.user.name:
            # The proxy names another user now, or the request did not come through it.
            raise NotAuthenticated()
    if counted:
        await authenticator.count(http, session.actor)
    return authenticator.with_visibility(session.actor), session


def proxy_identity(context: WebContext, http: Request) -> Identity | None:
    """The user that a trusted proxy has authenticated, or None."""
    settings = context.settings
    if not settings.proxy_user_header or not http.scope.get(TRUSTED_PROXY):
        return None
    names = http.headers.getlist(settings.proxy_user_header)
    # A second header would be one that the client sent and the proxy passed on.
    if len(names) != 1 or not names[0].strip():
        return None
    groups: tuple[str, ...] = ()
    if settings.proxy_groups_header:
        given = http.headers.getlist(settings.proxy_groups_header)
        if len(given) > 1:
            return None
        groups = tuple(filter(None, (each.strip() for each in ",".join(given).split(","))))
    name = names[0].strip()
    return Identity(issuer=PROXY_ISSUER, subject=name, name=name, groups=groups)


def _csrf_secret(http: Request, session: Session | None) -> str:
    """The secret of the session; without a session a cookie that is set with the page."""
    if session is not None:
        return cookies.cookie(http, cookies.SESSION)
    state = http.scope["state"]
    if "guard" not in state:
        given = cookies.cookie(http, cookies.GUARD)
        state["guard"] = given or cookies.new_csrf_secret()
        state["new_csrf_secret"] = not given
    secret: str = state["guard"]
    return secret


def _foreign_form() -> RequestRejected:
    return RequestRejected(
        403,
        FOREIGN_FORM,
        _("This form is out of date or comes from another site. Reload the page and try again."),
    )


def _open_mode_behind_proxy() -> RequestRejected:
    return RequestRejected(
        403,
        "open_behind_a_proxy",
        _(
            "Without users or API keys, only this machine has access, and this request came "
            "through a proxy. Create a user with `chimes user create NAME`, then sign in."
        ),
    )


async def session_is_active(context: WebContext, sessions: SessionService, http: Request) -> bool:
    """Whether an open event stream may continue: its session can be revoked meanwhile."""
    try:
        await _authenticate(context, sessions, http, counted=False)
    except NotAuthenticated:
        return False
    except (RateLimited, StoreError):
        return True
    return True


#: Code of the problem of a form with an invalid CSRF token.
FOREIGN_FORM = "foreign_form"
#: Statuses after which sending the same form again can succeed.
_TRANSIENT_STATUSES = frozenset({409, 412, 429, 500, 503})
_SECRET_FIELDS = frozenset({"csrf", "password", "key", "signing_secret"})


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingForm:
    """A form that was not processed because of a transient error; the error page can send it
    again."""

    action: str
    csrf: str
    fields: tuple[tuple[str, str], ...]

    @property
    def has_input(self) -> bool:
        return any(name != "back" for name, _value in self.fields)


def keep_pending_form(http: Request, form: Form, csrf_secret: str) -> None:
    """Keeps the form for an error page, without passwords and keys."""
    http.state.pending_form = PendingForm(
        action=http.url.path,
        csrf=cookies.form_token(csrf_secret),
        fields=tuple(pair for pair in form.items() if pair[0] not in _SECRET_FIELDS),
    )


def pending_form_of(http: Request) -> PendingForm | None:
    pending: PendingForm | None = getattr(http.state, "pending_form", None)
    return pending


def resendable_form(http: Request, problem: Problem) -> PendingForm | None:
    """The form that the error page of the problem offers to send again."""
    can_retry = problem.status in _TRANSIENT_STATUSES or problem.code == FOREIGN_FORM
    return pending_form_of(http) if can_retry else None


# Resume after login: a form whose session has ended is carried through the login page, and can be
# sent from the page after it.

#: Public forms, which never need to be resumed.
_PUBLIC_ACTIONS = frozenset({"/ui/login", "/ui/logout", "/ui/look"})


async def resume_after_login(request: PageRequest) -> Response | None:
    """The login page with the form of a user whose session has ended; None if there is no form to
    keep or the client does not accept HTML."""
    pending = pending_form_of(request.http)
    if pending is None or "text/html" not in request.http.headers.get("accept", "text/html"):
        return None
    if not request.is_htmx:
        return await render_login(request, previous_page(request.http), pending=pending, status=401)
    if not pending.has_input:
        return None
    # The page keeps the user's input; a toast offers the login. The next htmx request replaces the
    # toast by one with the newer input.
    response = request.render_block(
        "account/session_ended.html", "part", status=401, pending=pending
    )
    response.headers.update({"HX-Retarget": "#toasts", "HX-Reswap": "beforeend"})
    return response


async def render_login(
    request: PageRequest,
    next_url: str,
    error: Message | None = None,
    *,
    pending: PendingForm | None = None,
    status: int = 200,
) -> Response:
    return request.render(
        "account/login.html",
        status=status,
        next=next_url,
        error=error,
        name=request.form.text("user"),
        with_users=await request.users.has_users(),
        sign_in_elsewhere=None
        if request.oidc is None
        else _("Sign in with {name}", name=request.oidc.display_name),
        pending=pack_pending_form(pending) if pending is not None else "",
    )


def pack_pending_form(pending: PendingForm) -> str:
    """The value of one hidden field, without the CSRF token, which ends with the session."""
    return json.dumps([pending.action, pending.fields], ensure_ascii=False)


def unpack_pending_form(text: str) -> PendingForm | None:
    """None unless the text is a packed form of a dashboard page."""
    try:
        action, fields = json.loads(text)
        pairs = tuple((name, value) for name, value in fields)
    except (ValueError, TypeError, RecursionError):
        return None
    if not isinstance(action, str) or local_url(action, "") != action or action in _PUBLIC_ACTIONS:
        return None
    if not all(isinstance(part, str) and "\0" not in part for pair in pairs for part in pair):
        return None
    return PendingForm(action=action, csrf="", fields=pairs)


def previous_page(http: Request) -> str:
    """The page that sent a form or an htmx request."""
    fields = dict(pending.fields) if (pending := pending_form_of(http)) is not None else {}
    if back := local_url(fields.get("back", ""), ""):
        return back
    given = http.headers.get("hx-current-url") or http.headers.get("referer", "")
    try:
        parts = urlsplit(given)
    except ValueError:
        return HOME
    return local_url(parts.path + (f"?{parts.query}" if parts.query else ""))
