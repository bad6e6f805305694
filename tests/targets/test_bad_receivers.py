"""Callback receivers that hang, drip, flood or break off: an attempt is bounded in time and
memory and sends one request."""

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
from tests.tables import each_row
from tests.targets.sinks import OK, OPEN, Handler, a_call, a_sink, answer, callback_runner, serving
from tests.targets.waiting import pass_time, until

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"


async def attempt(then: Handler, *, times_out: bool = False) -> tuple[Outcome, int]:
    """Returns the outcome and the number of requests received. `times_out`: the time ends when the
    receiver has handled the request for a while."""
    async with a_sink(then=then) as sink, callback_runner() as callback:
        call = asyncio.create_task(callback.execute(a_call(sink.url, timeout=60)))
        if times_out:
            await until(lambda: len(sink.requests) == 1)
            await asyncio.sleep(0.1)
            assert not call.done()
            pass_time(60)
        outcome = await call
        await until(lambda: sink.open_now == 0)
        return outcome, len(sink.requests)


async def until_closed(reader: Reader) -> None:
    """Waits until the caller closes the connection."""
    with contextlib.suppress(ConnectionError):
        await reader.read()


async def test_receiver_that_never_answers_times_out() -> None:
    async def hang(reader: Reader, writer: Writer) -> None:
        await until_closed(reader)

    outcome, requests = await attempt(hang, times_out=True)
    assert (outcome.end, outcome.retryable, outcome.code) == (AttemptEnd.TIMEOUT, True, "timeout")
    assert outcome.error == "timed out after 60s"
    assert requests == 1


async def test_tls_handshake_that_never_ends_times_out() -> None:
    async def silent(reader: Reader, writer: Writer) -> None:
        await until_closed(reader)

    async with serving(silent) as port, callback_runner() as callback:
        outcome = await callback.execute(a_call(f"https://127.0.0.1:{port}", timeout=0.2))
    assert outcome.end is AttemptEnd.TIMEOUT


async def test_dripping_body_times_out() -> None:
    async def drip(reader: Reader, writer: Writer) -> None:
        writer.write(HEAD + b"Content-Length: 100000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)  # the drip itself

    outcome, _ = await attempt(drip, times_out=True)
    assert outcome.end is AttemptEnd.TIMEOUT


async def test_dripping_headers_time_out() -> None:
    async def drip(reader: Reader, writer: Writer) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while not writer.is_closing():
            writer.write(b"X-A: b\r\n")
            await writer.drain()
            await asyncio.sleep(0.02)  # the drip itself

    outcome, _ = await attempt(drip, times_out=True)
    assert outcome.end is AttemptEnd.TIMEOUT


async def test_cancel_stops_the_attempt_and_frees_its_connection() -> None:
    async def hang(reader: Reader, writer: Writer) -> None:
        await until_closed(reader)

    async with a_sink(then=hang) as sink, callback_runner(max_connections=1) as callback:
        task = asyncio.create_task(callback.execute(a_call(sink.url)))
        await until(lambda: len(sink.requests) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: sink.open_now == 0)
        sink.then = None
        assert (await callback.execute(a_call(sink.url))).end is AttemptEnd.SUCCEEDED


async def test_endless_body_is_truncated_and_the_status_decides() -> None:
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


# 50 MB compressed to 50 KB.
@pytest.mark.parametrize(("encoding", "window"), [("gzip", 31), ("deflate", 15), ("deflate", -15)])
async def test_decompression_bomb_stays_within_bounded_memory(encoding: str, window: int) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, window)
    bomb = b"".join(packer.compress(bytes(1024 * 1024)) for _ in range(50)) + packer.flush()
    sent = answer("200 OK", bomb, Content_Encoding=encoding)
    async with a_sink(sent) as sink, callback_runner() as callback:
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


# Compressed bytes count as well, because empty blocks decompress to nothing.
async def test_endless_stream_of_empty_compressed_blocks_is_truncated() -> None:
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
async def test_compressed_responses_are_decoded(encoding: str) -> None:
    packed = zlib.compress(b"hello") if encoding == "deflate" else gzip.compress(b"hello")
    sent = answer("200 OK", packed, Content_Encoding=encoding)
    async with a_sink(sent) as sink, callback_runner() as callback:
        outcome = await callback.execute(a_call(sink.url))
    assert outcome.result is not None
    assert (outcome.result["body"], outcome.result["truncated"]) == ("hello", False)


