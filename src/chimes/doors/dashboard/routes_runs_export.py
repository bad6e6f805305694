"""Runs as a file: all that match the filter, a page at a time, up to a bound."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from starlette.responses import Response, StreamingResponse

from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.routes_runs import asked_in, matching
from chimes.doors.dashboard.views_runs import Asked
from chimes.doors.dashboard.views_runs_export import csv_head, csv_lines, json_lines
from chimes.doors.dashboard.visit import Visit
from chimes.errors import InvalidInput
from chimes.model.listing import Position
from chimes.model.run import Run

pages = Pages()
MOST_EXPORTED = 100_000
_AT_ONCE = 500
Lines = Callable[[Sequence[Run], str], str]


@pages.get("/runs/export.csv")
async def as_csv(visit: Visit) -> Response:
    return await _file(visit, "csv", "text/csv; charset=utf-8", csv_lines, csv_head())


@pages.get("/runs/export.ndjson")
async def as_ndjson(visit: Visit) -> Response:
    return await _file(visit, "ndjson", "application/x-ndjson", json_lines, "")


async def _file(visit: Visit, ending: str, kind: str, lines: Lines, head: str) -> Response:
    asked = await asked_in(visit, visit.query.get("q", ""))
    if asked.filter.wrong:
        raise InvalidInput(asked.filter.wrong[0], field="q", code="bad_filter", source="query")
    name = f"runs-{visit.now:%Y%m%dT%H%M%SZ}.{ending}"
    return StreamingResponse(
        _written(visit, asked, lines, head),
        media_type=kind,
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


async def _written(visit: Visit, asked: Asked, lines: Lines, head: str) -> AsyncIterator[str]:
    if head:
        yield head
    after: Position | None = None
    written = 0
    while written < MOST_EXPORTED:
        found = await matching(visit, asked, after=after, limit=_AT_ONCE)
        batch = found.items[: MOST_EXPORTED - written]
        written += len(batch)
        if batch:
            yield lines(batch, visit.look.language)
        after = found.next
        if after is None:
            return
