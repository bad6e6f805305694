"""The wizard: a schedule is made or changed on one page, and seen before it is saved (UX A.4)."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from pydantic import ValidationError
from starlette.responses import Response

from chimes.errors import InvalidInput, NeedsClarification, NotAllowed, NotFound, RateLimited
from chimes.i18n import _, in_language
from chimes.language import Told, describe, parse
from chimes.model.ids import ScheduleId
from chimes.model.recipient import Recipient
from chimes.model.schedule import Schedule
from chimes.model.validation import MOST_RECIPIENTS
from chimes.redaction import HIDDEN
from chimes.services.templates import Offer, offers
from chimes.telegram.links import Links
from chimes.triggers import Cron, Every, Trigger, parse_zone, trigger_from_dict
from chimes.web.api.schemas import RecipientIn
from chimes.web.api.translate import recipients_from, schedule_out
from chimes.web.dashboard.core.page_request import PageRequest
from chimes.web.dashboard.core.router import Pages
from chimes.web.dashboard.editor.form import fields_from, fields_of, new_fields, told_at
from chimes.web.dashboard.editor.merge import value_text
from chimes.web.dashboard.editor.options import offers_now
from chimes.web.dashboard.editor.page import Edit, Sheet, checked, composed, opened
from chimes.web.dashboard.editor.recipient_fields import PARTS as TOLD_PARTS
from chimes.web.dashboard.editor.recipient_fields import recipient_fields, recipient_plain, rows_of
from chimes.web.dashboard.editor.save import conflict, create, save
from chimes.web.dashboard.editor.snippets import pretty
from chimes.web.dashboard.editor.target_fields import (
    METHODS,
    arguments_of,
    target_fields,
    with_arguments,
)
from chimes.web.dashboard.editor.trial_run import run_of_trial, tried
from chimes.web.dashboard.editor.trigger_fields import (
    COMMON_CRONS,
    MOST_EXCLUSIONS,
    PARTS,
    UNITS,
    Fields,
    Plain,
    countries,
    trigger_fields,
)
from chimes.web.problems import FieldError

# @@ A test to one of the recipients that the wizard's form names, before anything is saved.

Show = Callable[[PageRequest, Sheet, int], Awaitable[Response]]


async def sent_test(
    visit: PageRequest, fields: Fields, edit: Edit | None, choice: str, show: Show
) -> Response:
    rows = rows_of(fields)
    row = int(choice) if choice.isdecimal() and len(choice) < 3 else -1
    errors: list[FieldError] = []
    tested: tuple[int, str, str] | None = None
    if row not in rows:
        errors.append(FieldError(name="delivery", detail=_("choose a channel"), code="missing"))
    else:
        place = f"delivery.{rows.index(row)}"
        try:
            recipient = await _recipient(visit, fields, edit, row)
            outcome = await visit.door.messages.send_test(visit.actor, recipient)
            words = in_language(outcome.words, visit.look.language)
            tested = (row, words, outcome.kind)
        except ValidationError:
            plain = recipient_plain(fields, row)
            errors += [
                replace(each, name=f"{place}.{each.name}") for each in checked(RecipientIn, plain)
            ]
        except InvalidInput as error:
            errors.append(told_at(error.within(place)))
        except RateLimited as error:
            tested = (row, in_language(error.message, visit.look.language), "error")
    sheet = await composed(visit, fields, edit=edit, filled_only=not errors, errors=errors)
    return await show(visit, replace(sheet, tested=tested), 422 if errors else 200)


async def _recipient(visit: PageRequest, fields: Fields, edit: Edit | None, row: int) -> Recipient:
    """With the secrets that come back hidden, of a schedule that the caller could change."""
    before: tuple[Recipient, ...] = ()
    if edit is not None:
        before = edit.schedule.policy.delivery
    elif fields.get("source"):
        pattern = await visit.door.schedules.get(visit.actor, ScheduleId(fields["source"]))
        before = pattern.policy.delivery if visit.actor.may_write(pattern.owner) else ()
    given = RecipientIn.model_validate(recipient_plain(fields, row))
    try:
        return recipients_from([given], before)[0]
    except InvalidInput as error:
        error.field = (error.field or "").removeprefix("delivery[0].")
        raise


# @@ Words and presets into the fields of the wizard. Nothing is saved, and guesses are marked.

_URL = re.compile(r"https?://[^\s\"'<>，。]+")
_NAME_LENGTH = 80
#: Words that ask for a look, not for a change.
_LOOKS = re.compile(r"\b(?:ping|check|get|fetch|watch)\b|เช็ก|เช็ค|ตรวจ|检查|监控", re.IGNORECASE)
#: What is only to be said again, by nobody who thinks about it.
_REMINDS = re.compile(
    r"(?:please )?(?:remind\b|message me\b|send (?:me )?(?:a|the) message\b)"
    r"|(?:ช่วย|กรุณา)?(?:เตือน|ส่งข้อความ)|请?(?:提醒|发送?(?:一条)?消息)",
    re.IGNORECASE,
)
_OF_WHEN = (
    *("when", "rule", "at", "in", "every", "unit", "anchor", "jitter"),
    *("expression", "dialect", "dst", "start", "end", "max_runs"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What words were understood to say."""

    fields: Fields
    #: Names of the fields that the words do not say outright.
    guessed: tuple[str, ...]
    trigger: Trigger
    #: Through which the words say to tell somebody.
    channels: tuple[str, ...] = ()


