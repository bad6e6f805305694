"""Reading what a process says, whatever it says: bounded memory, never a full pipe."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from chimes.targets.processes.lines import MAX_LINE, RunLog


class LineSplitter:
    """Hands on each line; what is longer than `limit` is cut, the rest of that line dropped."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._skipping = False

    def take(self, line: bytes, *, whole: bool) -> None:
        raise NotImplementedError

    def wanted(self) -> bool:
        """Whether more lines are of any use; if not, what comes is read and dropped."""
        return True

    def data_received(self, data: bytes) -> None:
        if not self.wanted():
            self._buffer.clear()
            return
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._add(line)
            if not self._skipping:
                self.take(bytes(self._buffer), whole=True)
            self._buffer.clear()
            self._skipping = False
            if not self.wanted():
                return
        self._add(rest)

    def ended(self) -> None:
        """The last line may have no end."""
        if self._buffer and not self._skipping and self.wanted():
            self.take(bytes(self._buffer), whole=False)
        self._buffer.clear()

    def _add(self, data: bytes) -> None:
        if self._skipping:
            return
        self._buffer += data[: self._limit + 1 - len(self._buffer)]
        if len(self._buffer) > self._limit:
            del self._buffer[self._limit :]
            self.take(bytes(self._buffer), whole=False)
            self._buffer.clear()
            self._skipping = True


class LineReader(LineSplitter, asyncio.Protocol):
    """The same, of a pipe or a socket."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        #: Resolved at the end of the stream.
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended()
        if not self.closed.done():
            self.closed.set_result(None)


class Output(LineReader):
    """Standard output or error: each line is one of the run's log."""

    def __init__(self, log: RunLog, level: str) -> None:
        super().__init__(MAX_LINE)
        self._log = log
        self._level = level

    def wanted(self) -> bool:
        return not self._log.full()

    def take(self, line: bytes, *, whole: bool) -> None:
        text = line.decode(errors="replace").rstrip("\r")
        self._log.line(self._level, text)


class Messages(LineReader):
    """The socket: only whole lines mean anything."""

    def __init__(self, limit: int, on_line: Callable[[bytes], None]) -> None:
        super().__init__(limit)
        self._on_line = on_line

    def take(self, line: bytes, *, whole: bool) -> None:
        if whole:
            self._on_line(line)
