"""Words and presets into the fields of the wizard. Nothing is saved, and guesses are marked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from chimes.doors.dashboard.views_wizard_form import recipient_fields
from chimes.doors.dashboard.views_wizard_what import target_fields
from chimes.doors.dashboard.views_wizard_when import MOST_EXCLUSIONS, Fields, trigger_fields
from chimes.errors import InvalidInput
from chimes.language import parse
from chimes.model.recipient_rules import MOST_RECIPIENTS
from chimes.model.templates import Offer
from chimes.triggers import Every, Trigger

_URL = re.compile(r"https?://[^\s\"'<>，。]+")
_NAME_LENGTH = 80
#: Words that ask for a look, not for a change.
_LOOKS = re.compile(r"\b(?:ping|check|get|fetch|watch)\b|เช็ก|เช็ค|ตรวจ|检查|监控", re.IGNORECASE)
_OF_WHEN = (
    *("when", "rule", "at", "in", "every", "unit", "anchor", "jitter"),
    *("expression", "dialect", "dst", "start", "end", "max_runs"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What words were understood to say."""

    fields: Fields
    #: Names of the fields that the words do not say outright.
    guessed: tuple[str, ...]
    trigger: Trigger


def read_words(
    text: str, fields: Mapping[str, str], *, now: datetime, zone: str, lang: str
) -> Reading:
    """By the same reading as the API's. NeedsClarification asks back."""
    parsed = parse(text, now=now, timezone=zone, lang=lang)
    trigger = parsed.trigger
    found = with_trigger(fields, parsed.trigger, parsed.timezone)
    guessed = []
    if not isinstance(trigger, Every) and not _names_zone(text, parsed.timezone, now):
        guessed.append("zone")
    if task := parsed.task.strip():
        target = _target(task)
        found |= target
        guessed += list(target)
    name = " ".join((task or text).split())[:_NAME_LENGTH]
    if not fields.get("name") or fields.get("name") == fields.get("name_guessed"):
        found |= {"name": name, "name_guessed": name}
        guessed.append("name")
    return Reading(fields=found, guessed=tuple(guessed), trigger=trigger)


def with_trigger(fields: Mapping[str, str], trigger: Trigger, home: str) -> Fields:
    """The fields with another time in them; nothing of the old one is left."""
    gone = {*_OF_WHEN, *(f"ex{n}_{part}" for n in range(MOST_EXCLUSIONS) for part in _EXCLUSION)}
    kept = {name: value for name, value in fields.items() if name not in gone}
    return kept | trigger_fields(trigger.to_dict(), home)


_EXCLUSION = ("kind", "value", "then")


def with_preset(fields: Mapping[str, str], offer: Offer, trigger: Trigger, home: str) -> Fields:
    """A template says when; most say what and whom to tell as well."""
    found = with_trigger(fields, trigger, home)
    if offer.target is None:
        return found
    told = {f"tell{n}_{part}" for n in range(MOST_RECIPIENTS + 1) for part in _RECIPIENT}
    found = {name: value for name, value in found.items() if name not in told}
    found |= target_fields(offer.target) | recipient_fields(dict(each) for each in offer.delivery)
    return found | {"name": offer.text.name, "name_guessed": offer.text.name}


_RECIPIENT = ("channel", "to", "on", "language", "secrets")


def _target(task: str) -> Fields:
    """An address is called; anything else is a prompt, as on the command line."""
    if url := _URL.search(task):
        method = "GET" if _LOOKS.search(task) else "POST"
        return {"kind": "http", "url": url[0].rstrip(".,;)"), "method": method}
    return {"kind": "agent", "prompt": task}


def _names_zone(text: str, found: str, now: datetime) -> bool:
    """Whether the zone is in the words: then another home changes nothing about it."""
    elsewhere = "Pacific/Apia" if found != "Pacific/Apia" else "UTC"
    try:
        return parse(text, now=now, timezone=elsewhere).timezone == found
    except InvalidInput:
        return False
