"""Schedules as a month: what each day brings (UX A.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime, timedelta
from itertools import groupby

from starlette.responses import Response

from chimes.doors.dashboard import times, views_month
from chimes.doors.dashboard.filters import Filter
from chimes.doors.dashboard.look import by_clock
from chimes.doors.dashboard.views_runs import between
from chimes.doors.dashboard.visit import Visit
from chimes.model.insights import QUARTER, RunFilter, Tally, Window, summed
from chimes.model.listing import ScheduleQuery, ScheduleSort
from chimes.service.insights import InsightService

HERE = "/ui/schedules"
#: Those that fire soonest; whoever wants to see others narrows the filter.
MOST_SCHEDULES = 100
_HOUR = timedelta(hours=1)


async def month_page(
    visit: Visit, found: Filter, query: ScheduleQuery, /, **values: object
) -> Response:
    zone = by_clock(visit.look, None)
    span = views_month.month_from(visit.query.get("month", ""), visit.now, zone)
    due = _until(query, span.end)
    page = await visit.door.schedules.find(visit.actor, replace(due, limit=MOST_SCHEDULES))
    beyond = 0
    if page.next is not None:
        beyond = await visit.door.schedules.count(visit.actor, due) - len(page.items)
    planned = views_month.planned_in(page.items, span, zone)
    ran = await _ran(visit, query, span, zone)
    day = views_month.day_from(visit.query.get("day", ""), span)

    def address(first: date, **more: str) -> str:
        return found.address(HERE, view="month", month=f"{first:%Y-%m}", **more)

    return visit.page(
        "schedules/month.html",
        status=200,
        title=views_month.month_name(span.first, visit.look),
        weekdays=views_month.weekdays(visit.look),
        weeks=views_month.weeks_of(span, planned, ran, visit.look, zone, visit.now),
        names=views_month.NAMES,
        zone=zone,
        earlier=address(views_month.before(span.first)),
        later=address(views_month.following(span.first)),
        this_month=found.address(HERE, view="month"),
        day_address=lambda each: address(span.first, day=f"{each:%Y-%m-%d}") + "#day",
        runs_address=lambda each: between(Filter(), each.start, each.end),
        left_out=planned.left_out + beyond,
        day=day,
        day_name=views_month.day_name(day, visit.look) if day else "",
        day_fires=planned.days.get(day, ()) if day else (),
        **values,
    )


def _until(query: ScheduleQuery, end: datetime) -> ScheduleQuery:
    """Those that fire before the end, the soonest first."""
    due_by = end if query.due_by is None else min(end, query.due_by)
    return replace(query, due_by=due_by, sort=ScheduleSort.NEXT_RUN_AT, descending=False)


async def _ran(
    visit: Visit, query: ScheduleQuery, span: views_month.Span, zone: str
) -> Mapping[date, Tally]:
    """What has run on the days that are over, and so far today; nothing where the filter has a
    condition that sums do not know of."""
    filter_ = RunFilter(owner=query.owner, namespace=query.namespace, kind=query.kind)
    asked = ScheduleQuery(owner=query.owner, namespace=query.namespace, kind=query.kind)
    if span.start >= visit.now or _conditions(query) != asked:
        return {}
    window = Window.around(span.start, min(span.end, visit.now))
    whole_hours = not (span.start - span.end) % _HOUR and not span.start.minute
    step = _HOUR if whole_hours else QUARTER
    insights = InsightService(visit.door.store)
    tallies = await insights.run_buckets(visit.actor, window, step, filter_)
    clock = times.zone_info(zone)
    days = groupby(tallies, key=lambda tally: tally.at.astimezone(clock).date())
    return {day: summed(found, views_month.midnight(day, zone)) for day, found in days}


def _conditions(query: ScheduleQuery) -> ScheduleQuery:
    """Without order and page."""
    usual = ScheduleQuery()
    return replace(
        query,
        sort=usual.sort,
        descending=usual.descending,
        after=None,
        limit=usual.limit,
    )
