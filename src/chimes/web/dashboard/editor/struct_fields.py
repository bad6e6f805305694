"""Converts values of the API to the text of form fields and back, as their Structs declare them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import get_origin

from msgspec import Struct

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model.fields import Field, fields_of, is_enum, is_struct
from chimes.web.dashboard.editor.trigger_fields import parse_int, short_duration


def leaves_of(kind: type[Struct], prefix: str = "") -> Iterator[tuple[str, Field]]:
    """The fields of a Struct and of the Structs in it, with their paths in the API."""
    for field in fields_of(kind):
        path = f"{prefix}{field.json}"
        if is_struct(field.type):
            yield from leaves_of(field.type, f"{path}.")
        else:
            yield path, field


def value_at(given: Mapping[str, object], path: str) -> object:
    """The value at a path such as `quiet.from`; None if there is none."""
    value: object = given
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def put_at(body: dict[str, object], path: str, value: object) -> None:
    outer, dot, inner = path.partition(".")
    if not dot:
        body[outer] = value
        return
    part = body.setdefault(outer, {})
    assert isinstance(part, dict)
    part[inner] = value


def field_text(field: Field, value: object) -> str:
    """A value of the API as text of its form field."""
    if value is None:
        return ""
    if field.kind == "flag":
        return "yes" if value else "no"
    if field.kind == "duration":
        return short_duration(str(value))
    if field.kind == "names":
        return ", ".join(map(str, value)) if isinstance(value, list) else ""
    if isinstance(value, Mapping) and field.item is str:
        return "\n".join(f"{name}: {each}" for name, each in value.items())
    if field.item in (str, int) or is_enum(field.item):
        separator = {str: "\n", int: ", "}.get(field.item, ",")
        return separator.join(str(each) for each in value) if isinstance(value, list) else ""
    return to_json_text(value) if field.item is not None else str(value)


def field_value(field: Field, fields: Mapping[str, str], name: str) -> object:
    """The inverse of `field_text`. InvalidInput names the form field."""
    text = fields.get(name, "")
    if field.kind == "flag":
        return text == "yes"
    if field.kind == "number":
        return parse_int(fields, name)
    if field.kind == "names":
        return text.replace(",", " ").split()
    if field.item is int:
        return _numbers(text, name)
    if is_enum(field.item):
        return [each for each in text.split(",") if each]
    if field.item is str:
        return text.split() if get_origin(field.type) is tuple else _headers(text, name)
    if field.item is not None:
        return _json(text, name, list if get_origin(field.type) is tuple else dict)
    return text


def extra_fields(kind: type[Struct], own: frozenset[str]) -> tuple[Field, ...]:
    """The fields that the template shows by their declaration; `own` have their own widgets."""
    return tuple(each for each in fields_of(kind) if each.name not in own and each.kind != "other")


def to_json_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) if value else ""


def _headers(text: str, name: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        header, colon, value = line.partition(":")
        if not line.strip():
            continue
        if not colon or not header.strip():
            raise InvalidInput(
                _("Enter one header per line, as Name: value."), field=name, code="bad_header"
            )
        found[header.strip()] = value.strip()
    return found


def _numbers(text: str, name: str) -> list[int]:
    parts = text.replace(",", " ").split()
    if not all(each.isdigit() and len(each) < 9 for each in parts):
        raise InvalidInput(_("Enter status codes as numbers."), field=name, code="not_a_number")
    return [int(each) for each in parts]


def _json(text: str, name: str, kind: type[list[object]] | type[dict[str, object]]) -> object:
    if not text.strip():
        return kind()
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, kind):
        raise InvalidInput(_("Enter valid JSON of the expected type."), field=name, code="bad_json")
    return found
