"""Schedules from a crontab, from YAML or from JSON: pasted, looked at, made (UX A.2)."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from chimes.doors.api.wire import draft_from, said_in
from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.views_bulk import Outcome
from chimes.doors.dashboard.views_import import FORMS, Item, Planned, items_in
from chimes.doors.dashboard.visit import Visit
from chimes.errors import ChimesError, InvalidInput, NotAllowed
from chimes.model.ids import ScheduleId
from chimes.wording import counted, say

pages = Pages()
HERE = "/ui/schedules/import"


@pages.get("/schedules/import")
async def import_page(visit: Visit) -> Response:
    return _page(visit)


@pages.post("/schedules/import")
async def import_them(visit: Visit) -> Response:
    """Without `create` it only shows what would become of the text."""
    form = visit.form
    wanted = form.text("form")
    try:
        items = items_in(
            form.raw("text"),
            form=wanted if wanted in FORMS else "auto",
            zone=form.text("zone") or visit.look.zone,
            task=form.text("task"),
            users=form.ticked("users"),
        )
    except InvalidInput as error:
        return _page(visit, error=error)
    planned = [await _planned(visit, each) for each in items]
    if not form.ticked("create"):
        return _page(visit, planned=planned)
    chosen = set(form.all("line"))
    outcomes = [await _made(visit, each) for each in planned if str(each.item.place) in chosen]
    if not outcomes:
        nothing = InvalidInput(say("nothing is selected"), field="text", code="missing")
        return _page(visit, planned=planned, error=nothing)
    if all(not each.error for each in outcomes):
        text = counted("{count} schedule was made.", "{count} schedules were made.", len(outcomes))
        return visit.done(text, to="/ui/schedules?sort=-created")
    return _page(visit, outcomes=outcomes)


async def _planned(visit: Visit, item: Item) -> Planned:
    """As it would be saved, by the same checks; nothing is."""
    if item.body is None:
        return Planned(item=item)
    service = visit.door.schedules
    try:
        draft = draft_from(item.body, visit.actor, visit.door.settings, visit.now)
        await service.defaults_of(draft.target)
        zone = await service.zone_for(draft.owner, draft.trigger)
        return Planned(
            item=item, schedule=service.prepared(visit.actor, draft, visit.now, zone=zone)
        )
    except ChimesError as error:
        return Planned(item=item, error=error.message)


async def _made(visit: Visit, planned: Planned) -> Outcome:
    body, name = planned.item.body, planned.item.text
    if planned.wrong or body is None or planned.schedule is None:
        return Outcome(id=ScheduleId(""), name=name, error=planned.wrong)
    try:
        draft = draft_from(body, visit.actor, visit.door.settings, visit.now)
        made = await visit.door.schedules.create(visit.actor, draft, said=said_in(body))
    except ChimesError as error:
        return Outcome(id=planned.schedule.id, name=body.name, error=error.message)
    return Outcome(id=made.id, name=made.name, address=f"/ui/schedules/{made.id}")


def _page(
    visit: Visit,
    *,
    planned: Sequence[Planned] | None = None,
    outcomes: Sequence[Outcome] = (),
    error: InvalidInput | None = None,
) -> Response:
    if not visit.actor.may_create(visit.actor.owner):
        raise NotAllowed()
    return visit.page(
        "schedules/import.html",
        status=200 if error is None else 422,
        planned=planned,
        good=sum(each.schedule is not None for each in planned or ()),
        outcomes=outcomes,
        error=error,
        given=visit.form,
    )
