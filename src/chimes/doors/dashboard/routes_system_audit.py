"""System, audit: who did what, and whether the chain holds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from urllib.parse import urlencode

from starlette.responses import PlainTextResponse, Response

from chimes.doors.api.wire_runs import audit_out
from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.routes_system import operators_only
from chimes.doors.dashboard.views_system import changes_of, page_of
from chimes.doors.dashboard.visit import Visit
from chimes.model.audit import AuditEntry
from chimes.model.listing import AuditQuery
from chimes.service.audit import verified_chain
from chimes.wording import counted, say

pages = Pages()
_FIELDS = ("actor", "verb", "object_id", "door")
_PAGE = 50
_MOST_EXPORTED = 10_000


@pages.get("/system/audit")
async def audit(visit: Visit) -> Response:
    operators_only(visit)
    wanted = _wanted(visit)
    before = visit.query.get("before", "")
    found = await visit.door.store.list_audit(
        replace(_query(wanted), before=int(before) if before.isdigit() else None, limit=_PAGE + 1)
    )
    shown = found[:_PAGE]
    more = ""
    if len(found) > _PAGE:
        more = f"/ui/system/audit?{urlencode(wanted | {'before': str(shown[-1].number)})}"
    return visit.page_or_part(
        "system/audit.html",
        "rows",
        entries=[(entry, changes_of(entry), page_of(entry)) for entry in shown],
        wanted=wanted,
        export=f"/ui/system/audit.ndjson?{urlencode(wanted)}",
        more=more,
    )


@pages.get("/system/audit.ndjson")
async def export(visit: Visit) -> Response:
    """The newest entries that match, one JSON object a line."""
    operators_only(visit)
    found = await visit.door.store.list_audit(replace(_query(_wanted(visit)), limit=_MOST_EXPORTED))
    return PlainTextResponse(
        "".join(_lines(found)),
        media_type="application/x-ndjson",
        headers={"Content-Disposition": 'attachment; filename="audit.ndjson"'},
    )


@pages.post("/system/audit/verify")
async def verify(visit: Visit) -> Response:
    operators_only(visit)
    found = await verified_chain(visit.door.store)
    if found.ok:
        text = counted(
            "The chain of {count} entry is unbroken.",
            "The chain of {count} entries is unbroken.",
            found.checked,
        )
        return visit.done(text, to="/ui/system/audit")
    text = say("The chain is broken at entry {number}.", number=found.first_bad)
    return visit.done(text, to="/ui/system/audit", kind="error")


def _wanted(visit: Visit) -> dict[str, str]:
    return {name: text for name in _FIELDS if (text := visit.query.get(name, "").strip())}


def _query(wanted: Mapping[str, str]) -> AuditQuery:
    return AuditQuery(
        actor=wanted.get("actor"),
        verb=wanted.get("verb"),
        object_id=wanted.get("object_id"),
        door=wanted.get("door"),
    )


def _lines(entries: tuple[AuditEntry, ...]) -> Iterator[str]:
    for entry in entries:
        yield json.dumps(audit_out(entry), ensure_ascii=False) + "\n"
