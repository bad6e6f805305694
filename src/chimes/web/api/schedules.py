"""Schedules: make, read, change, remove, list."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chimes.errors import AlreadyExists, InvalidInput, StaleVersion
from chimes.i18n import ENGLISH, _
from chimes.model.ids import ScheduleId
from chimes.model.policy import Overlap
from chimes.model.run import Run
from chimes.model.schedule import Schedule
from chimes.services.manual_runs import Pace
from chimes.web.api.idempotency import made_id, new_run_id
from chimes.web.api.paging import RunsQuery, SchedulesQuery, page, question_of
from chimes.web.api.responses import (
    BODY,
    BUSY_PAIR,
    EVERYWHERE,
    MISSING,
    STALE,
    TAKEN,
    BackfillOut,
    RunOut,
    RunPage,
    ScheduleOut,
    SchedulePage,
    gives,
)
from chimes.web.api.route import Caller, Context, NativeRoute
from chimes.web.api.schemas import (
    BackfillIn,
    NothingIn,
    PauseIn,
    ReasonIn,
    RunIn,
    ScheduleIn,
    SchedulePatch,
    ToIn,
)
from chimes.web.api.translate import (
    Json,
    changes_payload,
    draft_from,
    moment_from,
    patch_from,
    run_out,
    said_in,
    schedule_out,
    time_out,
    with_parameters,
)
from chimes.web.locale import Spoken, in_language, language_of_headers

# @@ Entity tags: the version of the definition, and a hash of what is shown.

_TAG = re.compile(r'(?:W/)?"([0-9]{1,18})(?:-[0-9a-f]+)?"|([0-9]{1,18})')


def etag(schedule: Schedule, shown: Json) -> str:
    """The hash changes with every fire, so that a cached answer is never out of date; only the
    version counts for If-Match."""
    content = json.dumps(shown, sort_keys=True, default=str).encode()
    return f'"{schedule.version}-{hashlib.blake2b(content, digest_size=6).hexdigest()}"'


def schedule_answer(schedule: Schedule, lang: str, *, status: int = 200) -> JSONResponse:
    shown = schedule_out(schedule, lang)
    answer = JSONResponse(shown, status_code=status, headers={"ETag": etag(schedule, shown)})
    return in_language(answer, lang)


def unless_known(request: Request, answer: Response) -> Response:
    """304 where the caller has this very answer already."""
    tag = answer.headers["ETag"]
    known = [each.strip() for each in request.headers.get("if-none-match", "").split(",")]
    if tag in known or "*" in known or f"W/{tag}" in known:
        kept = {name: answer.headers[name] for name in ("ETag", "Content-Language", "Vary")}
        return Response(status_code=304, headers=kept)
    return answer


def expected_version(request: Request, current: int) -> int | None:
    """The version that If-Match demands; None: any."""
    given = request.headers.get("if-match")
    if given is None or given.strip() == "*":
        return None
    found = (_TAG.fullmatch(each.strip()) for each in given.split(","))
    versions = {int(match[1] or match[2]) for match in found if match}
    if current in versions:
        return current
    raise StaleVersion(version=current)


router = APIRouter(
    prefix="/api/v1/schedules", tags=["schedules"], route_class=NativeRoute, responses=EVERYWHERE
)


@router.post("", status_code=201, responses=gives(ScheduleOut, 201) | TAKEN | BODY)
async def create_schedule(
    request: Request, body: ScheduleIn, context: Context, actor: Caller, lang: Spoken
) -> Response:
    """Make a schedule."""
    draft = draft_from(body, actor, context.settings, await context.store.now())
    made = made_id(request) if not draft.id else None
    try:
        schedule = await context.schedules.create(
            actor, replace(draft, id=ScheduleId(made or draft.id)), explicit_fields=said_in(body)
        )
    except AlreadyExists:
        if made is None:
            raise
        # The first request under this key made it and died before it could answer.
        found = await context.store.get_schedule(ScheduleId(made))
        if found is None:
            raise
        schedule = await context.schedules.get(actor, found.id)
    answer = schedule_answer(schedule, lang, status=201)
    answer.headers["Location"] = f"/api/v1/schedules/{schedule.id}"
    return answer


@router.get("", responses=gives(SchedulePage))
async def list_schedules(
    request: Request,
    query: Annotated[SchedulesQuery, Query()],
    context: Context,
    actor: Caller,
    lang: Spoken,
) -> Response:
    """A page of schedules. `next_cursor` leads to the next one."""
    found = await context.schedules.find(actor, query.to_query(question_of(request)))
    items = [schedule_out(each, lang) for each in found.items]
    return in_language(page(request, items, found.next), lang)


@router.get("/{schedule_id}", responses=gives(ScheduleOut) | MISSING)
async def get_schedule(
    request: Request, schedule_id: str, context: Context, actor: Caller, lang: Spoken
) -> Response:
    """One schedule, with its ETag."""
    schedule = await context.schedules.get(actor, ScheduleId(schedule_id))
    return unless_known(request, schedule_answer(schedule, lang))


@router.patch("/{schedule_id}", responses=gives(ScheduleOut) | MISSING | STALE | TAKEN | BODY)
async def change_schedule(
    request: Request,
    schedule_id: str,
    body: SchedulePatch,
    context: Context,
    actor: Caller,
    lang: Spoken,
) -> Response:
    """Change what is sent and nothing else. With If-Match: only if nobody was faster."""
    current = await context.schedules.get(actor, ScheduleId(schedule_id))
    version = expected_version(request, current.version)
    changed = await context.schedules.change(
        actor,
        current.id,
        patch_from(body, context.settings),
        expected_version=version,
        explicit_fields=said_in(body),
    )
    return schedule_answer(changed, lang)


@router.delete("/{schedule_id}", status_code=204, responses=MISSING | STALE)
async def delete_schedule(
    request: Request, schedule_id: str, context: Context, actor: Caller
) -> Response:
    """Remove a schedule. Its history stays; a run that is under way ends by itself."""
    current = await context.schedules.get(actor, ScheduleId(schedule_id))
    version = expected_version(request, current.version)
    await context.schedules.delete(actor, current.id, expected_version=version)
    return Response(status_code=204)


@router.get("/{schedule_id}/runs", responses=gives(RunPage) | MISSING)
async def list_runs_of_schedule(
    request: Request,
    schedule_id: str,
    query: Annotated[RunsQuery, Query()],
    context: Context,
    actor: Caller,
    lang: Spoken,
) -> Response:
    """The runs of one schedule, newest first."""
    schedule = await context.schedules.get(actor, ScheduleId(schedule_id))
    found = await context.runs.find(actor, query.to_query(question_of(request), schedule.id))
    items = [run_out(each, lang) for each in found.items]
    return in_language(page(request, items, found.next), lang)


# @@ What can be done with a schedule besides changing its definition.

router_actions = APIRouter(
    prefix="/api/v1/schedules/{schedule_id}",
    tags=["schedules"],
    route_class=NativeRoute,
    responses=EVERYWHERE | MISSING | TAKEN | BODY,
)


@router_actions.post("/pause", responses=gives(ScheduleOut))
async def pause_schedule(
    schedule_id: str, context: Context, actor: Caller, lang: Spoken, body: PauseIn | None = None
) -> Response:
    """No more runs until it is resumed, or until the given moment."""
    given = body or PauseIn()
    until = None if given.until is None else moment_from(given.until, given.timezone, "until")
    if given.note and given.reason and given.note != given.reason:
        raise InvalidInput(_("note and reason are the same thing; send one"), field="reason")
    schedule = await context.schedules.pause(
        actor, ScheduleId(schedule_id), note=given.note or given.reason, until=until
    )
    return schedule_answer(schedule, lang)


@router_actions.post("/resume", responses=gives(ScheduleOut))
async def resume_schedule(
    schedule_id: str, context: Context, actor: Caller, lang: Spoken, body: NothingIn | None = None
) -> Response:
    """Go on with the first slot after now; what passed meanwhile is not made up for."""
    return schedule_answer(await context.schedules.resume(actor, ScheduleId(schedule_id)), lang)


@router_actions.post(
    "/run",
    status_code=202,
    responses=gives(RunOut, 202, description="Queued") | gives(RunOut, description=BUSY_PAIR),
)
async def run_schedule(
    request: Request,
    schedule_id: str,
    context: Context,
    actor: Caller,
    body: RunIn | None = None,
) -> Response:
    """Run it once, now, perhaps with other parameters. Nothing about the schedule changes; allowed
    while it is paused."""
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
    return new_run_answer(request, run, created=created)


@router_actions.post("/skip", responses=gives(ScheduleOut))
async def skip_next(
    schedule_id: str, context: Context, actor: Caller, lang: Spoken, body: ReasonIn | None = None
) -> Response:
    """Leave out the next slot; it is recorded as skipped."""
    reason = body.reason if body else ""
    skipped = await context.schedules.skip(actor, ScheduleId(schedule_id), reason=reason)
    return schedule_answer(skipped, lang)


@router_actions.post("/move", responses=gives(ScheduleOut))
async def move_next(
    schedule_id: str, body: ToIn, context: Context, actor: Caller, lang: Spoken
) -> Response:
    """Carry out the next slot at another moment; the slots after it stay."""
    to = moment_from(body.to, body.timezone, "to")
    return schedule_answer(await context.schedules.move(actor, ScheduleId(schedule_id), to), lang)


@router_actions.post("/reschedule", responses=gives(ScheduleOut))
async def reschedule(
    schedule_id: str, body: ToIn, context: Context, actor: Caller, lang: Spoken
) -> Response:
    """Make this moment the next slot; the past means now."""
    to = moment_from(body.to, body.timezone, "to")
    moved = await context.schedules.reschedule(actor, ScheduleId(schedule_id), to)
    return schedule_answer(moved, lang)


@router_actions.post("/backfill", responses=gives(BackfillOut))
async def backfill(schedule_id: str, body: BackfillIn, context: Context, actor: Caller) -> Response:
    """Run past slots that were not carried out. `dry_run` only lists them."""
    start = moment_from(body.start, body.timezone, "from")
    end = moment_from(body.end, body.timezone, "to")
    if end < start:
        raise InvalidInput(_("`to` is earlier than `from`"), field="to", code="out_of_range")
    made = await context.manual_runs.backfill(
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
