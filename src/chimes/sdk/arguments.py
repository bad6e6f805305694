"""Parses argument values of the SDK: durations, points in time, enum values, owners."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TypeVar

from chimes.errors import InvalidInput, InvalidTrigger
from chimes.i18n import Message, _
from chimes.model.access import Owner, OwnerType
from chimes.triggers import parse_duration, parse_moment
from chimes.triggers.values import suggest_name

Duration = str | timedelta | int | float
Moment = str | datetime
E = TypeVar("E", bound=StrEnum)


def to_duration(value: Duration, field: str, *, allow_zero: bool = True) -> timedelta:
    """`"90s"`, `"1h30m"`, a timedelta, or a number of seconds."""
    if isinstance(value, bool) or not isinstance(value, str | timedelta | int | float):
        raise InvalidInput(
            _(
                "{field} must be a duration such as '90s', a timedelta or seconds, not {type}",
                field=field,
                type=type(value).__name__,
            ),
            field=field,
            code="wrong_type",
        )
    try:
        given = timedelta(seconds=value) if isinstance(value, int | float) else value
    except (OverflowError, ValueError):
        raise InvalidInput(
            _("{field} is out of range", field=field), field=field, code="out_of_range"
        ) from None
    return parse_duration(given, field=field, allow_zero=allow_zero)


def to_datetime(value: Moment, field: str) -> datetime:
    """An aware datetime, or text such as 2030-02-10T09:00:00Z."""
    if isinstance(value, str):
        return parse_moment(value, field=field)
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise InvalidTrigger(
            _(
                "{field} must be a time with a zone, such as 2030-02-10T09:00:00Z "
                "or an aware datetime",
                field=field,
            ),
            field=field,
            code="naive",
        )
    return value.astimezone(UTC)


def to_names(value: object, field: str) -> tuple[str, ...]:
    """A list of names; one name alone is a mistake that would be read letter by letter."""
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        names = tuple(value)
        if all(isinstance(each, str) for each in names):
            return names
    raise InvalidInput(
        _("{field} must be a list of names", field=field), field=field, code="wrong_type"
    )


def to_enum(kind: type[E], value: object, field: str) -> E:
    known = [each.value for each in kind]
    if isinstance(value, str) and value in known:
        return kind(value)
    raise InvalidInput(
        _(
            "{field} must be one of {known}, not {value!r}",
            field=field,
            known=", ".join(known),
            value=value,
        ),
        field=field,
        code="unknown_word",
        hint=suggest_name(str(value), known),
    )


def parse_owner(given: Owner | str) -> Owner:
    """An Owner, or `user:alice`, `chat:42`, `system:default`."""
    if isinstance(given, Owner):
        return given
    kind, separator, name = given.partition(":")
    if not separator or not name or kind not in set(OwnerType):
        raise InvalidInput(
            _(
                "an owner must be user:NAME, chat:NAME or system:NAME, not {given!r}",
                given=given,
            ),
            field="owner",
            code="bad_owner",
        )
    return Owner(type=OwnerType(kind), id=name)


def with_suggestion(message: Message, name: str, known: Iterable[str]) -> Message:
    """Appends the nearest known name to an error about an unknown one."""
    hint = suggest_name(name, known)
    return _("{message}; {hint}", message=message, hint=hint) if hint else message
