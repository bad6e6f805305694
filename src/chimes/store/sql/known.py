"""What a process remembers of rows that never change, or whose version it can check."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from chimes.model.run import RunDefinition
from chimes.model.schedule import Schedule

K = TypeVar("K")
V = TypeVar("V")


#: Characters of the texts that one memory keeps.
MOST_CHARACTERS = 16 * 1024 * 1024


class Memory(Generic[K, V]):
    """A dictionary of limited size: when it is full it starts again. Several threads use it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._characters = 0
        self._entries: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        return self._entries.get(key)

    def put(self, key: K, value: V, characters: int = 0) -> None:
        """`characters`: the length of the texts in the value that people choose."""
        if len(self._entries) >= self._most or self._characters + characters > MOST_CHARACTERS:
            self.clear()
        self._characters += characters
        self._entries[key] = value

    def clear(self) -> None:
        self._entries.clear()
        self._characters = 0


class StoredDefinition(NamedTuple):
    value: RunDefinition
    #: Why it cannot be read; the value is a placeholder then.
    error: str = ""


class KnownSchedule(NamedTuple):
    """A schedule as of a revision; cursor and last run are those of the time when it was read."""

    key: int
    value: Schedule
    #: The key of the definition of its runs.
    definition: int
    #: The concurrency key that its policy names; None: its own.
    shared_key: str | None
    #: Its concurrency key as a number.
    concurrency: int
    revision: int


class KnownRows:
    def __init__(self) -> None:
        self.definitions: Memory[int, StoredDefinition] = Memory(20_000)
        #: Key and mark of use by digest.
        self.digests: Memory[str, tuple[int, int]] = Memory(20_000)
        self.schedules: Memory[int, KnownSchedule] = Memory(20_000)

    def clear(self) -> None:
        for each in (self.definitions, self.digests, self.schedules):
            each.clear()
