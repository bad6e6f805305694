"""What two parts of a process offer, as one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from chimes.model.defaults import RunDefaults


class JoinedOffers(Mapping[str, RunDefaults]):
    """Of two, the first that has a word about something."""

    def __init__(self, first: Mapping[str, RunDefaults], second: Mapping[str, RunDefaults]) -> None:
        self._first = first
        self._second = second

    def __getitem__(self, needs: str) -> RunDefaults:
        return self._first[needs] if needs in self._first else self._second[needs]

    def __iter__(self) -> Iterator[str]:
        yield from self._first
        yield from (each for each in self._second if each not in self._first)

    def __len__(self) -> int:
        return sum(1 for _ in self)
