"""ASGI middleware: request limits, response headers, request log, and the header timeout."""

from __future__ import annotations

import asyncio
import logging
import re
import resource
from collections.abc import Iterable, Mapping, Sequence
from email.utils import format_datetime
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import cast
from urllib.parse import urlsplit

import h11
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from chimes.clock import Clock
from chimes.errors import ChimesError, StoreError
from chimes.i18n import _
from chimes.model.ids import uuid7
from chimes.telemetry import is_traceparent, request_span
from chimes.web.problems import error_response
from chimes.web.requests import RequestRejected, WebContext

PING = "/ping/"
BADGE = "/badge/"
HOOKS = "/hooks/"
FEEDS = "/feeds/"
BODY_LIMIT = 256 * 1024
#: Of paths that take many objects at once.
BODY_LIMITS = {
    "/api/v1/apply": 1024 * 1024,
    "/api/v1/plan": 1024 * 1024,
    "/api/v1/preview": 1024 * 1024,
    "/api/v1/monitors/import": 1024 * 1024,
}
#: Of inbound webhooks.
HOOK_BODY_LIMIT = 1024 * 1024
#: Bytes of the body of a ping; longer ones are refused.
PING_BODY_LIMIT = 100 * 1024
HEADER_LIMIT = 8 * 1024
BODY_SECONDS = 15.0
_STORE_SECONDS = 2.0
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
_Address = IPv4Address | IPv6Address
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def is_token_path(path: str) -> bool:
    """Whether the path itself is the credential."""
    return path.startswith((PING, BADGE, FEEDS))


def without_token(path: str) -> str:
    """The path for logs, also of a webhook, whose address is a credential too."""
    for prefix in (PING, BADGE, HOOKS, FEEDS):
        if path.startswith(prefix):
            _token, slash, rest = path.removeprefix(prefix).partition("/")
            return f"{prefix}***{slash}{rest}"
    return path


