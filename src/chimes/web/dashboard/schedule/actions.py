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
from chimes.services.manual_runs import BACKFILL_LIMIT, BACKFILL_OVERLAPS, Backfill, Pace
from chimes.triggers.moment import format_moment, parse_moment
from chimes.web.dashboard.core.flash import Undo
from chimes.web.dashboard.core.forms import FORM_ERRORS, ConfirmDialog, FormError
from chimes.web.dashboard.core.page_request import PageRequest
from chimes.web.dashboard.core.router import PageRouter

router = PageRouter()
SetNext = Callable[[Actor, ScheduleId, datetime], Awaitable[Schedule]]


# --- what all of them share -----------------------------------------------------------------------
def page_of(schedule_id: str) -> str:
    return f"/ui/schedules/{schedule_id}"


def id_in(request: PageRequest) -> ScheduleId:
    return ScheduleId(request.path_params["id"])


async def schedule_in(request: PageRequest) -> Schedule:
    """The one of the address. NotFound, also for what others own."""
    return await request.context.schedules.get(request.actor, id_in(request))


def done(
    request: PageRequest, schedule: Schedule, text: str, *, undo: Undo | None = None
) -> Response:
    """Back to where the button was, or to the schedule's own page."""
    return request.redirect_with_toast(text, to=request.back_url(page_of(schedule.id)), undo=undo)


def moment_in(request: PageRequest, field: str) -> datetime | None:
    """A field of a form: by the reader's clock, unless it names an offset itself."""
    text = request.form.text(field)
    return parse_moment(text, request.display.zone, field=field) if text else None


def needed_moment(request: PageRequest, field: str) -> datetime:
    found = moment_in(request, field)
    if found is None:
        raise InvalidInput(_("say when"), field=field, code="missing")
    return found


@router.post("/schedules/{id}/run")
async def run_now(request: PageRequest) -> Response:
    """On to the new run (UX D.1 row 9), or to the one of its pair that is under way."""
    run, created = await request.context.manual_runs.run_now_or_get(request.actor, id_in(request))
    if created:
        return request.redirect_with_toast(_("Its run was asked for."), to=f"/ui/runs/{run.id}")
    text = _("It is under way already: this is that run.")
    return request.redirect_with_toast(text, to=f"/ui/runs/{run.id}", kind="warning")


# --- on and off -----------------------------------------------------------------------------------
@router.post("/schedules/{id}/pause")
async def pause(request: PageRequest) -> Response:
    schedule = await schedule_in(request)
    if not request.is_confirmed:
        return _ask_pause(request, schedule)
    note = request.form.text("reason")
    try:
        until = moment_in(request, "until")
        await request.context.schedules.pause(request.actor, schedule.id, note=note, until=until)
    except FORM_ERRORS as error:
        return _ask_pause(request, schedule, await request.form_error(error))
    undo = Undo(action=f"{page_of(schedule.id)}/resume")
    return done(request, schedule, _("{name} is paused.", name=schedule.name), undo=undo)


def _ask_pause(
    request: PageRequest, schedule: Schedule, error: FormError | None = None
) -> Response:
    return request.render_page_or_block(
        "schedules/pause.html",
        "part",
        status=200 if error is None else error.status,
        schedule=schedule,
        error=error,
        given=request.form,
        back=request.back_url(page_of(schedule.id)),
    )


@router.post("/schedules/{id}/resume")
async def resume(request: PageRequest) -> Response:
    before = await schedule_in(request)
    await request.context.schedules.resume(request.actor, before.id)
    fields = {"sure": "yes", "reason": before.pause_note}
    if before.pause_until is not None and before.pause_until > request.now:
        fields["until"] = format_moment(before.pause_until)
    undo = Undo(action=f"{page_of(before.id)}/pause", fields=fields)
    text = _("{name} goes on.", name=before.name)
    return done(request, before, text, undo=None if before.enabled else undo)


@router.post("/schedules/{id}/delete")
async def delete(request: PageRequest) -> Response:
    schedule = await schedule_in(request)
    if not request.is_confirmed:
        question = ConfirmDialog(
            title=_("Delete this schedule?"),
            text=_("Its history stays. For ten minutes it can be brought back."),
            button=_("Delete"),
            names=[schedule.name],
        )
        return request.confirm(question)
    await request.context.schedules.delete(request.actor, schedule.id)
    back = request.back_url("/ui/schedules")
    return request.redirect_with_toast(
        _("{name} was deleted.", name=schedule.name),
        to="/ui/schedules" if back.startswith(page_of(schedule.id)) else back,
        undo=Undo(action=f"{page_of(schedule.id)}/restore"),
    )


