"""A fault proxy between a node and its database server, for synchronous tests."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar
from urllib.parse import urlsplit

from chimes.torture.proxy import MysqlWatch, PostgresWatch, Proxy

T = TypeVar("T")


class Link:
    """`url` connects through the proxy. The modes are those of `Proxy`."""

    def __init__(self, server_url: str) -> None:
        parts = urlsplit(server_url)
        assert parts.port is not None
        watch = PostgresWatch if parts.scheme == "postgresql" else MysqlWatch
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._proxy = self._do(self._started_proxy(parts.port, watch))
        user = f"{parts.username}@" if parts.username else ""
        self.url = parts._replace(netloc=f"{user}127.0.0.1:{self._proxy.port}").geturl()

    @staticmethod
    async def _started_proxy(port: int, watch: Any) -> Proxy:
        proxy = Proxy(port, watch, random.Random(0))
        await proxy.start()
        return proxy

    def set(self, mode: str, number: float = 0.0) -> None:
        async def change() -> None:
            self._proxy.set(mode, number)

        self._do(change())

    def redirect_to(self, server_url: str) -> None:
        """Redirects to another server, like an address that moves on fail-over."""
        port = urlsplit(server_url).port
        assert port is not None

        async def change() -> None:
            self._proxy.redirect_to(port)

        self._do(change())

    @property
    def port(self) -> int:
        return self._proxy.port

    @property
    def ambiguous(self) -> int:
        """Number of commits whose answer was lost."""
        return self._proxy.ambiguous

    def close(self) -> None:
        self._do(self._proxy.stop())
        self._do(_handlers_ended())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _do(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(30)


async def _handlers_ended() -> None:
    """Waits for the handlers of dropped connections."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.wait(others, timeout=5) if others else None
