"""Actions on one schedule: run, pause, resume, delete, skip, reschedule, backfill."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from starlette.responses import Response

from chimes.errors import InvalidInput, NotAllowed, NotFound
from chimes.i18n import Message, _, counted
from chimes.model.access import Actor
from chimes.model.ids import ScheduleId
from chimes.model.policy import Overlap
from chimes.model.run import Run
from chimes.model.schedule import Schedule
from chimes.services.manual_runs import BACKFILL_LIMIT, BACKFILL_OVERLAPS, Backfill, Pace
from chimes.triggers.values import format_moment, parse_moment
from chimes.web.dashboard.core.page_request import (
    FORM_ERRORS,
    ConfirmDialog,
    Form,
    FormError,
    PageRequest,
    PageRouter,
    Undo,
    status_of,
)
from chimes.web.dashboard.core.times import zone_info

router = PageRouter()
ChangeNext = Callable[[Actor, ScheduleId, datetime], Awaitable[Schedule]]


# --- shared ---------------------------------------------------------------------------------------
def page_of(schedule_id: str) -> str:
    return f"/ui/schedules/{schedule_id}"


def schedule_id_of(request: PageRequest) -> ScheduleId:
    return ScheduleId(request.path_params["id"])


async def schedule_of(request: PageRequest) -> Schedule:
    """The schedule of the URL. NotFound also for schedules of other owners."""
    return await request.context.schedules.get(request.actor, schedule_id_of(request))


async def find_schedule(request: PageRequest, schedule_id: ScheduleId | None) -> Schedule | None:
    """None if there is no schedule or it was deleted."""
    if schedule_id is None:
        return None
    try:
        return await request.context.schedules.get(request.actor, schedule_id)
    except NotFound:
        return None


def redirect_back(
    request: PageRequest, schedule: Schedule, text: str, *, undo: Undo | None = None
) -> Response:
    """To the page with the button, or to the page of the schedule."""
    return request.redirect_with_toast(text, to=request.back_url(page_of(schedule.id)), undo=undo)


def parse_local_time(request: PageRequest, field: str) -> datetime | None:
    """A form field in the viewer's time zone, unless it contains an offset."""
    text = request.form.text(field)
    return parse_moment(text, request.display.zone, field=field) if text else None


def require_local_time(request: PageRequest, field: str) -> datetime:
    time = parse_local_time(request, field)
    if time is None:
        raise InvalidInput(_("enter a time"), field=field, code="missing")
    return time


def redirect_to_run(request: PageRequest, run: Run, *, created: bool) -> Response:
    """After a manual run request. `created` is False if the same sync pair has an active run."""
    if created:
        return request.redirect_with_toast(_("Run queued."), to=f"/ui/runs/{run.id}")
    text = _("Already running: this is the active run.")
    return request.redirect_with_toast(text, to=f"/ui/runs/{run.id}", kind="warning")


@router.post("/schedules/{id}/run")
async def run_now(request: PageRequest) -> Response:
    run, created = await request.context.manual_runs.run_now_or_get(
        request.actor, schedule_id_of(request)
    )
    return redirect_to_run(request, run, created=created)


# --- pause, delete --------------------------------------------------------------------------------
@router.post("/schedules/{id}/pause")
async def pause(request: PageRequest) -> Response:
    schedule = await schedule_of(request)
    if not request.is_confirmed:
        return _render_pause_dialog(request, schedule)
    note = request.form.text("reason")
    try:
        until = parse_local_time(request, "until")
        await request.context.schedules.pause(request.actor, schedule.id, note=note, until=until)
    except FORM_ERRORS as error:
        return _render_pause_dialog(request, schedule, await request.form_error(error))
    undo = Undo(action=f"{page_of(schedule.id)}/resume")
    return redirect_back(request, schedule, _("{name} paused.", name=schedule.name), undo=undo)


def _render_pause_dialog(
    request: PageRequest, schedule: Schedule, error: FormError | None = None
) -> Response:
    return request.render_page_or_block(
        "schedules/pause.html",
        "part",
        status=status_of(error),
        schedule=schedule,
        error=error,
        given=request.form,
        back=request.back_url(page_of(schedule.id)),
    )


@router.post("/schedules/{id}/resume")
async def resume(request: PageRequest) -> Response:
    before = await schedule_of(request)
    await request.context.schedules.resume(request.actor, before.id)
    fields = {"sure": "yes", "reason": before.pause_note}
    if before.pause_until is not None and before.pause_until > request.now:
        fields["until"] = format_moment(before.pause_until)
    undo = Undo(action=f"{page_of(before.id)}/pause", fields=fields)
    text = _("{name} resumed.", name=before.name)
    return redirect_back(request, before, text, undo=None if before.enabled else undo)


@router.post("/schedules/{id}/delete")
async def delete(request: PageRequest) -> Response:
    schedule = await schedule_of(request)
    back = request.back_url("/ui/schedules")
    return await request.run_confirmed(
        ConfirmDialog(
            title=_("Delete this schedule?"),
            text=_("The history is kept. You can undo this for ten minutes."),
            button=_("Delete"),
            names=[schedule.name],
        ),
        lambda: request.context.schedules.delete(request.actor, schedule.id),
        _("{name} deleted.", name=schedule.name),
        to="/ui/schedules" if back.startswith(page_of(schedule.id)) else back,
        undo=Undo(action=f"{page_of(schedule.id)}/restore"),
    )


@router.post("/schedules/{id}/restore")
async def restore(request: PageRequest) -> Response:
    """Undo of `delete`."""
    schedule = await request.context.schedules.restore(request.actor, schedule_id_of(request))
    return redirect_back(request, schedule, _("{name} restored.", name=schedule.name))


