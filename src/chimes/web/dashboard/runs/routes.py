"""Runs page: list, filters, bulk actions and export. Filters are in the URL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from urllib.parse import urlencode

from starlette.responses import JSONResponse, Response

from chimes.errors import InvalidInput, NotFound
from chimes.i18n import _, counted
from chimes.model import replace
from chimes.model.ids import RunId, ScheduleId
from chimes.model.insights import ErrorGroup
from chimes.model.listing import Page, Position, RunQuery, RunSort, ScheduleQuery
from chimes.model.run import Run, RunStatus
from chimes.services.filters import RUN_NAMES, Chip, Filter, read_filter
from chimes.services.preferences import ListName
from chimes.services.runs import RunOrigin
from chimes.triggers.values import format_moment, parse_moment
from chimes.web.dashboard.core import bulk
from chimes.web.dashboard.core.bulk import BulkAction, Fetch, Outcome, Work
from chimes.web.dashboard.core.lists import (
    EXPORT_BATCH,
    MAX_EXPORTED,
    ChipTexts,
    describe_chip,
    file_response,
    next_page,
    page_position,
    saved_filters_of,
    suggested_chips,
)
from chimes.web.dashboard.core.page_request import (
    ConfirmDialog,
    PageRequest,
    PageRouter,
)
from chimes.web.dashboard.core.preferences import COLUMNS, list_choices_of
from chimes.web.dashboard.core.times import absolute
from chimes.web.dashboard.runs.views import (
    ACTIVE,
    HINTS,
    RUNS_PATH,
    RunSearch,
    bucket_size,
    build_bars,
    build_histogram,
    csv_head,
    csv_lines,
    json_lines,
    parse_search,
    rows_of,
    silent_columns,
    visible,
    wider_window,
    window_links,
)

router = PageRouter()
LIST = ListName.RUNS
PAGE = 25
#: Query value and template block of the chart.
CHART_PART = "picture"
#: Limit of rows in one refresh.
MAX_REFRESHED = 100
RowContext = tuple[dict[ScheduleId, timedelta], dict[RunId, RunOrigin], dict[ScheduleId, str]]
#: Above this, the count of new runs is shown as "more than".
_MAX_NEW = 99


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Runs with the same error."""

    group: ErrorGroup
    address: str


@router.get("/runs")
async def runs(request: PageRequest) -> Response:
    if "from" in request.query or "to" in request.query:
        return _redirect_to_range(request)
    search = await resolve_search(request, request.query.get("q", ""))
    if request.is_htmx and request.query.get("part") == CHART_PART:
        values = await _chart(request, search)
        answer = request.render_block(
            "runs/page.html", CHART_PART, status=200, search=search, **values
        )
        answer.headers.add_vary_header("HX-Request")
        return answer
    found = await find_matching(request, search, after=page_position(request), limit=PAGE)
    more = next_page(request, found.next)
    rows = rows_of(found.items, *await _row_context(request, found.items), request.now)
    cols = list_choices_of(request.http).shows(LIST)
    if request.is_htmx:
        answer = request.render_block(
            "runs/page.html", "rows", rows=rows, more=more, visible=visible, cols=cols
        )
        answer.headers.add_vary_header("HX-Request")
        return answer
    newer = {"q": search.filter.text, "after": format_moment(request.now)}
    texts = ChipTexts(
        display=request.display,
        now=request.now,
        schedules=await _schedule_names(request, search),
        error=search.error or "",
    )
    hiding = None
    if not rows and not more and search.filter.chips:
        hiding = await _hiding_chip(request, search.filter)
    answer = request.render(
        "runs/page.html",
        status=200,
        **await _chart(request, search),
        search=search,
        rows=rows,
        more=more,
        hiding=hiding,
        saved=await saved_filters_of(request, LIST),
        columns=COLUMNS[LIST],
        cols=cols,
        density=list_choices_of(request.http).density,
        silent=silent_columns(rows),
        again=f"{RUNS_PATH}?{urlencode({'q': search.filter.text, 'part': CHART_PART})}",
        groups=await _groups(request, search),
        windows=window_links(search),
        wider_window=wider_window(search),
        hints=HINTS,
        visible=visible,
        chip_words=partial(describe_chip, texts=texts),
        suggested=suggested_chips(HINTS, texts),
        newer=f"{RUNS_PATH}/newer?{urlencode(newer)}",
        export=urlencode({"q": search.filter.text}),
    )
    answer.headers.add_vary_header("HX-Request")
    return answer


