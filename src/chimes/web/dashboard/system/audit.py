"""System, audit: who did what, and whether the chain holds."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from itertools import zip_longest
from urllib.parse import urlencode

from starlette.responses import Response, StreamingResponse

from chimes.errors import InvalidInput
from chimes.i18n import _, counted
from chimes.model.audit import AuditEntry, entry_hash, follows
from chimes.model.listing import AuditQuery
from chimes.services.audit import verified_chain
from chimes.web.api.translate import audit_out, moment_from
from chimes.web.dashboard.core.page_request import PageRequest
from chimes.web.dashboard.core.router import PageRouter
from chimes.web.dashboard.core.templates import VERB_LABELS
from chimes.web.dashboard.runs.views import cell
from chimes.web.dashboard.system.routes import operators_only
from chimes.web.dashboard.system.views import Change, changes_of, page_of

# @@ The audit as people read it: filters, rows with what changed, files. Nothing asks a store.

_WORDS = ("actor", "verb", "object_id", "interface")
_DAYS = ("from", "to")
#: Labels of the interfaces.
INTERFACES = {
    "dashboard": _("web"),
    "native": _("API"),
    "cli": _("CLI"),
    "telegram": _("Telegram"),
    "mcp": _("MCP"),
    "sdk": _("SDK"),
    "config": _("chimes.yaml"),
    "engine": _("system"),
    "sql": _("SQL views"),
    "ksana": _("Ksana API"),
    "catbird": _("Catbird API"),
    "eventnative": _("EventNative API"),
    "softnix": _("Softnix API"),
    "kweaver": _("KWeaver API"),
}
_COLUMNS = (
    "number", "at", "actor", "interface", "address", "verb", "object_kind", "object_id", "owner",
    "allowed", "reason", "changes", "hash",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditRow:
    entry: AuditEntry
    changes: tuple[Change, ...]
    #: Of its object; empty: it has none.
    page: str
    #: Whom it came through, said.
    source: str
    #: Whether its hash is that of what it says, and, where that can be seen, whether it follows
    #: the one before it.
    intact: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Verified:
    """The last look at the whole chain."""

    ok: bool
    checked: int
    first_bad: int | None = None
    at: datetime | None = None

    def packed(self) -> str:
        return json.dumps({"ok": self.ok, "checked": self.checked, "first_bad": self.first_bad})


def verified_from(text: str, at: datetime) -> Verified | None:
    try:
        plain = json.loads(text)
        bad = plain["first_bad"]
        return Verified(
            ok=bool(plain["ok"]),
            checked=int(plain["checked"]),
            first_bad=None if bad is None else int(bad),
            at=at,
        )
    except (ValueError, KeyError, TypeError):
        return None


def wanted_in(query: Mapping[str, str]) -> dict[str, str]:
    names = (*_WORDS, *_DAYS)
    return {name: text for name in names if (text := query.get(name, "").strip())}


def verbs_offered(wanted: str) -> list[str]:
    """All that are written, and the one that is asked for, whatever it is."""
    return sorted({*VERB_LABELS, wanted} - {""})


def audit_query(wanted: Mapping[str, str], zone: str) -> AuditQuery:
    """Days begin and end in the reader's zone. InvalidInput."""
    since, until = (_day(wanted.get(name, ""), name, zone) for name in _DAYS)
    return AuditQuery(
        actor=wanted.get("actor"),
        verb=wanted.get("verb"),
        object_id=wanted.get("object_id"),
        interface=wanted.get("interface"),
        since=since,
        until=None if until is None else until + timedelta(days=1, microseconds=-1),
    )


def _day(text: str, name: str, zone: str) -> datetime | None:
    if not text:
        return None
    try:
        return moment_from(f"{date.fromisoformat(text)}T00:00:00", zone, name)
    except (ValueError, InvalidInput):
        raise InvalidInput(_("expected a date such as 2030-01-31"), field=name) from None


def audit_rows(entries: Sequence[AuditEntry], *, whole: bool) -> list[AuditRow]:
    """Newest first. `whole`: nothing is left out between two of them."""
    return [
        AuditRow(
            entry=entry,
            changes=changes_of(entry),
            page=page_of(entry),
            source=INTERFACES.get(entry.interface, entry.interface),
            intact=entry_hash(entry) == entry.hash
            and (not whole or before is None or follows(entry, before)),
        )
        for entry, before in zip_longest(entries, entries[1:])
    ]


