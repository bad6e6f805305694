"""The wizard: a schedule is made or changed on one page, and seen before it is saved (UX A.4)."""

from __future__ import annotations

import json
from dataclasses import replace

from starlette.responses import Response

from chimes.doors.api.wire import schedule_out
from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.routes_wizard_offers import offers_now
from chimes.doors.dashboard.routes_wizard_saving import conflict, create, save
from chimes.doors.dashboard.routes_wizard_sheet import (
    Edit,
    Sheet,
    composed,
    opened,
)
from chimes.doors.dashboard.routes_wizard_tell import sent_test
from chimes.doors.dashboard.routes_wizard_trial import run_of_trial, tried
from chimes.doors.dashboard.views_wizard_calendars import MOST_EXCLUSIONS, countries
from chimes.doors.dashboard.views_wizard_form import fields_from, fields_of, new_fields
from chimes.doors.dashboard.views_wizard_merge import value_text
from chimes.doors.dashboard.views_wizard_schema import arguments_of, with_arguments
from chimes.doors.dashboard.views_wizard_text import pretty
from chimes.doors.dashboard.views_wizard_what import METHODS
from chimes.doors.dashboard.views_wizard_when import (
    COMMON_CRONS,
    UNITS,
    Fields,
    Plain,
)
from chimes.doors.dashboard.views_wizard_words import read_words, with_preset
from chimes.doors.dashboard.visit import Visit
from chimes.doors.problems import FieldError
from chimes.doors.telegram.links import Links
from chimes.errors import InvalidInput, NeedsClarification, NotAllowed, NotFound
from chimes.language import describe
from chimes.model.ids import ScheduleId
from chimes.model.recipient_rules import MOST_RECIPIENTS
from chimes.model.schedule import Schedule
from chimes.model.templates import offers
from chimes.redaction import HIDDEN
from chimes.triggers import Cron, parse_zone, trigger_from_dict
from chimes.wording import say

pages = Pages()
_TEMPLATE = "wizard/page.html"
_UNREAD = FieldError(
    name="words",
    detail=say("These words are not in the fields yet. Press “Fill in the fields”, or clear them."),
    code="unread",
)
_GONE = FieldError(
    name="",
    detail=say("This schedule is gone. Save again, and a new one is made of what stands here."),
    code="gone",
)


@pages.get("/schedules/new")
async def new(visit: Visit) -> Response:
    """`?words=` and `?preset=` fill the form, `?from=` takes another schedule as its pattern."""
    if not visit.actor.may_create(visit.actor.owner):
        # Told before anything is typed. What is sent all the same is refused at the form.
        return visit.page("wizard/not_yours.html", status=403)
    fields = new_fields(visit.look.zone)
    if source := visit.query.get("from"):
        schedule = await visit.door.schedules.get(visit.actor, ScheduleId(source))
        fields = _copied(visit, schedule)
    if preset := visit.query.get("preset"):
        fields = _from_preset(visit, fields, preset)
    if words := visit.query.get("words", "").strip():
        return await _shown(visit, await _read(visit, {**fields, "words": words}, None))
    return await _shown(visit, await composed(visit, fields))


@pages.post("/schedules/new")
async def new_form(visit: Visit) -> Response:
    return await _form(visit, None)


@pages.get("/schedules/{id}/edit")
async def edit(visit: Visit) -> Response:
    schedule = await _editable(visit)
    fields, base = opened(visit, schedule)
    fields["version"] = str(schedule.version)
    return await _shown(
        visit, await composed(visit, fields, edit=Edit(schedule=schedule, base=base))
    )


@pages.post("/schedules/{id}/edit")
async def edit_form(visit: Visit) -> Response:
    try:
        schedule = await _editable(visit)
    except NotFound:
        if visit.partial:
            raise
        return await _of_one_gone(visit)
    return await _form(visit, Edit(schedule=schedule, base=_base(visit, schedule)))


async def _of_one_gone(visit: Visit) -> Response:
    """Somebody has deleted it meanwhile: what was typed can become a new one. Its secrets are gone
    with it."""
    typed = fields_from(visit.form)
    fields = {name: value for name, value in typed.items() if HIDDEN not in value}
    sheet = await composed(visit, fields, filled_only=False, errors=[_GONE])
    return await _shown(visit, sheet, status=422)


async def _form(visit: Visit, edit: Edit | None) -> Response:
    fields = fields_from(visit.form)
    wanted, _, choice = visit.form.text("do").partition(":")
    unread = fields.get("words", "").split() != fields.get("words_read", "").split()
    if wanted in ("", "preview") and unread and not visit.partial:
        wanted = "read"
    match wanted:
        case "save" if unread and fields.get("words"):
            # Somebody may believe that the words are saved: what is saved are the fields.
            sheet = await composed(visit, fields, edit=edit, filled_only=False, errors=[_UNREAD])
            return await _shown(visit, sheet, status=422)
        case "save":
            if edit is not None and fields.get("version") != str(edit.schedule.version):
                return await _shown(visit, await conflict(visit, fields, edit), status=409)
            done = await (create(visit, fields) if edit is None else save(visit, fields, edit))
            if isinstance(done, Response):
                return done
            return await _shown(visit, done, status=422)
        case "words":
            return await _shown(visit, await _read(visit, {**fields, "words": choice}, edit))
        case "read" if fields.get("words"):
            return await _shown(visit, await _read(visit, fields, edit))
        case "preset":
            fields = _from_preset(visit, fields, choice)
        case "cron":
            fields |= {"when": "cron", "expression": choice}
        case "zone":
            fields |= {"zone": choice, "zone_sure": choice}
        case "test":
            return await _tested(visit, fields, edit, choice)
        case _:
            pass
    sheet = await composed(visit, fields, edit=edit, last=visit.form.raw("last"))
    return await _shown(visit, sheet)


