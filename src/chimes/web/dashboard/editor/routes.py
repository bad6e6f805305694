"""Schedule editor: creates or changes a schedule on one page, with a live preview."""

from __future__ import annotations

import json
from functools import partial

from pydantic import ValidationError
from starlette.responses import Response

from chimes.errors import (
    ChimesError,
    InvalidInput,
    NeedsClarification,
    NotAllowed,
    NotFound,
    RateLimited,
    StoreError,
)
from chimes.i18n import _, in_language
from chimes.language import describe
from chimes.model import replace
from chimes.model.ids import RunId, ScheduleId
from chimes.model.policy import policy_form
from chimes.model.recipient import Recipient
from chimes.model.run import Run
from chimes.model.schedule import Schedule
from chimes.model.target import Target
from chimes.model.validation import MAX_RECIPIENTS
from chimes.redaction import HIDDEN
from chimes.services.access import CALCULATIONS
from chimes.services.runs import RunRequest
from chimes.services.schedules.setup import source_warnings
from chimes.services.schedules.templates import list_templates
from chimes.triggers import Cron, parse_zone, trigger_from_dict
from chimes.web.api.schemas import RecipientIn
from chimes.web.api.translate import recipients_from, schedule_out
from chimes.web.dashboard.core.page_request import PageRequest, PageRouter, form_error_from
from chimes.web.dashboard.editor.form import (
    definition_of,
    field_error_from,
    fields_from,
    fields_of,
    new_fields,
    parse_description,
    section_summaries,
    with_template,
)
from chimes.web.dashboard.editor.form_state import (
    Edit,
    FormState,
    available_options,
    build_state,
    known_zones,
    open_schedule,
    policy_of,
    resolve_target,
    validation_errors,
)
from chimes.web.dashboard.editor.merge import value_text
from chimes.web.dashboard.editor.preview import NEIGHBOURS
from chimes.web.dashboard.editor.recipient_fields import EXTRA, filled_rows, recipient_body
from chimes.web.dashboard.editor.save import (
    build_conflict_state,
    create,
    save,
    undo_create,
    undo_edit,
)
from chimes.web.dashboard.editor.snippets import pretty
from chimes.web.dashboard.editor.target_fields import (
    METHODS,
    arguments_from_schema,
    declared_target_fields,
    extra_target_fields,
    split_arguments,
)
from chimes.web.dashboard.editor.trigger_fields import (
    COMMON_CRONS,
    MAX_EXCLUSIONS,
    UNITS,
    Fields,
    JsonObject,
    countries,
)
from chimes.web.dashboard.editor.zones import search_zones
from chimes.web.problems import FieldError

router = PageRouter()
_TEMPLATE = "editor/page.html"
_WHAT = "editor/what.html"
_WHEN = "editor/when.html"
#: Policy fields of a trial run: no retries, no notifications.
_TRIAL_POLICY = frozenset({"max_retries", "delivery"})
_NOT_APPLIED = FieldError(
    name="words",
    detail=_("The description is not applied yet. Press “Fill in the form”, or clear it."),
    code="unread",
)
_DELETED = FieldError(
    name="",
    detail=_("This schedule was deleted. Save again to create a new one from this form."),
    code="gone",
)


@router.get("/schedules/new")
async def new(request: PageRequest) -> Response:
    """`?words=` and `?preset=` fill in the form; `?from=` copies another schedule."""
    if not request.actor.may_create(request.actor.owner):
        # Refuse before anything is typed; the POST checks again.
        return request.render("editor/forbidden.html", status=403)
    fields = new_fields(request.display.zone)
    if source := request.query.get("from"):
        schedule = await request.context.schedules.get(request.actor, ScheduleId(source))
        fields = _copy_fields(request, schedule)
    if preset := request.query.get("preset"):
        fields = _apply_preset(request, fields, preset)
    if words := request.query.get("words", "").strip():
        return await _apply_description(request, {**fields, "words": words}, None)
    return await _render(request, await build_state(request, fields))


@router.post("/schedules/new")
async def new_form(request: PageRequest) -> Response:
    return await _form(request, None)


@router.get("/schedules/{id}/edit")
async def edit(request: PageRequest) -> Response:
    schedule = await _editable(request)
    fields, base = open_schedule(request, schedule)
    fields["version"] = str(schedule.version)
    return await _render(
        request, await build_state(request, fields, edit=Edit(schedule=schedule, base=base))
    )


