"""HTTP connections: DNS, egress checks on the dialled address, pool, one request per call."""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest, ConnectionKey
from aiohttp.connector import Connection
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawResponseMessage
from aiohttp.streams import StreamReader
from aiohttp.tracing import Trace
from yarl import URL

from chimes.i18n import _
from chimes.model.egress import Denial, Egress, EgressRules, literal_address
from chimes.targets.http.request import Request
from chimes.targets.http.response import KEEP_LIMIT, Reply, read_reply

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
            if used is None or not (protocol.transport is None or used.has_news()):
                break
            # The server closed it or sent data unasked, and the loop has not read that yet.
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
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return lambda: bool(poll.poll(0))


# One request on a pooled connection. Uses aiohttp's pool, TLS and parser without its session,
# which follows redirects, keeps cookies, reads the environment and repeats idempotent requests
# when a kept connection breaks.

# About a megabyte of headers in total.
MAX_RESPONSE_LINE = 8190
MAX_RESPONSE_HEADERS = 128
MAX_PLACES = 1024

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
        assert protocol is not None
        reusable = False
        try:
            _write(protocol, request)
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


def _write(protocol: ResponseHandler, request: Request) -> None:
    protocol.set_response_params(
        skip_payload=request.method == "HEAD",
        read_until_eof=True,
        auto_decompress=False,
        max_line_size=MAX_RESPONSE_LINE,
        max_field_size=MAX_RESPONSE_LINE,
        max_headers=MAX_RESPONSE_HEADERS,
    )
    transport = protocol.transport
    if transport is None or transport.is_closing():
        raise LostConnection
    transport.write(request.head + request.body)


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