async def _schedule_names(request: PageRequest, search: RunSearch) -> dict[str, str]:
    """Names of the schedules of the filter."""
    ids = tuple(ScheduleId(each) for each in search.filter.all("schedule"))
    if not ids:
        return {}
    query = ScheduleQuery(ids=ids, limit=len(ids))
    found = await request.context.schedules.find(request.actor, query)
    return {each.id: each.name for each in found.items}


async def _chart(request: PageRequest, search: RunSearch) -> dict[str, object]:
    """Builds the chart of the window; the page refreshes it while runs change."""
    step = bucket_size(search.window)
    tallies = await request.context.insights.count_runs_by_bucket(
        request.actor, search.window, step, search.totals_filter
    )
    bars = build_bars(tallies, step, search)
    return {
        "chart": build_histogram(bars, request.display, request.now),
        "total": sum(bar.total for bar in bars),
    }


async def _hiding_chip(request: PageRequest, found: Filter) -> Chip | None:
    """Returns the one condition without which some runs would match, if there is one.

    The time range is not considered: the page offers a wider window."""
    for chip in found.chips:
        if chip.name in ("since", "until"):
            continue
        without = await resolve_search(request, found.without(chip).text)
        if (await find_matching(request, without, after=None, limit=1)).items:
            return chip
    return None


@router.get("/runs/rows")
async def refresh_rows(request: PageRequest) -> Response:
    """Refreshes visible rows."""
    ids = request.http.query_params.getlist("id")
    if len(ids) > MAX_REFRESHED:
        raise InvalidInput(
            _("at most {limit} rows at a time", limit=MAX_REFRESHED), field="id", source="query"
        )
    query = RunQuery(ids=tuple(RunId(each) for each in ids), limit=MAX_REFRESHED)
    found = await request.context.runs.find(request.actor, query)
    return request.render_block(
        "runs/page.html",
        "rows",
        rows=rows_of(found.items, *await _row_context(request, found.items), request.now),
        more="",
        visible=visible,
        cols=list_choices_of(request.http).shows(LIST),
    )


@router.get("/runs/newer")
async def newer(request: PageRequest) -> Response:
    """Counts runs created since the page was rendered; the page offers to show them."""
    after = parse_moment(request.query.get("after", ""), field="after")
    search = await resolve_search(request, request.query.get("q", ""))
    since = after + timedelta(milliseconds=1)
    query = replace(search.query, sort=RunSort.CREATED_AT, created_since=since)
    found = await find_matching(request, search.with_query(query), after=None, limit=_MAX_NEW + 1)
    count = len(found.items)
    text = counted("{count} new run – show", "{count} new runs – show", min(count, _MAX_NEW))
    if count > _MAX_NEW:
        text = _("More than {count} new runs – show", count=_MAX_NEW)
    return JSONResponse({"count": count, "text": text.in_language(request.display.language)})


async def resolve_search(request: PageRequest, text: str) -> RunSearch:
    search = parse_search(text, request.actor, request.now)
    if search.found.same is None:
        return search
    try:
        example = await request.context.runs.get(request.actor, search.found.same)
    except NotFound as error:
        return search.with_filter_error(_("{chip}: {error}", chip="same", error=error.message))
    return search.with_error(example.error)


async def find_matching(
    request: PageRequest, search: RunSearch, *, after: Position | None, limit: int
) -> Page[Run]:
    query = replace(search.query, after=after, limit=limit)
    return await request.context.runs.search(request.actor, search.with_query(query).found)


