"""Fills the editor form from a description in natural language or from a template.

Nothing is saved, and guessed fields are marked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from chimes.errors import InvalidInput
from chimes.language import NamedRecipient, parse
from chimes.model.validation import MAX_RECIPIENTS
from chimes.services.schedules.templates import LocalizedTemplate
from chimes.triggers import Every, Trigger
from chimes.web.dashboard.editor.recipient_fields import PARTS as RECIPIENT_PARTS
from chimes.web.dashboard.editor.recipient_fields import recipient_fields
from chimes.web.dashboard.editor.target_fields import target_fields
from chimes.web.dashboard.editor.trigger_fields import (
    MAX_EXCLUSIONS,
    PARTS,
    Fields,
    trigger_fields,
)

_URL = re.compile(r"https?://[^\s\"'<>，。]+")
_NAME_LENGTH = 80
#: Verbs that only read: the request is a GET.
_READ_ONLY = re.compile(r"\b(?:ping|check|get|fetch|watch)\b|เช็ก|เช็ค|ตรวจ|检查|监控", re.IGNORECASE)
#: Reminders are sent as messages, without an agent.
_REMINDER = re.compile(
    r"(?:please )?(?:remind\b|message me\b|send (?:me )?(?:a|the) message\b)"
    r"|(?:ช่วย|กรุณา)?(?:เตือน|ส่งข้อความ)|请?(?:提醒|发送?(?:一条)?消息)",
    re.IGNORECASE,
)
_TRIGGER_FIELDS = (
    *("when", "rule", "at", "in", "every", "unit", "anchor", "jitter"),
    *("expression", "dialect", "dst", "start", "end", "max_runs"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedDescription:
    """Form fields parsed from a description."""

    fields: Fields
    #: Names of fields that the description does not state explicitly.
    guessed: tuple[str, ...]
    trigger: Trigger
    #: Notification channels that the description names.
    channels: tuple[str, ...] = ()


def parse_description(
    text: str,
    fields: Mapping[str, str],
    *,
    now: datetime,
    zone: str,
    lang: str,
    chats: Sequence[str] = (),
    prompts: bool = True,
) -> ParsedDescription:
    """Parses a description as the API does; raises NeedsClarification if it is ambiguous.

    `chats` are the Telegram chats of the user; `prompts`: whether an agent is configured."""
    parsed = parse(text, now=now, timezone=zone, lang=lang)
    trigger = parsed.trigger
    found = with_trigger(fields, parsed.trigger, parsed.timezone)
    guessed = []
    if not isinstance(trigger, Every) and not _names_zone(text, parsed.timezone, now):
        guessed.append("zone")
    if task := parsed.task.strip():
        target = _target(task, prompts=prompts)
        found |= target
        # The URL is explicit; the method may be a guess.
        guessed += [each for each in target if each != "url"]
    if parsed.recipients:
        found, rows = _with_recipients(found, parsed.recipients, chats)
        guessed += rows
    name = " ".join((task or text).split())[:_NAME_LENGTH]
    if not fields.get("name") or fields.get("name") == fields.get("name_guessed"):
        found |= {"name": name, "name_guessed": name}
        guessed.append("name")
    channels = tuple(dict.fromkeys(each.channel for each in parsed.recipients))
    return ParsedDescription(
        fields=found, guessed=tuple(guessed), trigger=trigger, channels=channels
    )


def _with_recipients(
    fields: Fields, recipients: Sequence[NamedRecipient], chats: Sequence[str]
) -> tuple[Fields, list[str]]:
    """Adds the recipients of the description after those that the user chose.

    Returns the fields and the names of the guessed ones."""
    chosen = set(fields.get("guessed", "").split(","))
    rows = [
        {part: fields.get(f"notify{n}_{part}", "") for part in RECIPIENT_PARTS}
        for n in range(MAX_RECIPIENTS + 1)
        if fields.get(f"notify{n}_channel") and f"notify{n}_channel" not in chosen
    ]
    chosen_count = len(rows)
    for each in recipients:
        own = chats[0] if each.channel == "telegram" and chats else ""
        row = {"channel": each.channel, "to": each.to or own, "on": each.on}
        exists = any(
            (r["channel"], r["to"]) == (row["channel"], row["to"]) for r in rows[:chosen_count]
        )
        if not exists and len(rows) < MAX_RECIPIENTS:
            rows.append(row)
    found = {name: value for name, value in fields.items() if name not in _recipient_field_names()}
    for place, row in enumerate(rows):
        found |= {f"notify{place}_{part}": value for part, value in row.items()}
    guessed = range(chosen_count, len(rows))
    return found, [f"notify{n}_{part}" for n in guessed for part in ("channel", "to", "on")]


def with_trigger(fields: Mapping[str, str], trigger: Trigger, home: str) -> Fields:
    """Replaces all trigger fields."""
    replaced = {
        *_TRIGGER_FIELDS,
        *(f"ex{n}_{part}" for n in range(MAX_EXCLUSIONS) for part in PARTS),
    }
    others = {name: value for name, value in fields.items() if name not in replaced}
    return others | trigger_fields(trigger.to_dict(), home)


def with_template(
    fields: Mapping[str, str], template: LocalizedTemplate, trigger: Trigger, home: str
) -> Fields:
    """Fills in the trigger of a template, and its target and recipients if it has them."""
    found = with_trigger(fields, trigger, home)
    if template.target is None:
        return found
    found = {name: value for name, value in found.items() if name not in _recipient_field_names()}
    found |= target_fields(template.target) | recipient_fields(
        dict(each) for each in template.delivery
    )
    return found | {"name": template.text.name, "name_guessed": template.text.name}


def _recipient_field_names() -> set[str]:
    return {f"notify{n}_{part}" for n in range(MAX_RECIPIENTS + 1) for part in RECIPIENT_PARTS}


def _target(task: str, *, prompts: bool) -> Fields:
    """Returns the target of a task: a URL is called, a reminder is sent, anything else is a prompt.
    Without an agent, a prompt is sent as a message: its runs would fail."""
    if url := _URL.search(task):
        method = "GET" if _READ_ONLY.search(task) else "POST"
        return {"kind": "http", "url": url[0].rstrip(".,;)"), "method": method}
    if _REMINDER.match(task):
        return {"kind": "message", "message": task}
    if not prompts:
        return {"kind": "message", "message": task, "prompt": task}
    return {"kind": "agent", "prompt": task}


def _names_zone(text: str, found: str, now: datetime) -> bool:
    """Whether the description names the zone, so that the default zone has no influence."""
    other = "Pacific/Apia" if found != "Pacific/Apia" else "UTC"
    try:
        return parse(text, now=now, timezone=other).timezone == found
    except InvalidInput:
        return False
