"""Chats of the visitor: linked by a deep link or its QR code, confirmed, tried, let go (S57)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup
from starlette.responses import Response

from chimes.errors import NotAllowed, NotFound
from chimes.i18n import _, in_language
from chimes.model.recipient import Channel, Recipient
from chimes.telegram.links import Chat, Links, NewCode
from chimes.web.dashboard.core.forms import Question
from chimes.web.dashboard.core.page_request import PageRequest
from chimes.web.dashboard.core.router import Pages

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


pages = Pages()
HERE = "/ui/telegram"
_TEMPLATE = "telegram/page.html"


@pages.get("/telegram")
async def telegram(visit: PageRequest) -> Response:
    return await _shown(visit)


@pages.post("/telegram/code")
async def code(visit: PageRequest) -> Response:
    """Made and shown: the page that answers is the only one that has it."""
    _may_link(visit)
    _bot(visit)
    return await _shown(visit, await Links(visit.door.store).new_code(visit.actor))


@pages.post("/telegram/{id}/confirm")
async def confirm(visit: PageRequest) -> Response:
    _may_link(visit)
    bot = _bot(visit)
    chat = await Links(visit.door.store).confirm(visit.actor, visit.path["id"])
    await bot.tell(chat, _("This chat now belongs to {owner}.", owner=chat.owner))
    return visit.done(_("Chat {id} is connected.", id=chat.id), to=HERE)


@pages.post("/telegram/{id}/unlink")
async def unlink(visit: PageRequest) -> Response:
    _may_link(visit)
    chat = await _own(visit)
    if not visit.sure:
        return visit.ask(
            Question(
                title=_("Disconnect chat {id}?", id=chat.id),
                text=_("Nothing of yours is sent to it any more."),
                button=_("Disconnect it"),
            )
        )
    await Links(visit.door.store).unlink(visit.actor, chat)
    return visit.done(_("Chat {id} is on its own again.", id=chat.id), to=HERE)


@pages.post("/telegram/{id}/test")
async def try_out(visit: PageRequest) -> Response:
    chat = await _own(visit)
    recipient = Recipient(channel=Channel.TELEGRAM, to=chat.id)
    outcome = await visit.door.messages.send_test(visit.actor, recipient)
    return visit.done(outcome.words, to=visit.back(HERE), kind=outcome.kind)


async def _shown(visit: PageRequest, made: NewCode | None = None) -> Response:
    bot = _bot_here(visit)
    links = Links(visit.door.store)
    link = ""
    if made is not None and bot is not None:
        link = deep_link(await bot.conversation.username(), made.text)
    title = in_language(_("QR code: opens the bot in Telegram"), visit.look.language)
    values: dict[str, object] = {
        "bot": bot is not None,
        "configured": bool(visit.door.settings.telegram_token),
        "chats": await links.linked(visit.actor.owner),
        "waiting": await links.waiting(visit.actor.owner),
        "may_link": visit.actor.may_write(visit.actor.owner),
    }
    if visit.partial:
        return visit.part(_TEMPLATE, "chats", status=200, **values)
    values |= {"made": made, "link": link, "qr": qr_code(link, title) if link else ""}
    return visit.page(_TEMPLATE, status=200, **values)


async def _own(visit: PageRequest) -> Chat:
    """Another's chat is as if it were not there (S05)."""
    chats = await Links(visit.door.store).linked(visit.actor.owner)
    for chat in chats:
        if chat.id == visit.path["id"]:
            return chat
    raise NotFound(_("chat {chat} not found", chat=visit.path["id"]))


def _may_link(visit: PageRequest) -> None:
    if not visit.actor.may_write(visit.actor.owner):
        raise NotAllowed()


def _bot_here(visit: PageRequest) -> Bot | None:
    bot: Bot | None = getattr(visit.request.app.state, "telegram", None)
    return bot


def _bot(visit: PageRequest) -> Bot:
    bot = _bot_here(visit)
    if bot is None:
        raise NotFound(_("no Telegram bot is configured here: set CHIMES_TELEGRAM_TOKEN"))
    return bot
