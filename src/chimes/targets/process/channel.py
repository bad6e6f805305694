"""The way from the process of a task to its worker: JSON, a line each, over a socket. What the task
prints has pipes of its own."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from chimes.i18n import _
from chimes.redaction import Redactor
from chimes.targets.process.sanitize import sanitize_text

# @@ Lines out of what comes in pieces, with bounded memory.


class LineSplitter:
    """Executor on each line; what is longer than `limit` is cut, the rest of that line dropped."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._skipping = False

    def line_received(self, line: bytes, *, whole: bool) -> None:
        raise NotImplementedError

    def accepts_lines(self) -> bool:
        """Whether more lines are of any use; if not, what comes is read and dropped."""
        return True

    def required_marker(self) -> bytes:
        """If not empty, only lines that have it are of use, and the others need not be handed
        on: whole pieces without it are dropped at once, which is much faster."""
        return b""

    def data_received(self, data: bytes) -> None:
        if not self.accepts_lines():
            self._buffer.clear()
            return
        if self._drop_unmarked(data):
            return
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._add(line)
            if not self._skipping:
                self.line_received(bytes(self._buffer), whole=True)
            self._buffer.clear()
            self._skipping = False
            if not self.accepts_lines():
                return
        self._add(rest)

    def _drop_unmarked(self, data: bytes) -> bool:
        required_marker = self.required_marker()
        end = data.rfind(b"\n")
        if not required_marker or self._skipping or end < 0 or required_marker in self._buffer + data[:end]:
            return False
        self._buffer.clear()
        self._add(data[end + 1 :])
        return True

    def finish(self) -> None:
        """The last line may have no end."""
        if self._buffer and not self._skipping and self.accepts_lines():
            self.line_received(bytes(self._buffer), whole=False)
        self._buffer.clear()

    def _add(self, data: bytes) -> None:
        if self._skipping:
            return
        self._buffer += data[: self._limit + 1 - len(self._buffer)]
        if len(self._buffer) > self._limit:
            del self._buffer[self._limit :]
            self.line_received(bytes(self._buffer), whole=False)
            self._buffer.clear()
            self._skipping = True


# @@ How much of what a task says is kept.

#: Characters of a line.
MAX_LINE = 8 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class LogLimits:
    """Of one attempt."""

    lines: int
    bytes: int


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of the run's log."""

    level: str
    message: str

    def to_line(self) -> bytes:
        return json_line({"log": [self.level, self.message]})

    @classmethod
    def parse(cls, fields: Mapping[str, object]) -> LogLine | None:
        """Raises ValueError or TypeError for what only looks like one."""
        if "log" not in fields:
            return None
        match fields["log"]:
            case [level, message]:
                return cls(str(level), str(message))
            case _:
                raise ValueError("no line of a log")


class Channel:
    def __init__(self, descriptor: int, limits: LogLimits) -> None:
        """`limits`: how much of a log the worker keeps; sending it the rest is not worth
        anybody's time."""
        # Not for programs that the task starts.
        os.set_inheritable(descriptor, False)
        self._socket = socket.socket(fileno=descriptor)
        self._lock = threading.Lock()
        # A process that the task forks has no thread that would ever let go of it.
        os.register_at_fork(after_in_child=self._unlock)
        # The worker counts what is left after secrets were hidden.
        self._bytes_left = 2 * limits.bytes
        self._lines_left = limits.lines

    def _unlock(self) -> None:
        self._lock = threading.Lock()

    def request(self) -> bytes:
        """The first line, which says what to do."""
        received = bytearray()
        while not received.endswith(b"\n"):
            piece = self._socket.recv(65536)
            if not piece:
                # The worker is gone, or no longer wants this.
                sys.exit(1)
            received += piece
        return bytes(received)

    @property
    def is_full(self) -> bool:
        """Whether further lines of the log would be left out."""
        return self._bytes_left < 0 or self._lines_left < 0

    def line(self, level: str, message: str) -> None:
        message = message[:MAX_LINE]
        with self._lock:
            # One more than fits, so that the worker says that something is left out.
            if not self.is_full:
                self._bytes_left -= len(message)
                self._lines_left -= 1
                self._socket.sendall(LogLine(level, message).to_line())

    def send(self, line: bytes) -> None:
        with self._lock:
            self._socket.sendall(line)


def json_line(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields).encode() + b"\n"


# @@ The log lines of one attempt, from whatever thread or process they come.

_USUAL = Redactor()


class RunLog:
    """Bounded, redacted, thread-safe. Must be made on the event loop that `write` belongs to."""

    __slots__ = (
        "_bytes",
        "_closed",
        "_limits",
        "_lines",
        "_lock",
        "_loop",
        "_own_thread",
        "_redactor",
        "_write",
    )

    def __init__(
        self,
        write: Callable[[str, str], None],
        limits: LogLimits,
        redactor: Redactor | None = None,
    ) -> None:
        self._write = write
        self._limits = limits
        self._redactor = redactor or _USUAL
        self._loop = asyncio.get_running_loop()
        self._own_thread = threading.get_ident()
        self._lock = threading.Lock()
        self._lines = 0
        self._bytes = 0
        self._closed = False

    def is_full(self) -> bool:
        return self._lines > self._limits.lines

    def line(self, level: str, message: str) -> None:
        """What the task says; dropped when it has said too much, or when its attempt is over."""
        if self.is_full() or self._closed:
            return
        message = self.sanitize(message)
        with self._lock:
            if self.is_full():
                return
            self._lines += 1
            self._bytes += len(message.encode())
            if self._lines > self._limits.lines or self._bytes > self._limits.bytes:
                # No more from here on, also when it was the size.
                self._lines = self._limits.lines + 1
                level = "warning"
                message = _("too much output: the rest of it is left out")
        self._post(level, message)

    def system_line(self, level: str, message: str) -> None:
        """What is said about the task; not counted. For the event loop's own thread."""
        if not self._closed:
            self._write(level, message)

    def sanitize(self, message: str, limit: int = MAX_LINE, *, keep_end: bool = False) -> str:
        """Fit to be kept: without secrets, and not longer than a line may be."""
        return sanitize_text(message, limit, redactor=self._redactor, keep_end=keep_end)

    def close(self) -> None:
        self._closed = True

    def _post(self, level: str, message: str) -> None:
        if threading.get_ident() == self._own_thread:
            self._write(level, message)
            return
        try:
            self._loop.call_soon_threadsafe(self.system_line, level, message)
        except RuntimeError:
            # The loop is closed: the node has ended, and a thread has not noticed.
            self._closed = True
