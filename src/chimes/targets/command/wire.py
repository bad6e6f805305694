"""What a worker and the supervisor of a command exchange."""

from __future__ import annotations

import json

from msgspec import Struct, structs

from chimes.targets.process.channel import LogLimits, LogLine, json_line

#: What is stored of the output of one attempt.
LOG_LIMITS = LogLimits(lines=10_000, bytes=4 * 1024 * 1024)


class Request(Struct, frozen=True, kw_only=True):
    """A command with its placeholders filled in."""

    command: list[str]
    #: Empty: the home directory.
    cwd: str
    #: Variables of the worker that are passed on, and those of the run, which take precedence.
    inherited: dict[str, str]
    variables: dict[str, str]
    stdin: str
    #: Empty: the user of the worker.
    user: str
    umask: str
    #: Bytes, seconds, bytes; None: no limit.
    memory_limit: int | None
    cpu_limit: int | None
    output_limit: int | None
    #: Seconds between SIGTERM and SIGKILL.
    kill_after: float

    def to_line(self) -> bytes:
        return json_line(structs.asdict(self))

    @classmethod
    def from_line(cls, line: bytes) -> Request:
        return cls(**json.loads(line))


class ResultMessage(Struct, frozen=True, kw_only=True):
    """How a command ended, or why it was not started (`code`)."""

    code: str = ""
    error: str = ""
    #: Exit code, or the negative number of the signal that ended it.
    status: int | None = None
    #: The last lines of its output.
    output: str = ""
    #: It exceeded `output_limit`.
    flooded: bool = False
    #: Processes that it left behind, which were ended.
    left_behind: int = 0

    def to_line(self) -> bytes:
        return json_line({"result": structs.asdict(self)})


def message_of(line: bytes) -> LogLine | ResultMessage:
    fields = json.loads(line)
    found = LogLine.from_fields(fields)
    return ResultMessage(**fields["result"]) if found is None else found
