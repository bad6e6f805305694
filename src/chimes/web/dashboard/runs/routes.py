"""Runs: the list, with its filters in the URL (UX A.5)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from urllib.parse import urlencode

from starlette.responses import JSONResponse, Response, StreamingResponse

from chimes.errors import ChimesError, InvalidInput, NotFound
from chimes.i18n import Message, _, counted
from chimes.model.ids import RunId, ScheduleId
from chimes.model.insights import ErrorGroup
from chimes.model.listing import Page, Position, RunQuery, RunSort, ScheduleQuery
from chimes.model.run import Run, RunStatus
from chimes.services.preferences import ListName
from chimes.services.run_requests import RunOrigin, get_run_origins
from chimes.triggers.moment import format_moment, parse_moment
from chimes.web.api.paging import cursor_to, position_from, question_of
from chimes.web.dashboard.core.filters import RUN_NAMES, Chip, Filter, read_filter
from chimes.web.dashboard.core.forms import ConfirmDialog, form_error_from
from chimes.web.dashboard.core.lists import saved_filters_of
from chimes.web.dashboard.core.page_request import PageRequest
from chimes.web.dashboard.core.preferences import COLUMNS, list_choices_of
from chimes.web.dashboard.core.router import PageRouter
from chimes.web.dashboard.runs.views import (
    ACTIVE,
    HERE,
    HINTS,
    Asked,
    asked_for,
    bars_of,
    csv_head,
    csv_lines,
    histogram_of,
    json_lines,
    rows_of,
    step_of,
    visible,
    wider,
    window_links,
)

router = PageRouter()
LIST = ListName.RUNS
PAGE = 25
#: The part of the page, and its block.
PICTURE = "picture"
#: Rows that are looked at again with one question.
MOST_AGAIN = 100
#: Runs that one answer looks at where the page sifts them itself.
MOST_SIFTED, _SIFTED_AT_ONCE = 2000, 200
Beside = tuple[dict[ScheduleId, timedelta], dict[RunId, RunOrigin], dict[ScheduleId, str]]
#: Above this, "more than".
_MOST_NEW = 99


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Runs with the same error."""

    group: ErrorGroup
    address: str


@router.get("/runs")
async def runs(request: PageRequest) -> Response:
    if "from" in request.query or "to" in request.query:
        return _window_chosen(request)
    asked = await asked_in(request, request.query.get("q", ""))
    if request.is_htmx and request.query.get("part") == PICTURE:
        values = await _picture(request, asked)
        answer = request.render_block("runs/page.html", PICTURE, status=200, asked=asked, **values)
        answer.headers.add_vary_header("HX-Request")
        return answer
    question = question_of(request.http)
    after = position_from(request.query.get("cursor"), question, numbers=True)
    found = await matching(request, asked, after=after, limit=PAGE)
    more = ""
    if found.next is not None:
        url = request.http.url.include_query_params(cursor=cursor_to(found.next, question))
        more = f"{url.path}?{url.query}"
    rows = rows_of(found.items, *await _beside(request, found.items), request.now)
    cols = list_choices_of(request.http).shows(LIST)
    if request.is_htmx:
        answer = request.render_block(
            "runs/page.html", "rows", rows=rows, more=more, visible=visible, cols=cols
        )
        answer.headers.add_vary_header("HX-Request")
        return answer
    known = {"q": asked.filter.text, "after": format_moment(request.now)}
    hiding = None
    if not rows and not more and asked.filter.chips:
        hiding = await _hiding(request, asked.filter)
    answer = request.render(
        "runs/page.html",
        status=200,
        **await _picture(request, asked),
        asked=asked,
        rows=rows,
        more=more,
        hiding=hiding,
        saved=await saved_filters_of(request, LIST),
        columns=COLUMNS[LIST],
        cols=cols,
        again=f"{HERE}?{urlencode({'q': asked.filter.text, 'part': PICTURE})}",
        groups=await _groups(request, asked),
        windows=window_links(asked),
        wider=wider(asked),
        hints=HINTS,
        visible=visible,
        newer=f"{HERE}/newer?{urlencode(known)}",
        export=urlencode({"q": asked.filter.text}),
    )
    answer.headers.add_vary_header("HX-Request")
    return answer


