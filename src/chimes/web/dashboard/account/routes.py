"""Account of the user: login, logout, display preferences and Telegram chats."""

from __future__ import annotations

import base64
import hmac
import json
import math
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from markupsafe import Markup
from starlette.responses import RedirectResponse, Response

from chimes.errors import InvalidInput, NotAllowed, NotAuthenticated, NotFound, RateLimited
from chimes.i18n import Message, _, in_language
from chimes.model.recipient import Channel, Recipient
from chimes.services.preferences import DISPLAY_CHOICES
from chimes.services.single_sign_on import PROXY_ISSUER, Identity, SignInFailed
from chimes.services.users import LIFE
from chimes.telegram.links import Chat, NewCode
from chimes.web.dashboard.core import preferences as cookies
from chimes.web.dashboard.core.auth import proxy_identity, render_login, unpack_pending_form
from chimes.web.dashboard.core.page_request import (
    ConfirmDialog,
    PageRequest,
    PageRouter,
    local_url,
    render_field_retry,
)
from chimes.web.dashboard.core.preferences import COOKIE, with_choices

if TYPE_CHECKING:
    from chimes.telegram.bot import Bot

router = PageRouter()


@router.get("/login", public=True)
async def login_page(request: PageRequest) -> Response:
    next_url = local_url(request.query.get("next", ""))
    if request.session is not None or not await request.context.access.auth_enabled():
        return request.redirect(next_url)
    named = proxy_identity(request.context, request.http)
    if named is not None:
        try:
            return await _begin_session(request, named, next_url)
        except SignInFailed as failed:
            return await render_login(request, next_url, failed.message, status=failed.status)
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
    except RateLimited as limited:
        seconds = max(1, math.ceil(limited.retry_after.total_seconds()))
        if seconds > 60:
            error = _(
                "Too many attempts. Try again in {minutes} minutes.", minutes=-(-seconds // 60)
            )
        else:
            error = _("Too many attempts. Try again in {seconds} s.", seconds=seconds)
        response = await render_login(request, next_url, error, pending=pending, status=429)
        response.headers["Retry-After"] = str(seconds)
        return response
    if pending is None:
        response = request.redirect(next_url)
    else:
        pending = replace(pending, csrf=cookies.form_token(secret))
        response = request.render("account/resume.html", pending=pending, next=next_url)
    # A new secret with each login prevents session fixation.
    cookies.set_cookie(request.http, response, cookies.SESSION, secret, max_age=LIFE)
    return response


#: How long a user may take at the identity provider.
SIGN_IN_TIME = timedelta(minutes=10)


@router.get("/oidc/login", public=True)
async def begin_sign_in(request: PageRequest) -> Response:
    """Sends the browser to the identity provider."""
    if request.oidc is None:
        raise NotFound()
    next_url = local_url(request.query.get("next", ""))
    try:
        begun = await request.oidc.begin(_public_address(request, "/ui/oidc/callback"))
    except SignInFailed as failed:
        return await render_login(request, next_url, failed.message, status=failed.status)
    response = RedirectResponse(begun.url, status_code=302)
    kept = json.dumps([begun.state, begun.nonce, begun.verifier, next_url[:1000]])
    value = base64.urlsafe_b64encode(kept.encode()).decode()
    cookies.set_cookie(request.http, response, cookies.SIGN_IN, value, max_age=SIGN_IN_TIME)
    return response


@router.get("/oidc/callback", public=True)
async def finish_sign_in(request: PageRequest) -> Response:
    """The identity provider sends the browser back here."""
    if request.oidc is None:
        raise NotFound()
    state, nonce, verifier, next_url = _kept_sign_in(request)
    try:
        code = _returned_code(request, state)
        attempt = await request.sessions.count_attempt(_address(request))
        identity = await request.oidc.finish(
            code,
            redirect_uri=_public_address(request, "/ui/oidc/callback"),
            nonce=nonce,
            verifier=verifier,
        )
        await attempt.give_back()
        response = await _begin_session(request, identity, local_url(next_url))
    except SignInFailed as failed:
        response = await render_login(
            request, local_url(next_url), failed.message, status=failed.status
        )
    # Each state is used once.
    cookies.drop_cookie(request.http, response, cookies.SIGN_IN)
    return response


def _kept_sign_in(request: PageRequest) -> tuple[str, str, str, str]:
    """State, nonce, verifier and next page of the browser; empty if it began no sign-in."""
    try:
        kept = json.loads(base64.urlsafe_b64decode(cookies.cookie(request.http, cookies.SIGN_IN)))
        state, nonce, verifier, next_url = (str(each) for each in kept)
    except (ValueError, TypeError):
        return "", "", "", ""
    return state, nonce, verifier, next_url


def _returned_code(request: PageRequest, state: str) -> str:
    """The code of the provider. Raises SignInFailed."""
    query = request.query
    if not state or not hmac.compare_digest(state.encode(), query.get("state", "").encode()):
        raise SignInFailed(
            _("This sign-in took too long, or it began in another browser. Try again.")
        )
    if query.get("iss", request.context.settings.oidc_issuer) != (
        request.context.settings.oidc_issuer
    ):
        raise SignInFailed(_("The answer came from another identity provider. Try again."))
    if error := query.get("error", ""):
        raise SignInFailed(
            _("You did not sign in at the identity provider.")
            if error == "access_denied"
            else _("The identity provider refused the sign-in: {error}", error=error[:100])
        )
    code = query.get("code", "")
    if not code:
        raise SignInFailed(_("The identity provider sent no code. Try again."))
    return code


async def _begin_session(request: PageRequest, identity: Identity, next_url: str) -> Response:
    secret, _session = await request.sessions.login_with_identity(
        identity,
        request.context.settings,
        address=_address(request),
        agent=request.http.headers.get("user-agent", ""),
    )
    response = request.redirect(next_url)
    cookies.set_cookie(request.http, response, cookies.SESSION, secret, max_age=LIFE)
    return response


def _public_address(request: PageRequest, path: str) -> str:
    base = request.context.settings.public_url or str(request.http.base_url)
    return base.rstrip("/") + path


@router.post("/logout", public=True)
async def logout(request: PageRequest) -> Response:
    at_provider = ""
    sign_out: Message | None = None
    if request.session is not None:
        with suppress(NotFound):
            await request.sessions.logout(request.session)
        user = request.session.user
        if request.oidc is not None and user is not None and user.issuer not in ("", PROXY_ISSUER):
            at_provider = await request.oidc.end_session_url(_public_address(request, "/ui/login"))
            sign_out = _("Sign out at {name}", name=request.oidc.display_name)
    if at_provider:
        # Not a redirect: the form may only lead to this server (Content-Security-Policy).
        response = request.render("account/signed_out.html", url=at_provider, sign_out=sign_out)
        response.headers["Refresh"] = f"0; url={at_provider}"
    else:
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


# --- Telegram -------------------------------------------------------------------------------------
def deep_link(username: str, code: str) -> str:
    """Opens the bot and sends it the code; empty if the name of the bot is unknown."""
    return f"https://t.me/{username}?start={code}" if username else ""


def qr_code(text: str, title: str) -> Markup:
    """SVG without inline styles; dark on light in every theme, for cameras."""
    import segno

    svg = segno.make(text, error="m", micro=False).svg_inline(
        scale=4, border=4, svgclass="qr", omitsize=True, title=title, lineclass=None
    )
    # The library escapes the title, and the text becomes squares.
    return Markup(svg)  # noqa: S704


TELEGRAM_PAGE = "/ui/telegram"
_TELEGRAM_TEMPLATE = "telegram/page.html"


@router.get("/telegram")
async def telegram(request: PageRequest) -> Response:
    return await _render_telegram(request)


@router.post("/telegram/code")
async def new_code(request: PageRequest) -> Response:
    """Creates a code; only this response shows it."""
    _check_may_link(request)
    _require_bot(request)
    return await _render_telegram(
        request, await request.context.telegram_links.new_code(request.actor)
    )


@router.post("/telegram/{id}/confirm")
async def confirm(request: PageRequest) -> Response:
    _check_may_link(request)
    bot = _require_bot(request)
    chat = await request.context.telegram_links.confirm(request.actor, request.path_params["id"])
    await bot.send_message(chat, _("This chat now belongs to {owner}.", owner=chat.owner))
    return request.redirect_with_toast(_("Chat {id} linked.", id=chat.id), to=TELEGRAM_PAGE)


@router.post("/telegram/{id}/unlink")
async def unlink(request: PageRequest) -> Response:
    _check_may_link(request)
    chat = await _own_chat(request)
    return await request.run_confirmed(
        ConfirmDialog(
            title=_("Unlink chat {id}?", id=chat.id),
            text=_("It no longer receives your notifications."),
            button=_("Unlink"),
        ),
        lambda: request.context.telegram_links.unlink(request.actor, chat),
        _("Chat {id} unlinked.", id=chat.id),
        to=TELEGRAM_PAGE,
    )


@router.post("/telegram/{id}/test")
async def send_test(request: PageRequest) -> Response:
    chat = await _own_chat(request)
    recipient = Recipient(channel=Channel.TELEGRAM, to=chat.id)
    outcome = await request.context.notifications.send_test(request.actor, recipient)
    return request.redirect_with_toast(
        outcome.words, to=request.back_url(TELEGRAM_PAGE), kind=outcome.kind
    )


async def _render_telegram(request: PageRequest, code: NewCode | None = None) -> Response:
    bot = _find_bot(request)
    links = request.context.telegram_links
    link = ""
    if code is not None and bot is not None:
        link = deep_link(await bot.conversation.username(), code.text)
    title = in_language(_("QR code: opens the bot in Telegram"), request.display.language)
    values: dict[str, object] = {
        "bot": bot is not None,
        "configured": bool(request.context.settings.telegram_token),
        "chats": await links.linked(request.actor.owner),
        "waiting": await links.waiting(request.actor.owner),
        "may_link": request.actor.may_write(request.actor.owner),
    }
    if request.is_htmx:
        return request.render_block(_TELEGRAM_TEMPLATE, "chats", status=200, **values)
    values |= {"code": code, "link": link, "qr": qr_code(link, title) if link else ""}
    return request.render(_TELEGRAM_TEMPLATE, status=200, **values)


async def _own_chat(request: PageRequest) -> Chat:
    """NotFound also for chats of other owners."""
    chats = await request.context.telegram_links.linked(request.actor.owner)
    for chat in chats:
        if chat.id == request.path_params["id"]:
            return chat
    raise NotFound(_("chat {chat} not found", chat=request.path_params["id"]))


def _check_may_link(request: PageRequest) -> None:
    if not request.actor.may_write(request.actor.owner):
        raise NotAllowed()


def _find_bot(request: PageRequest) -> Bot | None:
    bot: Bot | None = getattr(request.http.app.state, "telegram", None)
    return bot


def _require_bot(request: PageRequest) -> Bot:
    bot = _find_bot(request)
    if bot is None:
        raise NotFound(_("no Telegram bot is configured: set CHIMES_TELEGRAM_TOKEN"))
    return bot
