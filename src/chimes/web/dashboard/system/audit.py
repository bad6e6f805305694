"""Audit page: filter, entries with changes, export and verification of the hash chain."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from itertools import zip_longest
from urllib.parse import urlencode

from starlette.responses import Response

from chimes.errors import InvalidInput
from chimes.i18n import _, counted
from chimes.model import replace
from chimes.model.audit import AuditEntry, entry_hash, follows
from chimes.model.listing import AuditQuery
from chimes.web.api.translate import audit_out, moment_from
from chimes.web.dashboard.core.audit import VERB_LABELS, Change, changes_of, page_of
from chimes.web.dashboard.core.lists import (
    EXPORT_BATCH,
    MAX_EXPORTED,
    csv_cell,
    csv_text,
    file_response,
)
from chimes.web.dashboard.core.page_request import PageRequest, PageRouter
from chimes.web.dashboard.system.routes import require_operator

_TEXT_FIELDS = ("actor", "verb", "object_id", "interface")
_DATE_FIELDS = ("from", "to")
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
    #: Page of the object; may be empty.
    page: str
    #: Label of the interface.
    source: str
    #: Whether the hash is valid and, in an unfiltered list, follows the previous entry.
    intact: bool


def read_conditions(query: Mapping[str, str]) -> dict[str, str]:
    names = (*_TEXT_FIELDS, *_DATE_FIELDS)
    return {name: text for name in names if (text := query.get(name, "").strip())}


def verb_choices(wanted: str) -> list[str]:
    """Returns all verbs, and the selected one even if it is unknown."""
    return sorted({*VERB_LABELS, wanted} - {""})


def audit_query(wanted: Mapping[str, str], zone: str) -> AuditQuery:
    """Builds the query; days are in the viewer's zone. Raises InvalidInput."""
    since, until = (_day(wanted.get(name, ""), name, zone) for name in _DATE_FIELDS)
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
        midnight = datetime.combine(date.fromisoformat(text), time())
        return moment_from(midnight.isoformat(), zone, name)
    except (ValueError, InvalidInput):
        raise InvalidInput(_("expected a date such as 2030-01-31"), field=name) from None


def audit_rows(entries: Sequence[AuditEntry], *, unfiltered: bool) -> list[AuditRow]:
    """Builds the rows, newest first.

    `unfiltered`: entries are consecutive, so each can be checked against the previous one."""
    return [
        AuditRow(
            entry=entry,
            changes=changes_of(entry),
            page=page_of(entry),
            source=INTERFACES.get(entry.interface, entry.interface),
            intact=entry_hash(entry) == entry.hash
            and (not unfiltered or before is None or follows(entry, before)),
        )
        for entry, before in zip_longest(entries, entries[1:])
    ]


# --- files ----------------------------------------------------------------------------------------
def json_lines(entries: Sequence[AuditEntry]) -> str:
    return "".join(json.dumps(audit_out(each), ensure_ascii=False) + "\n" for each in entries)


def csv_head() -> str:
    return csv_text([_COLUMNS])


def csv_lines(entries: Sequence[AuditEntry]) -> str:
    return csv_text([_cells(audit_out(each)) for each in entries])


def _cells(plain: Mapping[str, object]) -> list[str]:
    return [csv_cell(_plain(plain[name])) for name in _COLUMNS]


def _plain(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | bool) else value


router = PageRouter()
_PATH = "/ui/system/audit"
_PAGE = 50


@router.get("/system/audit")
async def audit(request: PageRequest) -> Response:
    require_operator(request)
    wanted = read_conditions(request.query)
    error_text, query = "", AuditQuery()
    try:
        query = audit_query(wanted, request.display.zone)
    except InvalidInput as error:
        error_text = error.message
    before = request.query.get("before", "")
    found = await request.context.audit.find(
        request.actor,
        replace(query, before=int(before) if before.isdecimal() else None, limit=_PAGE + 1),
    )
    shown = found[:_PAGE]
    more = ""
    if len(found) > _PAGE:
        more = f"{_PATH}?{urlencode(wanted | {'before': str(shown[-1].number)})}"
    return request.render_page_or_block(
        "system/audit.html",
        "rows",
        entries=audit_rows(found, unfiltered=not wanted)[:_PAGE],
        wanted=wanted,
        error=error_text,
        interfaces=INTERFACES,
        verbs=verb_choices(wanted.get("verb", "")),
        export=urlencode(wanted),
        more=more,
        verified=await request.context.audit.get_last_verification(request.actor),
    )


@router.get("/system/audit.ndjson")
async def export_ndjson(request: PageRequest) -> Response:
    return file_response(request, "audit", "ndjson", _export(request, json_lines))


@router.get("/system/audit.csv")
async def export_csv(request: PageRequest) -> Response:
    return file_response(request, "audit", "csv", _export(request, csv_lines, csv_head()))


@router.post("/system/audit/verify")
async def verify(request: PageRequest) -> Response:
    require_operator(request)
    found = await request.context.audit.verify(request.actor)
    if found.ok:
        text = counted(
            "Hash chain verified: {count} entry.",
            "Hash chain verified: {count} entries.",
            found.checked,
        )
        return request.redirect_with_toast(text, to=_PATH)
    text = _("The checkpoint of pruned entries is not valid.")
    if found.first_bad is not None:
        text = _("The hash chain is broken at entry {number}.", number=found.first_bad)
    return request.redirect_with_toast(text, to=_PATH, kind="error")


def _export(
    request: PageRequest, to_lines: Callable[[Sequence[AuditEntry]], str], head: str = ""
) -> AsyncIterator[str]:
    require_operator(request)
    query = audit_query(read_conditions(request.query), request.display.zone)
    return _parts(request, replace(query, limit=EXPORT_BATCH), to_lines, head)


async def _parts(
    request: PageRequest,
    query: AuditQuery,
    to_lines: Callable[[Sequence[AuditEntry]], str],
    head: str,
) -> AsyncIterator[str]:
    yield head
    count = 0
    while count < MAX_EXPORTED:
        found = await request.context.audit.find(request.actor, query)
        yield to_lines(found)
        count += len(found)
        if len(found) < EXPORT_BATCH:
            return
        query = replace(query, before=found[-1].number)
