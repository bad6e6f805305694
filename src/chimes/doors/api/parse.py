"""Words to a trigger, without saving anything."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chimes.doors.api.fields import Body, MomentField
from chimes.doors.api.inputs import LanguageField
from chimes.doors.api.outputs import BODY, EVERYWHERE, Moment, Out, TriggerOut, gives
from chimes.doors.api.route import Caller, NativeRoute, ToDoorway
from chimes.doors.api.wire import moment_from, time_out
from chimes.doors.language import in_language, preferred_language
from chimes.doors.sentences import parsed as parsed_text
from chimes.language import describe
from chimes.triggers.zone import parse_zone

_FIRES = 3
router = APIRouter(prefix="/api/v1", tags=["time"], route_class=NativeRoute, responses=EVERYWHERE)


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
async def parse_words(request: Request, body: ParseIn, door: ToDoorway, actor: Caller) -> Response:
    """What a sentence means as a trigger. One that does not say exactly when is answered with a
    question (422, `clarification`), never with a guess."""
    asked = await preferred_language(request, body.lang)
    zone = await door.schedules.zone_for(actor.owner) if body.timezone is None else body.timezone
    zone = parse_zone(zone).name
    now = await door.store.now() if body.now is None else moment_from(body.now, zone, "now")
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
