"""Telegram chats of the user: link, confirm, test and unlink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup
from starlette.responses import Response

from chimes.errors import NotAllowed, NotFound
from chimes.i18n import _, in_language
from chimes.model.definition import Channel, Recipient
from chimes.telegram.links import Chat, NewCode
from chimes.web.dashboard.core.page_request import ConfirmDialog, PageRequest, PageRouter

if TYPE_CHECKING:
    from chimes.telegram.bot import Bot


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


router = PageRouter()
PAGE = "/ui/telegram"
_TEMPLATE = "telegram/page.html"


@router.get("/telegram")
async def telegram(request: PageRequest) -> Response:
    return await _render(request)


@router.post("/telegram/code")
async def new_code(request: PageRequest) -> Response:
    """Creates a code; only this response shows it."""
    _check_may_link(request)
    _require_bot(request)
    return await _render(request, await request.context.telegram_links.new_code(request.actor))


@router.post("/telegram/{id}/confirm")
async def confirm(request: PageRequest) -> Response:
    _check_may_link(request)
    bot = _require_bot(request)
    chat = await request.context.telegram_links.confirm(request.actor, request.path_params["id"])
    await bot.send_message(chat, _("This chat now belongs to {owner}.", owner=chat.owner))
    return request.redirect_with_toast(_("Chat {id} linked.", id=chat.id), to=PAGE)


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
        to=PAGE,
    )


@router.post("/telegram/{id}/test")
async def send_test(request: PageRequest) -> Response:
    chat = await _own_chat(request)
    recipient = Recipient(channel=Channel.TELEGRAM, to=chat.id)
    outcome = await request.context.notifications.send_test(request.actor, recipient)
    return request.redirect_with_toast(outcome.words, to=request.back_url(PAGE), kind=outcome.kind)


async def _render(request: PageRequest, code: NewCode | None = None) -> Response:
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
        return request.render_block(_TEMPLATE, "chats", status=200, **values)
    values |= {"code": code, "link": link, "qr": qr_code(link, title) if link else ""}
    return request.render(_TEMPLATE, status=200, **values)


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
