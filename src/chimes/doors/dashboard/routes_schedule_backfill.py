"""Runs for times that have passed: first what it would be, then, if somebody is sure, the runs."""

from __future__ import annotations

from starlette.responses import Response

from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.refusing import REFUSALS, Refused
from chimes.doors.dashboard.routes_schedule_actions import needed_moment, page_of, schedule_in
from chimes.doors.dashboard.visit import Visit
from chimes.errors import InvalidInput, NotAllowed
from chimes.model.policy import Overlap
from chimes.model.schedule import Schedule
from chimes.service.slots import BACKFILL_LIMIT, BACKFILL_OVERLAPS, Backfill, Pace
from chimes.wording import counted, say

pages = Pages()
#: Times that the list shows.
_SHOWN = 100


@pages.get("/schedules/{id}/backfill")
async def ask_backfill(visit: Visit) -> Response:
    schedule = await schedule_in(visit)
    if not visit.actor.may_write(schedule.owner):
        raise NotAllowed()
    return _page(visit, schedule)


@pages.post("/schedules/{id}/backfill")
async def backfill(visit: Visit) -> Response:
    schedule = await schedule_in(visit)
    try:
        start, end = needed_moment(visit, "from"), needed_moment(visit, "to")
        if end < start:
            raise InvalidInput(say("`to` is earlier than `from`"), field="to")
        found = await visit.door.schedules.backfill(
            visit.actor, schedule.id, start, end, dry_run=not visit.sure, pace=_pace_in(visit)
        )
    except REFUSALS as error:
        return _page(visit, schedule, error=await visit.refused(error))
    if not visit.sure:
        return _page(visit, schedule, found=found)
    text = counted("{count} run was asked for.", "{count} runs were asked for.", len(found.runs))
    return visit.done(text, to=f"{page_of(schedule.id)}/runs")


def _pace_in(visit: Visit) -> Pace:
    overlap = visit.form.text("overlap", Overlap.QUEUE)
    if overlap not in tuple(Overlap):
        raise InvalidInput(
            say("one of {known}", known=", ".join(BACKFILL_OVERLAPS)), field="overlap"
        )
    return Pace(concurrency=visit.form.number("concurrency"), overlap=Overlap(overlap))


def _page(
    visit: Visit,
    schedule: Schedule,
    *,
    found: Backfill | None = None,
    error: Refused | None = None,
) -> Response:
    return visit.page(
        "schedule/backfill.html",
        status=200 if error is None else error.status,
        schedule=schedule,
        found=found,
        shown=found.slots[:_SHOWN] if found else (),
        error=error,
        given=visit.form,
        most=BACKFILL_LIMIT,
    )
