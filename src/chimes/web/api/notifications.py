"""Deliveries: what was told to whom, what waits, and the dead letters."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter
from fastapi import Query as InQuery
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chimes.errors import Conflict, NotAllowed, NotFound
from chimes.i18n import _
from chimes.model.access import Actor
from chimes.model.ids import DeliveryId, InboxId, RunId, ScheduleId
from chimes.model.listing import DeliveryQuery, InboxQuery
from chimes.model.notification import Delivery, DeliveryState, InboxChange, InboxItem, Unsnooze
from chimes.model.recipient import Channel, NotifyOn
from chimes.redaction import HIDDEN, masked_url
from chimes.retelling import retold
from chimes.services.audit import entry
from chimes.store.codec.schedule import owner_to_plain
from chimes.web.api.idempotency import OneTimeAnswer
from chimes.web.api.paging import (
    DEFAULT_LIMIT,
    Limit,
    Query,
    Word,
    owner_asked_for,
    page,
    position_from,
    question_of,
)
from chimes.web.api.responses import BODY, EVERYWHERE, MISSING, TAKEN, Moment, Out, OwnerOut, gives
from chimes.web.api.route import Caller, NativeRoute, Context
from chimes.web.api.schemas import LEFT_OUT, Body, MomentField, NothingIn, RecipientIn
from chimes.web.api.translate import Json, moment_from, recipients_from, time_out
from chimes.web.locale import Spoken, in_language

if TYPE_CHECKING:
    from chimes.telegram.bot import Bot
    from chimes.telegram.links import Chat


router = APIRouter(
    prefix="/api/v1/deliveries",
    tags=["deliveries"],
    route_class=NativeRoute,
    responses=EVERYWHERE,
)


class DeliveriesQuery(Query):
    limit: Limit = DEFAULT_LIMIT
    cursor: Annotated[str, Field(max_length=2000)] | None = None
    run_id: Word | None = None
    schedule_id: Word | None = None
    state: list[DeliveryState] = Field(
        default_factory=list, max_length=3, description="May be repeated."
    )
    channel: Channel | None = None
    owner: Word | None = Field(default=None, description="type:id, such as user:alice")

    def to_query(self, question: str) -> DeliveryQuery:
        return DeliveryQuery(
            owner=owner_asked_for(self.owner),
            run_id=RunId(self.run_id) if self.run_id else None,
            schedule_id=ScheduleId(self.schedule_id) if self.schedule_id else None,
            states=tuple(dict.fromkeys(self.state)),
            channel=self.channel,
            after=position_from(self.cursor, question, numbers=True),
            limit=self.limit,
        )


class DeliveryOut(Out):
    id: str
    run_id: str | None = Field(description="Null for a digest and for a test.")
    schedule_id: str | None
    schedule_name: str
    owner: OwnerOut
    channel: Channel
    to: str = Field(description="Without secrets; empty for the inbox.")
    occasion: NotifyOn = Field(description="Why it was written.")
    state: DeliveryState
    dead_letter: bool
    attempts: int
    parts_sent: int = Field(description="Of a message in several parts.")
    error: str = Field(description="Of the last attempt.")
    code: str = Field(description="The kind of that error, as a stable word.")
    created_at: Moment
    next_attempt_at: Moment | None = Field(description="Null once it has ended.")
    finished_at: Moment | None
    receipt: str = Field(description="What the other side calls it.")


class DeliveryPage(Out):
    items: list[DeliveryOut]
    next_cursor: str | None


@router.get("", responses=gives(DeliveryPage))
async def list_deliveries(
    request: Request,
    query: Annotated[DeliveriesQuery, InQuery()],
    context: Context,
    actor: Caller,
    lang: Spoken,
) -> Response:
    """A page of deliveries, newest first."""
    found = await context.messages.deliveries(actor, query.to_query(question_of(request)))
    items = [delivery_out(each, lang) for each in found.items]
    return in_language(page(request, items, found.next), lang)


@router.get("/{delivery_id}", responses=gives(DeliveryOut) | MISSING)
async def get_delivery(delivery_id: str, context: Context, actor: Caller, lang: Spoken) -> Response:
    """One delivery: how often it was tried, and what came of it."""
    found = await context.messages.delivery(actor, DeliveryId(delivery_id))
    return in_language(JSONResponse(delivery_out(found, lang)), lang)


@router.post("/{delivery_id}/retry", responses=gives(DeliveryOut) | MISSING | TAKEN | BODY)
async def retry_delivery(
    delivery_id: str,
    context: Context,
    actor: Caller,
    lang: Spoken,
    body: NothingIn | None = None,
) -> Response:
    """Try a dead letter again, or one that waits at once."""
    again = await context.messages.retry(actor, DeliveryId(delivery_id))
    return in_language(JSONResponse(delivery_out(again, lang)), lang)


@router.post("/test", responses=gives(DeliveryOut) | TAKEN | BODY)
async def send_test(body: RecipientIn, context: Context, actor: Caller, lang: Spoken) -> Response:
    """Send a message that is marked as a test, and wait a few seconds for what becomes of it."""
    (recipient,) = recipients_from([body])
    outcome = await context.messages.send_test(actor, recipient)
    return in_language(JSONResponse(delivery_out(outcome.delivery, lang)), lang)


def delivery_out(delivery: Delivery, lang: str) -> Json:
    waits = delivery.state is DeliveryState.PENDING
    return {
        "id": delivery.id,
        "run_id": delivery.run_id,
        "schedule_id": delivery.schedule_id,
        "schedule_name": delivery.schedule_name,
        "owner": owner_to_plain(delivery.owner),
        "channel": delivery.recipient.channel.value,
        "to": masked_url(delivery.recipient.to),
        "occasion": delivery.occasion.value,
        "state": delivery.state.value,
        "dead_letter": delivery.state is DeliveryState.DEAD,
        "attempts": delivery.attempts,
        "parts_sent": delivery.progress,
        "error": retold(delivery.error, lang),
        "code": delivery.code,
        "created_at": time_out(delivery.created_at),
        "next_attempt_at": time_out(delivery.available_at) if waits else None,
        "finished_at": time_out(delivery.finished_at),
        "receipt": delivery.receipt,
    }


# @@ The inbox: what schedules delivered to their owner.

router_inbox = APIRouter(
    prefix="/api/v1/inbox", tags=["inbox"], route_class=NativeRoute, responses=EVERYWHERE
)


class InboxFilters(Query):
    schedule_id: Word | None = None
    run_id: Word | None = None
    starred: bool | None = None
    archived: bool | None = Field(default=None, description="Left out: those that are not.")
    owner: Word | None = Field(default=None, description="type:id, such as user:alice")

    def to_query(self) -> InboxQuery:
        return InboxQuery(
            owner=owner_asked_for(self.owner),
            run_id=RunId(self.run_id) if self.run_id else None,
            schedule_id=ScheduleId(self.schedule_id) if self.schedule_id else None,
            starred=self.starred,
            archived=bool(self.archived),
        )


class InboxPageQuery(InboxFilters):
    limit: Limit = DEFAULT_LIMIT
    cursor: Annotated[str, Field(max_length=2000)] | None = None
    unread: bool | None = None
    snoozed: bool = Field(default=False, description="Also those that are snoozed.")


class InboxItemIn(Body):
    """What is left out stays."""

    read: bool = LEFT_OUT
    starred: bool = LEFT_OUT
    archived: bool = LEFT_OUT
    snoozed_until: MomentField | None = Field(default=None, description="Null wakes it.")


class ArtifactOut(Out):
    name: str
    url: str


class InboxItemOut(Out):
    id: str
    owner: OwnerOut
    run_id: str | None
    schedule_id: str | None
    schedule_name: str
    title: str
    text: str = Field(description="Markdown, as data: whoever shows it makes it safe.")
    status: str = Field(description="The run's; `digest`, `test`; empty for another notice.")
    artifacts: list[ArtifactOut]
    created_at: Moment
    read: bool
    read_at: Moment | None
    starred: bool
    archived: bool
    archived_at: Moment | None
    snoozed_until: Moment | None


class InboxPage(Out):
    items: list[InboxItemOut]
    next_cursor: str | None
    unread: int = Field(description="On all pages.")


class MarkedOut(Out):
    marked: int


@router_inbox.get("", responses=gives(InboxPage))
async def list_inbox(
    request: Request, query: Annotated[InboxPageQuery, InQuery()], context: Context, actor: Caller
) -> Response:
    """A page of messages, newest first."""
    asked = replace(
        query.to_query(),
        unread=query.unread,
        awake_at=None if query.snoozed else await context.store.now(),
        after=position_from(query.cursor, question_of(request), numbers=True),
        limit=query.limit,
    )
    found, unread = await context.messages.inbox(actor, asked)
    return page(request, [item_out(each) for each in found.items], found.next, unread=unread)


@router_inbox.get("/{item_id}", responses=gives(InboxItemOut) | MISSING)
async def get_item(item_id: str, context: Context, actor: Caller) -> Response:
    """One message."""
    return JSONResponse(item_out(await context.messages.item(actor, InboxId(item_id))))


@router_inbox.patch("/{item_id}", responses=gives(InboxItemOut) | MISSING | BODY)
async def change_item(item_id: str, body: InboxItemIn, context: Context, actor: Caller) -> Response:
    """Mark it as read, star it, put it away, or let it come back later."""
    changed = await context.messages.change(actor, InboxId(item_id), change_from(body))
    return JSONResponse(item_out(changed))


@router_inbox.post("/read-all", responses=gives(MarkedOut) | BODY)
async def read_all(
    query: Annotated[InboxFilters, InQuery()],
    context: Context,
    actor: Caller,
    body: NothingIn | None = None,
) -> Response:
    """Mark every message that the question finds as read."""
    return JSONResponse({"marked": await context.messages.read_all(actor, query.to_query())})


def change_from(body: InboxItemIn) -> InboxChange:
    given = body.model_fields_set
    return InboxChange(
        read=body.read if "read" in given else None,
        starred=body.starred if "starred" in given else None,
        archived=body.archived if "archived" in given else None,
        snoozed_until=_snooze(body) if "snoozed_until" in given else None,
    )


def _snooze(body: InboxItemIn) -> datetime | Unsnooze:
    until = body.snoozed_until
    return Unsnooze() if until is None else moment_from(until, None, "snoozed_until")


def item_out(item: InboxItem) -> Json:
    return {
        "id": item.id,
        "owner": owner_to_plain(item.owner),
        "run_id": item.run_id,
        "schedule_id": item.schedule_id,
        "schedule_name": item.schedule_name,
        "title": item.title,
        "text": item.text,
        "status": item.status,
        "artifacts": [{"name": each.name, "url": each.url} for each in item.artifacts],
        "created_at": time_out(item.created_at),
        "read": item.read_at is not None,
        "read_at": time_out(item.read_at),
        "starred": item.starred,
        "archived": item.archived_at is not None,
        "archived_at": time_out(item.archived_at),
        "snoozed_until": time_out(item.snoozed_until),
    }


# @@ Linking chats to an owner, and trying a chat out (R1.35, S57).

router_telegram = APIRouter(
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


@router_telegram.post("/links", status_code=201, responses=gives(LinkCodeOut, 201) | MISSING)
async def new_link(request: Request, context: Context, actor: Caller) -> Response:
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


@router_telegram.get("/links", responses=gives(ChatsOut) | MISSING)
async def list_links(request: Request, context: Context, actor: Caller) -> Response:
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


@router_telegram.post("/links/{chat_id}/confirm", responses=gives(ChatOut) | MISSING)
async def confirm_link(chat_id: str, request: Request, context: Context, actor: Caller) -> Response:
    """From now on the chat acts for the caller's owner."""
    bot = _bot(request)
    _may_link(actor)
    chat = await bot.conversation.links.confirm(actor, chat_id)
    linked = _("This chat now belongs to {owner}.", owner=chat.owner)
    await bot.tell(chat, linked)
    return JSONResponse(_chat_out(chat))