async def _row_context(request: PageRequest, found: tuple[Run, ...]) -> RowContext:
    """Returns median durations, origins of manual runs and zones, with one query each."""
    ids = {run.schedule_id for run in found if run.schedule_id is not None}
    origins = await request.context.runs.get_origins(request.actor, found)
    if not ids:
        return {}, origins, {}
    medians = await request.context.insights.get_expected_durations(request.actor, ids)
    query = ScheduleQuery(ids=tuple(ids), limit=len(ids))
    schedules = (await request.context.schedules.find(request.actor, query)).items
    return medians, origins, {each.id: each.trigger.zone for each in schedules}


async def _groups(request: PageRequest, search: RunSearch) -> list[Group]:
    if search.error is not None:
        return []
    insights = request.context.insights
    found = await insights.list_error_groups(
        request.actor, search.window, search.totals_filter, limit=5
    )
    return [
        Group(
            group=each,
            address=search.filter.with_chip(Chip("same", each.example)).address(RUNS_PATH),
        )
        for each in found.groups
        if each.count > 1
    ]


def _redirect_to_range(request: PageRequest) -> Response:
    """Turns the range of the form, in the viewer's zone, into a filter and redirects to it."""
    filter_ = read_filter(request.query.get("q", ""), RUN_NAMES)
    for field, name in (("from", "since"), ("to", "until")):
        text = request.query.get(field, "").strip()
        if text:
            moment = _moment(text, request.display.zone, field)
            filter_ = filter_.with_chip(Chip(name, format_moment(moment)))
    return request.redirect(filter_.address(RUNS_PATH))


def _moment(text: str, zone: str, field: str) -> datetime:
    try:
        return parse_moment(text, zone, field=field)
    except InvalidInput as error:
        raise InvalidInput(error.message, field=field, code=error.code, source="query") from None


# --- bulk actions -----------------------------------------------------------------------------
#: Runs per request.
MAX_BULK = 500
#: Statuses in which an action applies.
STATES = {"retry": tuple(each for each in RunStatus if each.terminal), "cancel": ACTIVE}


def _outcome(run: Run) -> Outcome:
    name = visible(run.schedule_name or run.target.kind)
    return Outcome(id=run.id, name=name, address=f"{RUNS_PATH}/{run.id}", status=run.status)


def _describe(request: PageRequest) -> Work[Run]:
    """Names the runs by schedule and time."""

    def named(run: Run) -> Outcome:
        found, display = _outcome(run), request.display
        when = absolute(run.planned_at, display.zone, display, now=request.now, seconds=True)
        return replace(found, name=f"{found.name} · {when}")

    async def describe(batch: Sequence[Run], place: int) -> list[Outcome]:
        return [named(run) for run in batch]

    return describe


def _retry(request: PageRequest) -> Work[Run]:
    async def retry(run: Run, place: int) -> Outcome:
        retried, created = await request.context.runs.retry(request.actor, run.id)
        text = _("Retry queued.") if created else _("Retry already queued.")
        return replace(_outcome(run), text=text, address=f"{RUNS_PATH}/{retried.id}")

    return bulk.one_by_one(retry, _outcome)


def _cancel(request: PageRequest) -> Work[Run]:
    async def cancel(run: Run, place: int) -> Outcome:
        after = await request.context.runs.cancel(request.actor, run.id)
        text = _("Canceled.") if after.status.terminal else _("Cancellation requested.")
        return replace(_outcome(run), text=text)

    return bulk.one_by_one(cancel, _outcome)


ACTIONS: Mapping[str, BulkAction[Run]] = {
    "retry": BulkAction(
        title=lambda count: counted("Retry {count} run?", "Retry {count} runs?", count),
        button=_("Retry"),
        prepare=_retry,
    ),
    "cancel": BulkAction(
        title=lambda count: counted("Cancel {count} run?", "Cancel {count} runs?", count),
        button=_("Cancel runs"),
        prepare=_cancel,
        dangerous=True,
    ),
}


