"""Words and presets into the fields of the wizard. Nothing is saved, and guesses are marked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from chimes.doors.dashboard.views_wizard_calendars import MOST_EXCLUSIONS, PARTS
from chimes.doors.dashboard.views_wizard_tell import PARTS as TOLD_PARTS
from chimes.doors.dashboard.views_wizard_tell import recipient_fields
from chimes.doors.dashboard.views_wizard_what import target_fields
from chimes.doors.dashboard.views_wizard_when import Fields, trigger_fields
from chimes.errors import InvalidInput
from chimes.language import Told, parse
from chimes.model.recipient_rules import MOST_RECIPIENTS
from chimes.model.templates import Offer
from chimes.triggers import Every, Trigger

_URL = re.compile(r"https?://[^\s\"'<>，。]+")
_NAME_LENGTH = 80
#: Words that ask for a look, not for a change.
_LOOKS = re.compile(r"\b(?:ping|check|get|fetch|watch)\b|เช็ก|เช็ค|ตรวจ|检查|监控", re.IGNORECASE)
#: What is only to be said again, by nobody who thinks about it.
_REMINDS = re.compile(
    r"(?:please )?(?:remind\b|message me\b|send (?:me )?(?:a|the) message\b)"
    r"|(?:ช่วย|กรุณา)?(?:เตือน|ส่งข้อความ)|请?(?:提醒|发送?(?:一条)?消息)",
    re.IGNORECASE,
)
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
    #: Through which the words say to tell somebody.
    channels: tuple[str, ...] = ()


def read_words(
    text: str,
    fields: Mapping[str, str],
    *,
    now: datetime,
    zone: str,
    lang: str,
    chats: Sequence[str] = (),
    prompts: bool = True,
) -> Reading:
    """By the same reading as the API's. NeedsClarification asks back. `chats`: the reader's own,
    for words that say to tell them through Telegram. `prompts`: somebody answers them."""
    parsed = parse(text, now=now, timezone=zone, lang=lang)
    trigger = parsed.trigger
    found = with_trigger(fields, parsed.trigger, parsed.timezone)
    guessed = []
    if not isinstance(trigger, Every) and not _names_zone(text, parsed.timezone, now):
        guessed.append("zone")
    if task := parsed.task.strip():
        target = _target(task, prompts=prompts)
        found |= target
        # An address stands in the words; what to do with it may not.
        guessed += [each for each in target if each != "url"]
    if parsed.told:
        found, rows = _with_told(found, parsed.told, chats)
        guessed += rows
    name = " ".join((task or text).split())[:_NAME_LENGTH]
    if not fields.get("name") or fields.get("name") == fields.get("name_guessed"):
        found |= {"name": name, "name_guessed": name}
        guessed.append("name")
    channels = tuple(dict.fromkeys(each.channel for each in parsed.told))
    return Reading(fields=found, guessed=tuple(guessed), trigger=trigger, channels=channels)


def _with_told(
    fields: Fields, told: Sequence[Told], chats: Sequence[str]
) -> tuple[Fields, list[str]]:
    """Recipients that the words name, behind those that somebody chose; and their fields."""
    chosen = set(fields.get("guessed", "").split(","))
    rows = [
        {part: fields.get(f"tell{n}_{part}", "") for part in TOLD_PARTS}
        for n in range(MOST_RECIPIENTS + 1)
        if fields.get(f"tell{n}_channel") and f"tell{n}_channel" not in chosen
    ]
    kept = len(rows)
    for each in told:
        own = chats[0] if each.channel == "telegram" and chats else ""
        row = {"channel": each.channel, "to": each.to or own, "on": each.on}
        known = any((r["channel"], r["to"]) == (row["channel"], row["to"]) for r in rows[:kept])
        if not known and len(rows) < MOST_RECIPIENTS:
            rows.append(row)
    found = {name: value for name, value in fields.items() if name not in _told_names()}
    for place, row in enumerate(rows):
        found |= {f"tell{place}_{part}": value for part, value in row.items()}
    guessed = range(kept, len(rows))
    return found, [f"tell{n}_{part}" for n in guessed for part in ("channel", "to", "on")]


def with_trigger(fields: Mapping[str, str], trigger: Trigger, home: str) -> Fields:
    """The fields with another time in them; nothing of the old one is left."""
    gone = {*_OF_WHEN, *(f"ex{n}_{part}" for n in range(MOST_EXCLUSIONS) for part in PARTS)}
    kept = {name: value for name, value in fields.items() if name not in gone}
    return kept | trigger_fields(trigger.to_dict(), home)


def with_preset(fields: Mapping[str, str], offer: Offer, trigger: Trigger, home: str) -> Fields:
    """A template says when; most say what and whom to tell as well."""
    found = with_trigger(fields, trigger, home)
    if offer.target is None:
        return found
    found = {name: value for name, value in found.items() if name not in _told_names()}
    found |= target_fields(offer.target) | recipient_fields(dict(each) for each in offer.delivery)
    return found | {"name": offer.text.name, "name_guessed": offer.text.name}


def _told_names() -> set[str]:
    return {f"tell{n}_{part}" for n in range(MOST_RECIPIENTS + 1) for part in TOLD_PARTS}


def _target(task: str, *, prompts: bool) -> Fields:
    """An address is called, a reminder is told; anything else is a prompt, as on the command line.
    Where nobody answers prompts it is told, too: its runs would all fail otherwise."""
    if url := _URL.search(task):
        method = "GET" if _LOOKS.search(task) else "POST"
        return {"kind": "http", "url": url[0].rstrip(".,;)"), "method": method}
    if _REMINDS.match(task):
        return {"kind": "message", "message": task}
    if not prompts:
        return {"kind": "message", "message": task, "prompt": task}
    return {"kind": "agent", "prompt": task}


def _names_zone(text: str, found: str, now: datetime) -> bool:
    """Whether the zone is in the words: then another home changes nothing about it."""
    elsewhere = "Pacific/Apia" if found != "Pacific/Apia" else "UTC"
    try:
        return parse(text, now=now, timezone=elsewhere).timezone == found
    except InvalidInput:
        return False
