"""Wire format of the scripts: JSON of strings only, because Lua turns numbers into doubles."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from chimes.clock import EPOCH, MICROSECOND
from chimes.errors import StoreError
from chimes.i18n import _

#: Arguments and results of scripts: strings and nested lists.
Wire = str | Sequence["Wire"]

_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def pack(value: Wire) -> bytes:
    # Keeps lone surrogates, which a broken receiver may send.
    return _dumps(value).encode("utf-8", "surrogatepass")


def unpack(answer: bytes) -> list[Wire]:
    values = json.loads(answer.decode("utf-8", "surrogatepass"))
    if not isinstance(values, list):
        raise StoreError(_("a script answered {found!r}", found=values))
    return values


def text(value: Wire) -> str:
    if not isinstance(value, str):
        raise StoreError(_("a script answered {value!r} where a text was expected", value=value))
    return value


def rows(value: Wire) -> list[Wire]:
    """Lua cannot tell an empty list from an empty object."""
    return list(value) if not isinstance(value, str) and value else []


def items(value: Wire) -> Sequence[Wire]:
    """A list of known length."""
    if isinstance(value, str):
        raise StoreError(_("a script answered {value!r} where a list was expected", value=value))
    return value


def texts(value: Wire) -> list[str]:
    return [text(each) for each in rows(value)]


def to_json(value: object) -> str:
    """A value as JSON, for a field of a record."""
    return _dumps(value)


def micros(moment: datetime | None) -> str:
    return "" if moment is None else str((moment - EPOCH) // MICROSECOND)


def moment(value: str) -> datetime:
    return EPOCH + timedelta(0, 0, int(value))


def maybe_moment(value: str) -> datetime | None:
    return EPOCH + timedelta(0, 0, int(value)) if value else None


def flag(value: bool) -> str:
    return "1" if value else ""


def flat(fields: Iterable[tuple[str, str]]) -> list[str]:
    return [part for field in fields for part in field]


# --- decode cache

T = TypeVar("T")

#: Limits of the cache: entries and characters. A value takes about as much memory as its text.
MOST = 8192
MOST_CHARACTERS = 8 * 1024 * 1024
#: Longer texts are not cached: they would evict hundreds of others.
LARGEST = 32 * 1024


class DecodeCache(Generic[T]):
    """A bounded cache of values that are decoded from texts; evicts the oldest. Values must be
    frozen."""

    def __init__(self) -> None:
        self._values: OrderedDict[str, tuple[T, int]] = OrderedDict()
        self._characters = 0

    def get(self, key: str) -> T | None:
        entry = self._values.get(key)
        return None if entry is None else entry[0]

    def keep(self, key: str, value: T, characters: int) -> None:
        """`characters`: the length of the text."""
        if characters > LARGEST:
            return
        replaced = self._values.pop(key, None)
        self._characters += characters - (replaced[1] if replaced else 0)
        self._values[key] = value, characters
        while len(self._values) > MOST or self._characters > MOST_CHARACTERS:
            _unused, (_unused_value, dropped) = self._values.popitem(last=False)
            self._characters -= dropped
