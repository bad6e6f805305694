"""Messages between a worker and the child process of a Python task: JSON lines on a socket."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from chimes.i18n import from_stored, to_stored
from chimes.model.run import AttemptEnd, Outcome
from chimes.targets.process.channel import LogLimits, LogLine, json_line
from chimes.targets.python.context import RunInfo
from chimes.targets.python.outcomes import TaskError

#: The engine stores slightly more per attempt, which leaves room for lines about the task.
LOG_LIMITS = LogLimits(lines=50_000, bytes=5 * 1024 * 1024)


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """The first line: sent by the worker to start the task."""

    #: `module:name` of the application.
    app: str
    #: `sys.path` of the worker, so that the child finds the same modules.
    path: tuple[str, ...]
    info: RunInfo
    args: Mapping[str, object]
    #: Set to call the task's `on_failure` instead.
    error: TaskError | None
    memory_limit: int | None
    #: W3C trace context of the attempt; empty: none.
    trace: str = ""

    def to_line(self) -> bytes:
        error = self.error
        return json_line(
            {
                "app": self.app,
                "path": self.path,
                "facts": self.info.to_json(),
                "args": dict(self.args),
                "error": None if error is None else [error.message, error.code],
                "memory_limit": self.memory_limit,
                "trace": self.trace,
            }
        )

    @classmethod
    def from_line(cls, line: bytes) -> Request:
        fields = json.loads(line)
        error = fields["error"]
        return cls(
            app=fields["app"],
            path=tuple(fields["path"]),
            info=RunInfo.from_json(fields["facts"]),
            args=fields["args"],
            error=None if error is None else TaskError(message=error[0], code=error[1]),
            memory_limit=fields["memory_limit"],
            trace=fields["trace"],
        )


@dataclass(frozen=True, slots=True)
class ResultMessage:
    """The last line: outcome and traceback, if any; sent by the child process once."""

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


def message_of(line: bytes) -> LogLine | ResultMessage:
    """Raises ValueError, KeyError or TypeError for a malformed line: user code may have written to
    the socket."""
    fields = json.loads(line)
    log_line = LogLine.from_fields(fields)
    if log_line is not None:
        return log_line
    after = fields["retry_in"]
    outcome = Outcome(
        end=AttemptEnd(fields["end"]),
        retryable=bool(fields["retryable"]),
        result=fields["result"],
        error=from_stored(str(fields["error"])),
        code=str(fields["code"]),
        retry_in=None if after is None else timedelta(seconds=after),
    )
    return ResultMessage(outcome, str(fields["trace"]))
