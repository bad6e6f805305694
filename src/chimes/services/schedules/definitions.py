"""Definitions of schedules as plain JSON objects, in the shape that the native API documents.

Targets and recipients are read for callers that define schedules in code rather than over HTTP. The
result is complete but not yet checked: `check_target` and `check_recipients` do that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import time, timedelta
from typing import Final, TypeVar, get_origin

from msgspec import Struct

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model.fields import Field, fields_of, is_enum, is_struct, to_json
from chimes.model.policy import Policy
from chimes.model.recipient import (
    SELECTABLE_EVENTS,
    Channel,
    Digest,
    NotifyOn,
    Period,
    Recipient,
    parse_recipient,
)
from chimes.model.schedule import Dependency, Schedule
from chimes.model.target import TARGETS, HttpTarget, Target
from chimes.store.codec.values import (
    Codec,
    Part,
    Read,
    checked,
    field_reader,
    reject_unknown,
    wrong_type,
)
from chimes.triggers import parse_duration
from chimes.triggers.base import trigger_keys
from chimes.triggers.values import suggest_name

S = TypeVar("S", bound=Struct)
#: Alternative names of the fields of an action.
_ACTION_ALIASES: Final = {
    "unique_identities": "identities",
    "_instance_identities": "identities",
    "dynamic_params": "params",
}


def target_from_json(data: Mapping[str, object]) -> Target:
    """The target that the object describes; without a `kind` it is an HTTP callback.

    InvalidInput names the field that is missing, unknown or of the wrong type.
    """
    kind = data.get("kind", "http")
    if not isinstance(kind, str) or kind not in TARGETS:
        raise InvalidInput(
            _("unknown kind of target {kind!r}; use one of {kinds}", kind=str(kind)[:64],
                kinds=", ".join(TARGETS)),
            field="kind",
            code="unknown_kind",
            hint=suggest_name(str(kind), TARGETS),
        )  # fmt: skip
    return _TARGETS[kind].decode(_action(data) if kind == "action" else data)


def recipient_from_json(data: Mapping[str, object]) -> Recipient:
    """The recipient that the object describes. InvalidInput names the field that is wrong."""
    return _RECIPIENT.decode(data)


def definition_to_json(schedule: Schedule, *, masked: bool) -> dict[str, object]:
    """The definition in the form of the API: what a person writes to create the schedule, without
    name, namespace, owner and id. `masked` hides secrets."""
    trigger = schedule.trigger.shown()
    if not masked:
        unmasked = schedule.trigger.to_dict()
        trigger = {name: unmasked[name] for name in trigger}
    return {
        "trigger": trigger,
        "target": to_json(schedule.target, masked=masked),
        "policy": to_json(schedule.policy, without=("delivery",)),
        "priority": schedule.priority,
        "labels": dict(schedule.labels),
        "enabled": schedule.enabled,
        "depends_on": to_json(schedule.depends_on) if schedule.depends_on else None,
        "delivery": [to_json(each, masked=masked) for each in schedule.policy.delivery],
    }


def _action(data: Mapping[str, object]) -> dict[str, object]:
    """With the names of the fields, and those of the account as `account.id`."""
    found = {_ACTION_ALIASES.get(name, name): value for name, value in data.items()}
    account = found.pop("account", None)
    if account is None:
        return found
    if not isinstance(account, dict):
        raise wrong_type("account", dict, account)
    reject_unknown(account.keys() - {"id", "type"})
    return found | {f"account.{name}": value for name, value in account.items()}


def _channel(value: object) -> Channel:
    if value not in set(Channel):
        raise InvalidInput(
            _("expected one of {channels}, got {value!r}", channels=", ".join(Channel),
                value=value),
            code="unknown_channel",
        )  # fmt: skip
    return Channel(str(value))


def _address(value: object) -> str:
    """The id of a chat may be a number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return "" if value is None else _text(value).strip()


def _events(value: object) -> tuple[NotifyOn, ...]:
    if value is None:
        return ()
    known = {each.value: each for each in SELECTABLE_EVENTS}
    if not isinstance(value, list | tuple) or not all(each in known for each in value):
        raise InvalidInput(
            _("expected a list of {events}, got {value!r}", events=", ".join(known), value=value),
            code="unknown_occasion",
        )
    return tuple(dict.fromkeys(known[each] for each in value))


