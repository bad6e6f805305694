"""What the lists have in common: saved filters, the columns that are shown, and what can be typed
into their boxes (UX A.0)."""

from __future__ import annotations

from collections.abc import Callable

from starlette.responses import JSONResponse, Response

from chimes.doors.dashboard.asking_again import asked_again
from chimes.doors.dashboard.filters import RUN_NAMES, SCHEDULE_NAMES, read_filter
from chimes.doors.dashboard.flash import Undo
from chimes.doors.dashboard.list_choices import (
    chosen_in,
    list_named,
    remembered,
    with_columns,
)
from chimes.doors.dashboard.pages import Handler, Pages
from chimes.doors.dashboard.refusing import REFUSALS
from chimes.doors.dashboard.views_completion import Known, completions
from chimes.doors.dashboard.visit import Visit
from chimes.model.listing import ScheduleQuery, ScheduleSort
from chimes.service.saved_filters import ListName, SavedFilter, SavedFilters
from chimes.wording import Wording, say

pages = Pages()
#: Schedules among whose labels and owners is looked for what could be meant.
_LOOKED_AT = 200
_LONGEST_WORD = 200
#: What forms say about a filter.
_ABOUT = frozenset({"list", "name", "to", "q"})


def page_of(list_: ListName) -> str:
    return f"/ui/{list_}"


async def saved_in(visit: Visit, list_: ListName) -> tuple[SavedFilter, ...]:
    found = await SavedFilters(visit.door.store).of(visit.actor)
    return tuple(each for each in found if each.list is list_)


@pages.post("/lists/columns")
async def columns(visit: Visit) -> Response:
    """Those that are ticked; none at all is what somebody may want on a phone."""
    list_ = list_named(visit.form.text("list"))
    choices = with_columns(chosen_in(visit.request), list_, visit.form.all("column"))
    return remembered(visit.request, visit.redirect(visit.back(page_of(list_))), choices)


def named_again(title: Wording, field: str) -> Callable[[Handler], Handler]:
    """A name that is refused is asked for again, as it was typed in `field`."""

    def around(act: Handler) -> Handler:
        async def answer(visit: Visit) -> Response:
            try:
                return await act(visit)
            except REFUSALS as error:
                why = await visit.refused(error)
                list_ = list_named(visit.form.text("list"))
                return asked_again(
                    visit,
                    why,
                    title=title,
                    label=say("Name"),
                    field=field,
                    back=visit.back(page_of(list_)),
                    others=[pair for pair in visit.form.items() if pair[0] in _ABOUT - {field}],
                )

        return answer

    return around


@pages.post("/filters/save")
@named_again(say("Save this filter"), "name")
async def save(visit: Visit) -> Response:
    list_ = list_named(visit.form.text("list"))
    names = SCHEDULE_NAMES if list_ is ListName.SCHEDULES else RUN_NAMES
    text = read_filter(visit.form.text("q"), names).text
    saved = await SavedFilters(visit.door.store).save(
        visit.actor, list_, visit.form.text("name"), text
    )
    return visit.done(
        say("The filter is saved as {name}.", name=saved.name),
        to=visit.back(page_of(list_)),
        undo=Undo(action="/ui/filters/remove", fields={"list": list_.value, "name": saved.name}),
    )


@pages.post("/filters/rename")
@named_again(say("Rename the filter"), "to")
async def rename(visit: Visit) -> Response:
    list_, name = list_named(visit.form.text("list")), visit.form.text("name")
    renamed = await SavedFilters(visit.door.store).rename(
        visit.actor, list_, name, visit.form.text("to")
    )
    return visit.done(
        say("The filter is called {name} now.", name=renamed.name),
        to=visit.back(page_of(list_)),
        undo=Undo(
            action="/ui/filters/rename",
            fields={"list": list_.value, "name": renamed.name, "to": name},
        ),
    )


@pages.post("/filters/remove")
async def remove(visit: Visit) -> Response:
    list_ = list_named(visit.form.text("list"))
    gone = await SavedFilters(visit.door.store).remove(visit.actor, list_, visit.form.text("name"))
    return visit.done(
        say("The filter {name} was removed.", name=gone.name),
        to=visit.back(page_of(list_)),
        undo=Undo(
            action="/ui/filters/save",
            fields={"list": list_.value, "name": gone.name, "q": gone.text},
        ),
    )


@pages.get("/filters/complete")
async def complete(visit: Visit) -> Response:
    """What the word under the caret could become."""
    list_ = list_named(visit.query.get("list", ""))
    word = visit.query.get("word", "")[:_LONGEST_WORD]
    known = await _known(visit, word.partition(":")[0], word.partition(":")[2])
    return JSONResponse({"items": completions(word, list_, known)})


async def _known(visit: Visit, name: str, begun: str) -> Known:
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
