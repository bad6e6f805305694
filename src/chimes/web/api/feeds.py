"""Feeds of coming fires: routes to create, list and revoke them, and the calendars themselves."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chimes.errors import InvalidInput, NotFound
from chimes.i18n import ENGLISH, _
from chimes.model.feed import DEFAULT_DAYS, MAX_FEED_DAYS, Feed
from chimes.services.access import RateLimiter
from chimes.store.codec.values import owner_to_plain
from chimes.web.api.paging import OwnerWord, Word, owner_filter
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
from chimes.web.api.schemas import Body, OwnerIn
from chimes.web.api.translate import Json, owner_from, time_out
from chimes.web.middleware import FEEDS
from chimes.web.pings import MISS_BURST, MISSES_PER_SECOND, base_url
from chimes.web.requests import WebContext, language_of_headers

router = APIRouter(
    prefix="/api/v1/feeds", tags=["time"], route_class=NativeRoute, responses=COMMON_ERRORS
)


class FeedIn(Body):
    """Exactly one of `label`, `schedule` and `owner`."""

    label: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="Schedules with this label: `name` or `name=value`."
    )
    schedule: Word | None = Field(default=None, description="Id of a schedule.")
    owner: OwnerWord | OwnerIn | None = Field(
        default=None, description="Schedules of this owner, such as `user:alice`."
    )


class FeedOut(Out):
    id: str
    label: str | None
    schedule: str | None
    owner: OwnerOut | None = Field(description="The owner whose schedules it shows.")
    created_at: Moment
    created_by: str


class NewFeedOut(FeedOut):
    url: str | None = Field(
        description="Address for calendar applications, with its secret token. Shown once: null in"
        " the answer to a repeated request."
    )


class FeedList(Out):
    items: list[FeedOut]


@router.post(
    "", status_code=201, responses=returns(NewFeedOut, 201) | NOT_FOUND | CONFLICT | BODY_ERRORS
)
async def create_feed(request: Request, body: FeedIn, context: Context, actor: Caller) -> Response:
    """Create an address at which calendar applications find the coming fires. Anyone with
    the address can read them."""
    owner = owner_filter(body.owner) if isinstance(body.owner, str) else body.owner
    made = await context.feeds.create(
        actor,
        label=body.label or "",
        schedule=body.schedule,
        of=owner_from(owner) if isinstance(owner, OwnerIn) else owner,
    )
    url = f"{base_url(request, context.settings)}{FEEDS}{made.token}.ics"
    content = _feed_out(made.feed)
    return OneTimeResponse(content | {"url": url}, stored=content | {"url": None}, status_code=201)


@router.get("", responses=returns(FeedList))
async def list_feeds(context: Context, actor: Caller) -> Response:
    """List feeds, without their addresses."""
    return JSONResponse({"items": [_feed_out(each) for each in await context.feeds.find(actor)]})


@router.delete("/{feed_id}", status_code=204, responses=NOT_FOUND)
async def revoke_feed(feed_id: str, context: Context, actor: Caller) -> Response:
    """Revoke a feed: its address is not found from now on."""
    await context.feeds.revoke(actor, feed_id)
    return Response(status_code=204)


def _feed_out(feed: Feed) -> Json:
    return {
        "id": feed.id,
        "label": feed.label or None,
        "schedule": feed.schedule,
        "owner": None if feed.of is None else owner_to_plain(feed.of),
        "created_at": time_out(feed.created_at),
        "created_by": feed.created_by,
    }


# --- calendars ------------------------------------------------------------------------------------
def feed_router(context: WebContext) -> APIRouter:
    """The unguessable token in the path is the only credential, as of a ping (ADR 75)."""
    found = APIRouter()
    endpoint = _FeedEndpoint(context)
    found.add_route("/feeds/{token}.ics", endpoint.read, include_in_schema=False)
    return found


class _FeedEndpoint:
    def __init__(self, context: WebContext) -> None:
        self._context = context
        self._misses = RateLimiter(context.clock, rate=MISSES_PER_SECOND, burst=MISS_BURST)

    async def read(self, request: Request) -> Response:
        days = request.query_params.get("days", str(DEFAULT_DAYS))
        valid = days.isascii() and days.isdecimal() and len(days) <= 4
        if not (valid and 1 <= int(days) <= MAX_FEED_DAYS):
            raise InvalidInput(
                _("days is a number from 1 to {most}", most=MAX_FEED_DAYS),
                field="days",
                code="out_of_range",
                source="query",
            )
        try:
            text = await self._context.feeds.read(
                request.path_params["token"],
                timedelta(days=int(days)),
                link=self._context.settings.public_url.rstrip("/"),
                lang=language_of_headers(request) or ENGLISH,
            )
        except NotFound:
            self._misses.take(request.client.host if request.client else "")
            raise NotFound(_("not found")) from None
        return Response(
            text,
            media_type="text/calendar; charset=utf-8",
            headers={"Cache-Control": "private, max-age=300"},
        )
