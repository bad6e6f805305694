"""Kinds of fields in request bodies, and what all bodies have in common."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, PlainValidator, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from chimes.doors.validation import refused
from chimes.errors import InvalidInput
from chimes.triggers import Trigger, parse_duration, trigger_from_dict
from chimes.triggers.reading import nearest
from chimes.wording import say

T = TypeVar("T")
TARGET_KINDS = ("http", "task", "flow", "sync", "agent", "action", "message")

#: Other names of the fields of an action, by name.
ACTION_NAMES = {
    "unique_identities": "identities",
    "_instance_identities": "identities",
    "dynamic_params": "params",
}


class Body(BaseModel):
    """Exact types ("5" is not 5, true is not 1) and no fields that nobody asked for."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    #: Fields of the answer that a caller may be tempted to send back.
    read_only: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _only_known(cls, data: object) -> object:
        if isinstance(data, dict):
            known = {field.alias or name for name, field in cls.model_fields.items()}
            for name in data:
                if name in cls.read_only:
                    raise refused("read_only", say("{field} cannot be set", field=name), field=name)
                if name not in known:
                    raise unknown_field(str(name)[:64], known)
        return data


class ActionNames(Body):
    """What seed 0 and its original call the fields of an action (C23)."""

    @model_validator(mode="before")
    @classmethod
    def _by_our_names(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        found: dict[object, object] = {}
        for name, value in data.items():
            ours = ACTION_NAMES.get(name, name) if isinstance(name, str) else name
            if ours in found and found[ours] != value:
                raise refused(
                    "given_twice",
                    say("{field} is given twice, and not alike", field=ours),
                    field=str(ours),
                )
            found[ours] = value
        return found


def unknown_field(name: str, known: Iterable[str]) -> PydanticCustomError:
    return refused(
        "unknown_field",
        say("{field} is not a known field", field=name),
        field=name,
        hint=nearest(name, known),
    )


def without_defaults(schema: dict[str, Any]) -> None:
    """For bodies in which a field that is left out does not have its default."""
    for field in schema["properties"].values():
        field.pop("default", None)


def with_kind(value: object) -> object:
    """A target that says nothing about its kind is an HTTP callback."""
    if not isinstance(value, dict):
        raise refused("wrong_type", say("expected an object"))
    kind = value.get("kind", "http")
    if kind not in TARGET_KINDS:
        raise refused(
            "unknown_kind",
            say("a target is one of {kinds}", kinds=", ".join(TARGET_KINDS)),
            field="kind",
            hint=nearest(str(kind)[:64], TARGET_KINDS),
        )
    return {"kind": kind, **value}


def told(check: Callable[[object], T]) -> Callable[[object], T]:
    """A check whose InvalidInput becomes one of pydantic's errors, which know their place."""

    def checked(value: object) -> T:
        try:
            return check(value)
        except InvalidInput as error:
            raise refused(error.code, error.message, field=error.field, hint=error.hint) from None

    return checked


def _duration(value: object) -> timedelta:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise InvalidInput(
            say("a duration is text with a unit"),
            code="wrong_type",
            hint=say('such as "{value}s"', value=value),
        )
    try:
        return parse_duration(_text(value), allow_zero=True)
    except InvalidInput as error:
        # The name in the message would be that of the parser's parameter.
        error.field = None
        raise


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInput(
            say("expected text, got {name}", name=type(value).__name__), code="wrong_type"
        )
    return value


def _labels(value: object) -> dict[str, str | None]:
    """An object of texts, or a list of labels: `name`, or `name=value` as people write them
    everywhere else."""
    if isinstance(value, list):
        return _listed_labels([_text(each) for each in value])
    if isinstance(value, dict):
        return {name: each if each is None else _text(each) for name, each in value.items()}
    raise InvalidInput(say("expected an object of texts, or a list of texts"), code="wrong_type")


def _listed_labels(words: Sequence[str]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for word in words:
        name, equals, value = word.partition("=")
        wanted = value if equals else None
        if found.setdefault(name, wanted) != wanted:
            raise InvalidInput(
                say("the label {name!r} is there with two values", name=name), code="duplicate"
            )
    return found


def _content(value: object) -> str:
    """Text as it is; JSON is written down."""
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return "" if value is None else _text(value)


_bound = {
    "start_at": {"type": "string", "description": "First moment that counts, inclusive."},
    "end_at": {"type": "string", "description": "Last moment that counts, inclusive."},
    "max_runs": {"type": "integer", "minimum": 1},
    "exclude": {"type": "array", "items": {"type": "object"}, "maxItems": 16},
}
TRIGGER_SCHEMA: dict[str, object] = {
    "oneOf": [
        {
            "type": "object",
            "title": "Cron",
            "required": ["kind", "expression"],
            "additionalProperties": False,
            "properties": {
                "kind": {"const": "cron"},
                "expression": {"type": "string", "maxLength": 256},
                "timezone": {"type": "string", "description": "IANA name"},
                "dialect": {"enum": ["auto", "unix", "seconds", "quartz"]},
                "dst": {"enum": ["chimes", "vixie", "robfig"]},
                "anchor": {"type": "string", "description": "Only for @every"},
                **_bound,
            },
        },
        {
            "type": "object",
            "title": "Every",
            "required": ["kind", "every"],
            "additionalProperties": False,
            "properties": {
                "kind": {"const": "every"},
                "every": {"type": "string", "description": "PT1H30M or 1h30m"},
                "anchor": {"type": "string", "description": "The first slot, if it is ahead"},
                "jitter": {"type": "string"},
                **_bound,
            },
        },
        {
            "type": "object",
            "title": "Once",
            "required": ["kind", "at"],
            "additionalProperties": False,
            "properties": {
                "kind": {"const": "once"},
                "at": {"type": "string", "description": "RFC 3339, RFC 9557, or local + timezone"},
                "timezone": {"type": "string", "description": "IANA name"},
                **_bound,
            },
        },
    ],
    "examples": [{"kind": "cron", "expression": "0 9 * * 1-5", "timezone": "Asia/Bangkok"}],
}
DURATION_SCHEMA: dict[str, object] = {
    "type": "string",
    "description": "ISO 8601 (PT1H30M) or Go style (1h30m); answered as ISO 8601.",
    "examples": ["PT10S", "1h30m"],
}
MOMENT_SCHEMA: dict[str, object] = {
    "type": "string",
    "description": "RFC 3339, RFC 9557 (…[Asia/Bangkok]), or local time where a timezone is given.",
    "examples": ["2030-02-10T09:00:00Z"],
}

TriggerField = Annotated[
    Trigger, PlainValidator(told(trigger_from_dict)), WithJsonSchema(TRIGGER_SCHEMA)
]
DurationField = Annotated[
    timedelta, PlainValidator(told(_duration)), WithJsonSchema(DURATION_SCHEMA)
]
LabelsField = Annotated[
    dict[str, str | None],
    PlainValidator(told(_labels)),
    WithJsonSchema(
        {
            "oneOf": [
                {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
                {"type": "array", "items": {"type": "string"}},
            ],
            "description": "Answered in the shape that was sent.",
            "examples": [{"team": "billing"}, ["nightly"]],
        }
    ),
]
ContentField = Annotated[
    str,
    PlainValidator(told(_content)),
    WithJsonSchema(
        {
            "type": ["string", "object", "array", "null"],
            "description": "Text, or JSON, which is kept as its text.",
        }
    ),
]
#: Kept as text: the zone that places a local time may stand beside it.
MomentField = Annotated[str, WithJsonSchema(MOMENT_SCHEMA)]
