"""Deliveries: what was told to whom, what waits, and the dead letters."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi import Query as InQuery
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chimes.doors.api.inputs import NothingIn, RecipientIn
from chimes.doors.api.outputs import (
    BODY,
    EVERYWHERE,
    MISSING,
    TAKEN,
    Moment,
    Out,
    OwnerOut,
    gives,
)
from chimes.doors.api.paging import DEFAULT_LIMIT, page, position_from, question_of
from chimes.doors.api.queries import Limit, Query, Word, owner_asked_for
from chimes.doors.api.route import Caller, NativeRoute, ToDoorway
from chimes.doors.api.wire import Json, time_out
from chimes.doors.api.wire_recipients import recipients_from
from chimes.doors.language import Spoken, in_language
from chimes.model.delivery import Delivery, DeliveryState
from chimes.model.ids import DeliveryId, RunId, ScheduleId
from chimes.model.listing import DeliveryQuery
from chimes.model.recipient import Channel, Occasion
from chimes.redaction import masked_url
from chimes.retelling import retold
from chimes.store.codec.schedule import owner_to_plain

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
    occasion: Occasion = Field(description="Why it was written.")
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
    door: ToDoorway,
    actor: Caller,
    lang: Spoken,
) -> Response:
    """A page of deliveries, newest first."""
    found = await door.messages.deliveries(actor, query.to_query(question_of(request)))
    items = [delivery_out(each, lang) for each in found.items]
    return in_language(page(request, items, found.next), lang)


@router.get("/{delivery_id}", responses=gives(DeliveryOut) | MISSING)
async def get_delivery(delivery_id: str, door: ToDoorway, actor: Caller, lang: Spoken) -> Response:
    """One delivery: how often it was tried, and what came of it."""
    found = await door.messages.delivery(actor, DeliveryId(delivery_id))
    return in_language(JSONResponse(delivery_out(found, lang)), lang)


@router.post("/{delivery_id}/retry", responses=gives(DeliveryOut) | MISSING | TAKEN | BODY)
async def retry_delivery(
    delivery_id: str,
    door: ToDoorway,
    actor: Caller,
    lang: Spoken,
    body: NothingIn | None = None,
) -> Response:
    """Try a dead letter again, or one that waits at once."""
    again = await door.messages.retry(actor, DeliveryId(delivery_id))
    return in_language(JSONResponse(delivery_out(again, lang)), lang)


@router.post("/test", responses=gives(DeliveryOut) | TAKEN | BODY)
async def send_test(body: RecipientIn, door: ToDoorway, actor: Caller, lang: Spoken) -> Response:
    """Send a message that is marked as a test, and wait a few seconds for what becomes of it."""
    (recipient,) = recipients_from([body])
    outcome = await door.messages.send_test(actor, recipient)
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