def _duration(value: object) -> timedelta:
    return parse_duration(_text(value), allow_zero=True)


def _time_of_day(value: object) -> time:
    hour, colon, minute = value.partition(":") if isinstance(value, str) else ("", "", "")
    if not colon or len(minute) != 2 or len(hour) > 2 or not (hour + minute).isdecimal():
        raise InvalidInput(
            _("expected a time of day such as 07:30, got {value!r}", value=value), code="bad_clock"
        )
    return time(int(hour), int(minute))


def _body(value: object) -> str:
    """Text is sent as it is; any other JSON is serialized."""
    if isinstance(value, Mapping | list):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return "" if value is None else _text(value)


def _object(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise InvalidInput(_("expected an object, got {type}", type=type(value).__name__))
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInput(
            _("expected text, got {name}", name=type(value).__name__), code="wrong_type"
        )
    return value


def _whole_number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInput(
            _("expected a whole number, got {type}", type=type(value).__name__), code="wrong_type"
        )
    return value


# --- fields from text -----------------------------------------------------------------------------
_FLAGS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("true", "yes", "on"), True),
    **dict.fromkeys(("false", "no", "off"), False),
}
#: Fields of a definition that consist of others.
_PARTS: Final = ("trigger", "target", "policy", "labels", "depends_on")


def assign_text(definition: dict[str, object], path: str, text: str) -> None:
    """Sets a field of a definition in the form of the API, such as `policy.timeout`, to the value
    that a person wrote. The declaration of the field decides its type; JSON is accepted for objects
    and lists. InvalidInput names the path."""
    head, dot, rest = path.partition(".")
    try:
        if not dot:
            definition[head] = _whole_field(head, text)
            return
        if head not in _PARTS:
            raise _no_field(head, rest, ()) if head in _TOP else _unknown_part(head)
        part = definition.get(head)
        definition[head] = part = dict(part) if isinstance(part, Mapping) else {}
        if head == "labels":
            part[rest] = None if text == "null" else text
        elif head == "trigger":
            _assign_trigger(part, rest, text)
        else:
            _assign_part(head, part, rest, text)
    except InvalidInput as error:
        error.field = path
        raise


def remove_field(definition: dict[str, object], path: str) -> None:
    """Removes a field, which then has its default value. InvalidInput if it is not there."""
    *outer, last = path.split(".", 2)
    part: object = definition
    for name in outer:
        part = part.get(name) if isinstance(part, dict) else None
    if not isinstance(part, dict) or last not in part:
        known = [*part] if isinstance(part, dict) else [*definition]
        raise InvalidInput(
            _("there is no field {path}", path=path),
            field=path,
            code="unknown_field",
            hint=suggest_name(last, known),
        )
    del part[last]


def _whole_field(name: str, text: str) -> object:
    if name not in _TOP:
        raise _unknown_part(name)
    read = _TOP[name]
    return read(text)


def _unknown_part(name: str) -> InvalidInput:
    return InvalidInput(
        _("{field} is not a known field", field=name),
        code="unknown_field",
        hint=suggest_name(name, _TOP),
    )


def _no_field(part: str, name: str, known: Iterable[str]) -> InvalidInput:
    return InvalidInput(
        _("{part} has no field {name!r}", part=part, name=name),
        code="unknown_field",
        hint=suggest_name(name, list(known)),
    )


def _assign_trigger(trigger: dict[str, object], name: str, text: str) -> None:
    known = trigger_keys(str(trigger.get("kind")))
    if name not in known:
        raise _no_field("trigger", name, known)
    if not text:
        trigger.pop(name, None)
    elif name == "max_runs":
        trigger[name] = _number_of(text)
    else:
        trigger[name] = _json_of(text) if name == "exclude" else text


