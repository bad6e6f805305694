"""Run now, from a list: what is run with what is shown first, and can be another payload for this
one run (UX A.2)."""

from __future__ import annotations

import json
from dataclasses import dataclass

from pydantic import ValidationError
from starlette.responses import Response

from chimes.doors.api.inputs import TargetPatch
from chimes.doors.api.wire_targets import patched_target, target_out
from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.refusing import REFUSALS, Refused
from chimes.doors.dashboard.visit import Visit
from chimes.doors.validation import sentence
from chimes.errors import InvalidInput
from chimes.model.ids import ScheduleId
from chimes.model.payload import payload_name
from chimes.model.schedule import Schedule
from chimes.model.target import AgentTarget, HttpTarget, Target
from chimes.redaction import masked_url
from chimes.wording import say

pages = Pages()


@dataclass(frozen=True, kw_only=True, slots=True)
class Payload:
    """What a run is given to work with, as text; secrets are hidden."""

    #: Empty: there is nothing to give.
    name: str
    text: str
    json: bool

    @property
    def empty(self) -> bool:
        return self.text in ("", "{}")


def payload_shown(target: Target) -> Payload:
    name = payload_name(target)
    plain = target_out(target).get(name, "")
    if isinstance(plain, str):
        return Payload(name=name, text=plain, json=False)
    return Payload(name=name, text=json.dumps(plain, ensure_ascii=False, indent=2), json=True)


def facts_of(target: Target) -> dict[str, str]:
    """What else a target says, field by field; nothing secret."""
    found = {
        name: masked_url(value) if name == "url" and isinstance(value, str) else value
        for name, value in target_out(target).items()
        if name not in (payload_name(target), "kind") and value not in ("", [], {}, None)
    }
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in found.items()
    }


def target_with(before: Target, text: str) -> Target:
    """With what was typed; `***` is the secret that was there. InvalidInput names `payload`."""
    name = payload_name(before)
    given: object = text
    if not isinstance(before, HttpTarget | AgentTarget):
        given = _object_in(text)
    try:
        return patched_target(TargetPatch.model_validate({name: given}), before)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        message = sentence(first["type"], first.get("ctx", {}))
        raise InvalidInput(message, field="payload", code="bad_payload") from None


def _object_in(text: str) -> dict[str, object]:
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            say("this is not valid JSON: {why}", why=error), field="payload", code="bad_json"
        ) from None
    if not isinstance(found, dict):
        raise InvalidInput(
            say('parameters are a JSON object such as {{"name": "Ada"}}'),
            field="payload",
            code="not_an_object",
        )
    return found


@pages.get("/schedules/{id}/run")
async def ask(visit: Visit) -> Response:
    return _asked(visit, await _schedule(visit))


@pages.post("/schedules/{id}/run/with")
async def run_with(visit: Visit) -> Response:
    """On to the new run, or to the one of its pair that is under way."""
    schedule = await _schedule(visit)
    try:
        target = target_with(schedule.target, visit.form.raw("payload"))
        run, created = await visit.door.schedules.run_asked_for(
            visit.actor, schedule.id, target=target
        )
    except REFUSALS as error:
        return _asked(visit, schedule, error=await visit.refused(error))
    if created:
        return visit.done(say("Its run was asked for."), to=f"/ui/runs/{run.id}")
    text = say("It is under way already: this is that run.")
    return visit.done(text, to=f"/ui/runs/{run.id}", kind="warning")


async def _schedule(visit: Visit) -> Schedule:
    return await visit.door.schedules.get(visit.actor, ScheduleId(visit.path["id"]))


def _asked(visit: Visit, schedule: Schedule, *, error: Refused | None = None) -> Response:
    payload = payload_shown(schedule.target)
    return visit.page_or_part(
        "schedules/run.html",
        "part",
        status=200 if error is None else error.status,
        schedule=schedule,
        facts=facts_of(schedule.target),
        payload=payload,
        typed=visit.form.raw("payload") if error else payload.text,
        error=error,
        may_change=visit.actor.may_create(schedule.owner) and bool(payload.name),
        back=visit.back("/ui/schedules"),
    )
