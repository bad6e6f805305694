"""Saves the editor form through the same validation as API requests, and undoes saves."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic import ValidationError
from starlette.responses import Response

from chimes.errors import ChimesError, Conflict, InvalidInput, NotAllowed, RateLimited, StaleVersion
from chimes.i18n import _, joined
from chimes.model import replace
from chimes.model.ids import ScheduleId
from chimes.model.schedule import Schedule
from chimes.services.schedules.setup import name_warning
from chimes.web.api.schemas import RecipientIn, ScheduleIn, SchedulePatch
from chimes.web.api.translate import (
    draft_from,
    explicit_fields,
    patch_from,
    recipients_from,
    schedule_out,
)
from chimes.web.dashboard.core.page_request import PageRequest, Undo
from chimes.web.dashboard.core.times import absolute
from chimes.web.dashboard.editor.form import definition_of, field_error_from, fields_of
from chimes.web.dashboard.editor.form_state import (
    Edit,
    FormState,
    available_options,
    build_state,
    contains_masked_secret,
    known_zones,
    open_schedule,
    patch_for,
    resolve_target,
    resolve_zone,
)
from chimes.web.dashboard.editor.merge import diff, flatten, get_value, merge, patch_of, set_value
from chimes.web.dashboard.editor.target_fields import arguments_from_schema, missing_argument
from chimes.web.dashboard.editor.trigger_fields import Fields, JsonObject
from chimes.web.problems import FieldError

_TAKE = "take."


async def create(request: PageRequest, fields: Fields) -> Response | FormState:
    """Creates the schedule and redirects to it, or returns the form with errors."""
    state = await build_state(request, fields, only_filled=False, last=request.form.raw("last"))
    if state.errors or state.form_errors:
        return state
    fields = state.fields
    if missing := await _missing_argument(request, fields):
        return await _with_error(request, fields, None, missing)
    body = definition_of(fields, request.now, is_edit=False).body
    try:
        draft, given = await _draft(request, body, fields.get("source", ""))
        made = await request.context.schedules.create(
            request.actor, draft, explicit_fields=explicit_fields(given)
        )
    except InvalidInput as error:
        return await _with_error(request, fields, None, field_error_from(error))
    except (Conflict, NotAllowed, RateLimited) as error:
        return await _with_error(request, fields, None, await _form_wide_error(request, error))
    undo = Undo(action=f"/ui/schedules/{made.id}/unmake", fields={"version": str(made.version)})
    doubled = name_warning(await request.context.schedules.find_same_name(made))
    return _saved(request, made, undo, state.missing, warnings=[each.message for each in doubled])


async def _missing_argument(request: PageRequest, fields: Fields) -> FieldError | None:
    """Returns an error for a missing required argument, if a node publishes the task's schema."""
    if fields.get("kind") != "task":
        return None
    schemas = (await available_options(request)).arguments
    missing = missing_argument(
        fields, arguments_from_schema(schemas.get(fields.get("task", "").strip(), {}))
    )
    if missing is None:
        return None
    return FieldError(name=missing.field, detail=_("This argument is required."), code="missing")


async def _draft(
    request: PageRequest, body: JsonObject, source: str
) -> tuple[Schedule, ScheduleIn]:
    """Builds the new schedule; a copy keeps the masked secrets of its source."""
    context = request.context
    if not source:
        given = ScheduleIn.model_validate(body)
        return draft_from(given, request.actor, context.settings, request.now), given
    source_schedule = await context.schedules.get(request.actor, ScheduleId(source))
    if not request.actor.may_write(source_schedule.owner):
        raise NotAllowed()
    target = resolve_target(body["target"], source_schedule.target)
    recipients = body.get("delivery", [])
    assert isinstance(recipients, list)
    recipients_with_secrets = recipients_from(
        [RecipientIn.model_validate(each) for each in recipients], source_schedule.policy.delivery
    )
    bare = {**body, "target": _without_secrets(body["target"])}
    bare["delivery"] = [_without_secrets(each) for each in recipients]
    given = ScheduleIn.model_validate(bare)
    draft = draft_from(given, request.actor, context.settings, request.now)
    return replace(
        draft, target=target, policy=replace(draft.policy, delivery=recipients_with_secrets)
    ), given


def _without_secrets(part: object) -> JsonObject:
    assert isinstance(part, dict)
    return {name: value for name, value in part.items() if name != "signing_secrets"}


