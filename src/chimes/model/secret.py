"""Named secrets of an owner, and the placeholders `{{secret.NAME}}` that use them (ADR 58).

A Struct names the fields that may have placeholders in `takes_secrets`. Values are filled in when a
target is executed or a message is sent, never before: what is stored has the placeholder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TypeVar, cast

from msgspec import Struct, structs

from chimes.errors import InvalidInput
from chimes.i18n import Message, _
from chimes.model.access import Owner
from chimes.redaction import PLACEHOLDER_MARK, secret_placeholders

T = TypeVar("T")

MAX_SECRETS = 100
MAX_SECRET_LENGTH = 8192
#: Shorter values occur everywhere and could not be masked.
MIN_SECRET_LENGTH = 4
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
#: Whatever is meant as the placeholder of a secret.
_MARK = re.compile(r"\{\{\s*secret[.:\s]")


class NamedSecret(Struct, frozen=True, kw_only=True):
    """Without its value, which no interface returns."""

    name: str
    owner: Owner
    created_at: datetime
    updated_at: datetime


def check_secret_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            _(
                "the name of a secret has up to 64 letters, digits, `_` and `-`, and does not "
                "begin with a digit or `-`"
            ),
            field="name",
            code="secret_name",
        )
    return name


def check_secret_value(value: str) -> str:
    if not MIN_SECRET_LENGTH <= len(value) <= MAX_SECRET_LENGTH:
        raise InvalidInput(
            _(
                "the value of a secret has {least} to {most} characters, not {count}",
                least=MIN_SECRET_LENGTH,
                most=MAX_SECRET_LENGTH,
                count=len(value),
            ),
            field="value",
            code="secret_length",
        )
    if _CONTROL.search(value) or any("\ud800" <= each <= "\udfff" for each in value):
        raise InvalidInput(
            _("the value of a secret is text without control characters"),
            field="value",
            code="secret_characters",
        )
    return value


# --- placeholders ---------------------------------------------------------------------------------


def secret_names(*values: object) -> frozenset[str]:
    """The secrets that targets, recipients or other values name."""
    return frozenset(
        name for value in values for _path, text in _texts(value, "") for name in _names(text)
    )


def secret_fields(value: object) -> Iterator[tuple[str, str]]:
    """The field and the name of each secret that a value names. InvalidInput for a placeholder
    that is not well formed."""
    for path, text in _texts(value, ""):
        names = _names(text)
        if len(names) != len(_MARK.findall(text)):
            raise InvalidInput(
                _(
                    "write a secret as {form}, with the name of a stored secret",
                    form="{{secret.NAME}}",
                ),
                field=path,
                code="unknown_secret",
            )
        for name in names:
            yield path, name


def fill_secrets(value: T, secrets: Mapping[str, str]) -> T:
    """A text, JSON-like data or a Struct with its placeholders filled; names that are not among the
    secrets stay. For a place with its own syntax, such as a URL, `chimes.targets.http.request`
    escapes the values."""
    return cast(T, _filled(value, secrets)) if secrets else value


def _filled(value: object, secrets: Mapping[str, str]) -> object:
    if isinstance(value, str):
        if PLACEHOLDER_MARK not in value:
            return value
        return secret_placeholders().sub(lambda found: secrets.get(found[1], found[0]), value)
    if isinstance(value, Mapping):
        return {name: _filled(each, secrets) for name, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, secrets) for each in value]
    if isinstance(value, tuple):
        return tuple(_filled(each, secrets) for each in value)
    if isinstance(value, Struct):
        fields = {name: _filled(getattr(value, name), secrets) for name in _taking(value)}
        return structs.replace(value, **fields)
    return value


def unknown_secret(name: str, owner: Owner) -> Message:
    return _(
        "there is no secret {name!r} of {owner}: store it with `chimes secret set {name}`, or "
        "correct the name",
        name=name,
        owner=str(owner),
    )


def _names(text: str) -> list[str]:
    return secret_placeholders().findall(text) if PLACEHOLDER_MARK in text else []


def _texts(value: object, path: str) -> Iterator[tuple[str, str]]:
    """The texts that may have placeholders, with the names of their fields."""
    if isinstance(value, str):
        if PLACEHOLDER_MARK in value:
            yield path, value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _texts(each, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple):
        for place, each in enumerate(value):
            yield from _texts(each, f"{path}[{place}]")
    else:
        for name in _taking(value):
            yield from _texts(getattr(value, name), f"{path}.{name}" if path else name)


def _taking(value: object) -> Iterable[str]:
    found: Iterable[str] = getattr(type(value), "takes_secrets", ())
    return found
