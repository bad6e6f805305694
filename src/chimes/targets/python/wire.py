"""What a worker and the process of a task say to each other: JSON, a line each, over a socket."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from chimes.i18n import from_stored, to_stored
from chimes.model.run import AttemptEnd, Outcome
from chimes.targets.process.channel import LogLimits, LogLine, json_line
from chimes.targets.python.context import Facts
from chimes.targets.python.outcomes import TaskError

#: The engine keeps a few more of an attempt: they are left for what is said about the task.
LOG_LIMITS = LogLimits(lines=50_000, bytes=5 * 1024 * 1024)


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """All that a process needs to know; the first line, from the worker."""

    #: `module:name` of the application.
    app: str
    #: `sys.path` of the worker: the same modules are to be found.
    path: tuple[str, ...]
    facts: Facts
    args: Mapping[str, object]
    #: For a call of the task's `on_failure`.
    error: TaskError | None
    memory_limit: int | None

    def to_line(self) -> bytes:
        error = self.error
        return json_line(
            {
                "app": self.app,
                "path": self.path,
                "facts": self.facts.to_json(),
                "args": dict(self.args),
                "error": None if error is None else [error.message, error.code],
                "memory_limit": self.memory_limit,
            }
        )

    @classmethod
    def from_line(cls, line: bytes) -> Request:
        fields = json.loads(line)
        error = fields["error"]
        return cls(
            app=fields["app"],
            path=tuple(fields["path"]),
            facts=Facts.from_json(fields["facts"]),
            args=fields["args"],
            error=None if error is None else TaskError(message=error[0], code=error[1]),
            memory_limit=fields["memory_limit"],
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """From the process, once: what came of it, and the traceback if there is one."""

    outcome: Outcome
    trace: str = ""

    def to_line(self) -> bytes:
        outcome = self.outcome
        after = outcome.retry_in
        return json_line(
            {
                "end": outcome.end.value,
                "retryable": outcome.retryable,
                "result": outcome.result,
                "error": to_stored(outcome.error),
                "code": outcome.code,
                "retry_in": None if after is None else after.total_seconds(),
                "trace": self.trace,
            }
        )


def message_of(line: bytes) -> LogLine | Answer:
    """Raises ValueError, KeyError or TypeError for what is no message: a task may have found the
    socket and written to it."""
    fields = json.loads(line)
    said = LogLine.from_fields(fields)
    if said is not None:
        return said
    after = fields["retry_in"]
    outcome = Outcome(
        end=AttemptEnd(fields["end"]),
        retryable=bool(fields["retryable"]),
        result=fields["result"],
        error=from_stored(str(fields["error"])),
        code=str(fields["code"]),
        retry_in=None if after is None else timedelta(seconds=after),
    )
    return Answer(outcome, str(fields["trace"]))
