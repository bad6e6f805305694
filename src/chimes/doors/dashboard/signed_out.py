"""A form that comes after its sign-in has ended: it goes along through the login page, and can be
sent from the page behind it."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from chimes.doors.dashboard.refusing import Unsent, kept_in
from chimes.doors.dashboard.visit import HOME, Visit, local_address
from chimes.wording import Wording

#: These have a form of their own for those who are signed out.
_OUTSIDE = frozenset({"/ui/login", "/ui/logout", "/ui/look"})


async def sign_in_again(visit: Visit) -> Response | None:
    """What a form of somebody who is no longer signed in is answered with; None: there is nothing
    to keep, or nobody who would read a page."""
    request = visit.request
    unsent = kept_in(request)
    if unsent is None or "text/html" not in request.headers.get("accept", "text/html"):
        return None
    if not visit.partial:
        return await login_form(visit, page_before(request), unsent=unsent, status=401)
    if not unsent.typed:
        return None
    # The page stays as it is, with what is typed in it; beside it is the way on. Another word typed
    # brings another one in its place, with that word.
    answer = visit.part("account/ended.html", "part", status=401, unsent=unsent)
    answer.headers.update({"HX-Retarget": "#toasts", "HX-Reswap": "beforeend"})
    return answer


async def login_form(
    visit: Visit,
    wanted: str,
    told: Wording | None = None,
    *,
    unsent: Unsent | None = None,
    status: int = 200,
) -> Response:
    return visit.page(
        "account/login.html",
        status=status,
        next=wanted,
        told=told,
        name=visit.form.text("user"),
        with_users=await visit.users.any(),
        unsent=packed(unsent) if unsent is not None else "",
    )


def packed(unsent: Unsent) -> str:
    """As one field, as long as the form itself was. Its token goes with the sign-in."""
    return json.dumps([unsent.action, unsent.fields], ensure_ascii=False)


def unpacked(text: str) -> Unsent | None:
    """None for what is no form of a page of ours (S49, S52)."""
    try:
        action, fields = json.loads(text)
        pairs = tuple((name, value) for name, value in fields)
    except (ValueError, TypeError, RecursionError):
        return None
    if not isinstance(action, str) or local_address(action, "") != action or action in _OUTSIDE:
        return None
    if not all(isinstance(part, str) and "\0" not in part for pair in pairs for part in pair):
        return None
    return Unsent(action=action, csrf="", fields=pairs)


def page_before(request: Request) -> str:
    """The page that a form or a script was on, as the browser says."""
    fields = dict(unsent.fields) if (unsent := kept_in(request)) is not None else {}
    if back := local_address(fields.get("back", ""), ""):
        return back
    given = request.headers.get("hx-current-url") or request.headers.get("referer", "")
    try:
        parts = urlsplit(given)
    except ValueError:
        return HOME
    return local_address(parts.path + (f"?{parts.query}" if parts.query else ""))
