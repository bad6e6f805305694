"""Saving what the wizard's form says: through the same checks as the API's own bodies."""

from __future__ import annotations

import json
from dataclasses import replace

from pydantic import ValidationError
from starlette.responses import Response

from chimes.errors import ChimesError, Conflict, InvalidInput, NotAllowed, RateLimited, StaleVersion
from chimes.i18n import _
from chimes.model.ids import ScheduleId
from chimes.model.schedule import Schedule
from chimes.web.api.schemas import RecipientIn, ScheduleIn, SchedulePatch
from chimes.web.api.translate import draft_from, patch_from, recipients_from, said_in, schedule_out
from chimes.web.dashboard.core.flash import Undo
from chimes.web.dashboard.core.page_request import PageRequest
from chimes.web.dashboard.core.times import absolute
from chimes.web.dashboard.editor.form import definition_of, fields_of, told_at
from chimes.web.dashboard.editor.merge import at, changes, flat, merged, patch_of, put
from chimes.web.dashboard.editor.options import offers_now
from chimes.web.dashboard.editor.page import (
    Edit,
    Sheet,
    composed,
    hides_something,
    known_zones,
    opened,
    patch_for,
    real_target,
    with_zone,
)
from chimes.web.dashboard.editor.target_fields import arguments_of, left_out
from chimes.web.dashboard.editor.trigger_fields import Fields, Plain
from chimes.web.problems import FieldError

_TAKE = "take."


async def create(visit: PageRequest, fields: Fields) -> Response | Sheet:
    """The new schedule's page, or the form again with what is wrong."""
    sheet = await composed(visit, fields, filled_only=False, last=visit.form.raw("last"))
    if sheet.said or sheet.wrong:
        return sheet
    fields = sheet.fields
    if wrong := await _left_out(visit, fields):
        return await _again(visit, fields, None, wrong)
    body = definition_of(fields, visit.now, changing=False).body
    try:
        draft, given = await _draft(visit, body, fields.get("source", ""))
        made = await visit.door.schedules.create(visit.actor, draft, said=said_in(given))
    except InvalidInput as error:
        return await _again(visit, fields, None, told_at(error))
    except (Conflict, NotAllowed, RateLimited) as error:
        return await _again(visit, fields, None, await _plainly_refused(visit, error))
    undo = Undo(action=f"/ui/schedules/{made.id}/unmake", fields={"version": str(made.version)})
    return _saved(visit, made, undo, sheet.missing)


async def _left_out(visit: PageRequest, fields: Fields) -> FieldError | None:
    """An argument without which every run of the task would fail, as far as a node tells."""
    if fields.get("kind") != "task":
        return None
    offered = (await offers_now(visit)).arguments
    missing = left_out(fields, arguments_of(offered.get(fields.get("task", "").strip(), {})))
    if missing is None:
        return None
    return FieldError(name=missing.field, detail=_("The task needs this."), code="missing")


async def _draft(visit: PageRequest, body: Plain, source: str) -> tuple[Schedule, ScheduleIn]:
    """A copy keeps the secrets of its pattern, where it shows them as hidden."""
    door = visit.door
    if not source:
        given = ScheduleIn.model_validate(body)
        return draft_from(given, visit.actor, door.settings, visit.now), given
    pattern = await door.schedules.get(visit.actor, ScheduleId(source))
    if not visit.actor.may_write(pattern.owner):
        raise NotAllowed()
    target = real_target(body["target"], pattern.target)
    recipients = body.get("delivery", [])
    assert isinstance(recipients, list)
    told = recipients_from(
        [RecipientIn.model_validate(each) for each in recipients], pattern.policy.delivery
    )
    bare = {**body, "target": _without_secrets(body["target"])}
    bare["delivery"] = [_without_secrets(each) for each in recipients]
    given = ScheduleIn.model_validate(bare)
    draft = draft_from(given, visit.actor, door.settings, visit.now)
    return replace(draft, target=target, policy=replace(draft.policy, delivery=told)), given


def _without_secrets(part: object) -> Plain:
    assert isinstance(part, dict)
    return {name: value for name, value in part.items() if name != "signing_secrets"}


