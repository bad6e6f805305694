"""Who comes to a page: whoever is on this machine in open mode, otherwise somebody signed in."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from chimes.errors import InvalidInput, NotAuthenticated, NotFound, RateLimited, StoreError
from chimes.i18n import Message, _
from chimes.model.access import Actor, Owner, Role
from chimes.services.insights import ClockWatch
from chimes.services.preferences import Preferences
from chimes.services.users import DOOR, Guest, SignInService, UserService
from chimes.web.auth import Authenticator
from chimes.web.context import WebContext
from chimes.web.dashboard.core import preferences as cookies
from chimes.web.dashboard.core.forms import (
    FOREIGN,
    Form,
    Unsent,
    keep_for_another_try,
    kept_in,
    read_form,
)
from chimes.web.dashboard.core.page_request import HOME, PageRequest, local_address
from chimes.web.dashboard.core.preferences import COOKIE, DisplayPreferences, look_of
from chimes.web.requests import Refusal

#: Those who have not signed in yet: they see the login page and nothing else.
NOBODY = Actor(owner=Owner(id="nobody"), role=Role.VIEWER, door=DOOR)
FIELD, HEADER = "csrf", "x-chimes-form"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reception:
    """What is there once for the whole dashboard."""

    door: WebContext
    users: UserService
    sign_ins: SignInService
    clock_watch: ClockWatch


async def arrive(reception: Reception, request: Request, *, public: bool = False) -> PageRequest:
    """NotAuthenticated if somebody has to sign in first. `public`: pages for those, too."""
    door = reception.door
    _check_characters(request)
    try:
        actor, guest = await _who(reception, request)
    except NotAuthenticated:
        if not public:
            raise
        actor, guest = NOBODY, None
    request.state.actor = actor
    preferred = await door.preferences.of(actor.owner) if guest is not None else None
    look = seen_look(door, request, preferred)
    request.state.language, request.state.look = look.language, look
    return PageRequest(
        request=request,
        door=door,
        users=reception.users,
        sign_ins=reception.sign_ins,
        clock_watch=reception.clock_watch,
        actor=actor,
        guest=guest,
        look=look,
        now=await door.store.now(),
        guard=_guard(request, guest),
    )


async def arrive_with_form(
    reception: Reception, request: Request, *, public: bool = False
) -> PageRequest:
    """The same for an action: its form is read, and must come from a page of ours (S49)."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise _foreign()
    try:
        visit = await arrive(reception, request, public=public)
    except (RateLimited, StoreError):
        await _kept(request)
        raise
    except NotAuthenticated:
        with suppress(Refusal, InvalidInput):
            await _kept(request, signed_out=True)
        raise
    form: Form = await read_form(request)
    # What anybody may do may also come from a page of before or after a sign-in.
    guards = (visit.guard, *_guards(request)) if public else (visit.guard,)
    if not any(cookies.token_matches(guard, _token(request, form)) for guard in guards):
        if visit.guest is not None and _surely_ours(request):
            # Signed in anew meanwhile, in another tab: nobody types twice for that.
            keep_for_another_try(request, form, visit.guard)
        raise _foreign()
    keep_for_another_try(request, form, visit.guard)
    return replace(visit, form=form)


async def _kept(request: Request, *, signed_out: bool = False) -> None:
    """Who sends it is not known yet; that it is from a page of theirs is."""
    form = await read_form(request)
    for guard in _guards(request):
        if cookies.token_matches(guard, _token(request, form)):
            keep_for_another_try(request, form, guard)
            return
    if signed_out and not cookies.cookie(request, cookies.SESSION) and _surely_ours(request):
        # The cookie itself has ended: there is nothing left that its token could be held against.
        keep_for_another_try(request, form, "")


def _guards(request: Request) -> tuple[str, str]:
    return cookies.cookie(request, cookies.SESSION), cookies.cookie(request, cookies.GUARD)


def _surely_ours(request: Request) -> bool:
    """The browser itself says so, which no page elsewhere can make it do (S49). Older ones are
    silent about it."""
    return request.headers.get("sec-fetch-site") == "same-origin"


def _token(request: Request, form: Form) -> str:
    return form.text(FIELD) or request.headers.get(HEADER, "")


def _check_characters(request: Request) -> None:
    """No name or id has a NUL, and some stores would choke on one."""
    if "\0" in request.url.path or any("\0" in str(v) for v in request.path_params.values()):
        raise NotFound()
    if any("\0" in part for pair in request.query_params.multi_items() for part in pair):
        raise InvalidInput(_("a parameter has a NUL character"), code="bad_character")


def seen_look(
    door: WebContext, request: Request, preferred: Preferences | None = None
) -> DisplayPreferences:
    return look_of(
        request.cookies.get(COOKIE, ""),
        accept_language=",".join(request.headers.getlist("accept-language")),
        default_zone=door.settings.default_timezone,
        preferred=preferred,
    )


async def _who(reception: Reception, request: Request) -> tuple[Actor, Guest | None]:
    access = reception.door.access
    gatekeeper: Authenticator = request.app.state.gatekeeper
    if not await access.keys_on():
        try:
            return await gatekeeper.admit(request, door=DOOR, accepts=()), None
        except NotAuthenticated:
            raise _behind_a_proxy() from None
    secret = cookies.cookie(request, cookies.SESSION)
    if not secret:
        raise NotAuthenticated(presented=False)
    address = request.client.host if request.client else ""
    guest = await reception.sign_ins.guest(secret, address=address)
    await gatekeeper.count(request, guest.actor)
    return guest.actor, guest


def _guard(request: Request, guest: Guest | None) -> str:
    """Of a session its own secret; otherwise a cookie that is set with the page."""
    if guest is not None:
        return cookies.cookie(request, cookies.SESSION)
    state = request.scope["state"]
    if "guard" not in state:
        given = cookies.cookie(request, cookies.GUARD)
        state["guard"] = given or cookies.new_guard()
        state["new_guard"] = not given
    found: str = state["guard"]
    return found


def _foreign() -> Refusal:
    return Refusal(
        403,
        FOREIGN,
        _("This form is not from a page that is open here. Load the page again, and try again."),
    )


def _behind_a_proxy() -> Refusal:
    return Refusal(
        403,
        "open_behind_a_proxy",
        _(
            "Without a key or a user only this machine may come in, and this request came through "
            "a proxy. Make a user with `chimes user create NAME`, then sign in."
        ),
    )


async def still_welcome(reception: Reception, request: Request) -> bool:
    """Whether somebody who listens may go on: a session can be ended meanwhile (S11)."""
    try:
        await _who(reception, request)
    except NotAuthenticated:
        return False
    except (RateLimited, StoreError):
        return True
    return True


# @@ A form that comes after its sign-in has ended: it goes along through the login page, and can
# be sent from the page behind it.

#: These have a form of their own for those who are signed out.
_OUTSIDE = frozenset({"/ui/login", "/ui/logout", "/ui/look"})


async def sign_in_again(visit: PageRequest) -> Response | None:
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
    visit: PageRequest,
    wanted: str,
    told: Message | None = None,
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
