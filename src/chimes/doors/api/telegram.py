"""Linking chats to an owner, and trying a chat out (R1.35, S57)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chimes.doors.api.fields import Body
from chimes.doors.api.idempotency import OneTimeAnswer
from chimes.doors.api.outputs import BODY, EVERYWHERE, MISSING, Out, gives
from chimes.doors.api.route import Caller, NativeRoute, ToDoorway
from chimes.doors.api.wire import time_out
from chimes.errors import Conflict, NotAllowed, NotFound
from chimes.model.access import Actor
from chimes.redaction import HIDDEN
from chimes.service.audit import entry
from chimes.wording import say

if TYPE_CHECKING:
    # The bot is loaded where one is configured.
    from chimes.doors.telegram.bot import Bot
    from chimes.doors.telegram.links import Chat

router = APIRouter(
    prefix="/api/v1/telegram", tags=["telegram"], route_class=NativeRoute, responses=EVERYWHERE
)


class ChatIn(Body):
    """A chat to send a test message to."""

    chat_id: str


class LinkCodeOut(Out):
    """Shown once."""

    code: str
    command: str
    expires_at: str
    url: str | None = None


class ChatOut(Out):
    chat_id: str
    owner: str
    user_id: str
    language: str
    timezone: str


class WaitingChatOut(Out):
    chat_id: str
    user_id: str
    expires_at: str


class ChatsOut(Out):
    items: list[ChatOut]
    waiting: list[WaitingChatOut]


class TestSentOut(Out):
    status: str
    chat_id: str


@router.post("/links", status_code=201, responses=gives(LinkCodeOut, 201) | MISSING)
async def new_link(request: Request, door: ToDoorway, actor: Caller) -> Response:
    """A code, good for one use within ten minutes: send `/link CODE` from the chat, then confirm
    the chat here."""
    bot = _bot(request)
    _may_link(actor)
    code = await bot.conversation.links.new_code(actor)
    shown = {"command": f"/link {HIDDEN}", "expires_at": time_out(code.expires_at), "code": HIDDEN}
    told = shown | {"command": f"/link {code.text}", "code": code.text}
    username = await bot.conversation.username()
    if username:
        told["url"] = f"https://t.me/{username}?start={code.text}"
    return OneTimeAnswer(told, kept=shown, status_code=201)


@router.get("/links", responses=gives(ChatsOut) | MISSING)
async def list_links(request: Request, door: ToDoorway, actor: Caller) -> Response:
    """Chats that belong to the caller, and those that wait to be confirmed."""
    links = _bot(request).conversation.links
    waiting = await links.waiting(actor.owner)
    return JSONResponse(
        {
            "items": [_chat_out(chat) for chat in await links.linked(actor.owner)],
            "waiting": [
                {"chat_id": each.chat_id, "user_id": each.user_id, "expires_at": each.until}
                for each in waiting
            ],
        }
    )


@router.post("/links/{chat_id}/confirm", responses=gives(ChatOut) | MISSING)
async def confirm_link(chat_id: str, request: Request, door: ToDoorway, actor: Caller) -> Response:
    """From now on the chat acts for the caller's owner."""
    bot = _bot(request)
    _may_link(actor)
    chat = await bot.conversation.links.confirm(actor, chat_id)
    linked = say("This chat now belongs to {owner}.", owner=chat.owner)
    await bot.tell(chat, linked)
    return JSONResponse(_chat_out(chat))


@router.delete("/links/{chat_id}", status_code=204, responses=MISSING)
async def remove_link(chat_id: str, request: Request, door: ToDoorway, actor: Caller) -> Response:
    """The chat is on its own again."""
    links = _bot(request).conversation.links
    _may_link(actor)
    chat = await links.chat(chat_id)
    if not chat.owner or not actor.may_write(chat.acts_for):
        raise NotFound(say("chat {chat_id} not found", chat_id=chat_id))
    await links.unlink(actor, chat)
    return Response(status_code=204)


@router.post("/test", responses=gives(TestSentOut) | MISSING | BODY)
async def send_test(body: ChatIn, request: Request, door: ToDoorway, actor: Caller) -> Response:
    """Send a test message to a chat of the caller; an admin to any."""
    bot = _bot(request)
    chat = await bot.conversation.links.chat(body.chat_id)
    if not actor.may_write(chat.acts_for):
        raise NotFound(say("chat {chat_id} not found", chat_id=body.chat_id))
    note = entry(
        actor, "telegram_test", "chat", chat.id, at=await door.store.now(), owner=chat.acts_for
    )
    await door.store.append_audit(note)
    test = say("A test message from Chimes: this chat can be reached.")
    if not await bot.tell(chat, test):
        raise Conflict(say("Telegram did not take the message; see the log"), code="not_sent")
    return JSONResponse({"status": "sent", "chat_id": chat.id})


def _chat_out(chat: Chat) -> dict[str, str]:
    return {
        "chat_id": chat.id,
        "owner": chat.owner,
        "user_id": chat.user_id,
        "language": chat.language,
        "timezone": chat.timezone,
    }


def _bot(request: Request) -> Bot:
    bot: Bot | None = getattr(request.app.state, "telegram", None)
    if bot is None:
        raise NotFound(say("no Telegram bot is configured here: set CHIMES_TELEGRAM_TOKEN"))
    return bot


def _may_link(actor: Actor) -> None:
    if not actor.may_write(actor.owner):
        raise NotAllowed()
