"""Questions about time that save nothing: preview, explain, upcoming, templates."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.language import describe, note_in_words, warnings_in_words
from chimes.services.templates import templates_shown
from chimes.services.validation import check_fires
from chimes.store.codec.schedule import owner_to_plain
from chimes.triggers import Cron, Fire
from chimes.triggers.zones import parse_zone
from chimes.web.api.paging import TemplatesQuery, UpcomingQuery
from chimes.web.api.responses import (
    BODY,
    EVERYWHERE,
    ExplainOut,
    Moment,
    Out,
    PreviewOut,
    TemplatePage,
    TriggerOut,
    UpcomingPage,
    gives,
)
from chimes.web.api.route import Caller, Context, NativeRoute
from chimes.web.api.schemas import Body, ExplainIn, LanguageField, MomentField, PreviewIn
from chimes.web.api.translate import Json, moment_from, time_out
from chimes.web.locale import in_language, preferred_language, spoken_language
from chimes.web.locale import parsed as parsed_text

router = APIRouter(prefix="/api/v1", tags=["time"], route_class=NativeRoute, responses=EVERYWHERE)


@router.post("/preview", responses=gives(PreviewOut) | BODY)
async def preview(request: Request, body: PreviewIn, context: Context, actor: Caller) -> Response:
    """The next fires of a trigger, without saving anything."""
    lang = await spoken_language(request, body.lang)
    now = await context.store.now()
    zone = await context.schedules.rules.zone_for(actor.owner, body.trigger)
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
async def explain(request: Request, body: ExplainIn, context: Context, actor: Caller) -> Response:
    """A trigger, or a cron expression, in words."""
    lang = await spoken_language(request, body.lang)
    if ("trigger" in body.model_fields_set) == (body.expression is not None):
        raise InvalidInput(_("send either trigger or expression"), field="trigger", code="missing")
    given = (
        body.trigger if body.expression is None else Cron(body.expression, timezone=body.timezone)
    )
    trigger = given.with_default_zone(await context.schedules.rules.zone_for(actor.owner, given))
    shown = {
        "words": describe(trigger, lang),
        "warnings": list(warnings_in_words(trigger, lang)),
        "timezone": trigger.zone,
        "trigger": trigger.to_dict(),
    }
    return in_language(JSONResponse(shown), lang)


@router.get("/upcoming", responses=gives(UpcomingPage))
async def upcoming(
    query: Annotated[UpcomingQuery, Query()], context: Context, actor: Caller
) -> Response:
    """What will run within the next hours, soonest first."""
    found = await context.schedules.list_upcoming(actor, timedelta(hours=query.hours))
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
    context: Context,
    actor: Caller,
) -> Response:
    """Ready-made times and schedules to start from, with their next fires."""
    lang = await spoken_language(request, query.lang, source="query")
    now = await context.store.now()
    try:
        zone = query.timezone or await context.schedules.rules.zone_for(actor.owner)
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


# @@ Words to a trigger, without saving anything.

_FIRES = 3


class ParseIn(Body):
    """A sentence in Thai, English or Chinese that says when, and then what."""

    text: Annotated[str, Field(examples=["ทุกวัน 09:00 สรุปข่าว AI"])]
    timezone: str | None = Field(
        default=None, description="IANA name; left out: the owner's, then the system's."
    )
    now: MomentField | None = Field(
        default=None, description="What `today` is counted from; left out: now."
    )
    lang: LanguageField = None


class ParseOut(Out):
    trigger: TriggerOut
    task: str = Field(description="The text without its words of time.")
    timezone: str
    words: str = Field(description="The trigger in words.")
    fires: list[Moment]


@router.post("/parse", responses=gives(ParseOut) | BODY)
async def parse_words(request: Request, body: ParseIn, context: Context, actor: Caller) -> Response:
    """What a sentence means as a trigger. One that does not say exactly when is answered with a
    question (422, `clarification`), never with a guess."""
    asked = await preferred_language(request, body.lang)
    zone = await context.schedules.rules.zone_for(actor.owner) if body.timezone is None else body.timezone
    zone = parse_zone(zone).name
    now = await context.store.now() if body.now is None else moment_from(body.now, zone, "now")
    parsed = await parsed_text(body.text, now=now, timezone=zone, lang=asked)
    lang = asked or parsed.language
    trigger = parsed.trigger.anchored(now)
    shown = {
        "trigger": trigger.to_dict(),
        "task": parsed.task,
        "timezone": parsed.timezone,
        "words": describe(trigger, lang),
        "fires": [time_out(fire.at) for fire in trigger.fires(now, _FIRES)],
    }
    return in_language(JSONResponse(shown), lang)
