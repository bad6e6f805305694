"""Imports schedules from a pasted crontab, YAML or JSON text, with a preview."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import partial

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.responses import Response

from chimes.config.file import parsed_yaml
from chimes.errors import ChimesError, InvalidInput, NotAllowed
from chimes.i18n import Message, _, counted
from chimes.model.ids import ScheduleId
from chimes.model.schedule import Schedule
from chimes.redaction import masked_names
from chimes.services.schedules.crontab import crontab_lines, is_crontab
from chimes.services.schedules.rules import calculate, load_calendars
from chimes.web.api.schemas import ScheduleIn
from chimes.web.api.translate import draft_from, explicit_fields
from chimes.web.dashboard.core.bulk import Outcome
from chimes.web.dashboard.core.page_request import PageRequest, PageRouter
from chimes.web.problems import problem_of

MAX_SCHEDULES = 1000
FORMATS = ("auto", "crontab", "yaml")
#: Key of the list in a file with several schedules.
_LIST_KEY = "schedules"
_MAX_DEPTH = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """A line of a crontab or an entry of a list."""

    #: From 1.
    number: int
    text: str
    body: ScheduleIn | None = None
    error: str = ""
    notes: tuple[Message, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """An item with the schedule that it would become."""

    item: Item
    schedule: Schedule | None = None
    error: str = ""

    @property
    def any_error(self) -> str:
        return self.error or self.item.error


def parse_items(
    text: str, *, format_: str, zone: str, task: str = "", users: bool = False
) -> tuple[Item, ...]:
    """InvalidInput if the text cannot be parsed; errors of one item are in the item."""
    if not text.strip():
        raise InvalidInput(_("paste a text first"), field="text", code="missing")
    if format_ == "crontab" or (format_ != "yaml" and is_crontab(text)):
        return tuple(
            Item(number=line.number, text=line.text, error=line.error, notes=line.notes)
            if line.definition is None
            else replace(_item(line.number, line.text, line.definition), notes=line.notes)
            for line in crontab_lines(text, zone=zone, task=task, users=users)
        )
    entries = _entries(_parsed(text))
    if len(entries) > MAX_SCHEDULES:
        raise InvalidInput(
            _("at most {limit} schedules per import", limit=MAX_SCHEDULES),
            field="text",
            code="too_many",
        )
    return tuple(_item(number, _title(each), each) for number, each in enumerate(entries, 1))


def _parsed(text: str) -> object:
    if text.lstrip().startswith(("{", "[")):
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(_("invalid JSON: {error}", error=error), field="text") from None
    try:
        return _plain(parsed_yaml(text.encode(), _("The text")))
    except ChimesError as error:
        raise InvalidInput(error.message, field="text") from None


def _plain(value: object, depth: int = 0) -> object:
    """YAML parses dates; the API expects text."""
    if depth > _MAX_DEPTH:
        raise InvalidInput(_("nested too deeply"), field="text")
    if isinstance(value, Mapping):
        return {str(name): _plain(each, depth + 1) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each, depth + 1) for each in value]
    return value.isoformat() if isinstance(value, datetime | date) else value


def _entries(value: object) -> Sequence[object]:
    """From a list, one definition, or a mapping with the key `schedules`."""
    if isinstance(value, Mapping):
        inner = value.get(_LIST_KEY)
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


def _item(number: int, text: str, definition: object) -> Item:
    if masked := next(masked_names(definition), ""):
        error = _("{field} is masked as ***; replace it with the secret", field=masked)
        return Item(number=number, text=text, error=error)
    try:
        return Item(number=number, text=text, body=ScheduleIn.model_validate(definition))
    except ValidationError as error:
        return Item(number=number, text=text, error=_message(error))


def _message(error: ValidationError) -> str:
    """The message of the API."""
    errors = [
        {**each, "loc": ("body", *each["loc"])}
        for each in error.errors(include_url=False, include_input=False)
    ]
    return problem_of(RequestValidationError(errors)).detail


router = PageRouter()


@router.get("/schedules/import")
async def import_page(request: PageRequest) -> Response:
    return _page(request)


@router.post("/schedules/import")
async def import_schedules(request: PageRequest) -> Response:
    """Without `create` only a preview."""
    form = request.form
    format_ = form.text("form")
    await load_calendars(form.raw("text"))
    try:
        items = parse_items(
            form.raw("text"),
            format_=format_ if format_ in FORMATS else "auto",
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
    outcomes = [await _create(request, each) for each in planned if str(each.item.number) in chosen]
    if not outcomes:
        unselected = InvalidInput(_("no schedule selected"), field="text", code="missing")
        return _page(request, planned=planned, error=unselected)
    if all(not each.error for each in outcomes):
        text = counted("{count} schedule created.", "{count} schedules created.", len(outcomes))
        return request.redirect_with_toast(text, to="/ui/schedules?sort=-created")
    return _page(request, outcomes=outcomes)


async def _planned(request: PageRequest, item: Item) -> Planned:
    """Validates as on saving, without saving."""
    if item.body is None:
        return Planned(item=item)
    service = request.context.schedules
    try:
        draft = draft_from(item.body, request.actor, request.context.settings, request.now)
        await service.rules.get_run_defaults(draft.target, allow_missing=True)
        zone = await service.rules.zone_for(draft.owner, draft.trigger)
        prepare = partial(service.prepare, request.actor, draft, request.now, zone=zone)
        return Planned(item=item, schedule=await calculate([draft.trigger], prepare))
    except ChimesError as error:
        return Planned(item=item, error=error.message)


async def _create(request: PageRequest, planned: Planned) -> Outcome:
    body, name = planned.item.body, planned.item.text
    if planned.any_error or body is None or planned.schedule is None:
        return Outcome(id=ScheduleId(""), name=name, error=planned.any_error)
    try:
        draft = draft_from(body, request.actor, request.context.settings, request.now)
        created = await request.context.schedules.create(
            request.actor, draft, explicit_fields=explicit_fields(body)
        )
    except ChimesError as error:
        return Outcome(id=planned.schedule.id, name=body.name, error=error.message)
    return Outcome(id=created.id, name=created.name, address=f"/ui/schedules/{created.id}")


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
