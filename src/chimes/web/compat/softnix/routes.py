"""Softnix's routes: thin, with the answers that its users know."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from fastapi import Request
from starlette.responses import JSONResponse, Response

from chimes.errors import InvalidInput, NotAllowed, NotFound
from chimes.i18n import _
from chimes.model.access import Actor, Owner
from chimes.model.ids import ScheduleId
from chimes.model.listing import RunQuery, ScheduleQuery, ScheduleSort
from chimes.model.schedule import Schedule
from chimes.model.target import AgentTarget
from chimes.services.prompts import new_short_id
from chimes.web.auth import authenticate
from chimes.web.compat.base import CompatRouter
from chimes.web.compat.softnix.translate import (
    Given,
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
    prompted,
    run_out,
    text_from,
    zone_from,
)
from chimes.web.context import WebContext
from chimes.web.locale import negotiated_language, parse_sentence, preferred_language, set_language
from chimes.web.problems import Problem
from chimes.web.requests import read_json

if TYPE_CHECKING:
    from chimes.language import Parsed


INTERFACE = "softnix"
PREFIX = "/schedules"
ACCEPTS = ("X-API-Key", "?api_key", "Bearer", "ApiKey")
_AGENT = "agent"
#: The seed's list has no pages; nobody reads more than this.
MOST_LISTED = 1000
_PAGE = 200
#: How far a question is followed that few of them answer.
_MOST_PAGES = 50
Handler = Callable[..., Awaitable[Response]]


def softnix_router(context: WebContext) -> CompatRouter:
    """R1.18–R1.24, and what the original has besides."""
    router = CompatRouter(interface=INTERFACE, prefixes=[PREFIX], render=render)
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
        router.add_api_route(f"{PREFIX}{path}", handler, methods=[method], response_model=None)
        if not path:
            router.add_api_route(
                f"{PREFIX}/",
                handler,
                methods=[method],
                response_model=None,
                include_in_schema=False,
            )
    return router


class _Schedules:
    def __init__(self, context: WebContext) -> None:
        self._schedules = context.schedules
        self._manual_runs = context.manual_runs
        self._runs = context.runs
        self._store = context.store
        self._preferences = context.preferences
        self._defaults = prompt_defaults(context.settings)

    async def create(self, request: Request) -> Response:
        """Have a prompt run once (`one_time`) or again and again (`cron`)."""
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
        """The prompts that the caller may see, newest change first."""
        actor = await _actor(request)
        asked = listing_from(request.query_params)
        query = ScheduleQuery(
            owner=asked.owner,
            kind=_AGENT,
            # A single moment that is over shows as switched off, and is not.
            enabled=True if asked.enabled else None,
            sort=ScheduleSort.UPDATED_AT,
            descending=True,
            limit=_PAGE,
        )
        items: list[Item] = []
        for _unused in range(_MOST_PAGES):
            page = await self._schedules.find(actor, query)
            shown = map(item_from, page.items)
            items += [item for item in shown if asked.matches(item)]
            if page.next is None or len(items) >= MOST_LISTED:
                break
            query = replace(query, after=page.next)
        return JSONResponse({"items": items[:MOST_LISTED]})

    async def one(self, request: Request, schedule_id: str) -> Response:
        """One schedule."""
        return _item(await self._found(await _actor(request), schedule_id))

    async def patch(self, request: Request, schedule_id: str) -> Response:
        """Change the prompt, the time or the delivery, or switch it on or off."""
        actor = await _actor(request)
        schedule = await self._found(actor, schedule_id)
        given = checked_item(await read_json(request))
        changed = await self._schedules.change(
            actor, schedule.id, lambda before: edited_by(before, given), allow_overdue=True
        )
        return _item(changed)

    async def delete(self, request: Request, schedule_id: str) -> Response:
        """Switch it off for good."""
        actor = await _actor(request)
        schedule = await self._found(actor, schedule_id)
        gone = await self._schedules.delete(actor, schedule.id)
        return JSONResponse({"status": "deleted", "item": item_from(gone)})

    async def run_now(self, request: Request, schedule_id: str) -> Response:
        """Run it once, at once, beside a run that may be under way."""
        actor = await _actor(request)
        schedule = await self._found(actor, schedule_id)
        run = await self._manual_runs.run_now(actor, schedule.id, beside_others=True)
        return JSONResponse({"status": "started", "schedule_id": schedule.id, "run_id": run.id})

    async def runs(self, request: Request, schedule_id: str) -> Response:
        """Its history, newest first."""
        actor = await _actor(request)
        limit = limit_from(request.query_params)
        schedule = await self._found(actor, schedule_id)
        page = await self._runs.find(actor, RunQuery(schedule_id=schedule.id, limit=limit))
        lang = await negotiated_language(request)
        items = [run_out(run, lang) for run in page.items]
        return set_language(JSONResponse({"items": items}), lang)

    async def parse(self, request: Request) -> Response:
        """What a sentence means; nothing is saved."""
        actor = await _actor(request)
        given = checked_text_request(await read_json(request))
        owner = _owner(given, actor)
        parsed = await self._parsed(request, given, owner, await self._store.now())
        return JSONResponse({"item": parsed_out(parsed)})

    async def from_text(self, request: Request) -> Response:
        """A schedule from a sentence. One that does not say exactly when is asked about."""
        actor = await _actor(request)
        given = checked_text_request(await read_json(request))
        owner = _owner(given, actor)
        now = await self._store.now()
        parsed = await self._parsed(request, given, owner, now)
        if not parsed.task:
            raise InvalidInput(_("task is required"), field="text")
        draft = prompted(
            parsed.task,
            parsed.trigger,
            given,
            owner,
            self._defaults,
            schedule_id=new_short_id(),
            now=now,
        )
        made = await self._schedules.create(actor, draft)
        return JSONResponse({"item": item_from(made), "parsed": parsed_out(parsed)})

    async def _parsed(self, request: Request, given: Given, owner: Owner, now: datetime) -> Parsed:
        zone = await self._zone(given, owner)
        lang = await preferred_language(request)
        return await parse_sentence(text_from(given), now=now, timezone=zone, lang=lang)

    async def _zone(self, given: Mapping[str, object], owner: Owner) -> str:
        """That of the request, of the owner, of the door."""
        if named := zone_from(given):
            return named
        return (await self._preferences.get(owner)).timezone or self._defaults.timezone

    async def _found(self, actor: Actor, schedule_id: str) -> Schedule:
        """Only prompts are seen here, of whatever door."""
        # No id has a NUL, and some stores would choke on one.
        known = ScheduleId(schedule_id.replace("\0", "?"))
        schedule = await self._schedules.get(actor, known)
        if not isinstance(schedule.target, AgentTarget):
            raise NotFound(_("schedule {schedule_id} not found", schedule_id=schedule_id))
        return schedule


def render(request: Request, problem: Problem) -> Response:
    """`{detail}`. Input that is not valid is 400 here."""
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


def _owner(given: Given, actor: Actor) -> Owner:
    """Somebody else's name is refused before anything else is looked at."""
    owner = owner_from(given, actor)
    if not actor.may_see(owner):
        raise NotAllowed()
    return owner


def _item(schedule: Schedule) -> Response:
    return JSONResponse({"item": item_from(schedule)})
