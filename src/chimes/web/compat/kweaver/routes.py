"""KWeaver's routes: thin, with the answers that its users know."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from fastapi import Request
from starlette.responses import JSONResponse, Response

from chimes.config import Settings
from chimes.errors import InvalidInput, NotFound
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import Actor, Owner, OwnerType
from chimes.model.ids import NodeId, ScheduleId, new_short_schedule_id
from chimes.model.listing import RunQuery, ScheduleQuery, ScheduleSort
from chimes.model.run import Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.model.target import ActionTarget
from chimes.model.validation import check_action_id
from chimes.services.schedules.rules import action_policy
from chimes.web.compat.base import (
    CompatRouter,
    Schema,
    object_schema,
    query_parameter,
    request_body,
)
from chimes.web.compat.kweaver.errors import ERROR_FIELDS, render
from chimes.web.compat.kweaver.translate import (
    ACTION,
    MAIN,
    MAX_LISTED,
    SORTED_BY,
    STATUSES,
    Account,
    BranchScope,
    Json,
    checked_new,
    checked_status,
    checked_update,
    draft_from,
    edited_by,
    listing_from,
    request_from,
    schedule_out,
    scope_from,
    written_by,
)
from chimes.web.requests import WebContext, authenticate, authenticate_internal, not_json, read_json

# Authentication. Without keys the account is in the headers. With keys the account is the owner of
# the key and the headers are ignored. On internal routes a service with the internal token may name
# any account in the headers.

INTERFACE = "kweaver"
ACCEPTS = ("Bearer", "ApiKey", "X-API-Key")
#: Default account type.
USER = "user"
ACCOUNT_ID, ACCOUNT_TYPE = "X-Account-Id", "X-Account-Type"


@dataclass(frozen=True, slots=True)
class Caller:
    actor: Actor
    account: Account


Authenticate = Callable[[Request], Awaitable[Caller]]


async def authenticate_key(request: Request) -> Caller:
    actor = await authenticate(request, interface=INTERFACE, accepts=ACCEPTS)
    if actor.key_id is None:
        return Caller(actor, _account_in_headers(request))
    return Caller(actor, Account(actor.owner.id, actor.owner.type.value))


def authenticate_token(settings: Settings) -> Authenticate:
    async def authenticate_request(request: Request) -> Caller:
        actor = await authenticate_internal(
            request, interface=INTERFACE, token=settings.internal_token
        )
        account = _account_in_headers(request)
        if actor.key_id is not None and account.id and account.type == USER:
            # Schedules belong to the account, so that its own key can see them.
            owner = Owner(type=OwnerType.USER, id=account.id)
            actor = request.state.actor = replace(actor, owner=owner)
        return Caller(actor, account)

    return authenticate_request


def _account_in_headers(request: Request) -> Account:
    """The account in the headers, validated on every route because it is stored."""
    account_id, account_type = _header(request, ACCOUNT_ID), _header(request, ACCOUNT_TYPE)
    return Account(account_id, account_type or USER) if account_id else Account()


def _header(request: Request, name: str) -> str:
    """Decodes a header as UTF-8; Starlette decodes Latin-1."""
    given = request.headers.get(name, "")
    try:
        text = given.encode("latin-1").decode().strip(" \t")
    except UnicodeError:
        raise InvalidInput(
            _("{field} is not UTF-8 text", field=name), field=name, code="not_text"
        ) from None
    if text:
        check_action_id(text, name)
    return text


# OpenAPI descriptions of the routes

_BRANCH = query_parameter("branch", "Branch of the knowledge network.", default=MAIN)
_STATUS: Schema = {"type": "string", "enum": list(STATUSES)}
_CHANGEABLE: dict[str, Schema] = {
    "name": {"type": "string", "maxLength": 100},
    "cron_expression": {"type": "string", "description": "Five fields, optionally after TZ=…"},
    "unique_identities": {
        "type": "array",
        "items": {"type": "object"},
        "description": "Objects of the action; alias: `_instance_identities`.",
    },
    "dynamic_params": {"type": "object"},
}
_LIST = (
    query_parameter("name_pattern", "Substring of the name."),
    query_parameter("action_type_id", "Only schedules of this action type."),
    query_parameter("status", "Only schedules with this status.", enum=list(STATUSES)),
    query_parameter("offset", "Number of entries to skip.", type="integer", default=0),
    query_parameter("limit", f"1 to {MAX_LISTED}; -1 for all.", type="integer", default=10),
    query_parameter("sort", "Sort field.", enum=list(SORTED_BY), default="create_time"),
    query_parameter("direction", "Sort direction.", enum=["desc", "asc"], default="desc"),
)
#: By route name.
OPENAPI: Mapping[str, Schema] = {
    "create": {
        "parameters": [_BRANCH],
        "requestBody": request_body(
            object_schema(
                {
                    **_CHANGEABLE,
                    "action_type_id": {"type": "string", "maxLength": 40},
                    "status": _STATUS,
                },
                ("name", "action_type_id", "cron_expression"),
                open=True,
            )
        ),
    },
    "all": {"parameters": [_BRANCH, *_LIST]},
    "one": {"parameters": [_BRANCH]},
    "update": {
        "parameters": [_BRANCH],
        "requestBody": request_body(object_schema(_CHANGEABLE, open=True)),
    },
    "delete": {"parameters": [_BRANCH]},
    "switch": {
        "parameters": [_BRANCH],
        "requestBody": request_body(object_schema({"status": _STATUS}, ("status",), open=True)),
    },
    "due": {"parameters": [_BRANCH]},
}


#: Path prefixes; KWeaver clients use the longer ones.
PREFIXES = ("", "/api/ontology-manager/v1", "/api/bkn-backend/v1")
INTERNAL_PREFIXES = ("/in/v1", "/api/ontology-manager/in/v1", "/api/bkn-backend/in/v1")
#: Path prefixes that belong to this API alone.
OWN_PATHS = ("/knowledge-networks", "/in/v1", "/api/ontology-manager", "/api/bkn-backend")
SCHEDULES = "/knowledge-networks/{kn_id}/action-schedules"
Handler = Callable[..., Awaitable[Response]]
Route = tuple[str, str, Handler, int, str]


def kweaver_router(context: WebContext) -> CompatRouter:
    """Public routes, and internal routes with the additional list of due schedules."""
    router = CompatRouter(
        interface=INTERFACE,
        prefixes=OWN_PATHS,
        render=render,
        error_fields=ERROR_FIELDS,
        not_json=406,
    )
    public = _Schedules(context, authenticate_key)
    internal = _Schedules(context, authenticate_token(context.settings))
    # Must come before the routes with an id.
    due: Route = ("/due", "GET", internal.due, 200, "due")
    _add(router, INTERNAL_PREFIXES, [due, *_routes(internal)], "internal_")
    _add(router, PREFIXES, _routes(public), "")
    return router


def _routes(schedules: _Schedules) -> Sequence[Route]:
    return (
        ("", "POST", schedules.create, 201, "create"),
        ("", "GET", schedules.all, 200, "all"),
        ("/{schedule_id}", "GET", schedules.one, 200, "one"),
        ("/{schedule_id}", "PUT", schedules.update, 200, "update"),
        ("/{schedule_ids}", "DELETE", schedules.delete, 204, "delete"),
        ("/{schedule_id}/status", "PUT", schedules.switch, 200, "switch"),
    )


def _add(
    router: CompatRouter, prefixes: Sequence[str], routes: Iterable[Route], name_prefix: str
) -> None:
    for path, method, handler, status, name in routes:
        paths = [f"{prefix}{SCHEDULES}{path}" for prefix in prefixes]
        paths += [f"{each}/" for each in paths if not path]
        for number, each in enumerate(paths):
            router.add_api_route(
                each,
                handler,
                methods=[method],
                response_model=None,
                status_code=status,
                name=f"{name_prefix}{name}",
                openapi_extra=OPENAPI[name],
                include_in_schema=number == 0,
            )


class _Schedules:
    def __init__(self, context: WebContext, authenticate_request: Authenticate) -> None:
        self._schedules = context.schedules
        self._runs = context.runs
        self._store = context.store
        self._authenticate = authenticate_request
        self._policy = replace(
            action_policy(context.settings), misfire_grace=context.settings.misfire_grace
        )

    async def create(self, request: Request, kn_id: str) -> Response:
        """Create an action schedule; inactive by default."""
        caller, scope = await self._caller_and_scope(request, kn_id)
        given = checked_new(request_from(await _body(request)))
        owner = caller.actor.owner
        now = await self._store.now()
        draft = draft_from(
            given,
            scope,
            caller.account,
            owner,
            self._policy,
            zone=await self._schedules.rules.zone_for(owner),
            schedule_id=new_short_schedule_id(now),
            now=now,
        )
        created = await self._schedules.create(caller.actor, draft)
        return JSONResponse({"id": created.id}, 201)

    async def all(self, request: Request, kn_id: str) -> Response:
        """List the action schedules of a branch that the caller may see."""
        caller, scope = await self._caller_and_scope(request, kn_id)
        listing = listing_from(request.query_params)
        query = listing.query(scope)
        if listing.in_order:
            page = await self._schedules.find(caller.actor, replace(query, limit=listing.until))
            total = await self._schedules.count(caller.actor, query)
        else:
            page = await self._schedules.find(caller.actor, query)
            total = len(page.items)
        entries = await self._entries(caller.actor, listing.page(page.items))
        return JSONResponse({"entries": entries, "total_count": total})

    async def one(self, request: Request, kn_id: str, schedule_id: str) -> Response:
        """Get an action schedule; `lock_holder` is the node that is executing it."""
        caller, scope = await self._caller_and_scope(request, kn_id)
        schedule = await self._load(caller.actor, scope, schedule_id)
        (entry,) = await self._entries(caller.actor, [schedule])
        return JSONResponse(entry)

    async def update(self, request: Request, kn_id: str, schedule_id: str) -> Response:
        """Change name, cron expression, objects or parameters of an action schedule."""
        caller, scope, schedule = await self._load_for_change(request, kn_id, schedule_id)
        given = checked_update(request_from(await _body(request)))
        zone = await self._schedules.rules.zone_for(schedule.owner)
        await self._schedules.change(
            caller.actor,
            schedule.id,
            lambda before: edited_by(
                _check_branch(before, scope), given, caller.account, zone=zone
            ),
        )
        return JSONResponse(None)

    async def switch(self, request: Request, kn_id: str, schedule_id: str) -> Response:
        """Activate or deactivate an action schedule."""
        caller, _unused, schedule = await self._load_for_change(request, kn_id, schedule_id)
        active = checked_status(request_from(await _body(request)).status)
        switch_state = self._schedules.resume if active else self._schedules.pause
        await switch_state(caller.actor, schedule.id, also=_written_by(caller.account))
        return JSONResponse(None)

    async def delete(self, request: Request, kn_id: str, schedule_ids: str) -> Response:
        """Delete action schedules by comma-separated ids: all or none."""
        caller, scope = await self._caller_and_scope(request, kn_id)
        ids = [_id(each) for each in schedule_ids.split(",") if each.strip()]
        if not ids:
            raise InvalidInput(_("schedule_ids is required"), code="invalid_parameter")

        def check(schedule: Schedule) -> None:
            if not isinstance(schedule.target, ActionTarget):
                raise _unknown(schedule.id)
            if not scope.contains(schedule.target):
                raise _wrong_branch(schedule.id, scope)

        await self._schedules.delete_all(caller.actor, ids, check=check)
        return Response(status_code=204)

    async def due(self, request: Request, kn_id: str) -> Response:
        """List due active schedules, earliest first. Read-only: Chimes fires them itself."""
        caller, scope = await self._caller_and_scope(request, kn_id)
        now = await self._store.now()
        query = ScheduleQuery(
            kind=ACTION,
            target=scope.fields,
            enabled=True,
            due_by=now,
            sort=ScheduleSort.NEXT_RUN_AT,
            limit=MAX_LISTED,
        )
        page = await self._schedules.find(caller.actor, query)
        # Without a slot it was activated by SQL and is not planned yet.
        found = [each for each in page.items if each.next_slot is not None]
        return JSONResponse({"entries": await self._entries(caller.actor, found)})

    async def _caller_and_scope(self, request: Request, kn_id: str) -> tuple[Caller, BranchScope]:
        caller = await self._authenticate(request)
        return caller, scope_from(kn_id, request.query_params.get("branch"))

    async def _load_for_change(
        self, request: Request, kn_id: str, schedule_id: str
    ) -> tuple[Caller, BranchScope, Schedule]:
        """For a change: checks the content type before the schedule."""
        caller, scope = await self._caller_and_scope(request, kn_id)
        _check_content_type(request)
        return caller, scope, await self._load(caller.actor, scope, schedule_id)

    async def _load(self, actor: Actor, scope: BranchScope, schedule_id: str) -> Schedule:
        return _check_branch(await self._schedules.get(actor, _id(schedule_id)), scope)

    async def _entries(self, actor: Actor, schedules: Sequence[Schedule]) -> list[Json]:
        """Adds the active runs, whose number is limited by the capacity of the nodes, and the last
        heartbeats of these nodes."""
        if not schedules:
            return []
        query = RunQuery(statuses=(RunStatus.RUNNING,), limit=None)
        if len(schedules) == 1:
            query = replace(query, schedule_id=schedules[0].id)
        else:
            query = replace(query, requirement=ACTION)
        running: defaultdict[ScheduleId | None, list[Run]] = defaultdict(list)
        for run in (await self._runs.find(actor, query)).items:
            running[run.schedule_id].append(run)
        heartbeats: dict[NodeId, datetime] = {}
        if any(each.id in running for each in schedules):
            heartbeats = {node.id: node.heartbeat_at for node in await self._store.nodes()}
        return [
            schedule_out(
                each,
                running.get(each.id, ()),
                heartbeats,
                # A caller that may send it back reads it as it is.
                literal=actor.may_write(each.owner),
            )
            for each in schedules
        ]


def _written_by(account: Account) -> Callable[[Schedule], Schedule]:
    return lambda schedule: written_by(schedule, account)


def _check_branch(schedule: Schedule, scope: BranchScope) -> Schedule:
    """404 for other targets, networks and branches."""
    if not isinstance(schedule.target, ActionTarget) or not scope.contains(schedule.target):
        raise _unknown(schedule.id)
    return schedule


async def _body(request: Request) -> object:
    _check_content_type(request)
    return await read_json(request)


def _check_content_type(request: Request) -> None:
    """Required even without a body."""
    given = request.headers.get("content-type", "")
    if given.partition(";")[0].strip().lower() != "application/json":
        raise not_json(given)


def _id(schedule_id: str) -> ScheduleId:
    """No id has a NUL, and some stores fail on one."""
    return ScheduleId(schedule_id.strip().replace("\0", "?"))


def _unknown(schedule_id: str) -> NotFound:
    """The same text as the service: does not reveal that a schedule exists elsewhere."""
    return NotFound(_("schedule {id} not found", id=schedule_id))


def _wrong_branch(schedule_id: str, scope: BranchScope) -> InvalidInput:
    return InvalidInput(
        _(
            "schedule {schedule_id} does not belong to the branch {branch} of the knowledge "
            "network {kn_id}",
            schedule_id=schedule_id,
            kn_id=scope.kn_id,
            branch=scope.branch,
        ),
        code="invalid_parameter",
    )
