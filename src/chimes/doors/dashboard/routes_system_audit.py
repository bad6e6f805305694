"""System, audit: who did what, and whether the chain holds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from urllib.parse import urlencode

from starlette.responses import Response, StreamingResponse

from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.routes_system import operators_only
from chimes.doors.dashboard.views_system_audit import (
    DOORS,
    Verified,
    audit_query,
    audit_rows,
    csv_head,
    csv_lines,
    json_lines,
    verbs_offered,
    verified_from,
    wanted_in,
)
from chimes.doors.dashboard.visit import Visit
from chimes.errors import InvalidInput
from chimes.model.audit import AuditEntry
from chimes.model.listing import AuditQuery
from chimes.service.audit import verified_chain
from chimes.wording import counted, say

pages = Pages()
HERE = "/ui/system/audit"
_PAGE = 50
_MOST_EXPORTED = 100_000
_AT_ONCE = 500
#: Where the last look at the whole chain is remembered.
VERIFIED = "audit:verified"
Lines = Callable[[Sequence[AuditEntry]], str]


@pages.get("/system/audit")
async def audit(visit: Visit) -> Response:
    operators_only(visit)
    wanted = wanted_in(visit.query)
    store = visit.door.store
    wrong, query = "", AuditQuery()
    try:
        query = audit_query(wanted, visit.look.zone)
    except InvalidInput as error:
        wrong = error.message
    before = visit.query.get("before", "")
    found = await store.list_audit(
        replace(query, before=int(before) if before.isdecimal() else None, limit=_PAGE + 1)
    )
    shown = found[:_PAGE]
    more = ""
    if len(found) > _PAGE:
        more = f"{HERE}?{urlencode(wanted | {'before': str(shown[-1].number)})}"
    kept = await store.read_state(VERIFIED)
    return visit.page_or_part(
        "system/audit.html",
        "rows",
        # Neighbours can be held against each other only where nothing is left out between them.
        entries=audit_rows(found, whole=not wanted)[:_PAGE],
        wanted=wanted,
        wrong=wrong,
        doors=DOORS,
        verbs=verbs_offered(wanted.get("verb", "")),
        export=urlencode(wanted),
        more=more,
        verified=None if kept is None else verified_from(kept.value, kept.changed_at),
    )


@pages.get("/system/audit.ndjson")
async def as_ndjson(visit: Visit) -> Response:
    """All entries that match, newest first, one JSON object a line."""
    return await _file(visit, "ndjson", "application/x-ndjson", json_lines, "")


@pages.get("/system/audit.csv")
async def as_csv(visit: Visit) -> Response:
    return await _file(visit, "csv", "text/csv; charset=utf-8", csv_lines, csv_head())


@pages.post("/system/audit/verify")
async def verify(visit: Visit) -> Response:
    operators_only(visit)
    found = await verified_chain(visit.door.store)
    verdict = Verified(ok=found.ok, checked=found.checked, first_bad=found.first_bad)
    await visit.door.store.set_state(VERIFIED, verdict.packed())
    if found.ok:
        text = counted(
            "The chain of {count} entry is unbroken.",
            "The chain of {count} entries is unbroken.",
            found.checked,
        )
        return visit.done(text, to=HERE)
    text = say("The chain is broken at entry {number}.", number=found.first_bad)
    return visit.done(text, to=HERE, kind="error")


async def _file(visit: Visit, ending: str, kind: str, lines: Lines, head: str) -> Response:
    operators_only(visit)
    query = audit_query(wanted_in(visit.query), visit.look.zone)
    return StreamingResponse(
        _written(visit, query, lines, head),
        media_type=kind,
        headers={"Content-Disposition": f'attachment; filename="{_name(visit.now, ending)}"'},
    )


def _name(now: datetime, ending: str) -> str:
    return f"audit-{now:%Y%m%dT%H%M%SZ}.{ending}"


async def _written(visit: Visit, query: AuditQuery, lines: Lines, head: str) -> AsyncIterator[str]:
    if head:
        yield head
    written = 0
    while written < _MOST_EXPORTED:
        found = await visit.door.store.list_audit(replace(query, limit=_AT_ONCE))
        if found:
            yield lines(found)
        written += len(found)
        if len(found) < _AT_ONCE:
            return
        query = replace(query, before=found[-1].number)
