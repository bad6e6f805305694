"""Callbacks over TLS: accepted certificates and error codes."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from chimes.model.run import AttemptEnd, Outcome
from tests.targets.certificates import Authority, create_authority, self_signed
from tests.targets.sinks import a_call, a_sink, callback_runner, serving

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return create_authority(tmp_path_factory.mktemp("certificates"))


def here(host: str) -> Sequence[str]:
    return ["127.0.0.1"]


async def attempt(
    authority: Authority, server: ssl.SSLContext, *, host: str = "hook.example", verify: bool = True
) -> tuple[Outcome, int]:
    async with (
        a_sink(tls=server) as sink,
        callback_runner(lookup=here, tls=authority.client()) as callback,
    ):
        outcome = await callback.execute(a_call(f"https://{host}:{sink.port}/x", verify_tls=verify))
        return outcome, len(sink.requests)


async def test_valid_certificate_is_accepted_and_the_connection_reused(
    authority: Authority,
) -> None:
    server = authority.server()
    names: list[str | None] = []
    server.sni_callback = lambda _socket, name, _context: names.append(name)
    async with (
        a_sink(tls=server) as sink,
        callback_runner(lookup=here, tls=authority.client()) as callback,
    ):
        for _ in range(2):
            outcome = await callback.execute(a_call(f"https://hook.example:{sink.port}/x"))
            assert outcome.end is AttemptEnd.SUCCEEDED
    assert names == ["hook.example"], "SNI keeps the name; one handshake for both calls"
    assert sink.last.headers["host"] == f"hook.example:{sink.port}"


async def test_expired_certificate_is_rejected(authority: Authority) -> None:
    outcome, requests = await attempt(authority, authority.server(expired=True))
    assert (outcome.end, outcome.code, outcome.retryable) == ("failed", "tls_expired", False)
    assert outcome.error == "the certificate was not accepted: expired"
    assert requests == 0


async def test_self_signed_certificate_is_rejected(authority: Authority, tmp_path: Path) -> None:
    server = self_signed(tmp_path / "own", "hook.example")
    outcome, requests = await attempt(authority, server)
    assert (outcome.code, outcome.retryable, requests) == ("tls_self_signed", False, 0)


async def test_certificate_of_unknown_issuer_is_rejected(
    authority: Authority, tmp_path: Path
) -> None:
    outcome, requests = await attempt(authority, create_authority(tmp_path).server())
    assert (outcome.code, outcome.retryable, requests) == ("tls_unknown_issuer", False, 0)


@pytest.mark.parametrize("host", ["other.example", "127.0.0.1"])
async def test_certificate_for_another_host_is_rejected(authority: Authority, host: str) -> None:
    outcome, requests = await attempt(authority, authority.server(), host=host)
    assert (outcome.code, outcome.retryable, requests) == ("tls_wrong_host", False, 0)


async def test_tls_1_0_is_rejected(authority: Authority) -> None:
    server = authority.server()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        server.minimum_version = ssl.TLSVersion.TLSv1
        server.maximum_version = ssl.TLSVersion.TLSv1_1
    server.set_ciphers("ALL:@SECLEVEL=0")

    def refuse(listener: socket.socket) -> None:
        # Blocking sockets: asyncio's server closes without sending the alert.
        peer, _ = listener.accept()
        with peer, suppress(OSError):
            server.wrap_socket(peer, server_side=True)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=refuse, args=(listener,))
        thread.start()
        async with callback_runner(tls=authority.client()) as callback:
            outcome = await callback.execute(
                a_call(f"https://127.0.0.1:{listener.getsockname()[1]}/")
            )
        thread.join(10)
    assert (outcome.end, outcome.code, outcome.retryable) == ("failed", "tls_version", False)


# A server restart looks like this, so it is retryable.
async def test_connection_closed_in_the_handshake_is_retryable(authority: Authority) -> None:
    async def close(reader: Reader, writer: Writer) -> None:
        await reader.read(1)

    async with serving(close) as port, callback_runner(tls=authority.client()) as callback:
        outcome = await callback.execute(a_call(f"https://127.0.0.1:{port}/"))
    assert (outcome.end, outcome.code, outcome.retryable) == ("failed", "tls_closed", True)


async def test_plain_http_on_a_tls_port_fails_the_handshake(authority: Authority) -> None:
    async def speak_plainly(reader: Reader, writer: Writer) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async with serving(speak_plainly) as port, callback_runner(tls=authority.client()) as callback:
        outcome = await callback.execute(a_call(f"https://127.0.0.1:{port}/"))
    assert (outcome.end, outcome.code) == ("failed", "tls_handshake")


async def test_verify_tls_false_accepts_any_certificate(
    authority: Authority, tmp_path: Path
) -> None:
    server = self_signed(tmp_path / "own", "somebody else")
    outcome, _ = await attempt(authority, server, verify=False)
    assert outcome.end is AttemptEnd.SUCCEEDED


async def test_an_unverified_connection_is_not_reused_for_a_verified_call(
    authority: Authority, tmp_path: Path
) -> None:
    server = self_signed(tmp_path / "own", "somebody else")
    async with (
        a_sink(tls=server) as sink,
        callback_runner(lookup=here, tls=authority.client()) as callback,
    ):
        url = f"https://hook.example:{sink.port}/"
        first = await callback.execute(a_call(url, verify_tls=False))
        second = await callback.execute(a_call(url))
    assert first.end is AttemptEnd.SUCCEEDED
    assert second.code == "tls_self_signed"
