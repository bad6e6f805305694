"""HTTP connections: DNS, egress checks on the dialled address, pool, one exchange per call.

A response is read up to a limit and kept as plain text, with secrets masked.
"""

from __future__ import annotations

import asyncio
import codecs
import ctypes
import re
import select
import socket
import ssl
import sys
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from typing import NamedTuple, cast
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.base_protocol import BaseProtocol
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest, ConnectionKey
from aiohttp.connector import Connection
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpResponseParser, RawResponseMessage
from aiohttp.streams import StreamReader
from aiohttp.tracing import Trace
from yarl import URL

from chimes.egress import Denial, Egress, EgressRules, literal_address
from chimes.i18n import _
from chimes.redaction import HIDDEN, is_secret_name
from chimes.targets.http.request import Request

# Name resolution in own threads: asyncio's default executor has few, and names that never answer
# would block all of them.

MAX_LOOKUPS = 128

#: Blocking: all addresses of a name, or OSError. Replaceable in tests.
Lookup = Callable[[str], Sequence[str]]


class EgressDenied(Exception):
    def __init__(self, denial: Denial) -> None:
        super().__init__(denial.text)


def system_lookup(host: str) -> Sequence[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return list(dict.fromkeys(str(address[0]) for *_unused, address in found))


class CheckedResolver(AbstractResolver):
    """Returns addresses only if all of them pass the egress rules."""

    def __init__(self, rules: Egress, lookup: Lookup) -> None:
        self._rules = rules
        self._lookup = lookup
        self._places = asyncio.Semaphore(MAX_LOOKUPS)
        self._flights: dict[str, asyncio.Future[Sequence[str] | OSError]] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        results: list[ResolveResult] = []
        for text in await self._addresses(host):
            address = literal_address(text)
            if address is None:
                raise OSError(_("{host} resolved to something that is not an address", host=host))
            denial = self._rules.check_address(address, port, host=host)
            if denial is not None:
                raise EgressDenied(denial)
            results.append(
                ResolveResult(
                    hostname=host,
                    host=text,
                    port=port,
                    family=socket.AF_INET if address.version == 4 else socket.AF_INET6,
                    proto=socket.IPPROTO_TCP,
                    flags=socket.AI_NUMERICHOST,
                )
            )
        if not results:
            raise OSError(_("{host} has no address", host=host))
        return results

    async def close(self) -> None:
        """Threads that still wait are daemons and do not block the exit."""

    async def _addresses(self, host: str) -> Sequence[str]:
        """One lookup per name at a time, so that a dead name blocks one thread only."""
        while (flight := self._flights.get(host)) is None:
            await self._places.acquire()
            if host in self._flights:
                self._places.release()
            else:
                self._flights[host] = self._start(host)
        found = await asyncio.shield(flight)
        if isinstance(found, OSError):
            raise found
        return found

    def _start(self, host: str) -> asyncio.Future[Sequence[str] | OSError]:
        loop = asyncio.get_running_loop()
        flight: asyncio.Future[Sequence[str] | OSError] = loop.create_future()

        def land(found: Sequence[str] | OSError) -> None:
            # Released here because the thread outlives an attempt that timed out.
            self._places.release()
            del self._flights[host]
            flight.set_result(found)

        def look_up() -> None:
            found: Sequence[str] | OSError
            try:
                found = self._lookup(host)
            except OSError as error:
                found = error
            except UnicodeError:
                found = OSError(_("{host} is not a name that can be looked up", host=host))
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(land, found)

        threading.Thread(target=look_up, name=f"dns-{host}", daemon=True).start()
        return flight


IDLE_SECONDS = 90
MAX_IDLE = 100


class _Used(NamedTuple):
    """State of a reused connection."""

    #: Whether data or an end of stream is waiting although no request was sent.
    has_news: Callable[[], bool]
    #: The egress rules that accepted its peer.
    rules: EgressRules


class GuardedConnector(aiohttp.TCPConnector):
    """Checks the host before dialling or reusing a connection (aiohttp does not resolve literal
    addresses), and the peer of every connection before anything is sent."""

    def __init__(
        self,
        *,
        rules: Egress,
        limit: int,
        lookup: Lookup = system_lookup,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(
            resolver=CheckedResolver(rules, lookup),
            # A cached answer would outlive its check.
            use_dns_cache=False,
            limit=limit,
            keepalive_timeout=IDLE_SECONDS,
            ssl=True if tls is None else tls,
        )
        self._factory = cast("partial[ResponseHandler]", partial(_Protocol, loop=self._loop))
        self._rules = rules
        self._max_idle = max(MAX_IDLE, limit)
        self._used: WeakKeyDictionary[ResponseHandler, _Used] = WeakKeyDictionary()

    async def connect(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - the name is aiohttp's
    ) -> Connection:
        host, port = req.url.raw_host, req.url.port
        assert host is not None
        assert port is not None
        rules = self._rules.now()
        denial = rules.check_host(host, port)
        if denial is not None:
            raise EgressDenied(denial)
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol = connection.protocol
            assert protocol is not None
            used = self._used.get(protocol)
            if used is None or not (protocol.should_close or used.has_news()):
                break
            # The server closed it or sent data unasked, which the loop may not have read yet.
            # Nothing was sent, so another connection may be used.
            connection.close()
        # Also for pooled connections: the rules change, for example with the first API key,
        # and while a connection is dialled.
        rules = self._rules.now()
        if used is None or used.rules is not rules:
            denial = _judge_peer(rules, protocol, host, port)
            if denial is not None:
                connection.close()
                raise EgressDenied(denial)
            self._used[protocol] = _Used(_news_of(protocol), rules)
        return connection

    def _release(
        self, key: ConnectionKey, protocol: ResponseHandler, *, should_close: bool = False
    ) -> None:
        """Limits idle connections, which aiohttp does not: ten thousand hosts would keep ten
        thousand sockets."""
        if not should_close and sum(map(len, self._conns.values())) >= self._max_idle:
            should_close = True
        super()._release(key, protocol, should_close=should_close)


def _judge_peer(
    rules: EgressRules, protocol: ResponseHandler, host: str, port: int
) -> Denial | None:
    transport = protocol.transport
    peer = transport.get_extra_info("peername") if transport else None
    if transport is None or not peer:
        # Already closed; sending reports it.
        return None
    address = literal_address(peer[0])
    if address is None:
        return Denial(text=_("{host} was connected to something that is not an address", host=host))
    own_end = transport.get_extra_info("sockname")
    same_machine = bool(own_end) and own_end[0] == peer[0]
    return rules.check_address(address, port, host=host, same_machine=same_machine)


def _news_of(protocol: ResponseHandler) -> Callable[[], bool]:
    transport = protocol.transport
    found = transport.get_extra_info("socket") if transport else None
    number = -1 if found is None else found.fileno()
    if number < 0:
        return lambda: True
    if sys.platform == "win32":
        return lambda: bool(select.select([number], [], [], 0)[0])
    entry = _PollEntry(number, select.POLLIN, 0)
    return lambda: bool(_poll(entry, 1, 0))


class _PollEntry(ctypes.Structure):
    """`struct pollfd`."""

    _fields_ = (
        ("fd", ctypes.c_int),
        ("events", ctypes.c_short),
        ("revents", ctypes.c_short),
    )


if sys.platform != "win32":
    # `select.poll` gives up the interpreter's lock, and the event loop would then wait for it up to
    # 5 ms before every call while another thread computes. This poll returns at once.
    _poll = ctypes.PyDLL(None).poll
    _poll.argtypes = (ctypes.POINTER(_PollEntry), ctypes.c_ulong, ctypes.c_int)


# One request on a pooled connection. Uses aiohttp's pool, TLS and parser without its session,
# which follows redirects, keeps cookies, reads the environment and repeats idempotent requests
# when a kept connection breaks.

# About a megabyte of headers in total.
MAX_RESPONSE_LINE = 8190
MAX_RESPONSE_HEADERS = 128
MAX_PLACES = 1024
#: Head and body of a response that arrived in one piece.
Whole = tuple["ResponseHead", bytes]
#: Bytes of a body that are read at most, and kept by default.
READ_LIMIT = 1024 * 1024
KEEP_LIMIT = 64 * 1024

# The caller's deadline covers everything; per-read timeouts would not stop a slow drip.
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=None)


class LostConnection(aiohttp.ClientError):
    """The connection ended after the request may have been processed: the effect is unknown."""


class BadAnswer(aiohttp.ClientError):
    """The response is not valid HTTP."""


class Exchange:
    def __init__(self, connector: GuardedConnector) -> None:
        self._connector = connector
        loop = asyncio.get_running_loop()

        @lru_cache(maxsize=MAX_PLACES)
        def place(origin: URL, verify_tls: bool) -> aiohttp.ClientRequest:
            return aiohttp.ClientRequest("GET", origin, loop=loop, ssl=verify_tls)

        #: What the pool needs of a request: destination and TLS.
        self._place = place

    async def close(self) -> None:
        await self._connector.close()

    async def send(self, request: Request, *, keep: int = KEEP_LIMIT) -> Reply:
        """Sends exactly once. `keep`: bytes of the response body to keep."""
        place = self._place(request.url.origin(), request.verify_tls)
        connection = await self._connector.connect(place, [], _NO_TIMEOUT)
        protocol = connection.protocol
        assert isinstance(protocol, _Protocol)
        reusable = False
        try:
            whole = await protocol.send(request)
            if whole is not None:
                head, body = whole
                reply = head.reply(*_as_text(body, keep))
                reusable = _all_written(protocol)
            else:
                message, content = await _answer(protocol)
                reply = await read_reply(message, content, keep)
                reusable = content.is_eof() and _all_written(protocol)
        except HttpProcessingError as error:
            raise BadAnswer from error
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            raise LostConnection from error
        finally:
            if reusable:
                connection.release()
            else:
                connection.close()
        return reply


class _Protocol(ResponseHandler):
    """Passes on a response that arrives in one piece, as most do, without aiohttp's parser and
    streams, which take longer than the rest of a call."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        #: While nothing of the response has arrived.
        self._response: asyncio.Future[Whole | None] | None = None

    async def send(self, request: Request) -> Whole | None:
        """Returns None if aiohttp's parser has to read the response."""
        transport = self.transport
        if transport is None or transport.is_closing():
            raise LostConnection
        if request.method == "HEAD":
            self._start_parser(with_body=False)
            transport.write(request.head + request.body)
            return None
        self._response = self._loop.create_future()
        transport.write(request.head + request.body)
        return await self._response

    def data_received(self, data: bytes) -> None:
        waiter = self._response
        if waiter is None:
            super().data_received(data)
            return
        self._response = None
        if waiter.done():
            return
        whole = _whole(data)
        if whole is None:
            self._start_parser(with_body=True)
            super().data_received(data)
        waiter.set_result(whole)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        waiter, self._response = self._response, None
        if waiter is not None and not waiter.done():
            # Reading then raises the error.
            waiter.set_result(None)

    def _start_parser(self, *, with_body: bool) -> None:
        self.set_response_params(
            skip_payload=not with_body,
            read_until_eof=True,
            auto_decompress=False,
            max_line_size=MAX_RESPONSE_LINE,
            max_field_size=MAX_RESPONSE_LINE,
            max_headers=MAX_RESPONSE_HEADERS,
        )


_MAX_WHOLE_HEAD = 4096
_WITHOUT_BODY = frozenset({*range(100, 200), 204, 304})


def _whole(data: bytes) -> Whole | None:
    """Returns the response if it is complete and its body needs no decoding."""
    end = data.find(b"\r\n\r\n", 0, _MAX_WHOLE_HEAD) + 4
    if end < 4:
        return None
    parsed = _parse_head(data[:end])
    if parsed is None or len(data) - end != parsed[1]:
        return None
    return parsed[0], data[end:]


# A receiver sends the same headers again and again, at least within one second.
@lru_cache(maxsize=256)
def _parse_head(data: bytes) -> tuple[ResponseHead, int] | None:
    """Returns the head and the length of the body. None: the length is not enough to read the
    body, or the head is not valid, which reading it again reports."""
    loop = asyncio.get_running_loop()
    parser = HttpResponseParser(
        BaseProtocol(loop),
        loop,
        READ_LIMIT,
        auto_decompress=False,
        max_line_size=MAX_RESPONSE_LINE,
        max_field_size=MAX_RESPONSE_LINE,
        max_headers=MAX_RESPONSE_HEADERS,
    )
    try:
        messages, upgraded, _tail = parser.feed_data(data)
    except HttpProcessingError:
        return None
    if len(messages) != 1:
        return None
    message = messages[0][0]
    length = message.headers.get("Content-Length", "")
    if (
        upgraded
        or message.should_close
        or message.chunked
        or message.code in _WITHOUT_BODY
        or "Content-Encoding" in message.headers
        or not re.fullmatch(r"[0-9]{1,6}", length)
    ):
        return None
    return head_of(message), int(length)


async def _answer(protocol: ResponseHandler) -> tuple[RawResponseMessage, StreamReader]:
    while True:
        message, content = await protocol.read()
        if message.code == 101 or not 100 <= message.code <= 199:
            return message, content


def _all_written(protocol: ResponseHandler) -> bool:
    """A response may arrive before the whole body was sent; the rest would be read as the next
    request, so the connection is closed."""
    transport = protocol.transport
    return transport is not None and transport.get_write_buffer_size() == 0


# --- responses ------------------------------------------------------------------------------------
MAX_KEPT_HEADERS = 64
MAX_KEPT_HEADER_LENGTH = 1024
_PIECE = 64 * 1024
_LONGEST_WAIT = timedelta(days=365)


class Reply(NamedTuple):
    status: int
    #: Like `location` and `retry_after`, set for unsuccessful responses only.
    phrase: str
    headers: Mapping[str, str]
    body: str
    truncated: bool
    location: str | None
    retry_after: str | None


class ResponseHead(NamedTuple):
    """What is kept of the status line and the headers."""

    status: int
    phrase: str
    headers: Mapping[str, str]
    location: str | None
    retry_after: str | None

    def reply(self, body: str, truncated: bool) -> Reply:
        status, phrase, headers, location, retry_after = self
        return Reply(status, phrase, dict(headers), body, truncated, location, retry_after)


def head_of(message: RawResponseMessage) -> ResponseHead:
    headers, successful = message.headers, message.code < 300
    return ResponseHead(
        status=message.code,
        phrase="" if successful else _clean(message.reason or "")[:100],
        headers=_kept_headers(headers.items()),
        location=None if successful else _header(headers, "Location"),
        retry_after=None if successful else _header(headers, "Retry-After"),
    )


async def read_reply(
    message: RawResponseMessage, content: StreamReader, keep: int = KEEP_LIMIT
) -> Reply:
    """`keep`: bytes of the body to keep, at most READ_LIMIT."""
    encoding = message.headers.get("Content-Encoding", "")
    body, truncated = await _read_body(content, encoding, keep)
    return head_of(message).reply(body, truncated)


async def read_at_most(response: aiohttp.ClientResponse, most: int) -> bytes:
    """The first `most` bytes of the body. One read returns only what has arrived so far."""
    found = bytearray()
    while len(found) < most and (piece := await response.content.read(most - len(found))):
        found += piece
    return bytes(found)


def wait_asked(value: str | None, now: datetime) -> timedelta | None:
    """Retry-After in seconds or as a date by the store's clock; other values are ignored."""
    if value is None:
        return None
    value = value.strip()
    if re.fullmatch(r"[0-9]{1,18}", value):
        return timedelta(seconds=min(int(value), _LONGEST_WAIT.total_seconds()))
    try:
        at = parsedate_to_datetime(value)
        wait = (at if at.tzinfo else at.replace(tzinfo=UTC)) - now
    except (ValueError, OverflowError):
        return None
    return wait if timedelta(0) < wait <= _LONGEST_WAIT else None


async def _read_body(content: StreamReader, encoding: str, keep: int) -> tuple[str, bool]:
    """Reads past the kept bytes so that the connection can be reused, up to READ_LIMIT."""
    decoder = _Decoder(encoding)
    kept = bytearray()
    received = decoded = 0
    while not content.at_eof() and (chunk := await content.readany()):
        received += len(chunk)
        for piece in decoder.pieces(chunk):
            decoded += len(piece)
            kept += piece[: keep - len(kept)]
            if decoded > READ_LIMIT:
                break
        if received > READ_LIMIT or decoded > READ_LIMIT:
            break
    text, cut = _as_text(kept, keep)
    return text, cut or decoder.broken or decoded > len(kept)


def _as_text(body: bytes | bytearray, keep: int) -> tuple[str, bool]:
    """The text of at most `keep` bytes, and whether it was truncated."""
    kept = body[:keep]
    if len(body) < keep and kept.isascii() and 0 not in kept:
        return kept.decode("ascii"), False
    text = _clean(codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(kept)))
    # A replacement character takes three bytes.
    short = text.encode()[:keep].decode(errors="ignore")
    return short, len(short) < len(text) or len(kept) < len(body)