async def _tested(visit: Visit, fields: Fields, edit: Edit | None, row: str) -> Response:
    """The target, or the recipient of that row."""
    if row:
        return await sent_test(visit, fields, edit, row, _shown)
    return await tried(visit, fields, edit, _shown)


async def _read(visit: Visit, fields: Fields, edit: Edit | None) -> Sheet:
    """The words in the box; nothing is saved by them."""
    zone = fields.get("zone") or visit.look.zone
    fields = {**fields, "words_read": fields["words"]}
    try:
        zone = parse_zone(zone).name
    except InvalidInput:
        zone = visit.look.zone
    try:
        found = read_words(
            fields["words"],
            fields,
            now=visit.now,
            zone=zone,
            lang=visit.look.language,
            chats=[chat.id for chat in await Links(visit.door.store).linked(visit.actor.owner)],
            prompts=(await offers_now(visit)).agent,
        )
    except NeedsClarification as question:
        sheet = await composed(visit, fields, edit=edit, last=visit.form.raw("last"))
        return replace(sheet, question=question)
    fields = found.fields | {"guessed": ",".join(found.guessed)}
    sheet = await composed(visit, fields, edit=edit)
    understood = describe(found.trigger, visit.look.language)
    return replace(sheet, understood=understood, channels=found.channels)


def _from_preset(visit: Visit, fields: Fields, wanted: str) -> Fields:
    offer = next((each for each in offers(visit.look.language) if each.id == wanted), None)
    if offer is None:
        raise NotFound(say("There is no template {id!r}.", id=wanted[:64]))
    zone = visit.look.zone
    trigger = trigger_from_dict(dict(offer.trigger)).with_default_zone(zone)
    return with_preset(fields, offer, trigger, zone) | {"guessed": "", "preset": offer.id}


def _copied(visit: Visit, schedule: Schedule) -> Fields:
    """Secrets go along only where the reader could have changed the original: otherwise a copy
    would send them wherever it likes."""
    fields = fields_of(schedule_out(schedule), visit.look.zone)
    fields |= {"name": f"{schedule.name} (2)"[-200:], "namespace": schedule.namespace}
    if visit.actor.may_write(schedule.owner):
        return fields | {"source": schedule.id}
    return {name: value for name, value in fields.items() if HIDDEN not in value}


async def _editable(visit: Visit) -> Schedule:
    schedule = await visit.door.schedules.get(visit.actor, ScheduleId(visit.path["id"]))
    if not visit.actor.may_write(schedule.owner):
        raise NotAllowed()
    return schedule


def _base(visit: Visit, schedule: Schedule) -> Plain:
    """What the form said when it was opened. It only decides what counts as changed by this form:
    whoever sends another one changes more or less of their own schedule."""
    try:
        found = json.loads(visit.form.raw("base"))
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else opened(visit, schedule)[1]


async def _shown(visit: Visit, sheet: Sheet, status: int = 200) -> Response:
    edit = sheet.edit
    if sheet.trial is None:
        sheet = replace(sheet, trial=await run_of_trial(visit, sheet.fields.get("trial", "")))
    values: dict[str, object] = {
        "sheet": sheet,
        "fields": sheet.fields,
        "edit": edit,
        "action": f"/ui/schedules/{edit.schedule.id}/edit" if edit else "/ui/schedules/new",
        "value_text": lambda path, value: value_text(path, value, visit.look.language),
    }
    if visit.partial:
        return visit.part(_TEMPLATE, "preview", status=200, **values)
    offered = await offers_now(visit)
    arguments = arguments_of(offered.arguments.get(sheet.fields.get("task", ""), {}))
    sheet = replace(sheet, fields=with_arguments(sheet.fields, arguments))
    values |= {
        "sheet": sheet,
        "fields": sheet.fields,
        "arguments": arguments,
        "countries": countries(visit.look.language),
        "base": json.dumps(edit.base, ensure_ascii=False) if edit else "",
        "offers": offered,
        "presets": offers(visit.look.language),
        "others": [each for each in sheet.others if not edit or each.id != edit.schedule.id],
        "methods": [(each, each) for each in METHODS],
        "units": tuple(UNITS),
        "crons": [(each, describe(Cron(each), visit.look.language)) for each in COMMON_CRONS],
        "chats": [chat.id for chat in await Links(visit.door.store).linked(visit.actor.owner)],
        "recipients": _rows(sheet.fields, "tell", "_channel", MOST_RECIPIENTS),
        "exclusions": _rows(sheet.fields, "ex", "_kind", MOST_EXCLUSIONS),
        "zones": sheet.zones,
        "trial": sheet.trial,
        "trial_errors": (),
        "pretty": pretty,
        "failed": status == 422,
    }
    return visit.page(_TEMPLATE, status=status, **values)


def _rows(fields: Fields, name: str, filled: str, most: int) -> list[int]:
    """The rows that have something in them, and one more to fill."""
    used = [number for number in range(most) if fields.get(f"{name}{number}{filled}")]
    return list(range(min((used[-1] + 2) if used else 1, most)))