async def _picture(request: PageRequest, asked: Asked) -> dict[str, object]:
    """What the window holds; the page asks for it again while it changes."""
    step = step_of(asked.window)
    tallies = await request.context.insights.run_buckets(
        request.actor, asked.window, step, asked.totals
    )
    bars = bars_of(tallies, step, asked)
    return {
        "chart": histogram_of(bars, request.display, request.now),
        "total": sum(bar.total for bar in bars),
    }


async def _hiding(request: PageRequest, found: Filter) -> Chip | None:
    """The one condition without which there would be something to see; None: it takes more. When
    it was is asked for elsewhere: the window can be widened."""
    for chip in found.chips:
        if chip.name in ("since", "until"):
            continue
        without = await asked_in(request, found.without(chip).text)
        if (await matching(request, without, after=None, limit=1)).items:
            return chip
    return None


@router.get("/runs/rows")
async def rows_again(request: PageRequest) -> Response:
    """Rows that somebody is looking at, as they are now."""
    ids = request.http.query_params.getlist("id")
    if len(ids) > MOST_AGAIN:
        raise InvalidInput(
            _("at most {limit} rows at a time", limit=MOST_AGAIN), field="id", source="query"
        )
    query = RunQuery(ids=tuple(RunId(each) for each in ids), limit=MOST_AGAIN)
    found = await request.context.runs.find(request.actor, query)
    return request.render_block(
        "runs/page.html",
        "rows",
        rows=rows_of(found.items, *await _beside(request, found.items), request.now),
        more="",
        visible=visible,
        cols=list_choices_of(request.http).shows(LIST),
    )


@router.get("/runs/newer")
async def newer(request: PageRequest) -> Response:
    """How many have come since the page was made: they wait until somebody wants them."""
    after = parse_moment(request.query.get("after", ""), field="after")
    asked = await asked_in(request, request.query.get("q", ""))
    since = after + timedelta(milliseconds=1)
    query = replace(asked.query, sort=RunSort.CREATED_AT, created_since=since)
    found = await matching(request, replace(asked, query=query), after=None, limit=_MOST_NEW + 1)
    count = len(found.items)
    text = counted("{count} new run – show", "{count} new runs – show", min(count, _MOST_NEW))
    if count > _MOST_NEW:
        text = _("More than {count} new runs – show", count=_MOST_NEW)
    return JSONResponse({"count": count, "text": text.in_language(request.display.language)})


async def asked_in(request: PageRequest, text: str) -> Asked:
    asked = asked_for(text, request.actor, request.now)
    if asked.same is None:
        return asked
    try:
        like = await request.context.runs.get(request.actor, asked.same)
    except NotFound as error:
        return asked.with_wrong(_("{chip}: {why}", chip="same", why=error.message))
    return asked.with_error(like.error)


async def matching(
    request: PageRequest, asked: Asked, *, after: Position | None, limit: int
) -> Page[Run]:
    """A page of them. Where the page sifts by itself it may have more or less than `limit`."""
    if not asked.sifted:
        return await request.context.runs.find(
            request.actor, replace(asked.query, after=after, limit=limit)
        )
    kept: list[Run] = []
    looked_at = 0
    while True:
        query: RunQuery = replace(asked.query, after=after, limit=_SIFTED_AT_ONCE)
        found = await request.context.runs.find(request.actor, query)
        kept.extend(run for run in found.items if asked.matches(run))
        looked_at += len(found.items)
        after = found.next
        if after is None or len(kept) >= limit or looked_at >= MOST_SIFTED:
            return Page(items=tuple(kept), next=after)


async def _beside(request: PageRequest, found: tuple[Run, ...]) -> Beside:
    """The usual durations, who asked for what was not planned, and by which clocks it was: one
    question each."""
    ids = {run.schedule_id for run in found if run.schedule_id is not None}
    askers = await get_run_origins(request.context.store, found)
    if not ids:
        return {}, askers, {}
    medians = await request.context.insights.expected_durations(request.actor, ids)
    query = ScheduleQuery(ids=tuple(ids), limit=len(ids))
    schedules = (await request.context.schedules.find(request.actor, query)).items
    return medians, askers, {each.id: each.trigger.zone for each in schedules}


