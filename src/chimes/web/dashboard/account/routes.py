"""Account of the user: login, logout, display preferences and Telegram chats."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from markupsafe import Markup
from starlette.responses import Response

from chimes.errors import InvalidInput, NotAllowed, NotAuthenticated, NotFound, RateLimited
from chimes.i18n import _, in_language
from chimes.model.recipient import Channel, Recipient
from chimes.services.preferences import DISPLAY_CHOICES
from chimes.services.users import LIFE
from chimes.telegram.links import Chat, NewCode
from chimes.web.dashboard.core import preferences as cookies
from chimes.web.dashboard.core.auth import render_login, unpack_pending_form
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
