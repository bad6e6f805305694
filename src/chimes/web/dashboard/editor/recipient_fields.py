"""Converts recipients of the API to editor form fields and back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import NODEFAULT

from chimes.model.recipient import Recipient
from chimes.model.validation import MAX_RECIPIENTS
from chimes.web.dashboard.editor.struct_fields import (
    extra_fields,
    field_text,
    field_value,
    leaves_of,
    put_at,
    value_at,
)
from chimes.web.dashboard.editor.trigger_fields import Fields, JsonObject

#: Form fields whose name differs from the path in the API.
_NAMES = {
    "signing_secrets": "secrets",
    "late_after": "late",
    "quiet.except": "quiet_but",
    "digest.every": "digest",
    "digest.on": "digest_day",
    "digest.except": "digest_but",
}
_LEAVES = tuple(leaves_of(Recipient))
_PLACES = {path: _NAMES.get(path, path.replace(".", "_")) for path, _field in _LEAVES}
#: The fields of a row, behind `notify0_`.
PARTS = tuple(_PLACES.values())
#: Check box groups.
MULTI_VALUE = r"notify[0-9]+_(?:on|quiet_but|digest_but)"
_NOT_FOR_INBOX = ("to", "secrets", "quiet_from", "quiet_to", "quiet_zone", "quiet_but")
#: Sent even if empty.
_ALWAYS_SENT = ("channel", "to", "on", "language", "signing_secrets")
#: Shown by their declaration; the others have their own widgets in `notifications.html`.
EXTRA = extra_fields(
    Recipient, frozenset({"channel", "to", "on", "language", "signing_secrets", "late_after"})
)
_ITEM = re.compile(r"[.\[][0-9]+\]?$")


def recipient_fields(recipients: Iterable[object]) -> Fields:
    found: Fields = {}
    for place, each in enumerate(recipients):
        if isinstance(each, Mapping):
            row = _row(each)
            found |= {f"notify{place}_{part}": value for part, value in row.items()}
    return found


def _row(given: Mapping[str, object]) -> Fields:
    row = {_PLACES[path]: field_text(field, value_at(given, path)) for path, field in _LEAVES}
    return row | {"on": row["on"] or "always", "secrets": " ".join(row["secrets"].split())}


def filled_rows(fields: Mapping[str, str]) -> list[int]:
    """Returns the rows with a channel."""
    return [n for n in range(MAX_RECIPIENTS + 1) if fields.get(f"notify{n}_channel")]


def recipient_body(fields: Mapping[str, str], row: int) -> JsonObject:
    inbox = fields.get(f"notify{row}_channel") == "inbox"
    # Hidden fields may still contain old values.
    shown = {
        name: "" if inbox and name in _NOT_FOR_INBOX else fields.get(f"notify{row}_{name}", "")
        for name in PARTS
    }
    quiet = shown["quiet_from"] or shown["quiet_to"]
    absent = {"quiet": not quiet, "digest": not shown["digest"]}
    found: JsonObject = {}
    for path, field in _LEAVES:
        name, (outer, dot, _inner) = _PLACES[path], path.partition(".")
        if dot and absent[outer]:
            continue
        if name == "digest_day" and shown["digest"] != "weekly":
            continue
        needed = field.default is NODEFAULT or path in _ALWAYS_SENT
        if needed or shown[name].strip():
            stripped = {name: shown[name].strip()}
            put_at(found, path, field_value(field, stripped, name))
    return found | {"on": found["on"] or ["always"]}


def recipients_body(fields: Mapping[str, str]) -> list[JsonObject]:
    return [recipient_body(fields, row) for row in filled_rows(fields)]


def row_field_for(name: str) -> str:
    """Returns the form field for a field name of an API recipient."""
    while _ITEM.search(name):
        name = _ITEM.sub("", name)
    if name == "quiet":
        return "quiet_from"
    return _PLACES.get(name, name) if name else "channel"