async def save(request: PageRequest, fields: Fields, edit: Edit) -> Response | FormState:
    """Sends only the fields that this form changed; others stay unchanged."""
    state = await build_state(
        request, fields, edit=edit, only_filled=False, last=request.form.raw("last")
    )
    if state.errors or state.form_errors:
        return state
    fields, schedule = state.fields, edit.schedule
    if missing := await _missing_argument(request, fields):
        return await _with_error(request, fields, edit, missing)
    body = definition_of(fields, request.now, is_edit=True).body
    for name, value in fields.items():
        if name.startswith(_TAKE) and value == "theirs":
            set_value(
                body, name.removeprefix(_TAKE), get_value(edit.base, name.removeprefix(_TAKE))
            )
    patch = patch_for(edit, body)
    if not patch:
        return request.redirect_with_toast(
            _("Nothing was changed."), to=f"/ui/schedules/{schedule.id}"
        )
    try:
        given = SchedulePatch.model_validate(patch)
        saved = await request.context.schedules.change(
            request.actor,
            schedule.id,
            patch_from(given, request.context.settings),
            expected_version=schedule.version,
            explicit_fields=explicit_fields(given),
        )
    except StaleVersion:
        current = await request.context.schedules.get(request.actor, schedule.id)
        return await build_conflict_state(request, fields, replace(edit, schedule=current))
    except InvalidInput as error:
        return await _with_error(request, fields, edit, field_error_from(error))
    except (Conflict, NotAllowed, RateLimited) as error:
        return await _with_error(request, fields, edit, await _form_wide_error(request, error))
    return _saved(request, saved, _undo(schedule, saved), state.missing)


async def build_conflict_state(request: PageRequest, fields: Fields, edit: Edit) -> FormState:
    """Merges this form with a version that was saved in the meantime. The user chooses a side for
    fields that both changed."""
    fields, _zones = resolve_zone(request, fields, known_zones(request))
    mine = definition_of(fields, request.now, is_edit=True).body
    _fields, theirs = open_schedule(request, edit.schedule)
    result = merge(edit.base, mine, theirs)
    definition = {**schedule_out(edit.schedule), **result.body}
    policy = schedule_out(edit.schedule)["policy"]
    definition["policy"] = {**_plain(policy), **_plain(result.body.get("policy"))}
    merged_fields = fields_of(definition, request.display.zone) | {
        "version": str(edit.schedule.version)
    }
    if "zone" in fields:
        merged_fields.setdefault("zone", fields["zone"])
    state = await build_state(request, merged_fields, edit=replace(edit, base=theirs))
    assert state.edit is not None
    return replace(
        state, edit=replace(state.edit, conflicts=result.conflicts, theirs=result.theirs)
    )


def _plain(value: object) -> JsonObject:
    return dict(value) if isinstance(value, dict) else {}


async def _with_error(
    request: PageRequest, fields: Fields, edit: Edit | None, error: FieldError
) -> FormState:
    return await build_state(request, fields, edit=edit, only_filled=False, errors=[error])


async def _form_wide_error(request: PageRequest, error: ChimesError) -> FieldError:
    """Returns an error that belongs to no field."""
    return FieldError(name="", detail=(await request.form_error(error)).message, code="")


def _undo(before: Schedule, after: Schedule) -> Undo | None:
    """Returns the undo action; None if it would have to restore a secret."""
    was = schedule_out(before)
    reverse = diff(schedule_out(after), was)
    removed = {path for path in flatten(schedule_out(after)) if path not in flatten(was)}
    patch = patch_of(reverse, was)
    if contains_masked_secret(patch) or (removed and before.target.kind == after.target.kind):
        return None
    return Undo(
        action=f"/ui/schedules/{before.id}/unedit",
        fields={
            "version": str(after.version),
            "patch": json.dumps(patch, ensure_ascii=False, separators=(",", ":")),
        },
    )


async def undo_edit(request: PageRequest) -> Response:
    """Reverts an edit, unless the schedule was changed again since."""
    schedule_id = ScheduleId(request.path_params["id"])
    try:
        given = SchedulePatch.model_validate_json(request.form.raw("patch"))
    except ValidationError:
        raise InvalidInput(_("This cannot be undone."), code="bad_form") from None
    await request.context.schedules.change(
        request.actor,
        schedule_id,
        patch_from(given, request.context.settings),
        expected_version=request.form.number("version"),
        explicit_fields=explicit_fields(given),
    )
    return request.redirect_with_toast(_("Changes undone."), to=f"/ui/schedules/{schedule_id}")


async def undo_create(request: PageRequest) -> Response:
    schedule_id = ScheduleId(request.path_params["id"])
    deleted = await request.context.schedules.delete(
        request.actor, schedule_id, expected_version=request.form.number("version")
    )
    return request.redirect_with_toast(_("{name} deleted.", name=deleted.name), to="/ui/schedules")


def _saved(
    request: PageRequest,
    schedule: Schedule,
    undo: Undo | None,
    missing: str,
    warnings: Sequence[str] = (),
) -> Response:
    text = _next(request, schedule)
    if missing:
        text = _("{name} saved. {missing}", name=schedule.name, missing=missing)
    if warnings:
        text = joined(" ", [text, *(_("Warning: {text}", text=each) for each in warnings)])
    kind = "warning" if missing or warnings else "done"
    return request.redirect_with_toast(
        text, to=f"/ui/schedules/{schedule.id}", undo=undo, kind=kind
    )


def _next(request: PageRequest, schedule: Schedule) -> str:
    if schedule.trigger.on_event:
        return _("{name} saved. It waits for an event.", name=schedule.name)
    if schedule.next_run_at is None:
        return _("{name} saved. No run is planned.", name=schedule.name)
    when = absolute(schedule.next_run_at, request.display.zone, request.display, now=request.now)
    return _("{name} saved. Next run: {when}.", name=schedule.name, when=when)
