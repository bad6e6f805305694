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
from chimes.services.preferences import ListName, SavedFilter, SavedFilters
from chimes.web.dashboard.core.filters import (
    KINDS,
    RUN_NAMES,
    SCHEDULE_NAMES,
    SCHEDULE_STATES,
    Chip,
    read_filter,
)
from chimes.web.dashboard.core.flash import Undo
from chimes.web.dashboard.core.forms import REFUSALS
from chimes.web.dashboard.core.page_request import PageRequest, asked_again
from chimes.web.dashboard.core.preferences import (
    chosen_in_list_choices,
    list_named,
    remembered,
    with_columns,
)
from chimes.web.dashboard.core.router import Handler, Pages

# @@ What a word in a filter's box could become; pure.

MOST = 8
_LENGTHS = ("1h", "24h", "7d", "30d")


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """What there is, as far as the word asks for it."""

    schedules: Sequence[Schedule] = ()
    nodes: Sequence[str] = ()


def completions(word: str, list_: ListName, known: Known) -> list[dict[str, str]]:
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


def _values(name: str, list_: ListName, known: Known) -> Iterable[str]:
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


pages = Pages()
#: Schedules among whose labels and owners is looked for what could be meant.
_LOOKED_AT = 200
_LONGEST_WORD = 200
#: What forms say about a filter.
_ABOUT = frozenset({"list", "name", "to", "q"})


def page_of(list_: ListName) -> str:
    return f"/ui/{list_}"


async def saved_in(visit: PageRequest, list_: ListName) -> tuple[SavedFilter, ...]:
    found = await SavedFilters(visit.door.store).of(visit.actor)
    return tuple(each for each in found if each.list is list_)


@pages.post("/lists/columns")
async def columns(visit: PageRequest) -> Response:
    """Those that are ticked; none at all is what somebody may want on a phone."""
    list_ = list_named(visit.form.text("list"))
    choices = with_columns(chosen_in_list_choices(visit.request), list_, visit.form.all("column"))
    return remembered(visit.request, visit.redirect(visit.back(page_of(list_))), choices)


def named_again(title: Message, field: str) -> Callable[[Handler], Handler]:
    """A name that is refused is asked for again, as it was typed in `field`."""

    def around(act: Handler) -> Handler:
        async def answer(visit: PageRequest) -> Response:
            try:
                return await act(visit)
            except REFUSALS as error:
                why = await visit.refused(error)
                list_ = list_named(visit.form.text("list"))
                return asked_again(
                    visit,
                    why,
                    title=title,
                    label=_("Name"),
                    field=field,
                    back=visit.back(page_of(list_)),
                    others=[pair for pair in visit.form.items() if pair[0] in _ABOUT - {field}],
                )

        return answer

    return around


@pages.post("/filters/save")
@named_again(_("Save this filter"), "name")
async def save(visit: PageRequest) -> Response:
    list_ = list_named(visit.form.text("list"))
    names = SCHEDULE_NAMES if list_ is ListName.SCHEDULES else RUN_NAMES
    text = read_filter(visit.form.text("q"), names).text
    saved = await SavedFilters(visit.door.store).save(
        visit.actor, list_, visit.form.text("name"), text
    )
    return visit.done(
        _("The filter is saved as {name}.", name=saved.name),
        to=visit.back(page_of(list_)),
        undo=Undo(action="/ui/filters/remove", fields={"list": list_.value, "name": saved.name}),
    )


@pages.post("/filters/rename")
@named_again(_("Rename the filter"), "to")
async def rename(visit: PageRequest) -> Response:
    list_, name = list_named(visit.form.text("list")), visit.form.text("name")
    renamed = await SavedFilters(visit.door.store).rename(
        visit.actor, list_, name, visit.form.text("to")
    )
    return visit.done(
        _("The filter is called {name} now.", name=renamed.name),
        to=visit.back(page_of(list_)),
        undo=Undo(
            action="/ui/filters/rename",
            fields={"list": list_.value, "name": renamed.name, "to": name},
        ),
    )


@pages.post("/filters/remove")
async def remove(visit: PageRequest) -> Response:
    list_ = list_named(visit.form.text("list"))
    gone = await SavedFilters(visit.door.store).remove(visit.actor, list_, visit.form.text("name"))
    return visit.done(
        _("The filter {name} was removed.", name=gone.name),
        to=visit.back(page_of(list_)),
        undo=Undo(
            action="/ui/filters/save",
            fields={"list": list_.value, "name": gone.name, "q": gone.text},
        ),
    )


@pages.get("/filters/complete")
async def complete(visit: PageRequest) -> Response:
    """What the word under the caret could become."""
    list_ = list_named(visit.query.get("list", ""))
    word = visit.query.get("word", "")[:_LONGEST_WORD]
    known = await _known(visit, word.partition(":")[0], word.partition(":")[2])
    return JSONResponse({"items": completions(word, list_, known)})


async def _known(visit: PageRequest, name: str, begun: str) -> Known:
    """What there is of that name, of those things that the actor may see."""
    match name:
        case "label" | "owner" | "namespace":
            query = ScheduleQuery(sort=ScheduleSort.UPDATED_AT, descending=True, limit=_LOOKED_AT)
            found = await visit.door.schedules.find(visit.actor, query)
            return Known(schedules=found.items)
        case "schedule":
            text = begun.removeprefix('"')
            query = ScheduleQuery(text=text, sort=ScheduleSort.NAME, limit=8)
            found = await visit.door.schedules.find(visit.actor, query)
            return Known(schedules=found.items)
        case "node" if visit.actor.sees_everything:
            return Known(nodes=tuple(each.id for each in await visit.door.store.nodes()))
        case _:
            return Known()


# @@ What the command palette finds: schedules and saved filters by name. Pages and actions are in
# the page itself.

_FILTER: Mapping[ListName, Callable[[str], Message]] = {
    ListName.SCHEDULES: lambda name: _("★ {name} (schedules)", name=name),
    ListName.RUNS: lambda name: _("★ {name} (runs)", name=name),
}
_MOST = 8
_LONGEST = 200


@pages.get("/palette")
async def palette(visit: PageRequest) -> Response:
    text = visit.query.get("q", "").strip()[:_LONGEST]
    if not text or "\0" in text:
        return JSONResponse({"items": []})
    query = ScheduleQuery(text=text, sort=ScheduleSort.NAME, limit=_MOST)
    found = await visit.door.schedules.find(visit.actor, query)
    items = [
        {"title": each.name, "address": f"/ui/schedules/{quote(each.id, safe='')}"}
        for each in found.items
    ]
    return JSONResponse({"items": await _filters(visit, text) + items})


async def _filters(visit: PageRequest, text: str) -> list[dict[str, str]]:
    found = await SavedFilters(visit.door.store).of(visit.actor)
    language = visit.look.language
    return [
        {
            "title": in_language(_FILTER[each.list](each.name), language),
            "address": f"/ui/{each.list}?{urlencode({'q': each.text})}",
        }
        for each in found
        if text.casefold() in each.name.casefold()
    ][:_MOST]
