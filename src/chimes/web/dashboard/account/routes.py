"""Signing in and out."""

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
from chimes.web.dashboard.core.page_request import PageRequest, local_url, render_field_retry
from chimes.web.dashboard.core.preferences import COOKIE, with_choices
from chimes.web.dashboard.core.router import PageRouter

router = PageRouter()


@router.get("/login", public=True)
async def login_page(request: PageRequest) -> Response:
    wanted = local_url(request.query.get("next", ""))
    if request.session is not None or not await request.context.access.auth_enabled():
        return request.redirect(wanted)
    return await render_login(request, wanted)


@router.post("/login", public=True)
async def login(request: PageRequest) -> Response:
    wanted = local_url(request.form.text("next"))
    name, password = request.form.text("user")[:64], request.form.raw("password")
    key = request.form.text("key")
    pending = unpack_pending_form(request.form.raw("unsent"))
    address, agent = _address(request), request.http.headers.get("user-agent", "")
    try:
        if key:
            secret, _unused = await request.sessions.with_key(key, address=address, agent=agent)
        else:
            secret, _unused = await request.sessions.with_password(
                name, password, address=address, agent=agent
            )
    except NotAuthenticated:
        told = _("That is not a name and password, or a key, that is known here.")
        return await render_login(request, wanted, told, pending=pending, status=401)
    except RateLimited:
        told = _("Too many attempts. Wait a quarter of an hour, then try again.")
        return await render_login(request, wanted, told, pending=pending, status=429)
    if pending is None:
        response = request.redirect(wanted)
    else:
        pending = replace(pending, csrf=cookies.form_token(secret))
        response = request.render("account/resume.html", pending=pending, next=wanted)
    # A new secret with each sign-in: one that somebody else has set is worth nothing (S51).
    cookies.set_cookie(request.http, response, cookies.SESSION, secret, max_age=LIFE)
    return response


@router.post("/logout", public=True)
async def logout(request: PageRequest) -> Response:
    if request.session is not None:
        with suppress(NotFound):
            await request.sessions.end(request.session)
    response = request.redirect_with_toast(_("You have signed out."), to="/ui/login")
    cookies.drop_cookie(request.http, response, cookies.SESSION)
    return response


def _address(request: PageRequest) -> str:
    return request.http.client.host if request.http.client else ""


# @@ What somebody likes: language, theme, whose clock, which years. Works without signing in.

#: By their names here, what they are among the preferences of an owner: good to know elsewhere,
#: for messages, for schedules without a zone, and in the next browser.
_KEPT = {"language": "language", "zone": "timezone"} | {name: name for name in DISPLAY_CHOICES}
_A_YEAR = timedelta(days=365)


@router.post("/look", public=True)
async def choose(request: PageRequest) -> Response:
    """One or more of the fields; the rest stays as it is."""
    wanted = {name: request.form.text(name) for name in _KEPT if name in request.form}
    try:
        cookie = with_choices(request.http.cookies.get(COOKIE, ""), wanted)
    except InvalidInput as error:
        if not wanted.get("zone"):
            raise
        return render_field_retry(
            request,
            await request.form_error(error),
            title=_("My time zone"),
            label=_("Time zone"),
            field="zone",
            back=request.back_url(),
        )
    kept = {_KEPT[name]: value or None for name, value in wanted.items()}
    if kept and request.session is not None:
        await request.context.preferences.change(request.actor, kept)
    response = request.redirect(request.back_url())
    # A script adds the browser's own zone to it, so it is not hidden from scripts.
    response.set_cookie(
        COOKIE,
        cookie,
        max_age=int(_A_YEAR.total_seconds()),
        path="/",
        secure=request.http.url.scheme == "https",
        samesite="lax",
    )
    return response
