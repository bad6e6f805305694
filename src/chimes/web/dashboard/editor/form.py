"""The whole form of the wizard: a schedule as the API has it, to fields and back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from chimes.errors import InvalidInput
from chimes.model.validation import MOST_RECIPIENTS
from chimes.web.dashboard.core.forms import Form
from chimes.web.dashboard.editor.recipient_fields import (
    TICKED,
    part_of,
    recipient_fields,
    recipients_plain,
)
from chimes.web.dashboard.editor.target_fields import EMPTY as EMPTY_WHAT
from chimes.web.dashboard.editor.target_fields import target_fields, target_plain, usual_name
from chimes.web.dashboard.editor.trigger_fields import EMPTY as EMPTY_WHEN
from chimes.web.dashboard.editor.trigger_fields import (
    MOST_EXCLUSIONS,
    Fields,
    Plain,
    is_filled,
    short_duration,
    trigger_fields,
    trigger_plain,
    whole,
)
from chimes.web.problems import FieldError

#: Fields with several boxes to tick: what is ticked, with commas between.
_TICKED = re.compile(rf"rule_days|ex[0-9]+_days|{TICKED}")
#: As they are typed; of all others the blanks around them go.
_AS_TYPED = frozenset(
    {"body", "prompt", "headers", "args", "input", "identities", "params", "message"}
)
_NOT_KEPT = frozenset({"csrf", "back", "do", "base"})
_NUMBERS = ("catch_up_limit", "max_concurrent_runs", "max_retries")
_DURATIONS = ("misfire_grace", "retry_backoff", "backoff_cap", "timeout")
_CHOICES = ("misfire", "overlap", "backoff", "on_lost")
#: Nothing is a value of these, where for the others it means: as it is.
_MAY_BE_NOTHING = ("max_concurrent_runs", "concurrency_key")
_SWITCHES = ("burst_allowed", "pause_on_gone")


def new_fields(zone: str) -> Fields:
    return {**EMPTY_WHEN, **EMPTY_WHAT, "zone": zone, "enabled": "on", "within": "1h"}


def fields_from(form: Form) -> Fields:
    """What a form sends, as it is shown again."""
    found: Fields = {}
    for name in dict(form.items()):
        if name in _NOT_KEPT or name in found:
            continue
        if _TICKED.fullmatch(name):
            found[name] = ",".join(form.all(name))
        else:
            as_typed = name in _AS_TYPED or name.startswith("arg_s_")
            found[name] = form.raw(name) if as_typed else form.text(name)
    return found


def fields_of(schedule: Mapping[str, object], home: str) -> Fields:
    """Of a schedule as the API answers it, its secrets hidden."""
    found = new_fields(home)
    found |= trigger_fields(_plain(schedule["trigger"]), home)
    found |= target_fields(_plain(schedule["target"]))
    found["name"] = str(schedule["name"])
    found["priority"] = str(schedule["priority"])
    found["labels"] = _label_lines(schedule["labels"])
    if not schedule["enabled"]:
        del found["enabled"]
    for name, value in _plain(schedule["policy"]).items():
        if name in _SWITCHES:
            found[name] = "yes" if value else "no"
        elif name in _DURATIONS:
            found[name] = short_duration(str(value))
        elif value is not None:
            found[name] = str(value)
    if isinstance(waits := schedule.get("depends_on"), Mapping):
        found["depends_on"] = str(waits["schedule_id"])
        found["within"] = short_duration(str(waits["within"]))
    delivery = schedule.get("delivery")
    return found | recipient_fields(delivery if isinstance(delivery, list) else [])


@dataclass(frozen=True, kw_only=True, slots=True)
class Definition:
    """What a form says, as the API reads it. A part that cannot be read is not in it."""

    body: Plain
    wrong: tuple[FieldError, ...] = ()


def definition_of(fields: Mapping[str, str], now: datetime, *, changing: bool) -> Definition:
    """`changing`: of a schedule that there is; then recipients that are gone are gone, and what is
    chosen once (id, namespace, owner) is not asked for."""
    wrong: list[FieldError] = []
    body: Plain = {"name": fields.get("name", "").strip() or usual_name(fields)}

    def put(name: str, read: object) -> None:
        body[name] = read

    for name, reader in (
        ("trigger", lambda: trigger_plain(fields, now)),
        ("target", lambda: target_plain(fields)),
        ("policy", lambda: _policy(fields, changing=changing)),
        ("priority", lambda: whole(fields, "priority")),
    ):
        if name == "priority" and not fields.get("priority"):
            continue
        try:
            put(name, reader())
        except InvalidInput as error:
            wrong.append(told_at(error))
    body["labels"] = _labels(fields.get("labels", ""))
    body["enabled"] = bool(fields.get("enabled"))
    depends_on = fields.get("depends_on", "")
    body["depends_on"] = (
        {"schedule_id": depends_on, "within": fields.get("within") or "PT1H"}
        if depends_on
        else None
    )
    delivery = recipients_plain(fields)
    if changing or delivery or fields.get("tell_nobody"):
        body["delivery"] = delivery
    if not changing:
        body |= {name: fields[name] for name in ("id", "namespace") if fields.get(name)}
        kind, _, owner = fields.get("owner", "").partition(":")
        if owner:
            body["owner"] = {"type": kind, "id": owner}
    return Definition(body=body, wrong=tuple(wrong))


def told_at(error: InvalidInput) -> FieldError:
    return FieldError(
        name=error.field or "", detail=error.message, code=error.code, hint=error.hint or ""
    )


def _policy(fields: Mapping[str, str], *, changing: bool) -> Plain:
    found: Plain = {}
    for name in (*_DURATIONS, *_CHOICES, "concurrency_key"):
        if fields.get(name):
            found[name] = fields[name]
    for name in _NUMBERS:
        if fields.get(name):
            found[name] = whole(fields, name)
    for name in _SWITCHES:
        if fields.get(name):
            found[name] = fields[name] == "yes"
    if changing:
        found = dict.fromkeys(_MAY_BE_NOTHING) | found
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


def _plain(value: object) -> Plain:
    return dict(value) if isinstance(value, Mapping) else {}


# --- where an error is told --------------------------------------------------------------------
_PLACES: Mapping[str, str] = {
    "trigger": "when",
    "trigger.kind": "when",
    "trigger.timezone": "zone",
    "trigger.start_at": "start",
    "trigger.end_at": "end",
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


def place_of(name: str, fields: Mapping[str, str]) -> str:
    """The field of the form that a field of the API stands for; empty: the form as a whole."""
    if found := _RECIPIENT.fullmatch(name):
        return f"tell{_nth(fields, found[1], 'tell')}_{part_of(found[2] or '')}"
    if found := _EXCLUSION.fullmatch(name):
        row = f"ex{_nth(fields, found[1], 'ex')}"
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
    """`arg_i_count` for `count`, `target.args.count` or `arg_i_count` itself."""
    return field.startswith("arg_") and (
        field == name or field.partition("_")[2].partition("_")[2] == name.rpartition(".")[2]
    )


def _nth(fields: Mapping[str, str], place: str, rows: str) -> int:
    """Rows that are empty are not sent: the number of the row behind the number in the body."""
    numbers = [
        number
        for number in range(MOST_RECIPIENTS + MOST_EXCLUSIONS)
        if (is_filled(fields, number) if rows == "ex" else fields.get(f"tell{number}_channel"))
    ]
    wanted = int(place)
    return numbers[wanted] if wanted < len(numbers) else wanted


#: What can be written there, by field.
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
    "max_retries": "3",
    "retry_backoff": "30s",
    "backoff_cap": "1h",
    "timeout": "10m",
    "misfire_grace": "1m",
    "catch_up_limit": "1000",
    "max_concurrent_runs": "1",
    "within": "1h",
    "owner": "user:alice",
    "id": "morning-report",
    "namespace": "native",
}
_TELL_EXAMPLES: Mapping[str, str] = {
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
    "webhook": "https://example.com/told",
    "email": "ada@example.com",
}


def example_for(place: str, fields: Mapping[str, str]) -> str:
    row = re.match(r"(ex|tell)[0-9]+", place)
    if row and place.removeprefix(f"{row[0]}_") in _TELL_EXAMPLES:
        return _TELL_EXAMPLES[place.removeprefix(f"{row[0]}_")]
    if row:
        kind = fields.get(f"{row[0]}_{'kind' if row[1] == 'ex' else 'channel'}", "")
        return _ROW_EXAMPLES.get(kind, "")
    return EXAMPLES.get(place, "")
