"""The inbox: what schedules delivered to their owner."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter
from fastapi import Query as InQuery
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chimes.doors.api.fields import Body, MomentField
from chimes.doors.api.inputs import LEFT_OUT, NothingIn
from chimes.doors.api.outputs import BODY, EVERYWHERE, MISSING, Moment, Out, OwnerOut, gives
from chimes.doors.api.paging import DEFAULT_LIMIT, page, position_from, question_of
from chimes.doors.api.queries import Limit, Query, Word, owner_asked_for
from chimes.doors.api.route import Caller, NativeRoute, ToDoorway
from chimes.doors.api.wire import Json, moment_from, time_out
from chimes.model.delivery import InboxItem
from chimes.model.ids import InboxId, RunId, ScheduleId
from chimes.model.inbox import InboxChange, Wake
from chimes.model.listing import InboxQuery
from chimes.store.codec.schedule import owner_to_plain

router = APIRouter(
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


@router.get("", responses=gives(InboxPage))
async def list_inbox(
    request: Request, query: Annotated[InboxPageQuery, InQuery()], door: ToDoorway, actor: Caller
) -> Response:
    """A page of messages, newest first."""
    asked = replace(
        query.to_query(),
        unread=query.unread,
        awake_at=None if query.snoozed else await door.store.now(),
        after=position_from(query.cursor, question_of(request), numbers=True),
        limit=query.limit,
    )
    found, unread = await door.messages.inbox(actor, asked)
    return page(request, [item_out(each) for each in found.items], found.next, unread=unread)


@router.get("/{item_id}", responses=gives(InboxItemOut) | MISSING)
async def get_item(item_id: str, door: ToDoorway, actor: Caller) -> Response:
    """One message."""
    return JSONResponse(item_out(await door.messages.item(actor, InboxId(item_id))))


@router.patch("/{item_id}", responses=gives(InboxItemOut) | MISSING | BODY)
async def change_item(item_id: str, body: InboxItemIn, door: ToDoorway, actor: Caller) -> Response:
    """Mark it as read, star it, put it away, or let it come back later."""
    changed = await door.messages.change(actor, InboxId(item_id), change_from(body))
    return JSONResponse(item_out(changed))


@router.post("/read-all", responses=gives(MarkedOut) | BODY)
async def read_all(
    query: Annotated[InboxFilters, InQuery()],
    door: ToDoorway,
    actor: Caller,
    body: NothingIn | None = None,
) -> Response:
    """Mark every message that the question finds as read."""
    return JSONResponse({"marked": await door.messages.read_all(actor, query.to_query())})


def change_from(body: InboxItemIn) -> InboxChange:
    given = body.model_fields_set
    return InboxChange(
        read=body.read if "read" in given else None,
        starred=body.starred if "starred" in given else None,
        archived=body.archived if "archived" in given else None,
        snoozed_until=_snooze(body) if "snoozed_until" in given else None,
    )


def _snooze(body: InboxItemIn) -> datetime | Wake:
    until = body.snoozed_until
    return Wake() if until is None else moment_from(until, None, "snoozed_until")


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
