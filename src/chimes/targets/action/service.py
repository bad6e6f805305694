"""How the action service is spoken to: the pieces of HTTP callbacks, each request with its own
deadline, nothing followed."""

from __future__ import annotations

import asyncio
import ssl

import aiohttp

from chimes.model.egress import Egress
from chimes.targets.action.config import ActionConfig
from chimes.targets.action.reaching import AlsoTo
from chimes.targets.action.trouble import Trouble, too_slow
from chimes.targets.http_callback.connector import GuardedConnector
from chimes.targets.http_callback.exchange import Exchange
from chimes.targets.http_callback.request import Request
from chimes.targets.http_callback.resolver import EgressDenied, Lookup, system_lookup
from chimes.targets.http_callback.response import READ_LIMIT, Reply
from chimes.targets.http_callback.verdicts import failure_of
from chimes.wording import say


class ActionService:
    def __init__(
        self,
        config: ActionConfig,
        *,
        egress: Egress,
        connections: int,
        lookup: Lookup = system_lookup,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._seconds = config.timeout.total_seconds()
        self._egress = AlsoTo(egress, config.place)
        self._connections = connections
        self._lookup = lookup
        self._tls = tls
        self._exchange: Exchange | None = None

    async def open(self) -> None:
        self._exchange = Exchange(
            GuardedConnector(
                rules=self._egress, limit=self._connections, lookup=self._lookup, tls=self._tls
            )
        )

    async def close(self) -> None:
        if self._exchange is not None:
            await self._exchange.close()

    async def ask(self, request: Request) -> Reply:
        """Any answer that is HTTP; Trouble where there is none."""
        assert self._exchange is not None, "open() comes first"
        try:
            async with asyncio.timeout(self._seconds):
                return await self._exchange.send(request, keep=READ_LIMIT)
        except TimeoutError:
            raise too_slow(self._seconds) from None
        except (aiohttp.ClientError, EgressDenied, OSError) as error:
            failure = failure_of(error)
            raise Trouble(
                failure.code,
                say("the action service: {failure}", failure=failure.text),
                retryable=failure.retryable,
            ) from None
