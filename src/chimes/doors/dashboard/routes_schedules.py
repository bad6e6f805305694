"""Schedules: the list, with its filters in the URL (UX A.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from starlette.responses import JSONResponse, Response

from chimes.doors.api.paging import cursor_to, position_from, question_of
from chimes.doors.dashboard.filters import (
    SCHEDULE_NAMES,
    Chip,
    Filter,
    read_filter,
    schedule_filter,
)
from chimes.doors.dashboard.list_choices import COLUMNS, chosen_in, remembered, with_view
from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.routes_lists import saved_in
from chimes.doors.dashboard.routes_schedules_month import month_page
from chimes.doors.dashboard.views_schedules import HINTS, Row, Sorting, busy, rows_of, sorting_from
from chimes.doors.dashboard.visit import Visit
from chimes.errors import InvalidInput
from chimes.model.ids import ScheduleId
from chimes.model.listing import ScheduleQuery
from chimes.model.schedule import Schedule
from chimes.service.insights import InsightService
from chimes.service.saved_filters import ListName
from chimes.wording import counted, say

pages = Pages()
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


def asked_for(visit: Visit, text: str, sorting: Sorting | None = None) -> Asked:
    """From the text of the box: `status:paused label:billing next:<1h`."""
    return asked_by(visit, read_filter(text, SCHEDULE_NAMES), sorting)


def asked_by(visit: Visit, filter_: Filter, sorting: Sorting | None = None) -> Asked:
    found = schedule_filter(filter_, visit.actor, (sorting or Sorting()).query)
    query = found.query
    if found.next_within is not None:
        query = replace(query, due_by=visit.now + found.next_within)
    return Asked(filter=found.filter, query=query)


@pages.get("/schedules")
async def schedules(visit: Visit) -> Response:
    """As a table, as cards or as a month: as the address says, and then as it said last."""
    sorting = sorting_from(visit.query.get("sort", ""))
    asked = asked_for(visit, visit.query.get("q", ""), sorting)
    choices = with_view(chosen_in(visit.request), visit.query.get("view", ""))
    frame: dict[str, object] = {
        "asked": asked,
        "sorting": sorting,
        "view": choices.view,
        "hints": HINTS,
        "columns": COLUMNS[LIST],
        "cols": choices.shows(LIST),
        "may_create": visit.actor.may_create(visit.actor.owner),
    }
    if not visit.partial:
        frame["saved"] = await saved_in(visit, LIST)
    if choices.view == "month":
        nothing = not await visit.door.schedules.count(visit.actor, asked.query)
        hiding = await _hiding(visit, asked.filter) if nothing and asked.filter.chips else None
        frame |= {"nothing": nothing, "hiding": hiding}
        answer = await month_page(visit, asked.filter, asked.query, **frame)
    else:
        answer = await _rows_page(visit, asked, sorting, frame)
    answer.headers.add_vary_header("HX-Request")
    return remembered(visit.request, answer, choices)


async def _rows_page(
    visit: Visit, asked: Asked, sorting: Sorting, frame: Mapping[str, object]
) -> Response:
    question = question_of(visit.request)
    after = position_from(visit.query.get("cursor"), question, numbers=sorting.numbers)
    found = await visit.door.schedules.find(
        visit.actor, replace(asked.query, after=after, limit=PAGE)
    )
    rows = await _rows(visit, found.items)
    more = ""
    if found.next is not None:
        url = visit.request.url.include_query_params(cursor=cursor_to(found.next, question))
        more = f"{url.path}?{url.query}"
    back = sorting.address(asked.filter, HERE)
    values: dict[str, object] = {**frame, "rows": rows, "more": more, "back": back}
    template = f"schedules/{frame['view']}.html"
    if visit.partial:
        return visit.part(template, "rows", status=200, **values)
    total = await visit.door.schedules.count(visit.actor, asked.query)
    hiding = None
    if not found.items and asked.filter.chips:
        hiding = await _hiding(visit, asked.filter)
    newer = f"{HERE}/newer?{urlencode({'q': asked.filter.text, 'known': total})}"
    values |= {"total": total, "hiding": hiding, "newer": newer}
    return visit.page(template, status=200, **values)


async def _rows(visit: Visit, found: Sequence[Schedule]) -> tuple[Row, ...]:
    insights = InsightService(visit.door.store)
    ids = [each.id for each in found]
    glances = await insights.glances(visit.actor, ids) if ids else {}
    often = busy(glances)[:_MOST_BUSY]
    longer = await insights.results(visit.actor, often, each=_OF_BUSY) if often else {}
    return rows_of(found, glances, visit.actor, visit.look, longer)


@pages.get("/schedules/rows")
async def rows_again(visit: Visit) -> Response:
    """Rows that somebody is looking at, as they are now. Those that are gone are not among them."""
    ids = visit.request.query_params.getlist("id")
    if len(ids) > MOST_AGAIN:
        raise InvalidInput(
            say("at most {most} rows at a time", most=MOST_AGAIN), field="id", source="query"
        )
    query = ScheduleQuery(ids=tuple(ScheduleId(each) for each in ids), limit=MOST_AGAIN)
    found = await visit.door.schedules.find(visit.actor, query)
    choices = with_view(chosen_in(visit.request), visit.query.get("view", ""))
    view = "cards" if choices.view == "cards" else "table"
    return visit.part(
        f"schedules/{view}.html",
        "rows",
        rows=await _rows(visit, found.items),
        cols=choices.shows(LIST),
        more="",
        back=visit.back(HERE),
    )


@pages.get("/schedules/newer")
async def newer(visit: Visit) -> Response:
    """How many more there are than the page knows of: new rows wait until somebody wants them."""
    known = visit.query.get("known", "")
    if not known.isdigit() or len(known) > 9:
        raise InvalidInput(field="known", source="query")
    asked = asked_for(visit, visit.query.get("q", ""))
    more = max(0, await visit.door.schedules.count(visit.actor, asked.query) - int(known))
    text = counted("{count} new schedule – show", "{count} new schedules – show", more)
    return JSONResponse({"count": more, "text": text.in_language(visit.look.language)})


async def _hiding(visit: Visit, found: Filter) -> Chip | None:
    """The one condition without which there would be something to see; None: it takes more."""
    for chip in found.chips:
        without = asked_by(visit, found.without(chip))
        if await visit.door.schedules.count(visit.actor, without.query):
            return chip
    return None