def read_words(
    text: str,
    fields: Mapping[str, str],
    *,
    now: datetime,
    zone: str,
    lang: str,
    chats: Sequence[str] = (),
    prompts: bool = True,
) -> Reading:
    """By the same reading as the API's. NeedsClarification asks back. `chats`: the reader's own,
    for words that say to tell them through Telegram. `prompts`: somebody answers them."""
    parsed = parse(text, now=now, timezone=zone, lang=lang)
    trigger = parsed.trigger
    found = with_trigger(fields, parsed.trigger, parsed.timezone)
    guessed = []
    if not isinstance(trigger, Every) and not _names_zone(text, parsed.timezone, now):
        guessed.append("zone")
    if task := parsed.task.strip():
        target = _target(task, prompts=prompts)
        found |= target
        # An address stands in the words; what to do with it may not.
        guessed += [each for each in target if each != "url"]
    if parsed.told:
        found, rows = _with_told(found, parsed.told, chats)
        guessed += rows
    name = " ".join((task or text).split())[:_NAME_LENGTH]
    if not fields.get("name") or fields.get("name") == fields.get("name_guessed"):
        found |= {"name": name, "name_guessed": name}
        guessed.append("name")
    channels = tuple(dict.fromkeys(each.channel for each in parsed.told))
    return Reading(fields=found, guessed=tuple(guessed), trigger=trigger, channels=channels)


def _with_told(
    fields: Fields, told: Sequence[Told], chats: Sequence[str]
) -> tuple[Fields, list[str]]:
    """Recipients that the words name, behind those that somebody chose; and their fields."""
    chosen = set(fields.get("guessed", "").split(","))
    rows = [
        {part: fields.get(f"tell{n}_{part}", "") for part in TOLD_PARTS}
        for n in range(MOST_RECIPIENTS + 1)
        if fields.get(f"tell{n}_channel") and f"tell{n}_channel" not in chosen
    ]
    kept = len(rows)
    for each in told:
        own = chats[0] if each.channel == "telegram" and chats else ""
        row = {"channel": each.channel, "to": each.to or own, "on": each.on}
        known = any((r["channel"], r["to"]) == (row["channel"], row["to"]) for r in rows[:kept])
        if not known and len(rows) < MOST_RECIPIENTS:
            rows.append(row)
    found = {name: value for name, value in fields.items() if name not in _told_names()}
    for place, row in enumerate(rows):
        found |= {f"tell{place}_{part}": value for part, value in row.items()}
    guessed = range(kept, len(rows))
    return found, [f"tell{n}_{part}" for n in guessed for part in ("channel", "to", "on")]


def with_trigger(fields: Mapping[str, str], trigger: Trigger, home: str) -> Fields:
    """The fields with another time in them; nothing of the old one is left."""
    gone = {*_OF_WHEN, *(f"ex{n}_{part}" for n in range(MOST_EXCLUSIONS) for part in PARTS)}
    kept = {name: value for name, value in fields.items() if name not in gone}
    return kept | trigger_fields(trigger.to_dict(), home)


def with_preset(fields: Mapping[str, str], offer: Offer, trigger: Trigger, home: str) -> Fields:
    """A template says when; most say what and whom to tell as well."""
    found = with_trigger(fields, trigger, home)
    if offer.target is None:
        return found
    found = {name: value for name, value in found.items() if name not in _told_names()}
    found |= target_fields(offer.target) | recipient_fields(dict(each) for each in offer.delivery)
    return found | {"name": offer.text.name, "name_guessed": offer.text.name}


def _told_names() -> set[str]:
    return {f"tell{n}_{part}" for n in range(MOST_RECIPIENTS + 1) for part in TOLD_PARTS}


