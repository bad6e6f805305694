"""Run page: state, timeline, log, failure analysis and actions."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

from pydantic import ValidationError
from starlette.responses import Response, StreamingResponse

from chimes.errors import InvalidInput, NotAllowed
from chimes.i18n import _
from chimes.model import replace
from chimes.model.audit import AuditEntry
from chimes.model.ids import DeliveryId, RunId
from chimes.model.insights import ERROR_KEY_LENGTH, lag_of
from chimes.model.listing import AuditQuery, DeliveryQuery, RunQuery, RunSort
from chimes.model.notification import Delivery
from chimes.model.run import FAILED_STATUSES, LogEntry, Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.model.wait import Approval, ApprovalStatus, approval_of
from chimes.notifications.message import CHANNELS
from chimes.services.attention import KnownFailure
from chimes.services.runs import RunOrigin, RunRequest
from chimes.services.schedules.history import describe_cause, outcome_reason
from chimes.triggers.values import format_moment
from chimes.web.api.schemas import TargetPatch
from chimes.web.api.streams import STREAM, LogStream, StreamCounter, last_event_id
from chimes.web.api.translate import patched_target, target_out
from chimes.web.dashboard.charts.svg import Chart
from chimes.web.dashboard.core.audit import Change, changes_of
from chimes.web.dashboard.core.auth import session_is_active
from chimes.web.dashboard.core.page_request import (
    FORM_ERRORS,
    ConfirmDialog,
    PageRequest,
    PageRouter,
    Undo,
)
from chimes.web.dashboard.core.templates import accepts_gzip
from chimes.web.dashboard.core.times import absolute
from chimes.web.dashboard.run.views import (
    LAST_ENTRIES,
    TABS,
    blocking_run_of,
    build_flow_graph,
    build_waterfall,
    curl_of,
    events_of,
    exchange_of,
    failure_of,
    input_of,
    line_out,
    log_texts,
    output_of,
    plain_line,
    pretty,
    repeatable_steps,
    timeline_spans,
    trace_of,
    tree_of,
    usage_of,
)
from chimes.web.dashboard.runs.views import (
    duration_bar,
    duration_of,
    node_of,
    redacted_run,
    visible,
)
from chimes.web.dashboard.schedule.actions import find_schedule
from chimes.web.problems import validation_message

router = PageRouter()
#: Characters of a target in the retry form.
_MAX_TARGET = 500_000


def page_of(run_id: str) -> str:
    return f"/ui/runs/{run_id}"


async def _run_in(request: PageRequest) -> Run:
    return await request.context.runs.get(request.actor, RunId(request.path_params["id"]))


def _dialog_name(request: PageRequest, run: Run) -> str:
    display = request.display
    when = absolute(run.planned_at, display.zone, display, now=request.now, seconds=True)
    return f"{visible(run.schedule_name or run.step or run.target.kind)} · {when}"


@router.post("/runs/{id}/cancel")
async def cancel(request: PageRequest) -> Response:
    run = await _run_in(request)
    return await request.run_confirmed(
        ConfirmDialog(
            title=_("Cancel this run?"),
            text=_("Work already done is not rolled back."),
            button=_("Cancel run"),
            names=[_dialog_name(request, run)],
        ),
        lambda: request.context.runs.cancel(request.actor, run.id),
        lambda after: _("Run canceled.") if after.status.terminal else _("Cancellation requested."),
        to=request.back_url(page_of(run.id)),
    )


@router.post("/runs/{id}/retry")
async def retry(request: PageRequest) -> Response:
    run = await _run_in(request)
    retried, created = await request.context.runs.retry(
        request.actor, run.id, from_step=request.form.text("from_step")
    )
    return _redirect_to(request, retried, created=created)


@router.get("/runs/{id}/again")
async def retry_form(request: PageRequest) -> Response:
    """Form for a retry with changes, filled with the target of the run."""
    run = await _run_in(request)
    target = json.dumps(target_out(run.target), ensure_ascii=False, indent=2)
    return request.render(
        "run/retry.html", run=run, name=run.schedule_name, target=target, error=None
    )


@router.post("/runs/{id}/again")
async def retry_with_changes(request: PageRequest) -> Response:
    """Starts a manual run; masked secrets are taken from the original run."""
    run = await _run_in(request)
    if not request.actor.may_create(run.owner):
        # Checked before secrets of the run are used.
        raise NotAllowed()
    name, text = request.form.text("name"), request.form.raw("target")
    try:
        run_request = RunRequest(
            target=patched_target(_parse_target(text), run.target),
            policy=run.policy,
            name=name,
            namespace=run.namespace,
            priority=run.priority,
            owner=run.owner,
        )
        new, created = await request.context.manual_runs.start_or_get(request.actor, run_request)
    except FORM_ERRORS as error:
        form_error = await request.form_error(error)
        return request.render(
            "run/retry.html",
            status=form_error.status,
            run=run,
            name=name,
            target=text,
            error=form_error,
        )
    return _redirect_to(request, new, created=created)


@router.post("/runs/{id}/known")
async def mark_known(request: PageRequest) -> Response:
    """Marks the failure as known, so that the same error needs no attention again."""
    run = await _run_in(request)
    reason = request.form.text("reason")
    return await request.run_confirmed(
        ConfirmDialog(
            title=_("Mark this failure as known?"),
            text=_(
                "The schedule no longer appears under “Needs attention” for this error until it "
                "fails differently or succeeds, and is not escalated to further recipients. The "
                "reason is shown next to it."
            ),
            button=_("Mark as known"),
            names=[run.schedule_name],
            dangerous=False,
            reason=True,
        ),
        lambda: request.context.known_failures.mark(request.actor, run, reason),
        _("Failure marked as known."),
        to=request.back_url(page_of(run.id)),
        undo=Undo(action=f"{page_of(run.id)}/unknown"),
    )


@router.post("/runs/{id}/unknown")
async def unmark_known(request: PageRequest) -> Response:
    run = await _run_in(request)
    await request.context.known_failures.unmark(request.actor, run)
    return request.redirect_with_toast(_("Failure unmarked."), to=request.back_url(page_of(run.id)))


@router.post("/runs/{id}/deliveries/{delivery}/retry")
async def retry_delivery(request: PageRequest) -> Response:
    run = await _run_in(request)
    await request.context.notifications.retry_delivery(
        request.actor, DeliveryId(request.path_params["delivery"])
    )
    return request.redirect_with_toast(
        _("Message queued again."), to=f"{page_of(run.id)}?tab=deliveries"
    )


def _redirect_to(request: PageRequest, run: Run, *, created: bool) -> Response:
    if created:
        return request.redirect_with_toast(_("Run queued."), to=page_of(run.id))
    text = _("This run was already queued.")
    return request.redirect_with_toast(text, to=page_of(run.id), kind="warning")


def _parse_target(text: str) -> TargetPatch:
    if len(text) > _MAX_TARGET:
        raise InvalidInput(
            _("at most {limit} characters", limit=_MAX_TARGET), field="target", code="too_long"
        )
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidInput(_("Invalid JSON"), field="target", code="bad_json") from None
    try:
        return TargetPatch.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(["target", *(str(each) for each in first["loc"])])
        message = validation_message(first["type"], first.get("ctx", {}))
        raise InvalidInput(message, field=name, code="bad_target") from None


# --- related data -----------------------------------------------------------------------------
#: Audit verbs that do not change a schedule.
_NOT_CHANGES = frozenset({"run", "snooze", "wake"})
#: Limits for audit entries and failures.
_ENTRIES, _FAILURES = 100, 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """A change of the schedule between the last good run and this one."""

    entry: AuditEntry
    changes: tuple[Change, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureComparison:
    """Comparison of a failed run with the last successful one."""

    #: The last successful run before this one.
    last_good: Run | None
    #: The first run since then with the same error.
    first_seen: Run
    #: Runs since then with this error, including this one; `more`: at least.
    count: int
    more: bool
    edits: tuple[Edit, ...]


async def requested_by(request: PageRequest, run: Run) -> RunOrigin | None:
    """Returns who requested the run; None if the schedule did or no entry exists."""
    return (await request.context.runs.get_origins(request.actor, [run])).get(run.id)


async def retries_of(request: PageRequest, run: Run) -> tuple[RunId, ...]:
    """Returns the manual retries of this run, oldest first."""
    if not run.status.terminal:
        return ()
    entries = await request.context.audit.list_for_owner(
        request.actor, run.owner, AuditQuery(object_id=run.id, verb="retry", limit=_ENTRIES)
    )
    ids = (entry.changes.get("run_id") for entry in reversed(entries))
    return tuple(RunId(str(each)) for each in ids if each)


async def audit_entries_of(request: PageRequest, run: Run) -> tuple[AuditEntry, ...]:
    """Returns the audit entries about the run."""
    query = AuditQuery(object_id=run.id, limit=_ENTRIES)
    return tuple(await request.context.audit.list_for_owner(request.actor, run.owner, query))


async def log_tail_of(request: PageRequest, run: Run) -> tuple[LogEntry, ...]:
    """Returns the last log entries of a run with an error."""
    if not run.error:
        return ()
    return await request.context.runs.list_last_logs(request.actor, run.id, limit=LAST_ENTRIES)


async def failed_step(request: PageRequest, run: Run) -> Run | None:
    """Returns the failed step of a flow: the one that its error names, or else the first one. The
    traceback is in the log of that step."""
    if run.target.kind != "flow" or not run.error:
        return None
    query = RunQuery(
        parent_id=run.id,
        statuses=tuple(sorted(FAILED_STATUSES)),
        sort=RunSort.CREATED_AT,
        descending=False,
        limit=_FAILURES,
    )
    found = (await request.context.runs.find(request.actor, query)).items
    named = (each for each in found if each.step and repr(each.step) in run.error)
    return next(named, found[0] if found else None)


async def known_failure_of(
    request: PageRequest, run: Run, schedule: Schedule | None
) -> KnownFailure | None:
    """Returns the mark of a known failure, if it applies to this run."""
    if run.status not in FAILED_STATUSES or (schedule is None and run.schedule_id is not None):
        return None
    return await request.context.known_failures.get_for_run(run)


async def compare_failure(request: PageRequest, run: Run) -> FailureComparison | None:
    """Compares a failed run of a schedule with its last successful run."""
    if run.status not in FAILED_STATUSES or run.schedule_id is None:
        return None
    earlier = RunQuery(schedule_id=run.schedule_id, created_until=run.created_at)
    good = await request.context.runs.find(
        request.actor, replace(earlier, statuses=(RunStatus.SUCCEEDED,), limit=1)
    )
    last_good = good.items[0] if good.items else None
    failures = await request.context.runs.find(
        request.actor,
        replace(
            earlier,
            statuses=tuple(sorted(FAILED_STATUSES)),
            created_since=last_good.created_at if last_good else None,
            descending=False,
            limit=_FAILURES,
        ),
    )
    same = [
        each
        for each in failures.items
        if each.error[:ERROR_KEY_LENGTH] == run.error[:ERROR_KEY_LENGTH]
    ]
    return FailureComparison(
        last_good=last_good,
        first_seen=same[0] if same else run,
        count=max(1, len(same)),
        more=failures.next is not None,
        edits=await _edits(request, last_good, run) if last_good else (),
    )


async def _edits(request: PageRequest, good: Run, run: Run) -> tuple[Edit, ...]:
    """Returns the changes of the schedule between the two runs, oldest first."""
    entries = await request.context.audit.list_for_owner(
        request.actor, run.owner, AuditQuery(object_id=run.schedule_id, limit=_ENTRIES)
    )
    between = [
        Edit(entry=entry, changes=changes_of(entry))
        for entry in reversed(entries)
        if good.created_at < entry.at <= run.created_at
        and entry.object_kind == "schedule"
        and entry.allowed
        and entry.verb not in _NOT_CHANGES
    ]
    return tuple(between)


#: Steps of a flow in the timeline.
MAX_STEPS = 100
#: Steps of a flow in its picture.
MAX_PICTURED_STEPS = 200
#: Log lines per page without scripts.
LINES_PER_PAGE = 200


@router.get("/runs/{id}")
async def run(request: PageRequest) -> Response:
    found = await request.context.runs.get(request.actor, RunId(request.path_params["id"]))
    if request.is_htmx and request.query.get("part") == "bar":
        return request.render_block("run/page.html", "bar", run=found)
    deliveries = await _deliveries(request, found)
    values = await _head(request, found, deliveries)
    if request.is_htmx and request.query.get("part") == "head":
        return request.render_block("run/page.html", "head", status=200, **values)
    tab = request.query.get("tab", "log")
    values |= {"tab": tab if tab in TABS else "log", **await _tab(request, found, tab, deliveries)}
    if request.is_htmx:
        return request.render_block("run/page.html", "tab_body", status=200, **values)
    return request.render("run/page.html", status=200, **values)


async def _head(
    request: PageRequest, run: Run, deliveries: tuple[Delivery, ...]
) -> dict[str, object]:
    insights = request.context.insights
    schedule = await find_schedule(request, run.schedule_id)
    zone = schedule.trigger.zone if schedule is not None else None
    medians = (
        await insights.get_expected_durations(request.actor, [run.schedule_id])
        if run.schedule_id
        else {}
    )
    median = medians.get(run.schedule_id) if run.schedule_id else None
    children: tuple[Run, ...] = ()
    if run.target.kind == "flow":
        query = RunQuery(
            parent_id=run.id, sort=RunSort.CREATED_AT, descending=False, limit=MAX_STEPS
        )
        children = (await request.context.runs.find(request.actor, query)).items
    spans = timeline_spans(run, children, deliveries, request.now, request.display.language)
    duration = duration_of(run, request.now)
    url = str(request.http.base_url).rstrip("/")
    return {
        "run": run,
        "visible": visible,
        "schedule": schedule,
        "zone": zone,
        "lag": lag_of(run),
        "duration": duration,
        "median": median,
        "bar": duration_bar(duration, median),
        "node": node_of(run),
        "requested_by": await requested_by(request, run),
        "retries": await retries_of(request, run),
        "graph": await _graph(request, run),
        "approval": await _approval(request, run),
        "repeatable": repeatable_steps(run, children),
        "waterfall": build_waterfall(spans, request.display, zone, request.now),
        "usage": usage_of(run),
        "trace": trace_of(run),
        "cause": None if run.definition.cause is None else describe_cause(run.definition.cause),
        "why": outcome_reason(run),
        "blocking_run": blocking_run_of(run),
        "known": await known_failure_of(request, run, schedule),
        "may_mark_known": run.status in FAILED_STATUSES
        and (schedule is not None or run.schedule_id is None)
        and request.actor.may_operate(run.owner if schedule is None else schedule.owner),
        "deliveries": deliveries,
        "may_operate": request.actor.may_operate(run.owner),
        "may_create": request.actor.may_create(run.owner),
        "link": f"{url}/ui/runs/{run.id}",
        "curl": curl_of(run, url),
    }


async def _graph(request: PageRequest, run: Run) -> Chart | None:
    """The picture of a flow; None for other runs, and for a flow that is too large for one."""
    if run.target.kind != "flow":
        return None
    picture = await request.context.flow_pictures.of(run)
    if not 0 < len(picture.steps) <= MAX_PICTURED_STEPS:
        return None
    return build_flow_graph(picture, request.display.language)


async def _approval(request: PageRequest, run: Run) -> Approval | None:
    """The open approval that the run is, or the first one that the flow waits for."""
    own = approval_of(run, request.now)
    if own is not None:
        return own if own.status is ApprovalStatus.OPEN else None
    if run.target.kind != "flow" or run.status.terminal:
        return None
    query = RunQuery(parent_id=run.id, statuses=(RunStatus.QUEUED,), descending=False)
    found = (await request.context.runs.find(request.actor, query)).items
    approvals = (approval_of(each, request.now) for each in found)
    return next((e for e in approvals if e is not None and e.status is ApprovalStatus.OPEN), None)


async def _deliveries(request: PageRequest, run: Run) -> tuple[Delivery, ...]:
    page = await request.context.notifications.list_deliveries(
        request.actor, DeliveryQuery(run_id=run.id)
    )
    return tuple(reversed(page.items))


async def _tab(
    request: PageRequest, run: Run, tab: str, deliveries: tuple[Delivery, ...]
) -> dict[str, object]:
    match tab:
        case "exchange":
            return {"exchange": exchange_of(run)}
        case "data":
            data_in, data_out = input_of(run), output_of(run)
            return {
                "input": pretty(data_in),
                "input_tree": tree_of(data_in),
                "output": "" if data_out is None else pretty(data_out),
                "output_tree": tree_of(data_out),
            }
        case "error":
            step = await failed_step(request, run)
            return {
                "failed_step": step,
                "failure": failure_of(run, await log_tail_of(request, step or run)),
                "comparison": await compare_failure(request, run),
            }
        case "events":
            entries = await audit_entries_of(request, run)
            return {"events": events_of(run, deliveries, entries)}
        case "deliveries":
            return {"channels": CHANNELS}
        case "attempts":
            return {}
        case "raw":
            redacted = redacted_run(run, request.display.language)
            return {"raw": pretty(redacted), "is_redacted": redacted["result"] != run.result}
        case _:
            return await _log(request, run)


async def _log(request: PageRequest, run: Run) -> dict[str, object]:
    """Returns a page of log lines for browsers without scripts; the script loads the log itself."""
    text = request.query.get("after", "")
    after = int(text) if text.isdigit() and len(text) < 16 else 0
    entries = await request.context.runs.list_logs(
        request.actor, run.id, after=after, limit=LINES_PER_PAGE + 1
    )
    page = entries[:LINES_PER_PAGE]
    more = ""
    if len(entries) > LINES_PER_PAGE:
        more = f"/ui/runs/{run.id}?tab=log&after={page[-1].number}"
    return {
        "lines": [(entry, plain_line(entry.message)) for entry in page],
        "more_lines": more,
        "log_texts": log_texts(request.display.language),
    }


# --- log --------------------------------------------------------------------------------------
#: Limits of one response: lines and characters.
_LINES, _CHARACTERS = 5000, 2_000_000
_STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


@router.get("/runs/{id}/log.json")
async def lines(request: PageRequest) -> Response:
    """Returns many lines at once, for the log viewer."""
    run = await request.context.runs.get(request.actor, RunId(request.path_params["id"]))
    found = await request.context.runs.list_logs(
        request.actor, run.id, after=_after(request), limit=_LINES
    )
    rows: list[list[object]] = []
    remaining = _CHARACTERS
    for entry in found:
        rows.append(line_out(entry))
        remaining -= len(entry.message)
        if remaining < 0:
            break
    is_complete = len(rows) == len(found) < _LINES
    content = json.dumps(
        {
            "lines": rows,
            "next": None if is_complete else found[len(rows) - 1].number,
            "ended": run.status.terminal,
        },
        ensure_ascii=False,
        separators=(",", ":"),
    ).encode()
    headers = {"Vary": "Accept-Encoding"}
    if accepts_gzip(request.http):
        content = gzip.compress(content, 3, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Response(content, media_type="application/json", headers=headers)


@router.get("/runs/{id}/log/stream")
async def stream(request: PageRequest) -> Response:
    """Streams new log lines, as in the API, for users with a session."""
    run = await request.context.runs.get(request.actor, RunId(request.path_params["id"]))
    streams: StreamCounter = request.http.app.state.streams
    streams.check_limit(request.actor)

    async def is_allowed() -> bool:
        return await session_is_active(request.context, request.sessions, request.http)

    tail = LogStream(request.context, request.actor, run.id, streams, allowed=is_allowed)
    after = last_event_id(request.http, _after(request))
    if request.http.scope["state"].get("head"):
        return Response(media_type=STREAM, headers=_STREAM_HEADERS)
    return StreamingResponse(tail.events(after), media_type=STREAM, headers=_STREAM_HEADERS)


@router.get("/runs/{id}/log.txt")
async def download(request: PageRequest) -> Response:
    run = await request.context.runs.get(request.actor, RunId(request.path_params["id"]))
    name = "".join(sign for sign in run.id if sign.isascii() and (sign.isalnum() or sign in "-_"))
    return StreamingResponse(
        _text(request, run.id),
        media_type="text/plain; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="run-{name}.log"'},
    )


async def _text(request: PageRequest, run_id: RunId) -> AsyncIterator[str]:
    after = 0
    while True:
        found = await request.context.runs.list_logs(request.actor, run_id, after=after, limit=1000)
        if found:
            after = found[-1].number
            yield "".join(_line(entry) for entry in found)
        if len(found) < 1000:
            return


def _line(entry: LogEntry) -> str:
    return f"{format_moment(entry.at)} {entry.level.upper():<8} {entry.message}\n"


def _after(request: PageRequest) -> int:
    text = request.query.get("after", "0")
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise InvalidInput(field="after", code="bad_number", source="query")
    return int(text)
