"""One invocation of a task function or its `on_failure` handler, and capture of its prints."""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TextIO, cast

from msgspec import Struct

from chimes.model.run import Outcome
from chimes.targets.process.channel import BoundedLog
from chimes.targets.python.arguments import BoundArguments
from chimes.targets.python.context import Context, find_context
from chimes.targets.python.outcomes import (
    TaskError,
    needs_traceback,
    outcome_of_exception,
    outcome_of_timeout,
    task_traceback,
)
from chimes.targets.python.registry import Function, Task


class Invocation(Struct, frozen=True, kw_only=True):
    task: Task
    #: The task's own function, or its `on_failure` handler.
    function: Function
    bound: BoundArguments
    #: The stored arguments, which a child process receives.
    args: Mapping[str, object]
    context: Context
    log: BoundedLog
    timeout: timedelta
    #: Context variables of the invocation; changes to them do not leak.
    scope: contextvars.Context
    #: Argument of an `on_failure` handler; None for the task's own function.
    error: TaskError | None = None

    def call(self) -> object:
        return self.function(*self.bound.args, **self.bound.kwargs)

    def exception_outcome(self, error: BaseException) -> Outcome:
        if needs_traceback(error):
            self.log.system_line("error", task_traceback(error))
        return outcome_of_exception(error)

    def timeout_outcome(self) -> Outcome:
        return outcome_of_timeout(self.timeout)

    @property
    def overdue(self) -> bool:
        return self.context.remaining() <= 0


#: Log levels of the streams, the same as for tasks in a child process.
_STREAM_LEVELS = {"stdout": "info", "stderr": "error"}


class CapturedStream:
    """Forwards to a stream and copies what a running task writes to the run's log."""

    def __init__(self, stream: TextIO, level: str) -> None:
        self._stream = stream
        self._level = level

    def write(self, text: str) -> int:
        context = find_context()
        if context is not None:
            context.write_output(self._level, text)
        return self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


@contextmanager
def capture_prints() -> Iterator[None]:
    """Copies what tasks print to the logs of their runs, except from threads that a task starts.

    Only for processes that Chimes owns: embedded in an application, it must not replace the
    application's streams."""
    originals = {name: cast(TextIO, getattr(sys, name)) for name in _STREAM_LEVELS}
    for name, level in _STREAM_LEVELS.items():
        setattr(sys, name, CapturedStream(originals[name], level))
    try:
        yield
    finally:
        for name, stream in originals.items():
            setattr(sys, name, stream)