@router.post("/schedules/{id}/edit")
async def edit_form(request: PageRequest) -> Response:
    try:
        schedule = await _editable(request)
    except NotFound:
        if request.is_htmx:
            raise
        return await _offer_new(request)
    return await _form(request, Edit(schedule=schedule, base=_base(request, schedule)))


async def _offer_new(request: PageRequest) -> Response:
    """Offers to create a new schedule from the form after the schedule was deleted. Masked secrets
    are lost with the schedule."""
    submitted = fields_from(request.form)
    fields = {name: value for name, value in submitted.items() if HIDDEN not in value}
    state = await build_state(request, fields, only_filled=False, errors=[_DELETED])
    return await _render(request, state, status=422)


async def _form(request: PageRequest, edit: Edit | None) -> Response:
    fields = fields_from(request.form)
    action, _colon, choice = request.form.text("do").partition(":")
    unapplied = fields.get("words", "").split() != fields.get("words_read", "").split()
    if action in ("", "preview") and unapplied and not request.is_htmx:
        action = "read"
    match action:
        case "save":
            return await _save(request, fields, edit, unapplied=unapplied)
        case "words":
            return await _apply_description(request, {**fields, "words": choice}, edit)
        case "read" if fields.get("words"):
            return await _apply_description(request, fields, edit)
        case "preset":
            fields = _apply_preset(request, fields, choice)
        case "cron":
            fields |= {"when": "cron", "expression": choice}
        case "zone":
            fields |= {"zone": choice, "zone_sure": choice}
        case "test" if choice:
            return await _send_test_notification(request, fields, edit, choice)
        case "test":
            return await _start_trial(request, fields, edit)
        case _:
            pass
    state = await build_state(request, fields, edit=edit, last=request.form.raw("last"))
    return await _render(request, state)


async def _save(
    request: PageRequest, fields: Fields, edit: Edit | None, *, unapplied: bool
) -> Response:
    if unapplied and fields.get("words"):
        # Only the fields are saved: an unapplied description would be lost silently.
        state = await build_state(
            request, fields, edit=edit, only_filled=False, errors=[_NOT_APPLIED]
        )
        return await _render(request, state, status=422)
    if edit is not None and fields.get("version") != str(edit.schedule.version):
        state = await build_conflict_state(request, fields, edit)
        return await _render(request, state, status=409)
    saved = await (create(request, fields) if edit is None else save(request, fields, edit))
    return saved if isinstance(saved, Response) else await _render(request, saved, status=422)


async def _apply_description(request: PageRequest, fields: Fields, edit: Edit | None) -> Response:
    """Fills in the form from the description."""
    zone = fields.get("zone") or request.display.zone
    fields = {**fields, "words_read": fields["words"]}
    try:
        zone = parse_zone(zone).name
    except InvalidInput:
        zone = request.display.zone
    try:
        parsed = await CALCULATIONS.run(
            partial(
                parse_description,
                fields["words"],
                fields,
                now=request.now,
                zone=zone,
                lang=request.display.language,
                chats=await _own_chats(request),
                prompts=(await available_options(request)).agent,
            )
        )
    except NeedsClarification as question:
        state = await build_state(request, fields, edit=edit, last=request.form.raw("last"))
        return await _render(request, replace(state, question=question))
    fields = parsed.fields | {"guessed": ",".join(parsed.guessed)}
    state = await build_state(request, fields, edit=edit)
    understood = describe(parsed.trigger, request.display.language)
    state = replace(state, understood=understood, channels=parsed.channels)
    return await _render(request, state)


async def _own_chats(request: PageRequest) -> list[str]:
    chats = await request.context.telegram_links.linked(request.actor.owner)
    return [chat.id for chat in chats]


def _apply_preset(request: PageRequest, fields: Fields, template_id: str) -> Fields:
    templates = list_templates(request.display.language)
    template = next((each for each in templates if each.id == template_id), None)
    if template is None:
        raise NotFound(_("Unknown template {id!r}.", id=template_id[:64]))
    zone = request.display.zone
    trigger = trigger_from_dict(dict(template.trigger)).with_default_zone(zone)
    return with_template(fields, template, trigger, zone) | {"guessed": "", "preset": template.id}


def _copy_fields(request: PageRequest, schedule: Schedule) -> Fields:
    """Copies secrets only if the user may change the original: a copy could send them anywhere."""
    fields = fields_of(schedule_out(schedule), request.display.zone)
    fields |= {"name": f"{schedule.name} (2)"[-200:], "namespace": schedule.namespace}
    if request.actor.may_write(schedule.owner):
        return fields | {"source": schedule.id}
    return {name: value for name, value in fields.items() if HIDDEN not in value}