# --- files ----------------------------------------------------------------------------------------
def json_lines(entries: Sequence[AuditEntry]) -> str:
    return "".join(json.dumps(audit_out(each), ensure_ascii=False) + "\n" for each in entries)


def csv_head() -> str:
    return _written_views_system_audit([_COLUMNS])


def csv_lines(entries: Sequence[AuditEntry]) -> str:
    return _written_views_system_audit([_cells(audit_out(each)) for each in entries])


def _cells(plain: Mapping[str, object]) -> list[str]:
    return [cell(_plain(plain[name])) for name in _COLUMNS]


def _plain(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | bool) else value


def _written_views_system_audit(rows: Sequence[Sequence[str]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerows(rows)
    return out.getvalue()


router = PageRouter()
HERE = "/ui/system/audit"
_PAGE = 50
_MOST_EXPORTED = 100_000
_AT_ONCE = 500
#: Where the last look at the whole chain is remembered.
VERIFIED = "audit:verified"
Lines = Callable[[Sequence[AuditEntry]], str]


@router.get("/system/audit")
async def audit(request: PageRequest) -> Response:
    operators_only(request)
    wanted = wanted_in(request.query)
    store = request.context.store
    wrong, query = "", AuditQuery()
    try:
        query = audit_query(wanted, request.display.zone)
    except InvalidInput as error:
        wrong = error.message
    before = request.query.get("before", "")
    found = await store.list_audit(
        replace(query, before=int(before) if before.isdecimal() else None, limit=_PAGE + 1)
    )
    shown = found[:_PAGE]
    more = ""
    if len(found) > _PAGE:
        more = f"{HERE}?{urlencode(wanted | {'before': str(shown[-1].number)})}"
    kept = await store.read_state(VERIFIED)
    return request.render_page_or_block(
        "system/audit.html",
        "rows",
        # Neighbours can be held against each other only where nothing is left out between them.
        entries=audit_rows(found, whole=not wanted)[:_PAGE],
        wanted=wanted,
        wrong=wrong,
        interfaces=INTERFACES,
        verbs=verbs_offered(wanted.get("verb", "")),
        export=urlencode(wanted),
        more=more,
        verified=None if kept is None else verified_from(kept.value, kept.changed_at),
    )


@router.get("/system/audit.ndjson")
async def as_ndjson(request: PageRequest) -> Response:
    """All entries that match, newest first, one JSON object a line."""
    return await _file(request, "ndjson", "application/x-ndjson", json_lines, "")


@router.get("/system/audit.csv")
async def as_csv(request: PageRequest) -> Response:
    return await _file(request, "csv", "text/csv; charset=utf-8", csv_lines, csv_head())


@router.post("/system/audit/verify")
async def verify(request: PageRequest) -> Response:
    operators_only(request)
    found = await verified_chain(request.context.store)
    verdict = Verified(ok=found.ok, checked=found.checked, first_bad=found.first_bad)
    await request.context.store.set_state(VERIFIED, verdict.packed())
    if found.ok:
        text = counted(
            "Hash chain verified: {count} entry.",
            "Hash chain verified: {count} entries.",
            found.checked,
        )
        return request.redirect_with_toast(text, to=HERE)
    text = _("The hash chain is broken at entry {number}.", number=found.first_bad)
    return request.redirect_with_toast(text, to=HERE, kind="error")


async def _file(request: PageRequest, ending: str, kind: str, lines: Lines, head: str) -> Response:
    operators_only(request)
    query = audit_query(wanted_in(request.query), request.display.zone)
    return StreamingResponse(
        _written(request, query, lines, head),
        media_type=kind,
        headers={"Content-Disposition": f'attachment; filename="{_name(request.now, ending)}"'},
    )


def _name(now: datetime, ending: str) -> str:
    return f"audit-{now:%Y%m%dT%H%M%SZ}.{ending}"


async def _written(
    request: PageRequest, query: AuditQuery, lines: Lines, head: str
) -> AsyncIterator[str]:
    if head:
        yield head
    written = 0
    while written < _MOST_EXPORTED:
        found = await request.context.store.list_audit(replace(query, limit=_AT_ONCE))
        if found:
            yield lines(found)
        written += len(found)
        if len(found) < _AT_ONCE:
            return
        query = replace(query, before=found[-1].number)
