"""What the command palette finds: schedules and saved filters by name. Pages and actions are in the
page itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import quote, urlencode

from starlette.responses import JSONResponse, Response

from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.visit import Visit
from chimes.model.listing import ScheduleQuery, ScheduleSort
from chimes.service.saved_filters import ListName, SavedFilters
from chimes.wording import Wording, in_language, say

pages = Pages()
_FILTER: Mapping[ListName, Callable[[str], Wording]] = {
    ListName.SCHEDULES: lambda name: say("★ {name} (schedules)", name=name),
    ListName.RUNS: lambda name: say("★ {name} (runs)", name=name),
}
_MOST = 8
_LONGEST = 200


@pages.get("/palette")
async def palette(visit: Visit) -> Response:
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


async def _filters(visit: Visit, text: str) -> list[dict[str, str]]:
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
