"""What tasks print becomes lines of their runs' logs, besides going where it always went.

Only in processes of our own: a library leaves the streams of its host alone. A thread that a task
starts by itself is not known to belong to it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TextIO, cast

from chimes.targets.python_task.context import context_here

#: As of tasks that have a process to themselves.
_LEVELS = {"stdout": "info", "stderr": "error"}


class Overheard:
    """A stream that a run hears, if one is under way here; everything else about it is its own."""

    def __init__(self, stream: TextIO, level: str) -> None:
        self._stream = stream
        self._level = level

    def write(self, text: str) -> int:
        context = context_here()
        if context is not None:
            context.printed(self._level, text)
        return self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


@contextmanager
def overhearing() -> Iterator[None]:
    """While it lasts, of what is written to the streams of this process."""
    before = {name: cast(TextIO, getattr(sys, name)) for name in _LEVELS}
    for name, level in _LEVELS.items():
        setattr(sys, name, Overheard(before[name], level))
    try:
        yield
    finally:
        for name, stream in before.items():
            setattr(sys, name, stream)
