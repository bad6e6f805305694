"""What is checked before routing: Host, Origin, and the size and time of a request.

A slow body ends here; slow headers end in `connections`, before there is a request.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping
from email.utils import format_datetime
from typing import cast
from urllib.parse import urlsplit

import h11
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from chimes.clock import Clock
from chimes.errors import ChimesError, StoreError
from chimes.model.ids import uuid7
from chimes.web import requests as refusal
from chimes.web.context import WebContext
from chimes.web.problems import answer_to

BODY_LIMIT = 256 * 1024
HEADER_LIMIT = 8 * 1024
BODY_SECONDS = 15.0
_STORE_SECONDS = 2.0
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class RequestLimits:
    """ASGI middleware: refuses, or hands the request on with its whole body read."""

    def __init__(self, app: ASGIApp, context: WebContext) -> None:
        self._app = app
        self._context = context
        self._allowed = frozenset(name.lower() for name in context.settings.allowed_hosts)
        self._origins = frozenset(
            origin.rstrip("/").lower() for origin in context.settings.cors_origins
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
                return not await self._context.access.keys_on()
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
        ours = {self._context.port, server[1] if server else None}
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


# @@ What every answer has, errors included: a date, a request id, security headers, a line in the
# log.

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
REQUEST_SECONDS = 30.0
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_TRACE_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_log = logging.getLogger("chimes.http")


class Envelope:
    """The outermost ASGI middleware."""

    def __init__(self, app: ASGIApp, clock: Clock) -> None:
        self._app = app
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = self._clock.monotonic()
        state = scope.setdefault("state", {})
        state["request_id"] = self._request_id(Headers(scope=scope))
        method = scope["method"]
        if method == "HEAD":
            scope["method"] = "GET"
            # For those whose answer would not end by itself.
            state["head"] = True
        # Until the answer begins: a stream may then go on for as long as somebody listens.
        limit = asyncio.timeout(REQUEST_SECONDS)
        answer = _Answer(scope, send, self._clock, limit, without_body=method == "HEAD")
        try:
            async with limit:
                await self._app(scope, receive, answer.send)
        except Exception as error:
            answer.limit = None
            late = refusal.no_answer_in_time() if limit.expired() else error
            await self._failed(late, scope, receive, answer)
        finally:
            self._log(scope, method, answer.status, self._clock.monotonic() - began)

    async def _failed(
        self, error: Exception, scope: Scope, receive: Receive, answer: _Answer
    ) -> None:
        request_id = scope["state"]["request_id"]
        _log.error("request failed", exc_info=error, extra={"request_id": request_id})
        if answer.status:
            raise error
        told = await answer_to(Request(scope), error)
        await told(scope, receive, answer.send)

    def _request_id(self, headers: Headers) -> str:
        given = headers.get("x-request-id", "")
        return given if _REQUEST_ID.fullmatch(given) else uuid7(self._clock.now())

    def _log(self, scope: Scope, method: str, status: int, seconds: float) -> None:
        state = scope["state"]
        actor = state.get("actor")
        fields: dict[str, object] = {
            "method": method,
            # Without the query: some doors take keys there.
            "path": scope["path"][:500],
            "status": status,
            "duration_ms": round(seconds * 1000, 3),
            "request_id": state["request_id"],
            "actor": actor.name if actor is not None else "",
        }
        trace = Headers(scope=scope).get("traceparent", "")
        if _TRACE_PARENT.fullmatch(trace):
            fields["traceparent"] = trace
        _log.info("request", extra=fields)


class _Answer:
    def __init__(
        self,
        scope: Scope,
        send: Send,
        clock: Clock,
        limit: asyncio.Timeout,
        *,
        without_body: bool,
    ) -> None:
        self.status = 0
        self._scope = scope
        self._send = send
        self._clock = clock
        #: Given up as soon as the answer begins.
        self.limit: asyncio.Timeout | None = limit
        self._without_body = without_body

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self.limit is not None and not self.limit.expired():
                self.limit.reschedule(None)
            headers = MutableHeaders(scope=message)
            headers["Date"] = format_datetime(self._clock.now(), usegmt=True)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Cache-Control", "no-store")
            state = self._scope["state"]
            headers["X-Request-Id"] = state["request_id"]
            for name, value in state.get("answer_headers", {}).items():
                headers[name] = value
        elif message["type"] == "http.response.body" and self._without_body:
            message = {**message, "body": b""}
        await self._send(message)


# @@ Connections that are opened and then say nothing, or say it too slowly.

HEADER_SECONDS = 10.0


class PunctualProtocol(H11Protocol):
    """uvicorn waits for ever for the end of a request's headers; this one does not. Between two
    requests uvicorn's own keep-alive limit holds, and a slow body ends in `RequestLimits`."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._expect_headers()
        else:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # The beginning of the next request may have come while this one was answered.
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _expect_headers(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if self.conn.their_state is h11.IDLE and self.conn.our_state is h11.IDLE:
            self.transport.close()