@router.post("/schedules/{id}/restore")
async def restore(request: PageRequest) -> Response:
    """Undoes a deletion."""
    schedule = await request.context.schedules.restore(request.actor, id_in(request))
    return done(request, schedule, _("{name} is there again.", name=schedule.name))


# --- the next run ---------------------------------------------------------------------------------
@router.post("/schedules/{id}/skip")
async def skip(request: PageRequest) -> Response:
    schedule = await schedule_in(request)
    question = ConfirmDialog(
        title=_("Leave out the next run?"),
        text=_("It is recorded as skipped; the one after it stays."),
        button=_("Skip it"),
        names=[schedule.name],
        dangerous=False,
        reason=True,
    )
    if not request.is_confirmed:
        return request.confirm(question)
    try:
        await request.context.schedules.skip(
            request.actor, schedule.id, reason=request.form.text("reason")
        )
    except FORM_ERRORS as error:
        return request.confirm(question, await request.form_error(error))
    return done(request, schedule, _("The next run of {name} is left out.", name=schedule.name))


@router.get("/schedules/{id}/next")
async def other_next(request: PageRequest) -> Response:
    """Where the next run can be moved, or set anew."""
    return _next_page(request, await schedule_in(request))


@router.post("/schedules/{id}/move")
async def move(request: PageRequest) -> Response:
    """The next slot is carried out at another moment; those after it stay."""
    schedule = await schedule_in(request)
    text = _("The next run of {name} was moved.", name=schedule.name)
    return await _set_next(request, schedule, request.context.schedules.move, text)


@router.post("/schedules/{id}/reschedule")
async def reschedule(request: PageRequest) -> Response:
    """This moment becomes the next slot, whatever the trigger says."""
    schedule = await schedule_in(request)
    text = _("{name} has another next slot now.", name=schedule.name)
    return await _set_next(request, schedule, request.context.schedules.reschedule, text)


async def _set_next(request: PageRequest, schedule: Schedule, verb: SetNext, text: str) -> Response:
    try:
        await verb(request.actor, schedule.id, needed_moment(request, "to"))
    except FORM_ERRORS as error:
        return _next_page(request, schedule, await request.form_error(error))
    return done(request, schedule, text)


def _next_page(
    request: PageRequest, schedule: Schedule, error: FormError | None = None
) -> Response:
    return request.render(
        "schedule/next.html",
        status=200 if error is None else error.status,
        schedule=schedule,
        error=error,
        given=request.form,
    )


# @@ Runs for times that have passed: first what it would be, then, if somebody is sure, the runs.

#: Times that the list shows.
_SHOWN = 100


@router.get("/schedules/{id}/backfill")
async def ask_backfill(request: PageRequest) -> Response:
    schedule = await schedule_in(request)
    if not request.actor.may_write(schedule.owner):
        raise NotAllowed()
    return _page(request, schedule)


@router.post("/schedules/{id}/backfill")
async def backfill(request: PageRequest) -> Response:
    schedule = await schedule_in(request)
    try:
        start, end = needed_moment(request, "from"), needed_moment(request, "to")
        if end < start:
            raise InvalidInput(_("`to` is earlier than `from`"), field="to")
        found = await request.context.manual_runs.backfill(
            request.actor,
            schedule.id,
            start,
            end,
            dry_run=not request.is_confirmed,
            pace=_pace_in(request),
        )
    except FORM_ERRORS as error:
        return _page(request, schedule, error=await request.form_error(error))
    if not request.is_confirmed:
        return _page(request, schedule, found=found)
    text = counted("{count} run was asked for.", "{count} runs were asked for.", len(found.runs))
    return request.redirect_with_toast(text, to=f"{page_of(schedule.id)}/runs")


def _pace_in(request: PageRequest) -> Pace:
    overlap = request.form.text("overlap", Overlap.QUEUE)
    if overlap not in tuple(Overlap):
        raise InvalidInput(_("one of {known}", known=", ".join(BACKFILL_OVERLAPS)), field="overlap")
    return Pace(concurrency=request.form.number("concurrency"), overlap=Overlap(overlap))


def _page(
    request: PageRequest,
    schedule: Schedule,
    *,
    found: Backfill | None = None,
    error: FormError | None = None,
) -> Response:
    return request.render(
        "schedule/backfill.html",
        status=200 if error is None else error.status,
        schedule=schedule,
        found=found,
        shown=found.slots[:_SHOWN] if found else (),
        error=error,
        given=request.form,
        most=BACKFILL_LIMIT,
    )
