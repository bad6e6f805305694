"""Renders a schedule as CLI command, curl request and YAML. Secrets stay masked as `***`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

import yaml
from msgspec import NODEFAULT

from chimes.errors import InvalidInput
from chimes.model.fields import default_in_json, fields_of
from chimes.model.policy import command_options, policy_fields
from chimes.model.recipient import Recipient, format_recipient
from chimes.model.target import TARGETS
from chimes.triggers import format_duration_go, parse_duration
from chimes.web.dashboard.editor.struct_fields import put_at
from chimes.web.dashboard.editor.target_fields import DECLARED, command_words
from chimes.web.dashboard.editor.trigger_fields import JsonObject

#: Trigger fields that `chimes add` has options for.
_TRIGGER_KEYS = frozenset({"kind", "expression", "timezone", "every", "at", "jitter"})
_KEY_HEADER = "Authorization: Bearer $CHIMES_API_KEY"
#: Shown even if they have their default.
_SHOWN = frozenset({"kind", "method", "to", "on"})
_DEFAULTS: JsonObject = {"labels": {}, "enabled": True, "depends_on": None, "policy": {}}
_DEFAULTS |= {each.json: None for each in policy_fields() if each.nullable}
for _kind in (*TARGETS.values(), Recipient):
    for _field in fields_of(_kind):
        if _field.default is not NODEFAULT and _field.name not in _SHOWN:
            put_at(_DEFAULTS, _field.json, default_in_json(_field))
_COMMAND_FIELDS = frozenset(
    {"name", "trigger", "target", "policy", "priority", "labels", "enabled", "delivery"}
)


_COMMAND_RECIPIENT_FIELDS = frozenset(
    {"channel", "to", "on", "signing_secrets", "late_after", "quiet", "digest"}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    text: str
    #: Whether the command covers the whole definition.
    complete: bool


def without_defaults(body: Mapping[str, object]) -> JsonObject:
    """Returns the body without default values."""
    found: JsonObject = {}
    for name, value in body.items():
        if isinstance(value, Mapping) and name in ("target", "policy"):
            value = without_defaults(value)
        elif name == "delivery" and isinstance(value, list):
            value = [
                without_defaults(each) if isinstance(each, Mapping) else each for each in value
            ]
        if name not in _DEFAULTS or value != _DEFAULTS[name]:
            found[name] = value
    return found


def as_yaml(body: Mapping[str, object]) -> str:
    text: str = yaml.safe_dump(
        {"schedules": [without_defaults(body)]}, allow_unicode=True, sort_keys=False, width=88
    )
    return text


def as_curl(body: Mapping[str, object], url: str) -> str:
    data = json.dumps(without_defaults(body), ensure_ascii=False)
    lines = (
        ("curl", "-X", "POST", shlex.quote(f"{url}/api/v1/schedules")),
        ("-H", f'"{_KEY_HEADER}"'),
        ("-H", shlex.quote(": ".join(("Content-Type", "application/json")))),
        ("-d", shlex.quote(data)),
    )
    return " \\\n  ".join(" ".join(line) for line in lines)


def as_command(body: Mapping[str, object]) -> Command:
    chosen = without_defaults(body)
    trigger, target = _part(chosen, "trigger"), _part(chosen, "target")
    policy = _part(chosen, "policy")
    words = ["chimes", "add", _expression(trigger)]
    complete = not (trigger.keys() - _TRIGGER_KEYS) and chosen.keys() <= _COMMAND_FIELDS
    if "timezone" in trigger:
        words += ["--tz", str(trigger["timezone"])]
    if "jitter" in trigger:
        words += ["--jitter", str(trigger["jitter"])]
    options, covered = _target_options(target)
    words += options
    offered = {field.json: option for option, field in command_options().items()}
    complete = complete and covered and policy.keys() <= offered.keys()
    words += ["--name", str(chosen.get("name", ""))]
    for name, option in offered.items():
        if name in policy:
            words += [option, str(policy[name])]
    if chosen.get("priority"):
        words += ["--priority", str(chosen["priority"])]
    for name, value in _part(chosen, "labels").items():
        words += ["--label", name if value is None else f"{name}={value}"]
    delivery = chosen.get("delivery")
    for each in delivery if isinstance(delivery, list) else []:
        words += ["--notify", format_recipient(each)]
        complete = complete and each.keys() <= _COMMAND_RECIPIENT_FIELDS
    if chosen.get("enabled") is False:
        words.append("--paused")
    return Command(text=shlex.join(words), complete=complete)


def _expression(trigger: JsonObject) -> str:
    if trigger.get("kind") == "every":
        try:
            step = format_duration_go(parse_duration(str(trigger["every"])))
            return " ".join(("every", step))
        except InvalidInput:
            return "every …"
    return str(trigger.get("expression") or trigger.get("at") or "…")


def _target_options(target: JsonObject) -> tuple[list[str], bool]:
    """Returns the options, and whether they cover the whole target."""
    match target.get("kind"):
        case "http":
            return _http_options(target), target.keys() <= _HTTP_OPTIONS
        case "task" | "flow" as kind:
            key = "args" if kind == "task" else "input"
            words = [f"--{kind}", str(target.get("name", ""))]
            if target.get(key):
                words += [f"--{key}", json.dumps(target[key], ensure_ascii=False)]
            return words, True
        case "sync":
            return ["--sync", f"{target.get('source')}/{target.get('collection')}"], True
        case "agent":
            words = ["--agent", "--prompt", str(target.get("prompt", ""))]
            if target.get("model"):
                words += ["--model", str(target["model"])]
            return words, target.keys() <= {"kind", "prompt", "model"}
        case "message":
            return ["--message", str(target.get("text", ""))], True
        case "action":
            return _action_options(target), "account" not in target
        case "command":
            return command_words(target), True
        case kind:
            words = ["--target", json.dumps(target, ensure_ascii=False)]
            return (words, True) if kind in DECLARED else ([], False)


_HTTP_OPTIONS = frozenset({"kind", "url", "method", "headers", "body"})


def _http_options(target: JsonObject) -> list[str]:
    words = ["--http", str(target.get("url", "")), "--method", str(target.get("method"))]
    for name, value in _part(target, "headers").items():
        words += ["--header", f"{name}: {value}"]
    if target.get("body"):
        words += ["--body", str(target["body"])]
    return words


def _action_options(target: JsonObject) -> list[str]:
    words = ["--action", str(target["action_type_id"]), "--kn", str(target["kn_id"])]
    if "branch" in target:
        words += ["--branch", str(target["branch"])]
    identities = target.get("identities")
    for each in identities if isinstance(identities, list) else []:
        words += ["--identity", json.dumps(each, ensure_ascii=False)]
    for name, value in _part(target, "params").items():
        words += ["--param", f"{name}={json.dumps(value, ensure_ascii=False)}"]
    return words


def _part(body: Mapping[str, object], name: str) -> JsonObject:
    found = body.get(name)
    return dict(found) if isinstance(found, Mapping) else {}


def pretty(value: object) -> str:
    """Formats a value as indented JSON."""
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)
