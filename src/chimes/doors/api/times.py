"""Questions about time that save nothing: preview, explain, upcoming."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import JSONResponse, Response

from chimes.doors.api.inputs import ExplainIn, PreviewIn
from chimes.doors.api.outputs import (
    BODY,
    EVERYWHERE,
    ExplainOut,
    PreviewOut,
    UpcomingPage,
    gives,
)
from chimes.doors.api.queries import UpcomingQuery
from chimes.doors.api.route import Caller, NativeRoute, ToDoorway
from chimes.doors.api.wire import Json, moment_from, time_out
from chimes.errors import InvalidInput
from chimes.language import describe, note_in_words, warnings_in_words
from chimes.service.rules import check_fires
from chimes.store.codec.schedule import owner_to_plain
from chimes.triggers import Cron, Fire

router = APIRouter(prefix="/api/v1", tags=["time"], route_class=NativeRoute, responses=EVERYWHERE)


@router.post("/preview", responses=gives(PreviewOut) | BODY)
async def preview(body: PreviewIn, door: ToDoorway, actor: Caller) -> Response:
    """The next fires of a trigger, without saving anything."""
    now = await door.store.now()
    zone = door.settings.default_timezone
    after = now if body.after is None else moment_from(body.after, body.trigger.zone, "from")
    trigger = body.trigger.with_default_zone(zone).anchored(now)
    check_fires(trigger, after)
    fires = trigger.fires(after, min(body.count, trigger.max_runs or body.count))
    return JSONResponse(
        {
            "fires": [fire_out(fire) for fire in fires],
            "words": describe(trigger),
            "warnings": list(warnings_in_words(trigger)),
            "timezone": trigger.zone,
        }
    )


@router.post("/explain", responses=gives(ExplainOut) | BODY)
async def explain(body: ExplainIn, door: ToDoorway, actor: Caller) -> Response:
    """A trigger, or a cron expression, in words."""
    if ("trigger" in body.model_fields_set) == (body.expression is not None):
        raise InvalidInput("send either trigger or expression", field="trigger", code="missing")
    trigger = (
        body.trigger if body.expression is None else Cron(body.expression, timezone=body.timezone)
    ).with_default_zone(door.settings.default_timezone)
    return JSONResponse(
        {
            "words": describe(trigger),
            "warnings": list(warnings_in_words(trigger)),
            "timezone": trigger.zone,
            "trigger": trigger.to_dict(),
        }
    )


@router.get("/upcoming", responses=gives(UpcomingPage))
async def upcoming(
    query: Annotated[UpcomingQuery, Query()], door: ToDoorway, actor: Caller
) -> Response:
    """What will run within the next hours, soonest first."""
    found = await door.schedules.upcoming(actor, timedelta(hours=query.hours))
    items = [
        {
            "schedule_id": each.schedule.id,
            "name": each.schedule.name,
            "at": time_out(each.at),
            "local": each.schedule.trigger.local(each.at).isoformat(),
            "timezone": each.schedule.trigger.zone,
            "owner": owner_to_plain(each.schedule.owner),
        }
        for each in found[: query.limit]
    ]
    return JSONResponse({"items": items})


def fire_out(fire: Fire) -> Json:
    shown: Json = {"at": time_out(fire.at), "local": fire.local.isoformat()}
    if fire.note is not None:
        shown |= {"note": fire.note, "words": note_in_words(fire.note)}
    return shown
