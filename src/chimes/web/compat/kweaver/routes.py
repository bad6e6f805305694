"""KWeaver's routes: thin, with the answers that its users know."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastapi import Request
from starlette.responses import JSONResponse, Response

from chimes.config import Settings
from chimes.errors import InvalidInput, NotFound
from chimes.i18n import _
from chimes.model.access import Actor, Owner, OwnerType
from chimes.model.ids import ScheduleId, new_short_schedule_id
from chimes.model.listing import RunQuery, ScheduleQuery, ScheduleSort
from chimes.model.run import Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.model.target import ActionTarget
from chimes.model.validation import check_action_id
from chimes.services.validation import action_policy
from chimes.web import requests as refusal
from chimes.web.auth import authenticate, authenticate_internal
from chimes.web.compat.base import CompatRouter
from chimes.web.compat.kweaver.errors import render
from chimes.web.compat.kweaver.translate import (
    ACTION,
    MAIN,
    MOST_LISTED,
    SORTED_BY,
    STATUSES,
    Account,
    Json,
    Place,
    checked_new,
    checked_status,
    checked_update,
    draft_from,
    edited_by,
    listing_from,
    place_from,
    request_from,
    schedule_out,
    written_by,
)
from chimes.web.context import WebContext
from chimes.web.requests import read_json

# @@ Who calls the KWeaver door, and for which account.
#
# Without keys everybody on this machine is the same actor, and the headers say for whom it asks.
# With keys the key says so, and headers change nothing: nobody acts as somebody else. On internal
# routes a peer that knows the internal token is believed what its headers say.

INTERFACE = "kweaver"
ACCEPTS = ("Bearer", "ApiKey", "X-API-Key")
#: Of an account that comes without one.
USER = "user"
ID, TYPE = "X-Account-Id", "X-Account-Type"


@dataclass(frozen=True, slots=True)
class Caller:
    actor: Actor
    account: Account


Admission = Callable[[Request], Awaitable[Caller]]


async def by_key(request: Request) -> Caller:
    actor = await authenticate(request, interface=INTERFACE, accepts=ACCEPTS)
    if actor.key_id is None:
        return Caller(actor, _told(request))
    return Caller(actor, Account(actor.owner.id, actor.owner.type.value))


def by_token(settings: Settings) -> Admission:
    async def admit(request: Request) -> Caller:
        actor = await authenticate_internal(
            request, interface=INTERFACE, token=settings.internal_token
        )
        account = _told(request)
        if actor.key_id is not None and account.id and account.type == USER:
            # What it makes belongs to them, so that their own key finds it.
            owner = Owner(type=OwnerType.USER, id=account.id)
            actor = request.state.actor = replace(actor, owner=owner)
        return Caller(actor, account)

    return admit


def _told(request: Request) -> Account:
    """What the headers say, checked on every route: it is kept with whatever is written."""
    account_id, account_type = _header(request, ID), _header(request, TYPE)
    return Account(account_id, account_type or USER) if account_id else Account()


def _header(request: Request, name: str) -> str:
    """As UTF-8, which is how it is sent on; the framework reads headers as Latin-1."""
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


# @@ What the OpenAPI document says of the routes, beyond their paths.

Schema = dict[str, Any]


def _asked(name: str, about: str, **schema: object) -> Schema:
    return {
        "name": name,
        "in": "query",
        "required": False,
        "description": about,
        "schema": {"type": "string", **schema},
    }


def _body_described(required: tuple[str, ...], **properties: Schema) -> Schema:
    schema = {"type": "object", "required": list(required), "properties": properties}
    if not required:
        del schema["required"]
    return {"required": True, "content": {"application/json": {"schema": schema}}}


_BRANCH = _asked("branch", "Of the knowledge network.", default=MAIN)
_STATUS: Schema = {"type": "string", "enum": list(STATUSES)}
_CHANGEABLE: dict[str, Schema] = {
    "name": {"type": "string", "maxLength": 100},
    "cron_expression": {"type": "string", "description": "Five fields; a TZ= prefix is taken."},
    "unique_identities": {
        "type": "array",
        "items": {"type": "object"},
        "description": "The objects; `_instance_identities` is another name.",
    },
    "dynamic_params": {"type": "object"},
}
_LIST = (
    _asked("name_pattern", "A part of the name."),
    _asked("action_type_id", "Only of this action type."),
    _asked("status", "Only those.", enum=list(STATUSES)),
    _asked("offset", "How many to leave out.", type="integer", default=0),
    _asked("limit", f"1 to {MOST_LISTED}; -1: all of them.", type="integer", default=10),
    _asked("sort", "By what.", enum=list(SORTED_BY), default="create_time"),
    _asked("direction", "Which way.", enum=["desc", "asc"], default="desc"),
)
#: By the name of a route.
DESCRIBED: Mapping[str, Schema] = {
    "create": {
        "parameters": [_BRANCH],
        "requestBody": _body_described(
            ("name", "action_type_id", "cron_expression", "unique_identities"),
            **_CHANGEABLE,
            action_type_id={"type": "string", "maxLength": 40},
            status=_STATUS,
        ),
    },
    "all": {"parameters": [_BRANCH, *_LIST]},
    "one": {"parameters": [_BRANCH]},
    "update": {"parameters": [_BRANCH], "requestBody": _body_described((), **_CHANGEABLE)},
    "delete": {"parameters": [_BRANCH]},
    "switch": {
        "parameters": [_BRANCH],
        "requestBody": _body_described(("status",), status=_STATUS),
    },
    "due": {"parameters": [_BRANCH]},
}


#: The seed's own paths first, then those that its users know.
PREFIXES = ("", "/api/ontology-manager/v1", "/api/bkn-backend/v1")
INTERNAL_PREFIXES = ("/in/v1", "/api/ontology-manager/in/v1", "/api/bkn-backend/in/v1")
#: Below these nobody else has anything.
OWN_PATHS = ("/knowledge-networks", "/in/v1", "/api/ontology-manager", "/api/bkn-backend")
SCHEDULES = "/knowledge-networks/{kn_id}/action-schedules"
Handler = Callable[..., Awaitable[Response]]
Route = tuple[str, str, Handler, int, str]


def kweaver_router(context: WebContext) -> CompatRouter:
    """R0.25–R0.31."""
    router = CompatRouter(interface=INTERFACE, prefixes=OWN_PATHS, render=render)
    outside = _Schedules(context, by_key)
    inside = _Schedules(context, by_token(context.settings))
    # Before the routes with an id: no schedule has the id `due`.
    due: Route = ("/due", "GET", inside.due, 200, "due")
    _add(router, INTERNAL_PREFIXES, [due, *_routes(inside)], "internal_")
    _add(router, PREFIXES, _routes(outside), "")
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
    router: CompatRouter, prefixes: Sequence[str], routes: Iterable[Route], named: str
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
                name=f"{named}{name}",
                openapi_extra=DESCRIBED[name],
                include_in_schema=number == 0,
            )


class _Schedules:
    def __init__(self, context: WebContext, admit: Admission) -> None:
        self._schedules = context.schedules
        self._runs = context.runs
        self._store = context.store
        self._admit = admit
        self._policy = replace(
            action_policy(context.settings), misfire_grace=context.settings.misfire_grace
        )

    async def create(self, request: Request, kn_id: str) -> Response:
        """Have an action executed by a cron expression. It is inactive unless it says otherwise."""
        caller, place = await self._asked(request, kn_id)
        given = checked_new(request_from(await _body(request)))
        owner = caller.actor.owner
        now = await self._store.now()
        draft = draft_from(
            given,
            place,
            caller.account,
            owner,
            self._policy,
            zone=await self._schedules.rules.zone_for(owner),
            schedule_id=new_short_schedule_id(now),
            now=now,
        )
        made = await self._schedules.create(caller.actor, draft)
        return JSONResponse({"id": made.id}, 201)

    async def all(self, request: Request, kn_id: str) -> Response:
        """The schedules of a branch of a knowledge network that the caller may see."""
        caller, place = await self._asked(request, kn_id)
        asked = listing_from(request.query_params)
        query = asked.query(place)
        if asked.in_order:
            page = await self._schedules.find(caller.actor, replace(query, limit=asked.until))
            total = await self._schedules.count(caller.actor, query)
        else:
            page = await self._schedules.find(caller.actor, query)
            total = len(page.items)
        entries = await self._shown(caller.actor, asked.part(page.items))
        return JSONResponse({"entries": entries, "total_count": total})

    async def one(self, request: Request, kn_id: str, schedule_id: str) -> Response:
        """One schedule; `lock_holder` is the node that executes it at this moment."""
        caller, place = await self._asked(request, kn_id)
        schedule = await self._found(caller.actor, place, schedule_id)
        (shown,) = await self._shown(caller.actor, [schedule])
        return JSONResponse(shown)

    async def update(self, request: Request, kn_id: str, schedule_id: str) -> Response:
        """Change its name, cron expression, objects or parameters; the rest stays."""
        caller, place, schedule = await self._meant(request, kn_id, schedule_id)
        given = checked_update(request_from(await _body(request)))
        zone = await self._schedules.rules.zone_for(schedule.owner)
        await self._schedules.change(
            caller.actor,
            schedule.id,
            lambda before: edited_by(_in(before, place), given, caller.account, zone=zone),
        )
        return JSONResponse(None)

    async def switch(self, request: Request, kn_id: str, schedule_id: str) -> Response:
        """Activate it, from now on, or deactivate it."""
        caller, _unused, schedule = await self._meant(request, kn_id, schedule_id)
        active = checked_status(request_from(await _body(request)).status)
        turn = self._schedules.resume if active else self._schedules.pause
        await turn(caller.actor, schedule.id, also=_by(caller.account))
        return JSONResponse(None)

    async def delete(self, request: Request, kn_id: str, schedule_ids: str) -> Response:
        """Delete several, with commas between their ids: all of them or none."""
        caller, place = await self._asked(request, kn_id)
        ids = [_id(each) for each in schedule_ids.split(",") if each.strip()]
        if not ids:
            raise InvalidInput(_("schedule_ids is required"), code="invalid_parameter")

        def check(schedule: Schedule) -> None:
            if not isinstance(schedule.target, ActionTarget):
                raise _unknown(schedule.id)
            if not place.holds(schedule.target):
                raise _elsewhere(schedule.id, place)

        await self._schedules.delete_all(caller.actor, ids, check=check)
        return Response(status_code=204)

    async def due(self, request: Request, kn_id: str) -> Response:
        """Active schedules whose time has come, earliest first. Nothing is changed by
        asking: a scheduler fires them all the same."""
        caller, place = await self._asked(request, kn_id)
        now = await self._store.now()
        query = ScheduleQuery(
            kind=ACTION,
            target=place.fields,
            enabled=True,
            due_by=now,
            sort=ScheduleSort.NEXT_RUN_AT,
            limit=MOST_LISTED,
        )
        page = await self._schedules.find(caller.actor, query)
        # Without a slot it was switched on by SQL, and is yet to be planned from now.
        found = [each for each in page.items if each.next_slot is not None]
        return JSONResponse({"entries": await self._shown(caller.actor, found)})

    # --- what they share ------------------------------------------------------------------------
    async def _asked(self, request: Request, kn_id: str) -> tuple[Caller, Place]:
        caller = await self._admit(request)
        return caller, place_from(kn_id, request.query_params.get("branch"))

    async def _meant(
        self, request: Request, kn_id: str, schedule_id: str
    ) -> tuple[Caller, Place, Schedule]:
        """For a change: what kind of body it is comes before what it is about."""
        caller, place = await self._asked(request, kn_id)
        _check_content_type(request)
        return caller, place, await self._found(caller.actor, place, schedule_id)

    async def _found(self, actor: Actor, place: Place, schedule_id: str) -> Schedule:
        return _in(await self._schedules.get(actor, _id(schedule_id)), place)

    async def _shown(self, actor: Actor, schedules: Sequence[Schedule]) -> list[Json]:
        """With the runs that are under way; there are never more than nodes have places."""
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
        return [schedule_out(each, running.get(each.id, ())) for each in schedules]


def _by(account: Account) -> Callable[[Schedule], Schedule]:
    return lambda schedule: written_by(schedule, account)


def _in(schedule: Schedule, place: Place) -> Schedule:
    """Other targets, networks and branches are not there."""
    if not isinstance(schedule.target, ActionTarget) or not place.holds(schedule.target):
        raise _unknown(schedule.id)
    return schedule


async def _body(request: Request) -> object:
    _check_content_type(request)
    return await read_json(request)


def _check_content_type(request: Request) -> None:
    """Also where there is no body."""
    given = request.headers.get("content-type", "")
    if given.partition(";")[0].strip().lower() != "application/json":
        raise refusal.not_json(given)


def _id(schedule_id: str) -> ScheduleId:
    """No id has a NUL, and some stores would choke on one."""
    return ScheduleId(schedule_id.strip().replace("\0", "?"))


def _unknown(schedule_id: str) -> NotFound:
    """In the words of the service: whether it is elsewhere or nowhere is nobody's business."""
    return NotFound(_("schedule {id} not found", id=schedule_id))


def _elsewhere(schedule_id: str, place: Place) -> InvalidInput:
    return InvalidInput(
        _(
            "schedule {schedule_id} does not belong to the branch {branch} of the knowledge "
            "network {kn_id}",
            schedule_id=schedule_id,
            kn_id=place.kn_id,
            branch=place.branch,
        ),
        code="invalid_parameter",
    )
