"""Schedules: the list, with its filters in the URL (UX A.2)."""

from __future__ import annotations

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
from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.views_schedules import HINTS, Sorting, rows_of, sorting_from
from chimes.doors.dashboard.visit import Visit
from chimes.errors import InvalidInput
from chimes.model.listing import ScheduleQuery
from chimes.service.insights import InsightService
from chimes.wording import counted

pages = Pages()
HERE = "/ui/schedules"
PAGE = 25


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
    sorting = sorting_from(visit.query.get("sort", ""))
    asked = asked_for(visit, visit.query.get("q", ""), sorting)
    question = question_of(visit.request)
    after = position_from(visit.query.get("cursor"), question, numbers=sorting.numbers)
    found = await visit.door.schedules.find(
        visit.actor, replace(asked.query, after=after, limit=PAGE)
    )
    total = await visit.door.schedules.count(visit.actor, asked.query)
    insights = InsightService(visit.door.store)
    ids = [each.id for each in found.items]
    glances = await insights.glances(visit.actor, ids) if ids else {}
    more = ""
    if found.next is not None:
        url = visit.request.url.include_query_params(cursor=cursor_to(found.next, question))
        more = f"{url.path}?{url.query}"
    hiding = None
    if not found.items and asked.filter.chips:
        hiding = await _hiding(visit, asked.filter)
    return visit.page_or_part(
        "schedules/page.html",
        "rows",
        asked=asked,
        sorting=sorting,
        rows=rows_of(found.items, glances, visit.actor, visit.look),
        total=total,
        more=more,
        hiding=hiding,
        hints=HINTS,
        newer=f"{HERE}/newer?{urlencode({'q': asked.filter.text, 'known': total})}",
        may_create=visit.actor.may_create(visit.actor.owner),
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
