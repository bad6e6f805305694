"""Login, logout and display preferences."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from starlette.responses import Response

from chimes.errors import InvalidInput, NotAuthenticated, NotFound, RateLimited
from chimes.i18n import _
from chimes.services.preferences import DISPLAY_CHOICES
from chimes.services.users import LIFE
from chimes.web.dashboard.core import preferences as cookies
from chimes.web.dashboard.core.auth import render_login, unpack_pending_form
from chimes.web.dashboard.core.page_request import (
    PageRequest,
    PageRouter,
    local_url,
    render_field_retry,
)
from chimes.web.dashboard.core.preferences import COOKIE, with_choices

router = PageRouter()


@router.get("/login", public=True)
async def login_page(request: PageRequest) -> Response:
    next_url = local_url(request.query.get("next", ""))
    if request.session is not None or not await request.context.access.auth_enabled():
        return request.redirect(next_url)
    return await render_login(request, next_url)


@router.post("/login", public=True)
async def login(request: PageRequest) -> Response:
    next_url = local_url(request.form.text("next"))
    name, password = request.form.text("user")[:64], request.form.raw("password")
    key = request.form.text("key")
    pending = unpack_pending_form(request.form.raw("unsent"))
    address, agent = _address(request), request.http.headers.get("user-agent", "")
    try:
        if key:
            secret, _session = await request.sessions.login_with_key(
                key, address=address, agent=agent
            )
        else:
            secret, _session = await request.sessions.login_with_password(
                name, password, address=address, agent=agent
            )
    except NotAuthenticated:
        error = _("Wrong user name, password or API key.")
        return await render_login(request, next_url, error, pending=pending, status=401)
    except RateLimited:
        error = _("Too many attempts. Try again in 15 minutes.")
        return await render_login(request, next_url, error, pending=pending, status=429)
    if pending is None:
        response = request.redirect(next_url)
    else:
        pending = replace(pending, csrf=cookies.form_token(secret))
        response = request.render("account/resume.html", pending=pending, next=next_url)
    # A new secret with each login prevents session fixation.
    cookies.set_cookie(request.http, response, cookies.SESSION, secret, max_age=LIFE)
    return response


@router.post("/logout", public=True)
async def logout(request: PageRequest) -> Response:
    if request.session is not None:
        with suppress(NotFound):
            await request.sessions.logout(request.session)
    response = request.redirect_with_toast(_("Signed out."), to="/ui/login")
    cookies.drop_cookie(request.http, response, cookies.SESSION)
    return response


def _address(request: PageRequest) -> str:
    return request.http.client.host if request.http.client else ""


#: Form fields and the owner preferences that store them, so that they also apply to notifications,
#: to schedules without a zone, and in other browsers.
_PREFERENCES = {"language": "language", "zone": "timezone"} | {
    name: name for name in DISPLAY_CHOICES
}
_A_YEAR = timedelta(days=365)


@router.post("/look", public=True)
async def change_display(request: PageRequest) -> Response:
    """Changes the submitted display preferences. Works without a session."""
    choices = {name: request.form.text(name) for name in _PREFERENCES if name in request.form}
    try:
        cookie = with_choices(request.http.cookies.get(COOKIE, ""), choices)
    except InvalidInput as error:
        if not choices.get("zone"):
            raise
        return render_field_retry(
            request,
            await request.form_error(error),
            title=_("My time zone"),
            label=_("Time zone"),
            field="zone",
            back=request.back_url(),
        )
    stored = {_PREFERENCES[name]: value or None for name, value in choices.items()}
    if stored and request.session is not None:
        await request.context.preferences.change(request.actor, stored)
    response = request.redirect(request.back_url())
    # Not HttpOnly: a script adds the detected time zone.
    response.set_cookie(
        COOKIE,
        cookie,
        max_age=int(_A_YEAR.total_seconds()),
        path="/",
        secure=request.http.url.scheme == "https",
        samesite="lax",
    )
    return response
