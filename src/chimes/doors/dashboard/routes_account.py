"""Signing in and out."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from starlette.responses import Response

from chimes.doors.dashboard import cookies
from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.signed_out import login_form, unpacked
from chimes.doors.dashboard.visit import Visit, local_address
from chimes.errors import NotAuthenticated, NotFound, RateLimited
from chimes.service.signins import LIFE
from chimes.wording import say

pages = Pages()


@pages.get("/login", public=True)
async def login_page(visit: Visit) -> Response:
    wanted = local_address(visit.query.get("next", ""))
    if visit.guest is not None or not await visit.door.access.keys_on():
        return visit.redirect(wanted)
    return await login_form(visit, wanted)


@pages.post("/login", public=True)
async def login(visit: Visit) -> Response:
    wanted = local_address(visit.form.text("next"))
    name, password = visit.form.text("user")[:64], visit.form.raw("password")
    key = visit.form.text("key")
    unsent = unpacked(visit.form.raw("unsent"))
    address, agent = _address(visit), visit.request.headers.get("user-agent", "")
    try:
        if key:
            secret, _ = await visit.sign_ins.with_key(key, address=address, agent=agent)
        else:
            secret, _ = await visit.sign_ins.with_password(
                name, password, address=address, agent=agent
            )
    except NotAuthenticated:
        told = say("That is not a name and password, or a key, that is known here.")
        return await login_form(visit, wanted, told, unsent=unsent, status=401)
    except RateLimited:
        told = say("Too many attempts. Wait a quarter of an hour, then try again.")
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
async def logout(visit: Visit) -> Response:
    if visit.guest is not None:
        with suppress(NotFound):
            await visit.sign_ins.end(visit.guest)
    response = visit.done(say("You have signed out."), to="/ui/login")
    cookies.drop_cookie(visit.request, response, cookies.SESSION)
    return response


def _address(visit: Visit) -> str:
    return visit.request.client.host if visit.request.client else ""
