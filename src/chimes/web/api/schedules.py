"""Routes of schedules: create, read, change, delete, list, and actions such as pause and run."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chimes.errors import AlreadyExists, InvalidInput, StaleVersion
from chimes.i18n import ENGLISH, _
from chimes.model import replace
from chimes.model.ids import ScheduleId
from chimes.model.policy import Overlap
from chimes.model.run import Run
from chimes.model.schedule import Schedule
from chimes.services.manual_runs import Pace
from chimes.web.api.paging import RunsQuery, SchedulesQuery, cursor_scope, page
from chimes.web.api.responses import (
    ACTIVE_SYNC,
    BODY_ERRORS,
    COMMON_ERRORS,
    CONFLICT,
    NOT_FOUND,
    STALE_VERSION,
    BackfillOut,
    RunOut,
    RunPage,
    ScheduleOut,
    SchedulePage,
    returns,
)
from chimes.web.api.route import (
    Caller,
    Context,
    NativeRoute,
    idempotent_id,
    mark_without_effect,
    new_run_id,
)
from chimes.web.api.schemas import (
    BackfillIn,
    EmptyIn,
    PauseIn,
    ReasonIn,
    RunIn,
    ScheduleIn,
    SchedulePatch,
    TimeIn,
)
from chimes.web.api.translate import (
    Json,
    changes_payload,
    draft_from,
    explicit_fields,
    moment_from,
    patch_from,
    run_out,
    schedule_out,
    time_out,
    warning_out,
    with_parameters,
)
from chimes.web.requests import (
    NegotiatedLanguage,
    WebContext,
    language_of_headers,
    set_language,
)

_TAG = re.compile(r'(?:W/)?"([0-9]{1,18})(?:-[0-9a-f]+)?"|([0-9]{1,18})')


def etag(schedule: Schedule, content: Json) -> str:
    """Version and content hash. The hash changes with every fire, so that a cached response is
    never stale; If-Match compares the version only."""
    data = json.dumps(content, sort_keys=True, default=str).encode()
    return f'"{schedule.version}-{hashlib.blake2b(data, digest_size=6).hexdigest()}"'


async def schedule_response(
    context: WebContext, schedule: Schedule, lang: str, *, status: int = 200
) -> JSONResponse:
    (content,) = await _with_warnings(context, [schedule], lang)
    response = JSONResponse(content, status_code=status, headers={"ETag": etag(schedule, content)})
    return set_language(response, lang)


async def _with_warnings(
    context: WebContext, schedules: Sequence[Schedule], lang: str
) -> list[Json]:
    found = await context.setup.warnings_of(schedules)
    return [
        schedule_out(schedule, lang) | {"warnings": [warning_out(each, lang) for each in warnings]}
        for schedule, warnings in zip(schedules, found, strict=True)
    ]


def not_modified_or(request: Request, response: Response) -> Response:
    """304 if the ETag is in If-None-Match."""
    tag = response.headers["ETag"]
    known = [each.strip() for each in request.headers.get("if-none-match", "").split(",")]
    if tag in known or "*" in known or f"W/{tag}" in known:
        headers = {name: response.headers[name] for name in ("ETag", "Content-Language", "Vary")}
        return Response(status_code=304, headers=headers)
    return response


def expected_version(request: Request, current: int) -> int | None:
    """The version that If-Match requires; None for any. Raises StaleVersion."""
    given = request.headers.get("if-match")
    if given is None or given.strip() == "*":
        return None
    found = (_TAG.fullmatch(each.strip()) for each in given.split(","))
    versions = {int(match[1] or match[2]) for match in found if match}
    if current in versions:
        return current
    raise StaleVersion(version=current)


router = APIRouter(
    prefix="/api/v1/schedules", tags=["schedules"], route_class=NativeRoute, responses=COMMON_ERRORS
)


@router.post("", status_code=201, responses=returns(ScheduleOut, 201) | CONFLICT | BODY_ERRORS)
async def create_schedule(
    request: Request, body: ScheduleIn, context: Context, actor: Caller, lang: NegotiatedLanguage
) -> Response:
    """Create a schedule."""
    draft = draft_from(body, actor, context.settings, await context.store.now())
    new_id = idempotent_id(request) if not draft.id else None
    try:
        schedule = await context.schedules.create(
            actor,
            replace(draft, id=ScheduleId(new_id or draft.id)),
            explicit_fields=explicit_fields(body),
        )
    except AlreadyExists:
        if new_id is None:
            raise
        # The first request with this key created it and failed before its response.
        found = await context.store.get_schedule(ScheduleId(new_id))
        if found is None:
            raise
        schedule = await context.schedules.get(actor, found.id)
    response = await schedule_response(context, schedule, lang, status=201)
    response.headers["Location"] = f"/api/v1/schedules/{schedule.id}"
    return response


@router.get("", responses=returns(SchedulePage))
async def list_schedules(
    request: Request,
    query: Annotated[SchedulesQuery, Query()],
    context: Context,
    actor: Caller,
    lang: NegotiatedLanguage,
) -> Response:
    """List schedules, a page at a time."""
    found = await context.schedules.find(actor, query.to_query(cursor_scope(request)))
    items = await _with_warnings(context, found.items, lang)
    return set_language(page(request, items, found.next), lang)


@router.get("/{schedule_id}", responses=returns(ScheduleOut) | NOT_FOUND)
async def get_schedule(
    request: Request, schedule_id: str, context: Context, actor: Caller, lang: NegotiatedLanguage
) -> Response:
    """Get a schedule with its ETag."""
    schedule = await context.schedules.get(actor, ScheduleId(schedule_id))
    return not_modified_or(request, await schedule_response(context, schedule, lang))


@router.patch(
    "/{schedule_id}",
    responses=returns(ScheduleOut) | NOT_FOUND | STALE_VERSION | CONFLICT | BODY_ERRORS,
)
async def change_schedule(
    request: Request,
    schedule_id: str,
    body: SchedulePatch,
    context: Context,
    actor: Caller,
    lang: NegotiatedLanguage,
) -> Response:
    """Change the fields in the body. With If-Match only if the version is the expected one."""
    current = await context.schedules.get(actor, ScheduleId(schedule_id))
    version = expected_version(request, current.version)
    changed = await context.schedules.change(
        actor,
        current.id,
        patch_from(body, context.settings),
        expected_version=version,
        explicit_fields=explicit_fields(body),
    )
    return await schedule_response(context, changed, lang)


@router.delete("/{schedule_id}", status_code=204, responses=NOT_FOUND | STALE_VERSION)
async def delete_schedule(
    request: Request, schedule_id: str, context: Context, actor: Caller
) -> Response:
    """Delete a schedule. Its history stays; a running run is not canceled."""
    current = await context.schedules.get(actor, ScheduleId(schedule_id))
    version = expected_version(request, current.version)
    await context.schedules.delete(actor, current.id, expected_version=version)
    return Response(status_code=204)


@router.get("/{schedule_id}/runs", responses=returns(RunPage) | NOT_FOUND)
async def list_runs_of_schedule(
    request: Request,
    schedule_id: str,
    query: Annotated[RunsQuery, Query()],
    context: Context,
    actor: Caller,
    lang: NegotiatedLanguage,
) -> Response:
    """List the runs of a schedule, newest first."""
    schedule = await context.schedules.get(actor, ScheduleId(schedule_id))
    found = await context.runs.find(actor, query.to_query(cursor_scope(request), schedule.id))
    items = [run_out(each, lang) for each in found.items]
    return set_language(page(request, items, found.next), lang)


action_router = APIRouter(
    prefix="/api/v1/schedules/{schedule_id}",
    tags=["schedules"],
    route_class=NativeRoute,
    responses=COMMON_ERRORS | NOT_FOUND | CONFLICT | BODY_ERRORS,
)


@action_router.post("/pause", responses=returns(ScheduleOut))
async def pause_schedule(
    schedule_id: str,
    context: Context,
    actor: Caller,
    lang: NegotiatedLanguage,
    body: PauseIn | None = None,
) -> Response:
    """Pause a schedule until it is resumed or until the given time."""
    given = body or PauseIn()
    until = None if given.until is None else moment_from(given.until, given.timezone, "until")
    if given.note and given.reason and given.note != given.reason:
        raise InvalidInput(
            _("note and reason have the same meaning; send one of them"), field="reason"
        )
    schedule = await context.schedules.pause(
        actor, ScheduleId(schedule_id), note=given.note or given.reason, until=until
    )
    return await schedule_response(context, schedule, lang)


@action_router.post("/resume", responses=returns(ScheduleOut))
async def resume_schedule(
    schedule_id: str,
    context: Context,
    actor: Caller,
    lang: NegotiatedLanguage,
    body: EmptyIn | None = None,
) -> Response:
    """Resume a schedule with the first slot after now; slots during the pause are not caught up."""
    resumed = await context.schedules.resume(actor, ScheduleId(schedule_id))
    return await schedule_response(context, resumed, lang)


@action_router.post(
    "/run",
    status_code=202,
    responses=returns(RunOut, 202, description="Queued") | returns(RunOut, description=ACTIVE_SYNC),
)
async def run_schedule(
    request: Request,
    schedule_id: str,
    context: Context,
    actor: Caller,
    body: RunIn | None = None,
) -> Response:
    """Run a schedule once, now, optionally with other parameters. The schedule does not change; it
    may be paused."""
    given, wanted = body or RunIn(), ScheduleId(schedule_id)
    target = None
    if changes_payload(given):
        target = with_parameters(given, (await context.schedules.get(actor, wanted)).target)
    run, created = await context.manual_runs.run_now_or_get(
        actor,
        wanted,
        beside_others=given.beside_others,
        run_id=new_run_id(request),
        target=target,
    )
    return new_run_response(request, run, created=created)


@action_router.post("/skip", responses=returns(ScheduleOut))
async def skip_next(
    schedule_id: str,
    context: Context,
    actor: Caller,
    lang: NegotiatedLanguage,
    body: ReasonIn | None = None,
) -> Response:
    """Skip the next slot; it is recorded as skipped."""
    reason = body.reason if body else ""
    skipped = await context.schedules.skip(actor, ScheduleId(schedule_id), reason=reason)
    return await schedule_response(context, skipped, lang)


@action_router.post("/move", responses=returns(ScheduleOut))
async def move_next(
    schedule_id: str, body: TimeIn, context: Context, actor: Caller, lang: NegotiatedLanguage
) -> Response:
    """Execute the next slot at another time; later slots do not change."""
    to = moment_from(body.to, body.timezone, "to")
    moved = await context.schedules.move(actor, ScheduleId(schedule_id), to)
    return await schedule_response(context, moved, lang)


@action_router.post("/reschedule", responses=returns(ScheduleOut))
async def reschedule(
    schedule_id: str, body: TimeIn, context: Context, actor: Caller, lang: NegotiatedLanguage
) -> Response:
    """Set the next slot; a time in the past means now."""
    to = moment_from(body.to, body.timezone, "to")
    moved = await context.schedules.reschedule(actor, ScheduleId(schedule_id), to)
    return await schedule_response(context, moved, lang)


@action_router.post("/backfill", responses=returns(BackfillOut))
async def backfill(
    request: Request, schedule_id: str, body: BackfillIn, context: Context, actor: Caller
) -> Response:
    """Run past slots that were not executed. `dry_run` only lists them."""
    if body.dry_run:
        mark_without_effect(request)
    start = moment_from(body.start, body.timezone, "from")
    end = moment_from(body.end, body.timezone, "to")
    if end < start:
        raise InvalidInput(_("`to` is earlier than `from`"), field="to", code="out_of_range")
    result = await context.manual_runs.backfill(
        actor,
        ScheduleId(schedule_id),
        start,
        end,
        dry_run=body.dry_run,
        pace=Pace(concurrency=body.concurrency, overlap=Overlap(body.overlap)),
    )
    return JSONResponse(
        {
            "slots": [time_out(slot) for slot in result.slots],
            "runs": [run_out(run) for run in result.runs],
        }
    )


def new_run_response(request: Request, run: Run, *, created: bool) -> Response:
    """The response to a run request. Does not read the preferences of the caller: a new run has no
    text to translate."""
    lang = language_of_headers(request) or ENGLISH
    response = JSONResponse(
        run_out(run, lang),
        status_code=202 if created else 200,
        headers={"Location": f"/api/v1/runs/{run.id}"},
    )
    return set_language(response, lang)
