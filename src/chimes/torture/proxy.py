"""A TCP proxy between a node and its store that injects network faults.

To lose the answer to a commit, it detects commits in the protocols of PostgreSQL, MariaDB and
Redis. A `Watch` gets the client's bytes (`feed` returns whether they complete a request that the
server will commit) and the server's bytes (`heard`); they may be split anywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections.abc import Callable
from typing import Protocol

CHUNK = 64 * 1024


class Proxy:
    """Modes: `pass`, `delay` (delays each chunk), `blackhole` (holds all data and keeps connections
    open), `cut` (closes connections, also new ones), `ambiguous` (the next commit is executed and
    its answer lost with the connection), `truncate` (closes each connection after a number of
    bytes of answers)."""

    def __init__(
        self, port: int, watch: Callable[[], Watch], rng: random.Random, *, host: str = "127.0.0.1"
    ) -> None:
        self._target = port
        self._host = host
        self._watch = watch
        self._rng = rng
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self.port = 0
        self.mode = "pass"
        self.number = 0.0
        #: Number of commits whose answer was lost.
        self.ambiguous = 0
        self.cuts = 0
        self._answer_lost = asyncio.Event()
        self._flowing = asyncio.Event()
        self._flowing.set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=CHUNK)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self.set("pass")
        if self._server is not None:
            self._server.close()
        self.drop_all()

    def set(self, mode: str, number: float = 0.0) -> None:
        self.mode, self.number = mode, number
        if mode == "blackhole":
            self._flowing.clear()
        else:
            self._flowing.set()
        if mode == "cut":
            self.cuts += len(self._links)
            self.drop_all()

    def redirect_to(self, port: int) -> None:
        """Switches to another server and closes existing connections."""
        self._target = port
        self.drop_all()

    def drop_all(self) -> None:
        for link in tuple(self._links):
            link.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.mode == "cut":
            writer.transport.abort()
            return
        try:
            await self._flowing.wait()
            up = await asyncio.open_connection(self._host, self._target, limit=CHUNK)
        except OSError:
            writer.transport.abort()
            return
        link = _Link(self, (reader, writer), up, self._watch())
        self._links.add(link)
        try:
            await link.carry()
        finally:
            self._links.discard(link)

    async def hold(self) -> None:
        """Applies the mode to a chunk."""
        if self.mode == "delay":
            await asyncio.sleep(self.number)
        await self._flowing.wait()

    def lose_answer(self) -> bool:
        if self.mode != "ambiguous":
            return False
        self.mode = "pass"
        self.ambiguous += 1
        self._answer_lost.set()
        return True

    async def answer_lost(self, within: float) -> None:
        """Waits until the answer to a commit was lost."""
        self._answer_lost.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._answer_lost.wait()

    def wait_for_the_commit(self) -> bool:
        return self._rng.random() < 0.7


Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Link:
    def __init__(self, proxy: Proxy, client: Pair, server: Pair, watch: Watch) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._watch = watch
        self._doomed = False
        self._budget = proxy.number if proxy.mode == "truncate" else None

    async def carry(self) -> None:
        tasks = {asyncio.create_task(self._upward()), asyncio.create_task(self._downward())}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            self.abort()
            await asyncio.gather(*tasks, return_exceptions=True)

    def abort(self) -> None:
        for _, writer in (self._client, self._server):
            writer.transport.abort()

    async def _upward(self) -> None:
        with contextlib.suppress(OSError):
            while data := await self._client[0].read(CHUNK):
                await self._proxy.hold()
                commits = self._watch.feed(data)
                self._server[1].write(data)
                await self._server[1].drain()
                if commits and self._proxy.lose_answer():
                    if not self._proxy.wait_for_the_commit():
                        return
                    self._doomed = True

    async def _downward(self) -> None:
        with contextlib.suppress(OSError):
            while data := await self._server[0].read(CHUNK):
                if self._doomed:
                    return
                await self._proxy.hold()
                self._watch.heard(data)
                if self._budget is not None:
                    self._budget -= len(data)
                    if self._budget < 0:
                        return
                self._client[1].write(data)
                await self._client[1].drain()


# --- wire protocols ------------------------------------------------------------------------------
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
        #: Nothing can be read after the start of TLS.
        self._encrypted = False
        self._idle = True
        #: Prepared statements that write, by name.
        self._writing: dict[bytes, bool] = {}
        self._bound = False

    def feed(self, data: bytes) -> bool:
        if self._encrypted:
            return False
        self._sent += data
        commits = False
        if not self._started and len(self._sent) >= 8:
            # The first packets have no type: SSL request, then start-up.
            length = int.from_bytes(self._sent[:4])
            if self._sent[:1] == b"\x16":
                self._encrypted = True
            elif len(self._sent) >= length:
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
