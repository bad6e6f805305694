"""Schedules: the list, with its filters in the URL (UX A.2)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from pydantic import ValidationError
from starlette.responses import JSONResponse, Response

from chimes.errors import InvalidInput
from chimes.i18n import _, counted
from chimes.model.ids import ScheduleId
from chimes.model.listing import ScheduleQuery
from chimes.model.schedule import Schedule
from chimes.model.target import AgentTarget, HttpTarget, Target, payload_name
from chimes.redaction import masked_url
from chimes.services.preferences import ListName
from chimes.web.api.paging import encode_cursor, decode_cursor, cursor_scope
from chimes.web.api.schemas import TargetPatch
from chimes.web.api.translate import patched_target, target_out
from chimes.web.dashboard.core.filters import (
    SCHEDULE_NAMES,
    Chip,
    Filter,
    read_filter,
    schedule_filter,
)
from chimes.web.dashboard.core.forms import FORM_ERRORS, FormError
from chimes.web.dashboard.core.lists import saved_filters_of
from chimes.web.dashboard.core.page_request import PageRequest
from chimes.web.dashboard.core.preferences import (
    COLUMNS,
    list_choices_of,
    remember_list_choices,
    with_view,
)
from chimes.web.dashboard.core.router import PageRouter
from chimes.web.dashboard.schedules.month import month_page
from chimes.web.dashboard.schedules.views import HINTS, Row, Sorting, busy, rows_of, sorting_from
from chimes.web.requests import validation_message

router = PageRouter()
HERE = "/ui/schedules"
LIST = ListName.SCHEDULES
PAGE = 25
#: Rows that are looked at again with one question.
MOST_AGAIN = 100
#: Results of those that run often, for strips that reach further back.
_MOST_BUSY, _OF_BUSY = 50, 90


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What a filter asks the store, and the filter with what was wrong about it."""

    filter: Filter
    query: ScheduleQuery


def asked_for(request: PageRequest, text: str, sorting: Sorting | None = None) -> Asked:
    """From the text of the box: `status:paused label:billing next:<1h`."""
    return asked_by(request, read_filter(text, SCHEDULE_NAMES), sorting)


def asked_by(request: PageRequest, filter_: Filter, sorting: Sorting | None = None) -> Asked:
    found = schedule_filter(filter_, request.actor, (sorting or Sorting()).query)
    query = found.query
    if found.next_within is not None:
        query = replace(query, due_by=request.now + found.next_within)
    return Asked(filter=found.filter, query=query)


@router.get("/schedules")
async def schedules(request: PageRequest) -> Response:
    """As a table, as cards or as a month: as the address says, and then as it said last."""
    sorting = sorting_from(request.query.get("sort", ""))
    asked = asked_for(request, request.query.get("q", ""), sorting)
    choices = with_view(list_choices_of(request.http), request.query.get("view", ""))
    frame: dict[str, object] = {
        "asked": asked,
        "sorting": sorting,
        "view": choices.view,
        "hints": HINTS,
        "columns": COLUMNS[LIST],
        "cols": choices.shows(LIST),
        "may_create": request.actor.may_create(request.actor.owner),
    }
    if not request.is_htmx:
        frame["saved"] = await saved_filters_of(request, LIST)
    if choices.view == "month":
        nothing = not await request.context.schedules.count(request.actor, asked.query)
        hiding = await _hiding(request, asked.filter) if nothing and asked.filter.chips else None
        frame |= {"nothing": nothing, "hiding": hiding}
        answer = await month_page(request, asked.filter, asked.query, **frame)
    else:
        answer = await _rows_page(request, asked, sorting, frame)
    answer.headers.add_vary_header("HX-Request")
    return remember_list_choices(request.http, answer, choices)


async def _rows_page(
    request: PageRequest, asked: Asked, sorting: Sorting, frame: Mapping[str, object]
) -> Response:
    question = cursor_scope(request.http)
    after = decode_cursor(request.query.get("cursor"), question, numbers=sorting.numbers)
    found = await request.context.schedules.find(
        request.actor, replace(asked.query, after=after, limit=PAGE)
    )
    rows = await _rows(request, found.items)
    more = ""
    if found.next is not None:
        url = request.http.url.include_query_params(cursor=encode_cursor(found.next, question))
        more = f"{url.path}?{url.query}"
    back = sorting.address(asked.filter, HERE)
    values: dict[str, object] = {**frame, "rows": rows, "more": more, "back": back}
    template = f"schedules/{frame['view']}.html"
    if request.is_htmx:
        return request.render_block(template, "rows", status=200, **values)
    total = await request.context.schedules.count(request.actor, asked.query)
    hiding = None
    if not found.items and asked.filter.chips:
        hiding = await _hiding(request, asked.filter)
    newer = f"{HERE}/newer?{urlencode({'q': asked.filter.text, 'known': total})}"
    values |= {"total": total, "hiding": hiding, "newer": newer}
    return request.render(template, status=200, **values)


async def _rows(request: PageRequest, found: Sequence[Schedule]) -> tuple[Row, ...]:
    insights = request.context.insights
    ids = [each.id for each in found]
    glances = await insights.glances(request.actor, ids) if ids else {}
    often = busy(glances)[:_MOST_BUSY]
    longer = await insights.results(request.actor, often, each=_OF_BUSY) if often else {}
    return rows_of(found, glances, request.actor, request.display, longer)


