"""Reads JSON data with strict types and errors that name the field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TypeVar

from chimes.errors import InvalidInput, message_of
from chimes.i18n import _

T = TypeVar("T")
Plain = dict[str, object]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def to_micros(moment: datetime) -> int:
    """Exact, unlike `timestamp()`, which goes through a float."""
    return (moment - EPOCH) // MICROSECOND


def to_text(moment: datetime) -> str:
    second, micros = divmod((moment - EPOCH) // MICROSECOND, 1_000_000)
    return f"{_second(second)}.{micros:06}Z" if micros else f"{_second(second)}Z"


# Cached: many times share the same second.
@lru_cache(maxsize=1024)
def _second(number: int) -> str:
    return (EPOCH + timedelta(seconds=number)).isoformat()[:-6]


def maybe_text(moment: datetime | None) -> str | None:
    return None if moment is None else to_text(moment)


def drop_empty(data: Mapping[str, object]) -> Plain:
    """Drop None, "", 0, False and empty collections. `Reader` uses these as defaults, so rows stay
    small and old rows still load."""
    return {name: value for name, value in data.items() if value}


class Reader:
    """Typed access to one JSON object; `done` rejects keys that were not read."""

    def __init__(self, data: object) -> None:
        if not isinstance(data, Mapping):
            raise InvalidInput(_("expected an object, got {type}", type=type(data).__name__))
        self._data = data
        self._read_names: set[str] = set()

    def done(self) -> None:
        """Reject unknown keys, which would be lost at the next write."""
        unknown = sorted(str(key) for key in self._data.keys() - self._read_names)
        if unknown:
            raise InvalidInput(
                _("unknown field {unknown!r}", unknown=unknown[0]),
                field=unknown[0],
                code="unknown",
            )

    def has(self, name: str) -> bool:
        return self._data.get(name) is not None

    def text(self, name: str, default: str | None = None) -> str:
        return self._get(name, str, default)

    def integer(self, name: str, default: int | None = None) -> int:
        return self._get(name, int, default)

    def flag(self, name: str, default: bool | None = None) -> bool:
        return self._get(name, bool, default)

    def mapping(self, name: str) -> dict[str, object]:
        return self._get(name, dict, {})

    def items(self, name: str) -> list[object]:
        return self._get(name, list, [])

    def maybe_text(self, name: str) -> str | None:
        return self.text(name) if self._present(name) else None

    def maybe_integer(self, name: str) -> int | None:
        return self.integer(name) if self._present(name) else None

    def time(self, name: str) -> datetime:
        return self.read(name, moment)

    def maybe_time(self, name: str) -> datetime | None:
        return self.time(name) if self._present(name) else None

    def seconds(self, name: str, default: timedelta) -> timedelta:
        """A duration, stored in microseconds."""
        return timedelta(microseconds=self.integer(name, default // MICROSECOND))

    def read(self, name: str, how: Callable[[object], T]) -> T:
        self._read_names.add(name)
        try:
            return how(self._data.get(name))
        except InvalidInput as error:
            raise error.within(name) from None
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInput(message_of(error), field=name) from None

    def _present(self, name: str) -> bool:
        self._read_names.add(name)
        return self._data.get(name) is not None

    def _get(self, name: str, kind: type[T], default: T | None) -> T:
        self._read_names.add(name)
        value = self._data.get(name)
        if value is None:
            if default is None:
                raise InvalidInput(_("{field} is missing", field=name), field=name, code="missing")
            return default
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            expected, given = kind.__name__, type(value).__name__
            raise InvalidInput(
                _(
                    "{field}: expected {expected}, got {given}",
                    field=name,
                    expected=expected,
                    given=given,
                ),
                field=name,
            )
        return value


def moment(value: object) -> datetime:
    if not isinstance(value, str):
        raise InvalidInput(_("expected a time, got {type}", type=type(value).__name__))
    parsed = datetime.fromisoformat(value)
    if parsed.tzinfo is None:
        raise InvalidInput(_("{value!r} has no offset", value=value), code="naive_time")
    return parsed.astimezone(UTC)