async def test_corrupt_compressed_body_is_truncated_and_the_status_decides() -> None:
    sent = answer("200 OK", gzip.compress(b"hello")[:10] + b"garbage", Content_Encoding="gzip")
    async with a_sink(sent) as sink, callback_runner() as callback:
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
async def test_oversized_headers_are_a_bad_response(flood: bytes) -> None:
    async def pour(reader: Reader, writer: Writer) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" + flood + b"Content-Length: 0\r\n\r\n")
        await writer.drain()
        await until_closed(reader)

    outcome, requests = await attempt(pour)
    assert (outcome.end, outcome.retryable, outcome.code) == ("failed", True, "bad_response")
    assert requests == 1


@pytest.mark.parametrize(
    "garbage",
    [b"SSH-2.0-OpenSSH_9.2\r\n\r\n", b"HTTP/9.9 banana\r\n\r\n", b"\x00\x01\x02\x03\r\n\r\n"],
)
async def test_garbage_instead_of_http_is_a_bad_response(garbage: bytes) -> None:
    async def babble(reader: Reader, writer: Writer) -> None:
        writer.write(garbage)
        await writer.drain()
        await until_closed(reader)

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


# The effect is unknown, so the attempt fails without sending again. Many HTTP clients repeat
# GET and PUT by themselves.
@pytest.mark.parametrize("method", ["GET", "PUT", "POST"])
@pytest.mark.parametrize(
    "die",
    [reset_before_answer, close_before_answer, reset_in_body, close_in_body, close_in_chunk],
    ids=lambda die: die.__name__,
)
@pytest.mark.parametrize("pooled", [False, True])
async def test_lost_connection_does_not_repeat_the_request(
    method: str, die: Handler, pooled: bool
) -> None:
    async with a_sink() as sink, callback_runner() as callback:
        if pooled:
            await callback.execute(a_call(sink.url, method=method, body="warm"))
        before = len(sink.requests)
        sink.then = die
        outcome = await callback.execute(a_call(sink.url, method=method, body="real"))
        assert (outcome.end, outcome.retryable, outcome.code) == ("failed", True, "reset")
        assert len(sink.requests) == before + 1
        assert sink.connections == 1


# A pooled connection that the server closed is detected before the request is sent, even if the
# event loop has not run between the close and the next call.
async def test_pooled_connection_closed_by_the_server_is_not_reused() -> None:
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
        async with callback_runner() as callback:
            first = await callback.execute(a_call(url, method="POST"))
            close.set()
            assert closed.wait(10)
            second = await callback.execute(a_call(url, method="POST"))
        thread.join(10)
    assert (first.end, second.end) == (AttemptEnd.SUCCEEDED, AttemptEnd.SUCCEEDED)
    assert len(requests) == 2


async def test_pooled_connection_on_which_the_server_sent_more_is_not_reused() -> None:
    async def answer_twice(reader: Reader, writer: Writer) -> None:
        writer.write(OK)
        await answered.wait()
        writer.write(answer("500 Not asked for"))
        sent.set()
        await until_closed(reader)

    answered, sent = asyncio.Event(), asyncio.Event()
    async with a_sink(then=answer_twice) as sink, callback_runner() as callback:
        first = await callback.execute(a_call(sink.url))
        answered.set()
        await sent.wait()
        second = await callback.execute(a_call(sink.url))
    assert (first.end, second.end) == (AttemptEnd.SUCCEEDED, AttemptEnd.SUCCEEDED)
    assert sink.connections == 2


@each_row(
    "response",
    [
        OK,
        answer("200 OK", b"x" * 5000, Content_Type="text/plain", Set_Cookie="session=secret"),
        answer("200 OK", "ä\0\udcff".encode(errors="surrogateescape"), X_Name="\u00e4"),
        answer("200 OK", gzip.compress(b"packed"), Content_Encoding="gzip"),
        answer("201 Created", Connection="close"),
        answer("302 Found", b"there", Location="/there?token=x"),
        answer("503 Busy", b"later", Retry_After="7"),
        answer("500 " + "x" * 200, b""),
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        HEAD + b"Content-Length: +2\r\n\r\nok",
        HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok",
        HEAD + b" folded: value\r\nContent-Length: 2\r\n\r\nok",
        HEAD + b"No colon\r\nContent-Length: 2\r\n\r\nok",
        HEAD + b"Content-Length: 2\r\n\r\n",
        HEAD + b"Content-Length: 2\r\n\r\nok and more",
        HEAD + b"\r\nuntil the end",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
        b"HTTP/1.1 103 Early Hints\r\nContent-Length: 0\r\n\r\n" + OK,
    ],
)
async def test_response_is_the_same_in_one_piece_and_in_many(response: bytes) -> None:
    async def whole(reader: Reader, writer: Writer) -> None:
        writer.write(response)

    async def in_pieces(reader: Reader, writer: Writer) -> None:
        middle = len(response) // 2
        for piece in (response[:20], response[20:middle], response[middle:]):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)  # the drip itself

    found = []
    for then in (whole, in_pieces):
        outcome, _ = await attempt(then)
        result = {key: value for key, value in (outcome.result or {}).items() if key != "url"}
        found.append((outcome.end, outcome.code, outcome.retry_after, result | {"duration_ms": 0}))
    assert found[0] == found[1]


