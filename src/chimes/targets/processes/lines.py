"""The log lines of one attempt, from whatever thread or process they come."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from chimes.redaction import Redactor
from chimes.targets.processes.limits import MAX_LINE, LogLimits
from chimes.targets.processes.storable import shown
from chimes.wording import say

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

    def full(self) -> bool:
        return self._lines > self._limits.lines

    def line(self, level: str, message: str) -> None:
        """What the task says; dropped when it has said too much, or when its attempt is over."""
        if self.full() or self._closed:
            return
        message = self.shown(message)
        with self._lock:
            if self.full():
                return
            self._lines += 1
            self._bytes += len(message.encode())
            if self._lines > self._limits.lines or self._bytes > self._limits.bytes:
                # No more from here on, also when it was the size.
                self._lines = self._limits.lines + 1
                level = "warning"
                message = say("too much output: the rest of it is left out")
        self._post(level, message)

    def remark(self, level: str, message: str) -> None:
        """What is said about the task; not counted. For the event loop's own thread."""
        if not self._closed:
            self._write(level, message)

    def shown(self, message: str, limit: int = MAX_LINE, *, keep_end: bool = False) -> str:
        """Fit to be kept: without secrets, and not longer than a line may be."""
        return shown(message, limit, redactor=self._redactor, keep_end=keep_end)

    def close(self) -> None:
        self._closed = True

    def _post(self, level: str, message: str) -> None:
        if threading.get_ident() == self._own_thread:
            self._write(level, message)
            return
        try:
            self._loop.call_soon_threadsafe(self.remark, level, message)
        except RuntimeError:
            # The loop is closed: the node has ended, and a thread has not noticed.
            self._closed = True
