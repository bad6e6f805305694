"""Converts schedules, descriptions and templates to form fields, and fields to a definition.

A definition has the format of the API. Fields that a description does not state are marked as
guessed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from chimes.errors import InvalidInput
from chimes.i18n import Message, _, joined
from chimes.language import NamedRecipient, parse
from chimes.model.fields import Field
from chimes.model.ids import DEFAULT_NAMESPACE
from chimes.model.policy import policy_fields
from chimes.model.recipient import Channel
from chimes.model.validation import MAX_RECIPIENTS
from chimes.notifications.message import CHANNELS
from chimes.services.schedules.templates import LocalizedTemplate
from chimes.triggers import Every, Trigger
from chimes.web.dashboard.core.page_request import Form
from chimes.web.dashboard.editor.recipient_fields import (
    MULTI_VALUE,
    recipient_fields,
    recipients_body,
    row_field_for,
)
from chimes.web.dashboard.editor.recipient_fields import PARTS as RECIPIENT_PARTS
from chimes.web.dashboard.editor.struct_fields import field_text, field_value
from chimes.web.dashboard.editor.target_fields import (
    DEFAULT_TARGET,
    default_name,
    target_body,
    target_fields,
)
from chimes.web.dashboard.editor.trigger_fields import (
    DEFAULT_TRIGGER,
    EVENT_NAMES,
    MAX_EXCLUSIONS,
    PARTS,
    Fields,
    JsonObject,
    is_filled,
    parse_int,
    short_duration,
    trigger_body,
    trigger_fields,
)
from chimes.web.problems import FieldError

#: Check box groups; their values are joined with commas.
_MULTI_VALUE = re.compile(rf"rule_days|ex[0-9]+_days|{MULTI_VALUE}")
#: Values that are not stripped.
_UNSTRIPPED = frozenset(
    {
        "body",
        "prompt",
        "headers",
        "args",
        "input",
        "identities",
        "params",
        "message",
        "shell",
        "env",
        "stdin",
        "requires",
    }
)
_IGNORED = frozenset({"csrf", "back", "do", "base"})


def new_fields(zone: str) -> Fields:
    # A request that is typed into the form usually reads.
    method = {"method": "GET"}
    start = {"zone": zone, "enabled": "on", "within": "1h"}
    return {**DEFAULT_TRIGGER, **DEFAULT_TARGET, **method, **start}


def fields_from(form: Form) -> Fields:
    """Reads the submitted fields, as they are rendered again."""
    found: Fields = {}
    for name in dict(form.items()):
        if name in _IGNORED or name in found:
            continue
        if _MULTI_VALUE.fullmatch(name):
            found[name] = ",".join(form.all(name))
        else:
            as_typed = name in _UNSTRIPPED or name.startswith("arg_s_")
            found[name] = form.raw(name) if as_typed else form.text(name)
    return found


def fields_of(schedule: Mapping[str, object], home: str) -> Fields:
    """Returns the fields of a schedule as the API returns it, with secrets masked."""
    found = new_fields(home)
    found |= trigger_fields(_plain(schedule["trigger"]), home)
    found |= target_fields(_plain(schedule["target"]))
    found["name"] = str(schedule["name"])
    found["priority"] = str(schedule["priority"])
    found["labels"] = _label_lines(schedule["labels"])
    if not schedule["enabled"]:
        del found["enabled"]
    policy = _plain(schedule["policy"])
    found |= {each.name: field_text(each, policy.get(each.json)) for each in policy_fields()}
    if isinstance(waits := schedule.get("depends_on"), Mapping):
        found["depends_on"] = str(waits["schedule_id"])
        found["within"] = short_duration(str(waits["within"]))
    delivery = schedule.get("delivery")
    return found | recipient_fields(delivery if isinstance(delivery, list) else [])


@dataclass(frozen=True, kw_only=True, slots=True)
class Definition:
    """Form fields as an API body. Parts that cannot be parsed are left out."""

    body: JsonObject
    errors: tuple[FieldError, ...] = ()


def definition_of(fields: Mapping[str, str], now: datetime, *, is_edit: bool) -> Definition:
    """Parses the form. With `is_edit`, an empty list of recipients removes all of them, and fields
    that are only set at creation (id, namespace, owner) are ignored."""
    errors: list[FieldError] = []
    body: JsonObject = {"name": fields.get("name", "").strip() or default_name(fields)}

    for name, reader in (
        ("trigger", lambda: trigger_body(fields, now)),
        ("target", lambda: target_body(fields)),
        ("policy", lambda: _policy(fields, is_edit=is_edit)),
        ("priority", lambda: parse_int(fields, "priority")),
    ):
        if name == "priority" and not fields.get("priority"):
            continue
        try:
            body[name] = reader()
        except InvalidInput as error:
            errors.append(field_error_from(error))
    body["labels"] = _labels(fields.get("labels", ""))
    body["enabled"] = bool(fields.get("enabled"))
    depends_on = fields.get("depends_on", "")
    body["depends_on"] = (
        {"schedule_id": depends_on, "within": fields.get("within") or "PT1H"}
        if depends_on
        else None
    )
    delivery = recipients_body(fields)
    if is_edit or delivery or fields.get("notify_none"):
        body["delivery"] = delivery
    if not is_edit:
        body |= {name: fields[name] for name in ("id", "namespace") if fields.get(name)}
        kind, _, owner = fields.get("owner", "").partition(":")
        if owner:
            body["owner"] = {"type": kind, "id": owner}
    return Definition(body=body, errors=tuple(errors))


def field_error_from(error: InvalidInput) -> FieldError:
    return FieldError(
        name=error.field or "", detail=error.message, code=error.code, hint=error.hint or ""
    )


def _policy(fields: Mapping[str, str], *, is_edit: bool) -> JsonObject:
    found: JsonObject = {}
    for each in policy_fields():
        if fields.get(each.name):
            found[each.json] = field_value(each, fields, each.name)
        elif is_edit and each.nullable:
            # For other fields, empty means unchanged.
            found[each.json] = None
    return found


def _labels(text: str) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if name.strip():
            found[name.strip()] = value.strip() if equals else None
    return found


def _label_lines(labels: object) -> str:
    if isinstance(labels, Mapping):
        return "\n".join(
            name if value is None else f"{name}={value}" for name, value in labels.items()
        )
    return "\n".join(str(each) for each in labels) if isinstance(labels, list) else ""


def _plain(value: object) -> JsonObject:
    return dict(value) if isinstance(value, Mapping) else {}


# --- summaries of folded sections --------------------------------------------------------------
def section_summaries(fields: Mapping[str, str], *, is_edit: bool) -> dict[str, Message]:
    """What the folded sections contain, in one line each."""
    return {
        "how": _listed(
            [
                _("{name}: {value}", name=each.label, value=_choice(each, fields[each.name]))
                for each in policy_fields()
                if fields.get(each.name)
            ],
            _("Default overlap, retry and timeout settings"),
        ),
        "notifications": _listed(
            _recipients(fields),
            _("Default: inbox")
            if fields.get("kind") == "message" and not is_edit and not fields.get("notify_none")
            else _("No notifications"),
        ),
        "more": _listed(
            [
                *([] if fields.get("enabled") else [_("Paused")]),
                *(line.strip() for line in fields.get("labels", "").splitlines() if line.strip()),
                *(fields[each] for each in ("id", "namespace", "owner") if fields.get(each)),
            ],
            _("Active, no labels"),
        ),
    }


def _listed(parts: Sequence[Message | str], empty: Message) -> Message:
    return joined(" · ", parts) if parts else empty


def _choice(declared: Field, value: str) -> str:
    return dict(declared.choices).get(value, value)


def _recipients(fields: Mapping[str, str]) -> list[Message | str]:
    found: list[Message | str] = []
    for number in range(MAX_RECIPIENTS):
        channel = fields.get(f"notify{number}_channel")
        if channel in tuple(Channel):
            to = fields.get(f"notify{number}_to", "")
            name = CHANNELS[Channel(channel)]
            found.append(_("{channel} {address}", channel=name, address=to[:40]) if to else name)
    return found


# --- form fields of API errors -----------------------------------------------------------------
_PLACES: Mapping[str, str] = {
    "trigger": "when",
    "trigger.kind": "when",
    "trigger.timezone": "zone",
    "trigger.start_at": "start",
    "trigger.end_at": "end",
    "trigger.scheme": "hook_scheme",
    "scheme": "hook_scheme",
    "trigger.secret": "hook_secret",
    "secret": "hook_secret",
    "trigger.schedule": "source_schedule",
    "trigger.status": "source_status",
    "status": "source_status",
    "trigger.batch.count": "batch_count",
    "batch.count": "batch_count",
    "trigger.batch.within": "batch_within",
    "batch.within": "batch_within",
    "target.name": "task",
    "target.signing_secrets": "secrets",
    "target.text": "message",
    "target.source": "pair",
    "target.collection": "pair",
    "target.action_type_id": "action",
    "target.kn_id": "kn",
    "target.account": "account_id",
    "depends_on.schedule_id": "depends_on",
    "depends_on.within": "within",
    "owner.id": "owner",
    "owner.type": "owner",
    "timezone": "zone",
    "start_at": "start",
    "end_at": "end",
    "text": "words",
}
_RECIPIENT = re.compile(r"delivery[.\[]([0-9]+)\]?(?:\.(.+))?")
_EXCLUSION = re.compile(r"(?:trigger\.)?exclude\[([0-9]+)\].*")
_ITEM = re.compile(r"[.\[][0-9]+\]?$")


def form_field_for(name: str, fields: Mapping[str, str]) -> str:
    """Returns the form field for a field name of the API; empty means the whole form."""
    if found := _RECIPIENT.fullmatch(name):
        return f"notify{_row_number(fields, found[1], 'notify')}_{row_field_for(found[2] or '')}"
    if found := _EXCLUSION.fullmatch(name):
        row = f"ex{_row_number(fields, found[1], 'ex')}"
        return f"{row}_{'value' if fields.get(f'{row}_value') else 'from'}"
    short = _ITEM.sub("", name)
    if argument := next((each for each in fields if _is_argument(each, short)), None):
        return argument
    if short == "target.name" and fields.get("kind") == "flow":
        return "flow"
    if short in ("trigger", "trigger.kind") and fields.get("when") == "cron":
        return "expression"
    if short in ("trigger.expression", "expression") and fields.get("when") == "days":
        return "rule_date" if fields.get("rule") == "monthly" else "rule_time"
    if short == "trigger.at" and fields.get("in"):
        return "in"
    return _PLACES.get(short) or short.rpartition(".")[2].partition("[")[0]


def _is_argument(field: str, name: str) -> bool:
    """Whether `field` (`arg_i_count`) stands for `count`, `target.args.count` or itself."""
    return field.startswith("arg_") and (
        field == name or field.partition("_")[2].partition("_")[2] == name.rpartition(".")[2]
    )


def _row_number(fields: Mapping[str, str], place: str, rows: str) -> int:
    """Maps an index of the body to its form row: empty rows are not in the body."""
    numbers = [
        number
        for number in range(MAX_RECIPIENTS + MAX_EXCLUSIONS)
        if (is_filled(fields, number) if rows == "ex" else fields.get(f"notify{number}_channel"))
    ]
    wanted = int(place)
    return numbers[wanted] if wanted < len(numbers) else wanted


#: A valid value of each field.
EXAMPLES: Mapping[str, str] = {
    "expression": "0 9 * * 1-5",
    "zone": "Asia/Bangkok",
    "at": "2030-02-10T09:00",
    "in": "2h",
    "every": "15",
    "anchor": "2030-02-10T09:00",
    "start": "2030-02-10T09:00",
    "end": "2030-12-31T23:59",
    "jitter": "30s",
    "max_runs": "10",
    "rule_date": "15",
    "url": "https://example.com/report",
    "headers": "X-Team: billing",
    "expected_status": "200, 204",
    "secrets": "whsec_…",
    "args": '{"days": 7}',
    "input": '{"source": "s3"}',
    "identities": '[{"pod_ip": "10.0.0.1"}]',
    "params": '{"force": true}',
    "max_tokens": "1000",
    "pair": "shop/orders",
    "priority": "0",
    "within": "1h",
    "owner": "user:alice",
    "id": "morning-report",
    "namespace": DEFAULT_NAMESPACE,
    **{each.name: each.about.example for each in policy_fields()},
}
_NOTIFICATION_EXAMPLES: Mapping[str, str] = {
    "late": "5m",
    "quiet_from": "22:00",
    "quiet_to": "07:00",
    "quiet_zone": "Asia/Bangkok",
    "digest_at": "08:00",
    "digest_zone": "Asia/Bangkok",
}
_ROW_EXAMPLES: Mapping[str, str] = {
    "dates": "2026-12-25, 2027-01-01",
    "holidays": "TH",
    "weekly": "MON-FRI 22:00-06:00",
    "telegram": "123456789",
    "webhook": "https://example.com/hook",
    "email": "ada@example.com",
    "slack": "https://hooks.slack.com/services/…",
    "apprise": "ntfy://topic",
}


def example_for(place: str, fields: Mapping[str, str]) -> str:
    row = re.match(r"(ex|notify)[0-9]+", place)
    if row and place.removeprefix(f"{row[0]}_") in _NOTIFICATION_EXAMPLES:
        return _NOTIFICATION_EXAMPLES[place.removeprefix(f"{row[0]}_")]
    if row:
        kind = fields.get(f"{row[0]}_{'kind' if row[1] == 'ex' else 'channel'}", "")
        return _ROW_EXAMPLES.get(kind, "")
    return EXAMPLES.get(place, "")


# --- descriptions and templates -------------------------------------------------------------------
_URL = re.compile(r"https?://[^\s\"'<>，。]+")
_NAME_LENGTH = 80
#: Verbs that send something: the request is a POST.
_SENDS = re.compile(
    r"\b(?:post|send|submit|trigger|notify|start|create|upload|push)\b|ส่ง|สร้าง|อัปโหลด|发送|提交|触发|上传",
    re.IGNORECASE,
)
#: Reminders are sent as messages, without an agent.
_REMINDER = re.compile(
    r"(?:please )?(?:remind\b|message me\b|send (?:me )?(?:a|the) message\b)"
    r"|(?:ช่วย|กรุณา)?(?:เตือน|ส่งข้อความ)|请?(?:提醒|发送?(?:一条)?消息)",
    re.IGNORECASE,
)
_TRIGGER_FIELDS = (
    *("when", "rule", "at", "in", "every", "unit", "anchor", "jitter", "spread", "trigger_json"),
    *("expression", "dialect", "dst", "start", "end", "max_runs"),
    *EVENT_NAMES,
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
        method = "POST" if _SENDS.search(_URL.sub("", task)) else "GET"
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
