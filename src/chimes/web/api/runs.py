"""Routes of runs: start, list, get, logs, cancel, retry, known failures, replies."""

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
from chimes.services.attention import MAX_NOTE, KnownFailure, KnownFailures
from chimes.services.manual_runs import MAX_REPLY_CHARACTERS
from chimes.web.api.paging import LogsQuery, RunsQuery, page
from chimes.web.api.responses import (
    ACTIVE_SYNC,
    BODY_ERRORS,
    COMMON_ERRORS,
    CONFLICT,
    NOT_FOUND,
    LogPage,
    Moment,
    Out,
    Responses,
    RunOut,
    RunPage,
    returns,
)
from chimes.web.api.route import Caller, Context, NativeRoute, new_run_id
from chimes.web.api.schedules import find_runs, new_run_response
from chimes.web.api.schemas import Body, EmptyIn, LanguageField, StartIn
from chimes.web.api.streams import STREAM, accepts_stream, last_event_id, stream_log
from chimes.web.api.translate import Json, log_out, run_out, run_request_from, time_out
from chimes.web.requests import NegotiatedLanguage, negotiated_language, set_language

router = APIRouter(
    prefix="/api/v1/runs", tags=["runs"], route_class=NativeRoute, responses=COMMON_ERRORS
)


class RetryIn(Body):
    from_step: Annotated[str, Field(max_length=100)] = Field(
        default="",
        description="Of a flow: the step to begin with. Results of other steps that succeeded are "
        "kept, except those of steps that come after it. Default: from the start.",
    )


LOGS: Responses = returns(LogPage)
LOGS[200]["content"] = {STREAM: {}}


@router.post(
    "",
    status_code=202,
    responses=returns(RunOut, 202, description="Queued")
    | returns(RunOut, description=ACTIVE_SYNC)
    | CONFLICT
    | BODY_ERRORS,
)
async def start_run(request: Request, body: StartIn, context: Context, actor: Caller) -> Response:
    """Start a run without a schedule."""
    run_request = run_request_from(body, context.settings)
    run, created = await context.manual_runs.start_or_get(
        actor, run_request, run_id=new_run_id(request)
    )
    return new_run_response(request, run, created=created)


@router.get("", responses=returns(RunPage))
async def list_runs(
    request: Request,
    query: Annotated[RunsQuery, Query()],
    context: Context,
    actor: Caller,
    lang: NegotiatedLanguage,
) -> Response:
    """List runs, newest first."""
    found = await find_runs(request, query, context, actor)
    items = [run_out(each, lang) for each in found.items]
    return set_language(page(request, items, found.next), lang)


@router.get("/{run_id}", responses=returns(RunOut) | NOT_FOUND)
async def get_run(
    run_id: str, context: Context, actor: Caller, lang: NegotiatedLanguage
) -> Response:
    """Get a run with its attempts."""
    found = await context.runs.get(actor, RunId(run_id))
    return set_language(JSONResponse(run_out(found, lang)), lang)


@router.get("/{run_id}/logs", responses=LOGS | NOT_FOUND)
async def get_run_logs(
    request: Request,
    run_id: str,
    query: Annotated[LogsQuery, Query()],
    context: Context,
    actor: Caller,
    lang: NegotiatedLanguage,
) -> Response:
    """Get the log of a run, oldest first; with `follow` as Server-Sent Events: `id` is the number
    of an entry, `data` the entry; the event `end` has the final status."""
    if query.follow or accepts_stream(request):
        after = last_event_id(request, query.after)
        return await stream_log(request, context, actor, RunId(run_id), after, lang)
    found = await context.runs.list_logs(
        actor, RunId(run_id), after=query.after, limit=query.limit + 1
    )
    entries = found[: query.limit]
    more = len(found) > query.limit
    response = JSONResponse(
        {
            "items": [log_out(entry) for entry in entries],
            "next_after": entries[-1].number if more else None,
        }
    )
    return set_language(response, lang)


@router.post("/{run_id}/cancel", responses=returns(RunOut) | NOT_FOUND | CONFLICT | BODY_ERRORS)
async def cancel_run(
    run_id: str,
    context: Context,
    actor: Caller,
    lang: NegotiatedLanguage,
    body: EmptyIn | None = None,
) -> Response:
    """Cancel a run. A queued run ends at once; a running one is requested to stop."""
    canceled = await context.runs.cancel(actor, RunId(run_id))
    return set_language(JSONResponse(run_out(canceled, lang)), lang)


