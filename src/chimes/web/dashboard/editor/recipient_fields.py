"""Whom the wizard's schedule tells: rows of fields, to recipients of the API and back (UX A.4)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from chimes.model.validation import MOST_RECIPIENTS
from chimes.web.dashboard.editor.trigger_fields import Fields, Plain, short_duration

#: The fields of a row, behind `tell0_`.
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
#: Those with several boxes to tick.
TICKED = r"tell[0-9]+_(?:on|quiet_but|digest_but)"
_NOT_OF_AN_INBOX = ("to", "secrets", "quiet_from", "quiet_to", "quiet_zone", "quiet_but")
#: Fields of a row by the API's, where they have another name.
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
            found |= {f"tell{place}_{part}": value for part, value in row.items()}
    return found


def _row(given: Mapping[str, object]) -> Fields:
    late = given.get("late_after")
    row = {
        "channel": str(given["channel"]),
        "to": str(given.get("to", "")),
        "on": ",".join(_words(given.get("on"))) or "always",
        "language": str(given.get("language", "")),
        "secrets": " ".join(_words(given.get("signing_secrets"))),
        "late": short_duration(str(late)) if late else "",
    }
    quiet, digest = given.get("quiet"), given.get("digest")
    if isinstance(quiet, Mapping):
        row |= {
            "quiet_from": str(quiet.get("from", "")),
            "quiet_to": str(quiet.get("to", "")),
            "quiet_zone": str(quiet.get("zone", "")),
            "quiet_but": ",".join(_words(quiet.get("except"))),
        }
    if isinstance(digest, Mapping):
        row |= {
            "digest": str(digest.get("every", "")),
            "digest_at": str(digest.get("at", "")),
            "digest_day": str(digest.get("on", "")),
            "digest_zone": str(digest.get("zone", "")),
            "digest_but": ",".join(_words(digest.get("except"))),
        }
    return row


def rows_of(fields: Mapping[str, str]) -> list[int]:
    """Of those that name a channel."""
    return [n for n in range(MOST_RECIPIENTS + 1) if fields.get(f"tell{n}_channel")]


def recipient_plain(fields: Mapping[str, str], row: int) -> Plain:
    inbox = fields.get(f"tell{row}_channel") == "inbox"

    def said(part: str) -> str:
        # What the form hides is not there, whatever stood in it before.
        hidden = inbox and part in _NOT_OF_AN_INBOX
        return "" if hidden else fields.get(f"tell{row}_{part}", "").strip()

    def ticked(part: str) -> list[str]:
        return [each for each in said(part).split(",") if each]

    found: Plain = {
        "channel": said("channel"),
        "to": said("to"),
        "on": ticked("on") or ["always"],
        "language": said("language"),
        "signing_secrets": said("secrets").split(),
    }
    if said("late"):
        found["late_after"] = said("late")
    if said("quiet_from") or said("quiet_to"):
        quiet: Plain = {"from": said("quiet_from"), "to": said("quiet_to")}
        found["quiet"] = quiet | _more(said("quiet_zone"), ticked("quiet_but"))
    if every := said("digest"):
        digest: Plain = {"every": every}
        if said("digest_at"):
            digest["at"] = said("digest_at")
        if every == "weekly" and said("digest_day"):
            digest["on"] = said("digest_day")
        found["digest"] = digest | _more(said("digest_zone"), ticked("digest_but"))
    return found


def recipients_plain(fields: Mapping[str, str]) -> list[Plain]:
    return [recipient_plain(fields, row) for row in rows_of(fields)]


def part_of(name: str) -> str:
    """The field of a row that a field of the API's recipient stands for."""
    while _ITEM.search(name):
        name = _ITEM.sub("", name)
    return _PLACES.get(name, name) if name else "channel"


def _more(zone: str, but: list[str]) -> Plain:
    found: Plain = {"zone": zone} if zone else {}
    return found | {"except": but} if but else found


def _words(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []
