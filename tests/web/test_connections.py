"""Slow and incomplete requests on real sockets."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import AsyncIterator

import pytest
import uvicorn

from chimes.web import middleware
from chimes.web.middleware import HEADER_SECONDS, HeaderTimeoutProtocol
from tests.targets.waiting import pass_time
from tests.web.rig import serving

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost:%d\r\n\r\n"


class AnnouncedServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """A server on a free port."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    async with serving() as rig:
        config = uvicorn.Config(
            rig.app,
            http=HeaderTimeoutProtocol,
            lifespan="off",
            log_config=None,
            timeout_keep_alive=600,
        )
        server = AnnouncedServer(config)
        task = asyncio.create_task(server._serve([listener]))
        await server.up.wait()
        yield listener.getsockname()[1]
        server.should_exit = True
        await task


async def error_response(port: int, *parts: bytes) -> bytes:
    """All data from the server until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for part in parts:
        writer.write(part)
    await writer.drain()
    try:
        async with asyncio.timeout(60):
            return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize(
    "begun", [b"", b"GET /hea", b"GET /health HTTP/1.1\r\nHost: a\r\nX-Slow: "]
)
async def test_incomplete_headers_end_the_connection(port: int, begun: bytes) -> None:
    response = asyncio.create_task(error_response(port, begun))
    await asyncio.sleep(0.1)  # until the server has received it
    pass_time(HEADER_SECONDS)
    assert await response == b""


async def test_slow_headers_of_a_second_request_end_the_connection(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(HEALTH % port + b"GET /health HTT")
    assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
    pass_time(HEADER_SECONDS)
    assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()


async def test_idle_connection_is_not_ended_by_the_header_timeout(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(2):
        writer.write(HEALTH % port)
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
        # The header timeout does not apply between requests.
        pass_time(HEADER_SECONDS)
    writer.close()


async def test_surplus_body_bytes_are_not_a_second_request(port: int) -> None:
    head = (
        b"POST /api/v1/explain HTTP/1.1\r\nHost: localhost:%d\r\nContent-Length: 10\r\n\r\n" % port
    )
    answer = await error_response(port, head, b"x" * 100_000)
    assert answer.startswith(b"HTTP/1.1 4")
    assert b"HTTP/1.1 2" not in answer


async def test_body_needs_a_content_length(port: int) -> None:
    head = (
        b"POST /api/v1/explain HTTP/1.1\r\nHost: localhost:%d\r\n"
        b"Content-Type: application/json\r\nConnection: close\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n" % port
    )
    answer = await error_response(port, head, b"2\r\n{}\r\n0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400")


async def test_endless_body_is_cut_off(port: int) -> None:
    head = (
        b"POST /api/v1/explain HTTP/1.1\r\nHost: localhost:%d\r\n"
        b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" % port
    )
    answer = await error_response(port, head, *[b"10000\r\n" + b" " * 65536 + b"\r\n"] * 5)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"connection: close" in answer.lower()


async def test_the_longest_idle_connection_gives_way(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "connection_limit", lambda: 3)
    # A request without its body is in progress, not idle.
    _, busy = await asyncio.open_connection("127.0.0.1", port)
    busy.write(
        b"POST /api/v1/preview HTTP/1.1\r\nHost: localhost:%d\r\n"
        b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{" % port
    )
    connections = []
    for _ in range(4):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEALTH % port)
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
        connections.append((reader, writer))
    for reader, _ in connections[:2]:
        assert await asyncio.wait_for(reader.read(), 60) == b""
    for reader, writer in connections[2:]:
        writer.write(HEALTH % port)
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
    busy.write(b"}")
    for writer in (busy, *(writer for _, writer in connections)):
        writer.close()


async def test_new_connections_are_closed_while_all_are_in_use(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "connection_limit", lambda: 1)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"POST /api/v1/preview HTTP/1.1\r\nHost: localhost:%d\r\n"
        b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{" % port
    )
    await asyncio.sleep(0.1)  # until the server has received it
    assert await error_response(port) == b""
    writer.write(b"}")
    assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 422")
    writer.close()


def test_connections_leave_files_for_the_store_and_callbacks() -> None:
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = middleware.connection_limit.__wrapped__
    assert limit() <= middleware.MAX_CONNECTIONS
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1000, most))
        assert limit() == 500
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