def _assign_part(head: str, part: dict[str, object], rest: str, text: str) -> None:
    if head == "target":
        kind: type[Struct] = TARGETS.get(str(part.get("kind", "http")), HttpTarget)
    else:
        kind = Policy if head == "policy" else Dependency
    fields = {each.json: each for each in fields_of(kind) if each.json not in ("kind", "delivery")}
    name, dot, key = rest.partition(".")
    if rest in fields and dot:
        # A field such as `account.id`, which the API shows inside an object.
        inner = part.get(name)
        part[name] = (dict(inner) if isinstance(inner, Mapping) else {}) | {key: text}
        return
    if name not in fields:
        raise _no_field(head, name, fields)
    field = fields[name]
    if not dot:
        part[name] = _value_of(field, text)
        return
    if get_origin(field.type) is not Mapping:
        raise _no_field(f"{head}.{name}", key, ())
    inner = part.get(name)
    value: object = text if field.item is str else _json_or_text(text)
    part[name] = (dict(inner) if isinstance(inner, Mapping) else {}) | {key: value}


def _value_of(field: Field, text: str) -> object:
    if field.nullable and text in ("", "null"):
        return None
    if field.kind == "flag":
        return _flag_of(text)
    if field.kind == "number":
        return _number_of(text)
    if field.kind not in ("names", "other"):
        return text
    if field.item in (str, int) and get_origin(field.type) is tuple and text[:1] != "[":
        words = [each.strip() for each in text.split(",") if each.strip()]
        return words if field.item is str else [_number_of(each) for each in words]
    return _json_of(text)


def _flag_of(text: str) -> bool:
    if text.lower() not in _FLAGS:
        raise InvalidInput(
            _("expected true or false, got {value!r}", value=text), code="wrong_type"
        )
    return _FLAGS[text.lower()]


def _number_of(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidInput(
            _("expected a whole number, got {value!r}", value=text), code="wrong_type"
        ) from None


def _json_of(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidInput(_("not valid JSON: {reason}", reason=error), code="bad_json") from None


def _json_or_text(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _recipients_of(text: str) -> object:
    """A JSON list, or recipients as `chimes add --notify` takes them, separated by spaces."""
    return _json_of(text) if text[:1] == "[" else [parse_recipient(each) for each in text.split()]


#: How a whole field of a definition is read.
_TOP: Final[Mapping[str, Callable[[str], object]]] = {
    "name": str,
    "trigger": _json_of,
    "target": _json_of,
    "policy": _json_of,
    "priority": _number_of,
    "labels": _json_of,
    "enabled": _flag_of,
    "depends_on": _json_of,
    "delivery": _recipients_of,
}


# --- readers by type ------------------------------------------------------------------------------
def _reader(field: Field, name: str) -> Read:
    """The reader of a field in JSON of the API."""
    kind, item = field.type, field.item
    if kind is timedelta:
        return Part(name, _duration)
    if kind is time:
        return Part(name, _time_of_day)
    if field.about.words:
        return checked(name, str, field.about.words.index)
    if item is NotifyOn:
        return Part(name, _events)
    if kind is Digest:
        return Part(name, _digest)
    if is_struct(kind):
        return Part(name, _codec(kind).decode)
    if item is str and get_origin(kind) is Mapping:
        return checked(name, dict, lambda given: {n: _text(each) for n, each in given.items()})
    if item is not None and not is_enum(item) and get_origin(kind) is tuple:
        each = {str: _text, int: _whole_number}.get(item, _object)
        return checked(name, list, lambda given: tuple([each(one) for one in given]))
    return field_reader(field, name.rpartition(".")[2])


def _codec(kind: type[S], **readers: Read) -> Codec[S]:
    return Codec(kind, name_of=lambda field: field.json, reader=_reader, read=readers)


def _digest(data: object) -> Digest:
    """The period alone is enough."""
    if isinstance(data, str):
        data = {"every": data, "at": "00:00" if data == Period.HOUR else "08:00"}
    return _DIGEST.decode(data)


_DIGEST: Final = _codec(Digest, at=checked("at", str, _time_of_day))
_SPECIAL: Final[Mapping[type[Struct], Mapping[str, Read]]] = {
    HttpTarget: {"method": checked("method", str, str.upper), "body": Part("body", _body)},
}
_TARGETS: Final[Mapping[str, Codec[Target]]] = {
    kind: _codec(struct, **_SPECIAL.get(struct, {})) for kind, struct in TARGETS.items()
}
_RECIPIENT: Final = _codec(Recipient, channel=Part("channel", _channel), to=Part("to", _address))
