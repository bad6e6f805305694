"""Signing in and out."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from starlette.responses import Response

from chimes.errors import InvalidInput, NotAuthenticated, NotFound, RateLimited
from chimes.i18n import _
from chimes.services.preferences import LOOKS
from chimes.services.users import LIFE
from chimes.web.dashboard.core import preferences as cookies
from chimes.web.dashboard.core.auth import login_form, unpacked
from chimes.web.dashboard.core.page_request import PageRequest, asked_again, local_address
from chimes.web.dashboard.core.preferences import COOKIE, with_choices
from chimes.web.dashboard.core.router import Pages

pages = Pages()


@pages.get("/login", public=True)
async def login_page(visit: PageRequest) -> Response:
    wanted = local_address(visit.query.get("next", ""))
    if visit.guest is not None or not await visit.door.access.keys_on():
        return visit.redirect(wanted)
    return await login_form(visit, wanted)


@pages.post("/login", public=True)
async def login(visit: PageRequest) -> Response:
    wanted = local_address(visit.form.text("next"))
    name, password = visit.form.text("user")[:64], visit.form.raw("password")
    key = visit.form.text("key")
    unsent = unpacked(visit.form.raw("unsent"))
    address, agent = _address(visit), visit.request.headers.get("user-agent", "")
    try:
        if key:
            secret, _unused = await visit.sign_ins.with_key(key, address=address, agent=agent)
        else:
            secret, _unused = await visit.sign_ins.with_password(
                name, password, address=address, agent=agent
            )
    except NotAuthenticated:
        told = _("That is not a name and password, or a key, that is known here.")
        return await login_form(visit, wanted, told, unsent=unsent, status=401)
    except RateLimited:
        told = _("Too many attempts. Wait a quarter of an hour, then try again.")
        return await login_form(visit, wanted, told, unsent=unsent, status=429)
    if unsent is None:
        response = visit.redirect(wanted)
    else:
        unsent = replace(unsent, csrf=cookies.form_token(secret))
        response = visit.page("account/unsent.html", unsent=unsent, next=wanted)
    # A new secret with each sign-in: one that somebody else has set is worth nothing (S51).
    cookies.set_cookie(visit.request, response, cookies.SESSION, secret, lasts=LIFE)
    return response


@pages.post("/logout", public=True)
async def logout(visit: PageRequest) -> Response:
    if visit.guest is not None:
        with suppress(NotFound):
            await visit.sign_ins.end(visit.guest)
    response = visit.done(_("You have signed out."), to="/ui/login")
    cookies.drop_cookie(visit.request, response, cookies.SESSION)
    return response


def _address(visit: PageRequest) -> str:
    return visit.request.client.host if visit.request.client else ""


# @@ What somebody likes: language, theme, whose clock, which years. Works without signing in.

#: By their names here, what they are among the preferences of an owner: good to know elsewhere,
#: for messages, for schedules without a zone, and in the next browser.
_KEPT = {"language": "language", "zone": "timezone"} | {name: name for name in LOOKS}
_A_YEAR = timedelta(days=365)


@pages.post("/look", public=True)
async def choose(visit: PageRequest) -> Response:
    """One or more of the fields; the rest stays as it is."""
    wanted = {name: visit.form.text(name) for name in _KEPT if name in visit.form}
    try:
        cookie = with_choices(visit.request.cookies.get(COOKIE, ""), wanted)
    except InvalidInput as error:
        if not wanted.get("zone"):
            raise
        return asked_again(
            visit,
            await visit.refused(error),
            title=_("My time zone"),
            label=_("Time zone"),
            field="zone",
            back=visit.back(),
        )
    kept = {_KEPT[name]: value or None for name, value in wanted.items()}
    if kept and visit.guest is not None:
        await visit.door.preferences.change(visit.actor, kept)
    response = visit.redirect(visit.back())
    # A script adds the browser's own zone to it, so it is not hidden from scripts.
    response.set_cookie(
        COOKIE,
        cookie,
        max_age=int(_A_YEAR.total_seconds()),
        path="/",
        secure=visit.request.url.scheme == "https",
        samesite="lax",
    )
    return response
