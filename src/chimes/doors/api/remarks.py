"""What people say about a run: its failure is known, or an answer to the agent that answered."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chimes.doors.api.actions import new_run_answer
from chimes.doors.api.fields import Body
from chimes.doors.api.idempotency import new_run_id
from chimes.doors.api.inputs import LanguageField
from chimes.doors.api.outputs import BODY, EVERYWHERE, MISSING, TAKEN, Moment, Out, RunOut, gives
from chimes.doors.api.route import Caller, NativeRoute, ToDoorway
from chimes.doors.api.wire import Json, time_out
from chimes.doors.language import spoken_language
from chimes.errors import NotFound
from chimes.model.ids import RunId
from chimes.model.run import Run
from chimes.service.known_failures import LONGEST_NOTE, Known, KnownFailures, fingerprint
from chimes.service.replies import LONGEST_REPLY, reply
from chimes.wording import say

router = APIRouter(
    prefix="/api/v1/runs", tags=["runs"], route_class=NativeRoute, responses=EVERYWHERE
)


class KnownIn(Body):
    reason: Annotated[str, Field(max_length=LONGEST_NOTE)] = ""


class ReplyIn(Body):
    text: Annotated[str, Field(max_length=LONGEST_REPLY)] = Field(
        description="What the agent is told, after what it was asked and what it answered.",
        examples=["And in French?"],
    )
    language: LanguageField = None


class KnownOut(Out):
    run_id: str = Field(description="The run that was marked.")
    schedule_id: str
    reason: str
    by: str
    at: Moment


@router.get("/{run_id}/known", responses=gives(KnownOut) | MISSING)
async def get_known(run_id: str, door: ToDoorway, actor: Caller) -> Response:
    """Who has looked at the failure of this run. 404 also where nobody has, or where it no longer
    holds: the schedule has worked since, or fails in another way."""
    run = await door.runs.get(actor, RunId(run_id))
    if run.schedule_id is not None:
        schedule = await door.schedules.get(actor, run.schedule_id)
        known = await KnownFailures(door.store).of(schedule)
        if known is not None and known.error == fingerprint(run.error):
            return JSONResponse(_out(run, known))
    raise NotFound(say("nobody has marked the failure of run {id} as known", id=run.id))


@router.post("/{run_id}/known", responses=gives(KnownOut) | MISSING | TAKEN | BODY)
async def mark_known(
    run_id: str, door: ToDoorway, actor: Caller, body: KnownIn | None = None
) -> Response:
    """The schedule needs no attention for this error, until it fails in another way or works."""
    run = await door.runs.get(actor, RunId(run_id))
    reason = body.reason if body is not None else ""
    return JSONResponse(_out(run, await KnownFailures(door.store).mark(actor, run, reason)))


@router.delete("/{run_id}/known", status_code=204, responses=MISSING | TAKEN)
async def forget_known(run_id: str, door: ToDoorway, actor: Caller) -> Response:
    """The failures of its schedule count again."""
    run = await door.runs.get(actor, RunId(run_id))
    await KnownFailures(door.store).forget(actor, run)
    return Response(status_code=204)


@router.post(
    "/{run_id}/reply",
    status_code=202,
    responses=gives(RunOut, 202, description="Queued") | MISSING | TAKEN | BODY,
)
async def reply_to_run(
    request: Request, run_id: str, body: ReplyIn, door: ToDoorway, actor: Caller
) -> Response:
    """A new run of the same agent, which is told what was said before; its answer comes to the
    inbox of the owner."""
    run = await door.runs.get(actor, RunId(run_id))
    language = await spoken_language(request, body.language)
    new = await reply(
        door.schedules, actor, run, body.text, run_id=new_run_id(request), language=language
    )
    return new_run_answer(request, new, created=True)


def _out(run: Run, known: Known) -> Json:
    return {
        "run_id": known.run_id,
        "schedule_id": run.schedule_id,
        "reason": known.note,
        "by": known.by,
        "at": time_out(known.at),
    }
