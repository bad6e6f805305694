"""The way from the process of a task to its worker: JSON, a line each, over a socket. What the task
prints has pipes of its own."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from chimes.targets.processes.limits import MAX_LINE, LogLimits


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of the run's log."""

    level: str
    message: str

    def to_line(self) -> bytes:
        return json_line({"log": [self.level, self.message]})

    @classmethod
    def found_in(cls, fields: Mapping[str, object]) -> LogLine | None:
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
    def full(self) -> bool:
        """Whether further lines of the log would be left out."""
        return self._bytes_left < 0 or self._lines_left < 0

    def line(self, level: str, message: str) -> None:
        message = message[:MAX_LINE]
        with self._lock:
            # One more than fits, so that the worker says that something is left out.
            if not self.full:
                self._bytes_left -= len(message)
                self._lines_left -= 1
                self._socket.sendall(LogLine(level, message).to_line())

    def send(self, line: bytes) -> None:
        with self._lock:
            self._socket.sendall(line)


def json_line(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields).encode() + b"\n"
