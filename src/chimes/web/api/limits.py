"""Routes of named limits."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi import Query as InQuery
from pydantic import Field
from starlette.responses import JSONResponse, Response

from chimes.model.limit import MAX_BREAKER_FAILURES, MAX_BURST, MAX_CONCURRENCY, Breaker
from chimes.services.limits import LimitReport, LimitValues
from chimes.store.codec.values import owner_to_plain
from chimes.triggers.values import format_duration_iso
from chimes.web.api.paging import OwnerWord, Query, owner_filter
from chimes.web.api.responses import (
    BODY_ERRORS,
    COMMON_ERRORS,
    CONFLICT,
    NOT_FOUND,
    Duration,
    Moment,
    Out,
    OwnerOut,
    returns,
)
from chimes.web.api.route import Caller, Context, NativeRoute
from chimes.web.api.schemas import Body, DurationField
from chimes.web.api.translate import Json, time_out

router = APIRouter(
    prefix="/api/v1/limits", tags=["limits"], route_class=NativeRoute, responses=COMMON_ERRORS
)


class LimitsQuery(Query):
    owner: OwnerWord | None = Field(
        default=None, description="Default: the caller. Only an admin may name another owner."
    )


class LimitQuery(LimitsQuery):
    shared: bool = Field(
        default=False, description="The limit of all owners, which only admins may change."
    )


class BreakerIn(Body):
    failures: Annotated[int, Field(ge=1, le=MAX_BREAKER_FAILURES)]
    pause: DurationField


class LimitIn(Body):
    concurrency: Annotated[int, Field(ge=1, le=MAX_CONCURRENCY)] | None = None
    rate: Annotated[str, Field(max_length=20)] | None = None
    burst: Annotated[int, Field(ge=1, le=MAX_BURST)] | None = None
    breaker: BreakerIn | None = None


class BreakerOut(Out):
    failures: int
    pause: Duration


class LimitUser(Out):
    id: str
    name: str


class LimitUseOut(Out):
    running: int | None
    available: int | None
    waiting: int
    breaker: str | None
    open_until: Moment | None
    failures: int


class LimitOut(Out):
    name: str
    owner: OwnerOut | None
    shared: bool
    concurrency: int | None
    rate: str | None
    burst: int | None
    breaker: BreakerOut | None
    use: LimitUseOut
    schedules: list[LimitUser] = Field(description="Schedules that name it, at most 100.")
    schedule_count: int = Field(description="How many schedules name it.")
    created_at: Moment
    updated_at: Moment


class LimitList(Out):
    items: list[LimitOut]


@router.get("", responses=returns(LimitList) | NOT_FOUND)
async def list_limits(
    query: Annotated[LimitsQuery, InQuery()], context: Context, actor: Caller
) -> Response:
    """List the limits of an owner and shared ones by name, with their current use and the schedules
    that name them."""
    found = await context.limits.list_limits(actor, owner_filter(query.owner))
    return JSONResponse({"items": [_limit_out(each) for each in found]})


@router.get("/{name}", responses=returns(LimitOut) | NOT_FOUND)
async def get_limit(
    name: str, query: Annotated[LimitQuery, InQuery()], context: Context, actor: Caller
) -> Response:
    """Show the limit that runs of the owner use under this name: its own, or else the shared
    one."""
    owner = owner_filter(query.owner)
    found = await context.limits.get(actor, name, owner, shared=query.shared)
    return JSONResponse(_limit_out(found))


@router.put("/{name}", responses=returns(LimitOut) | NOT_FOUND | CONFLICT | BODY_ERRORS)
async def put_limit(
    name: str,
    body: LimitIn,
    query: Annotated[LimitQuery, InQuery()],
    context: Context,
    actor: Caller,
) -> Response:
    """Create a limit, or replace its values. All nodes follow it within about a second."""
    breaker = body.breaker
    values = LimitValues(
        concurrency=body.concurrency,
        rate=body.rate or "",
        burst=body.burst,
        breaker=None
        if breaker is None
        else Breaker(failures=breaker.failures, pause=breaker.pause),
    )
    owner = owner_filter(query.owner)
    found = await context.limits.put(actor, name, values, owner, shared=query.shared)
    return JSONResponse(_limit_out(found))


@router.delete("/{name}", status_code=204, responses=NOT_FOUND | CONFLICT)
async def delete_limit(
    name: str, query: Annotated[LimitQuery, InQuery()], context: Context, actor: Caller
) -> Response:
    """Delete a limit; 409 with the schedules that name it."""
    await context.limits.remove(actor, name, owner_filter(query.owner), shared=query.shared)
    return Response(status_code=204)


def _limit_out(report: LimitReport) -> Json:
    use, limit = report.use, report.use.limit
    return {
        "name": limit.name,
        "owner": None if limit.owner is None else owner_to_plain(limit.owner),
        "shared": limit.owner is None,
        "concurrency": limit.concurrency,
        "rate": limit.rate or None,
        "burst": limit.capacity if limit.rate else None,
        "breaker": None
        if limit.breaker is None
        else {
            "failures": limit.breaker.failures,
            "pause": format_duration_iso(limit.breaker.pause),
        },
        "use": {
            "running": use.in_use,
            "available": use.tokens,
            "waiting": use.waiting,
            "breaker": None if use.breaker is None else use.breaker.value,
            "open_until": time_out(use.open_until),
            "failures": use.failures,
        },
        "schedules": [{"id": each.id, "name": each.name} for each in report.schedules],
        "schedule_count": report.count,
        "created_at": time_out(limit.created_at),
        "updated_at": time_out(limit.updated_at),
    }