async def save(visit: PageRequest, fields: Fields, edit: Edit) -> Response | Sheet:
    """Only what this form changed is sent: what it has no field for stays as it is."""
    sheet = await composed(visit, fields, edit=edit, filled_only=False, last=visit.form.raw("last"))
    if sheet.said or sheet.wrong:
        return sheet
    fields, schedule = sheet.fields, edit.schedule
    if wrong := await _left_out(visit, fields):
        return await _again(visit, fields, edit, wrong)
    body = definition_of(fields, visit.now, changing=True).body
    for name, value in fields.items():
        if name.startswith(_TAKE) and value == "theirs":
            put(body, name.removeprefix(_TAKE), at(edit.base, name.removeprefix(_TAKE)))
    patch = patch_for(edit, body)
    if not patch:
        return visit.done(_("Nothing was changed."), to=f"/ui/schedules/{schedule.id}")
    try:
        given = SchedulePatch.model_validate(patch)
        saved = await visit.door.schedules.change(
            visit.actor,
            schedule.id,
            patch_from(given, visit.door.settings),
            expected_version=schedule.version,
            said=said_in(given),
        )
    except StaleVersion:
        current = await visit.door.schedules.get(visit.actor, schedule.id)
        return await conflict(visit, fields, replace(edit, schedule=current))
    except InvalidInput as error:
        return await _again(visit, fields, edit, told_at(error))
    except (Conflict, NotAllowed, RateLimited) as error:
        return await _again(visit, fields, edit, await _plainly_refused(visit, error))
    return _saved(visit, saved, _undo(schedule, saved), sheet.missing)


async def conflict(visit: PageRequest, fields: Fields, edit: Edit) -> Sheet:
    """Somebody else was faster: their version, with what only this form changed. What both changed
    can be taken from either side."""
    fields, _zones = with_zone(visit, fields, known_zones(visit))
    mine = definition_of(fields, visit.now, changing=True).body
    _fields, theirs = opened(visit, edit.schedule)
    both = merged(edit.base, mine, theirs)
    whole = {**schedule_out(edit.schedule), **both.body}
    policy = schedule_out(edit.schedule)["policy"]
    whole["policy"] = {**_plain(policy), **_plain(both.body.get("policy"))}
    again = fields_of(whole, visit.look.zone) | {"version": str(edit.schedule.version)}
    if "zone" in fields:
        again.setdefault("zone", fields["zone"])
    sheet = await composed(visit, again, edit=replace(edit, base=theirs))
    assert sheet.edit is not None
    return replace(sheet, edit=replace(sheet.edit, clashes=both.clashes, theirs=both.theirs))


def _plain(value: object) -> Plain:
    return dict(value) if isinstance(value, dict) else {}


async def _again(visit: PageRequest, fields: Fields, edit: Edit | None, wrong: FieldError) -> Sheet:
    return await composed(visit, fields, edit=edit, filled_only=False, errors=[wrong])


async def _plainly_refused(visit: PageRequest, error: ChimesError) -> FieldError:
    """Nothing that was typed is to blame."""
    return FieldError(name="", detail=(await visit.refused(error)).message, code="")


def _undo(before: Schedule, after: Schedule) -> Undo | None:
    """What puts it back; None where a secret is part of it."""
    was = schedule_out(before)
    back = changes(schedule_out(after), was)
    gone = {path: None for path in flat(schedule_out(after)) if path not in flat(was)}
    patch = patch_of(back, was)
    if hides_something(patch) or (gone and before.target.kind == after.target.kind):
        return None
    return Undo(
        action=f"/ui/schedules/{before.id}/unedit",
        fields={
            "version": str(after.version),
            "patch": json.dumps(patch, ensure_ascii=False, separators=(",", ":")),
        },
    )


async def undo_edit(visit: PageRequest) -> Response:
    """Puts back what an edit changed, unless somebody changed more since."""
    schedule_id = ScheduleId(visit.path["id"])
    try:
        given = SchedulePatch.model_validate_json(visit.form.raw("patch"))
    except ValidationError:
        raise InvalidInput(_("This cannot be undone."), code="bad_form") from None
    await visit.door.schedules.change(
        visit.actor,
        schedule_id,
        patch_from(given, visit.door.settings),
        expected_version=visit.form.number("version"),
        said=said_in(given),
    )
    return visit.done(_("It is as it was before."), to=f"/ui/schedules/{schedule_id}")


async def undo_create(visit: PageRequest) -> Response:
    schedule_id = ScheduleId(visit.path["id"])
    gone = await visit.door.schedules.delete(
        visit.actor, schedule_id, expected_version=visit.form.number("version")
    )
    return visit.done(_("{name} was removed again.", name=gone.name), to="/ui/schedules")


def _saved(visit: PageRequest, schedule: Schedule, undo: Undo | None, missing: str) -> Response:
    text = _next(visit, schedule)
    if missing:
        text = _("{name} is saved. {missing}", name=schedule.name, missing=missing)
    kind = "warning" if missing else "done"
    return visit.done(text, to=f"/ui/schedules/{schedule.id}", undo=undo, kind=kind)


def _next(visit: PageRequest, schedule: Schedule) -> str:
    if schedule.next_run_at is None:
        return _("{name} is saved. Nothing is planned at the moment.", name=schedule.name)
    when = absolute(schedule.next_run_at, visit.look.zone, visit.look, now=visit.now)
    return _("{name} is saved. It fires next on {when}.", name=schedule.name, when=when)