async def _editable(request: PageRequest) -> Schedule:
    schedule = await request.context.schedules.get(
        request.actor, ScheduleId(request.path_params["id"])
    )
    if not request.actor.may_write(schedule.owner):
        raise NotAllowed()
    return schedule


def _base(request: PageRequest, schedule: Schedule) -> JsonObject:
    """Returns the definition when the form was opened.

    It only decides which fields count as changed: a forged value affects only the user's edit."""
    try:
        found = json.loads(request.form.raw("base"))
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else open_schedule(request, schedule)[1]


async def _render(request: PageRequest, state: FormState, status: int = 200) -> Response:
    edit = state.edit
    if state.trial is None:
        state = replace(state, trial=await _find_trial(request, state.fields.get("trial", "")))
    values: dict[str, object] = {
        "state": state,
        "fields": state.fields,
        "edit": edit,
        "action": f"/ui/schedules/{edit.schedule.id}/edit" if edit else "/ui/schedules/new",
        "source_warnings": [
            each.message for each in (source_warnings(edit.schedule) if edit else ())
        ],
        "summaries": section_summaries(state.fields, is_edit=edit is not None),
        "value_text": lambda path, value: value_text(path, value, request.display.language),
    }
    if request.is_htmx:
        return request.render_block(_TEMPLATE, "preview", status=200, **values)
    options = await available_options(request)
    arguments = arguments_from_schema(options.arguments.get(state.fields.get("task", ""), {}))
    state = replace(state, fields=split_arguments(state.fields, arguments))
    values |= {
        "state": state,
        "fields": state.fields,
        "arguments": arguments,
        "countries": countries(request.display.language),
        "base": json.dumps(edit.base, ensure_ascii=False) if edit else "",
        "options": options,
        "presets": list_templates(request.display.language),
        "others": [each for each in state.others if not edit or each.id != edit.schedule.id],
        "methods": [(each, each) for each in METHODS],
        "policy_form": policy_form(),
        "how_fields": [*(each.name for each in policy_form()), "priority", "depends_on", "within"],
        "recipient_form": EXTRA,
        "target_form": extra_target_fields(),
        "declared_form": declared_target_fields(),
        "units": tuple(UNITS),
        "crons": [(each, describe(Cron(each), request.display.language)) for each in COMMON_CRONS],
        "chats": await _own_chats(request),
        "recipients": _rows(state.fields, "notify", "_channel", MAX_RECIPIENTS),
        "exclusions": _rows(state.fields, "ex", "_kind", MAX_EXCLUSIONS),
        "zones": state.zones,
        "trial": state.trial,
        "trial_errors": (),
        "pretty": pretty,
        "failed": status == 422,
    }
    return request.render(_TEMPLATE, status=status, **values)


def _rows(fields: Fields, name: str, filled: str, limit: int) -> list[int]:
    """Returns the rows up to the last filled one, and an empty one."""
    used = [number for number in range(limit) if fields.get(f"{name}{number}{filled}")]
    return list(range(min((used[-1] + 2) if used else 1, limit)))


# --- trial run: executes the form once, without a schedule ---------------------------------------
async def _start_trial(request: PageRequest, fields: Fields, edit: Edit | None) -> Response:
    """Starts a trial run; errors are shown at their fields, as when saving."""
    run: Run | None = None
    errors: list[FieldError] = []
    try:
        run = await _trial_run(request, fields, edit)
    except InvalidInput as error:
        errors.append(field_error_from(error))
    except StoreError:
        raise
    except ChimesError as error:
        errors.append(FieldError(name="", detail=form_error_from(error).message, code=""))
    if run is not None:
        fields = fields | {"trial": run.id}
    if request.is_htmx:
        return request.render_block(_WHAT, "trial", trial=run, trial_errors=errors, pretty=pretty)
    state = await build_state(request, fields, edit=edit, only_filled=not errors, errors=errors)
    return await _render(request, replace(state, trial=run), 422 if errors else 200)


async def _trial_run(request: PageRequest, fields: Fields, edit: Edit | None) -> Run:
    definition = definition_of(fields, request.now, is_edit=edit is not None)
    body = definition.body
    if "target" not in body or "policy" not in body:
        first = next(each for each in definition.errors if not each.name.startswith("trigger"))
        raise InvalidInput(first.detail, field=first.name, code=first.code)
    before = await _secrets_source(request, fields, edit)
    try:
        target = resolve_target(body["target"], before)
        policy, given = policy_of(request, body, target)
    except ValidationError as error:
        name = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise InvalidInput(
            _("This target cannot be tested yet."), field=name, code="invalid"
        ) from None
    run_request = RunRequest(
        target=target,
        policy=replace(policy, max_retries=0, delivery=()),
        name=str(body.get("name") or ""),
        explicit_fields=frozenset(given.model_fields_set) | _TRIAL_POLICY,
    )
    return await request.context.manual_runs.start(request.actor, run_request)


