"""Callback receivers on the loopback, and runners and calls for them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from chimes.egress import Egress, EgressRules
from chimes.model.policy import Policy
from chimes.model.target import HttpTarget
from chimes.targets.base import Call
from chimes.targets.http import HttpCallback
from tests.builders import NOW, a_run

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
OPEN = EgressRules(open_mode=True)
SERVER = EgressRules(open_mode=False)


def answer(status: str, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass
class Received:
    method: str
    target: str
    #: Names in lower case.
    headers: dict[str, str]
    body: bytes
    raw: bytes


@dataclass
class Sink:
    """Counts connections, records requests, answers with the next of `answers` (then the last)."""

    answers: list[bytes] = field(default_factory=lambda: [OK])
    #: Handles the connection instead of an answer, after the request was read.
    then: Handler | None = None
    requests: list[Received] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    open_now: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def last(self) -> Received:
        return self.requests[-1]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open_now += 1
        try:
            while (received := await read_request(reader)) is not None:
                self.requests.append(received)
                if self.then is not None:
                    await self.then(reader, writer)
                    return
                writer.write(self.answers[min(len(self.requests), len(self.answers)) - 1])
                await writer.drain()
        finally:
            self.open_now -= 1


async def read_request(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {}
    for line in lines:
        name, _, value = line.partition(": ")
        assert name.lower() not in headers, f"{name} was sent twice"
        headers[name.lower()] = value
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method, target, headers, body, head + body)


@asynccontextmanager
async def serving(
    handler: Handler, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serves `handler` and yields the port; closes all connections at the end of the block."""
    tasks: set[asyncio.Task[Any]] = set()

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with suppress(ConnectionError, asyncio.CancelledError):
                await handler(reader, writer)
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(run, host, 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await server.wait_closed()


@asynccontextmanager
async def a_sink(
    *answers: bytes, then: Handler | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Sink]:
    sink = Sink(answers=list(answers) or [OK], then=then)
    async with serving(sink.handle, tls=tls) as port:
        sink.port = port
        yield sink


@asynccontextmanager
async def callback_runner(egress: Egress = OPEN, **given: Any) -> AsyncIterator[HttpCallback]:
    values: dict[str, Any] = {"user_agent": "Chimes/test", "max_connections": 100}
    callback = HttpCallback(egress=egress, **(values | given))
    await callback.open()
    try:
        yield callback
    finally:
        await callback.close()


@dataclass
class Logged:
    lines: list[tuple[str, str]] = field(default_factory=list)

    def __call__(self, level: str, message: str) -> None:
        self.lines.append((level, message))


def a_call(
    url: str,
    *,
    timeout: float = 60,
    triggered_at: datetime = NOW,
    run: dict[str, Any] | None = None,
    **target: Any,
) -> Call:
    values: dict[str, Any] = {
        "target": HttpTarget(url=url, **target),
        "policy": Policy(timeout=timedelta(seconds=timeout)),
        "attempt": 1,
        "fence": 1,
    }
    return Call(run=a_run(**(values | (run or {}))), triggered_at=triggered_at, log=Logged())
