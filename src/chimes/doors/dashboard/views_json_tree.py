"""JSON as a tree that a page can show: bounded, with what was left out said, and harmless."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from chimes.doors.dashboard.views_runs import visible

#: Of all levels together, of one level, and how deep it goes.
MOST_NODES, MOST_BESIDE, DEEPEST = 2000, 200, 32
#: Characters of one text, and of a name.
LONGEST_TEXT, LONGEST_NAME = 2000, 200
#: Levels that are open at first, of a tree that is small.
_OPEN_LEVELS, _SMALL = 2, 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Branch:
    """A value with its name."""

    #: None: it has none, like the whole.
    name: str | None
    #: `object`, `array`, `text`, `number`, `word` (true, false, null).
    kind: str
    #: Of a leaf, as JSON would have it, but for the quotes of a text.
    text: str = ""
    #: Of an object or array; of a text its characters, where it was cut.
    size: int = 0
    children: tuple[Branch, ...] = ()
    #: Children that are not shown.
    left_out: int = 0
    cut: bool = False
    open: bool = False


def tree_of(value: object) -> Branch:
    """From plain data; what is no plain data is shown as text."""
    small = _count(value, _SMALL + 1) <= _SMALL
    return _Growing(MOST_NODES, _OPEN_LEVELS if small else 1).branch(None, value, 0)


class _Growing:
    """Counts what has been shown, over the whole tree."""

    def __init__(self, room: int, open_levels: int) -> None:
        self._room = room
        self._open_levels = open_levels

    def branch(self, name: str | None, value: object, depth: int) -> Branch:
        self._room -= 1
        shown = None if name is None else visible(_short(name, LONGEST_NAME))
        match value:
            case Mapping():
                named = ((str(each), item) for each, item in value.items())
                return self._inner(shown, "object", named, len(value), depth)
            case str():
                text = visible(value[:LONGEST_TEXT])
                cut = len(value) > LONGEST_TEXT
                return Branch(name=shown, kind="text", text=text, size=len(value), cut=cut)
            case bool():
                return Branch(name=shown, kind="word", text="true" if value else "false")
            case None:
                return Branch(name=shown, kind="word", text="null")
            case int() | float():
                return Branch(name=shown, kind="number", text=_short(repr(value), LONGEST_NAME))
            case Sequence():
                listed = ((str(place), item) for place, item in enumerate(value))
                return self._inner(shown, "array", listed, len(value), depth)
            case _:
                return Branch(name=shown, kind="text", text=visible(str(value)[:LONGEST_TEXT]))

    def _inner(
        self,
        name: str | None,
        kind: str,
        items: Iterator[tuple[str, object]],
        size: int,
        depth: int,
    ) -> Branch:
        children: list[Branch] = []
        if depth < DEEPEST:
            for each, item in islice(items, MOST_BESIDE):
                if self._room <= 0:
                    break
                children.append(self.branch(each, item, depth + 1))
        return Branch(
            name=name,
            kind=kind,
            size=size,
            children=tuple(children),
            left_out=size - len(children),
            open=depth < self._open_levels,
        )


def _count(value: object, most: int) -> int:
    """Values within, as far as `most`; without recursion, however deep it is."""
    found, waiting = 0, [value]
    while waiting and found < most:
        found += 1
        each = waiting.pop()
        if isinstance(each, Mapping):
            waiting.extend(islice(each.values(), most))
        elif isinstance(each, Sequence) and not isinstance(each, str):
            waiting.extend(each[:most])
    return found


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
