"""What somebody likes: language, theme, whose clock, which years. Works without signing in."""

from __future__ import annotations

from datetime import timedelta

from starlette.responses import Response

from chimes.doors.dashboard.asking_again import asked_again
from chimes.doors.dashboard.look import COOKIE, with_choices
from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.visit import Visit
from chimes.errors import InvalidInput
from chimes.service.preferences import LOOKS
from chimes.wording import say

pages = Pages()
#: By their names here, what they are among the preferences of an owner: good to know elsewhere,
#: for messages, for schedules without a zone, and in the next browser.
_KEPT = {"language": "language", "zone": "timezone"} | {name: name for name in LOOKS}
_A_YEAR = timedelta(days=365)


@pages.post("/look", public=True)
async def choose(visit: Visit) -> Response:
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
            title=say("My time zone"),
            label=say("Time zone"),
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
