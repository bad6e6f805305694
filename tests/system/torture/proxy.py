"""A TCP proxy between a node and its store that injects network faults."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable

from tests.system.torture.wire import Watch

CHUNK = 64 * 1024


class Proxy:
    """Modes: `pass`, `delay` (delays each chunk), `blackhole` (holds all data and keeps connections
    open), `cut` (closes connections, also new ones), `ambiguous` (the next commit is executed and
    its answer lost with the connection), `truncate` (closes each connection after a number of
    bytes of answers)."""

    def __init__(self, port: int, watch: Callable[[], Watch], rng: random.Random) -> None:
        self._target = port
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
            up = await asyncio.open_connection("127.0.0.1", self._target, limit=CHUNK)
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
        return True

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
