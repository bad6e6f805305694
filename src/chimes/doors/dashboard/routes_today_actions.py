"""What can be done on Today itself: about a fire to come, put a sign off for a day, and load or
remove the demo."""

from __future__ import annotations

from starlette.responses import Response

from chimes.doors.dashboard.asking import Question
from chimes.doors.dashboard.flash import Undo
from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.visit import Visit
from chimes.errors import InvalidInput
from chimes.model.attention import Cause
from chimes.model.ids import ScheduleId
from chimes.service.demo import DemoService
from chimes.service.insights import InsightService
from chimes.service.slots import upcoming_fires
from chimes.service.snoozing import SnoozeService
from chimes.triggers.moment import parse_moment
from chimes.wording import counted, say

pages = Pages()
#: Fires that are walked through for the card of a mark that stands for several.
MOST_IN_A_MARK = 100


@pages.get("/fires/{id}")
async def fire(visit: Visit) -> Response:
    """One mark of the timeline: what it is, and what can be done about it."""
    schedule = await visit.door.schedules.get(visit.actor, ScheduleId(visit.path["id"]))
    at = parse_moment(visit.query.get("at", ""), "UTC", field="at")
    until = parse_moment(visit.query.get("until") or visit.query["at"], "UTC", field="until")
    found = upcoming_fires([schedule], until, limit=MOST_IN_A_MARK)
    insights = InsightService(visit.door.store)
    glances = await insights.glances(visit.actor, [schedule.id])
    return visit.page_or_part(
        "today/fire.html",
        "part",
        schedule=schedule,
        at=at,
        fires=tuple(each.at for each in found if each.at >= at),
        is_next=schedule.next_run_at == at,
        glance=glances.get(schedule.id),
        may_operate=visit.actor.may_operate(schedule.owner),
        back=visit.back(),
    )


@pages.post("/attention/{id}/snooze")
async def snooze(visit: Visit) -> Response:
    schedule_id = ScheduleId(visit.path["id"])
    cause = visit.form.text("cause")
    if cause not in tuple(Cause):
        raise InvalidInput(say("one of {known}", known=", ".join(Cause)), field="cause")
    await SnoozeService(visit.door.store).snooze(visit.actor, schedule_id, Cause(cause))
    return visit.done(
        say("Put off for 24 hours, for you only."),
        to=visit.back(),
        undo=Undo(action=f"/ui/attention/{schedule_id}/wake"),
    )


@pages.post("/attention/{id}/wake")
async def wake(visit: Visit) -> Response:
    await SnoozeService(visit.door.store).wake(visit.actor, ScheduleId(visit.path["id"]))
    return visit.done(say("It is shown again."), to=visit.back())


@pages.post("/demo/load")
async def load_demo(visit: Visit) -> Response:
    count = await DemoService(visit.door.store).load(visit.actor)
    if not count:
        return visit.done(say("The demo is there already."), to="/ui/", kind="warning")
    return visit.done(
        counted(
            "{count} example schedule with two weeks of made-up history is here.",
            "{count} example schedules with two weeks of made-up history are here.",
            count,
        ),
        to="/ui/",
    )


@pages.post("/demo/remove")
async def remove_demo(visit: Visit) -> Response:
    if not visit.sure:
        question = Question(
            title=say("Remove the demo?"),
            text=say("Its schedules and their made-up history go; all that is yours stays."),
            button=say("Remove it"),
        )
        return visit.ask(question)
    removed = await DemoService(visit.door.store).remove(visit.actor)
    return visit.done(
        counted(
            "{count} example schedule was removed.",
            "{count} example schedules were removed.",
            removed.schedules,
        ),
        to="/ui/",
    )