async def _groups(request: PageRequest, asked: Asked) -> list[Group]:
    if asked.error is not None:
        return []
    insights = request.context.insights
    found = await insights.error_groups(request.actor, asked.window, asked.totals, limit=5)
    return [
        Group(
            group=each,
            address=asked.filter.with_chip(Chip("same", each.example)).address(HERE),
        )
        for each in found.groups
        if each.count > 1
    ]


def _window_chosen(request: PageRequest) -> Response:
    """From the two fields of the form, by the reader's clock, to the filter that says the same."""
    filter_ = read_filter(request.query.get("q", ""), RUN_NAMES)
    for field, name in (("from", "since"), ("to", "until")):
        text = request.query.get(field, "").strip()
        if text:
            moment = _moment(text, request.display.zone, field)
            filter_ = filter_.with_chip(Chip(name, format_moment(moment)))
    return request.redirect(filter_.address(HERE))


def _moment(text: str, zone: str, field: str) -> datetime:
    try:
        return parse_moment(text, zone, field=field)
    except InvalidInput as error:
        raise InvalidInput(error.message, field=field, code=error.code, source="query") from None


# @@ Many runs at once: retried or canceled, with what became of each.

#: With one request.
MOST = 500
#: PageRouter that are looked at for them.
_MOST_LOOKS = 20
_ENDED = tuple(each for each in RunStatus if each.terminal)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of one."""

    run: Run
    done: bool
    text: str
    #: The page of what came of it.
    address: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Verb:
    #: In these states there is something to do.
    states: tuple[RunStatus, ...]
    question: Callable[[int], Message]
    button: Message
    do: Callable[[PageRequest, Run], Awaitable[Outcome]]
    dangerous: bool


async def _retried(request: PageRequest, run: Run) -> Outcome:
    again, created = await request.context.runs.retry(request.actor, run.id)
    text = _("Retry queued.") if created else _("Retry already queued.")
    return Outcome(run=run, done=True, text=text, address=f"{HERE}/{again.id}")


async def _canceled(request: PageRequest, run: Run) -> Outcome:
    after = await request.context.runs.cancel(request.actor, run.id)
    ended = after.status.terminal
    text = _("Canceled.") if ended else _("Cancellation requested.")
    return Outcome(run=run, done=True, text=text, address=f"{HERE}/{run.id}")


VERBS: Mapping[str, Verb] = {
    "retry": Verb(
        states=_ENDED,
        question=lambda count: counted("Retry {count} run?", "Retry {count} runs?", count),
        button=_("Retry"),
        do=_retried,
        dangerous=False,
    ),
    "cancel": Verb(
        states=ACTIVE,
        question=lambda count: counted("Cancel {count} run?", "Cancel {count} runs?", count),
        button=_("Cancel runs"),
        do=_canceled,
        dangerous=True,
    ),
}


@router.post("/runs/bulk")
async def bulk(request: PageRequest) -> Response:
    verb = VERBS.get(request.form.text("verb"))
    if verb is None:
        raise InvalidInput(_("retry or cancel"), field="verb", code="unknown_choice")
    chosen, following = await _chosen(request, verb)
    more = following is not None
    if not chosen and not more:
        text = _("Nothing to do: no selected run is in a suitable status.")
        return request.redirect_with_toast(text, to=request.back_url(HERE), kind="warning")
    if not request.is_confirmed:
        return request.confirm(_question(verb, chosen, more=more))
    outcomes = [await _outcome(request, verb, run) for run in chosen]
    return request.render_page_or_block(
        "runs/bulk.html",
        "result",
        outcomes=outcomes,
        done=sum(each.done for each in outcomes),
        verb=request.form.text("verb"),
        q=request.form.text("q"),
        # They are newest first: what is made meanwhile is not among the next ones.
        cursor=cursor_to(following, _question_of(request)) if following is not None else "",
        back=request.back_url(HERE),
        visible=visible,
    )


def _question(verb: Verb, chosen: list[Run], *, more: bool) -> ConfirmDialog:
    return ConfirmDialog(
        title=verb.question(len(chosen)),
        text=_("More runs match; they are processed {limit} at a time.", limit=MOST)
        if more
        else "",
        button=verb.button,
        names=[f"{visible(run.schedule_name or run.target.kind)} · {run.id}" for run in chosen[:5]],
        total=len(chosen),
        dangerous=verb.dangerous,
    )


def _question_of(request: PageRequest) -> str:
    return json.dumps([request.form.text("verb"), request.form.text("q")])


async def _chosen(request: PageRequest, verb: Verb) -> tuple[list[Run], Position | None]:
    """Those that were ticked, or all that match, as far as there is something to do with them;
    and where to go on if there are more than can be done at once."""
    if request.form.is_checked("everything"):
        return await _all_matching(request, verb)
    ids = tuple(dict.fromkeys(RunId(each) for each in request.form.all("id")))
    if len(ids) > MOST:
        raise InvalidInput(
            _("at most {limit} runs at a time", limit=MOST), field="id", code="too_many"
        )
    if not ids:
        return [], None
    found = await request.context.runs.find(request.actor, RunQuery(ids=ids, limit=MOST))
    return [run for run in found.items if run.status in verb.states], None


async def _all_matching(request: PageRequest, verb: Verb) -> tuple[list[Run], Position | None]:
    asked = await asked_in(request, request.form.text("q"))
    if asked.filter.errors:
        # What was not understood would make it wider than was meant.
        raise InvalidInput(asked.filter.errors[0], field="q", code="bad_filter")
    wanted = asked.query.statuses or tuple(RunStatus)
    states = tuple(each for each in wanted if each in verb.states)
    if not states:
        return [], None
    asked = replace(asked, query=replace(asked.query, statuses=states))
    chosen: list[Run] = []
    after = position_from(request.form.text("cursor") or None, _question_of(request), numbers=True)
    for _unused in range(_MOST_LOOKS):
        page = await matching(request, asked, after=after, limit=min(200, MOST - len(chosen)))
        chosen.extend(page.items)
        after = page.next
        if after is None or len(chosen) >= MOST:
            break
    return chosen, after


async def _outcome(request: PageRequest, verb: Verb, run: Run) -> Outcome:
    """One that cannot be does not keep the others from it."""
    try:
        return await verb.do(request, run)
    except ChimesError as error:
        text = form_error_from(error).message
        return Outcome(run=run, done=False, text=text, address=f"{HERE}/{run.id}")


# @@ Runs as a file: all that match the filter, a page at a time, up to a bound.

MOST_EXPORTED = 100_000
_AT_ONCE = 500
Lines = Callable[[Sequence[Run], str], str]


@router.get("/runs/export.csv")
async def as_csv(request: PageRequest) -> Response:
    return await _file(request, "csv", "text/csv; charset=utf-8", csv_lines, csv_head())


@router.get("/runs/export.ndjson")
async def as_ndjson(request: PageRequest) -> Response:
    return await _file(request, "ndjson", "application/x-ndjson", json_lines, "")


async def _file(request: PageRequest, ending: str, kind: str, lines: Lines, head: str) -> Response:
    asked = await asked_in(request, request.query.get("q", ""))
    if asked.filter.errors:
        raise InvalidInput(asked.filter.errors[0], field="q", code="bad_filter", source="query")
    name = f"runs-{request.now:%Y%m%dT%H%M%SZ}.{ending}"
    return StreamingResponse(
        _written(request, asked, lines, head),
        media_type=kind,
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


async def _written(
    request: PageRequest, asked: Asked, lines: Lines, head: str
) -> AsyncIterator[str]:
    if head:
        yield head
    after: Position | None = None
    written = 0
    while written < MOST_EXPORTED:
        found = await matching(request, asked, after=after, limit=_AT_ONCE)
        batch = found.items[: MOST_EXPORTED - written]
        written += len(batch)
        if batch:
            yield lines(batch, request.display.language)
        after = found.next
        if after is None:
            return
