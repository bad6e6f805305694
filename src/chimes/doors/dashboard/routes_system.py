"""System: stub of the frame, to be replaced by the page's owner."""

from __future__ import annotations

from starlette.responses import Response

from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.visit import Visit

pages = Pages()


@pages.get("/system")
async def system(visit: Visit) -> Response:
    return visit.page("system/page.html")
