"""What a worker and the child process of an attempt exchange: JSON lines over a socket.

Also the limited log of an attempt, which receives log messages, standard output and standard error
of the child.
"""

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


class LineSplitter:
    """Splits a byte stream into lines with bounded memory: a line over `limit` bytes is cut."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._skipping = False

    def line_received(self, line: bytes, *, whole: bool) -> None:
        """Called with each line, without its newline. `whole`: not cut, and ended by a newline."""
        raise NotImplementedError

    def accepts_lines(self) -> bool:
        """Whether further lines are processed; if not, data is read and dropped."""
        return True

    def required_marker(self) -> bytes:
        """If not empty, lines without this text may be skipped. A chunk that does not contain it is
        then dropped without splitting it, which is much faster."""
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
        marker = self.required_marker()
        end = data.rfind(b"\n")
        if not marker or self._skipping or end < 0 or marker in self._buffer + data[:end]:
            return False
        self._buffer.clear()
        self._add(data[end + 1 :])
        return True

    def finish(self) -> None:
        """End of the stream; the last line may lack a newline."""
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


#: Characters of a log line.
MAX_LINE = 8 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class LogLimits:
    """How much of the log of one attempt is stored."""

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
    def from_fields(cls, fields: Mapping[str, object]) -> LogLine | None:
        """None: another kind of message. Raises ValueError for a malformed log line."""
        if "log" not in fields:
            return None
        match fields["log"]:
            case [level, message]:
                return cls(str(level), str(message))
            case _:
                raise ValueError("malformed log line")


class WorkerSocket:
    """The child's end of the socket: receives the request, sends log lines and messages."""

    def __init__(self, descriptor: int, limits: LogLimits) -> None:
        """`limits`: how much of the log the worker stores; the rest is not sent."""
        # Programs that the task starts must not inherit the socket.
        os.set_inheritable(descriptor, False)
        self._socket = socket.socket(fileno=descriptor)
        self._lock = threading.Lock()
        # A forked process lacks the thread that would release the lock.
        os.register_at_fork(after_in_child=self._unlock)
        # The worker counts bytes after redaction, which may shorten lines.
        self._bytes_left = 2 * limits.bytes
        self._lines_left = limits.lines

    def _unlock(self) -> None:
        self._lock = threading.Lock()

    def read_request(self) -> bytes:
        """The first line that the worker sends."""
        received = bytearray()
        while not received.endswith(b"\n"):
            chunk = self._socket.recv(65536)
            if not chunk:
                # The worker has exited or canceled the attempt.
                sys.exit(1)
            received += chunk
        return bytes(received)

    @property
    def log_is_full(self) -> bool:
        """Whether further log lines would be dropped."""
        return self._bytes_left < 0 or self._lines_left < 0

    def line(self, level: str, message: str) -> None:
        message = message[:MAX_LINE]
        with self._lock:
            # One line more than fits, so that the worker notes the truncation.
            if not self.log_is_full:
                self._bytes_left -= len(message)
                self._lines_left -= 1
                self._socket.sendall(LogLine(level, message).to_line())

    def send(self, line: bytes) -> None:
        with self._lock:
            self._socket.sendall(line)


def json_line(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields).encode() + b"\n"


_DEFAULT_REDACTOR = Redactor()


class BoundedLog:
    """The log of one attempt as its task writes to it: limited, redacted, thread-safe. `write` is
    called on the event loop on which this was created."""

    __slots__ = (
        "_bytes",
        "_closed",
        "_limits",
        "_lines",
        "_lock",
        "_loop",
        "_loop_thread",
        "_redactor",
        "_write",
    )

    def __init__(
        self,
        write: Callable[[str, str], None],
        limits: LogLimits,
        redactor: Redactor | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """`loop`: the running event loop, if the caller knows it; asking for it is a system call
        before Python 3.12."""
        self._write = write
        self._limits = limits
        self._redactor = redactor or _DEFAULT_REDACTOR
        self._loop = loop or asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._lock = threading.Lock()
        self._lines = 0
        self._bytes = 0
        self._closed = False

    def is_full(self) -> bool:
        return self._lines > self._limits.lines

    def line(self, level: str, message: str) -> None:
        """Adds a line of the task; dropped beyond the limits and after the attempt."""
        if self.is_full() or self._closed:
            return
        message = self.sanitize(message)
        with self._lock:
            if self.is_full():
                return
            self._lines += 1
            self._bytes += len(message.encode())
            if self._lines > self._limits.lines or self._bytes > self._limits.bytes:
                # Marks the log as full, also when the byte limit was exceeded.
                self._lines = self._limits.lines + 1
                level = "warning"
                message = _("output truncated: the attempt exceeded its log limit")
        self._post(level, message)

    def system_line(self, level: str, message: str) -> None:
        """Adds a line of Chimes about the task; not limited. Only on the event loop's thread."""
        if not self._closed:
            self._write(level, message)

    def sanitize(self, message: str, limit: int = MAX_LINE, *, keep_end: bool = False) -> str:
        """Redacts secrets and cuts to `limit` characters."""
        return sanitize_text(message, limit, redactor=self._redactor, keep_end=keep_end)

    def close(self) -> None:
        self._closed = True

    def _post(self, level: str, message: str) -> None:
        if threading.get_ident() == self._loop_thread:
            self._write(level, message)
            return
        try:
            self._loop.call_soon_threadsafe(self.system_line, level, message)
        except RuntimeError:
            # The loop is closed: the node stopped while a task thread was running.
            self._closed = True
