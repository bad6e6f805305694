"""Lines out of what comes in pieces, with bounded memory."""

from __future__ import annotations


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

    def mark(self) -> bytes:
        """If not empty, only lines that have it are of use, and the others need not be handed
        on: whole pieces without it are dropped at once, which is much faster."""
        return b""

    def data_received(self, data: bytes) -> None:
        if not self.wanted():
            self._buffer.clear()
            return
        if self._dropped(data):
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

    def _dropped(self, data: bytes) -> bool:
        mark = self.mark()
        end = data.rfind(b"\n")
        if not mark or self._skipping or end < 0 or mark in self._buffer + data[:end]:
            return False
        self._buffer.clear()
        self._add(data[end + 1 :])
        return True

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
