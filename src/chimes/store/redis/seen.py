"""Values that were decoded already, by the text they were decoded from."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")

#: How much is remembered: entries, and characters of their texts. A value takes about as much
#: memory again as its text.
MOST = 8192
MOST_CHARACTERS = 8 * 1024 * 1024
#: A text above this is decoded each time: it would drive out hundreds of others.
LARGEST = 32 * 1024


class Seen(Generic[T]):
    """The latest of them, as far as there is room. The values have to be frozen."""

    def __init__(self) -> None:
        self._values: OrderedDict[str, T] = OrderedDict()
        self._characters = 0

    def get(self, text: str) -> T | None:
        return self._values.get(text)

    def keep(self, text: str, value: T) -> None:
        if len(text) > LARGEST:
            return
        if text not in self._values:
            self._characters += len(text)
        self._values[text] = value
        while len(self._values) > MOST or self._characters > MOST_CHARACTERS:
            dropped, _ = self._values.popitem(last=False)
            self._characters -= len(dropped)
