"""One schedule: what it is, how it went, what comes, and why something did not run (UX A.3)."""

from __future__ import annotations

from asyncio import gather
from datetime import timedelta
from urllib.parse import urlencode

from starlette.responses import Response

from chimes.doors.api.paging import cursor_to, position_from, question_of
from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.routes_schedule_actions import page_of, schedule_in
from chimes.doors.dashboard.views_fire_log import (
    LogAsked,
    cursor_of,
    log_lines,
    position_in,
    unexplained,
)
from chimes.doors.dashboard.views_runs import rows_of, visible
from chimes.doors.dashboard.views_schedule import (
    NextFire,
    in_your_zone,
    next_fires,
    second_clock,
)
from chimes.doors.dashboard.views_schedule_pictures import (
    BEHIND,
    durations,
    expected_marks,
    lags,
    marks_of,
    week,
)
from chimes.doors.dashboard.views_schedules import expression_of, row_of, state_of, without_anchor
from chimes.doors.dashboard.visit import Visit
from chimes.language import note_in_words, warnings_in_words
from chimes.model.insights import RunFilter, Tally, Window, glance_at
from chimes.model.listing import RunQuery, RunSort
from chimes.model.run import Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.service.askers import askers_of
from chimes.service.fire_log import FireLogPage
from chimes.service.insights import InsightService

pages = Pages()
POINTS = 100
_RATES = {"24h": timedelta(hours=24), "7d": timedelta(days=7), "30d": timedelta(days=30)}
_HOUR = timedelta(hours=1)
LOG_PAGE = 50
_NEVER_BEGAN = frozenset({RunStatus.SKIPPED, RunStatus.MISSED})


def show(
    visit: Visit, schedule: Schedule, tab: str, /, *, status: int = 200, **values: object
) -> Response:
    """A tab of the page, with the head that all of them have."""
    return visit.page_or_part(
        f"schedule/{tab}.html",
        "body",
        status=status,
        schedule=schedule,
        tab=tab,
        when=without_anchor(schedule.trigger),
        state=state_of(schedule),
        expression=expression_of(schedule.trigger),
        in_your_zone=in_your_zone(schedule, visit.look, visit.now),
        may_operate=visit.actor.may_operate(schedule.owner),
        may_write=visit.actor.may_write(schedule.owner),
        **values,
    )


@pages.get("/schedules/{id}")
async def overview(visit: Visit) -> Response:
    schedule = await schedule_in(visit)
    insights = InsightService(visit.door.store)
    results = await insights.points(visit.actor, schedule.id, limit=POINTS * 2)
    glance = glance_at(results[:30])
    rates, hours = await _sums(visit, schedule) if results else ((), ())
    marks = marks_of(schedule, results, hours, glance.median, visit.now)
    expected = expected_marks(schedule, results, hours, visit.now, whole=len(results) < POINTS * 2)
    language = visit.look.language
    return show(
        visit,
        schedule,
        "overview",
        fires=_fires(visit, schedule),
        other_zone=second_clock(schedule.trigger.zone, visit.look),
        warnings=warnings_in_words(schedule.trigger, language),
        rates=rates,
        glance=glance,
        row=row_of(schedule, glance, visit.actor, visit.look),
        week=week(schedule, marks, expected, visit.look, visit.now),
        durations=durations(results[:POINTS], schedule, visit.look),
        lags=lags(results[:POINTS], schedule, visit.look),
    )


async def _sums(
    visit: Visit, schedule: Schedule
) -> tuple[tuple[tuple[str, Tally], ...], tuple[Tally, ...]]:
    """Of each span, and of each hour of the picture; databases answer several at a time."""
    insights, only = InsightService(visit.door.store), RunFilter(schedule_id=schedule.id)

    async def total(span: timedelta) -> Tally:
        return await insights.run_totals(visit.actor, Window.last(span, visit.now), only)

    totals, hours = await gather(
        gather(*(total(span) for span in _RATES.values())),
        insights.run_buckets(visit.actor, Window.last(BEHIND, visit.now), _HOUR, only),
    )
    return tuple(zip(_RATES, totals, strict=True)), hours


@pages.get("/schedules/{id}/preview")
async def preview(visit: Visit) -> Response:
    """When it fires next, without leaving the list."""
    schedule = await schedule_in(visit)
    return visit.page_or_part(
        "schedules/preview.html",
        "part",
        schedule=schedule,
        when=without_anchor(schedule.trigger),
        fires=_fires(visit, schedule),
    )


def _fires(visit: Visit, schedule: Schedule) -> list[tuple[NextFire, str]]:
    """With what is special about each, in words."""
    return [
        (fire, note_in_words(fire.note, visit.look.language) if fire.note else "")
        for fire in next_fires(schedule, visit.look, visit.now)
    ]


@pages.get("/schedules/{id}/facts")
async def facts(visit: Visit) -> Response:
    """The part of the head that changes with every fire."""
    schedule = await schedule_in(visit)
    return visit.part(
        "schedule/head.html",
        "facts",
        schedule=schedule,
        state=state_of(schedule),
        in_your_zone=in_your_zone(schedule, visit.look, visit.now),
    )


@pages.get("/schedules/{id}/runs")
async def runs(visit: Visit) -> Response:
    schedule = await schedule_in(visit)
    question = question_of(visit.request)
    after = position_from(visit.query.get("cursor"), question, numbers=True)
    query = RunQuery(schedule_id=schedule.id, after=after, limit=LOG_PAGE)
    found = await visit.door.runs.find(visit.actor, query)
    more = ""
    if found.next is not None:
        more = (
            f"{page_of(schedule.id)}/runs?{urlencode({'cursor': cursor_to(found.next, question)})}"
        )
    insights = InsightService(visit.door.store)
    medians, askers = await gather(
        insights.expected_durations(visit.actor, [schedule.id]),
        askers_of(visit.door.store, found.items),
    )
    rows = rows_of(found.items, medians, askers, {schedule.id: schedule.trigger.zone}, visit.now)
    return show(visit, schedule, "runs", rows=rows, more=more, visible=visible)


@pages.get("/schedules/{id}/log")
async def fire_log(visit: Visit) -> Response:
    """Every decision, those not to run included, each with its reason."""
    schedule = await schedule_in(visit)
    asked = LogAsked.from_query(visit.query, visit.look.zone)
    found = await InsightService(visit.door.store).fire_log(
        visit.actor,
        schedule.id,
        wish=asked.wish,
        after=position_in(visit.query.get("cursor", "")),
        limit=LOG_PAGE,
    )
    page = f"{page_of(schedule.id)}/log"
    return show(
        visit,
        schedule,
        "log",
        lines=log_lines(found.entries, await _earlier(visit, schedule, found)),
        asked=asked,
        log=page,
        more=asked.address(page, cursor=cursor_of(found.next)) if found.next is not None else "",
    )


async def _earlier(visit: Visit, schedule: Schedule, found: FireLogPage) -> tuple[Run, ...]:
    """Runs before this page, where one of them may have stood in the way of a slot on it."""
    oldest = unexplained(found.entries)
    if oldest is None:
        return ()
    query = RunQuery(
        schedule_id=schedule.id,
        statuses=tuple(each for each in RunStatus if each not in _NEVER_BEGAN),
        created_until=oldest.created_at,
        sort=RunSort.CREATED_AT,
        limit=LOG_PAGE,
    )
    return tuple((await visit.door.runs.find(visit.actor, query)).items)