class _Decoder:
    """Decodes gzip and deflate in bounded pieces, so that a decompression bomb stays harmless."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding.strip().lower()
        self._inflate: zlib._Decompress | None = None
        self.broken = False

    def pieces(self, chunk: bytes) -> Iterable[bytes]:
        compressed = self._encoding in ("gzip", "x-gzip", "deflate")
        return self._inflated(chunk) if compressed else (chunk,)

    def _inflated(self, chunk: bytes) -> Iterator[bytes]:
        if self._inflate is None:
            self._inflate = zlib.decompressobj(self._window(chunk))
        while chunk and not self.broken and not self._inflate.eof:
            try:
                piece = self._inflate.decompress(chunk, _PIECE)
            except zlib.error:
                self.broken = True
                return
            chunk = self._inflate.unconsumed_tail
            yield piece

    def _window(self, chunk: bytes) -> int:
        if self._encoding != "deflate":
            return 16 + zlib.MAX_WBITS
        # Some servers send raw deflate; the low bits of a zlib header are always 8.
        return zlib.MAX_WBITS if chunk[0] & 0x0F == 8 else -zlib.MAX_WBITS


def _kept_headers(items: Iterable[tuple[str, str]]) -> dict[str, str]:
    kept: dict[str, str] = {}
    for name, value in items:
        if name not in kept and len(kept) >= MAX_KEPT_HEADERS:
            break
        shown = HIDDEN if is_secret_name(name) else _clean(value)
        kept[name] = f"{kept[name]}, {shown}" if name in kept else shown
        kept[name] = kept[name][:MAX_KEPT_HEADER_LENGTH]
    return kept


def _header(headers: Mapping[str, str], name: str) -> str | None:
    value = headers.get(name)
    return None if value is None else _clean(value)[:MAX_KEPT_HEADER_LENGTH]


def _clean(text: str) -> str:
    """Text that every store accepts: no NUL, no lone surrogates (from bad bytes)."""
    if not text.isascii():
        text = text.encode(errors="surrogateescape").decode(errors="replace")
    return text.replace("\x00", "\ufffd")
