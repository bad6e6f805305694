"""What is checked before routing: Host, Origin, and the size and time of a request (S12, S50).

A slow body ends here; slow headers end in `connections`, before there is a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chimes.doors import refusal
from chimes.doors.context import Doorway
from chimes.doors.problems import answer_to
from chimes.errors import ChimesError, StoreError

BODY_LIMIT = 256 * 1024
HEADER_LIMIT = 8 * 1024
BODY_SECONDS = 15.0
_STORE_SECONDS = 2.0
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class RequestLimits:
    """ASGI middleware: refuses, or hands the request on with its whole body read."""

    def __init__(self, app: ASGIApp, doorway: Doorway) -> None:
        self._app = app
        self._doorway = doorway
        self._allowed = frozenset(name.lower() for name in doorway.settings.allowed_hosts)
        self._origins = frozenset(
            origin.rstrip("/").lower() for origin in doorway.settings.cors_origins
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            headers = Headers(scope=scope)
            if sum(len(name) + len(value) for name, value in headers.raw) > HEADER_LIMIT:
                raise refusal.long_headers(HEADER_LIMIT)
            host = self._host(headers)
            if self._allowed or await self._open_mode():
                self._check_host(host, scope)
            if scope["method"] not in _SAFE:
                self._check_origin(headers.getlist("origin"), host)
            body = await _whole_body(headers, receive)
        except ChimesError as error:
            answer = await answer_to(Request(scope), error)
            await answer(scope, receive, send)
            return
        await self._app(scope, _replay(body, receive), send)

    async def _open_mode(self) -> bool:
        """With the store away, /health must still answer, so not knowing is no error here."""
        try:
            async with asyncio.timeout(_STORE_SECONDS):
                return not await self._doorway.access.keys_on()
        except (StoreError, TimeoutError):
            return True

    @staticmethod
    def _host(headers: Headers) -> str:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not hosts[0].strip():
            raise refusal.no_host()
        return hosts[0].strip().lower()

    def _check_host(self, host: str, scope: Scope) -> None:
        name, port = _split_port(host)
        server = scope.get("server")
        ours = {self._doorway.port, server[1] if server else None}
        if name in LOOPBACK_NAMES and port is not None and port in ours:
            return
        if host in self._allowed or name in self._allowed:
            return
        raise refusal.other_host(host)

    def _check_origin(self, origins: Iterable[str], host: str) -> None:
        """A browser names the page that asks; other clients send no Origin."""
        for origin in origins:
            given = origin.strip().lower()
            if given in self._origins:
                continue
            if _authority(given) != host:
                raise refusal.foreign_origin()


def _authority(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _split_port(host: str) -> tuple[str, int | None]:
    name, colon, port = host.rpartition(":")
    if not colon or name.endswith(":") or port.endswith("]"):
        return host, 80
    return name, int(port) if port.isascii() and port.isdigit() and len(port) < 6 else None


async def _whole_body(headers: Headers, receive: Receive) -> bytes:
    """Counted while it arrives: Content-Length may be missing or wrong."""
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise refusal.encoded_body()
    declared = _declared(headers)
    if declared is not None and declared > BODY_LIMIT:
        raise refusal.too_large(BODY_LIMIT)
    parts: list[bytes] = []
    total = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            more = True
            while more:
                message = await receive()
                part: bytes = message.get("body", b"")
                total += len(part)
                if total > BODY_LIMIT:
                    raise refusal.too_large(BODY_LIMIT)
                parts.append(part)
                more = message["type"] == "http.request" and message.get("more_body", False)
    except TimeoutError:
        raise refusal.too_slow() from None
    if declared is None and total:
        raise refusal.no_length()
    if declared is not None and declared != total:
        raise refusal.wrong_length()
    return b"".join(parts)


def _declared(headers: Headers) -> int | None:
    lengths = set(headers.getlist("content-length"))
    if not lengths:
        return None
    length = lengths.pop()
    if lengths or not (length.isascii() and length.isdigit() and len(length) < 20):
        raise refusal.wrong_length()
    return int(length)


def _replay(body: bytes, receive: Receive) -> Receive:
    told = False

    async def replayed() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
