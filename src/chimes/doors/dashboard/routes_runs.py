"""Runs: the list, with its filters in the URL (UX A.5)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from urllib.parse import urlencode

from starlette.responses import JSONResponse, Response

from chimes.doors.api.paging import cursor_to, position_from, question_of
from chimes.doors.dashboard.filters import RUN_NAMES, Chip, Filter, read_filter
from chimes.doors.dashboard.list_choices import COLUMNS, chosen_in
from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.routes_lists import saved_in
from chimes.doors.dashboard.views_runs import (
    HERE,
    HINTS,
    Asked,
    asked_for,
    bars_of,
    histogram_of,
    rows_of,
    step_of,
    visible,
    wider,
    window_links,
)
from chimes.doors.dashboard.visit import Visit
from chimes.errors import InvalidInput, NotFound
from chimes.model.ids import RunId, ScheduleId
from chimes.model.insights import ErrorGroup
from chimes.model.listing import Page, Position, RunQuery, RunSort, ScheduleQuery
from chimes.model.run import Run
from chimes.service.askers import Asker, askers_of
from chimes.service.insights import InsightService
from chimes.service.saved_filters import ListName
from chimes.triggers.moment import format_moment, parse_moment
from chimes.wording import counted, say

pages = Pages()
LIST = ListName.RUNS
PAGE = 25
#: The part of the page, and its block.
PICTURE = "picture"
#: Rows that are looked at again with one question.
MOST_AGAIN = 100
#: Runs that one answer looks at where the page sifts them itself.
MOST_SIFTED, _SIFTED_AT_ONCE = 2000, 200
Beside = tuple[dict[ScheduleId, timedelta], dict[RunId, Asker], dict[ScheduleId, str]]
#: Above this, "more than".
_MOST_NEW = 99


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Runs with the same error."""

    group: ErrorGroup
    address: str


@pages.get("/runs")
async def runs(visit: Visit) -> Response:
    if "from" in visit.query or "to" in visit.query:
        return _window_chosen(visit)
    asked = await asked_in(visit, visit.query.get("q", ""))
    if visit.partial and visit.query.get("part") == PICTURE:
        values = await _picture(visit, asked)
        answer = visit.part("runs/page.html", PICTURE, status=200, asked=asked, **values)
        answer.headers.add_vary_header("HX-Request")
        return answer
    question = question_of(visit.request)
    after = position_from(visit.query.get("cursor"), question, numbers=True)
    found = await matching(visit, asked, after=after, limit=PAGE)
    more = ""
    if found.next is not None:
        url = visit.request.url.include_query_params(cursor=cursor_to(found.next, question))
        more = f"{url.path}?{url.query}"
    rows = rows_of(found.items, *await _beside(visit, found.items), visit.now)
    cols = chosen_in(visit.request).shows(LIST)
    if visit.partial:
        answer = visit.part(
            "runs/page.html", "rows", rows=rows, more=more, visible=visible, cols=cols
        )
        answer.headers.add_vary_header("HX-Request")
        return answer
    known = {"q": asked.filter.text, "after": format_moment(visit.now)}
    hiding = None
    if not rows and not more and asked.filter.chips:
        hiding = await _hiding(visit, asked.filter)
    answer = visit.page(
        "runs/page.html",
        status=200,
        **await _picture(visit, asked),
        asked=asked,
        rows=rows,
        more=more,
        hiding=hiding,
        saved=await saved_in(visit, LIST),
        columns=COLUMNS[LIST],
        cols=cols,
        again=f"{HERE}?{urlencode({'q': asked.filter.text, 'part': PICTURE})}",
        groups=await _groups(visit, asked),
        windows=window_links(asked),
        wider=wider(asked),
        hints=HINTS,
        visible=visible,
        newer=f"{HERE}/newer?{urlencode(known)}",
        export=urlencode({"q": asked.filter.text}),
    )
    answer.headers.add_vary_header("HX-Request")
    return answer


async def _picture(visit: Visit, asked: Asked) -> dict[str, object]:
    """What the window holds; the page asks for it again while it changes."""
    step = step_of(asked.window)
    tallies = await InsightService(visit.door.store).run_buckets(
        visit.actor, asked.window, step, asked.totals
    )
    bars = bars_of(tallies, step, asked)
    return {
        "chart": histogram_of(bars, visit.look, visit.now),
        "total": sum(bar.total for bar in bars),
    }


async def _hiding(visit: Visit, found: Filter) -> Chip | None:
    """The one condition without which there would be something to see; None: it takes more. When
    it was is asked for elsewhere: the window can be widened."""
    for chip in found.chips:
        if chip.name in ("since", "until"):
            continue
        without = await asked_in(visit, found.without(chip).text)
        if (await matching(visit, without, after=None, limit=1)).items:
            return chip
    return None


