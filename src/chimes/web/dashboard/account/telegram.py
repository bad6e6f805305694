"""Chats of the visitor: linked by a deep link or its QR code, confirmed, tried, let go (S57)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup
from starlette.responses import Response

from chimes.errors import NotAllowed, NotFound
from chimes.i18n import _, in_language
from chimes.model.recipient import Channel, Recipient
from chimes.telegram.links import Chat, Links, NewCode
from chimes.web.dashboard.core.forms import ConfirmDialog
from chimes.web.dashboard.core.page_request import PageRequest
from chimes.web.dashboard.core.router import PageRouter

if TYPE_CHECKING:
    from chimes.telegram.bot import Bot


# @@ The way of a chat to its owner, as people can take it: a link, and the same as a picture.


def deep_link(username: str, code: str) -> str:
    """Opens the bot and sends it the code; empty while nobody knows what the bot is called."""
    return f"https://t.me/{username}?start={code}" if username else ""


def qr_code(text: str, title: str) -> Markup:
    """As SVG that brings no style of its own: dark on light in every theme, for cameras."""
    import segno

    svg = segno.make(text, error="m", micro=False).svg_inline(
        scale=4, border=4, svgclass="qr", omitsize=True, title=title, lineclass=None
    )
    # Written by the library, which escapes the title; the text itself is only squares.
    return Markup(svg)  # noqa: S704


router = PageRouter()
HERE = "/ui/telegram"
_TEMPLATE = "telegram/page.html"


@router.get("/telegram")
async def telegram(request: PageRequest) -> Response:
    return await _shown(request)


@router.post("/telegram/code")
async def code(request: PageRequest) -> Response:
    """Made and shown: the page that answers is the only one that has it."""
    _may_link(request)
    _bot(request)
    return await _shown(request, await request.context.telegram_links.new_code(request.actor))


@router.post("/telegram/{id}/confirm")
async def confirm(request: PageRequest) -> Response:
    _may_link(request)
    bot = _bot(request)
    chat = await request.context.telegram_links.confirm(request.actor, request.path_params["id"])
    await bot.tell(chat, _("This chat now belongs to {owner}.", owner=chat.owner))
    return request.redirect_with_toast(_("Chat {id} is connected.", id=chat.id), to=HERE)


@router.post("/telegram/{id}/unlink")
async def unlink(request: PageRequest) -> Response:
    _may_link(request)
    chat = await _own(request)
    if not request.is_confirmed:
        return request.confirm(
            ConfirmDialog(
                title=_("Disconnect chat {id}?", id=chat.id),
                text=_("Nothing of yours is sent to it any more."),
                button=_("Disconnect it"),
            )
        )
    await request.context.telegram_links.unlink(request.actor, chat)
    return request.redirect_with_toast(_("Chat {id} is on its own again.", id=chat.id), to=HERE)


@router.post("/telegram/{id}/test")
async def try_out(request: PageRequest) -> Response:
    chat = await _own(request)
    recipient = Recipient(channel=Channel.TELEGRAM, to=chat.id)
    outcome = await request.context.messages.send_test(request.actor, recipient)
    return request.redirect_with_toast(outcome.words, to=request.back_url(HERE), kind=outcome.kind)


async def _shown(request: PageRequest, made: NewCode | None = None) -> Response:
    bot = _bot_here(request)
    links = request.context.telegram_links
    link = ""
    if made is not None and bot is not None:
        link = deep_link(await bot.conversation.username(), made.text)
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
    values |= {"made": made, "link": link, "qr": qr_code(link, title) if link else ""}
    return request.render(_TEMPLATE, status=200, **values)


async def _own(request: PageRequest) -> Chat:
    """Another's chat is as if it were not there (S05)."""
    chats = await request.context.telegram_links.linked(request.actor.owner)
    for chat in chats:
        if chat.id == request.path_params["id"]:
            return chat
    raise NotFound(_("chat {chat} not found", chat=request.path_params["id"]))


def _may_link(request: PageRequest) -> None:
    if not request.actor.may_write(request.actor.owner):
        raise NotAllowed()


def _bot_here(request: PageRequest) -> Bot | None:
    bot: Bot | None = getattr(request.http.app.state, "telegram", None)
    return bot


def _bot(request: PageRequest) -> Bot:
    bot = _bot_here(request)
    if bot is None:
        raise NotFound(_("no Telegram bot is configured here: set CHIMES_TELEGRAM_TOKEN"))
    return bot
