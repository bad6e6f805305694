"""What can be done with a schedule besides changing its definition."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chimes.doors.api.etag import schedule_answer
from chimes.doors.api.idempotency import new_run_id
from chimes.doors.api.inputs import BackfillIn, NothingIn, PauseIn, ReasonIn, RunIn, ToIn
from chimes.doors.api.outputs import (
    BODY,
    BUSY_PAIR,
    EVERYWHERE,
    MISSING,
    TAKEN,
    BackfillOut,
    RunOut,
    ScheduleOut,
    gives,
)
from chimes.doors.api.route import Caller, NativeRoute, ToDoorway
from chimes.doors.api.wire import moment_from, time_out
from chimes.doors.api.wire_parameters import changes_payload, with_parameters
from chimes.doors.api.wire_runs import run_out
from chimes.doors.language import Spoken, in_language, language_of_headers
from chimes.errors import InvalidInput
from chimes.model.ids import ScheduleId
from chimes.model.policy import Overlap
from chimes.model.run import Run
from chimes.service.slots import Pace
from chimes.wording import ENGLISH, say

router = APIRouter(
    prefix="/api/v1/schedules/{schedule_id}",
    tags=["schedules"],
    route_class=NativeRoute,
    responses=EVERYWHERE | MISSING | TAKEN | BODY,
)


@router.post("/pause", responses=gives(ScheduleOut))
async def pause_schedule(
    schedule_id: str, door: ToDoorway, actor: Caller, lang: Spoken, body: PauseIn | None = None
) -> Response:
    """No more runs until it is resumed, or until the given moment."""
    given = body or PauseIn()
    until = None if given.until is None else moment_from(given.until, given.timezone, "until")
    if given.note and given.reason and given.note != given.reason:
        raise InvalidInput(say("note and reason are the same thing; send one"), field="reason")
    schedule = await door.schedules.pause(
        actor, ScheduleId(schedule_id), note=given.note or given.reason, until=until
    )
    return schedule_answer(schedule, lang)


@router.post("/resume", responses=gives(ScheduleOut))
async def resume_schedule(
    schedule_id: str, door: ToDoorway, actor: Caller, lang: Spoken, body: NothingIn | None = None
) -> Response:
    """Go on with the first slot after now; what passed meanwhile is not made up for."""
    return schedule_answer(await door.schedules.resume(actor, ScheduleId(schedule_id)), lang)


@router.post(
    "/run",
    status_code=202,
    responses=gives(RunOut, 202, description="Queued") | gives(RunOut, description=BUSY_PAIR),
)
async def run_schedule(
    request: Request,
    schedule_id: str,
    door: ToDoorway,
    actor: Caller,
    body: RunIn | None = None,
) -> Response:
    """Run it once, now, perhaps with other parameters. Nothing about the schedule changes; allowed
    while it is paused."""
    given, wanted = body or RunIn(), ScheduleId(schedule_id)
    target = None
    if changes_payload(given):
        target = with_parameters(given, (await door.schedules.get(actor, wanted)).target)
    run, created = await door.schedules.run_asked_for(
        actor,
        wanted,
        beside_others=given.beside_others,
        run_id=new_run_id(request),
        target=target,
    )
    return new_run_answer(request, run, created=created)


@router.post("/skip", responses=gives(ScheduleOut))
async def skip_next(
    schedule_id: str, door: ToDoorway, actor: Caller, lang: Spoken, body: ReasonIn | None = None
) -> Response:
    """Leave out the next slot; it is recorded as skipped."""
    reason = body.reason if body else ""
    skipped = await door.schedules.skip(actor, ScheduleId(schedule_id), reason=reason)
    return schedule_answer(skipped, lang)


@router.post("/move", responses=gives(ScheduleOut))
async def move_next(
    schedule_id: str, body: ToIn, door: ToDoorway, actor: Caller, lang: Spoken
) -> Response:
    """Carry out the next slot at another moment; the slots after it stay."""
    to = moment_from(body.to, body.timezone, "to")
    return schedule_answer(await door.schedules.move(actor, ScheduleId(schedule_id), to), lang)


@router.post("/reschedule", responses=gives(ScheduleOut))
async def reschedule(
    schedule_id: str, body: ToIn, door: ToDoorway, actor: Caller, lang: Spoken
) -> Response:
    """Make this moment the next slot; the past means now."""
    to = moment_from(body.to, body.timezone, "to")
    moved = await door.schedules.reschedule(actor, ScheduleId(schedule_id), to)
    return schedule_answer(moved, lang)


@router.post("/backfill", responses=gives(BackfillOut))
async def backfill(schedule_id: str, body: BackfillIn, door: ToDoorway, actor: Caller) -> Response:
    """Run past slots that were not carried out. `dry_run` only lists them."""
    start = moment_from(body.start, body.timezone, "from")
    end = moment_from(body.end, body.timezone, "to")
    if end < start:
        raise InvalidInput(say("`to` is earlier than `from`"), field="to", code="out_of_range")
    made = await door.schedules.backfill(
        actor,
        ScheduleId(schedule_id),
        start,
        end,
        dry_run=body.dry_run,
        pace=Pace(concurrency=body.concurrency, overlap=Overlap(body.overlap)),
    )
    return JSONResponse(
        {
            "slots": [time_out(slot) for slot in made.slots],
            "runs": [run_out(run) for run in made.runs],
        }
    )


def new_run_answer(request: Request, run: Run, *, created: bool) -> Response:
    """Nobody's preference is asked for: a new run has no words in it yet."""
    lang = language_of_headers(request) or ENGLISH
    answer = JSONResponse(
        run_out(run, lang),
        status_code=202 if created else 200,
        headers={"Location": f"/api/v1/runs/{run.id}"},
    )
    return in_language(answer, lang)
