"""Routes of monitors. Pings themselves are in `web/pings.py`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Literal

from fastapi import APIRouter
from fastapi import Query as InQuery
from pydantic import ConfigDict, Field, JsonValue
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chimes.i18n import in_language
from chimes.language import describe
from chimes.model import replace
from chimes.model.access import Actor
from chimes.model.monitor import (
    DEFAULT_GRACE,
    MAX_TAGS,
    DownCause,
    Monitor,
    MonitorEvent,
    MonitorEventKind,
    MonitorStatus,
    Ping,
    PingKind,
    expected_at,
    is_running,
    status_at,
)
from chimes.redaction import HIDDEN
from chimes.services.healthchecks import ImportItem
from chimes.services.monitors import MonitorDraft, NewMonitor, badge_token, ping_token
from chimes.store.codec.values import owner_to_plain
from chimes.triggers import format_duration_iso
from chimes.web.api.paging import (
    DEFAULT_LIMIT,
    Limit,
    OwnerWord,
    Query,
    Word,
    cursor_scope,
    decode_cursor,
    owner_filter,
    page,
)
from chimes.web.api.responses import (
    BODY_ERRORS,
    COMMON_ERRORS,
    CONFLICT,
    NOT_FOUND,
    STALE_VERSION,
    Duration,
    IntegerMap,
    Moment,
    Out,
    OwnerOut,
    RecipientOut,
    TriggerOut,
    returns,
)
from chimes.web.api.route import (
    Caller,
    Context,
    NativeRoute,
    SetRoute,
    idempotent_id,
    mark_without_effect,
)
from chimes.web.api.schedules import expected_version
from chimes.web.api.schemas import (
    OMITTED,
    Body,
    DeliveryField,
    DurationField,
    EmptyIn,
    OwnerIn,
    TriggerField,
    without_defaults,
)
from chimes.web.api.translate import (
    Json,
    owner_from,
    recipients_from,
    recipients_out,
    time_out,
)
from chimes.web.pings import badge_url, base_url, ping_url
from chimes.web.requests import NegotiatedLanguage, WebContext, set_language

router = APIRouter(
    prefix="/api/v1/monitors", tags=["monitors"], route_class=NativeRoute, responses=COMMON_ERRORS
)
import_router = APIRouter(
    prefix="/api/v1/monitors", tags=["monitors"], route_class=SetRoute, responses=COMMON_ERRORS
)

_EXAMPLE: dict[str, JsonValue] = {
    "name": "backup",
    "trigger": {"kind": "cron", "expression": "0 2 * * *", "timezone": "Europe/Berlin"},
    "grace": "PT30M",
}
TagsField = Annotated[list[str], Field(max_length=MAX_TAGS)]


class MonitorIn(Body):
    name: str
    trigger: TriggerField
    grace: DurationField = DEFAULT_GRACE
    owner: OwnerIn | None = Field(
        default=None, description="Default: the caller. Only an admin may set another owner."
    )
    tags: TagsField = Field(default_factory=list)
    delivery: DeliveryField = Field(default_factory=list)

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})


class MonitorPatch(Body):
    """Omitted fields stay as they are. A new trigger counts from now on."""

    name: str = ""
    trigger: TriggerField = OMITTED
    grace: DurationField = OMITTED
    tags: TagsField = Field(default_factory=list)
    delivery: DeliveryField = Field(default_factory=list)

    model_config = ConfigDict(json_schema_extra=without_defaults)


class MonitorImportIn(Body):
    format: Literal["healthchecks"] = "healthchecks"
    data: dict[str, JsonValue] | list[JsonValue] = Field(
        description="The answer of Healthchecks to `GET /api/v3/checks/`, or its list of checks."
    )
    dry_run: bool = Field(default=False, description="Only report what would be created.")


class MonitorsQuery(Query):
    status: list[MonitorStatus] = Field(
        default_factory=list, description="Only monitors in this status."
    )
    q: Word | None = Field(default=None, description="Part of the name.")
    owner: OwnerWord | None = None
    limit: Limit = DEFAULT_LIMIT
    cursor: Annotated[str, Field(max_length=2000)] | None = None


class DownOut(Out):
    cause: DownCause
    at: Moment
    exit_code: int | None


class MonitorOut(Out):
    id: str
    name: str
    owner: OwnerOut
    status: MonitorStatus
    trigger: TriggerOut
    words: str
    grace: Duration
    tags: list[str]
    delivery: list[RecipientOut]
    ping_url: str
    badge_url: str
    last_ping_at: Moment | None
    last_duration: Duration | None
    expected_at: Moment | None
    running: bool
    down: DownOut | None
    ping_count: int
    paused_at: Moment | None
    created_at: Moment
    updated_at: Moment
    version: int


class MonitorPageOut(Out):
    items: list[MonitorOut]
    next_cursor: str | None
    counts: IntegerMap


class PingOut(Out):
    number: int
    kind: PingKind
    at: Moment
    exit_code: int | None
    duration: Duration | None
    rid: str
    address: str
    size: int
    log: str | None


class MonitorEventOut(Out):
    number: int
    kind: MonitorEventKind
    at: Moment
    cause: DownCause | None
    exit_code: int | None


class PingList(Out):
    items: list[PingOut]
    events: list[MonitorEventOut]


class MonitorImportItemOut(Out):
    name: str
    action: Literal["create", "skip", "error"]
    id: str | None
    ping_url: str | None
    words: str
    message: str


class MonitorImportOut(Out):
    items: list[MonitorImportItemOut]
    applied: bool


@router.post("", status_code=201, responses=returns(MonitorOut, 201) | CONFLICT | BODY_ERRORS)
async def create_monitor(
    request: Request, body: MonitorIn, context: Context, actor: Caller, lang: NegotiatedLanguage
) -> Response:
    """Create a monitor. Its `ping_url` is what the job calls."""
    draft = MonitorDraft(
        name=body.name,
        trigger=body.trigger,
        grace=body.grace,
        owner=owner_from(body.owner) if body.owner else None,
        tags=tuple(body.tags),
        delivery=recipients_from(body.delivery),
    )
    made = await context.monitors.create(actor, draft, new_id=idempotent_id(request) or "")
    answer = await _monitor_response(request, context, actor, made.monitor, lang, made, status=201)
    answer.headers["Location"] = f"/api/v1/monitors/{made.monitor.id}"
    return answer


@router.get("", responses=returns(MonitorPageOut))
async def list_monitors(
    request: Request,
    query: Annotated[MonitorsQuery, InQuery()],
    context: Context,
    actor: Caller,
    lang: NegotiatedLanguage,
) -> Response:
    """List monitors by name, and count them by status."""
    after = decode_cursor(query.cursor, cursor_scope(request), numbers=False)
    found = await context.monitors.find(
        actor,
        owner=owner_filter(query.owner),
        statuses=query.status,
        text=query.q or "",
        after=None if after is None else (str(after[0]), after[1]),
        limit=query.limit,
    )
    now = await context.now()
    base = base_url(request, context.settings)
    items = [monitor_out(each, actor, lang, now=now, base=base) for each in found.monitors]
    counts = {each.value: found.counts.get(each, 0) for each in MonitorStatus}
    return set_language(page(request, items, found.next, counts=counts), lang)


@import_router.post("/import", responses=returns(MonitorImportOut) | CONFLICT | BODY_ERRORS)
async def import_monitors(
    request: Request,
    body: MonitorImportIn,
    context: Context,
    actor: Caller,
    lang: NegotiatedLanguage,
) -> Response:
    """Create monitors from an export of Healthchecks. Names that exist are skipped."""
    from chimes.services.healthchecks import import_checks

    items = await import_checks(context.monitors, actor, body.data, dry_run=body.dry_run)
    if body.dry_run:
        mark_without_effect(request)
    base = base_url(request, context.settings)
    found = [_import_out(each, lang, base) for each in items]
    return set_language(JSONResponse({"items": found, "applied": not body.dry_run}), lang)


@router.get("/{monitor_id}", responses=returns(MonitorOut) | NOT_FOUND)
async def get_monitor(
    request: Request, monitor_id: str, context: Context, actor: Caller, lang: NegotiatedLanguage
) -> Response:
    """Get a monitor with its status now."""
    found = await context.monitors.get(actor, monitor_id)
    return await _monitor_response(request, context, actor, found, lang)


@router.patch(
    "/{monitor_id}",
    responses=returns(MonitorOut) | NOT_FOUND | CONFLICT | STALE_VERSION | BODY_ERRORS,
)
async def change_monitor(
    request: Request,
    monitor_id: str,
    body: MonitorPatch,
    context: Context,
    actor: Caller,
    lang: NegotiatedLanguage,
) -> Response:
    """Change name, trigger, grace, tags or recipients."""
    sent = body.model_fields_set
    before = await context.monitors.get(actor, monitor_id)
    version = expected_version(request, before.version)

    def change(monitor: Monitor) -> Monitor:
        return replace(
            monitor,
            name=body.name if "name" in sent else monitor.name,
            trigger=body.trigger if "trigger" in sent else monitor.trigger,
            grace=body.grace if "grace" in sent else monitor.grace,
            tags=tuple(body.tags) if "tags" in sent else monitor.tags,
            delivery=recipients_from(body.delivery, monitor.delivery)
            if "delivery" in sent
            else monitor.delivery,
        )

    changed = await context.monitors.edit(actor, monitor_id, change, version=version)
    return await _monitor_response(request, context, actor, changed, lang)


@router.delete("/{monitor_id}", status_code=204, responses=NOT_FOUND)
async def delete_monitor(monitor_id: str, context: Context, actor: Caller) -> Response:
    """Delete a monitor with its history. Its URLs are unknown at once."""
    await context.monitors.delete(actor, monitor_id)
    return Response(status_code=204)


@router.post(
    "/{monitor_id}/pause", responses=returns(MonitorOut) | NOT_FOUND | CONFLICT | BODY_ERRORS
)
async def pause_monitor(
    request: Request,
    monitor_id: str,
    context: Context,
    actor: Caller,
    lang: NegotiatedLanguage,
    body: EmptyIn | None = None,
) -> Response:
    """Pause a monitor: nothing is expected, and pings are only recorded."""
    paused = await context.monitors.pause(actor, monitor_id)
    return await _monitor_response(request, context, actor, paused, lang)


@router.post(
    "/{monitor_id}/resume", responses=returns(MonitorOut) | NOT_FOUND | CONFLICT | BODY_ERRORS
)
async def resume_monitor(
    request: Request,
    monitor_id: str,
    context: Context,
    actor: Caller,
    lang: NegotiatedLanguage,
    body: EmptyIn | None = None,
) -> Response:
    """Resume a monitor: pings are expected from now on."""
    resumed = await context.monitors.resume(actor, monitor_id)
    return await _monitor_response(request, context, actor, resumed, lang)


@router.post(
    "/{monitor_id}/rotate", responses=returns(MonitorOut) | NOT_FOUND | CONFLICT | BODY_ERRORS
)
async def rotate_monitor(
    request: Request,
    monitor_id: str,
    context: Context,
    actor: Caller,
    lang: NegotiatedLanguage,
    body: EmptyIn | None = None,
) -> Response:
    """Replace the URLs of pings and badge; the old ones are unknown at once."""
    made = await context.monitors.rotate(actor, monitor_id)
    return await _monitor_response(request, context, actor, made.monitor, lang, made)


@router.get("/{monitor_id}/pings", responses=returns(PingList) | NOT_FOUND)
async def list_pings(monitor_id: str, context: Context, actor: Caller) -> Response:
    """The last pings with their logs, and the last changes of the status, newest first."""
    monitor = await context.monitors.get(actor, monitor_id)
    logs = await context.monitors.read_logs(monitor)
    return JSONResponse(
        {
            "items": [_ping_out(each, logs) for each in reversed(monitor.pings)],
            "events": [_event_out(each) for each in reversed(monitor.events)],
        }
    )


async def _monitor_response(
    request: Request,
    context: WebContext,
    actor: Actor,
    monitor: Monitor,
    lang: str,
    made: NewMonitor | None = None,
    *,
    status: int = 200,
) -> JSONResponse:
    content = monitor_out(
        monitor,
        actor,
        lang,
        now=await context.now(),
        base=base_url(request, context.settings),
        made=made,
    )
    headers = {"ETag": f'"{monitor.version}"'}
    return set_language(JSONResponse(content, status_code=status, headers=headers), lang)


def monitor_out(
    monitor: Monitor,
    actor: Actor,
    lang: str,
    *,
    now: datetime,
    base: str,
    made: NewMonitor | None = None,
) -> Json:
    """`made`: with the URLs, also if the store does not have them."""
    expected = expected_at(monitor)
    down = monitor.down
    return {
        "id": monitor.id,
        "name": monitor.name,
        "owner": owner_to_plain(monitor.owner),
        "status": status_at(monitor, now).value,
        "trigger": monitor.trigger.to_dict(),
        "words": in_language(describe(monitor.trigger, lang=lang), lang),
        "grace": format_duration_iso(monitor.grace),
        "tags": list(monitor.tags),
        "delivery": recipients_out(monitor.delivery),
        **urls_of(monitor, actor, base, made),
        "last_ping_at": time_out(monitor.last_ping_at),
        "last_duration": _duration(monitor.last_duration),
        "expected_at": None if monitor.paused_at else time_out(expected),
        "running": is_running(monitor),
        "down": None
        if down is None or monitor.paused_at
        else {"cause": down.cause.value, "at": time_out(down.at), "exit_code": down.exit_code},
        "ping_count": monitor.ping_count,
        "paused_at": time_out(monitor.paused_at),
        "created_at": time_out(monitor.created_at),
        "updated_at": time_out(monitor.updated_at),
        "version": monitor.version,
    }


def urls_of(
    monitor: Monitor, actor: Actor, base: str, made: NewMonitor | None = None
) -> dict[str, str]:
    """Masked for callers who may not change the monitor: the URL suffices to report
    success."""
    ping = ping_token(monitor) if made is None else made.ping_token
    badge = badge_token(monitor) if made is None else made.badge_token
    if not actor.may_write(monitor.owner) or actor.is_agent:
        ping = ""
    return {
        "ping_url": ping_url(base, ping or HIDDEN),
        "badge_url": badge_url(base, badge or HIDDEN),
    }


def _duration(value: timedelta | None) -> str | None:
    return None if value is None else format_duration_iso(value)


def _ping_out(ping: Ping, logs: Mapping[int, str]) -> Json:
    return {
        "number": ping.number,
        "kind": ping.kind.value,
        "at": time_out(ping.at),
        "exit_code": ping.exit_code,
        "duration": _duration(ping.duration),
        "rid": ping.rid,
        "address": ping.address,
        "size": ping.size,
        "log": logs.get(ping.number),
    }


def _event_out(event: MonitorEvent) -> Json:
    return {
        "number": event.number,
        "kind": event.kind.value,
        "at": time_out(event.at),
        "cause": None if event.cause is None else event.cause.value,
        "exit_code": event.exit_code,
    }


def _import_out(item: ImportItem, lang: str, base: str) -> Json:
    made = item.made
    return {
        "name": item.name,
        "action": item.action,
        "id": None if made is None else made.monitor.id,
        "ping_url": None if made is None else ping_url(base, made.ping_token or HIDDEN),
        "words": "" if item.draft is None else describe(item.draft.trigger, lang=lang),
        "message": in_language(item.message, lang),
    }
