"""Converts targets of the API to editor form fields and back."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from msgspec import NODEFAULT

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model.fields import Field, default_in_json, fields_of
from chimes.model.target import TARGETS
from chimes.web.dashboard.editor.struct_fields import (
    extra_fields,
    field_text,
    field_value,
    put_at,
    to_json_text,
    value_at,
)
from chimes.web.dashboard.editor.trigger_fields import Fields, JsonObject

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
    merged = (
        {**fields, "args": to_json_text(arguments_body(fields))} if _readable(fields) else fields
    )
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
    return others | {"args": to_json_text(rest), "args_for": fields.get("task", "")}


def _readable(fields: Mapping[str, str]) -> bool:
    try:
        arguments_body(fields)
    except InvalidInput:
        return False
    return True


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


#: Kinds whose whole form is made of the declarations of their fields. Their form fields are named
#: `celery_task`, because other kinds have fields of the same name.
DECLARED = ("celery", "dask", "kubernetes", "amqp", "nats", "redis_stream", "kafka")
KINDS = ("http", "task", "flow", "agent", "sync", "action", "message", "command", *DECLARED)
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")
DEFAULT_TARGET: Mapping[str, str] = {
    "kind": "http",
    "method": "POST",
    "verify_tls": "on",
    "branch": "main",
}


#: Form fields whose name differs from the field of the target: the form has those of all kinds.
_NAMES = {
    ("http", "signing_secrets"): "secrets",
    ("task", "name"): "task",
    ("flow", "name"): "flow",
    ("message", "text"): "message",
    ("action", "action_type_id"): "action",
    ("action", "kn_id"): "kn",
}
#: Shown as a check box, which is not sent if it is empty.
_CHECK_BOX = "verify_tls"
#: Fields with their own widgets in `what.html`.
_OWN = frozenset(
    {
        *("kind", "url", "method", "headers", "body", "expected_status", "signing_secrets"),
        *(_CHECK_BOX, "name", "args", "input", "source", "collection", "prompt", "pipeline"),
        *("model", "max_tokens", "action_type_id", "kn_id", "branch", "identities", "params"),
        *("account_id", "account_type", "text", "command", "shell", "env", "stdin"),
        *("success_codes", "requires"),
    }
)


def extra_target_fields() -> dict[str, tuple[Field, ...]]:
    return {
        kind: extra_fields(struct, _OWN) for kind, struct in TARGETS.items() if kind not in DECLARED
    }


def declared_target_fields() -> dict[str, tuple[Field, ...]]:
    """The fields of the kinds in `DECLARED`, without the kind itself."""
    return {
        kind: tuple(each for each in fields_of(TARGETS[kind]) if each.name != "kind")
        for kind in DECLARED
    }


def _form_name(kind: str, name: str) -> str:
    if kind in DECLARED and name != "kind":
        return f"{kind}_{name}"
    return _NAMES.get((kind, name), name)


def target_fields(target: Mapping[str, object]) -> Fields:
    kind = str(target.get("kind", "http"))
    found: Fields = {**DEFAULT_TARGET, "kind": kind}
    if kind == "sync":
        return found | {"pair": f"{target.get('source', '')}/{target.get('collection', '')}"}
    for field in fields_of(TARGETS[kind]):
        value = value_at(target, field.json)
        if field.name == _CHECK_BOX:
            found[_CHECK_BOX] = "" if value is False else "on"
        elif field.name == "command" and isinstance(value, list):
            found[_form_name(kind, "command")] = shlex.join(value)
        elif text := field_text(field, value):
            found[_form_name(kind, field.name)] = text
    return found


def target_body(fields: Mapping[str, str]) -> JsonObject:
    """Raises InvalidInput with the name of the form field for invalid JSON or numbers."""
    kind = fields.get("kind", "")
    if kind not in TARGETS:
        raise InvalidInput(_("Choose what to run."), field="kind", code="missing")
    if kind == "sync":
        source, _slash, collection = fields.get("pair", "").strip().partition("/")
        return {"kind": kind, "source": source, "collection": collection}
    found: JsonObject = {}
    for field in fields_of(TARGETS[kind]):
        name = _form_name(kind, field.name)
        text = fields.get(name, "")
        if field.name not in ("body", "stdin"):
            text = text.strip()
        if kind == "task" and field.name == "args":
            value: object = dict(arguments_body(fields))
        elif field.name == _CHECK_BOX:
            value = bool(text)
        elif field.name == "command":
            value = _words(text, name)
        elif field.item is None and not text:
            value = "" if field.default is NODEFAULT else default_in_json(field)
        else:
            value = field_value(field, {name: text}, name)
        put_at(found, field.json, value)
    return found


def _words(text: str, name: str) -> list[str]:
    """The arguments of a command, quoted as in a shell."""
    try:
        return shlex.split(text)
    except ValueError:
        raise InvalidInput(
            _("a quotation mark is not closed"), field=name, code="bad_command"
        ) from None


def command_words(target: Mapping[str, object]) -> list[str]:
    """The options of `chimes add` for a command of the API."""
    command = target.get("command")
    if isinstance(command, list) and command:
        found = ["--command", shlex.join(str(each) for each in command)]
    else:
        found = ["--shell", str(target.get("shell", ""))]
    for field in fields_of(TARGETS["command"]):
        value = target.get(field.name)
        if field.name in ("kind", "command", "shell") or not value:
            continue
        option = _COMMAND_OPTIONS.get(field.name, f"--{field.name.replace('_', '-')}")
        if isinstance(value, Mapping):
            found += [word for name, each in value.items() for word in (option, f"{name}={each}")]
        elif isinstance(value, list):
            found += [word for each in value for word in (option, str(each))]
        elif value != default_in_json(field):
            found += [option, str(value)]
    return found


#: Options that are repeated for each item have another name than the field.
_COMMAND_OPTIONS = {"success_codes": "--success-code", "requires": "--require"}


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
        case "command":
            shown = fields.get("command", "").strip() or fields.get("shell", "").strip()
            return shown.partition("\n")[0][:80]
        case kind if kind in DECLARED:
            names = ("task", "function", "image", "exchange", "subject", "stream", "topic")
            used = (fields.get(f"{kind}_{name}", "").strip() for name in (*names, "routing_key"))
            return next(filter(None, used), "")[:80]
        case kind:
            return fields.get(kind or "", "").strip()
