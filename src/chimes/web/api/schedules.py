"""Routes of schedules: create, read, change, delete, list, and actions such as pause and run."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chimes.errors import (
    AlreadyExists,
    ChimesError,
    InvalidInput,
    InvalidItems,
    NotAllowed,
    NotFound,
    StaleVersion,
    StoreError,
)
from chimes.i18n import ENGLISH, _
from chimes.model import replace
from chimes.model.access import Actor, Role
from chimes.model.ids import DEFAULT_NAMESPACE, RunId, ScheduleId
from chimes.model.listing import Page, Position, ScheduleQuery
from chimes.model.policy import Overlap
from chimes.model.run import Run
from chimes.model.schedule import Schedule
from chimes.model.validation import check_text
from chimes.services.manual_runs import Pace
from chimes.services.schedules.service import (
    RUN_CHANGE,
    ScheduleChange,
    check_permission,
    delete_change,
    pause_change,
    resume_change,
)
from chimes.services.schedules.setup import SetupWarning, name_warning, source_warnings
from chimes.web import bulk
from chimes.web.api.paging import (
    RunsQuery,
    SchedulesQuery,
    WhyQuery,
    cursor_scope,
    matching_runs,
    matching_schedules,
    page,
    query_day,
    query_moment,
)
from chimes.web.api.responses import (
    ACTIVE_SYNC,
    BODY_ERRORS,
    COMMON_ERRORS,
    CONFLICT,
    NOT_FOUND,
    STALE_VERSION,
    BackfillOut,
    BulkOut,
    ChangesetOut,
    ExportOut,
    RunOut,
    RunPage,
    ScheduleOut,
    SchedulePage,
    SlotExplanationsOut,
    returns,
)
from chimes.web.api.route import (
    Caller,
    Context,
    NativeRoute,
    SetRoute,
    idempotent_id,
    mark_without_effect,
    new_run_id,
)
from chimes.web.api.schemas import (
    ApplyIn,
    BackfillIn,
    BulkIn,
    DuplicateIn,
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
    changeset_out,
    draft_from,
    explicit_fields,
    moment_from,
    patch_from,
    run_out,
    schedule_out,
    slot_explanation_out,
    time_out,
    wanted_from,
    warning_out,
    with_parameters,
)
from chimes.web.problems import problem_of
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
    context: WebContext,
    schedule: Schedule,
    lang: str,
    *,
    status: int = 200,
    warnings: Sequence[SetupWarning] = (),
) -> JSONResponse:
    """`warnings`: about the request, before those about the schedule."""
    (content,) = await _with_warnings(context, [schedule], lang, warnings)
    response = JSONResponse(content, status_code=status, headers={"ETag": etag(schedule, content)})
    return set_language(response, lang)


async def _with_warnings(
    context: WebContext,
    schedules: Sequence[Schedule],
    lang: str,
    more: Sequence[SetupWarning] = (),
) -> list[Json]:
    found = await context.setup.warnings_of(schedules)
    return [
        schedule_out(schedule, lang)
        | {"warnings": [warning_out(each, lang) for each in (*more, *warnings)]}
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
    return await _created_response(context, schedule, lang)


async def _name_warning(context: WebContext, schedule: Schedule) -> tuple[SetupWarning, ...]:
    try:
        return name_warning(await context.schedules.find_same_name(schedule))
    except StoreError:
        # The schedule is stored: without the warning the answer is still right.
        return ()


async def _created_response(context: WebContext, schedule: Schedule, lang: str) -> Response:
    warnings = await _name_warning(context, schedule)
    response = await schedule_response(context, schedule, lang, status=201, warnings=warnings)
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
    wanted = query.to_query(cursor_scope(request))
    if query.q:
        wanted = matching_schedules(query.q, actor, await context.now(), wanted)
    found = await context.schedules.find(actor, wanted)
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
    warnings = source_warnings(current) if changed.version != current.version else ()
    if changed.name != current.name:
        warnings += await _name_warning(context, changed)
    return await schedule_response(context, changed, lang, warnings=warnings)


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
    found = await find_runs(request, query, context, actor, schedule.id)
    items = [run_out(each, lang) for each in found.items]
    return set_language(page(request, items, found.next), lang)


async def find_runs(
    request: Request,
    query: RunsQuery,
    context: WebContext,
    actor: Actor,
    schedule_id: ScheduleId | None = None,
) -> Page[Run]:
    wanted = query.to_query(cursor_scope(request), schedule_id)
    if not query.q:
        return await context.runs.find(actor, wanted)
    found = matching_runs(query.q, actor, await context.now(), wanted)
    return await context.runs.search(actor, found)


@router.get(
    "/{schedule_id}/why",
    responses=returns(SlotExplanationsOut) | NOT_FOUND,
)
async def explain_slots(
    schedule_id: str,
    query: Annotated[WhyQuery, Query()],
    context: Context,
    actor: Caller,
    lang: NegotiatedLanguage,
) -> Response:
    """Say what became of a slot and why: of the slot `at` a time, of every slot of a `date`
    (a list), or, without both, of the most recent slot that did not run (of the latest one if all
    did)."""
    schedule = await context.schedules.get(actor, ScheduleId(schedule_id))
    if query.at is not None and query.date is not None:
        raise InvalidInput(
            _("send either at or date"), field="date", code="contradiction", source="query"
        )
    zone = schedule.trigger.zone
    if query.date is None:
        at = None if query.at is None else query_moment(query.at, zone, "at")
        answer = await context.insights.explain_slot(actor, schedule.id, at)
        return set_language(JSONResponse(slot_explanation_out(answer, lang)), lang)
    since, until = query_day(query.date, zone, "date")
    answers = await context.insights.explain_slots(actor, schedule.id, since, until)
    items = [slot_explanation_out(each, lang) for each in answers]
    return set_language(JSONResponse(items), lang)


action_router = APIRouter(
    prefix="/api/v1/schedules/{schedule_id}",
    tags=["schedules"],
    route_class=NativeRoute,
    responses=COMMON_ERRORS | NOT_FOUND | CONFLICT | BODY_ERRORS,
)


@action_router.post("/duplicate", status_code=201, responses=returns(ScheduleOut, 201))
async def duplicate_schedule(
    schedule_id: str,
    context: Context,
    actor: Caller,
    lang: NegotiatedLanguage,
    body: DuplicateIn | None = None,
) -> Response:
    """Create a copy of a schedule, with its secrets, under another name."""
    given = body or DuplicateIn()
    copy = await context.schedules.duplicate(
        actor, ScheduleId(schedule_id), name=given.name, paused=given.paused
    )
    return await _created_response(context, copy, lang)


@action_router.post("/rotate_hook", responses=returns(ScheduleOut))
async def rotate_hook(
    schedule_id: str,
    context: Context,
    actor: Caller,
    lang: NegotiatedLanguage,
    body: EmptyIn | None = None,
) -> Response:
    """Give the webhook of a schedule another address. The former one is not valid any more."""
    schedule = await context.schedules.rotate_hook(actor, ScheduleId(schedule_id))
    return await schedule_response(context, schedule, lang)


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
async def skip_next_slot(
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
async def move_next_slot(
    schedule_id: str, body: TimeIn, context: Context, actor: Caller, lang: NegotiatedLanguage
) -> Response:
    """Execute the next slot at another time; later slots do not change."""
    to = moment_from(body.to, body.timezone, "to")
    moved = await context.schedules.move(actor, ScheduleId(schedule_id), to)
    return await schedule_response(context, moved, lang)


@action_router.post("/reschedule", responses=returns(ScheduleOut))
async def reschedule_next_slot(
    schedule_id: str, body: TimeIn, context: Context, actor: Caller, lang: NegotiatedLanguage
) -> Response:
    """Set the next slot; a time in the past means now."""
    to = moment_from(body.to, body.timezone, "to")
    moved = await context.schedules.reschedule(actor, ScheduleId(schedule_id), to)
    return await schedule_response(context, moved, lang)


@action_router.post("/backfill", responses=returns(BackfillOut))
async def backfill_schedule(
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


set_router = APIRouter(
    prefix="/api/v1", tags=["schedules"], route_class=SetRoute, responses=COMMON_ERRORS
)


@set_router.post("/apply", responses=returns(ChangesetOut) | CONFLICT | STALE_VERSION | BODY_ERRORS)
async def apply_schedules(
    request: Request,
    body: ApplyIn,
    context: Context,
    actor: Caller,
    lang: NegotiatedLanguage,
    dry_run: Annotated[bool, Query(description="Only plan.")] = False,
) -> Response:
    """Create, update and delete schedules so that they become those of the body. All or nothing:
    with an invalid item, the errors of all items are listed and nothing changes."""
    if not actor.may_create(actor.owner):
        raise NotAllowed()
    now = await context.store.now()
    wanted, errors = [], {}
    for name, given in body.schedules.items():
        try:
            wanted.append(wanted_from(name, given, actor, context.settings, now, body.namespace))
        except InvalidInput as error:
            errors[name] = error
    if errors:
        raise InvalidItems(errors, field="schedules")
    origin = check_text(body.origin, "origin").strip()
    if body.prune and not origin:
        raise InvalidInput(_("prune needs an origin"), field="origin", code="missing")
    if dry_run:
        mark_without_effect(request)
        changeset = await context.changesets.plan(
            actor, wanted, origin=origin, namespace=body.namespace, prune=body.prune
        )
    else:
        changeset = await context.changesets.apply(
            actor,
            wanted,
            origin=origin,
            namespace=body.namespace,
            prune=body.prune,
            expected=body.expected_digest,
        )
    answer = JSONResponse(changeset_out(changeset, lang, applied=not dry_run))
    return set_language(answer, lang)


@set_router.post("/schedules/bulk", responses=returns(BulkOut) | CONFLICT | BODY_ERRORS)
async def change_schedules(
    request: Request, body: BulkIn, context: Context, actor: Caller, lang: NegotiatedLanguage
) -> Response:
    """Pause, resume, delete or run many schedules, with a result for each. An error for one of them
    does not stop the others. A request works for some seconds at most; `next_cursor` continues."""
    if (body.ids is None) == (body.q is None):
        raise InvalidInput(_("send either ids or q"), field="ids", code="contradiction")
    if actor.role is Role.VIEWER:
        raise NotAllowed()
    if body.dry_run:
        mark_without_effect(request)
    try:
        results, cursor = await bulk.process(
            context.clock,
            await _bulk_fetch(body, context, actor),
            _bulk_work(request, body, context, actor, lang),
            limit=body.limit,
            cursor=body.cursor or "",
        )
    except InvalidInput as error:
        # The filter and the cursor are members of the body here.
        raise InvalidInput(error.message, field=error.field, code=error.code) from None
    failed = sum(each["result"] == "failed" for each in results)
    answer: Json = {
        "action": body.action,
        "dry_run": body.dry_run,
        "items": results,
        "done": len(results) - failed,
        "failed": failed,
        "next_cursor": cursor or None,
    }
    return set_language(JSONResponse(answer), lang)


async def _bulk_fetch(
    body: BulkIn, context: WebContext, actor: Actor
) -> bulk.Fetch[Schedule | ScheduleId]:
    """The schedules; of chosen ones that are not found, their ids."""
    if body.ids is not None:

        async def find_chosen(ids: Sequence[ScheduleId]) -> Sequence[Schedule | ScheduleId]:
            query = ScheduleQuery(ids=tuple(ids), limit=len(ids))
            page = await context.schedules.find(actor, query)
            found = {each.id: each for each in page.items}
            return [found.get(each, each) for each in ids]

        chosen = list(dict.fromkeys(ScheduleId(each) for each in body.ids))
        return bulk.fetch_selected(chosen, find_chosen)
    # Oldest first, so that changes made by the action itself neither repeat nor omit a schedule.
    query = matching_schedules(body.q or "", actor, await context.now(), ScheduleQuery())

    async def find(after: Position | None, limit: int) -> Page[Schedule | ScheduleId]:
        return await context.schedules.find(actor, replace(query, after=after, limit=limit))

    return bulk.fetch_pages(json.dumps([body.action, body.q]), find)


def _bulk_work(
    request: Request, body: BulkIn, context: WebContext, actor: Actor, lang: str
) -> bulk.Work[Schedule | ScheduleId, Json]:
    change: ScheduleChange | None = None
    if body.action == "pause":
        until = None if body.until is None else moment_from(body.until, body.timezone, "until")
        change = pause_change(actor, note=body.reason, until=until)
    elif body.action == "resume":
        change = resume_change(actor)
    elif body.action == "delete":
        change = delete_change(actor)
    first_id = idempotent_id(request)

    async def run(schedule: Schedule) -> Run | ChimesError:
        # The same for a repeated request, which then finds the run of the first one.
        run_id = (
            None if first_id is None else RunId(str(uuid.uuid5(uuid.UUID(first_id), schedule.id)))
        )
        try:
            return (await context.manual_runs.run_now_or_get(actor, schedule.id, run_id=run_id))[0]
        except StoreError:
            raise
        except ChimesError as error:
            return error

    async def prepare(schedule: Schedule) -> ScheduleChange:
        assert change is not None
        return change

    async def apply(schedules: Sequence[Schedule]) -> Sequence[Schedule | Run | ChimesError | None]:
        if body.dry_run:
            return [_bulk_check(actor, each, change) for each in schedules]
        if change is None:
            return [await run(each) for each in schedules]
        return await context.schedules.change_each(actor, schedules, prepare)

    async def work(batch: Sequence[Schedule | ScheduleId], place: int) -> list[Json]:
        schedules = [each for each in batch if isinstance(each, Schedule)]
        answers = {
            schedule.id: answer
            for schedule, answer in zip(schedules, await apply(schedules), strict=True)
        }
        return [_bulk_item(each, answers, body.dry_run, lang) for each in batch]

    return work


def _bulk_check(
    actor: Actor, schedule: Schedule, change: ScheduleChange | None
) -> ChimesError | None:
    """The error that the permissions of the actor would lead to."""
    try:
        check_permission(actor, schedule, change or RUN_CHANGE)
    except ChimesError as error:
        return error
    return None


def _bulk_item(
    item: Schedule | ScheduleId,
    answers: Mapping[ScheduleId, Schedule | Run | ChimesError | None],
    dry_run: bool,
    lang: str,
) -> Json:
    if isinstance(item, Schedule):
        schedule_id, name, answer = item.id, item.name, answers[item.id]
    else:
        schedule_id, name = item, None
        answer = NotFound(_("schedule {id} not found", id=item))
    found: Json = {"id": schedule_id, "name": name, "result": "planned" if dry_run else "done"}
    found |= {"run_id": answer.id if isinstance(answer, Run) else None, "error": None}
    if isinstance(answer, ChimesError):
        problem = problem_of(answer).in_language(lang)
        found["result"] = "failed"
        found["error"] = {
            "status": problem.status,
            "code": problem.code,
            "detail": problem.detail,
        }
    return found


@set_router.get("/export", responses=returns(ExportOut) | NOT_FOUND | CONFLICT)
async def export_schedules(
    context: Context,
    actor: Caller,
    namespace: Annotated[str, Query(max_length=64)] = DEFAULT_NAMESPACE,
    id: Annotated[
        list[str] | None, Query(max_length=1000, description="Only these; repeatable.")
    ] = None,
    full: Annotated[
        bool, Query(description="Also fields that have the default values of this server.")
    ] = False,
) -> Response:
    """Get schedules in the form that `POST /api/v1/apply` takes. Secrets are `***`: applied to the
    same schedules, they keep the stored values."""
    found = await context.changesets.export(
        actor, namespace=namespace, ids=[ScheduleId(each) for each in id or ()], full=full
    )
    return JSONResponse({"schedules": dict(found.schedules), "skipped": list(found.skipped)})


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
