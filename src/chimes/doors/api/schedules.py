"""Schedules: make, read, change, remove, list."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from chimes.doors.api.etag import expected_version, schedule_answer, unless_known
from chimes.doors.api.idempotency import made_id
from chimes.doors.api.inputs import ScheduleIn, SchedulePatch
from chimes.doors.api.outputs import (
    BODY,
    EVERYWHERE,
    MISSING,
    STALE,
    TAKEN,
    RunPage,
    ScheduleOut,
    SchedulePage,
    gives,
)
from chimes.doors.api.paging import page, question_of
from chimes.doors.api.queries import RunsQuery, SchedulesQuery
from chimes.doors.api.route import Caller, NativeRoute, ToDoorway
from chimes.doors.api.wire import draft_from, patch_from, said_in, schedule_out
from chimes.doors.api.wire_runs import run_out
from chimes.doors.language import Spoken, in_language
from chimes.errors import AlreadyExists
from chimes.model.ids import ScheduleId

router = APIRouter(
    prefix="/api/v1/schedules", tags=["schedules"], route_class=NativeRoute, responses=EVERYWHERE
)


@router.post("", status_code=201, responses=gives(ScheduleOut, 201) | TAKEN | BODY)
async def create_schedule(
    request: Request, body: ScheduleIn, door: ToDoorway, actor: Caller, lang: Spoken
) -> Response:
    """Make a schedule."""
    draft = draft_from(body, actor, door.settings, await door.store.now())
    made = made_id(request) if not draft.id else None
    try:
        schedule = await door.schedules.create(
            actor, replace(draft, id=ScheduleId(made or draft.id)), said=said_in(body)
        )
    except AlreadyExists:
        if made is None:
            raise
        # The first request under this key made it and died before it could answer.
        found = await door.store.get_schedule(ScheduleId(made))
        if found is None:
            raise
        schedule = await door.schedules.get(actor, found.id)
    answer = schedule_answer(schedule, lang, status=201)
    answer.headers["Location"] = f"/api/v1/schedules/{schedule.id}"
    return answer


@router.get("", responses=gives(SchedulePage))
async def list_schedules(
    request: Request,
    query: Annotated[SchedulesQuery, Query()],
    door: ToDoorway,
    actor: Caller,
    lang: Spoken,
) -> Response:
    """A page of schedules. `next_cursor` leads to the next one."""
    found = await door.schedules.find(actor, query.to_query(question_of(request)))
    items = [schedule_out(each, lang) for each in found.items]
    return in_language(page(request, items, found.next), lang)


@router.get("/{schedule_id}", responses=gives(ScheduleOut) | MISSING)
async def get_schedule(
    request: Request, schedule_id: str, door: ToDoorway, actor: Caller, lang: Spoken
) -> Response:
    """One schedule, with its ETag."""
    schedule = await door.schedules.get(actor, ScheduleId(schedule_id))
    return unless_known(request, schedule_answer(schedule, lang))


@router.patch("/{schedule_id}", responses=gives(ScheduleOut) | MISSING | STALE | TAKEN | BODY)
async def change_schedule(
    request: Request,
    schedule_id: str,
    body: SchedulePatch,
    door: ToDoorway,
    actor: Caller,
    lang: Spoken,
) -> Response:
    """Change what is sent and nothing else. With If-Match: only if nobody was faster."""
    current = await door.schedules.get(actor, ScheduleId(schedule_id))
    version = expected_version(request, current.version)
    changed = await door.schedules.change(
        actor,
        current.id,
        patch_from(body, door.settings),
        expected_version=version,
        said=said_in(body),
    )
    return schedule_answer(changed, lang)


@router.delete("/{schedule_id}", status_code=204, responses=MISSING | STALE)
async def delete_schedule(
    request: Request, schedule_id: str, door: ToDoorway, actor: Caller
) -> Response:
    """Remove a schedule. Its history stays; a run that is under way ends by itself."""
    current = await door.schedules.get(actor, ScheduleId(schedule_id))
    version = expected_version(request, current.version)
    await door.schedules.delete(actor, current.id, expected_version=version)
    return Response(status_code=204)


@router.get("/{schedule_id}/runs", responses=gives(RunPage) | MISSING)
async def list_runs_of_schedule(
    request: Request,
    schedule_id: str,
    query: Annotated[RunsQuery, Query()],
    door: ToDoorway,
    actor: Caller,
    lang: Spoken,
) -> Response:
    """The runs of one schedule, newest first."""
    schedule = await door.schedules.get(actor, ScheduleId(schedule_id))
    found = await door.runs.find(actor, query.to_query(question_of(request), schedule.id))
    items = [run_out(each, lang) for each in found.items]
    return in_language(page(request, items, found.next), lang)
