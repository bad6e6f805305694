"""The route of the Catbird API: a list of all schedules that the caller may see."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import JSONResponse, Response

from chimes.model import replace
from chimes.model.listing import ScheduleQuery, ScheduleSort
from chimes.web.compat.base import CompatRouter
from chimes.web.compat.catbird.translate import PAGE, Row, row_from_schedule
from chimes.web.problems import native_response
from chimes.web.requests import WebContext, authenticate

INTERFACE = "catbird"


def catbird_router(context: WebContext) -> CompatRouter:
    """Errors are native problems: Catbird defines no error format."""
    router = CompatRouter(interface=INTERFACE, prefixes=["/api/schedules"], render=native_response)

    async def schedules(request: Request) -> Response:
        """List all schedules by next run; those without one come last."""
        actor = await authenticate(request, interface=INTERFACE)
        rows: list[Row] = []
        query = ScheduleQuery(sort=ScheduleSort.NEXT_RUN_AT, limit=PAGE)
        while True:
            page = await context.schedules.find(actor, query)
            rows.extend(row_from_schedule(schedule) for schedule in page.items)
            if page.next is None:
                return JSONResponse(rows)
            query = replace(query, after=page.next)

    router.add_api_route("/api/schedules", schedules, methods=["GET"], response_model=None)
    return router
