"""What a program says on its output: plain lines, or the messages of a Singer tap.

Messages are JSON objects, one a line, with a `type`: SCHEMA, RECORD, STATE. In both forms what a
STATE message says is kept at once, so that the next run goes on from there.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from chimes.targets.processes.limits import MAX_LINE
from chimes.targets.processes.splitting import LineSplitter
from chimes.targets.sync.appending import appending, write_all
from chimes.targets.sync.failures import DriverFailure
from chimes.targets.sync.tether import Tether
from chimes.wording import say

CUT = " … (cut)"
_STATE = b'"STATE"'
#: Bytes of records that are written together.
_AT_ONCE = 64 * 1024

Message = Mapping[str, object]


class Splitter(LineSplitter):
    def __init__(
        self,
        limit: int,
        take: Callable[[bytes, bool], None],
        mark: Callable[[], bytes] = bytes,
    ) -> None:
        super().__init__(limit)
        self._take = take
        self._mark = mark

    def mark(self) -> bytes:
        return self._mark()

    def take(self, line: bytes, *, whole: bool) -> None:
        self._take(line, whole)


class Tap:
    """A program that is listened to."""

    def __init__(self, tether: Tether) -> None:
        self._tether = tether
        self._states = 0
        self._longest = tether.longest_message
        self.out = Splitter(self._longest, self._said, self._wanted)
        self.err = Splitter(MAX_LINE, lambda line, whole: self._log("error", line))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def result(self) -> Mapping[str, object]:
        return {"states": self._states} if self._states else {}

    def ended(self) -> None:
        self.out.ended()
        self.err.ended()

    def close(self) -> None:
        """Nothing more is said."""

    def _wanted(self) -> bytes:
        """What a line must have in it to be of any use; empty: nothing."""
        return b""

    def _said(self, line: bytes, whole: bool) -> None:
        raise NotImplementedError

    def _log(self, level: str, line: bytes) -> None:
        text = line[: MAX_LINE + 1].decode(errors="replace").rstrip("\r")
        self._tether.log(level, text if len(line) < MAX_LINE else text[: MAX_LINE - len(CUT)] + CUT)

    def _keep(self, message: Message) -> None:
        self._states += 1
        self._tether.keep(message["value"])


class Lines(Tap):
    """Each line is one of the log."""

    def _wanted(self) -> bytes:
        return _STATE if self._tether.log_is_full else b""

    def _said(self, line: bytes, whole: bool) -> None:
        message = message_in(line) if _STATE in line else None
        if message is not None and message["type"] == "STATE" and "value" in message:
            self._keep(message)
            self._log("debug", line)
        else:
            self._log("info", line)


class Messages(Tap):
    """Records are counted, and written where the operator wants them; other lines are logged."""

    def __init__(self, tether: Tether, output: Path | None) -> None:
        super().__init__(tether)
        self._records = 0
        self._output = output
        #: Whole lines that are still to be written.
        self._unwritten = bytearray()
        if output is not None:
            try:
                output.parent.mkdir(parents=True, exist_ok=True)
                output.open("ab").close()
            except OSError as error:
                raise DriverFailure("no_output", say("output: {error}", error=str(error))) from None

    @property
    def result(self) -> Mapping[str, object]:
        return {"records": self._records, **super().result}

    def ended(self) -> None:
        super().ended()
        self._write()

    def close(self) -> None:
        # After `ended` there is nothing left; before it, something else has gone wrong.
        with contextlib.suppress(DriverFailure):
            self._write()

    def _write(self) -> None:
        """Other collections may write to the same file."""
        lines = bytes(self._unwritten)
        self._unwritten.clear()
        if self._output is None or not lines:
            return
        try:
            with appending(self._output) as stream:
                write_all(stream, lines)
        except OSError as error:
            raise DriverFailure("no_output", say("output: {error}", error=str(error))) from None

    def _said(self, line: bytes, whole: bool) -> None:
        if not whole and len(line) >= self._longest:
            raise DriverFailure(
                "message_too_large",
                say("a message has over {most} bytes", most=self._longest),
            )
        message = message_in(line)
        if message is None:
            self._log("info", line)
        elif message["type"] == "RECORD":
            self._records += 1
            if self._output is not None:
                self._unwritten += line + b"\n"
                if len(self._unwritten) >= _AT_ONCE:
                    self._write()
        elif message["type"] == "STATE" and "value" in message:
            # What the state stands for must be there before it.
            self._write()
            self._keep(message)


def message_in(line: bytes) -> Message | None:
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("type"), str) else None