def _target(task: str, *, prompts: bool) -> Fields:
    """An address is called, a reminder is told; anything else is a prompt, as on the command line.
    Where nobody answers prompts it is told, too: its runs would all fail otherwise."""
    if url := _URL.search(task):
        method = "GET" if _LOOKS.search(task) else "POST"
        return {"kind": "http", "url": url[0].rstrip(".,;)"), "method": method}
    if _REMINDS.match(task):
        return {"kind": "message", "message": task}
    if not prompts:
        return {"kind": "message", "message": task, "prompt": task}
    return {"kind": "agent", "prompt": task}


def _names_zone(text: str, found: str, now: datetime) -> bool:
    """Whether the zone is in the words: then another home changes nothing about it."""
    elsewhere = "Pacific/Apia" if found != "Pacific/Apia" else "UTC"
    try:
        return parse(text, now=now, timezone=elsewhere).timezone == found
    except InvalidInput:
        return False


pages = Pages()
_TEMPLATE = "wizard/page.html"
_UNREAD = FieldError(
    name="words",
    detail=_("These words are not in the fields yet. Press “Fill in the fields”, or clear them."),
    code="unread",
)
_GONE = FieldError(
    name="",
    detail=_("This schedule is gone. Save again, and a new one is made of what stands here."),
    code="gone",
)


@pages.get("/schedules/new")
async def new(visit: PageRequest) -> Response:
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
async def new_form(visit: PageRequest) -> Response:
    return await _form(visit, None)


@pages.get("/schedules/{id}/edit")
async def edit(visit: PageRequest) -> Response:
    schedule = await _editable(visit)
    fields, base = opened(visit, schedule)
    fields["version"] = str(schedule.version)
    return await _shown(
        visit, await composed(visit, fields, edit=Edit(schedule=schedule, base=base))
    )


@pages.post("/schedules/{id}/edit")
async def edit_form(visit: PageRequest) -> Response:
    try:
        schedule = await _editable(visit)
    except NotFound:
        if visit.partial:
            raise
        return await _of_one_gone(visit)
    return await _form(visit, Edit(schedule=schedule, base=_base(visit, schedule)))


async def _of_one_gone(visit: PageRequest) -> Response:
    """Somebody has deleted it meanwhile: what was typed can become a new one. Its secrets are gone
    with it."""
    typed = fields_from(visit.form)
    fields = {name: value for name, value in typed.items() if HIDDEN not in value}
    sheet = await composed(visit, fields, filled_only=False, errors=[_GONE])
    return await _shown(visit, sheet, status=422)


async def _form(visit: PageRequest, edit: Edit | None) -> Response:
    fields = fields_from(visit.form)
    wanted, _unused, choice = visit.form.text("do").partition(":")
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


async def _tested(visit: PageRequest, fields: Fields, edit: Edit | None, row: str) -> Response:
    """The target, or the recipient of that row."""
    if row:
        return await sent_test(visit, fields, edit, row, _shown)
    return await tried(visit, fields, edit, _shown)


async def _read(visit: PageRequest, fields: Fields, edit: Edit | None) -> Sheet:
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


def _from_preset(visit: PageRequest, fields: Fields, wanted: str) -> Fields:
    offer = next((each for each in offers(visit.look.language) if each.id == wanted), None)
    if offer is None:
        raise NotFound(_("There is no template {id!r}.", id=wanted[:64]))
    zone = visit.look.zone
    trigger = trigger_from_dict(dict(offer.trigger)).with_default_zone(zone)
    return with_preset(fields, offer, trigger, zone) | {"guessed": "", "preset": offer.id}


def _copied(visit: PageRequest, schedule: Schedule) -> Fields:
    """Secrets go along only where the reader could have changed the original: otherwise a copy
    would send them wherever it likes."""
    fields = fields_of(schedule_out(schedule), visit.look.zone)
    fields |= {"name": f"{schedule.name} (2)"[-200:], "namespace": schedule.namespace}
    if visit.actor.may_write(schedule.owner):
        return fields | {"source": schedule.id}
    return {name: value for name, value in fields.items() if HIDDEN not in value}


async def _editable(visit: PageRequest) -> Schedule:
    schedule = await visit.door.schedules.get(visit.actor, ScheduleId(visit.path["id"]))
    if not visit.actor.may_write(schedule.owner):
        raise NotAllowed()
    return schedule


def _base(visit: PageRequest, schedule: Schedule) -> Plain:
    """What the form said when it was opened. It only decides what counts as changed by this form:
    whoever sends another one changes more or less of their own schedule."""
    try:
        found = json.loads(visit.form.raw("base"))
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else opened(visit, schedule)[1]


async def _shown(visit: PageRequest, sheet: Sheet, status: int = 200) -> Response:
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
