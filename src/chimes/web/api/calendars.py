"""Routes of calendars that schedules share by name."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import JSONResponse, Response

from chimes.services.calendars import CalendarReport, CalendarVersion
from chimes.services.schedules.rules import load_calendars
from chimes.web.api.responses import (
    BODY_ERRORS,
    COMMON_ERRORS,
    CONFLICT,
    NOT_FOUND,
    Moment,
    Out,
    returns,
)
from chimes.web.api.route import Caller, Context, NativeRoute
from chimes.web.api.schemas import Body
from chimes.web.api.translate import Json, time_out

router = APIRouter(
    prefix="/api/v1/calendars", tags=["calendars"], route_class=NativeRoute, responses=COMMON_ERRORS
)

Pair = Annotated[list[str], Field(min_length=2, max_length=2)]


class CalendarIn(Body):
    dates: list[str] = Field(default_factory=list, max_length=4000)
    holidays: str | None = Field(
        default=None, description="Country, or one of its regions, whose holidays are excluded."
    )
    ranges: list[Pair] = Field(default_factory=list, max_length=500)
    workdays: list[str] = Field(default_factory=list, max_length=4000)


class CalendarUser(Out):
    id: str
    name: str


class CalendarVersionOut(Out):
    version: int
    at: Moment
    by: str


class CalendarOut(Out):
    name: str
    version: int
    dates: list[str]
    holidays: str | None
    ranges: list[list[str]]
    workdays: list[str]
    created_at: Moment
    updated_at: Moment
    versions: list[CalendarVersionOut] = Field(description="The latest ones, newest first.")
    schedules: list[CalendarUser] = Field(description="Schedules that use it, at most 100.")
    schedule_count: int = Field(description="How many schedules use it.")
    failed: list[CalendarUser] = Field(
        description="Schedules that could not be planned again and keep the version before."
    )


class CalendarList(Out):
    items: list[CalendarOut]


@router.get("", responses=returns(CalendarList))
async def list_calendars(context: Context, actor: Caller) -> Response:
    """List the shared calendars by name, with the schedules that use them."""
    found = await context.calendars.list_calendars(actor)
    return JSONResponse({"items": [_calendar_out(each) for each in found]})


@router.get("/{name}", responses=returns(CalendarOut) | NOT_FOUND)
async def get_calendar(name: str, context: Context, actor: Caller) -> Response:
    """Show a calendar."""
    return JSONResponse(_calendar_out(await context.calendars.get(actor, name)))


@router.put("/{name}", responses=returns(CalendarOut) | CONFLICT | BODY_ERRORS)
async def put_calendar(name: str, body: CalendarIn, context: Context, actor: Caller) -> Response:
    """Create a calendar, or replace its contents. Schedules that use it are planned again; their
    due slots fire first. Only an admin may do it."""
    if body.holidays is not None:
        await load_calendars("holidays")
    contents: Json = {
        "dates": body.dates,
        "ranges": body.ranges,
        "workdays": body.workdays,
        **({} if body.holidays is None else {"holidays": body.holidays}),
    }
    service = context.schedules
    found = await context.calendars.put(actor, name, contents, service.use_calendars)
    return JSONResponse(_calendar_out(found))


@router.delete("/{name}", status_code=204, responses=NOT_FOUND | CONFLICT)
async def delete_calendar(name: str, context: Context, actor: Caller) -> Response:
    """Delete a calendar; 409 with the schedules that use it. Only an admin may do it."""
    await context.calendars.remove(actor, name)
    return Response(status_code=204)


def _calendar_out(report: CalendarReport) -> Json:
    contents = report.contents
    empty: Json = {"dates": [], "holidays": None, "ranges": [], "workdays": []}
    return {
        "name": report.name,
        "version": contents.version,
        **empty,
        **contents.to_dict(),
        "created_at": time_out(report.created_at),
        "updated_at": time_out(report.versions[0].at),
        "versions": [_version_out(each) for each in report.versions],
        "schedules": [{"id": each.id, "name": each.name} for each in report.schedules],
        "schedule_count": report.count,
        "failed": [{"id": each.id, "name": each.name} for each in report.failed],
    }


def _version_out(version: CalendarVersion) -> Json:
    return {"version": version.contents.version, "at": time_out(version.at), "by": version.by}
