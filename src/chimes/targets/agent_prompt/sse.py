"""Server-sent events, read from pieces that may be cut anywhere."""

from __future__ import annotations

import re

_END_OF_LINE = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class EventTooLong(Exception):
    """A line or an event is longer than what is read of one."""


class EventReader:
    """Only the data of events is of interest; names, ids and comments are passed over."""

    def __init__(self, longest: int) -> None:
        """`longest`: bytes of one event."""
        self._longest = longest
        self._rest = bytearray()
        self._searched = 0
        #: The line feed that may come next belongs to the line before.
        self._after_return = False
        self._begun = False
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[str]:
        """The data of each event that this completes."""
        events = [found for line in self._lines(piece) if (found := self._take(line)) is not None]
        if len(self._rest) > self._longest:
            raise EventTooLong
        return events

    def end(self) -> list[str]:
        """What an event without an empty line behind it holds: some servers end so."""
        if self._rest:
            self._take(bytes(self._rest))
            self._rest.clear()
        last = self._take(b"")
        return [] if last is None else [last]

    def _lines(self, piece: bytes) -> list[bytes]:
        if self._after_return and piece:
            piece = piece.removeprefix(b"\n")
            self._after_return = False
        self._rest += piece
        if not self._begun and len(self._rest) >= len(_BOM):
            self._begun = True
            if self._rest.startswith(_BOM):
                del self._rest[: len(_BOM)]
        lines: list[bytes] = []
        start = 0
        for found in _END_OF_LINE.finditer(self._rest, self._searched):
            lines.append(bytes(self._rest[start : found.start()]))
            start = found.end()
            self._after_return = found[0] == b"\r" and start == len(self._rest)
        del self._rest[:start]
        self._searched = len(self._rest)
        return lines

    def _take(self, line: bytes) -> str | None:
        """The data of the event that an empty line ends."""
        if not line:
            data, self._data, self._size = self._data, [], 0
            return b"\n".join(data).decode(errors="replace") if data else None
        name, _, value = line.partition(b":")
        if name == b"data":
            value = value.removeprefix(b" ")
            self._size += len(value)
            if self._size > self._longest:
                raise EventTooLong
            self._data.append(value)
        return None
