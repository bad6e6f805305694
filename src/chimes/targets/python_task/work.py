"""One call of a function of the application, wherever it is made."""

from __future__ import annotations

import contextvars
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from chimes.model.run import Outcome
from chimes.targets.processes.lines import RunLog
from chimes.targets.python_task.arguments import Bound
from chimes.targets.python_task.context import Context
from chimes.targets.python_task.registry import Function, Task
from chimes.targets.python_task.verdicts import (
    TaskError,
    deserves_trace,
    outcome_of_exception,
    outcome_of_timeout,
    trace_of,
)


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
        if deserves_trace(error):
            self.log.remark("error", trace_of(error))
        return outcome_of_exception(error)

    def timed_out(self) -> Outcome:
        return outcome_of_timeout(self.timeout)

    @property
    def overdue(self) -> bool:
        return self.context.remaining() <= 0
