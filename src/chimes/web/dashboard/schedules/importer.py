"""Schedules from a crontab, from YAML or from JSON: pasted, looked at, made (UX A.2)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.responses import Response

from chimes.config.file import parsed_yaml
from chimes.errors import ChimesError, InvalidInput, NotAllowed
from chimes.i18n import Message, _, counted
from chimes.model.ids import ScheduleId
from chimes.model.schedule import Schedule
from chimes.redaction import HIDDEN
from chimes.services.crontab import crontab_lines, is_crontab
from chimes.web.api.schemas import ScheduleIn
from chimes.web.api.translate import draft_from, explicit_fields
from chimes.web.dashboard.core.page_request import PageRequest
from chimes.web.dashboard.core.router import PageRouter
from chimes.web.dashboard.schedules.bulk import Outcome
from chimes.web.problems import problem_of

# @@ What a pasted text would become: a crontab, or definitions as YAML or JSON.

MOST = 1000
FORMS = ("auto", "crontab", "yaml")
#: What a file of many has around them.
_LIST = "schedules"
_DEEPEST = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """A line or an entry, as it was found."""

    #: Its number, from 1.
    place: int
    text: str
    body: ScheduleIn | None = None
    error: str = ""
    note: Message | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """An item with the schedule that would come of it."""

    item: Item
    schedule: Schedule | None = None
    error: str = ""

    @property
    def wrong(self) -> str:
        return self.error or self.item.error


def items_in(
    text: str, *, form: str, zone: str, task: str = "", users: bool = False
) -> tuple[Item, ...]:
    """InvalidInput if the text as a whole cannot be read; what is wrong with one item is said
    there."""
    if not text.strip():
        raise InvalidInput(_("paste something first"), field="text", code="missing")
    if form == "crontab" or (form != "yaml" and is_crontab(text)):
        return tuple(
            Item(place=line.number, text=line.text, error=line.error, note=line.note)
            if line.definition is None
            else _item(line.number, line.text, line.definition)
            for line in crontab_lines(text, zone=zone, task=task, users=users)
        )
    entries = _entries(_parsed(text))
    if len(entries) > MOST:
        raise InvalidInput(
            _("at most {most} schedules at a time", most=MOST), field="text", code="too_many"
        )
    return tuple(_item(place, _title(each), each) for place, each in enumerate(entries, 1))


def _parsed(text: str) -> object:
    if text.lstrip().startswith(("{", "[")):
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(
                _("this is not valid JSON: {why}", why=error), field="text"
            ) from None
    try:
        return _plain(parsed_yaml(text.encode(), _("The text")))
    except ChimesError as error:
        raise InvalidInput(error.message, field="text") from None


def _plain(value: object, depth: int = 0) -> object:
    """YAML makes dates of what looks like them; the API takes text."""
    if depth > _DEEPEST:
        raise InvalidInput(_("it is nested too deeply"), field="text")
    if isinstance(value, Mapping):
        return {str(name): _plain(each, depth + 1) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each, depth + 1) for each in value]
    return value.isoformat() if isinstance(value, datetime | date) else value


def _entries(value: object) -> Sequence[object]:
    """A list, one definition, or a file with a list in it."""
    if isinstance(value, Mapping):
        inner = value.get(_LIST)
        return inner if isinstance(inner, list) else [value]
    if isinstance(value, list):
        return value
    raise InvalidInput(
        _("expected a crontab, or schedules as YAML or JSON: a list, or one definition"),
        field="text",
    )


def _title(entry: object) -> str:
    name = entry.get("name") if isinstance(entry, Mapping) else None
    return name if isinstance(name, str) else json.dumps(entry, ensure_ascii=False)[:80]


def _item(place: int, text: str, definition: object) -> Item:
    if hidden := _hidden_in(definition, ""):
        error = _("{place} is hidden as ***; write the secret out", place=hidden)
        return Item(place=place, text=text, error=error)
    try:
        return Item(place=place, text=text, body=ScheduleIn.model_validate(definition))
    except ValidationError as error:
        return Item(place=place, text=text, error=_said(error))


def _said(error: ValidationError) -> str:
    """In the words of the API."""
    found = [
        {**each, "loc": ("body", *each["loc"])}
        for each in error.errors(include_url=False, include_input=False)
    ]
    return problem_of(RequestValidationError(found)).detail


def _hidden_in(value: object, place: str) -> str:
    """Where a secret was masked by an export; empty: nowhere."""
    if isinstance(value, Mapping):
        pairs = [(f"{place}.{name}" if place else str(name), each) for name, each in value.items()]
    elif isinstance(value, list):
        pairs = [(f"{place}[{number}]", each) for number, each in enumerate(value)]
    else:
        return place if value == HIDDEN else ""
    return next((found for name, each in pairs if (found := _hidden_in(each, name))), "")


router = PageRouter()
HERE = "/ui/schedules/import"


@router.get("/schedules/import")
async def import_page(request: PageRequest) -> Response:
    return _page(request)


@router.post("/schedules/import")
async def import_them(request: PageRequest) -> Response:
    """Without `create` it only shows what would become of the text."""
    form = request.form
    wanted = form.text("form")
    try:
        items = items_in(
            form.raw("text"),
            form=wanted if wanted in FORMS else "auto",
            zone=form.text("zone") or request.display.zone,
            task=form.text("task"),
            users=form.is_checked("users"),
        )
    except InvalidInput as error:
        return _page(request, error=error)
    planned = [await _planned(request, each) for each in items]
    if not form.is_checked("create"):
        return _page(request, planned=planned)
    chosen = set(form.all("line"))
    outcomes = [await _made(request, each) for each in planned if str(each.item.place) in chosen]
    if not outcomes:
        nothing = InvalidInput(_("nothing is selected"), field="text", code="missing")
        return _page(request, planned=planned, error=nothing)
    if all(not each.error for each in outcomes):
        text = counted("{count} schedule was made.", "{count} schedules were made.", len(outcomes))
        return request.redirect_with_toast(text, to="/ui/schedules?sort=-created")
    return _page(request, outcomes=outcomes)


async def _planned(request: PageRequest, item: Item) -> Planned:
    """As it would be saved, by the same checks; nothing is."""
    if item.body is None:
        return Planned(item=item)
    service = request.context.schedules
    try:
        draft = draft_from(item.body, request.actor, request.context.settings, request.now)
        await service.rules.get_run_defaults(draft.target)
        zone = await service.rules.zone_for(draft.owner, draft.trigger)
        return Planned(
            item=item, schedule=service.prepare(request.actor, draft, request.now, zone=zone)
        )
    except ChimesError as error:
        return Planned(item=item, error=error.message)


async def _made(request: PageRequest, planned: Planned) -> Outcome:
    body, name = planned.item.body, planned.item.text
    if planned.wrong or body is None or planned.schedule is None:
        return Outcome(id=ScheduleId(""), name=name, error=planned.wrong)
    try:
        draft = draft_from(body, request.actor, request.context.settings, request.now)
        made = await request.context.schedules.create(
            request.actor, draft, explicit_fields=explicit_fields(body)
        )
    except ChimesError as error:
        return Outcome(id=planned.schedule.id, name=body.name, error=error.message)
    return Outcome(id=made.id, name=made.name, address=f"/ui/schedules/{made.id}")


def _page(
    request: PageRequest,
    *,
    planned: Sequence[Planned] | None = None,
    outcomes: Sequence[Outcome] = (),
    error: InvalidInput | None = None,
) -> Response:
    if not request.actor.may_create(request.actor.owner):
        raise NotAllowed()
    return request.render(
        "schedules/import.html",
        status=200 if error is None else 422,
        planned=planned,
        good=sum(each.schedule is not None for each in planned or ()),
        outcomes=outcomes,
        error=error,
        given=request.form,
    )