@router.post(
    "/{run_id}/retry",
    status_code=202,
    responses=returns(RunOut, 202, description="Queued")
    | returns(RunOut, description=ACTIVE_SYNC)
    | NOT_FOUND
    | CONFLICT
    | BODY_ERRORS,
)
async def retry_run(
    request: Request, run_id: str, context: Context, actor: Caller, body: RetryIn | None = None
) -> Response:
    """Start a new run with the same target; its `retry_of` is this run. With `from_step` a flow
    begins with that step and keeps the results of the others that succeeded."""
    retried, created = await context.runs.retry(
        actor,
        RunId(run_id),
        new_id=new_run_id(request),
        from_step="" if body is None else body.from_step,
    )
    return new_run_response(request, retried, created=created)


# KnownFailure failures, and replies to an agent.


class KnownIn(Body):
    reason: Annotated[str, Field(max_length=MAX_NOTE)] = ""


class ReplyIn(Body):
    text: Annotated[str, Field(max_length=MAX_REPLY_CHARACTERS)] = Field(
        description="The next message to the agent; it also gets the prompt and its response.",
        examples=["And in French?"],
    )
    language: LanguageField = None


class KnownOut(Out):
    run_id: str = Field(description="The run that was marked.")
    schedule_id: str | None = Field(description="Null for a run without a schedule.")
    reason: str
    by: str
    at: Moment


@router.get("/{run_id}/known", responses=returns(KnownOut) | NOT_FOUND)
async def get_known_failure(run_id: str, context: Context, actor: Caller) -> Response:
    """Get the mark of a known failure. 404 if there is none, or if it no longer applies because the
    schedule has succeeded since or fails with another error."""
    run = await context.runs.get(actor, RunId(run_id))
    known = await KnownFailures(context.store).get_for_run(run)
    if known is not None:
        return JSONResponse(_known_out(run, known))
    raise NotFound(_("the failure of run {id} is not marked as known", id=run.id))


@router.post("/{run_id}/known", responses=returns(KnownOut) | NOT_FOUND | CONFLICT | BODY_ERRORS)
async def mark_known_failure(
    run_id: str, context: Context, actor: Caller, body: KnownIn | None = None
) -> Response:
    """Mark a failure as known: the schedule needs no attention until it succeeds or fails with
    another error."""
    run = await context.runs.get(actor, RunId(run_id))
    reason = body.reason if body is not None else ""
    return JSONResponse(
        _known_out(run, await KnownFailures(context.store).mark(actor, run, reason))
    )


@router.post(
    "/{run_id}/acknowledge", responses=returns(KnownOut) | NOT_FOUND | CONFLICT | BODY_ERRORS
)
async def acknowledge_run(
    run_id: str, context: Context, actor: Caller, body: KnownIn | None = None
) -> Response:
    """Acknowledge a failure: it is marked as known, and is not escalated to further recipients.
    `DELETE /runs/{id}/known` takes it back."""
    return await mark_known_failure(run_id, context, actor, body)


@router.delete("/{run_id}/known", status_code=204, responses=NOT_FOUND | CONFLICT)
async def forget_known_failure(run_id: str, context: Context, actor: Caller) -> Response:
    """Remove the mark of a known failure."""
    run = await context.runs.get(actor, RunId(run_id))
    await KnownFailures(context.store).unmark(actor, run)
    return Response(status_code=204)


@router.post(
    "/{run_id}/reply",
    status_code=202,
    responses=returns(RunOut, 202, description="Queued") | NOT_FOUND | CONFLICT | BODY_ERRORS,
)
async def reply_to_run(
    request: Request, run_id: str, body: ReplyIn, context: Context, actor: Caller
) -> Response:
    """Start a new run of the same agent with the conversation so far. Its response is delivered to
    the inbox of the owner."""
    run = await context.runs.get(actor, RunId(run_id))
    language = await negotiated_language(request, body.language)
    new = await context.manual_runs.reply(
        actor, run, body.text, run_id=new_run_id(request), language=language
    )
    return new_run_response(request, new, created=True)


def _known_out(run: Run, known: KnownFailure) -> Json:
    return {
        "run_id": known.run_id,
        "schedule_id": run.schedule_id,
        "reason": known.note,
        "by": known.by,
        "at": time_out(known.at),
    }
