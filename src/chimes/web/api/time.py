"""Routes that compute times and save nothing: preview, explain, parse, upcoming, templates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chimes.errors import InvalidInput
from chimes.i18n import _, in_language
from chimes.language import describe, note_in_words, warnings_in_words
from chimes.language.description import describe_example
from chimes.model.validation import check_fires
from chimes.services.access import CALCULATIONS
from chimes.services.schedules.rules import calculate, parse_sentence
from chimes.services.schedules.templates import render_templates
from chimes.store.codec.values import owner_to_plain
from chimes.triggers import Cron, Fire, Trigger, trigger_from_dict
from chimes.triggers.zones import parse_zone
from chimes.web.api.paging import TemplatesQuery, UpcomingQuery
from chimes.web.api.responses import (
    BODY_ERRORS,
    COMMON_ERRORS,
    ExplainOut,
    Moment,
    Out,
    PreviewAnswerOut,
    TemplatePage,
    TriggerOut,
    UpcomingPage,
    returns,
)
from chimes.web.api.route import Caller, Context, PureRoute, PureSetRoute
from chimes.web.api.schemas import Body, ExplainIn, LanguageField, MomentField, PreviewIn
from chimes.web.api.translate import Json, moment_from, time_out
from chimes.web.requests import negotiated_language, preferred_language, set_language

router = APIRouter(prefix="/api/v1", tags=["time"], route_class=PureRoute, responses=COMMON_ERRORS)


#: Fires of one request, and seconds of calculation, for many triggers.
_MAX_FIRES, _PREVIEW_SECONDS = 100_000, 10.0
set_router = APIRouter(
    prefix="/api/v1", tags=["time"], route_class=PureSetRoute, responses=COMMON_ERRORS
)


@set_router.post("/preview", responses=returns(PreviewAnswerOut) | BODY_ERRORS)
async def preview_trigger(
    request: Request, body: PreviewIn, context: Context, actor: Caller
) -> Response:
    """Preview the next fires of a trigger, or of each of many triggers. Saves nothing."""
    lang = await negotiated_language(request, body.lang)
    if ("trigger" in body.model_fields_set) == ("triggers" in body.model_fields_set):
        raise InvalidInput(_("send either trigger or triggers"), field="trigger", code="missing")
    now = await context.store.now()
    calendars = context.schedules.rules.calendars
    seed = body.id or body.name or ""
    if "triggers" in body.model_fields_set:
        zone = await context.schedules.rules.zone_for(actor.owner)
        if len(body.triggers) * body.count > _MAX_FIRES:
            raise InvalidInput(
                _("at most {most} fires in one request: lower count", most=_MAX_FIRES),
                field="count",
                code="out_of_range",
            )
        # A wall time in `from` is that of each trigger's zone.
        after = None if body.after is None else partial(_moment_in, body.after)
        end = context.clock.monotonic() + _PREVIEW_SECONDS

        def check_time() -> None:
            if context.clock.monotonic() > end:
                raise InvalidInput(
                    _("the triggers before took too long: send fewer at once"), code="too_slow"
                )

        triggers = await CALCULATIONS.run(partial(_read_triggers, body.triggers, zone, check_time))
        names = [each.calendar_names() for each in triggers if not isinstance(each, InvalidInput)]
        resolve = await calendars.resolver(frozenset().union(*names))

        def preview(trigger: Trigger) -> Json:
            check_time()
            before = resolve(trigger)
            trigger = before.seeded(seed)
            since = now if after is None else after(trigger.zone)
            fires = _search(trigger, since, body.count)
            example = before.is_example and body.id is None
            return _preview_out(trigger, fires, lang, example=example)

        items = await CALCULATIONS.run(partial(_preview_many, triggers, preview, lang))
        return set_language(JSONResponse({"items": items}), lang)
    zone = await context.schedules.rules.zone_for(actor.owner, body.trigger)
    since = now if body.after is None else moment_from(body.after, body.trigger.zone, "from")
    given = (await calendars.resolve(body.trigger)).with_default_zone(zone).with_default_anchor()
    trigger = given.seeded(seed)
    fires = await calculate([trigger], partial(_search, trigger, since, body.count))
    example = given.is_example and body.id is None
    return set_language(JSONResponse(_preview_out(trigger, fires, lang, example=example)), lang)


def _moment_in(text: str, zone: str) -> datetime:
    return moment_from(text, zone, "from")


def _search(trigger: Trigger, after: datetime, count: int) -> list[Fire]:
    check_fires(trigger, after)
    return list(trigger.fires(after, min(count, trigger.max_runs or count)))


def _preview_out(trigger: Trigger, fires: Sequence[Fire], lang: str, *, example: bool) -> Json:
    return {
        "fires": [fire_out(fire, lang) for fire in fires],
        "words": describe_example(trigger, lang) if example else describe(trigger, lang),
        "warnings": list(warnings_in_words(trigger, lang)),
        "timezone": trigger.zone,
    } | ({"example": True} if example else {})


def _read_triggers(
    given: Sequence[Mapping[str, Any]], zone: str, check_time: Callable[[], None]
) -> list[Trigger | InvalidInput]:
    found: list[Trigger | InvalidInput] = []
    for each in given:
        try:
            check_time()
            found.append(trigger_from_dict(each).with_default_zone(zone).with_default_anchor())
        except InvalidInput as error:
            found.append(error)
    return found


def _preview_many(
    triggers: Sequence[Trigger | InvalidInput], preview: Callable[[Trigger], Json], lang: str
) -> list[Json]:
    items: list[Json] = []
    for each in triggers:
        try:
            if isinstance(each, InvalidInput):
                raise each
            items.append(preview(each) | {"error": None})
        except InvalidInput as error:
            items.append(
                {
                    "fires": [],
                    "words": None,
                    "warnings": [],
                    "timezone": None,
                    "error": {
                        "detail": in_language(error.message, lang),
                        "code": error.code,
                        "field": error.field,
                        "hint": in_language(error.hint, lang) if error.hint else None,
                    },
                }
            )
    return items


@router.post("/explain", responses=returns(ExplainOut) | BODY_ERRORS)
async def explain_trigger(
    request: Request, body: ExplainIn, context: Context, actor: Caller
) -> Response:
    """Describe a trigger or a cron expression in words."""
    lang = await negotiated_language(request, body.lang)
    if ("trigger" in body.model_fields_set) == (body.expression is not None):
        raise InvalidInput(_("send either trigger or expression"), field="trigger", code="missing")
    given = (
        body.trigger if body.expression is None else Cron(body.expression, timezone=body.timezone)
    )
    trigger = given.with_default_zone(await context.schedules.rules.zone_for(actor.owner, given))
    content = {
        "words": describe(trigger, lang),
        "warnings": list(warnings_in_words(trigger, lang)),
        "timezone": trigger.zone,
        "trigger": trigger.shown(),
    }
    return set_language(JSONResponse(content), lang)


@router.get("/upcoming", responses=returns(UpcomingPage))
async def list_upcoming(
    query: Annotated[UpcomingQuery, Query()], context: Context, actor: Caller
) -> Response:
    """List the fires of the next hours, soonest first."""
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


@router.get("/templates", responses=returns(TemplatePage))
async def list_templates(
    request: Request,
    query: Annotated[TemplatesQuery, Query()],
    context: Context,
    actor: Caller,
) -> Response:
    """List templates of triggers and schedules with their next fires."""
    lang = await negotiated_language(request, query.lang, source="query")
    now = await context.store.now()
    try:
        zone = query.timezone or await context.schedules.rules.zone_for(actor.owner)
        zone = parse_zone(zone).name
    except InvalidInput as error:
        raise InvalidInput(
            error.message, field="timezone", code=error.code, hint=error.hint, source="query"
        ) from None
    return set_language(JSONResponse({"items": render_templates(zone, lang, now)}), lang)


def fire_out(fire: Fire, lang: str) -> Json:
    content: Json = {"at": time_out(fire.at), "local": fire.local.isoformat()}
    if fire.note is not None:
        content |= {"note": fire.note, "words": note_in_words(fire.note, lang)}
    return content


_FIRES = 3


class ParseIn(Body):
    """A sentence in English, Thai or Chinese with a time and a task."""

    text: Annotated[str, Field(examples=["ทุกวัน 09:00 สรุปข่าว AI"])]
    timezone: str | None = Field(
        default=None, description="IANA name; default: that of the owner, else of the server."
    )
    now: MomentField | None = Field(
        default=None, description="The moment that `today` refers to; default: now."
    )
    lang: LanguageField = None


class ParseOut(Out):
    trigger: TriggerOut
    task: str = Field(description="The text without the time expression.")
    timezone: str
    words: str = Field(description="The trigger in words.")
    fires: list[Moment]
    guesses: list[str] = Field(
        default_factory=list,
        description="What the sentence leaves open: `start`, the first of periods of which some"
        " are skipped; `hour`, the half of the day.",
    )


@router.post("/parse", responses=returns(ParseOut) | BODY_ERRORS)
async def parse_words(request: Request, body: ParseIn, context: Context, actor: Caller) -> Response:
    """Convert a sentence to a trigger. An ambiguous sentence is 422 with a `clarification`; Chimes
    does not guess."""
    requested_language = await preferred_language(request, body.lang)
    zone = (
        await context.schedules.rules.zone_for(actor.owner)
        if body.timezone is None
        else body.timezone
    )
    zone = parse_zone(zone).name
    now = await context.store.now() if body.now is None else moment_from(body.now, zone, "now")
    parsed = await parse_sentence(body.text, now=now, timezone=zone, lang=requested_language)
    lang = requested_language or parsed.language
    trigger = parsed.trigger.with_default_anchor()
    fires = await calculate([trigger], lambda: list(trigger.fires(now, _FIRES)))
    content = {
        "trigger": trigger.shown(),
        "task": parsed.task,
        "timezone": parsed.timezone,
        "words": describe(trigger, lang),
        "fires": [time_out(fire.at) for fire in fires],
    } | ({"guesses": list(parsed.guesses)} if parsed.guesses else {})
    return set_language(JSONResponse(content), lang)
