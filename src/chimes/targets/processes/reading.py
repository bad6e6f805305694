"""Reading what a process says, whatever it says: bounded memory, never a full pipe."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from chimes.targets.processes.limits import MAX_LINE
from chimes.targets.processes.lines import RunLog
from chimes.targets.processes.splitting import LineSplitter


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
