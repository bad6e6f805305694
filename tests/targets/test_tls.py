"""Callbacks over TLS: what is accepted, and how a refusal is named."""

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
from tests.targets.certificates import Authority, an_authority, self_signed
from tests.targets.sinks import a_call, a_sink, calling, serving

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return an_authority(tmp_path_factory.mktemp("certificates"))


def here(host: str) -> Sequence[str]:
    return ["127.0.0.1"]


async def attempt(
    authority: Authority, server: ssl.SSLContext, *, host: str = "hook.example", verify: bool = True
) -> tuple[Outcome, int]:
    async with (
        a_sink(tls=server) as sink,
        calling(lookup=here, tls=authority.client()) as callback,
    ):
        outcome = await callback.execute(a_call(f"https://{host}:{sink.port}/x", verify_tls=verify))
        return outcome, len(sink.requests)


async def test_a_valid_certificate_is_accepted_and_the_connection_reused(
    authority: Authority,
) -> None:
    server = authority.server()
    names: list[str | None] = []
    server.sni_callback = lambda _socket, name, _context: names.append(name)
    async with (
        a_sink(tls=server) as sink,
        calling(lookup=here, tls=authority.client()) as callback,
    ):
        for _ in range(2):
            outcome = await callback.execute(a_call(f"https://hook.example:{sink.port}/x"))
            assert outcome.end is AttemptEnd.SUCCEEDED
    assert names == ["hook.example"], "SNI keeps the name; one handshake for both calls"
    assert sink.last.headers["host"] == f"hook.example:{sink.port}"


async def test_f61_expired(authority: Authority) -> None:
    outcome, requests = await attempt(authority, authority.server(expired=True))
    assert (outcome.end, outcome.code, outcome.retryable) == ("failed", "tls_expired", False)
    assert outcome.error == "the certificate was not accepted: expired"
    assert requests == 0


async def test_f61_self_signed(authority: Authority, tmp_path: Path) -> None:
    server = self_signed(tmp_path / "own", "hook.example")
    outcome, requests = await attempt(authority, server)
    assert (outcome.code, outcome.retryable, requests) == ("tls_self_signed", False, 0)


async def test_f61_unknown_issuer(authority: Authority, tmp_path: Path) -> None:
    outcome, requests = await attempt(authority, an_authority(tmp_path).server())
    assert (outcome.code, outcome.retryable, requests) == ("tls_unknown_issuer", False, 0)


@pytest.mark.parametrize("host", ["other.example", "127.0.0.1"])
async def test_f61_wrong_host(authority: Authority, host: str) -> None:
    outcome, requests = await attempt(authority, authority.server(), host=host)
    assert (outcome.code, outcome.retryable, requests) == ("tls_wrong_host", False, 0)


async def test_f61_tls_1_0(authority: Authority) -> None:
    server = authority.server()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        server.minimum_version = ssl.TLSVersion.TLSv1
        server.maximum_version = ssl.TLSVersion.TLSv1_1
    server.set_ciphers("ALL:@SECLEVEL=0")

    def refuse(listener: socket.socket) -> None:
        # Blocking sockets: asyncio's server hangs up without sending the alert.
        peer, _ = listener.accept()
        with peer, suppress(OSError):
            server.wrap_socket(peer, server_side=True)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=refuse, args=(listener,))
        thread.start()
        async with calling(tls=authority.client()) as callback:
            outcome = await callback.execute(
                a_call(f"https://127.0.0.1:{listener.getsockname()[1]}/")
            )
        thread.join(10)
    assert (outcome.end, outcome.code, outcome.retryable) == ("failed", "tls_version", False)


# A restart of the server looks like this, so it is worth another try
async def test_f61_closed_in_the_handshake(authority: Authority) -> None:
    async def close(reader: Reader, writer: Writer) -> None:
        await reader.read(1)

    async with serving(close) as port, calling(tls=authority.client()) as callback:
        outcome = await callback.execute(a_call(f"https://127.0.0.1:{port}/"))
    assert (outcome.end, outcome.code, outcome.retryable) == ("failed", "tls_closed", True)


async def test_f61_plain_http_on_the_port(authority: Authority) -> None:
    async def speak_plainly(reader: Reader, writer: Writer) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async with serving(speak_plainly) as port, calling(tls=authority.client()) as callback:
        outcome = await callback.execute(a_call(f"https://127.0.0.1:{port}/"))
    assert (outcome.end, outcome.code) == ("failed", "tls_handshake")


# Only where the audited switch of the target says so
async def test_f61_checks_can_be_switched_off_for_one_target(
    authority: Authority, tmp_path: Path
) -> None:
    server = self_signed(tmp_path / "own", "somebody else")
    outcome, _ = await attempt(authority, server, verify=False)
    assert outcome.end is AttemptEnd.SUCCEEDED


# The pool must not hand an unchecked connection to a target that checks.
async def test_an_unverified_connection_is_not_reused_for_a_verified_call(
    authority: Authority, tmp_path: Path
) -> None:
    server = self_signed(tmp_path / "own", "somebody else")
    async with (
        a_sink(tls=server) as sink,
        calling(lookup=here, tls=authority.client()) as callback,
    ):
        url = f"https://hook.example:{sink.port}/"
        first = await callback.execute(a_call(url, verify_tls=False))
        second = await callback.execute(a_call(url))
    assert first.end is AttemptEnd.SUCCEEDED
    assert second.code == "tls_self_signed"
