"""Test now: what the form says is run once, without a schedule, and the result is shown in place.
Also the small parts that the page asks for again: zones, the trial, and undoing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from pydantic import ValidationError
from starlette.responses import Response

from chimes.errors import ChimesError, InvalidInput, NotFound, StoreError
from chimes.i18n import _
from chimes.model.ids import RunId, ScheduleId
from chimes.model.run import Run
from chimes.model.target import Target
from chimes.services.run_requests import RunRequest
from chimes.web.dashboard.core.forms import refused_by
from chimes.web.dashboard.core.page_request import PageRequest
from chimes.web.dashboard.core.router import Pages
from chimes.web.dashboard.editor.form import definition_of, fields_from, told_at
from chimes.web.dashboard.editor.options import offers_now
from chimes.web.dashboard.editor.page import (
    Edit,
    Sheet,
    composed,
    known_zones,
    policy_of,
    real_target,
)
from chimes.web.dashboard.editor.preview import NEIGHBOURS
from chimes.web.dashboard.editor.save import undo_create, undo_edit
from chimes.web.dashboard.editor.snippets import pretty
from chimes.web.dashboard.editor.target_fields import arguments_of, with_arguments
from chimes.web.dashboard.editor.trigger_fields import Fields
from chimes.web.dashboard.editor.zones import found_zones
from chimes.web.problems import FieldError

pages = Pages()
Show = Callable[[PageRequest, Sheet, int], Awaitable[Response]]
_WHAT = "wizard/what.html"
_WHEN = "wizard/when.html"
#: Said by the trial itself: it neither tells anybody nor tries again.
_OWN = frozenset({"max_retries", "delivery"})


async def tried(visit: PageRequest, fields: Fields, edit: Edit | None, show: Show) -> Response:
    """Started, and shown; wrong fields are told at their place, as when saving."""
    run: Run | None = None
    errors: list[FieldError] = []
    try:
        run = await _start(visit, fields, edit)
    except InvalidInput as error:
        errors.append(told_at(error))
    except StoreError:
        raise
    except ChimesError as error:
        errors.append(FieldError(name="", detail=refused_by(error).message, code=""))
    if run is not None:
        fields = fields | {"trial": run.id}
    if visit.partial:
        return visit.part(_WHAT, "trial", trial=run, trial_errors=errors, pretty=pretty)
    sheet = await composed(visit, fields, edit=edit, filled_only=not errors, errors=errors)
    return await show(visit, replace(sheet, trial=run), 422 if errors else 200)


async def _start(visit: PageRequest, fields: Fields, edit: Edit | None) -> Run:
    definition = definition_of(fields, visit.now, changing=edit is not None)
    wrong = [each for each in definition.wrong if not each.name.startswith("trigger")]
    body = definition.body
    if "target" not in body or "policy" not in body:
        first = wrong[0]
        raise InvalidInput(first.detail, field=first.name, code=first.code)
    before = await _pattern(visit, fields, edit)
    try:
        target = real_target(body["target"], before)
        policy, given = policy_of(visit, body, target)
    except ValidationError as error:
        first_wrong = error.errors()[0]
        where = ".".join(str(part) for part in first_wrong["loc"])
        raise InvalidInput(
            _("This cannot be run as it stands."), field=where, code="invalid"
        ) from None
    order = RunRequest(
        target=target,
        policy=replace(policy, max_retries=0, delivery=()),
        name=str(body.get("name") or ""),
        said=frozenset(given.model_fields_set) | _OWN,
    )
    return await visit.door.schedules.start(visit.actor, order)


async def _pattern(visit: PageRequest, fields: Fields, edit: Edit | None) -> Target | None:
    """Whose hidden secrets are meant: only somebody's who could change them."""
    if edit is not None:
        return edit.schedule.target
    if not fields.get("source"):
        return None
    pattern = await visit.door.schedules.get(visit.actor, ScheduleId(fields["source"]))
    return pattern.target if visit.actor.may_write(pattern.owner) else None


async def run_of_trial(visit: PageRequest, run_id: str) -> Run | None:
    if not run_id:
        return None
    try:
        return await visit.door.runs.get(visit.actor, RunId(run_id))
    except NotFound:
        return None


@pages.get("/wizard/trial/{id}")
async def trial(visit: PageRequest) -> Response:
    """The trial again, until it has ended."""
    run = await visit.door.runs.get(visit.actor, RunId(visit.path["id"]))
    return visit.part(_WHAT, "trial", trial=run, trial_errors=[], pretty=pretty)


@pages.get("/wizard/zones")
async def zones(visit: PageRequest) -> Response:
    """Zones by city, country, offset or abbreviation; the browser's own and recent ones first."""
    others = (await visit.door.schedules.find(visit.actor, NEIGHBOURS)).items
    text = visit.query.get("zone", "")[:64]
    found = found_zones(text, visit.look.language, visit.now, known_zones(visit, others))
    return visit.part(_WHEN, "zone_list", zones=found)


@pages.post("/wizard/arguments")
async def arguments(visit: PageRequest) -> Response:
    """The fields for the arguments of the task that is named now."""
    fields = fields_from(visit.form)
    offered = await offers_now(visit)
    found = arguments_of(offered.arguments.get(fields.get("task", ""), {}))
    sheet = Sheet(fields=with_arguments(fields, found))
    return visit.part(_WHAT, "task_args", sheet=sheet, arguments=found, offers=offered)


pages.post("/schedules/{id}/unedit")(undo_edit)
pages.post("/schedules/{id}/unmake")(undo_create)