@router.post("/runs/bulk")
async def bulk_action(request: PageRequest) -> Response:
    form, action = request.form, ACTIONS.get(request.form.text("verb"))
    if action is None:
        raise InvalidInput(_("retry or cancel"), field="verb", code="unknown_choice")
    outcomes, cursor = await bulk.process(
        request,
        await (_matching if form.is_checked("everything") else _selected)(request),
        action.prepare(request) if request.is_confirmed else _describe(request),
        limit=MAX_BULK,
        cursor=form.text("cursor"),
    )
    if not outcomes and not cursor:
        text = _("Nothing to do: no selected run is in a suitable status.")
        return request.redirect_with_toast(text, to=request.back_url(RUNS_PATH), kind="warning")
    if not request.is_confirmed:
        more = _("More runs match; they are processed {limit} at a time.", limit=MAX_BULK)
        return request.confirm(
            ConfirmDialog(
                title=action.title(len(outcomes)),
                text=more if cursor else "",
                button=action.button,
                names=[each.name for each in outcomes[:5]],
                total=len(outcomes),
                dangerous=action.dangerous,
            )
        )
    return request.render_page_or_block(
        "runs/bulk.html",
        "result",
        outcomes=outcomes,
        done=sum(not each.error for each in outcomes),
        next_fields=bulk.next_fields(request, cursor=cursor) if cursor else (),
        back=request.back_url(RUNS_PATH),
    )


async def _selected(request: PageRequest) -> Fetch[Run]:
    ids = tuple(dict.fromkeys(RunId(each) for each in request.form.all("id")))
    if len(ids) > MAX_BULK:
        raise InvalidInput(
            _("at most {limit} runs at a time", limit=MAX_BULK), field="id", code="too_many"
        )
    states = STATES[request.form.text("verb")]

    async def find(part: Sequence[RunId]) -> Sequence[Run]:
        query = RunQuery(ids=tuple(part), statuses=states, limit=len(part))
        return (await request.context.runs.find(request.actor, query)).items if part else ()

    return bulk.fetch_selected(ids, find)


async def _matching(request: PageRequest) -> Fetch[Run]:
    """Newest first, so that runs created meanwhile are not processed."""
    search = await resolve_search(request, request.form.text("q"))
    search.filter.require_valid()
    wanted = search.query.statuses or tuple(RunStatus)
    states = tuple(each for each in wanted if each in STATES[request.form.text("verb")])
    search = search.with_query(replace(search.query, statuses=states))

    async def find(after: Position | None, limit: int) -> Page[Run]:
        if not states:
            return Page(items=(), next=None)
        return await find_matching(request, search, after=after, limit=limit)

    return bulk.fetch_pages(request, find)


# --- export -----------------------------------------------------------------------------------
@router.get("/runs/export.csv")
async def export_csv(request: PageRequest) -> Response:
    search = await _exported_search(request)
    return file_response(request, "runs", "csv", _export(request, search, csv_lines, csv_head()))


@router.get("/runs/export.ndjson")
async def export_ndjson(request: PageRequest) -> Response:
    search = await _exported_search(request)
    return file_response(request, "runs", "ndjson", _export(request, search, json_lines))


async def _exported_search(request: PageRequest) -> RunSearch:
    search = await resolve_search(request, request.query.get("q", ""))
    search.filter.require_valid()
    return search


async def _export(
    request: PageRequest,
    search: RunSearch,
    to_lines: Callable[[Sequence[Run], str], str],
    head: str = "",
) -> AsyncIterator[str]:
    yield head
    after: Position | None = None
    count = 0
    while count < MAX_EXPORTED:
        found = await find_matching(request, search, after=after, limit=EXPORT_BATCH)
        batch = found.items[: MAX_EXPORTED - count]
        count += len(batch)
        yield to_lines(batch, request.display.language)
        after = found.next
        if after is None:
            return
