"""Reads targets and recipients from plain JSON objects, in the shape that the native API documents.

For callers that define schedules in code rather than over HTTP. The result is complete but not yet
checked: `check_target` and `check_recipients` do that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import time, timedelta
from typing import Final

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model.recipient import (
    DEFAULT_LATE_AFTER,
    SELECTABLE_EVENTS,
    WEEKDAYS,
    Channel,
    Digest,
    NotifyOn,
    Period,
    QuietHours,
    Recipient,
)
from chimes.model.target import (
    ActionTarget,
    AgentTarget,
    FlowTarget,
    HttpTarget,
    MessageTarget,
    SyncTarget,
    Target,
    TaskTarget,
)
from chimes.store.codec.values import Reader
from chimes.triggers import parse_duration
from chimes.triggers.values import suggest_name

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
    if not isinstance(kind, str) or kind not in _TARGETS:
        raise InvalidInput(
            _("unknown kind of target {kind!r}; use one of {kinds}", kind=str(kind)[:64],
                kinds=", ".join(_TARGETS)),
            field="kind",
            code="unknown_kind",
            hint=suggest_name(str(kind), _TARGETS),
        )  # fmt: skip
    if kind == "action":
        data = {_ACTION_ALIASES.get(name, name): value for name, value in data.items()}
    reader = Reader(data)
    reader.text("kind", kind)
    target = _TARGETS[kind](reader)
    reader.done()
    return target


def _http(reader: Reader) -> HttpTarget:
    return HttpTarget(
        url=reader.text("url"),
        method=reader.text("method", "POST").upper(),
        headers={name: _text(value) for name, value in reader.mapping("headers").items()},
        body=reader.read("body", _body),
        expected_status=tuple(_whole_number(each) for each in reader.items("expected_status")),
        signing_secrets=tuple(_text(each) for each in reader.items("signing_secrets")),
        verify_tls=reader.flag("verify_tls", True),
    )


def _action(reader: Reader) -> ActionTarget:
    account = Reader(reader.mapping("account"))
    target = ActionTarget(
        action_type_id=reader.text("action_type_id"),
        kn_id=reader.text("kn_id"),
        branch=reader.text("branch", "main"),
        identities=tuple(_object(each) for each in reader.items("identities")),
        params=reader.mapping("params"),
        account_id=account.text("id", ""),
        account_type=account.text("type", ""),
    )
    account.done()
    return target


_TARGETS: Final[Mapping[str, Callable[[Reader], Target]]] = {
    "http": _http,
    "task": lambda reader: TaskTarget(name=reader.text("name"), args=reader.mapping("args")),
    "flow": lambda reader: FlowTarget(name=reader.text("name"), input=reader.mapping("input")),
    "sync": lambda reader: SyncTarget(
        source=reader.text("source"), collection=reader.text("collection")
    ),
    "agent": lambda reader: AgentTarget(
        prompt=reader.text("prompt"),
        pipeline=reader.text("pipeline", ""),
        model=reader.text("model", ""),
        max_tokens=reader.maybe_integer("max_tokens"),
    ),
    "action": _action,
    "message": lambda reader: MessageTarget(text=reader.text("text")),
}


def recipient_from_json(data: Mapping[str, object]) -> Recipient:
    """The recipient that the object describes. InvalidInput names the field that is wrong."""
    reader = Reader(data)
    recipient = Recipient(
        channel=reader.read("channel", _channel),
        to=reader.read("to", _address),
        on=reader.read("on", _on),
        language=reader.text("language", ""),
        signing_secrets=tuple(_text(each) for each in reader.items("signing_secrets")),
        late_after=reader.read("late_after", _late_after),
        quiet=reader.read("quiet", _quiet),
        digest=reader.read("digest", _digest),
    )
    reader.done()
    return recipient


def _quiet(data: object) -> QuietHours | None:
    if data is None:
        return None
    reader = Reader(data)
    quiet = QuietHours(
        start=reader.read("from", _time_of_day),
        end=reader.read("to", _time_of_day),
        zone=reader.text("zone", ""),
        except_for=reader.read("except", _events),
    )
    reader.done()
    return quiet


def _digest(data: object) -> Digest | None:
    if data is None:
        return None
    if isinstance(data, str):
        data = {"every": data, "at": "00:00" if data == Period.HOUR else "08:00"}
    reader = Reader(data)
    digest = Digest(
        every=Period(reader.text("every")),
        at=_time_of_day(reader.text("at", "08:00")),
        weekday=WEEKDAYS.index(reader.text("on", "monday")),
        zone=reader.text("zone", ""),
        except_for=reader.read("except", _events),
    )
    reader.done()
    return digest


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


def _on(value: object) -> tuple[NotifyOn, ...]:
    """An empty list stays empty, which `check_recipients` rejects."""
    return (NotifyOn.ALWAYS,) if value is None else _events(value)


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


def _late_after(value: object) -> timedelta:
    return DEFAULT_LATE_AFTER if value is None else parse_duration(_text(value), allow_zero=True)


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
