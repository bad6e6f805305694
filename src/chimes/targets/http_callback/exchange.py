"""One request and its answer, on a connection of the pool.

aiohttp's pool, TLS and parser, without its session: that follows redirects, keeps cookies, reads
the environment and sends idempotent requests again, unasked, when a kept connection breaks (F63).
None of it is wanted here, and switching it off costs as much as what is left.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawResponseMessage
from aiohttp.streams import StreamReader
from yarl import URL

from chimes.targets.http_callback.connector import GuardedConnector
from chimes.targets.http_callback.request import Request
from chimes.targets.http_callback.response import KEEP_LIMIT, Reply, read_reply

# Together about a megabyte of headers (F59).
MAX_RESPONSE_LINE = 8190
MAX_RESPONSE_HEADERS = 128
MAX_PLACES = 1024

# The one deadline is the caller's; per-read time-outs would not stop a drip (F57).
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=None)


class LostConnection(aiohttp.ClientError):
    """The connection ended after the request may have been read: the effect is unknown."""


class BadAnswer(aiohttp.ClientError):
    """What came back is not HTTP."""


class Exchange:
    def __init__(self, connector: GuardedConnector) -> None:
        self._connector = connector
        loop = asyncio.get_running_loop()

        @lru_cache(maxsize=MAX_PLACES)
        def place(origin: URL, verify_tls: bool) -> aiohttp.ClientRequest:
            return aiohttp.ClientRequest("GET", origin, loop=loop, ssl=verify_tls)

        #: All that the pool looks at in a request: where to, and how.
        self._place = place

    async def close(self) -> None:
        await self._connector.close()

    async def send(self, request: Request, *, keep: int = KEEP_LIMIT) -> Reply:
        """Sends once, whatever happens to the connection. `keep`: bytes of the answer's body."""
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
    """An answer may come before the whole body was taken; what is left would be read as the next
    request."""
    transport = protocol.transport
    return transport is not None and transport.get_write_buffer_size() == 0