async def _secrets_source(request: PageRequest, fields: Fields, edit: Edit | None) -> Target | None:
    """Returns the target that masked secrets are taken from, if the user may change it."""
    if edit is not None:
        return edit.schedule.target
    if not fields.get("source"):
        return None
    source_schedule = await request.context.schedules.get(
        request.actor, ScheduleId(fields["source"])
    )
    return source_schedule.target if request.actor.may_write(source_schedule.owner) else None


async def _find_trial(request: PageRequest, run_id: str) -> Run | None:
    if not run_id:
        return None
    try:
        return await request.context.runs.get(request.actor, RunId(run_id))
    except NotFound:
        return None


@router.get("/editor/trial/{id}")
async def trial(request: PageRequest) -> Response:
    """Refreshes the trial run until it has ended."""
    run = await request.context.runs.get(request.actor, RunId(request.path_params["id"]))
    return request.render_block(_WHAT, "trial", trial=run, trial_errors=[], pretty=pretty)


@router.get("/editor/zones")
async def zones(request: PageRequest) -> Response:
    """Searches zones by city, country, offset or abbreviation; known zones first."""
    others = (await request.context.schedules.find(request.actor, NEIGHBOURS)).items
    text = request.query.get("zone", "")[:64]
    found = search_zones(text, request.display.language, request.now, known_zones(request, others))
    return request.render_block(_WHEN, "zone_list", zones=found)


@router.post("/editor/arguments")
async def arguments(request: PageRequest) -> Response:
    """Renders the argument fields of the selected task."""
    fields = fields_from(request.form)
    options = await available_options(request)
    found = arguments_from_schema(options.arguments.get(fields.get("task", ""), {}))
    state = FormState(fields=split_arguments(fields, found))
    return request.render_block(_WHAT, "task_args", state=state, arguments=found, options=options)


router.post("/schedules/{id}/unedit")(undo_edit)
router.post("/schedules/{id}/unmake")(undo_create)


# --- test notification --------------------------------------------------------------------------
async def _send_test_notification(
    request: PageRequest, fields: Fields, edit: Edit | None, choice: str
) -> Response:
    """Sends a test notification to the recipient of the row before anything is saved."""
    rows = filled_rows(fields)
    row = int(choice) if choice.isdecimal() and len(choice) < 3 else -1
    errors: list[FieldError] = []
    tested: tuple[int, str, str] | None = None
    if row not in rows:
        errors.append(FieldError(name="delivery", detail=_("choose a channel"), code="missing"))
    else:
        path = f"delivery.{rows.index(row)}"
        try:
            recipient = await _recipient(request, fields, edit, row)
            outcome = await request.context.notifications.send_test(request.actor, recipient)
            message = in_language(outcome.words, request.display.language)
            tested = (row, message, outcome.kind)
        except ValidationError:
            errors += [
                replace(each, name=f"{path}.{each.name}")
                for each in validation_errors(RecipientIn, recipient_body(fields, row))
            ]
        except InvalidInput as error:
            errors.append(field_error_from(error.within(path)))
        except RateLimited as error:
            tested = (row, in_language(error.message, request.display.language), "error")
    state = await build_state(request, fields, edit=edit, only_filled=not errors, errors=errors)
    return await _render(request, replace(state, tested=tested), 422 if errors else 200)


async def _recipient(
    request: PageRequest, fields: Fields, edit: Edit | None, row: int
) -> Recipient:
    """Restores masked secrets from the schedule if the user may change it."""
    before: tuple[Recipient, ...] = ()
    if edit is not None:
        before = edit.schedule.policy.delivery
    elif fields.get("source"):
        source_schedule = await request.context.schedules.get(
            request.actor, ScheduleId(fields["source"])
        )
        before = (
            source_schedule.policy.delivery
            if request.actor.may_write(source_schedule.owner)
            else ()
        )
    given = RecipientIn.model_validate(recipient_body(fields, row))
    try:
        return recipients_from([given], before)[0]
    except InvalidInput as error:
        error.field = (error.field or "").removeprefix("delivery[0].")
        raise
