"""The list of schedules with its filters, and the Run now dialog."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlencode

from pydantic import ValidationError
from starlette.responses import JSONResponse, Response

from chimes.errors import InvalidInput
from chimes.i18n import _, counted
from chimes.model import replace
from chimes.model.ids import ScheduleId
from chimes.model.listing import ScheduleQuery
from chimes.model.schedule import Schedule
from chimes.model.target import AgentTarget, HttpTarget, Target, payload_name
from chimes.services.filters import (
    SCHEDULE_NAMES,
    Chip,
    Filter,
    ScheduleFilter,
    read_filter,
    schedule_filter,
)
from chimes.services.preferences import ListName
from chimes.web.api.schemas import TargetPatch
from chimes.web.api.translate import patched_target, target_out
from chimes.web.dashboard.core.lists import (
    ChipTexts,
    describe_chip,
    next_page,
    page_position,
    saved_filters_of,
    suggested_chips,
)
from chimes.web.dashboard.core.page_request import (
    FORM_ERRORS,
    FormError,
    PageRequest,
    PageRouter,
    status_of,
)
from chimes.web.dashboard.core.preferences import (
    COLUMNS,
    list_choices_of,
    remember_list_choices,
    with_view,
)
from chimes.web.dashboard.schedule.actions import redirect_to_run, schedule_of
from chimes.web.dashboard.schedules.month import month_page
from chimes.web.dashboard.schedules.views import (
    HINTS,
    Row,
    Sorting,
    frequent_schedules,
    parse_sorting,
    rows_of,
)
from chimes.web.problems import validation_message

router = PageRouter()
LIST_PAGE = "/ui/schedules"
LIST = ListName.SCHEDULES
PAGE_SIZE = 25
#: Rows that one request can refresh.
MAX_REFRESHED_ROWS = 100
#: Frequent schedules that get more results in their strip, and how many.
_MAX_FREQUENT, _FREQUENT_RESULTS = 50, 90


def parse_query(request: PageRequest, text: str, sorting: Sorting | None = None) -> ScheduleFilter:
    """From the filter text: `status:paused label:billing next:<1h`."""
    return query_from(request, read_filter(text, SCHEDULE_NAMES), sorting)


def query_from(
    request: PageRequest, filter_: Filter, sorting: Sorting | None = None
) -> ScheduleFilter:
    return schedule_filter(filter_, request.actor, request.now, (sorting or Sorting()).query)


@router.get("/schedules")
async def schedules(request: PageRequest) -> Response:
    """As a table, cards or month; the last view is remembered."""
    sorting = parse_sorting(request.query.get("sort", ""))
    filtered = parse_query(request, request.query.get("q", ""), sorting)
    choices = with_view(list_choices_of(request.http), request.query.get("view", ""))
    texts = ChipTexts(display=request.display, now=request.now)
    frame: dict[str, object] = {
        "chip_words": partial(describe_chip, texts=texts),
        "suggested": suggested_chips(HINTS, texts),
        "filtered": filtered,
        "sorting": sorting,
        "view": choices.view,
        "hints": HINTS,
        "columns": COLUMNS[LIST],
        "cols": choices.shows(LIST),
        "density": choices.density,
        "may_create": request.actor.may_create(request.actor.owner),
    }
    if not request.is_htmx:
        frame["saved"] = await saved_filters_of(request, LIST)
    if choices.view == "month":
        is_empty = not await request.context.schedules.count(request.actor, filtered.query)
        hiding = (
            await _hiding(request, filtered.filter) if is_empty and filtered.filter.chips else None
        )
        frame |= {"is_empty": is_empty, "hiding": hiding}
        response = await month_page(request, filtered.filter, filtered.query, **frame)
    else:
        response = await _rows_page(request, filtered, sorting, frame)
    response.headers.add_vary_header("HX-Request")
    return remember_list_choices(request.http, response, choices)


async def _rows_page(
    request: PageRequest, filtered: ScheduleFilter, sorting: Sorting, frame: Mapping[str, object]
) -> Response:
    after = page_position(request, numbers=sorting.numbers)
    found = await request.context.schedules.find(
        request.actor, replace(filtered.query, after=after, limit=PAGE_SIZE)
    )
    rows = await _rows(request, found.items)
    more = next_page(request, found.next)
    back = sorting.address(filtered.filter, LIST_PAGE)
    values: dict[str, object] = {**frame, "rows": rows, "more": more, "back": back}
    template = f"schedules/{frame['view']}.html"
    if request.is_htmx:
        return request.render_block(template, "rows", status=200, **values)
    total = await request.context.schedules.count(request.actor, filtered.query)
    hiding = None
    if not found.items and filtered.filter.chips:
        hiding = await _hiding(request, filtered.filter)
    newer = f"{LIST_PAGE}/newer?{urlencode({'q': filtered.filter.text, 'known': total})}"
    one_owner = len({each.owner for each in found.items}) < 2
    values |= {"total": total, "hiding": hiding, "newer": newer, "one_owner": one_owner}
    return request.render(template, status=200, **values)


async def _rows(request: PageRequest, found: Sequence[Schedule]) -> tuple[Row, ...]:
    insights = request.context.insights
    ids = [each.id for each in found]
    health_by_id = await insights.list_health(request.actor, ids) if ids else {}
    frequent = frequent_schedules(health_by_id)[:_MAX_FREQUENT]
    more_results = (
        await insights.list_results(request.actor, frequent, each=_FREQUENT_RESULTS)
        if frequent
        else {}
    )
    return rows_of(found, health_by_id, request.actor, request.display, more_results)


@router.get("/schedules/rows")
async def rows_again(request: PageRequest) -> Response:
    """Current state of the visible rows; deleted schedules are omitted."""
    ids = request.http.query_params.getlist("id")
    if len(ids) > MAX_REFRESHED_ROWS:
        raise InvalidInput(
            _("at most {limit} rows per request", limit=MAX_REFRESHED_ROWS),
            field="id",
            source="query",
        )
    query = ScheduleQuery(ids=tuple(ScheduleId(each) for each in ids), limit=MAX_REFRESHED_ROWS)
    found = await request.context.schedules.find(request.actor, query)
    choices = with_view(list_choices_of(request.http), request.query.get("view", ""))
    view = "cards" if choices.view == "cards" else "table"
    return request.render_block(
        f"schedules/{view}.html",
        "rows",
        rows=await _rows(request, found.items),
        cols=choices.shows(LIST),
        density=choices.density,
        more="",
        back=request.back_url(LIST_PAGE),
    )


@router.get("/schedules/newer")
async def newer(request: PageRequest) -> Response:
    """Number of schedules that the open page does not show yet."""
    known = request.query.get("known", "")
    if not known.isdigit() or len(known) > 9:
        raise InvalidInput(field="known", source="query")
    filtered = parse_query(request, request.query.get("q", ""))
    more = max(0, await request.context.schedules.count(request.actor, filtered.query) - int(known))
    text = counted("{count} new schedule – show", "{count} new schedules – show", more)
    return JSONResponse({"count": more, "text": text.in_language(request.display.language)})


async def _hiding(request: PageRequest, found: Filter) -> Chip | None:
    """The condition whose removal gives results; None: removing one is not enough."""
    for chip in found.chips:
        without = query_from(request, found.without(chip))
        if await request.context.schedules.count(request.actor, without.query):
            return chip
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Payload:
    """Body, prompt or arguments of a target as text, with secrets masked."""

    #: Name of the field; empty: the target has none.
    name: str
    text: str
    json: bool

    @property
    def empty(self) -> bool:
        return self.text in ("", "{}")


def masked_payload(target: Target) -> Payload:
    name = payload_name(target)
    plain = target_out(target).get(name, "")
    if isinstance(plain, str):
        return Payload(name=name, text=plain, json=False)
    return Payload(name=name, text=json.dumps(plain, ensure_ascii=False, indent=2), json=True)


def target_details(target: Target) -> dict[str, str]:
    """The other fields of a target, with secrets masked."""
    details = {
        name: value
        for name, value in target_out(target).items()
        if name not in (payload_name(target), "kind") and value not in ("", [], {}, None)
    }
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in details.items()
    }


def with_payload(before: Target, text: str) -> Target:
    """`***` keeps the current secret. InvalidInput names the field `payload`."""
    name = payload_name(before)
    given: object = text
    if not isinstance(before, HttpTarget | AgentTarget):
        given = _parse_object(text)
    try:
        return patched_target(TargetPatch.model_validate({name: given}), before)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        message = validation_message(first["type"], first.get("ctx", {}))
        raise InvalidInput(message, field="payload", code="bad_payload") from None


def _parse_object(text: str) -> dict[str, object]:
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            _("invalid JSON: {error}", error=error), field="payload", code="bad_json"
        ) from None
    if not isinstance(found, dict):
        raise InvalidInput(
            _('must be a JSON object such as {{"name": "Ada"}}'),
            field="payload",
            code="not_an_object",
        )
    return found


@router.get("/schedules/{id}/run")
async def run_dialog(request: PageRequest) -> Response:
    return _render_run_dialog(request, await schedule_of(request))


@router.post("/schedules/{id}/run/with")
async def run_with(request: PageRequest) -> Response:
    """Redirects to the new run, or to the active run of the same sync pair."""
    schedule = await schedule_of(request)
    try:
        target = with_payload(schedule.target, request.form.raw("payload"))
        run, created = await request.context.manual_runs.run_now_or_get(
            request.actor, schedule.id, target=target
        )
    except FORM_ERRORS as error:
        return _render_run_dialog(request, schedule, error=await request.form_error(error))
    return redirect_to_run(request, run, created=created)


def _render_run_dialog(
    request: PageRequest, schedule: Schedule, *, error: FormError | None = None
) -> Response:
    payload = masked_payload(schedule.target)
    return request.render_page_or_block(
        "schedules/run.html",
        "part",
        status=status_of(error),
        schedule=schedule,
        details=target_details(schedule.target),
        payload=payload,
        typed=request.form.raw("payload") if error else payload.text,
        error=error,
        may_change=request.actor.may_create(schedule.owner) and bool(payload.name),
        back=request.back_url("/ui/schedules"),
    )
