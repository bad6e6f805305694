"""Converts recipients of the API to editor form fields and back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from chimes.model.validation import MAX_RECIPIENTS
from chimes.web.dashboard.editor.trigger_fields import Fields, JsonObject, short_duration

#: The fields of a row, behind `notify0_`.
PARTS = (
    "channel",
    "to",
    "on",
    "language",
    "secrets",
    "late",
    "quiet_from",
    "quiet_to",
    "quiet_zone",
    "quiet_but",
    "digest",
    "digest_at",
    "digest_day",
    "digest_zone",
    "digest_but",
)
#: Check box groups.
MULTI_VALUE = r"notify[0-9]+_(?:on|quiet_but|digest_but)"
_NOT_FOR_INBOX = ("to", "secrets", "quiet_from", "quiet_to", "quiet_zone", "quiet_but")
#: Form fields whose name differs from the API field.
_PLACES = {
    "signing_secrets": "secrets",
    "late_after": "late",
    "quiet": "quiet_from",
    "quiet.from": "quiet_from",
    "quiet.to": "quiet_to",
    "quiet.zone": "quiet_zone",
    "quiet.except": "quiet_but",
    "digest.every": "digest",
    "digest.at": "digest_at",
    "digest.on": "digest_day",
    "digest.zone": "digest_zone",
    "digest.except": "digest_but",
}
_ITEM = re.compile(r"[.\[][0-9]+\]?$")


def recipient_fields(recipients: Iterable[object]) -> Fields:
    found: Fields = {}
    for place, each in enumerate(recipients):
        if isinstance(each, Mapping):
            row = _row(each)
            found |= {f"notify{place}_{part}": value for part, value in row.items()}
    return found


def _row(given: Mapping[str, object]) -> Fields:
    late = given.get("late_after")
    row = {
        "channel": str(given["channel"]),
        "to": str(given.get("to", "")),
        "on": ",".join(_texts(given.get("on"))) or "always",
        "language": str(given.get("language", "")),
        "secrets": " ".join(_texts(given.get("signing_secrets"))),
        "late": short_duration(str(late)) if late else "",
    }
    quiet, digest = given.get("quiet"), given.get("digest")
    if isinstance(quiet, Mapping):
        row |= {
            "quiet_from": str(quiet.get("from", "")),
            "quiet_to": str(quiet.get("to", "")),
            "quiet_zone": str(quiet.get("zone", "")),
            "quiet_but": ",".join(_texts(quiet.get("except"))),
        }
    if isinstance(digest, Mapping):
        row |= {
            "digest": str(digest.get("every", "")),
            "digest_at": str(digest.get("at", "")),
            "digest_day": str(digest.get("on", "")),
            "digest_zone": str(digest.get("zone", "")),
            "digest_but": ",".join(_texts(digest.get("except"))),
        }
    return row


def filled_rows(fields: Mapping[str, str]) -> list[int]:
    """Returns the rows with a channel."""
    return [n for n in range(MAX_RECIPIENTS + 1) if fields.get(f"notify{n}_channel")]


def recipient_body(fields: Mapping[str, str], row: int) -> JsonObject:
    inbox = fields.get(f"notify{row}_channel") == "inbox"

    def value(part: str) -> str:
        # Hidden fields may still contain old values.
        hidden = inbox and part in _NOT_FOR_INBOX
        return "" if hidden else fields.get(f"notify{row}_{part}", "").strip()

    def values(part: str) -> list[str]:
        return [each for each in value(part).split(",") if each]

    found: JsonObject = {
        "channel": value("channel"),
        "to": value("to"),
        "on": values("on") or ["always"],
        "language": value("language"),
        "signing_secrets": value("secrets").split(),
    }
    if value("late"):
        found["late_after"] = value("late")
    if value("quiet_from") or value("quiet_to"):
        quiet: JsonObject = {"from": value("quiet_from"), "to": value("quiet_to")}
        found["quiet"] = quiet | _zone_and_exceptions(value("quiet_zone"), values("quiet_but"))
    if every := value("digest"):
        digest: JsonObject = {"every": every}
        if value("digest_at"):
            digest["at"] = value("digest_at")
        if every == "weekly" and value("digest_day"):
            digest["on"] = value("digest_day")
        found["digest"] = digest | _zone_and_exceptions(value("digest_zone"), values("digest_but"))
    return found


def recipients_body(fields: Mapping[str, str]) -> list[JsonObject]:
    return [recipient_body(fields, row) for row in filled_rows(fields)]


def row_field_for(name: str) -> str:
    """Returns the form field for a field name of an API recipient."""
    while _ITEM.search(name):
        name = _ITEM.sub("", name)
    return _PLACES.get(name, name) if name else "channel"


def _zone_and_exceptions(zone: str, exceptions: list[str]) -> JsonObject:
    found: JsonObject = {"zone": zone} if zone else {}
    return found | {"except": exceptions} if exceptions else found


def _texts(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []
