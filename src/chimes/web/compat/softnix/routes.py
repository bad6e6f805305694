"""Routes and error format of the Softnix schedule API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from fastapi import Request
from starlette.responses import JSONResponse, Response

from chimes.errors import InvalidInput, NotAllowed, NotFound
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import Actor, Owner
from chimes.model.ids import ScheduleId
from chimes.model.listing import RunQuery, ScheduleQuery, ScheduleSort
from chimes.model.schedule import Schedule
from chimes.model.target import AgentTarget
from chimes.model.validation import ID_LIMIT
from chimes.services.schedules.prompts import new_short_id
from chimes.services.schedules.rules import parse_sentence
from chimes.web.compat.base import (
    CompatRouter,
    Schema,
    object_schema,
    query_parameter,
    request_body,
)
from chimes.web.compat.softnix.translate import (
    DEFAULT_RUNS,
    MAX_RUNS,
    Body,
    Item,
    checked_item,
    checked_text_request,
    draft_from,
    edited_by,
    item_from,
    limit_from,
    listing_from,
    owner_from,
    parsed_out,
    prompt_defaults,
    prompt_schedule,
    run_out,
    text_from,
    zone_from,
)
from chimes.web.problems import Problem
from chimes.web.requests import (
    WebContext,
    authenticate,
    negotiated_language,
    preferred_language,
    read_json,
    set_language,
)

if TYPE_CHECKING:
    from chimes.language import Parsed


INTERFACE = "softnix"
PREFIX = "/schedules"
ACCEPTS = ("X-API-Key", "?api_key", "Bearer", "ApiKey")
_AGENT = "agent"
#: Limit of the list, which has no pages.
MAX_LISTED = 1000
_PAGE = 200
#: Limit of pages read for a filter that matches few schedules.
_MAX_PAGES = 50
Handler = Callable[..., Awaitable[Response]]


def softnix_router(context: WebContext) -> CompatRouter:
    """All routes under /schedules."""
    router = CompatRouter(
        interface=INTERFACE, prefixes=[PREFIX], render=render, error_fields=("detail",)
    )
    schedules = _Schedules(context)
    routes: Sequence[tuple[str, str, Handler]] = (
        ("", "POST", schedules.create),
        ("", "GET", schedules.all),
        ("/parse", "POST", schedules.parse),
        ("/from-text", "POST", schedules.from_text),
        ("/{schedule_id}", "GET", schedules.one),
        ("/{schedule_id}", "PATCH", schedules.patch),
        ("/{schedule_id}", "DELETE", schedules.delete),
        ("/{schedule_id}/run-now", "POST", schedules.run_now),
        ("/{schedule_id}/runs", "GET", schedules.runs),
    )
    for path, method, handler in routes:
        router.add_api_route(
            f"{PREFIX}{path}",
            handler,
            methods=[method],
            response_model=None,
            openapi_extra=_DOCUMENTATION.get(handler.__name__),
        )
        if not path:
            router.add_api_route(
                f"{PREFIX}/",
                handler,
                methods=[method],
                response_model=None,
                include_in_schema=False,
            )
    return router


_TEXT: Schema = {"type": ["string", "null"]}
_ID: Schema = {"type": ["string", "integer", "null"], "maxLength": ID_LIMIT}
_OWNER: dict[str, Schema] = {
    "owner_type": {"type": ["string", "null"], "description": "`user`, `chat` or `system`."},
    "owner_id": _ID,
}
_RECIPIENT: dict[str, Schema] = {
    "delivery_channel": {"type": ["string", "null"], "description": "`web_ui` or `telegram`."},
    "delivery_target": _ID,
}
_ZONE: Schema = {"type": ["string", "null"], "description": "IANA name of a time zone."}
_ENABLED: Schema = {"type": ["boolean", "null"]}
_PROMPT: dict[str, Schema] = {
    **_OWNER,
    **_RECIPIENT,
    "task": _TEXT,
    "task_prompt": {"type": ["string", "null"], "description": "Same as `task`."},
    "schedule_type": {"type": ["string", "null"], "description": "`one_time` or `cron`."},
    "run_at": _TEXT,
    "cron_expr": _TEXT,
    "timezone": _ZONE,
    "enabled": _ENABLED,
}
_CRON_PROMPT = {"task": "Summarise the news", "schedule_type": "cron", "cron_expr": "0 9 * * *"}
_SENTENCE = request_body(
    object_schema(
        {
            **_OWNER,
            **_RECIPIENT,
            "text": {"type": "string", "minLength": 1},
            "timezone": _ZONE,
            "enabled": _ENABLED,
        },
        ("text",),
    )
    | {"examples": [{"text": "every day at 9:00 summarise the news"}]}
)
#: By name of the handler.
_DOCUMENTATION: Mapping[str, Schema] = {
    "create": {"requestBody": request_body(object_schema(_PROMPT) | {"examples": [_CRON_PROMPT]})},
    "patch": {"requestBody": request_body(object_schema(_PROMPT))},
    "parse": {"requestBody": _SENTENCE},
    "from_text": {"requestBody": _SENTENCE},
    "all": {
        "parameters": [
            query_parameter("owner_type", "`user`, `chat` or `system`."),
            query_parameter("owner_id", "Id of the owner."),
            query_parameter("enabled", "`true` or `false`."),
            query_parameter("status", "`enabled`, `disabled` or `all`."),
            query_parameter("include_disabled", "`true` or `false`."),
        ]
    },
    "runs": {
        "parameters": [
            query_parameter(
                "limit",
                "Maximum of runs.",
                type="integer",
                minimum=1,
                maximum=MAX_RUNS,
                default=DEFAULT_RUNS,
            )
        ]
    },
}


class _Schedules:
    def __init__(self, context: WebContext) -> None:
        self._schedules = context.schedules
        self._manual_runs = context.manual_runs
        self._runs = context.runs
        self._store = context.store
        self._preferences = context.preferences
        self._defaults = prompt_defaults(context.settings)

    async def create(self, request: Request) -> Response:
        """Schedule a prompt once (`one_time`) or repeatedly (`cron`)."""
        actor = await _actor(request)
        given = checked_item(await read_json(request))
        owner = _owner(given, actor)
        draft = draft_from(
            given,
            owner,
            self._defaults,
            zone=await self._zone(given, owner),
            schedule_id=new_short_id(),
            now=await self._store.now(),
        )
        return _item(await self._schedules.create(actor, draft, allow_overdue=True))

    async def all(self, request: Request) -> Response:
        """List the prompts that the caller may see, last updated first."""
        actor = await _actor(request)
        filters = listing_from(request.query_params)
        query = ScheduleQuery(
            owner=filters.owner,
            kind=_AGENT,
            # A `one_time` that is over is shown as disabled, but is stored as enabled.
            enabled=True if filters.enabled else None,
            sort=ScheduleSort.UPDATED_AT,
            descending=True,
            limit=_PAGE,
        )
        items: list[Item] = []
        for _unused in range(_MAX_PAGES):
            page = await self._schedules.find(actor, query)
            candidates = map(item_from, page.items)
            items += [item for item in candidates if filters.matches(item)]
            if page.next is None or len(items) >= MAX_LISTED:
                break
            query = replace(query, after=page.next)
        return JSONResponse({"items": items[:MAX_LISTED]})

    async def one(self, request: Request, schedule_id: str) -> Response:
        """Get a schedule."""
        return _item(await self._prompt_schedule(await _actor(request), schedule_id))

    async def patch(self, request: Request, schedule_id: str) -> Response:
        """Change the prompt, time or delivery of a schedule, or enable or disable it."""
        actor = await _actor(request)
        schedule = await self._prompt_schedule(actor, schedule_id)
        given = checked_item(await read_json(request))
        changed = await self._schedules.change(
            actor, schedule.id, lambda before: edited_by(before, given), allow_overdue=True
        )
        return _item(changed)

    async def delete(self, request: Request, schedule_id: str) -> Response:
        """Delete a schedule."""
        actor = await _actor(request)
        schedule = await self._prompt_schedule(actor, schedule_id)
        deleted = await self._schedules.delete(actor, schedule.id)
        return JSONResponse({"status": "deleted", "item": item_from(deleted)})

    async def run_now(self, request: Request, schedule_id: str) -> Response:
        """Run a schedule at once, even if a run of it is active."""
        actor = await _actor(request)
        schedule = await self._prompt_schedule(actor, schedule_id)
        run = await self._manual_runs.run_now(actor, schedule.id, beside_others=True)
        return JSONResponse({"status": "started", "schedule_id": schedule.id, "run_id": run.id})

    async def runs(self, request: Request, schedule_id: str) -> Response:
        """List the runs of a schedule, newest first."""
        actor = await _actor(request)
        limit = limit_from(request.query_params)
        schedule = await self._prompt_schedule(actor, schedule_id)
        page = await self._runs.find(actor, RunQuery(schedule_id=schedule.id, limit=limit))
        lang = await negotiated_language(request)
        items = [run_out(run, lang) for run in page.items]
        return set_language(JSONResponse({"items": items}), lang)

    async def parse(self, request: Request) -> Response:
        """Parse a sentence. Saves nothing."""
        actor = await _actor(request)
        given = checked_text_request(await read_json(request))
        owner = _owner(given, actor)
        parsed = await self._parse(request, given, owner, await self._store.now())
        return JSONResponse({"item": parsed_out(parsed)})

    async def from_text(self, request: Request) -> Response:
        """Create a schedule from a sentence; an ambiguous one gets a clarification."""
        actor = await _actor(request)
        given = checked_text_request(await read_json(request))
        owner = _owner(given, actor)
        now = await self._store.now()
        parsed = await self._parse(request, given, owner, now)
        if not parsed.task:
            raise InvalidInput(_("task is required"), field="text")
        draft = prompt_schedule(
            parsed.task,
            parsed.trigger,
            given,
            owner,
            self._defaults,
            schedule_id=new_short_id(),
            now=now,
        )
        created = await self._schedules.create(actor, draft)
        return JSONResponse({"item": item_from(created), "parsed": parsed_out(parsed)})

    async def _parse(self, request: Request, given: Body, owner: Owner, now: datetime) -> Parsed:
        zone = await self._zone(given, owner)
        lang = await preferred_language(request)
        return await parse_sentence(text_from(given), now=now, timezone=zone, lang=lang)

    async def _zone(self, given: Mapping[str, object], owner: Owner) -> str:
        """The zone of the request, else of the owner, else the default of this API."""
        if requested := zone_from(given):
            return requested
        return (await self._preferences.get(owner)).timezone or self._defaults.timezone

    async def _prompt_schedule(self, actor: Actor, schedule_id: str) -> Schedule:
        """This API shows prompts only, created through any interface."""
        # No id has a NUL, and some stores fail on one.
        known = ScheduleId(schedule_id.replace("\0", "?"))
        schedule = await self._schedules.get(actor, known)
        if not isinstance(schedule.target, AgentTarget):
            raise NotFound(_("schedule {schedule_id} not found", schedule_id=schedule_id))
        return schedule


def render(request: Request, problem: Problem) -> Response:
    """`{detail}`. Invalid input is 400."""
    status = 400 if problem.status == 422 else problem.status
    detail = problem.detail
    if problem.errors:
        first = problem.errors[0]
        detail = first.detail
        if first.name.startswith("trigger"):
            detail = problem.translate(
                _("invalid schedule expression: {detail}", detail=first.detail)
            )
    if status == 401:
        detail = problem.translate(_("unauthorized"))
    if status == 404 and problem.detail != problem.title:
        detail = problem.translate(_("schedule not found"))
    content: Item = {"detail": detail, **problem.more}
    return JSONResponse(content, status_code=status, headers=dict(problem.headers))


async def _actor(request: Request) -> Actor:
    return await authenticate(request, interface=INTERFACE, accepts=ACCEPTS)


def _owner(given: Body, actor: Actor) -> Owner:
    """The owner of the request. Refuses a foreign owner before other checks."""
    owner = owner_from(given, actor)
    if not actor.may_see(owner):
        raise NotAllowed()
    return owner


def _item(schedule: Schedule) -> Response:
    return JSONResponse({"item": item_from(schedule)})