@router.get("/schedules/rows")
async def rows_again(request: PageRequest) -> Response:
    """Rows that somebody is looking at, as they are now. Those that are gone are not among them."""
    ids = request.http.query_params.getlist("id")
    if len(ids) > MOST_AGAIN:
        raise InvalidInput(
            _("at most {most} rows at a time", most=MOST_AGAIN), field="id", source="query"
        )
    query = ScheduleQuery(ids=tuple(ScheduleId(each) for each in ids), limit=MOST_AGAIN)
    found = await request.context.schedules.find(request.actor, query)
    choices = with_view(list_choices_of(request.http), request.query.get("view", ""))
    view = "cards" if choices.view == "cards" else "table"
    return request.render_block(
        f"schedules/{view}.html",
        "rows",
        rows=await _rows(request, found.items),
        cols=choices.shows(LIST),
        more="",
        back=request.back_url(HERE),
    )


@router.get("/schedules/newer")
async def newer(request: PageRequest) -> Response:
    """How many more there are than the page knows of: new rows wait until somebody wants them."""
    known = request.query.get("known", "")
    if not known.isdigit() or len(known) > 9:
        raise InvalidInput(field="known", source="query")
    asked = asked_for(request, request.query.get("q", ""))
    more = max(0, await request.context.schedules.count(request.actor, asked.query) - int(known))
    text = counted("{count} new schedule – show", "{count} new schedules – show", more)
    return JSONResponse({"count": more, "text": text.in_language(request.display.language)})


async def _hiding(request: PageRequest, found: Filter) -> Chip | None:
    """The one condition without which there would be something to see; None: it takes more."""
    for chip in found.chips:
        without = asked_by(request, found.without(chip))
        if await request.context.schedules.count(request.actor, without.query):
            return chip
    return None


# @@ Run now, from a list: what is run with what is shown first, and can be another payload for
# this one run (UX A.2).


@dataclass(frozen=True, kw_only=True, slots=True)
class Payload:
    """What a run is given to work with, as text; secrets are hidden."""

    #: Empty: there is nothing to give.
    name: str
    text: str
    json: bool

    @property
    def empty(self) -> bool:
        return self.text in ("", "{}")


def payload_shown(target: Target) -> Payload:
    name = payload_name(target)
    plain = target_out(target).get(name, "")
    if isinstance(plain, str):
        return Payload(name=name, text=plain, json=False)
    return Payload(name=name, text=json.dumps(plain, ensure_ascii=False, indent=2), json=True)


def facts_of(target: Target) -> dict[str, str]:
    """What else a target says, field by field; nothing secret."""
    found = {
        name: masked_url(value) if name == "url" and isinstance(value, str) else value
        for name, value in target_out(target).items()
        if name not in (payload_name(target), "kind") and value not in ("", [], {}, None)
    }
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in found.items()
    }


def target_with(before: Target, text: str) -> Target:
    """With what was typed; `***` is the secret that was there. InvalidInput names `payload`."""
    name = payload_name(before)
    given: object = text
    if not isinstance(before, HttpTarget | AgentTarget):
        given = _object_in(text)
    try:
        return patched_target(TargetPatch.model_validate({name: given}), before)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        message = validation_message(first["type"], first.get("ctx", {}))
        raise InvalidInput(message, field="payload", code="bad_payload") from None


def _object_in(text: str) -> dict[str, object]:
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            _("this is not valid JSON: {why}", why=error), field="payload", code="bad_json"
        ) from None
    if not isinstance(found, dict):
        raise InvalidInput(
            _('parameters are a JSON object such as {{"name": "Ada"}}'),
            field="payload",
            code="not_an_object",
        )
    return found


@router.get("/schedules/{id}/run")
async def ask(request: PageRequest) -> Response:
    return _asked(request, await _schedule(request))


@router.post("/schedules/{id}/run/with")
async def run_with(request: PageRequest) -> Response:
    """On to the new run, or to the one of its pair that is under way."""
    schedule = await _schedule(request)
    try:
        target = target_with(schedule.target, request.form.raw("payload"))
        run, created = await request.context.manual_runs.run_now_or_get(
            request.actor, schedule.id, target=target
        )
    except FORM_ERRORS as error:
        return _asked(request, schedule, error=await request.form_error(error))
    if created:
        return request.redirect_with_toast(_("Its run was asked for."), to=f"/ui/runs/{run.id}")
    text = _("It is under way already: this is that run.")
    return request.redirect_with_toast(text, to=f"/ui/runs/{run.id}", kind="warning")


async def _schedule(request: PageRequest) -> Schedule:
    return await request.context.schedules.get(request.actor, ScheduleId(request.path_params["id"]))


def _asked(request: PageRequest, schedule: Schedule, *, error: FormError | None = None) -> Response:
    payload = payload_shown(schedule.target)
    return request.render_page_or_block(
        "schedules/run.html",
        "part",
        status=200 if error is None else error.status,
        schedule=schedule,
        facts=facts_of(schedule.target),
        payload=payload,
        typed=request.form.raw("payload") if error else payload.text,
        error=error,
        may_change=request.actor.may_create(schedule.owner) and bool(payload.name),
        back=request.back_url("/ui/schedules"),
    )
