"""Converts targets of the API to editor form fields and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.web.dashboard.editor.trigger_fields import Fields, JsonObject, parse_int

# Arguments of a task get form fields from the JSON Schema that its node publishes. A field is named
# `arg_<type>_<argument>`, so that the form can be parsed without the schema. Arguments without a
# field, or with a value that the field cannot represent, stay in the JSON field `args`.

#: String, integer, number, boolean, JSON.
ArgumentType = Literal["s", "i", "n", "b", "j"]
PREFIX = "arg_"
_TYPES: Mapping[str, ArgumentType] = {
    "string": "s",
    "integer": "i",
    "number": "n",
    "boolean": "b",
    "array": "j",
    "object": "j",
}
_INPUTS = {"date": "date", "time": "time", "email": "email", "uri": "url"}
_EXAMPLES = {"duration": "PT15M", "date-time": "2030-02-10T09:00:00Z", "uuid": ""}
_LONGEST_LINE = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Argument:
    #: Name of the form field, and of the argument.
    field: str
    name: str
    type: ArgumentType
    required: bool
    #: Type of the `<input>` element.
    input: str
    choices: tuple[str, ...]
    #: Default value as text.
    default: str
    description: str
    example: str

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Value and label of each choice."""
        return tuple((each, each) for each in self.choices)


