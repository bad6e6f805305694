"""Reads targets and recipients from plain JSON objects, in the shape that the native API documents.

For callers that define schedules in code rather than over HTTP. The result is complete but not yet
checked: `check_target` and `check_recipients` do that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import time, timedelta
from typing import Final, TypeVar, get_origin

from msgspec import Struct

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model.fields import Field, is_enum, is_struct
from chimes.model.recipient import SELECTABLE_EVENTS, Channel, Digest, NotifyOn, Period, Recipient
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
