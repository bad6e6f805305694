"""One call of a function of the application, wherever it is made."""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TextIO, cast

from chimes.model.run import Outcome
from chimes.targets.process.channel import RunLog
from chimes.targets.python.arguments import Bound
from chimes.targets.python.context import Context, context_here
from chimes.targets.python.outcomes import (
    TaskError,
    needs_traceback,
    outcome_of_exception,
    outcome_of_timeout,
    task_traceback,
)
from chimes.targets.python.registry import Function, Task


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    task: Task
    #: The task's own function, or its `on_failure` handler.
    function: Function
    bound: Bound
    #: The same as they are stored: what another process is sent.
    args: Mapping[str, object]
    context: Context
    log: RunLog
    timeout: timedelta
    #: Where it runs: what it sets is gone with it.
    scope: contextvars.Context
    #: What a handler is told; None for the task's own function.
    error: TaskError | None = None

    def call(self) -> object:
        return self.function(*self.bound.args, **self.bound.kwargs)

    def raised(self, error: BaseException) -> Outcome:
        if needs_traceback(error):
            self.log.remark("error", task_traceback(error))
        return outcome_of_exception(error)

    def timed_out(self) -> Outcome:
        return outcome_of_timeout(self.timeout)

    @property
    def overdue(self) -> bool:
        return self.context.remaining() <= 0


# @@ What tasks print becomes lines of their runs' logs, besides going where it always went.
#
# Only in processes of our own: a library leaves the streams of its host alone. A thread that a
# task starts by itself is not known to belong to it.

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