def arguments_from_schema(schema: Mapping[str, object]) -> tuple[Argument, ...]:
    """Returns the arguments in the order of the function, without those of unknown type."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, Mapping):
        return ()
    needed = required if isinstance(required, list) else []
    found = []
    for name, plain in properties.items():
        if not isinstance(plain, Mapping) or not isinstance(name, str):
            continue
        if (one := _argument(name, plain, required=name in needed)) is not None:
            found.append(one)
    return tuple(found)


def _argument(name: str, plain: Mapping[str, object], *, required: bool) -> Argument | None:
    inner = _resolved(plain)
    kind = _TYPES.get(str(inner.get("type", "")))
    if kind is None:
        return None
    enum = inner.get("enum")
    choices = tuple(str(each) for each in enum) if isinstance(enum, list) else ()
    form = str(inner.get("format", ""))
    default = plain.get("default")
    return Argument(
        field=f"{PREFIX}{kind}_{name}",
        name=name,
        type=kind,
        required=required,
        input=_INPUTS.get(form, "text"),
        choices=choices if kind == "s" else (),
        default="" if default in (None, "") else _text(kind, default),
        description=str(inner.get("description", "") or plain.get("description", ""))[:300],
        example=_EXAMPLES.get(form, ""),
    )


def _resolved(plain: Mapping[str, object]) -> Mapping[str, object]:
    """Resolves optional types and references; empty for a union of several types."""
    defs = plain.get("$defs")
    known = defs if isinstance(defs, Mapping) else {}
    some = plain.get("anyOf")
    if isinstance(some, list):
        real = [each for each in some if isinstance(each, Mapping) and each.get("type") != "null"]
        plain = real[0] if len(real) == 1 else {}
    name = str(plain.get("$ref", "")).removeprefix("#/$defs/")
    found = known.get(name, plain)
    return found if isinstance(found, Mapping) else {}


# --- from arguments to fields --------------------------------------------------------------------
def split_arguments(fields: Fields, arguments: tuple[Argument, ...]) -> Fields:
    """Moves arguments from the JSON field to their own fields; removes fields of another task."""
    merged = {**fields, "args": _to_json(arguments_body(fields))} if _readable(fields) else fields
    others = {name: value for name, value in merged.items() if not name.startswith(PREFIX)}
    if not _readable(fields):
        return fields
    rest = dict(arguments_body(others))
    for each in arguments:
        if each.name not in rest:
            continue
        text = _text(each.type, rest[each.name])
        if text and _round_trips(each, text, rest[each.name]):
            others[each.field] = text
            del rest[each.name]
    return others | {"args": _to_json(rest), "args_for": fields.get("task", "")}


def _readable(fields: Mapping[str, str]) -> bool:
    try:
        arguments_body(fields)
    except InvalidInput:
        return False
    return True


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) if value else ""


def _text(kind: ArgumentType, value: object) -> str:
    if kind == "s":
        return value if isinstance(value, str) else ""
    if kind == "b":
        return {True: "yes", False: "no"}.get(value, "") if isinstance(value, bool) else ""
    return json.dumps(value, ensure_ascii=False)


def _round_trips(argument: Argument, text: str, value: object) -> bool:
    """Whether parsing the field returns the same value."""
    if argument.type == "s" and ("\n" in text or len(text) > _LONGEST_LINE):
        return False
    if argument.choices and text not in argument.choices:
        return False
    try:
        again = _value(argument.type, text, argument.field)
    except InvalidInput:
        return False
    return type(again) is type(value) and again == value


# --- from fields to arguments --------------------------------------------------------------------
def arguments_body(fields: Mapping[str, str]) -> Mapping[str, object]:
    """Returns the arguments: the JSON field, overridden by filled fields.

    Fields of another task are ignored. Raises InvalidInput with the name of the form field."""
    found = dict(_parse_json_object(fields.get("args", "")))
    made_for = fields.get("args_for", "")
    if made_for and made_for != fields.get("task", "").strip():
        return found
    for name, text in fields.items():
        kind, _underscore, argument = name.removeprefix(PREFIX).partition("_")
        if not name.startswith(PREFIX) or text == "" or not argument:
            continue
        found[argument] = _value(kind, text, name)
    return found


def missing_argument(fields: Mapping[str, str], arguments: tuple[Argument, ...]) -> Argument | None:
    """Returns the first required argument without a value."""
    given = arguments_body(fields)
    return next((each for each in arguments if each.required and each.name not in given), None)


def _parse_json_object(text: str) -> Mapping[str, object]:
    if not text.strip():
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidInput(
            _("Enter valid JSON of the expected type."), field="args", code="bad_json"
        )
    return found


def _value(kind: str, text: str, field: str) -> object:
    if kind == "s":
        return text
    if kind == "b":
        return text == "yes"
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    number = isinstance(found, int | float) and not isinstance(found, bool)
    if kind == "i" and not (number and isinstance(found, int)):
        raise InvalidInput(_("Enter a whole number."), field=field, code="not_a_number")
    if kind == "n" and not number:
        raise InvalidInput(_("Enter a number."), field=field, code="not_a_number")
    if found is None and text.strip() != "null":
        raise InvalidInput(
            _("Enter valid JSON of the expected type."), field=field, code="bad_json"
        )
    return found


KINDS = ("http", "task", "flow", "agent", "sync", "action", "message")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")
DEFAULT_TARGET: Mapping[str, str] = {
    "kind": "http",
    "method": "POST",
    "verify_tls": "on",
    "branch": "main",
}


def target_fields(target: Mapping[str, object]) -> Fields:
    kind = str(target.get("kind", "http"))
    found: Fields = {**DEFAULT_TARGET, "kind": kind}

    def put(**texts: str) -> None:
        for field, key in texts.items():
            value = target.get(key)
            if value not in (None, ""):
                found[field] = str(value)

    match kind:
        case "http":
            put(url="url", method="method", body="body")
            headers = target.get("headers")
            if isinstance(headers, Mapping):
                found["headers"] = "\n".join(f"{name}: {value}" for name, value in headers.items())
            found["expected_status"] = ", ".join(_texts(target.get("expected_status")))
            found["secrets"] = "\n".join(_texts(target.get("signing_secrets")))
            if target.get("verify_tls", True) is False:
                found["verify_tls"] = ""
        case "task":
            put(task="name")
            found["args"] = _to_json(target.get("args"))
        case "flow":
            put(flow="name")
            found["input"] = _to_json(target.get("input"))
        case "agent":
            put(prompt="prompt", pipeline="pipeline", model="model", max_tokens="max_tokens")
        case "message":
            found["message"] = str(target.get("text", ""))
        case "sync":
            found["pair"] = f"{target.get('source', '')}/{target.get('collection', '')}"
        case _:
            put(action="action_type_id", kn="kn_id", branch="branch")
            found |= _action_fields(target)
    return found


def _action_fields(target: Mapping[str, object]) -> Fields:
    account = target.get("account")
    known = account if isinstance(account, Mapping) else {}
    return {
        "identities": _to_json(target.get("identities")),
        "params": _to_json(target.get("params")),
        "account_id": str(known.get("id", "")),
        "account_type": str(known.get("type", "")),
    }


def target_body(fields: Mapping[str, str]) -> JsonObject:
    """Raises InvalidInput with the name of the form field for invalid JSON or numbers."""
    kind = fields.get("kind", "")
    match kind:
        case "http":
            return {
                "kind": kind,
                "url": fields.get("url", "").strip(),
                "method": fields.get("method") or "POST",
                "headers": _headers(fields.get("headers", "")),
                "body": fields.get("body", ""),
                "expected_status": _statuses(fields.get("expected_status", "")),
                "signing_secrets": fields.get("secrets", "").split(),
                "verify_tls": bool(fields.get("verify_tls")),
            }
        case "task":
            name = fields.get("task", "").strip()
            return {"kind": kind, "name": name, "args": dict(arguments_body(fields))}
        case "flow":
            name = fields.get("flow", "").strip()
            return {"kind": kind, "name": name, "input": _json(fields, "input")}
        case "agent":
            tokens = parse_int(fields, "max_tokens") if fields.get("max_tokens") else None
            return {
                "kind": kind,
                "prompt": fields.get("prompt", "").strip(),
                "pipeline": fields.get("pipeline", ""),
                "model": fields.get("model", "").strip(),
                "max_tokens": tokens,
            }
        case "message":
            return {"kind": kind, "text": fields.get("message", "").strip()}
        case "sync":
            source, _slash, collection = fields.get("pair", "").strip().partition("/")
            return {"kind": kind, "source": source, "collection": collection}
        case "action":
            return {
                "kind": kind,
                "action_type_id": fields.get("action", "").strip(),
                "kn_id": fields.get("kn", "").strip(),
                "branch": fields.get("branch", "").strip() or "main",
                "identities": _json(fields, "identities", empty=list),
                "params": _json(fields, "params"),
                "account": {
                    "id": fields.get("account_id", "").strip(),
                    "type": fields.get("account_type", "").strip(),
                },
            }
        case _:
            raise InvalidInput(_("Choose what to run."), field="kind", code="missing")


def default_name(fields: Mapping[str, str]) -> str:
    """Returns the name of a schedule that has none, derived from its target."""
    match fields.get("kind"):
        case "http":
            url = fields.get("url", "").strip()
            address = url.partition("://")[2].partition("?")[0].rpartition("@")[2].rstrip("/")
            return f"{fields.get('method') or 'POST'} {address}" if address else ""
        case "agent":
            return " ".join(fields.get("prompt", "").split())[:80]
        case "message":
            return " ".join(fields.get("message", "").split())[:80]
        case "sync":
            return fields.get("pair", "").strip()
        case kind:
            return fields.get(kind or "", "").strip()


def _texts(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list | tuple) else []


def _headers(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if not line.strip():
            continue
        if not colon or not name.strip():
            raise InvalidInput(
                _("Enter one header per line, as Name: value."),
                field="headers",
                code="bad_header",
            )
        found[name.strip()] = value.strip()
    return found


def _statuses(text: str) -> list[int]:
    parts = text.replace(",", " ").split()
    if not all(each.isdigit() and len(each) < 9 for each in parts):
        raise InvalidInput(
            _("Enter status codes as numbers."), field="expected_status", code="not_a_number"
        )
    return [int(each) for each in parts]


def _json(fields: Mapping[str, str], name: str, *, empty: type = dict) -> object:
    text = fields.get(name, "").strip()
    if not text:
        return empty()
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, empty):
        raise InvalidInput(_("Enter valid JSON of the expected type."), field=name, code="bad_json")
    return found
