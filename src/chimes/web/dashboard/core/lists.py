"""What the lists have in common: saved filters, the columns that are shown, and what can be typed
into their boxes (UX A.0)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from starlette.responses import JSONResponse, Response

from chimes.i18n import Message, _, in_language
from chimes.model.listing import ScheduleQuery, ScheduleSort
from chimes.model.run import Origin, RunStatus
from chimes.model.schedule import Schedule
from chimes.services.preferences import ListName, SavedFilter
from chimes.web.dashboard.core.filters import (
    KINDS,
    RUN_NAMES,
    SCHEDULE_NAMES,
    SCHEDULE_STATES,
    Chip,
    read_filter,
)
from chimes.web.dashboard.core.flash import Undo
from chimes.web.dashboard.core.forms import FORM_ERRORS
from chimes.web.dashboard.core.page_request import PageRequest, render_field_retry
from chimes.web.dashboard.core.preferences import (
    list_choices_of,
    parse_list_name,
    remember_list_choices,
    with_columns,
)
from chimes.web.dashboard.core.router import Handler, PageRouter

# @@ What a word in a filter's box could become; pure.

MOST = 8
_LENGTHS = ("1h", "24h", "7d", "30d")


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletionSource:
    """What there is, as far as the word asks for it."""

    schedules: Sequence[Schedule] = ()
    nodes: Sequence[str] = ()


def completions(word: str, list_: ListName, known: CompletionSource) -> list[dict[str, str]]:
    """At most `MOST`: `text` to put in place of the word, `title` to choose it by."""
    names = SCHEDULE_NAMES if list_ is ListName.SCHEDULES else RUN_NAMES
    name, colon, begun = word.partition(":")
    if not colon:
        found = [(f"{each}:", f"{each}:") for each in names if each.startswith(name)]
        return _shown(found if word else found[:MOST])
    if name not in names:
        return []
    if name == "schedule":
        return _shown((Chip(name, each.id).text, each.name) for each in known.schedules)
    begun = begun.removeprefix('"').removesuffix('"').casefold()
    texts = (
        Chip(name, value).text
        for value in _values(name, list_, known)
        if value.casefold().startswith(begun)
    )
    return _shown((text, text) for text in texts)


def _shown(found: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"text": text, "title": title} for text, title in dict.fromkeys(found)][:MOST]


def _values(name: str, list_: ListName, known: CompletionSource) -> Iterable[str]:
    match name:
        case "status":
            return SCHEDULE_STATES if list_ is ListName.SCHEDULES else tuple(RunStatus)
        case "kind":
            return KINDS
        case "origin":
            return tuple(Origin)
        case "next":
            return tuple(f"<{each}" for each in _LENGTHS)
        case "since" | "until":
            return _LENGTHS
        case "owner":
            return ("me", *sorted({str(each.owner) for each in known.schedules}))
        case "namespace":
            return sorted({each.namespace for each in known.schedules})
        case "label":
            labels = {pair for each in known.schedules for pair in each.labels.items()}
            found = {key if value is None else f"{key}={value}" for key, value in labels}
            return sorted(found | {key for key, _unused in labels})
        case "node":
            return known.nodes
        case _:
            return ()


router = PageRouter()
#: Schedules among whose labels and owners is looked for what could be meant.
_LOOKED_AT = 200
_LONGEST_WORD = 200
#: What forms say about a filter.
_ABOUT = frozenset({"list", "name", "to", "q"})


def page_of(list_: ListName) -> str:
    return f"/ui/{list_}"


async def saved_filters_of(request: PageRequest, list_: ListName) -> tuple[SavedFilter, ...]:
    found = await request.context.saved_filters.of(request.actor)
    return tuple(each for each in found if each.list is list_)


@router.post("/lists/columns")
async def columns(request: PageRequest) -> Response:
    """Those that are ticked; none at all is what somebody may want on a phone."""
    list_ = parse_list_name(request.form.text("list"))
    choices = with_columns(list_choices_of(request.http), list_, request.form.all("column"))
    return remember_list_choices(
        request.http, request.redirect(request.back_url(page_of(list_))), choices
    )


def retry_name(title: Message, field: str) -> Callable[[Handler], Handler]:
    """A name that is refused is asked for again, as it was typed in `field`."""

    def around(act: Handler) -> Handler:
        async def answer(request: PageRequest) -> Response:
            try:
                return await act(request)
            except FORM_ERRORS as error:
                why = await request.form_error(error)
                list_ = parse_list_name(request.form.text("list"))
                return render_field_retry(
                    request,
                    why,
                    title=title,
                    label=_("Name"),
                    field=field,
                    back=request.back_url(page_of(list_)),
                    hidden_fields=[
                        pair for pair in request.form.items() if pair[0] in _ABOUT - {field}
                    ],
                )

        return answer

    return around


@router.post("/filters/save")
@retry_name(_("Save this filter"), "name")
async def save(request: PageRequest) -> Response:
    list_ = parse_list_name(request.form.text("list"))
    names = SCHEDULE_NAMES if list_ is ListName.SCHEDULES else RUN_NAMES
    text = read_filter(request.form.text("q"), names).text
    saved = await request.context.saved_filters.save(
        request.actor, list_, request.form.text("name"), text
    )
    return request.redirect_with_toast(
        _("The filter is saved as {name}.", name=saved.name),
        to=request.back_url(page_of(list_)),
        undo=Undo(action="/ui/filters/remove", fields={"list": list_.value, "name": saved.name}),
    )


@router.post("/filters/rename")
@retry_name(_("Rename the filter"), "to")
async def rename(request: PageRequest) -> Response:
    list_, name = parse_list_name(request.form.text("list")), request.form.text("name")
    renamed = await request.context.saved_filters.rename(
        request.actor, list_, name, request.form.text("to")
    )
    return request.redirect_with_toast(
        _("The filter is called {name} now.", name=renamed.name),
        to=request.back_url(page_of(list_)),
        undo=Undo(
            action="/ui/filters/rename",
            fields={"list": list_.value, "name": renamed.name, "to": name},
        ),
    )


@router.post("/filters/remove")
async def remove(request: PageRequest) -> Response:
    list_ = parse_list_name(request.form.text("list"))
    gone = await request.context.saved_filters.remove(
        request.actor, list_, request.form.text("name")
    )
    return request.redirect_with_toast(
        _("The filter {name} was removed.", name=gone.name),
        to=request.back_url(page_of(list_)),
        undo=Undo(
            action="/ui/filters/save",
            fields={"list": list_.value, "name": gone.name, "q": gone.text},
        ),
    )


@router.get("/filters/complete")
async def complete(request: PageRequest) -> Response:
    """What the word under the caret could become."""
    list_ = parse_list_name(request.query.get("list", ""))
    word = request.query.get("word", "")[:_LONGEST_WORD]
    known = await _known(request, word.partition(":")[0], word.partition(":")[2])
    return JSONResponse({"items": completions(word, list_, known)})


async def _known(request: PageRequest, name: str, begun: str) -> CompletionSource:
    """What there is of that name, of those things that the actor may see."""
    match name:
        case "label" | "owner" | "namespace":
            query = ScheduleQuery(sort=ScheduleSort.UPDATED_AT, descending=True, limit=_LOOKED_AT)
            found = await request.context.schedules.find(request.actor, query)
            return CompletionSource(schedules=found.items)
        case "schedule":
            text = begun.removeprefix('"')
            query = ScheduleQuery(text=text, sort=ScheduleSort.NAME, limit=8)
            found = await request.context.schedules.find(request.actor, query)
            return CompletionSource(schedules=found.items)
        case "node" if request.actor.sees_everything:
            return CompletionSource(
                nodes=tuple(each.id for each in await request.context.store.nodes())
            )
        case _:
            return CompletionSource()


# @@ What the command palette finds: schedules and saved filters by name. PageRouter and actions are in
# the page itself.

_FILTER: Mapping[ListName, Callable[[str], Message]] = {
    ListName.SCHEDULES: lambda name: _("★ {name} (schedules)", name=name),
    ListName.RUNS: lambda name: _("★ {name} (runs)", name=name),
}
_MOST = 8
_LONGEST = 200


@router.get("/palette")
async def palette(request: PageRequest) -> Response:
    text = request.query.get("q", "").strip()[:_LONGEST]
    if not text or "\0" in text:
        return JSONResponse({"items": []})
    query = ScheduleQuery(text=text, sort=ScheduleSort.NAME, limit=_MOST)
    found = await request.context.schedules.find(request.actor, query)
    items = [
        {"title": each.name, "address": f"/ui/schedules/{quote(each.id, safe='')}"}
        for each in found.items
    ]
    return JSONResponse({"items": await _filters(request, text) + items})


async def _filters(request: PageRequest, text: str) -> list[dict[str, str]]:
    found = await request.context.saved_filters.of(request.actor)
    language = request.display.language
    return [
        {
            "title": in_language(_FILTER[each.list](each.name), language),
            "address": f"/ui/{each.list}?{urlencode({'q': each.text})}",
        }
        for each in found
        if text.casefold() in each.name.casefold()
    ][:_MOST]
