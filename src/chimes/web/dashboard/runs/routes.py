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
from chimes.services.insights import InsightService
from chimes.services.preferences import ListName
from chimes.services.run_requests import Asker, askers_of
from chimes.triggers.moment import format_moment, parse_moment
from chimes.web.api.paging import cursor_to, position_from, question_of
from chimes.web.dashboard.core.filters import RUN_NAMES, Chip, Filter, read_filter
from chimes.web.dashboard.core.forms import Question, refused_by
from chimes.web.dashboard.core.lists import saved_in
from chimes.web.dashboard.core.page_request import PageRequest
from chimes.web.dashboard.core.preferences import COLUMNS, chosen_in_list_choices
from chimes.web.dashboard.core.router import Pages
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
async def runs(visit: PageRequest) -> Response:
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
    cols = chosen_in_list_choices(visit.request).shows(LIST)
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


async def _picture(visit: PageRequest, asked: Asked) -> dict[str, object]:
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


async def _hiding(visit: PageRequest, found: Filter) -> Chip | None:
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
async def rows_again(visit: PageRequest) -> Response:
    """Rows that somebody is looking at, as they are now."""
    ids = visit.request.query_params.getlist("id")
    if len(ids) > MOST_AGAIN:
        raise InvalidInput(
            _("at most {most} rows at a time", most=MOST_AGAIN), field="id", source="query"
        )
    query = RunQuery(ids=tuple(RunId(each) for each in ids), limit=MOST_AGAIN)
    found = await visit.door.runs.find(visit.actor, query)
    return visit.part(
        "runs/page.html",
        "rows",
        rows=rows_of(found.items, *await _beside(visit, found.items), visit.now),
        more="",
        visible=visible,
        cols=chosen_in_list_choices(visit.request).shows(LIST),
    )


@pages.get("/runs/newer")
async def newer(visit: PageRequest) -> Response:
    """How many have come since the page was made: they wait until somebody wants them."""
    after = parse_moment(visit.query.get("after", ""), field="after")
    asked = await asked_in(visit, visit.query.get("q", ""))
    since = after + timedelta(milliseconds=1)
    query = replace(asked.query, sort=RunSort.CREATED_AT, created_since=since)
    found = await matching(visit, replace(asked, query=query), after=None, limit=_MOST_NEW + 1)
    count = len(found.items)
    text = counted("{count} new run – show", "{count} new runs – show", min(count, _MOST_NEW))
    if count > _MOST_NEW:
        text = _("More than {count} new runs – show", count=_MOST_NEW)
    return JSONResponse({"count": count, "text": text.in_language(visit.look.language)})


async def asked_in(visit: PageRequest, text: str) -> Asked:
    asked = asked_for(text, visit.actor, visit.now)
    if asked.same is None:
        return asked
    try:
        like = await visit.door.runs.get(visit.actor, asked.same)
    except NotFound as error:
        return asked.with_wrong(_("{chip}: {why}", chip="same", why=error.message))
    return asked.with_error(like.error)


async def matching(
    visit: PageRequest, asked: Asked, *, after: Position | None, limit: int
) -> Page[Run]:
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


async def _beside(visit: PageRequest, found: tuple[Run, ...]) -> Beside:
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


async def _groups(visit: PageRequest, asked: Asked) -> list[Group]:
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


def _window_chosen(visit: PageRequest) -> Response:
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


# @@ Many runs at once: retried or canceled, with what became of each.

#: With one request.
MOST = 500
#: Pages that are looked at for them.
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


async def _retried(visit: PageRequest, run: Run) -> Outcome:
    again, created = await visit.door.runs.retry(visit.actor, run.id)
    text = _("A new run does it again.") if created else _("It is under way already.")
    return Outcome(run=run, done=True, text=text, address=f"{HERE}/{again.id}")


async def _canceled(visit: PageRequest, run: Run) -> Outcome:
    after = await visit.door.runs.cancel(visit.actor, run.id)
    ended = after.status.terminal
    text = _("It was canceled.") if ended else _("It was asked to stop.")
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


@pages.post("/runs/bulk")
async def bulk(visit: PageRequest) -> Response:
    verb = VERBS.get(visit.form.text("verb"))
    if verb is None:
        raise InvalidInput(_("retry or cancel"), field="verb", code="unknown_choice")
    chosen, following = await _chosen(visit, verb)
    more = following is not None
    if not chosen and not more:
        text = _("There is nothing to do: none of these runs is in a state for it.")
        return visit.done(text, to=visit.back(HERE), kind="warning")
    if not visit.sure:
        return visit.ask(_question(verb, chosen, more=more))
    outcomes = [await _outcome(visit, verb, run) for run in chosen]
    return visit.page_or_part(
        "runs/bulk.html",
        "result",
        outcomes=outcomes,
        done=sum(each.done for each in outcomes),
        verb=visit.form.text("verb"),
        q=visit.form.text("q"),
        # They are newest first: what is made meanwhile is not among the next ones.
        cursor=cursor_to(following, _question_of(visit)) if following is not None else "",
        back=visit.back(HERE),
        visible=visible,
    )


