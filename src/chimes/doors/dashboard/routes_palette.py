"""What the command palette finds: schedules by name. Pages and actions are in the page itself."""

from __future__ import annotations

from urllib.parse import quote

from starlette.responses import JSONResponse, Response

from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.visit import Visit
from chimes.model.listing import ScheduleQuery, ScheduleSort

pages = Pages()
_MOST = 8
_LONGEST = 200


@pages.get("/palette")
async def palette(visit: Visit) -> Response:
    text = visit.query.get("q", "").strip()[:_LONGEST]
    if not text or "\0" in text:
        return JSONResponse({"items": []})
    query = ScheduleQuery(text=text, sort=ScheduleSort.NAME, limit=_MOST)
    found = await visit.door.schedules.find(visit.actor, query)
    return JSONResponse(
        {
            "items": [
                {"title": each.name, "address": f"/ui/schedules/{quote(each.id, safe='')}"}
                for each in found.items
            ]
        }
    )
