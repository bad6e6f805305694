"""The log lines of one attempt, from whatever thread or process they come."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from chimes.targets.python_task.verdicts import shown

#: The engine keeps a thousand lines of an attempt; a few are left for what is said about the task.
MAX_LINES = 990
MAX_BYTES = 1024 * 1024
MAX_LINE = 8 * 1024


class RunLog:
    """Bounded, redacted, thread-safe. Must be made on the event loop that `write` belongs to."""

    def __init__(self, write: Callable[[str, str], None]) -> None:
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._own_thread = threading.get_ident()
        self._lock = threading.Lock()
        self._lines = 0
        self._bytes = 0
        self._closed = False

    def full(self) -> bool:
        return self._lines > MAX_LINES

    def line(self, level: str, message: str) -> None:
        """What the task says; dropped when it has said too much, or when its attempt is over."""
        if self.full() or self._closed:
            return
        message = shown(message, MAX_LINE)
        with self._lock:
            if self.full():
                return
            self._lines += 1
            self._bytes += len(message.encode())
            if self._lines > MAX_LINES or self._bytes > MAX_BYTES:
                # No more from here on, also when it was the size.
                self._lines = MAX_LINES + 1
                level, message = "warning", "too much output: the rest of it is left out"
        self._post(level, message)

    def remark(self, level: str, message: str) -> None:
        """What is said about the task; not counted. For the event loop's own thread."""
        if not self._closed:
            self._write(level, message)

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