def _question(verb: Verb, chosen: list[Run], *, more: bool) -> Question:
    return Question(
        title=verb.question(len(chosen)),
        text=_("There are more: {most} at a time.", most=MOST) if more else "",
        button=verb.button,
        names=[f"{visible(run.schedule_name or run.target.kind)} · {run.id}" for run in chosen[:5]],
        total=len(chosen),
        dangerous=verb.dangerous,
    )


def _question_of(visit: PageRequest) -> str:
    return json.dumps([visit.form.text("verb"), visit.form.text("q")])


async def _chosen(visit: PageRequest, verb: Verb) -> tuple[list[Run], Position | None]:
    """Those that were ticked, or all that match, as far as there is something to do with them;
    and where to go on if there are more than can be done at once."""
    if visit.form.ticked("everything"):
        return await _all_matching(visit, verb)
    ids = tuple(dict.fromkeys(RunId(each) for each in visit.form.all("id")))
    if len(ids) > MOST:
        raise InvalidInput(
            _("at most {most} runs at a time", most=MOST), field="id", code="too_many"
        )
    if not ids:
        return [], None
    found = await visit.door.runs.find(visit.actor, RunQuery(ids=ids, limit=MOST))
    return [run for run in found.items if run.status in verb.states], None


async def _all_matching(visit: PageRequest, verb: Verb) -> tuple[list[Run], Position | None]:
    asked = await asked_in(visit, visit.form.text("q"))
    if asked.filter.wrong:
        # What was not understood would make it wider than was meant.
        raise InvalidInput(asked.filter.wrong[0], field="q", code="bad_filter")
    wanted = asked.query.statuses or tuple(RunStatus)
    states = tuple(each for each in wanted if each in verb.states)
    if not states:
        return [], None
    asked = replace(asked, query=replace(asked.query, statuses=states))
    chosen: list[Run] = []
    after = position_from(visit.form.text("cursor") or None, _question_of(visit), numbers=True)
    for _unused in range(_MOST_LOOKS):
        page = await matching(visit, asked, after=after, limit=min(200, MOST - len(chosen)))
        chosen.extend(page.items)
        after = page.next
        if after is None or len(chosen) >= MOST:
            break
    return chosen, after


async def _outcome(visit: PageRequest, verb: Verb, run: Run) -> Outcome:
    """One that cannot be does not keep the others from it."""
    try:
        return await verb.do(visit, run)
    except ChimesError as error:
        text = refused_by(error).message
        return Outcome(run=run, done=False, text=text, address=f"{HERE}/{run.id}")


# @@ Runs as a file: all that match the filter, a page at a time, up to a bound.

MOST_EXPORTED = 100_000
_AT_ONCE = 500
Lines = Callable[[Sequence[Run], str], str]


@pages.get("/runs/export.csv")
async def as_csv(visit: PageRequest) -> Response:
    return await _file(visit, "csv", "text/csv; charset=utf-8", csv_lines, csv_head())


@pages.get("/runs/export.ndjson")
async def as_ndjson(visit: PageRequest) -> Response:
    return await _file(visit, "ndjson", "application/x-ndjson", json_lines, "")


async def _file(visit: PageRequest, ending: str, kind: str, lines: Lines, head: str) -> Response:
    asked = await asked_in(visit, visit.query.get("q", ""))
    if asked.filter.wrong:
        raise InvalidInput(asked.filter.wrong[0], field="q", code="bad_filter", source="query")
    name = f"runs-{visit.now:%Y%m%dT%H%M%SZ}.{ending}"
    return StreamingResponse(
        _written(visit, asked, lines, head),
        media_type=kind,
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


async def _written(visit: PageRequest, asked: Asked, lines: Lines, head: str) -> AsyncIterator[str]:
    if head:
        yield head
    after: Position | None = None
    written = 0
    while written < MOST_EXPORTED:
        found = await matching(visit, asked, after=after, limit=_AT_ONCE)
        batch = found.items[: MOST_EXPORTED - written]
        written += len(batch)
        if batch:
            yield lines(batch, visit.look.language)
        after = found.next
        if after is None:
            return
