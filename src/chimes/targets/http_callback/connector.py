"""The pool of connections, with the last word on where bytes go."""

from __future__ import annotations

import select
import ssl
import sys
from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest, ConnectionKey
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from chimes.model.egress import Denial, Egress, EgressRules
from chimes.model.http_url import literal_address
from chimes.targets.http_callback.resolver import (
    CheckedResolver,
    EgressDenied,
    Lookup,
    system_lookup,
)
from chimes.wording import say

IDLE_SECONDS = 90  # R3.44
MAX_IDLE = 100


class _Used(NamedTuple):
    """What is known of a connection that was handed out before."""

    #: Whether it can be read from: an end of stream, or an answer to nothing.
    has_news: Callable[[], bool]
    #: The rules that let its peer pass.
    rules: EgressRules


class GuardedConnector(aiohttp.TCPConnector):
    """Judges the host before dialling or taking from the pool (aiohttp asks no resolver about
    literal addresses), and the peer of every connection before anything is sent on it."""

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
            # A cached answer would outlive the check that was made of it.
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
        denial = rules.judge_host(host, port)
        if denial is not None:
            raise EgressDenied(denial)
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol = connection.protocol
            assert protocol is not None
            used = self._used.get(protocol)
            if used is None or not (protocol.transport is None or used.has_news()):
                break
            # The server closed it, or spoke out of turn, and the loop has not read that yet.
            # Nothing was sent on it, so another one may be tried (F63).
            connection.close()
        # Also what comes from the pool: the rules change while it is kept, the first key does it;
        # and while a new one is dialled.
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
        """aiohttp has no limit for idle connections; ten thousand hosts called once would keep
        ten thousand sockets."""
        if not should_close and sum(map(len, self._conns.values())) >= self._max_idle:
            should_close = True
        super()._release(key, protocol, should_close=should_close)


def _judge_peer(
    rules: EgressRules, protocol: ResponseHandler, host: str, port: int
) -> Denial | None:
    transport = protocol.transport
    peer = transport.get_extra_info("peername") if transport else None
    if transport is None or not peer:
        # Gone again already; sending will say how.
        return None
    address = literal_address(peer[0])
    if address is None:
        return Denial(
            text=say("{host} was connected to something that is not an address", host=host)
        )
    own_end = transport.get_extra_info("sockname")
    same_machine = bool(own_end) and own_end[0] == peer[0]
    return rules.judge(address, port, host=host, same_machine=same_machine)


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
