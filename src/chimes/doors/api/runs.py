"""Runs: start, list, read, logs, cancel, retry."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chimes.doors.api.actions import new_run_answer
from chimes.doors.api.idempotency import new_run_id
from chimes.doors.api.inputs import NothingIn, StartIn
from chimes.doors.api.log_tail import STREAM, followed, resumed_after, wants_stream
from chimes.doors.api.outputs import (
    BODY,
    BUSY_PAIR,
    EVERYWHERE,
    MISSING,
    TAKEN,
    Answers,
    LogPage,
    RunOut,
    RunPage,
    gives,
)
from chimes.doors.api.paging import page, question_of
from chimes.doors.api.queries import LogsQuery, RunsQuery
from chimes.doors.api.route import Caller, NativeRoute, ToDoorway
from chimes.doors.api.wire import order_from
from chimes.doors.api.wire_runs import log_out, run_out
from chimes.doors.language import Spoken, in_language
from chimes.model.ids import RunId

router = APIRouter(
    prefix="/api/v1/runs", tags=["runs"], route_class=NativeRoute, responses=EVERYWHERE
)

LOGS: Answers = gives(LogPage)
LOGS[200]["content"] = {STREAM: {"schema": {"type": "string"}}}


@router.post(
    "",
    status_code=202,
    responses=gives(RunOut, 202, description="Queued")
    | gives(RunOut, description=BUSY_PAIR)
    | TAKEN
    | BODY,
)
async def start_run(request: Request, body: StartIn, door: ToDoorway, actor: Caller) -> Response:
    """Run something once, without a schedule."""
    order = order_from(body, door.settings)
    run, created = await door.schedules.asked_for(actor, order, run_id=new_run_id(request))
    return new_run_answer(request, run, created=created)


@router.get("", responses=gives(RunPage))
async def list_runs(
    request: Request,
    query: Annotated[RunsQuery, Query()],
    door: ToDoorway,
    actor: Caller,
    lang: Spoken,
) -> Response:
    """A page of runs, newest first."""
    found = await door.runs.find(actor, query.to_query(question_of(request)))
    items = [run_out(each, lang) for each in found.items]
    return in_language(page(request, items, found.next), lang)


@router.get("/{run_id}", responses=gives(RunOut) | MISSING)
async def get_run(run_id: str, door: ToDoorway, actor: Caller, lang: Spoken) -> Response:
    """One run with its attempts."""
    found = await door.runs.get(actor, RunId(run_id))
    return in_language(JSONResponse(run_out(found, lang)), lang)


@router.get("/{run_id}/logs", responses=LOGS | MISSING)
async def get_logs(
    request: Request,
    run_id: str,
    query: Annotated[LogsQuery, Query()],
    door: ToDoorway,
    actor: Caller,
    lang: Spoken,
) -> Response:
    """The log of a run, in order; also while it is written. As events, `id` is the number of an
    entry and `data` the entry; the event `end` says how the run has ended."""
    if query.follow or wants_stream(request):
        after = resumed_after(request, query.after)
        return await followed(request, door, actor, RunId(run_id), after, lang)
    found = await door.runs.logs(actor, RunId(run_id), after=query.after, limit=query.limit + 1)
    shown = found[: query.limit]
    more = len(found) > query.limit
    answer = JSONResponse(
        {
            "items": [log_out(entry, lang) for entry in shown],
            "next_after": shown[-1].number if more else None,
        }
    )
    return in_language(answer, lang)


@router.post("/{run_id}/cancel", responses=gives(RunOut) | MISSING | TAKEN | BODY)
async def cancel_run(
    run_id: str, door: ToDoorway, actor: Caller, lang: Spoken, body: NothingIn | None = None
) -> Response:
    """A waiting run ends at once; a running one is asked to stop."""
    canceled = await door.runs.cancel(actor, RunId(run_id))
    return in_language(JSONResponse(run_out(canceled, lang)), lang)


@router.post(
    "/{run_id}/retry",
    status_code=202,
    responses=gives(RunOut, 202, description="Queued")
    | gives(RunOut, description=BUSY_PAIR)
    | MISSING
    | TAKEN
    | BODY,
)
async def retry_run(
    request: Request, run_id: str, door: ToDoorway, actor: Caller, body: NothingIn | None = None
) -> Response:
    """A new run that does the same again and names this one in `retry_of`."""
    again, created = await door.runs.retry(actor, RunId(run_id), new_id=new_run_id(request))
    return new_run_answer(request, again, created=created)