@router_telegram.delete("/links/{chat_id}", status_code=204, responses=MISSING)
async def remove_link(chat_id: str, request: Request, context: Context, actor: Caller) -> Response:
    """The chat is on its own again."""
    links = _bot(request).conversation.links
    _may_link(actor)
    chat = await links.chat(chat_id)
    if not chat.owner or not actor.may_write(chat.acts_for):
        raise NotFound(_("chat {chat_id} not found", chat_id=chat_id))
    await links.unlink(actor, chat)
    return Response(status_code=204)


@router_telegram.post("/test", responses=gives(TestSentOut) | MISSING | BODY)
async def send_test_telegram(
    body: ChatIn, request: Request, context: Context, actor: Caller
) -> Response:
    """Send a test message to a chat of the caller; an admin to any."""
    bot = _bot(request)
    chat = await bot.conversation.links.chat(body.chat_id)
    if not actor.may_write(chat.acts_for):
        raise NotFound(_("chat {chat_id} not found", chat_id=body.chat_id))
    note = entry(
        actor, "telegram_test", "chat", chat.id, at=await context.store.now(), owner=chat.acts_for
    )
    await context.store.append_audit(note)
    test = _("A test message from Chimes: this chat can be reached.")
    if not await bot.tell(chat, test):
        raise Conflict(_("Telegram did not take the message; see the log"), code="not_sent")
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
        raise NotFound(_("no Telegram bot is configured here: set CHIMES_TELEGRAM_TOKEN"))
    return bot


def _may_link(actor: Actor) -> None:
    if not actor.may_write(actor.owner):
        raise NotAllowed()
