"""Shared parts of the lists: paging, saved filters, columns, completion, palette, export."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import quote, urlencode

from starlette.responses import JSONResponse, Response, StreamingResponse

from chimes.errors import InvalidInput
from chimes.i18n import Message, _, in_language
from chimes.model.listing import Position, ScheduleQuery, ScheduleSort
from chimes.model.run import Origin, RunStatus
from chimes.model.schedule import Schedule
from chimes.services.filters import (
    KINDS,
    RUN_NAMES,
    SCHEDULE_NAMES,
    SCHEDULE_STATES,
    Chip,
    read_filter,
)
from chimes.services.preferences import ListName, SavedFilter
from chimes.triggers.values import parse_moment
from chimes.web.api.paging import cursor_scope, decode_cursor, encode_cursor
from chimes.web.dashboard.core.page_request import (
    FORM_ERRORS,
    Handler,
    PageRequest,
    PageRouter,
    Undo,
    render_field_retry,
)
from chimes.web.dashboard.core.preferences import (
    DisplayPreferences,
    list_choices_of,
    parse_list_name,
    remember_list_choices,
    with_columns,
    with_density,
)
from chimes.web.dashboard.core.times import (
    absolute,
    status_label,
    window_name,
    zone_abbreviation,
    zone_info,
)

MAX_COMPLETIONS = 8
_DURATIONS = ("1h", "24h", "7d", "30d")


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletionSource:
    """Existing objects that the completions are made from."""

    schedules: Sequence[Schedule] = ()
    nodes: Sequence[str] = ()


def completions(word: str, list_: ListName, source: CompletionSource) -> list[dict[str, str]]:
    """Completions of a word: `text` replaces the word, `title` is shown in the list."""
    names = SCHEDULE_NAMES if list_ is ListName.SCHEDULES else RUN_NAMES
    name, colon, prefix = word.partition(":")
    if not colon:
        found = [(f"{each}:", f"{each}:") for each in names if each.startswith(name)]
        return _items(found if word else found[:MAX_COMPLETIONS])
    if name not in names:
        return []
    if name == "schedule":
        return _items((Chip(name, each.id).text, each.name) for each in source.schedules)
    prefix = prefix.removeprefix('"').removesuffix('"').casefold()
    texts = (
        Chip(name, value).text
        for value in _values(name, list_, source)
        if value.casefold().startswith(prefix)
    )
    return _items((text, text) for text in texts)


def _items(pairs: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"text": text, "title": title} for text, title in dict.fromkeys(pairs)][
        :MAX_COMPLETIONS
    ]


def _values(name: str, list_: ListName, source: CompletionSource) -> Iterable[str]:
    match name:
        case "status":
            return SCHEDULE_STATES if list_ is ListName.SCHEDULES else tuple(RunStatus)
        case "kind":
            return KINDS
        case "origin":
            return tuple(Origin)
        case "next":
            return tuple(f"<{each}" for each in _DURATIONS)
        case "since" | "until":
            return _DURATIONS
        case "owner":
            return ("me", *sorted({str(each.owner) for each in source.schedules}))
        case "namespace":
            return sorted({each.namespace for each in source.schedules})
        case "label":
            labels = {pair for each in source.schedules for pair in each.labels.items()}
            found = {key if value is None else f"{key}={value}" for key, value in labels}
            return sorted(found | {key for key, _value in labels})
        case "node":
            return source.nodes
        case _:
            return ()


# --- conditions in words --------------------------------------------------------------------------
_KINDS: Mapping[str, Message] = {
    "http": _("HTTP"),
    "task": _("Python"),
    "flow": _("Flow"),
    "agent": _("AI prompt"),
    "sync": _("Data sync"),
    "action": _("Action"),
    "message": _("Message"),
    "command": _("Command"),
}
_ORIGINS: Mapping[str, Message] = {
    "schedule": _("schedule"),
    "manual": _("manual"),
    "backfill": _("backfill"),
    "child": _("step of a flow"),
    "event": _("event"),
}
#: Headings of the suggested conditions.
GROUPS: Mapping[str, Message] = {
    "status": _("Status"),
    "kind": _("Kind"),
    "origin": _("Origin"),
    "owner": _("Owner"),
    "next": _("Next run"),
    "since": _("Time"),
    "until": _("Time"),
}
_SPAN = re.compile(r"[0-9]{1,5}[hd]")
_LONGEST_VALUE = 48


@dataclass(frozen=True, kw_only=True, slots=True)
class ChipTexts:
    """What conditions need to be described: names of schedules, and the error of `same`."""

    display: DisplayPreferences
    now: datetime
    schedules: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


_DESCRIBED: Mapping[str, Callable[[str], Message]] = {
    "kind": lambda value: _("Kind: {value}", value=_KINDS.get(value, value)),
    "origin": lambda value: _("Origin: {value}", value=_ORIGINS.get(value, value)),
    "owner": lambda value: _("Owner: me") if value == "me" else _("Owner: {value}", value=value),
    "label": lambda value: _("Label: {value}", value=value),
    "node": lambda value: _("Node: {value}", value=value),
    "namespace": lambda value: _("Namespace: {value}", value=value),
}


def describe_chip(chip: Chip, texts: ChipTexts) -> Message | str:
    """A condition in words: `Status: failed`, `since yesterday 11:15 +07`."""
    value = chip.value if len(chip.value) <= _LONGEST_VALUE else f"{chip.value[:_LONGEST_VALUE]}…"
    if describe := _DESCRIBED.get(chip.name):
        return describe(value)
    match chip.name:
        case "status":
            return _("Status: {value}", value=_status(value, texts.display.language))
        case "next" if _SPAN.fullmatch(value.removeprefix("<")):
            span = window_name(value.removeprefix("<"), texts.display.language)
            return _("Next run within {span}", span=span)
        case "since" | "until":
            return _describe_time(chip, texts)
        case "schedule":
            return _("Schedule: {value}", value=texts.schedules.get(chip.value, value))
        case "same":
            return _("same error: {error}", error=texts.error[:_LONGEST_VALUE] or value)
        case _:
            return chip.text


def _status(value: str, language: str) -> Message | str:
    if value in tuple(RunStatus):
        return status_label(RunStatus(value), language)
    return {"enabled": _("enabled"), "paused": _("paused")}.get(value, value)


def _describe_time(chip: Chip, texts: ChipTexts) -> Message | str:
    since = chip.name == "since"
    if _SPAN.fullmatch(chip.value):
        span = window_name(chip.value, texts.display.language)
        return _("last {span}", span=span) if since else _("older than {span}", span=span)
    try:
        moment = parse_moment(chip.value)
    except InvalidInput:
        return chip.text
    zone = texts.display.zone
    local, today = moment.astimezone(zone_info(zone)), texts.now.astimezone(zone_info(zone)).date()
    clock = f"{local:%H:%M} {zone_abbreviation(local)}"
    match (today - local.date()).days:
        case 0:
            from_, to = _("since {time} today", time=clock), _("until {time} today", time=clock)
        case 1:
            from_ = _("since yesterday {time}", time=clock)
            to = _("until yesterday {time}", time=clock)
        case _:
            when = absolute(moment, zone, texts.display, now=texts.now)
            from_, to = _("since {time}", time=when), _("until {time}", time=when)
    return from_ if since else to


def suggested_chips(
    hints: Iterable[str], texts: ChipTexts
) -> dict[Message, list[tuple[str, Message | str]]]:
    """The suggested conditions by heading: the text of each, and the same in words."""
    found: dict[Message, list[tuple[str, Message | str]]] = {}
    for hint in hints:
        name, _colon, value = hint.partition(":")
        if value:
            chip = Chip(name, value)
            found.setdefault(GROUPS[name], []).append((hint, describe_chip(chip, texts)))
    return found


router = PageRouter()
#: Recently changed schedules whose labels and owners are suggested.
_MAX_SCHEDULES = 200
_MAX_WORD_LENGTH = 200
_FILTER_FIELDS = frozenset({"list", "name", "to", "q"})


def page_position(request: PageRequest, *, numbers: bool = True) -> Position | None:
    """Where the page of the URL starts. `numbers`: it is sorted by a number or a time."""
    scope = cursor_scope(request.http)
    return decode_cursor(request.query.get("cursor"), scope, numbers=numbers)


def next_page(request: PageRequest, position: Position | None) -> str:
    """URL of the page that starts there; empty if there is none."""
    if position is None:
        return ""
    cursor = encode_cursor(position, cursor_scope(request.http))
    url = request.http.url.include_query_params(cursor=cursor)
    return f"{url.path}?{url.query}"


def page_of(list_: ListName) -> str:
    return f"/ui/{list_}"


async def saved_filters_of(request: PageRequest, list_: ListName) -> tuple[SavedFilter, ...]:
    found = await request.context.saved_filters.list_filters(request.actor)
    return tuple(each for each in found if each.list is list_)


@router.post("/lists/columns")
async def columns(request: PageRequest) -> Response:
    """The checked columns; none is valid, too."""
    list_ = parse_list_name(request.form.text("list"))
    choices = with_columns(list_choices_of(request.http), list_, request.form.all("column"))
    return remember_list_choices(
        request.http, request.redirect(request.back_url(page_of(list_))), choices
    )


@router.post("/lists/density")
async def density(request: PageRequest) -> Response:
    choices = with_density(list_choices_of(request.http), request.form.text("density"))
    list_ = parse_list_name(request.form.text("list"))
    return remember_list_choices(
        request.http, request.redirect(request.back_url(page_of(list_))), choices
    )


def retry_name(title: Message, field: str) -> Callable[[Handler], Handler]:
    """Shows a form to correct an invalid name, with the input of `field`."""

    def decorate(handler: Handler) -> Handler:
        async def handle(request: PageRequest) -> Response:
            try:
                return await handler(request)
            except FORM_ERRORS as error:
                list_ = parse_list_name(request.form.text("list"))
                return render_field_retry(
                    request,
                    await request.form_error(error),
                    title=title,
                    label=_("Name"),
                    field=field,
                    back=request.back_url(page_of(list_)),
                    hidden_fields=[
                        pair for pair in request.form.items() if pair[0] in _FILTER_FIELDS - {field}
                    ],
                )

        return handle

    return decorate


@router.post("/filters/save")
@retry_name(_("Save filter"), "name")
async def save(request: PageRequest) -> Response:
    list_ = parse_list_name(request.form.text("list"))
    names = SCHEDULE_NAMES if list_ is ListName.SCHEDULES else RUN_NAMES
    text = read_filter(request.form.text("q"), names).text
    saved = await request.context.saved_filters.save(
        request.actor, list_, request.form.text("name"), text
    )
    return request.redirect_with_toast(
        _("Filter {name} saved.", name=saved.name),
        to=request.back_url(page_of(list_)),
        undo=Undo(action="/ui/filters/remove", fields={"list": list_.value, "name": saved.name}),
    )


@router.post("/filters/rename")
@retry_name(_("Rename filter"), "to")
async def rename(request: PageRequest) -> Response:
    list_, name = parse_list_name(request.form.text("list")), request.form.text("name")
    renamed = await request.context.saved_filters.rename(
        request.actor, list_, name, request.form.text("to")
    )
    return request.redirect_with_toast(
        _("Filter renamed to {name}.", name=renamed.name),
        to=request.back_url(page_of(list_)),
        undo=Undo(
            action="/ui/filters/rename",
            fields={"list": list_.value, "name": renamed.name, "to": name},
        ),
    )


@router.post("/filters/remove")
async def remove(request: PageRequest) -> Response:
    list_ = parse_list_name(request.form.text("list"))
    removed = await request.context.saved_filters.remove(
        request.actor, list_, request.form.text("name")
    )
    return request.redirect_with_toast(
        _("Filter {name} removed.", name=removed.name),
        to=request.back_url(page_of(list_)),
        undo=Undo(
            action="/ui/filters/save",
            fields={"list": list_.value, "name": removed.name, "q": removed.text},
        ),
    )


@router.get("/filters/complete")
async def complete(request: PageRequest) -> Response:
    """Completions of the word at the cursor."""
    list_ = parse_list_name(request.query.get("list", ""))
    word = request.query.get("word", "")[:_MAX_WORD_LENGTH]
    name, _colon, prefix = word.partition(":")
    source = await _completion_source(request, name, prefix)
    return JSONResponse({"items": completions(word, list_, source)})


async def _completion_source(request: PageRequest, name: str, prefix: str) -> CompletionSource:
    """The objects that the actor may see and whose values complete the condition `name`."""
    match name:
        case "label" | "owner" | "namespace":
            query = ScheduleQuery(
                sort=ScheduleSort.UPDATED_AT, descending=True, limit=_MAX_SCHEDULES
            )
            found = await request.context.schedules.find(request.actor, query)
            return CompletionSource(schedules=found.items)
        case "schedule":
            text = prefix.removeprefix('"')
            query = ScheduleQuery(text=text, sort=ScheduleSort.NAME, limit=MAX_COMPLETIONS)
            found = await request.context.schedules.find(request.actor, query)
            return CompletionSource(schedules=found.items)
        case "node" if request.actor.sees_everything:
            return CompletionSource(
                nodes=tuple(
                    each.id for each in await request.context.nodes.list_nodes(request.actor)
                )
            )
        case _:
            return CompletionSource()


_FILTER_TITLES: Mapping[ListName, Callable[[str], Message]] = {
    ListName.SCHEDULES: lambda name: _("★ {name} (schedules)", name=name),
    ListName.RUNS: lambda name: _("★ {name} (runs)", name=name),
}


@router.get("/palette")
async def palette(request: PageRequest) -> Response:
    """Schedules and saved filters by name; the page itself contains pages and actions."""
    text = request.query.get("q", "").strip()[:_MAX_WORD_LENGTH]
    if not text or "\0" in text:
        return JSONResponse({"items": []})
    query = ScheduleQuery(text=text, sort=ScheduleSort.NAME, limit=MAX_COMPLETIONS)
    found = await request.context.schedules.find(request.actor, query)
    items = [
        {"title": each.name, "address": f"/ui/schedules/{quote(each.id, safe='')}"}
        for each in found.items
    ]
    return JSONResponse({"items": await _matching_filters(request, text) + items})


async def _matching_filters(request: PageRequest, text: str) -> list[dict[str, str]]:
    found = await request.context.saved_filters.list_filters(request.actor)
    language = request.display.language
    return [
        {
            "title": in_language(_FILTER_TITLES[each.list](each.name), language),
            "address": f"/ui/{each.list}?{urlencode({'q': each.text})}",
        }
        for each in found
        if text.casefold() in each.name.casefold()
    ][:MAX_COMPLETIONS]


# --- export ---------------------------------------------------------------------------------------
#: Limit of rows in one file, and rows per query.
MAX_EXPORTED, EXPORT_BATCH = 100_000, 500
_MEDIA_TYPES = {"csv": "text/csv; charset=utf-8", "ndjson": "application/x-ndjson"}
#: Spreadsheets execute cells that start with one of these as formulas.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def file_response(
    request: PageRequest, name: str, suffix: str, parts: AsyncIterator[str]
) -> Response:
    """Streams `parts` as a download named after the list and the current time."""
    filename = f"{name}-{request.now:%Y%m%dT%H%M%SZ}.{suffix}"
    return StreamingResponse(
        parts,
        media_type=_MEDIA_TYPES[suffix],
        headers={"Content-Disposition": f'attachment; filename="{filename}"'},
    )


def csv_cell(value: object) -> str:
    """Returns the text of a cell, escaped so that no spreadsheet executes it as a formula."""
    if value is None:
        return ""
    if isinstance(value, int | float):
        return str(value)
    text = str(value)
    # Spreadsheets ignore spaces before a formula.
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) or text[:1] in _FORMULA else text


def csv_text(rows: Iterable[Iterable[str]]) -> str:
    file = io.StringIO()
    csv.writer(file).writerows(rows)
    return file.getvalue()
