"""Who comes to a page: whoever is on this machine in open mode, otherwise somebody signed in."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from starlette.requests import Request

from chimes.doors.auth import Gatekeeper
from chimes.doors.context import Doorway
from chimes.doors.dashboard import cookies
from chimes.doors.dashboard.forms import Form, read_form
from chimes.doors.dashboard.look import COOKIE, Look, look_of
from chimes.doors.dashboard.refusing import FOREIGN, keep_for_another_try
from chimes.doors.dashboard.visit import Visit
from chimes.doors.refusal import Refusal
from chimes.errors import InvalidInput, NotAuthenticated, NotFound, RateLimited, StoreError
from chimes.model.access import Actor, Owner, Role
from chimes.service.clock_watch import ClockWatch
from chimes.service.preferences import Preferences
from chimes.service.signins import DOOR, Guest, SignInService
from chimes.service.users import UserService
from chimes.wording import say

#: Those who have not signed in yet: they see the login page and nothing else.
NOBODY = Actor(owner=Owner(id="nobody"), role=Role.VIEWER, door=DOOR)
FIELD, HEADER = "csrf", "x-chimes-form"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reception:
    """What is there once for the whole dashboard."""

    door: Doorway
    users: UserService
    sign_ins: SignInService
    clock_watch: ClockWatch


async def arrive(reception: Reception, request: Request, *, public: bool = False) -> Visit:
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
    return Visit(
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
) -> Visit:
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
        raise InvalidInput(say("a parameter has a NUL character"), code="bad_character")


def seen_look(door: Doorway, request: Request, preferred: Preferences | None = None) -> Look:
    return look_of(
        request.cookies.get(COOKIE, ""),
        accept_language=",".join(request.headers.getlist("accept-language")),
        default_zone=door.settings.default_timezone,
        preferred=preferred,
    )


async def _who(reception: Reception, request: Request) -> tuple[Actor, Guest | None]:
    access = reception.door.access
    gatekeeper: Gatekeeper = request.app.state.gatekeeper
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
        say("This form is not from a page that is open here. Load the page again, and try again."),
    )


def _behind_a_proxy() -> Refusal:
    return Refusal(
        403,
        "open_behind_a_proxy",
        say(
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
