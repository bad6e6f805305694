"""What can be done with one schedule, from the list and from its own page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime

from starlette.responses import Response

from chimes.errors import InvalidInput, NotAllowed
from chimes.i18n import _, counted
from chimes.model.access import Actor
from chimes.model.ids import ScheduleId
from chimes.model.policy import Overlap
from chimes.model.schedule import Schedule
from chimes.services.slots import BACKFILL_LIMIT, BACKFILL_OVERLAPS, Backfill, Pace
from chimes.triggers.moment import format_moment, parse_moment
from chimes.web.dashboard.core.flash import Undo
from chimes.web.dashboard.core.forms import REFUSALS, Question, Refused
from chimes.web.dashboard.core.page_request import PageRequest
from chimes.web.dashboard.core.router import Pages

pages = Pages()
SetNext = Callable[[Actor, ScheduleId, datetime], Awaitable[Schedule]]


# --- what all of them share -----------------------------------------------------------------------
def page_of(schedule_id: str) -> str:
    return f"/ui/schedules/{schedule_id}"


def id_in(visit: PageRequest) -> ScheduleId:
    return ScheduleId(visit.path["id"])


async def schedule_in(visit: PageRequest) -> Schedule:
    """The one of the address. NotFound, also for what others own."""
    return await visit.door.schedules.get(visit.actor, id_in(visit))


def done(
    visit: PageRequest, schedule: Schedule, text: str, *, undo: Undo | None = None
) -> Response:
    """Back to where the button was, or to the schedule's own page."""
    return visit.done(text, to=visit.back(page_of(schedule.id)), undo=undo)


def moment_in(visit: PageRequest, field: str) -> datetime | None:
    """A field of a form: by the reader's clock, unless it names an offset itself."""
    text = visit.form.text(field)
    return parse_moment(text, visit.look.zone, field=field) if text else None


def needed_moment(visit: PageRequest, field: str) -> datetime:
    found = moment_in(visit, field)
    if found is None:
        raise InvalidInput(_("say when"), field=field, code="missing")
    return found


@pages.post("/schedules/{id}/run")
async def run_now(visit: PageRequest) -> Response:
    """On to the new run (UX D.1 row 9), or to the one of its pair that is under way."""
    run, created = await visit.door.schedules.run_asked_for(visit.actor, id_in(visit))
    if created:
        return visit.done(_("Its run was asked for."), to=f"/ui/runs/{run.id}")
    text = _("It is under way already: this is that run.")
    return visit.done(text, to=f"/ui/runs/{run.id}", kind="warning")


# --- on and off -----------------------------------------------------------------------------------
@pages.post("/schedules/{id}/pause")
async def pause(visit: PageRequest) -> Response:
    schedule = await schedule_in(visit)
    if not visit.sure:
        return _ask_pause(visit, schedule)
    note = visit.form.text("reason")
    try:
        until = moment_in(visit, "until")
        await visit.door.schedules.pause(visit.actor, schedule.id, note=note, until=until)
    except REFUSALS as error:
        return _ask_pause(visit, schedule, await visit.refused(error))
    undo = Undo(action=f"{page_of(schedule.id)}/resume")
    return done(visit, schedule, _("{name} is paused.", name=schedule.name), undo=undo)


def _ask_pause(visit: PageRequest, schedule: Schedule, error: Refused | None = None) -> Response:
    return visit.page_or_part(
        "schedules/pause.html",
        "part",
        status=200 if error is None else error.status,
        schedule=schedule,
        error=error,
        given=visit.form,
        back=visit.back(page_of(schedule.id)),
    )


@pages.post("/schedules/{id}/resume")
async def resume(visit: PageRequest) -> Response:
    before = await schedule_in(visit)
    await visit.door.schedules.resume(visit.actor, before.id)
    fields = {"sure": "yes", "reason": before.pause_note}
    if before.pause_until is not None and before.pause_until > visit.now:
        fields["until"] = format_moment(before.pause_until)
    undo = Undo(action=f"{page_of(before.id)}/pause", fields=fields)
    text = _("{name} goes on.", name=before.name)
    return done(visit, before, text, undo=None if before.enabled else undo)


