"""The audit as people read it: filters, rows with what changed, files. Nothing asks a store."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import zip_longest

from chimes.doors.api.wire import moment_from
from chimes.doors.api.wire_runs import audit_out
from chimes.doors.dashboard.views_audit_words import VERBS
from chimes.doors.dashboard.views_runs_export import cell
from chimes.doors.dashboard.views_system import Change as Change
from chimes.doors.dashboard.views_system import changes_of as changes_of
from chimes.doors.dashboard.views_system import page_of as page_of
from chimes.errors import InvalidInput
from chimes.model.audit import AuditEntry, entry_hash, follows
from chimes.model.listing import AuditQuery
from chimes.wording import say

_WORDS = ("actor", "verb", "object_id", "door")
_DAYS = ("from", "to")
#: What each door is to people.
DOORS = {
    "dashboard": say("web"),
    "native": say("API"),
    "cli": say("command line"),
    "telegram": say("Telegram"),
    "mcp": say("MCP"),
    "sdk": say("code"),
    "config": say("chimes.yaml"),
    "engine": say("Chimes itself"),
    "sql": say("SQL views"),
    "ksana": say("Ksana API"),
    "catbird": say("Catbird API"),
    "eventnative": say("EventNative API"),
    "softnix": say("Softnix API"),
    "kweaver": say("KWeaver API"),
}
_COLUMNS = (
    "number", "at", "actor", "door", "address", "verb", "object_kind", "object_id", "owner",
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
    return sorted({*VERBS, wanted} - {""})


def audit_query(wanted: Mapping[str, str], zone: str) -> AuditQuery:
    """Days begin and end in the reader's zone. InvalidInput."""
    since, until = (_day(wanted.get(name, ""), name, zone) for name in _DAYS)
    return AuditQuery(
        actor=wanted.get("actor"),
        verb=wanted.get("verb"),
        object_id=wanted.get("object_id"),
        door=wanted.get("door"),
        since=since,
        until=None if until is None else until + timedelta(days=1, microseconds=-1),
    )


def _day(text: str, name: str, zone: str) -> datetime | None:
    if not text:
        return None
    try:
        return moment_from(f"{date.fromisoformat(text)}T00:00:00", zone, name)
    except (ValueError, InvalidInput):
        raise InvalidInput(say("a day such as 2030-01-31"), field=name) from None


def audit_rows(entries: Sequence[AuditEntry], *, whole: bool) -> list[AuditRow]:
    """Newest first. `whole`: nothing is left out between two of them."""
    return [
        AuditRow(
            entry=entry,
            changes=changes_of(entry),
            page=page_of(entry),
            source=DOORS.get(entry.door, entry.door),
            intact=entry_hash(entry) == entry.hash
            and (not whole or before is None or follows(entry, before)),
        )
        for entry, before in zip_longest(entries, entries[1:])
    ]


# --- files ----------------------------------------------------------------------------------------
def json_lines(entries: Sequence[AuditEntry]) -> str:
    return "".join(json.dumps(audit_out(each), ensure_ascii=False) + "\n" for each in entries)


def csv_head() -> str:
    return _written([_COLUMNS])


def csv_lines(entries: Sequence[AuditEntry]) -> str:
    return _written([_cells(audit_out(each)) for each in entries])


def _cells(plain: Mapping[str, object]) -> list[str]:
    return [cell(_plain(plain[name])) for name in _COLUMNS]


def _plain(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | bool) else value


def _written(rows: Sequence[Sequence[str]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerows(rows)
    return out.getvalue()