# The server never reads the body of 64 KiB.
async def test_response_before_the_body_was_read_fails_without_repeat() -> None:
    async def early(reader: Reader, writer: Writer) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer("413 Too Large", b"no", Connection="close"))
        await writer.drain()

    connections = 0

    async def counted(reader: Reader, writer: Writer) -> None:
        nonlocal connections
        connections += 1
        await early(reader, writer)

    async with serving(counted) as port, callback_runner() as callback:
        outcome = await callback.execute(a_call(f"http://127.0.0.1:{port}", body="x" * 65536))
    assert connections == 1
    assert outcome.code in ("http_413", "reset"), "depends on TCP timing"
    assert outcome.end is AttemptEnd.FAILED


async def test_a_refused_connection_is_retryable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        async with callback_runner() as callback:
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
async def test_name_that_does_not_resolve_fails_with_code_dns(error: OSError) -> None:
    def fail(host: str) -> Sequence[str]:
        raise error

    async with callback_runner(lookup=fail) as callback:
        outcome = await callback.execute(a_call("http://no.such.example/"))
    assert (outcome.end, outcome.retryable, outcome.code) == ("failed", True, "dns")
    assert outcome.error == "the name no.such.example could not be resolved"


async def test_name_without_addresses_fails_with_code_dns() -> None:
    async with callback_runner(lookup=lambda host: []) as callback:
        outcome = await callback.execute(a_call("http://empty.example/"))
    assert (outcome.code, outcome.retryable) == ("dns", True)


# Each of 50 names blocks its resolver thread in both rounds.
async def test_hanging_dns_lookups_do_not_delay_other_hosts() -> None:
    release = threading.Event()
    asked: list[str] = []

    def lookup(host: str) -> Sequence[str]:
        asked.append(host)
        if host.startswith("dead"):
            release.wait(60)
            raise OSError("no answer")
        return ["127.0.0.1"]

    async with a_sink() as sink, callback_runner(lookup=lookup) as callback:
        try:
            for _ in range(2):
                dead = [
                    asyncio.create_task(
                        callback.execute(a_call(f"http://dead{n}.example/", timeout=60))
                    )
                    for n in range(50)
                ]
                await until(lambda: len(asked) >= 50)
                alive = await callback.execute(a_call(f"http://alive.example:{sink.port}/"))
                assert alive.end is AttemptEnd.SUCCEEDED
                pass_time(60)
                assert {(await task).end for task in dead} == {AttemptEnd.TIMEOUT}
            dead_lookups = [host for host in asked if host.startswith("dead")]
            assert len(dead_lookups) == 50, "a dead name blocks one thread at most"
        finally:
            release.set()
    assert sink.last.headers["host"] == f"alive.example:{sink.port}"


async def test_a_second_address_is_tried_when_the_first_refuses() -> None:
    async with (
        a_sink() as sink,
        callback_runner(lookup=lambda host: ["::1", "127.0.0.1"]) as callback,
    ):
        outcome = await callback.execute(a_call(f"http://both.example:{sink.port}/"))
    assert outcome.end is AttemptEnd.SUCCEEDED


async def test_idle_connections_are_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chimes.targets.http.connection.MAX_IDLE", 3)

    def here(host: str) -> Sequence[str]:
        return ["127.0.0.1"]

    async with a_sink() as sink, callback_runner(lookup=here, max_connections=1) as callback:
        for n in range(10):
            await callback.execute(a_call(f"http://host{n}.example:{sink.port}/"))
        await until(lambda: sink.open_now <= 3)
        assert sink.connections == 10
        await callback.execute(a_call(f"http://host1.example:{sink.port}/"))
        assert sink.connections == 10, "the first hosts keep their connections"


async def test_attempts_leak_no_file_descriptor() -> None:
    def open_descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    async with (
        a_sink(OK, answer("500 Oops")) as sink,
        callback_runner(OPEN, max_connections=10) as callback,
    ):
        await callback.execute(a_call(sink.url))
        before = open_descriptors()
        for _ in range(10):
            await asyncio.gather(*(callback.execute(a_call(sink.url)) for _ in range(20)))
        await until(lambda: sink.open_now <= 10)
        assert open_descriptors() <= before + 2 * 10