@pages.post("/schedules/{id}/delete")
async def delete(visit: PageRequest) -> Response:
    schedule = await schedule_in(visit)
    if not visit.sure:
        question = Question(
            title=_("Delete this schedule?"),
            text=_("Its history stays. For ten minutes it can be brought back."),
            button=_("Delete"),
            names=[schedule.name],
        )
        return visit.ask(question)
    await visit.door.schedules.delete(visit.actor, schedule.id)
    back = visit.back("/ui/schedules")
    return visit.done(
        _("{name} was deleted.", name=schedule.name),
        to="/ui/schedules" if back.startswith(page_of(schedule.id)) else back,
        undo=Undo(action=f"{page_of(schedule.id)}/restore"),
    )


@pages.post("/schedules/{id}/restore")
async def restore(visit: PageRequest) -> Response:
    """Undoes a deletion."""
    schedule = await visit.door.schedules.restore(visit.actor, id_in(visit))
    return done(visit, schedule, _("{name} is there again.", name=schedule.name))


# --- the next run ---------------------------------------------------------------------------------
@pages.post("/schedules/{id}/skip")
async def skip(visit: PageRequest) -> Response:
    schedule = await schedule_in(visit)
    question = Question(
        title=_("Leave out the next run?"),
        text=_("It is recorded as skipped; the one after it stays."),
        button=_("Skip it"),
        names=[schedule.name],
        dangerous=False,
        reason=True,
    )
    if not visit.sure:
        return visit.ask(question)
    try:
        await visit.door.schedules.skip(visit.actor, schedule.id, reason=visit.form.text("reason"))
    except REFUSALS as error:
        return visit.ask(question, await visit.refused(error))
    return done(visit, schedule, _("The next run of {name} is left out.", name=schedule.name))


@pages.get("/schedules/{id}/next")
async def other_next(visit: PageRequest) -> Response:
    """Where the next run can be moved, or set anew."""
    return _next_page(visit, await schedule_in(visit))


@pages.post("/schedules/{id}/move")
async def move(visit: PageRequest) -> Response:
    """The next slot is carried out at another moment; those after it stay."""
    schedule = await schedule_in(visit)
    text = _("The next run of {name} was moved.", name=schedule.name)
    return await _set_next(visit, schedule, visit.door.schedules.move, text)


@pages.post("/schedules/{id}/reschedule")
async def reschedule(visit: PageRequest) -> Response:
    """This moment becomes the next slot, whatever the trigger says."""
    schedule = await schedule_in(visit)
    text = _("{name} has another next slot now.", name=schedule.name)
    return await _set_next(visit, schedule, visit.door.schedules.reschedule, text)


async def _set_next(visit: PageRequest, schedule: Schedule, verb: SetNext, text: str) -> Response:
    try:
        await verb(visit.actor, schedule.id, needed_moment(visit, "to"))
    except REFUSALS as error:
        return _next_page(visit, schedule, await visit.refused(error))
    return done(visit, schedule, text)


def _next_page(visit: PageRequest, schedule: Schedule, error: Refused | None = None) -> Response:
    return visit.page(
        "schedule/next.html",
        status=200 if error is None else error.status,
        schedule=schedule,
        error=error,
        given=visit.form,
    )


# @@ Runs for times that have passed: first what it would be, then, if somebody is sure, the runs.

#: Times that the list shows.
_SHOWN = 100


@pages.get("/schedules/{id}/backfill")
async def ask_backfill(visit: PageRequest) -> Response:
    schedule = await schedule_in(visit)
    if not visit.actor.may_write(schedule.owner):
        raise NotAllowed()
    return _page(visit, schedule)


@pages.post("/schedules/{id}/backfill")
async def backfill(visit: PageRequest) -> Response:
    schedule = await schedule_in(visit)
    try:
        start, end = needed_moment(visit, "from"), needed_moment(visit, "to")
        if end < start:
            raise InvalidInput(_("`to` is earlier than `from`"), field="to")
        found = await visit.door.schedules.backfill(
            visit.actor, schedule.id, start, end, dry_run=not visit.sure, pace=_pace_in(visit)
        )
    except REFUSALS as error:
        return _page(visit, schedule, error=await visit.refused(error))
    if not visit.sure:
        return _page(visit, schedule, found=found)
    text = counted("{count} run was asked for.", "{count} runs were asked for.", len(found.runs))
    return visit.done(text, to=f"{page_of(schedule.id)}/runs")


def _pace_in(visit: PageRequest) -> Pace:
    overlap = visit.form.text("overlap", Overlap.QUEUE)
    if overlap not in tuple(Overlap):
        raise InvalidInput(_("one of {known}", known=", ".join(BACKFILL_OVERLAPS)), field="overlap")
    return Pace(concurrency=visit.form.number("concurrency"), overlap=Overlap(overlap))


def _page(
    visit: PageRequest,
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
