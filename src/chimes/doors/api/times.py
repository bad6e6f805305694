"""Questions about time that save nothing: preview, explain, upcoming, templates."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chimes.doors.api.inputs import ExplainIn, PreviewIn
from chimes.doors.api.outputs import (
    BODY,
    EVERYWHERE,
    ExplainOut,
    PreviewOut,
    TemplatePage,
    UpcomingPage,
    gives,
)
from chimes.doors.api.queries import TemplatesQuery, UpcomingQuery
from chimes.doors.api.route import Caller, NativeRoute, ToDoorway
from chimes.doors.api.wire import Json, moment_from, time_out
from chimes.doors.language import in_language, spoken_language
from chimes.errors import InvalidInput
from chimes.language import describe, note_in_words, warnings_in_words
from chimes.service.rules import check_fires
from chimes.service.templates import templates_shown
from chimes.store.codec.schedule import owner_to_plain
from chimes.triggers import Cron, Fire
from chimes.triggers.zone import parse_zone
from chimes.wording import say

router = APIRouter(prefix="/api/v1", tags=["time"], route_class=NativeRoute, responses=EVERYWHERE)


@router.post("/preview", responses=gives(PreviewOut) | BODY)
async def preview(request: Request, body: PreviewIn, door: ToDoorway, actor: Caller) -> Response:
    """The next fires of a trigger, without saving anything."""
    lang = await spoken_language(request, body.lang)
    now = await door.store.now()
    zone = await door.schedules.zone_for(actor.owner, body.trigger)
    after = now if body.after is None else moment_from(body.after, body.trigger.zone, "from")
    trigger = body.trigger.with_default_zone(zone).anchored(now)
    check_fires(trigger, after)
    fires = trigger.fires(after, min(body.count, trigger.max_runs or body.count))
    shown = {
        "fires": [fire_out(fire, lang) for fire in fires],
        "words": describe(trigger, lang),
        "warnings": list(warnings_in_words(trigger, lang)),
        "timezone": trigger.zone,
    }
    return in_language(JSONResponse(shown), lang)


@router.post("/explain", responses=gives(ExplainOut) | BODY)
async def explain(request: Request, body: ExplainIn, door: ToDoorway, actor: Caller) -> Response:
    """A trigger, or a cron expression, in words."""
    lang = await spoken_language(request, body.lang)
    if ("trigger" in body.model_fields_set) == (body.expression is not None):
        raise InvalidInput(
            say("send either trigger or expression"), field="trigger", code="missing"
        )
    given = (
        body.trigger if body.expression is None else Cron(body.expression, timezone=body.timezone)
    )
    trigger = given.with_default_zone(await door.schedules.zone_for(actor.owner, given))
    shown = {
        "words": describe(trigger, lang),
        "warnings": list(warnings_in_words(trigger, lang)),
        "timezone": trigger.zone,
        "trigger": trigger.to_dict(),
    }
    return in_language(JSONResponse(shown), lang)


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


@router.get("/templates", responses=gives(TemplatePage))
async def templates(
    request: Request,
    query: Annotated[TemplatesQuery, Query()],
    door: ToDoorway,
    actor: Caller,
) -> Response:
    """Ready-made times and schedules to start from, with their next fires."""
    lang = await spoken_language(request, query.lang, source="query")
    now = await door.store.now()
    try:
        zone = query.timezone or await door.schedules.zone_for(actor.owner)
        zone = parse_zone(zone).name
    except InvalidInput as error:
        raise InvalidInput(
            error.message, field="timezone", code=error.code, hint=error.hint, source="query"
        ) from None
    return in_language(JSONResponse({"items": templates_shown(zone, lang, now)}), lang)


def fire_out(fire: Fire, lang: str) -> Json:
    shown: Json = {"at": time_out(fire.at), "local": fire.local.isoformat()}
    if fire.note is not None:
        shown |= {"note": fire.note, "words": note_in_words(fire.note, lang)}
    return shown