# --- the next run ---------------------------------------------------------------------------------
@router.post("/schedules/{id}/skip")
async def skip(request: PageRequest) -> Response:
    schedule = await schedule_of(request)
    reason = request.form.text("reason")
    return await request.run_confirmed(
        ConfirmDialog(
            title=_("Skip the next run?"),
            text=_("It is recorded as skipped; later runs do not change."),
            button=_("Skip"),
            names=[schedule.name],
            dangerous=False,
            reason=True,
        ),
        lambda: request.context.schedules.skip(request.actor, schedule.id, reason=reason),
        _("Skipped the next run of {name}.", name=schedule.name),
        to=request.back_url(page_of(schedule.id)),
    )


@router.get("/schedules/{id}/next")
async def next_run_page(request: PageRequest) -> Response:
    """Forms to move or reschedule the next run."""
    return _render_next_run(request, await schedule_of(request))


@router.post("/schedules/{id}/move")
async def move(request: PageRequest) -> Response:
    """Executes the next slot at another time; later slots do not change."""
    schedule = await schedule_of(request)
    text = _("Moved the next run of {name}.", name=schedule.name)
    return await _change_next(request, schedule, request.context.schedules.move, text)


@router.post("/schedules/{id}/reschedule")
async def reschedule(request: PageRequest) -> Response:
    """Makes this time the next slot, regardless of the trigger."""
    schedule = await schedule_of(request)
    text = _("Rescheduled the next run of {name}.", name=schedule.name)
    return await _change_next(request, schedule, request.context.schedules.reschedule, text)


async def _change_next(
    request: PageRequest, schedule: Schedule, change: ChangeNext, text: str
) -> Response:
    try:
        await change(request.actor, schedule.id, require_local_time(request, "to"))
    except FORM_ERRORS as error:
        return _render_next_run(request, schedule, await request.form_error(error))
    return redirect_back(request, schedule, text)


def _render_next_run(
    request: PageRequest, schedule: Schedule, error: FormError | None = None
) -> Response:
    return request.render(
        "schedule/next.html",
        status=status_of(error),
        schedule=schedule,
        error=error,
        given=request.form,
    )


# --- backfill -------------------------------------------------------------------------------------
#: Slots that the preview lists.
_MAX_SLOTS_SHOWN = 100


@router.get("/schedules/{id}/backfill")
async def backfill_page(request: PageRequest) -> Response:
    schedule = await schedule_of(request)
    if not request.actor.may_write(schedule.owner):
        raise NotAllowed()
    wanted = request.query.get("range", "")
    chosen = next(
        (each for each in backfill_ranges(request, schedule) if each.name == wanted), None
    )
    return _render_backfill(request, schedule, chosen=chosen)


@dataclass(frozen=True, kw_only=True, slots=True)
class BackfillRange:
    """A range that the form offers, in local times of the viewer's zone."""

    name: str
    title: Message
    start: str
    end: str


def backfill_ranges(request: PageRequest, schedule: Schedule) -> tuple[BackfillRange, ...]:
    info = zone_info(request.display.zone)
    now = request.now.astimezone(info)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    week = midnight - timedelta(days=midnight.weekday())
    found = [
        ("yesterday", _("Yesterday"), midnight - timedelta(days=1), midnight),
        ("week", _("Last week"), week - timedelta(days=7), week),
        ("7d", _("Last 7 days"), now - timedelta(days=7), now),
    ]
    if schedule.last_success_at is not None:
        title = _("Since the last success")
        found.append(("success", title, schedule.last_success_at.astimezone(info), now))
    return tuple(
        BackfillRange(name=name, title=title, start=f"{start:%Y-%m-%dT%H:%M}",
                      end=f"{end:%Y-%m-%dT%H:%M}")
        for name, title, start, end in found
    )  # fmt: skip


@router.post("/schedules/{id}/backfill")
async def backfill(request: PageRequest) -> Response:
    """Without confirmation only a preview."""
    schedule = await schedule_of(request)
    try:
        start, end = require_local_time(request, "from"), require_local_time(request, "to")
        if end < start:
            raise InvalidInput(_("must not be before the start"), field="to")
        found = await request.context.manual_runs.backfill(
            request.actor,
            schedule.id,
            start,
            end,
            dry_run=not request.is_confirmed,
            pace=_parse_pace(request),
        )
    except FORM_ERRORS as error:
        return _render_backfill(request, schedule, error=await request.form_error(error))
    if not request.is_confirmed:
        return _render_backfill(request, schedule, found=found)
    text = counted("{count} run queued.", "{count} runs queued.", len(found.runs))
    return request.redirect_with_toast(text, to=f"{page_of(schedule.id)}/runs")


def _parse_pace(request: PageRequest) -> Pace:
    overlap = request.form.text("overlap", Overlap.QUEUE)
    if overlap not in tuple(Overlap):
        raise InvalidInput(
            _("must be one of {known}", known=", ".join(BACKFILL_OVERLAPS)), field="overlap"
        )
    return Pace(concurrency=request.form.number("concurrency"), overlap=Overlap(overlap))


def _render_backfill(
    request: PageRequest,
    schedule: Schedule,
    *,
    found: Backfill | None = None,
    error: FormError | None = None,
    chosen: BackfillRange | None = None,
) -> Response:
    given = request.form
    if chosen is not None:
        given = Form([("from", chosen.start), ("to", chosen.end)])
    return request.render(
        "schedule/backfill.html",
        status=status_of(error),
        schedule=schedule,
        found=found,
        shown=found.slots[:_MAX_SLOTS_SHOWN] if found else (),
        error=error,
        given=given,
        ranges=backfill_ranges(request, schedule),
        chosen=chosen,
        limit=BACKFILL_LIMIT,
    )
