"""Runs: start, list, read, logs, cancel, retry."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chimes.errors import NotFound
from chimes.i18n import _
from chimes.model.ids import RunId
from chimes.model.run import Run
from chimes.services.attention import LONGEST_NOTE, Known, KnownFailures, fingerprint
from chimes.services.manual_runs import MAX_REPLY_CHARACTERS
from chimes.web.api.idempotency import new_run_id
from chimes.web.api.paging import LogsQuery, RunsQuery, page, question_of
from chimes.web.api.responses import (
    BODY,
    BUSY_PAIR,
    EVERYWHERE,
    MISSING,
    TAKEN,
    Answers,
    LogPage,
    Moment,
    Out,
    RunOut,
    RunPage,
    gives,
)
from chimes.web.api.route import Caller, Context, NativeRoute
from chimes.web.api.schedules import new_run_answer
from chimes.web.api.schemas import Body, LanguageField, NothingIn, StartIn
from chimes.web.api.streams import STREAM, followed, resumed_after, wants_stream
from chimes.web.api.translate import Json, log_out, order_from, run_out, time_out
from chimes.web.locale import Spoken, in_language, spoken_language

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
async def start_run(request: Request, body: StartIn, context: Context, actor: Caller) -> Response:
    """Run something once, without a schedule."""
    order = order_from(body, context.settings)
    run, created = await context.manual_runs.start_or_get(actor, order, run_id=new_run_id(request))
    return new_run_answer(request, run, created=created)


@router.get("", responses=gives(RunPage))
async def list_runs(
    request: Request,
    query: Annotated[RunsQuery, Query()],
    context: Context,
    actor: Caller,
    lang: Spoken,
) -> Response:
    """A page of runs, newest first."""
    found = await context.runs.find(actor, query.to_query(question_of(request)))
    items = [run_out(each, lang) for each in found.items]
    return in_language(page(request, items, found.next), lang)


@router.get("/{run_id}", responses=gives(RunOut) | MISSING)
async def get_run(run_id: str, context: Context, actor: Caller, lang: Spoken) -> Response:
    """One run with its attempts."""
    found = await context.runs.get(actor, RunId(run_id))
    return in_language(JSONResponse(run_out(found, lang)), lang)


@router.get("/{run_id}/logs", responses=LOGS | MISSING)
async def get_logs(
    request: Request,
    run_id: str,
    query: Annotated[LogsQuery, Query()],
    context: Context,
    actor: Caller,
    lang: Spoken,
) -> Response:
    """The log of a run, in order; also while it is written. As events, `id` is the number of an
    entry and `data` the entry; the event `end` says how the run has ended."""
    if query.follow or wants_stream(request):
        after = resumed_after(request, query.after)
        return await followed(request, context, actor, RunId(run_id), after, lang)
    found = await context.runs.logs(actor, RunId(run_id), after=query.after, limit=query.limit + 1)
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
    run_id: str, context: Context, actor: Caller, lang: Spoken, body: NothingIn | None = None
) -> Response:
    """A waiting run ends at once; a running one is asked to stop."""
    canceled = await context.runs.cancel(actor, RunId(run_id))
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
    request: Request, run_id: str, context: Context, actor: Caller, body: NothingIn | None = None
) -> Response:
    """A new run that does the same again and names this one in `retry_of`."""
    again, created = await context.runs.retry(actor, RunId(run_id), new_id=new_run_id(request))
    return new_run_answer(request, again, created=created)


# @@ What people say about a run: its failure is known, or an answer to the agent that answered.


class KnownIn(Body):
    reason: Annotated[str, Field(max_length=LONGEST_NOTE)] = ""


class ReplyIn(Body):
    text: Annotated[str, Field(max_length=MAX_REPLY_CHARACTERS)] = Field(
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
async def get_known(run_id: str, context: Context, actor: Caller) -> Response:
    """Who has looked at the failure of this run. 404 also where nobody has, or where it no longer
    holds: the schedule has worked since, or fails in another way."""
    run = await context.runs.get(actor, RunId(run_id))
    if run.schedule_id is not None:
        schedule = await context.schedules.get(actor, run.schedule_id)
        known = await KnownFailures(context.store).of(schedule)
        if known is not None and known.error == fingerprint(run.error):
            return JSONResponse(_out(run, known))
    raise NotFound(_("nobody has marked the failure of run {id} as known", id=run.id))


@router.post("/{run_id}/known", responses=gives(KnownOut) | MISSING | TAKEN | BODY)
async def mark_known(
    run_id: str, context: Context, actor: Caller, body: KnownIn | None = None
) -> Response:
    """The schedule needs no attention for this error, until it fails in another way or works."""
    run = await context.runs.get(actor, RunId(run_id))
    reason = body.reason if body is not None else ""
    return JSONResponse(_out(run, await KnownFailures(context.store).mark(actor, run, reason)))


@router.delete("/{run_id}/known", status_code=204, responses=MISSING | TAKEN)
async def forget_known(run_id: str, context: Context, actor: Caller) -> Response:
    """The failures of its schedule count again."""
    run = await context.runs.get(actor, RunId(run_id))
    await KnownFailures(context.store).forget(actor, run)
    return Response(status_code=204)


@router.post(
    "/{run_id}/reply",
    status_code=202,
    responses=gives(RunOut, 202, description="Queued") | MISSING | TAKEN | BODY,
)
async def reply_to_run(
    request: Request, run_id: str, body: ReplyIn, context: Context, actor: Caller
) -> Response:
    """A new run of the same agent, which is told what was said before; its answer comes to the
    inbox of the owner."""
    run = await context.runs.get(actor, RunId(run_id))
    language = await spoken_language(request, body.language)
    new = await context.manual_runs.reply(
        actor, run, body.text, run_id=new_run_id(request), language=language
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
