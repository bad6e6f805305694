"""Routes of notifications: deliveries, inbox, and Telegram chats."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter
from fastapi import Query as InQuery
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chimes.errors import Conflict, NotAllowed, NotFound
from chimes.i18n import _, in_language
from chimes.model import replace
from chimes.model.access import Actor
from chimes.model.audit import entry
from chimes.model.ids import DeliveryId, InboxId, RunId, ScheduleId
from chimes.model.listing import DeliveryQuery, InboxQuery
from chimes.model.notification import Delivery, DeliveryState, InboxChange, InboxItem, Unsnooze
from chimes.model.recipient import Channel, NotifyOn
from chimes.redaction import HIDDEN, mask_url
from chimes.store.codec.values import owner_to_plain
from chimes.web.api.paging import (
    DEFAULT_LIMIT,
    Limit,
    OwnerWord,
    Query,
    Word,
    cursor_scope,
    decode_cursor,
    owner_filter,
    page,
)
from chimes.web.api.responses import (
    BODY_ERRORS,
    COMMON_ERRORS,
    CONFLICT,
    NOT_FOUND,
    Moment,
    Out,
    OwnerOut,
    returns,
)
from chimes.web.api.route import Caller, Context, NativeRoute, OneTimeResponse
from chimes.web.api.schemas import OMITTED, Body, EmptyIn, MomentField, RecipientIn
from chimes.web.api.translate import Json, moment_from, recipients_from, time_out
from chimes.web.requests import NegotiatedLanguage, set_language

if TYPE_CHECKING:
    from chimes.telegram.bot import Bot
    from chimes.telegram.links import Chat


router = APIRouter(
    prefix="/api/v1/deliveries",
    tags=["deliveries"],
    route_class=NativeRoute,
    responses=COMMON_ERRORS,
)


class DeliveriesQuery(Query):
    limit: Limit = DEFAULT_LIMIT
    cursor: Annotated[str, Field(max_length=2000)] | None = None
    run_id: Word | None = None
    schedule_id: Word | None = None
    state: list[DeliveryState] = Field(
        default_factory=list, max_length=4, description="Repeatable."
    )
    channel: Channel | None = None
    owner: OwnerWord | None = None

    def to_query(self, scope: str) -> DeliveryQuery:
        return DeliveryQuery(
            owner=owner_filter(self.owner),
            run_id=RunId(self.run_id) if self.run_id else None,
            schedule_id=ScheduleId(self.schedule_id) if self.schedule_id else None,
            states=tuple(dict.fromkeys(self.state)),
            channel=self.channel,
            after=decode_cursor(self.cursor, scope, numbers=True),
            limit=self.limit,
        )


class DeliveryOut(Out):
    id: str
    run_id: str | None = Field(description="Null for a digest or a test.")
    schedule_id: str | None
    schedule_name: str
    owner: OwnerOut
    channel: Channel
    to: str = Field(description="Address, without secrets; empty for the inbox.")
    occasion: NotifyOn = Field(description="Event of the notification.")
    state: DeliveryState
    dead_letter: bool
    attempts: int
    parts_sent: int = Field(description="Parts sent, of a message in several parts.")
    error: str = Field(description="Error of the last attempt.")
    code: str = Field(description="Stable code of the error.")
    created_at: Moment
    next_attempt_at: Moment | None = Field(description="Null when the delivery has ended.")
    finished_at: Moment | None
    receipt: str = Field(description="Id of the message at the receiver.")


class DeliveryPage(Out):
    items: list[DeliveryOut]
    next_cursor: str | None


@router.get("", responses=returns(DeliveryPage))
async def list_deliveries(
    request: Request,
    query: Annotated[DeliveriesQuery, InQuery()],
    context: Context,
    actor: Caller,
    lang: NegotiatedLanguage,
) -> Response:
    """List deliveries, newest first."""
    found = await context.notifications.list_deliveries(
        actor, query.to_query(cursor_scope(request))
    )
    items = [delivery_out(each, lang) for each in found.items]
    return set_language(page(request, items, found.next), lang)


@router.get("/{delivery_id}", responses=returns(DeliveryOut) | NOT_FOUND)
async def get_delivery(
    delivery_id: str, context: Context, actor: Caller, lang: NegotiatedLanguage
) -> Response:
    """Get a delivery with its state and number of attempts."""
    found = await context.notifications.get_delivery(actor, DeliveryId(delivery_id))
    return set_language(JSONResponse(delivery_out(found, lang)), lang)


@router.post(
    "/{delivery_id}/retry", responses=returns(DeliveryOut) | NOT_FOUND | CONFLICT | BODY_ERRORS
)
async def retry_delivery(
    delivery_id: str,
    context: Context,
    actor: Caller,
    lang: NegotiatedLanguage,
    body: EmptyIn | None = None,
) -> Response:
    """Retry a dead letter, or send a pending delivery at once."""
    retried = await context.notifications.retry_delivery(actor, DeliveryId(delivery_id))
    return set_language(JSONResponse(delivery_out(retried, lang)), lang)


@router.post("/test", responses=returns(DeliveryOut) | CONFLICT | BODY_ERRORS)
async def send_test_notification(
    body: RecipientIn, context: Context, actor: Caller, lang: NegotiatedLanguage
) -> Response:
    """Send a test message and wait a few seconds for its result."""
    (recipient,) = recipients_from([body])
    outcome = await context.notifications.send_test(actor, recipient)
    return set_language(JSONResponse(delivery_out(outcome.delivery, lang)), lang)


def delivery_out(delivery: Delivery, lang: str) -> Json:
    pending = delivery.state is DeliveryState.PENDING
    return {
        "id": delivery.id,
        "run_id": delivery.run_id,
        "schedule_id": delivery.schedule_id,
        "schedule_name": delivery.schedule_name,
        "owner": owner_to_plain(delivery.owner),
        "channel": delivery.recipient.channel.value,
        "to": mask_url(delivery.recipient.to),
        "occasion": delivery.notify_on.value,
        "state": delivery.state.value,
        "dead_letter": delivery.state is DeliveryState.DEAD,
        "attempts": delivery.attempts,
        "parts_sent": delivery.progress,
        "error": in_language(delivery.error, lang),
        "code": delivery.code,
        "created_at": time_out(delivery.created_at),
        "next_attempt_at": time_out(delivery.available_at) if pending else None,
        "finished_at": time_out(delivery.finished_at),
        "receipt": delivery.receipt,
    }


inbox_router = APIRouter(
    prefix="/api/v1/inbox", tags=["inbox"], route_class=NativeRoute, responses=COMMON_ERRORS
)


class InboxFilters(Query):
    schedule_id: Word | None = None
    run_id: Word | None = None
    starred: bool | None = None
    archived: bool | None = Field(default=None, description="Default: items that are not archived.")
    owner: OwnerWord | None = None

    def to_query(self) -> InboxQuery:
        return InboxQuery(
            owner=owner_filter(self.owner),
            run_id=RunId(self.run_id) if self.run_id else None,
            schedule_id=ScheduleId(self.schedule_id) if self.schedule_id else None,
            starred=self.starred,
            archived=bool(self.archived),
        )


class InboxPageQuery(InboxFilters):
    limit: Limit = DEFAULT_LIMIT
    cursor: Annotated[str, Field(max_length=2000)] | None = None
    unread: bool | None = None
    snoozed: bool = Field(default=False, description="Include snoozed items.")


class InboxItemIn(Body):
    """Omitted fields stay as they are."""

    read: bool = OMITTED
    starred: bool = OMITTED
    archived: bool = OMITTED
    snoozed_until: MomentField | None = Field(default=None, description="Null ends the snooze.")


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
    text: str = Field(description="Markdown; sanitise it before display.")
    status: str = Field(
        description="Status of the run, `digest` or `test`; empty for other messages."
    )
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
    unread: int = Field(description="Number of unread items on all pages.")


class MarkedOut(Out):
    marked: int


@inbox_router.get("", responses=returns(InboxPage))
async def list_inbox(
    request: Request, query: Annotated[InboxPageQuery, InQuery()], context: Context, actor: Caller
) -> Response:
    """List inbox items, newest first."""
    inbox_query = replace(
        query.to_query(),
        unread=query.unread,
        awake_at=None if query.snoozed else await context.store.now(),
        after=decode_cursor(query.cursor, cursor_scope(request), numbers=True),
        limit=query.limit,
    )
    found, unread = await context.notifications.list_inbox(actor, inbox_query)
    return page(request, [item_out(each) for each in found.items], found.next, unread=unread)


@inbox_router.get("/{item_id}", responses=returns(InboxItemOut) | NOT_FOUND)
async def get_inbox_item(item_id: str, context: Context, actor: Caller) -> Response:
    """Get an inbox item."""
    return JSONResponse(
        item_out(await context.notifications.get_inbox_item(actor, InboxId(item_id)))
    )


@inbox_router.patch("/{item_id}", responses=returns(InboxItemOut) | NOT_FOUND | BODY_ERRORS)
async def change_inbox_item(
    item_id: str, body: InboxItemIn, context: Context, actor: Caller
) -> Response:
    """Mark an item as read, star, archive or snooze it."""
    changed = await context.notifications.change_inbox_item(
        actor, InboxId(item_id), change_from(body)
    )
    return JSONResponse(item_out(changed))


@inbox_router.post("/read-all", responses=returns(MarkedOut) | BODY_ERRORS)
async def mark_inbox_read(
    query: Annotated[InboxFilters, InQuery()],
    context: Context,
    actor: Caller,
    body: EmptyIn | None = None,
) -> Response:
    """Mark all items that match the query as read."""
    return JSONResponse(
        {"marked": await context.notifications.mark_all_read(actor, query.to_query())}
    )


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


telegram_link_router = APIRouter(
    prefix="/api/v1/telegram", tags=["telegram"], route_class=NativeRoute, responses=COMMON_ERRORS
)


class ChatIn(Body):
    """A chat to send a test message to."""

    chat_id: str


class LinkCodeOut(Out):
    """A link code; returned once."""

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


@telegram_link_router.post(
    "/links", status_code=201, responses=returns(LinkCodeOut, 201) | NOT_FOUND
)
async def create_telegram_link(request: Request, context: Context, actor: Caller) -> Response:
    """Create a link code, valid once within ten minutes: send `/link CODE` from the chat, then
    confirm the chat."""
    bot = _bot(request)
    _check_may_link(actor)
    code = await bot.conversation.links.new_code(actor)
    stored_content = {
        "command": f"/link {HIDDEN}",
        "expires_at": time_out(code.expires_at),
        "code": HIDDEN,
    }
    response_content = stored_content | {"command": f"/link {code.text}", "code": code.text}
    username = await bot.conversation.username()
    if username:
        response_content["url"] = f"https://t.me/{username}?start={code.text}"
    return OneTimeResponse(response_content, stored=stored_content, status_code=201)


@telegram_link_router.get("/links", responses=returns(ChatsOut) | NOT_FOUND)
async def list_telegram_links(request: Request, context: Context, actor: Caller) -> Response:
    """List the chats of the caller and those that wait for confirmation."""
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


@telegram_link_router.post("/links/{chat_id}/confirm", responses=returns(ChatOut) | NOT_FOUND)
async def confirm_telegram_link(
    chat_id: str, request: Request, context: Context, actor: Caller
) -> Response:
    """Confirm a chat: it acts for the owner of the caller from now on."""
    bot = _bot(request)
    _check_may_link(actor)
    chat = await bot.conversation.links.confirm(actor, chat_id)
    linked = _("This chat now belongs to {owner}.", owner=chat.owner)
    await bot.send_message(chat, linked)
    return JSONResponse(_chat_out(chat))


@telegram_link_router.delete("/links/{chat_id}", status_code=204, responses=NOT_FOUND)
async def remove_telegram_link(
    chat_id: str, request: Request, context: Context, actor: Caller
) -> Response:
    """Unlink a chat from its owner."""
    links = _bot(request).conversation.links
    _check_may_link(actor)
    chat = await links.chat(chat_id)
    if not chat.owner or not actor.may_write(chat.acts_for):
        raise NotFound(_("chat {chat_id} not found", chat_id=chat_id))
    await links.unlink(actor, chat)
    return Response(status_code=204)


@telegram_link_router.post("/test", responses=returns(TestSentOut) | NOT_FOUND | BODY_ERRORS)
async def send_telegram_test(
    body: ChatIn, request: Request, context: Context, actor: Caller
) -> Response:
    """Send a test message to a chat of the caller; an admin may test any chat."""
    bot = _bot(request)
    chat = await bot.conversation.links.chat(body.chat_id)
    if not actor.may_write(chat.acts_for):
        raise NotFound(_("chat {chat_id} not found", chat_id=body.chat_id))
    audit_entry = entry(
        actor, "telegram_test", "chat", chat.id, at=await context.store.now(), owner=chat.acts_for
    )
    await context.store.append_audit(audit_entry)
    test = _("A test message from Chimes: this chat can be reached.")
    if not await bot.send_message(chat, test):
        raise Conflict(
            _("Telegram did not accept the message; see the server log"), code="not_sent"
        )
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


def _check_may_link(actor: Actor) -> None:
    if not actor.may_write(actor.owner):
        raise NotAllowed()