@pages.get("/runs/rows")
async def rows_again(visit: Visit) -> Response:
    """Rows that somebody is looking at, as they are now."""
    ids = visit.request.query_params.getlist("id")
    if len(ids) > MOST_AGAIN:
        raise InvalidInput(
            say("at most {most} rows at a time", most=MOST_AGAIN), field="id", source="query"
        )
    query = RunQuery(ids=tuple(RunId(each) for each in ids), limit=MOST_AGAIN)
    found = await visit.door.runs.find(visit.actor, query)
    return visit.part(
        "runs/page.html",
        "rows",
        rows=rows_of(found.items, *await _beside(visit, found.items), visit.now),
        more="",
        visible=visible,
        cols=chosen_in(visit.request).shows(LIST),
    )


@pages.get("/runs/newer")
async def newer(visit: Visit) -> Response:
    """How many have come since the page was made: they wait until somebody wants them."""
    after = parse_moment(visit.query.get("after", ""), field="after")
    asked = await asked_in(visit, visit.query.get("q", ""))
    since = after + timedelta(milliseconds=1)
    query = replace(asked.query, sort=RunSort.CREATED_AT, created_since=since)
    found = await matching(visit, replace(asked, query=query), after=None, limit=_MOST_NEW + 1)
    count = len(found.items)
    text = counted("{count} new run – show", "{count} new runs – show", min(count, _MOST_NEW))
    if count > _MOST_NEW:
        text = say("More than {count} new runs – show", count=_MOST_NEW)
    return JSONResponse({"count": count, "text": text.in_language(visit.look.language)})


async def asked_in(visit: Visit, text: str) -> Asked:
    asked = asked_for(text, visit.actor, visit.now)
    if asked.same is None:
        return asked
    try:
        like = await visit.door.runs.get(visit.actor, asked.same)
    except NotFound as error:
        return asked.with_wrong(say("{chip}: {why}", chip="same", why=error.message))
    return asked.with_error(like.error)


async def matching(visit: Visit, asked: Asked, *, after: Position | None, limit: int) -> Page[Run]:
    """A page of them. Where the page sifts by itself it may have more or less than `limit`."""
    if not asked.sifted:
        return await visit.door.runs.find(
            visit.actor, replace(asked.query, after=after, limit=limit)
        )
    kept: list[Run] = []
    looked_at = 0
    while True:
        query: RunQuery = replace(asked.query, after=after, limit=_SIFTED_AT_ONCE)
        found = await visit.door.runs.find(visit.actor, query)
        kept.extend(run for run in found.items if asked.matches(run))
        looked_at += len(found.items)
        after = found.next
        if after is None or len(kept) >= limit or looked_at >= MOST_SIFTED:
            return Page(items=tuple(kept), next=after)


async def _beside(visit: Visit, found: tuple[Run, ...]) -> Beside:
    """The usual durations, who asked for what was not planned, and by which clocks it was: one
    question each."""
    ids = {run.schedule_id for run in found if run.schedule_id is not None}
    askers = await askers_of(visit.door.store, found)
    if not ids:
        return {}, askers, {}
    medians = await InsightService(visit.door.store).expected_durations(visit.actor, ids)
    query = ScheduleQuery(ids=tuple(ids), limit=len(ids))
    schedules = (await visit.door.schedules.find(visit.actor, query)).items
    return medians, askers, {each.id: each.trigger.zone for each in schedules}


async def _groups(visit: Visit, asked: Asked) -> list[Group]:
    if asked.error is not None:
        return []
    insights = InsightService(visit.door.store)
    found = await insights.error_groups(visit.actor, asked.window, asked.totals, limit=5)
    return [
        Group(
            group=each,
            address=asked.filter.with_chip(Chip("same", each.example)).address(HERE),
        )
        for each in found.groups
        if each.count > 1
    ]


def _window_chosen(visit: Visit) -> Response:
    """From the two fields of the form, by the reader's clock, to the filter that says the same."""
    filter_ = read_filter(visit.query.get("q", ""), RUN_NAMES)
    for field, name in (("from", "since"), ("to", "until")):
        text = visit.query.get(field, "").strip()
        if text:
            moment = _moment(text, visit.look.zone, field)
            filter_ = filter_.with_chip(Chip(name, format_moment(moment)))
    return visit.redirect(filter_.address(HERE))


def _moment(text: str, zone: str, field: str) -> datetime:
    try:
        return parse_moment(text, zone, field=field)
    except InvalidInput as error:
        raise InvalidInput(error.message, field=field, code=error.code, source="query") from None
