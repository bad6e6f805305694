"""Schedules that need attention: the first of them on Today, and all on a page of their own."""

from __future__ import annotations

from asyncio import gather
from collections.abc import Mapping
from datetime import timedelta

from starlette.responses import Response

from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.views_today import DAY, since_a_day
from chimes.doors.dashboard.views_today_needs import Needs, needs_of
from chimes.doors.dashboard.visit import Visit
from chimes.model.attention import Attentions
from chimes.model.ids import ScheduleId
from chimes.model.insights import Tally, Window
from chimes.model.run import RunStatus
from chimes.service.insights import InsightService
from chimes.service.refusals import Refusal, refusals
from chimes.service.snoozing import PutOff, SnoozeService

pages = Pages()
HERE = "/ui/attention"
WEEK = timedelta(days=7)
#: At a time, and at most.
STEP, MOST = 50, 1000


@pages.get("/attention")
async def attention(visit: Visit) -> Response:
    """As many as `most` says. Loading more shows those from before again: what is gravest comes
    first, and that changes while somebody reads."""
    most = _most(visit.query.get("most", ""))
    needs = (await found_needs(visit, most))[0]
    more = f"{HERE}?most={most + STEP}" if needs.more and most < MOST else ""
    return visit.page_or_part("today/attention.html", "found", needs=needs, more=more)


async def found_needs(visit: Visit, limit: int) -> tuple[Needs, tuple[Tally, ...]]:
    """And the week by days, from which it is known whether to look for refusals at all."""
    (known, put_off), (days, refused), coming = await gather(
        _signs(visit, limit),
        _days_and_refusals(visit, Window.last(WEEK, visit.now)),
        visit.clock_watch.coming(visit.actor, visit.now),
    )
    needs = needs_of(
        known, put_off, refused, coming, visit.actor, visit.look, visit.now, limit=limit
    )
    return needs, days


async def _signs(visit: Visit, limit: int) -> tuple[Attentions, Mapping[ScheduleId, PutOff]]:
    """What schedules and runs say, enough of it for those that somebody has put off; and these."""
    put_off = await SnoozeService(visit.door.store).of(visit.actor, visit.now)
    insights = InsightService(visit.door.store)
    return await insights.attention(visit.actor, limit=limit + len(put_off)), put_off


async def _days_and_refusals(
    visit: Visit, week: Window
) -> tuple[tuple[Tally, ...], tuple[Refusal, ...]]:
    """Who was refused is looked for where anything has failed."""
    store, actor, now = visit.door.store, visit.actor, visit.now
    days = await InsightService(store).run_buckets(actor, week, DAY)
    failed = since_a_day(days, now)[RunStatus.FAILED] > 0
    return days, await refusals(store, actor, now, failed=failed)


def _most(text: str) -> int:
    """What is no number counts as not said."""
    asked = int(text) if text.isdecimal() and len(text) < 5 else STEP
    return min(max(asked, STEP), MOST)