class RequestLimits:
    """Finds the client behind a trusted proxy, checks Host, Origin, size and duration of a request,
    and reads the whole body."""

    def __init__(self, app: ASGIApp, context: WebContext) -> None:
        self._app = app
        self._context = context
        self._allowed = frozenset(name.lower() for name in context.settings.allowed_hosts)
        self._origins = frozenset(
            origin.rstrip("/").lower() for origin in context.settings.cors_origins
        )
        self._proxies = TrustedProxies(context.settings.trusted_proxies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            headers = Headers(scope=scope)
            if sum(len(name) + len(value) for name, value in headers.raw) > HEADER_LIMIT:
                raise _headers_too_large(HEADER_LIMIT)
            scope = self._proxies.resolve(scope, headers)
            host = self._host(headers)
            # The token in the path is the credential: a page of another origin, or a name that
            # points here, can do no more with it than any other client.
            by_token = is_token_path(scope["path"])
            if not by_token and (self._allowed or await self._open_mode()):
                self._check_host(host, scope)
            if not by_token and scope["method"] not in _SAFE_METHODS:
                self._check_origin(headers.getlist("origin"), host)
            limit = BODY_LIMITS.get(scope["path"], BODY_LIMIT)
            if scope["path"].startswith(HOOKS):
                limit = HOOK_BODY_LIMIT
            elif by_token:
                limit = PING_BODY_LIMIT
            body = await _read_body(headers, receive, limit, needs_length=not by_token)
        except ChimesError as error:
            sender = await error_response(Request(scope), error)
            await sender(scope, receive, send)
            return
        await self._app(scope, _replay(body, receive), send)

    async def _open_mode(self) -> bool:
        """Assumes open mode if the store does not answer: /health must still work."""
        try:
            async with asyncio.timeout(_STORE_SECONDS):
                return not await self._context.access.auth_enabled()
        except (StoreError, TimeoutError):
            return True

    @staticmethod
    def _host(headers: Headers) -> str:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not hosts[0].strip():
            raise _missing_host()
        return hosts[0].strip().lower()

    def _check_host(self, host: str, scope: Scope) -> None:
        name, port = _split_port(host)
        server = scope.get("server")
        ports = {self._context.port, server[1] if server else None}
        if name in LOOPBACK_NAMES and port is not None and port in ports:
            return
        if host in self._allowed or name in self._allowed:
            return
        raise _host_not_allowed(host)

    def _check_origin(self, origins: Iterable[str], host: str) -> None:
        """Browsers send the origin of the page; other clients send no Origin."""
        for origin in origins:
            given = origin.strip().lower()
            if given in self._origins:
                continue
            if _authority(given) != host:
                raise _foreign_origin()


# --- the client behind a proxy -----------------------------------------------------------------
#: A parameter of an element of Forwarded (RFC 7239).
_FORWARDED_PAIR = re.compile(r'\s*([\w!#$%&\'*+.^`|~-]+)=("(?:[^"\\]|\\.)*"|[^\s;,"]*)\s*(;|,|$)')
_SCHEMES = frozenset({"http", "https"})


#: Key of the scope of a request that a trusted proxy has sent.
TRUSTED_PROXY = "chimes.trusted_proxy"


class TrustedProxies:
    """The proxies whose headers are believed. Every proxy appends the address that connected to it,
    so the client is the right-most address that is not a trusted proxy; what stands on its left was
    sent by the client."""

    def __init__(self, trusted: Iterable[str]) -> None:
        self._networks = tuple(ip_network(each) for each in trusted)

    def resolve(self, scope: Scope, headers: Headers) -> Scope:
        """The scope with address and scheme of the client. Raises RequestRejected."""
        peer = _address(scope["client"][0]) if scope.get("client") else None
        if peer is None or not self._is_trusted(peer):
            return scope
        hops = _elements(headers, "x-forwarded-for")
        protocols = _elements(headers, "x-forwarded-proto")
        forwarded = _forwarded_elements(headers)
        client, depth = self._client(peer, hops)
        if forwarded:
            found, place = self._client(peer, [each.get("for", "") for each in forwarded])
            if hops and found != client:
                # The proxy sets one header and passes on the other one as the client sent it.
                raise _ambiguous_proxy_headers()
            client = found
            scheme = forwarded[-max(1, place)].get("proto", "")
        else:
            scheme = ""
        if not scheme and protocols:
            scheme = protocols[-max(1, depth) if len(protocols) == len(hops) else -1]
        scheme = scheme.lower() if scheme.lower() in _SCHEMES else scope["scheme"]
        return {**scope, "client": (str(client), 0), "scheme": scheme, TRUSTED_PROXY: True}

    def _client(self, peer: _Address, hops: Sequence[str]) -> tuple[_Address, int]:
        """The client, and how many elements from the right it stands."""
        client, depth = peer, 0
        for hop in reversed(hops):
            address = _address(hop)
            if address is None or not self._is_trusted(client):
                break
            client, depth = address, depth + 1
        return client, depth

    def _is_trusted(self, address: _Address) -> bool:
        return any(address in network for network in self._networks)


def _address(text: str) -> _Address | None:
    """An address, with or without a port."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ip_address(text)
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found


def _elements(headers: Headers, name: str) -> list[str]:
    return [each.strip() for each in ",".join(headers.getlist(name)).split(",") if each.strip()]


def _forwarded_elements(headers: Headers) -> list[dict[str, str]]:
    """The elements of Forwarded. Raises RequestRejected for a syntax error: what follows it is what
    later proxies added."""
    found: list[dict[str, str]] = [{}]
    text, start = ",".join(headers.getlist("forwarded")), 0
    while start < len(text):
        pair = _FORWARDED_PAIR.match(text, start)
        if pair is None:
            raise _invalid_forwarded()
        found[-1][pair[1].lower()] = pair[2].strip('"')
        if pair[3] == ",":
            found.append({})
        start = pair.end()
    return found if found != [{}] else []


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


async def _read_body(
    headers: Headers, receive: Receive, limit: int, *, needs_length: bool = True
) -> bytes:
    """Reads the body and counts it: Content-Length may be missing or wrong."""
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise _compressed_body()
    declared = _content_length(headers)
    if declared is not None and declared > limit:
        raise _body_too_large(limit)
    parts: list[bytes] = []
    total = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            more = True
            while more:
                message = await receive()
                part: bytes = message.get("body", b"")
                total += len(part)
                if total > limit:
                    raise _body_too_large(limit)
                parts.append(part)
                more = message["type"] == "http.request" and message.get("more_body", False)
    except TimeoutError:
        raise _request_timeout() from None
    if declared is None and total and needs_length:
        raise _missing_length()
    if declared is not None and declared != total:
        raise _wrong_length()
    return b"".join(parts)


def _content_length(headers: Headers) -> int | None:
    lengths = set(headers.getlist("content-length"))
    if not lengths:
        return None
    length = lengths.pop()
    if lengths or not (length.isascii() and length.isdigit() and len(length) < 20):
        raise _wrong_length()
    return int(length)


def _replay(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def receive_body() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_body


#: The rest of the body is not read, so the connection cannot be used again.
_CLOSE = {"Connection": "close"}


def _body_too_large(limit: int) -> RequestRejected:
    return RequestRejected(
        413,
        "body_too_large",
        _("a request body has at most {limit} KiB", limit=limit // 1024),
        headers=_CLOSE,
    )


def _headers_too_large(limit: int) -> RequestRejected:
    return RequestRejected(
        431,
        "headers_too_large",
        _("the headers of a request have at most {limit} KiB", limit=limit // 1024),
        headers=_CLOSE,
    )


def _compressed_body() -> RequestRejected:
    return RequestRejected(
        415, "encoded_body", _("a request body cannot be compressed"), headers=_CLOSE
    )


def _wrong_length() -> RequestRejected:
    return RequestRejected(400, "wrong_length", _("the body is not as long as Content-Length says"))


def _missing_length() -> RequestRejected:
    return RequestRejected(400, "no_length", _("a request with a body needs a Content-Length"))


def _missing_host() -> RequestRejected:
    return RequestRejected(400, "no_host", _("the request has no Host header, or more than one"))


def _host_not_allowed(host: str) -> RequestRejected:
    return RequestRejected(
        421,
        "host_not_allowed",
        _(
            "{host!r} is not a name of this server; add it to allowed_hosts if it should be",
            host=host[:100],
        ),
    )


def _ambiguous_proxy_headers() -> RequestRejected:
    return RequestRejected(
        400,
        "ambiguous_proxy_headers",
        _(
            "Forwarded and X-Forwarded-For name different clients; the proxy must set one of them "
            "and remove the other one"
        ),
    )


def _invalid_forwarded() -> RequestRejected:
    return RequestRejected(
        400, "invalid_forwarded", _("the Forwarded header of the request is not valid")
    )


def _foreign_origin() -> RequestRejected:
    return RequestRejected(
        403, "foreign_origin", _("a page of another origin may not change anything here")
    )


def _request_timeout() -> RequestRejected:
    return RequestRejected(
        408,
        "request_timeout",
        _("the request did not arrive in time"),
        headers=_CLOSE,
    )


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
_log = logging.getLogger("chimes.http")


class ResponseHeaders:
    """The outermost middleware: date, request id, security headers, time limit and request log."""

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
            # Streaming handlers must end the response of a HEAD request themselves.
            state["head"] = True
        # Applies until the response starts: a stream may then stay open.
        limit = asyncio.timeout(REQUEST_SECONDS)
        sender = _ResponseSender(scope, send, self._clock, limit, without_body=method == "HEAD")
        given = Headers(scope=scope).get("traceparent", "")
        trace = given if is_traceparent(given) else ""
        with request_span(method, without_token(scope["path"])[:500], trace) as set_status:
            try:
                async with limit:
                    await self._app(scope, receive, sender.send)
            except Exception as error:
                sender.limit = None
                late = _response_timeout() if limit.expired() else error
                await self._send_error(late, scope, receive, sender)
            finally:
                seconds = self._clock.monotonic() - began
                self._log(scope, method, sender.status, seconds, trace)
                set_status(sender.status)

    async def _send_error(
        self, error: Exception, scope: Scope, receive: Receive, sender: _ResponseSender
    ) -> None:
        request_id = scope["state"]["request_id"]
        _log.error("request failed", exc_info=error, extra={"request_id": request_id})
        if sender.status:
            raise error
        response = await error_response(Request(scope), error)
        await response(scope, receive, sender.send)

    def _request_id(self, headers: Headers) -> str:
        given = headers.get("x-request-id", "")
        return given if _REQUEST_ID.fullmatch(given) else uuid7(self._clock.now())

    def _log(self, scope: Scope, method: str, status: int, seconds: float, trace: str) -> None:
        state = scope["state"]
        actor = state.get("actor")
        fields: dict[str, object] = {
            "method": method,
            # Without the query: some APIs accept keys there.
            "path": without_token(scope["path"])[:500],
            "status": status,
            "duration_ms": round(seconds * 1000, 3),
            "request_id": state["request_id"],
            "actor": actor.name if actor is not None else "",
        }
        if trace:
            fields["traceparent"] = trace
        _log.info("request", extra=fields)


def _response_timeout() -> RequestRejected:
    return RequestRejected(
        503,
        "answer_timeout",
        _("no response within the time limit; the request may or may not have taken effect"),
        headers={"Retry-After": "5"},
    )


class _ResponseSender:
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
        #: Lifted when the response starts.
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


HEADER_SECONDS = 10.0
#: Open connections of a server, if the process may have enough files open.
MAX_CONNECTIONS = 2000


@cache
def connection_limit() -> int:
    """Half of the files that the process may open, because the store, callbacks and child processes
    need some, too."""
    files, _most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if files == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, files // 2)


class HeaderTimeoutProtocol(H11Protocol):
    """Closes connections whose request headers do not arrive in time; uvicorn waits for ever.
    uvicorn's keep-alive limit applies between requests, `RequestLimits` to a slow body.

    Above `connection_limit` the connection that has been idle for the longest time is closed; if
    none is idle, the new one."""

    _deadline: asyncio.TimerHandle | None = None
    _idle_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        self._idle_since = self.loop.time()
        self._start_deadline()
        if len(self.connections) > connection_limit():
            self._close_longest_idle()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._start_deadline()
        else:
            self._cancel_deadline()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._idle_since = self.loop.time()
        # The start of the next request may have arrived during this response.
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._start_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        super().connection_lost(exc)

    def _start_deadline(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self._close)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close(self) -> None:
        self._deadline = None
        if self._is_idle():
            self.transport.close()

    def _is_idle(self) -> bool:
        """Whether no request is in progress."""
        return self.conn.their_state is h11.IDLE and self.conn.our_state is h11.IDLE

    def _close_longest_idle(self) -> None:
        others = (
            each
            for each in self.connections
            if isinstance(each, HeaderTimeoutProtocol)
            and not each.transport.is_closing()
            and each._is_idle()
        )
        min(others, key=lambda each: each._idle_since, default=self).transport.close()
