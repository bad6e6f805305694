"""Detection of commits in wire protocols.

`feed` gets the client's bytes and returns whether they complete a request that the server will
commit; `heard` gets the server's bytes. Bytes may be split anywhere.
"""

from __future__ import annotations

import re
from typing import Protocol

_WRITES = re.compile(rb"\s*(?:/\*.*?\*/\s*)*(?:with\b.*?\b)?(insert|update|delete)\b", re.I | re.S)
_COMMIT = re.compile(rb"\s*commit\b", re.I)
_BEGIN = re.compile(rb"\s*(?:begin|start\s+transaction)\b", re.I)


#: Verbs of the Redis store that write.
_VERBS = {b"commit", b"fire", b"claim", b"add", b"add_unless_active", b"start"}


class Watch(Protocol):
    def feed(self, data: bytes) -> bool: ...

    def heard(self, data: bytes) -> None: ...


class PostgresWatch:
    """Detects COMMIT as a simple query, and writing statements outside of a transaction."""

    def __init__(self) -> None:
        self._sent = b""
        self._got = b""
        self._started = False
        self._idle = True
        #: Prepared statements that write, by name.
        self._writing: dict[bytes, bool] = {}
        self._bound = False

    def feed(self, data: bytes) -> bool:
        self._sent += data
        commits = False
        if not self._started and len(self._sent) >= 8:
            # The first packets have no type: SSL request, then start-up.
            length = int.from_bytes(self._sent[:4])
            if len(self._sent) >= length:
                self._started = self._sent[4:8] != b"\x04\xd2\x16\x2f"
                self._sent = self._sent[length:]
        while self._started and len(self._sent) >= 5:
            end = 1 + int.from_bytes(self._sent[1:5])
            if len(self._sent) < end:
                break
            kind, body, self._sent = self._sent[:1], self._sent[5:end], self._sent[end:]
            commits |= self._message(kind, body)
        return commits

    def _message(self, kind: bytes, body: bytes) -> bool:
        match kind:
            case b"Q":
                if _COMMIT.match(body):
                    return True
                return self._idle and bool(_WRITES.match(body))
            case b"P":
                name, query, *_ = body.split(b"\0", 2)
                self._writing[name] = bool(_WRITES.match(query))
            case b"B":
                _, name, *_ = body.split(b"\0", 2)
                self._bound |= self._writing.get(name, False)
            case b"S":
                bound, self._bound = self._bound, False
                return bound and self._idle
        return False

    def heard(self, data: bytes) -> None:
        if not self._started:
            return  # the answer to the SSL request
        self._got += data
        while len(self._got) >= 5:
            end = 1 + int.from_bytes(self._got[1:5])
            if len(self._got) < end:
                return
            if self._got[:1] == b"Z":
                self._idle = self._got[5:6] == b"I"
            self._got = self._got[end:]


class RedisWatch:
    """Detects calls of writing scripts, which are the commits of the Redis store."""

    def __init__(self) -> None:
        self._sent = b""

    def feed(self, data: bytes) -> bool:
        self._sent += data
        commits = False
        while (command := self._command()) is not None:
            commits |= command[:1] in ([b"EVALSHA"], [b"EVAL"]) and bool(_VERBS & {*command})
        return commits

    def _command(self) -> list[bytes] | None:
        """The next complete command, an array of strings."""
        head, found, rest = self._sent.partition(b"\r\n")
        words: list[bytes] = []
        for _ in range(int(head[1:]) if found else 0):
            size, found, rest = rest.partition(b"\r\n")
            end = int(size[1:] or 0) if found else 0
            if not found or len(rest) < end + 2:
                return None
            words.append(rest[:end])
            rest = rest[end + 2 :]
        if not words:
            return None
        self._sent = rest
        return words

    def heard(self, data: bytes) -> None:
        pass


class MysqlWatch:
    """Detects COMMIT as a query, and writing statements outside of a transaction."""

    def __init__(self) -> None:
        self._sent = b""
        self._greeted = False
        self._autocommit = True
        self._inside = False

    def feed(self, data: bytes) -> bool:
        self._sent += data
        commits = False
        while len(self._sent) >= 4:
            end = 4 + int.from_bytes(self._sent[:3], "little")
            if len(self._sent) < end:
                break
            number, body, self._sent = self._sent[3], self._sent[4:end], self._sent[end:]
            # Commands begin a new sequence; the login does not.
            if number == 0 and body[:1] == b"\x03":
                commits |= self._query(body[1:])
        return commits

    def _query(self, text: bytes) -> bool:
        said = text.lower().strip()
        if said.startswith(b"set autocommit"):
            self._autocommit = said.rstrip(b"; ").endswith((b"1", b"on", b"true"))
            return False
        if _BEGIN.match(text):
            self._inside = True
            return False
        if said.startswith(b"rollback"):
            self._inside = False
            return False
        if _COMMIT.match(text):
            self._inside = False
            return True
        return self._autocommit and not self._inside and bool(_WRITES.match(text))

    def heard(self, data: bytes) -> None:
        """Ignored: the client's bytes are enough."""
