"""Receivers that hang, drip, flood, lie or die: one attempt each, bounded in
time and memory, never a second send."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
import socket
import struct
import threading
import tracemalloc
import zlib
from collections.abc import Sequence

import pytest

from chimes.model.run import AttemptEnd, Outcome
from tests.targets.sinks import OK, OPEN, Handler, a_call, a_sink, answer, calling, serving, until

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"


async def attempt(then: Handler, *, within: float = 10) -> tuple[Outcome, int]:
    """The outcome, and how many requests the receiver saw."""
    async with a_sink(then=then) as sink, calling() as callback:
        outcome = await callback.execute(a_call(sink.url, timeout=within))
        await until(lambda: sink.open_now == 0)
        return outcome, len(sink.requests)


async def forever(reader: Reader) -> None:
    """Until the caller hangs up."""
    with contextlib.suppress(ConnectionError):
        await reader.read()


async def test_f56_a_receiver_that_never_answers_is_timed_out() -> None:
    async def hang(reader: Reader, writer: Writer) -> None:
        await forever(reader)

    outcome, requests = await attempt(hang, within=0.25)
    assert (outcome.end, outcome.retryable, outcome.code) == (AttemptEnd.TIMEOUT, True, "timeout")
    assert outcome.error == "timed out after 0.25s"
    assert requests == 1


# The deadline covers the TCP connection and the TLS handshake as well
async def test_f56_a_tls_handshake_that_never_ends_is_timed_out() -> None:
    async def silent(reader: Reader, writer: Writer) -> None:
        await forever(reader)

    async with serving(silent) as port, calling() as callback:
        outcome = await callback.execute(a_call(f"https://127.0.0.1:{port}", timeout=0.2))
    assert outcome.end is AttemptEnd.TIMEOUT


async def test_f57_a_drip_does_not_outlive_the_total_deadline() -> None:
    async def drip(reader: Reader, writer: Writer) -> None:
        writer.write(HEAD + b"Content-Length: 100000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)  # the drip itself

    outcome, _ = await attempt(drip, within=0.3)
    assert outcome.end is AttemptEnd.TIMEOUT


async def test_f57_dripping_headers_do_not_either() -> None:
    async def drip(reader: Reader, writer: Writer) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while not writer.is_closing():
            writer.write(b"X-A: b\r\n")
            await writer.drain()
            await asyncio.sleep(0.02)  # the drip itself

    outcome, _ = await attempt(drip, within=0.3)
    assert outcome.end is AttemptEnd.TIMEOUT


async def test_a_cancelled_attempt_stops_at_once_and_gives_its_place_back() -> None:
    async def hang(reader: Reader, writer: Writer) -> None:
        await forever(reader)

    async with a_sink(then=hang) as sink, calling(max_connections=1) as callback:
        task = asyncio.create_task(callback.execute(a_call(sink.url)))
        await until(lambda: len(sink.requests) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: sink.open_now == 0)
        sink.then = None
        assert (await callback.execute(a_call(sink.url))).end is AttemptEnd.SUCCEEDED


async def test_f58_an_endless_body_is_cut_and_judged_by_its_status() -> None:
    sent = 0

    async def endless(reader: Reader, writer: Writer) -> None:
        nonlocal sent
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        piece = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        while not writer.is_closing():
            writer.write(piece)
            await writer.drain()
            sent += 0x10000

    outcome, _ = await attempt(endless)
    assert outcome.end is AttemptEnd.SUCCEEDED
    assert outcome.result is not None
    assert outcome.result["body"] == "x" * 65536
    assert outcome.result["truncated"] is True
    assert sent < 16 * 1024 * 1024


# 50 MB in 50 KB
@pytest.mark.parametrize(("encoding", "window"), [("gzip", 31), ("deflate", 15), ("deflate", -15)])
async def test_f58_a_bomb_does_not_unfold(encoding: str, window: int) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, window)
    bomb = b"".join(packer.compress(bytes(1024 * 1024)) for _ in range(50)) + packer.flush()
    sent = answer("200 OK", bomb, Content_Encoding=encoding)
    async with a_sink(sent) as sink, calling() as callback:
        tracemalloc.start()
        try:
            outcome = await callback.execute(a_call(sink.url))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert outcome.end is AttemptEnd.SUCCEEDED
    assert outcome.result is not None
    assert outcome.result["truncated"] is True
    body = outcome.result["body"]
    assert isinstance(body, str)
    assert set(body) == {"\ufffd"}
    assert len(body.encode()) <= 65536
    assert peak < 5 * 1024 * 1024


# Compressed bytes count too, or empty blocks would go on for ever
async def test_f58_an_endless_stream_of_empty_blocks_is_cut() -> None:
    async def endless(reader: Reader, writer: Writer) -> None:
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        block = packer.flush(zlib.Z_FULL_FLUSH) * 1000
        writer.write(HEAD + b"Content-Encoding: deflate\r\n\r\n")
        while not writer.is_closing():
            writer.write(block)
            await writer.drain()

    outcome, _ = await attempt(endless)
    assert outcome.end is AttemptEnd.SUCCEEDED


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "x-gzip"])
async def test_compressed_answers_are_read(encoding: str) -> None:
    packed = zlib.compress(b"hello") if encoding == "deflate" else gzip.compress(b"hello")
    sent = answer("200 OK", packed, Content_Encoding=encoding)
    async with a_sink(sent) as sink, calling() as callback:
        outcome = await callback.execute(a_call(sink.url))
    assert outcome.result is not None
    assert (outcome.result["body"], outcome.result["truncated"]) == ("hello", False)


async def test_a_broken_compressed_answer_is_judged_by_its_status() -> None:
    sent = answer("200 OK", gzip.compress(b"hello")[:10] + b"garbage", Content_Encoding="gzip")
    async with a_sink(sent) as sink, calling() as callback:
        outcome = await callback.execute(a_call(sink.url))
    assert outcome.end is AttemptEnd.SUCCEEDED
    assert outcome.result is not None
    assert outcome.result["truncated"] is True


@pytest.mark.parametrize(
    "flood",
    [
        b"X-Long: " + b"x" * 5_000_000 + b"\r\n",
        b"X-A: b\r\n" * 10_000,
        (b"X-A: " + b"y" * 4000 + b"\r\n") * 1300,
    ],
    ids=["one of 5 MB", "10000 of them", "5 MB in 1300"],
)
async def test_f59_a_flood_of_headers_is_refused(flood: bytes) -> None:
    async def pour(reader: Reader, writer: Writer) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" + flood + b"Content-Length: 0\r\n\r\n")
        await writer.drain()
        await forever(reader)

    outcome, requests = await attempt(pour)
    assert (outcome.end, outcome.retryable, outcome.code) == ("failed", True, "bad_response")
    assert requests == 1


@pytest.mark.parametrize(
    "garbage",
    [b"SSH-2.0-OpenSSH_9.2\r\n\r\n", b"HTTP/9.9 banana\r\n\r\n", b"\x00\x01\x02\x03\r\n\r\n"],
)
async def test_what_is_not_http_is_a_bad_response(garbage: bytes) -> None:
    async def babble(reader: Reader, writer: Writer) -> None:
        writer.write(garbage)
        await writer.drain()
        await forever(reader)

    outcome, _ = await attempt(babble)
    assert (outcome.end, outcome.retryable, outcome.code) == ("failed", True, "bad_response")


def reset(writer: Writer) -> None:
    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def reset_before_answer(reader: Reader, writer: Writer) -> None:
    reset(writer)


async def close_before_answer(reader: Reader, writer: Writer) -> None:
    writer.close()


async def reset_in_body(reader: Reader, writer: Writer) -> None:
    writer.write(HEAD + b"Content-Length: 1000\r\n\r\nhalf")
    await writer.drain()
    reset(writer)


async def close_in_body(reader: Reader, writer: Writer) -> None:
    writer.write(HEAD + b"Content-Length: 1000\r\n\r\nhalf")
    await writer.drain()


async def close_in_chunk(reader: Reader, writer: Writer) -> None:
    writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\nff\r\nhalf")
    await writer.drain()


# Unknown effect, so the attempt failed, and nothing is sent twice within it. GET and PUT are
# the methods that clients like to repeat on their own.
@pytest.mark.parametrize("method", ["GET", "PUT", "POST"])
@pytest.mark.parametrize(
    "die",
    [reset_before_answer, close_before_answer, reset_in_body, close_in_body, close_in_chunk],
    ids=lambda die: die.__name__,
)
@pytest.mark.parametrize("pooled", [False, True])
async def test_f63_a_lost_connection_is_one_send(method: str, die: Handler, pooled: bool) -> None:
    async with a_sink() as sink, calling() as callback:
        if pooled:
            await callback.execute(a_call(sink.url, method=method, body="warm"))
        before = len(sink.requests)
        sink.then = die
        outcome = await callback.execute(a_call(sink.url, method=method, body="real"))
        assert (outcome.end, outcome.retryable, outcome.code) == ("failed", True, "reset")
        assert len(sink.requests) == before + 1
        assert sink.connections == 1


# A kept connection that the server closed meanwhile is noticed before anything is sent, also
# when only the kernel knows: the loop gets no turn between the close and the next call.
async def test_f63_a_connection_closed_under_us_is_not_used() -> None:
    close, closed = threading.Event(), threading.Event()
    requests: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        for number in range(2):
            peer, _ = listener.accept()
            with peer:
                requests.append(peer.recv(65536))
                peer.sendall(OK)
                if number == 0:
                    close.wait(10)
            closed.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with calling() as callback:
            first = await callback.execute(a_call(url, method="POST"))
            close.set()
            assert closed.wait(10)
            second = await callback.execute(a_call(url, method="POST"))
        thread.join(10)
    assert (first.end, second.end) == (AttemptEnd.SUCCEEDED, AttemptEnd.SUCCEEDED)
    assert len(requests) == 2


# A body of 64 KiB that the server never reads
async def test_f63_an_answer_before_the_body_was_read_counts() -> None:
    async def early(reader: Reader, writer: Writer) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer("413 Too Large", b"no", Connection="close"))
        await writer.drain()

    connections = 0

    async def counted(reader: Reader, writer: Writer) -> None:
        nonlocal connections
        connections += 1
        await early(reader, writer)

    async with serving(counted) as port, calling() as callback:
        outcome = await callback.execute(
            a_call(f"http://127.0.0.1:{port}", body="x" * 65536, timeout=5)
        )
    assert connections == 1
    assert outcome.code in ("http_413", "reset"), "either is true; which one TCP decides"
    assert outcome.end is AttemptEnd.FAILED


async def test_a_refused_connection_is_retryable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        async with calling() as callback:
            outcome = await callback.execute(
                a_call(f"http://127.0.0.1:{free.getsockname()[1]}/x?token=abcdefghij")
            )
    assert (outcome.end, outcome.retryable, outcome.code, outcome.error) == (
        "failed",
        True,
        "connect_failed",
        "connection refused",
    )
    assert outcome.result is not None
    assert str(outcome.result["url"]).endswith("/x?token=***")


@pytest.mark.parametrize(
    "error",
    [
        socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
        OSError("broken"),
    ],
)
async def test_f62_a_name_that_does_not_resolve_is_dns(error: OSError) -> None:
    def fail(host: str) -> Sequence[str]:
        raise error

    async with calling(lookup=fail) as callback:
        outcome = await callback.execute(a_call("http://no.such.example/"))
    assert (outcome.end, outcome.retryable, outcome.code) == ("failed", True, "dns")
    assert outcome.error == "the name no.such.example could not be resolved"


async def test_f62_a_name_without_addresses_is_dns() -> None:
    async with calling(lookup=lambda host: []) as callback:
        outcome = await callback.execute(a_call("http://empty.example/"))
    assert (outcome.code, outcome.retryable) == ("dns", True)


# 50 schedules whose names never answer, at once, twice over; others do not notice
async def test_f62_black_holed_names_do_not_hold_up_others() -> None:
    release = threading.Event()
    asked: list[str] = []

    def lookup(host: str) -> Sequence[str]:
        asked.append(host)
        if host.startswith("dead"):
            release.wait(60)
            raise OSError("no answer")
        return ["127.0.0.1"]

    async with a_sink() as sink, calling(lookup=lookup) as callback:
        try:
            for _ in range(2):
                dead = [
                    asyncio.create_task(
                        callback.execute(a_call(f"http://dead{n}.example/", timeout=0.5))
                    )
                    for n in range(50)
                ]
                await until(lambda: len(asked) >= 50)
                alive = await callback.execute(
                    a_call(f"http://alive.example:{sink.port}/", timeout=5)
                )
                assert alive.end is AttemptEnd.SUCCEEDED
                assert {(await task).end for task in dead} == {AttemptEnd.TIMEOUT}
            dead_lookups = [host for host in asked if host.startswith("dead")]
            assert len(dead_lookups) == 50, "a dead name holds one thread, however often it is due"
        finally:
            release.set()
    assert sink.last.headers["host"] == f"alive.example:{sink.port}"


async def test_a_second_address_is_tried_when_the_first_refuses() -> None:
    async with a_sink() as sink, calling(lookup=lambda host: ["::1", "127.0.0.1"]) as callback:
        outcome = await callback.execute(a_call(f"http://both.example:{sink.port}/"))
    assert outcome.end is AttemptEnd.SUCCEEDED


# Idle connections are kept, but not without limit
async def test_idle_connections_are_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chimes.targets.http.connection.MAX_IDLE", 3)

    def here(host: str) -> Sequence[str]:
        return ["127.0.0.1"]

    async with a_sink() as sink, calling(lookup=here, max_connections=1) as callback:
        for n in range(10):
            await callback.execute(a_call(f"http://host{n}.example:{sink.port}/"))
        await until(lambda: sink.open_now <= 3)
        assert sink.connections == 10
        await callback.execute(a_call(f"http://host1.example:{sink.port}/"))
        assert sink.connections == 10, "the first hosts still have theirs"


async def test_attempts_leak_no_descriptor() -> None:
    def open_descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    async with (
        a_sink(OK, answer("500 Oops")) as sink,
        calling(OPEN, max_connections=10) as callback,
    ):
        await callback.execute(a_call(sink.url))
        before = open_descriptors()
        for _ in range(10):
            await asyncio.gather(*(callback.execute(a_call(sink.url)) for _ in range(20)))
        await until(lambda: sink.open_now <= 10)
        assert open_descriptors() <= before + 2 * 10
