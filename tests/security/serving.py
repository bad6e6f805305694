"""The server with the dashboard on a real socket, with any store."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import uvicorn

from chimes.testing import SettableClock
from chimes.web.middleware import HeaderTimeoutProtocol
from chimes.web.server import dashboard_router
from tests.store_contract.stores import Home, StoreKind
from tests.web.rig import Rig, serving
from tests.web.test_connections import AnnouncedServer


class Served:
    def __init__(self, rig: Rig, port: int) -> None:
        self.rig = rig
        self.url = f"http://localhost:{port}"

    def client(self, address: str = "127.0.0.1", **headers: str) -> httpx2.AsyncClient:
        """A client that connects from an address of this machine (127.0.0.0/8)."""
        transport = httpx2.AsyncHTTPTransport(
            local_address=address, limits=httpx2.Limits(max_connections=None)
        )
        return httpx2.AsyncClient(
            transport=transport, base_url=self.url, headers=headers, timeout=60
        )

    async def sign_in(self, client: httpx2.AsyncClient, **fields: str) -> httpx2.Response:
        """Sends the login form with the token of its page."""
        page = await client.get("/ui/login")
        token = re.search(r'name="csrf" value="([^"]+)"', page.text)
        assert token is not None, page.text
        return await client.post(
            "/ui/login", data={"csrf": token[1]} | fields, headers={"Origin": self.url}
        )


@asynccontextmanager
async def served(
    kind: StoreKind | None = None, directory: Path | None = None, **options: Any
) -> AsyncIterator[Served]:
    """Without `kind`: the memory store."""
    clock = SettableClock()
    home = Home(kind, directory, clock) if kind is not None and directory is not None else None
    store = await home.open() if home is not None else None
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    try:
        options = {"routers": [dashboard_router], "documented": False} | options
        async with serving(store, clock, **options) as rig:
            config = uvicorn.Config(
                rig.app,
                http=HeaderTimeoutProtocol,
                lifespan="off",
                log_config=None,
                proxy_headers=False,
            )
            server = AnnouncedServer(config)
            task = asyncio.create_task(server._serve([listener]))
            await server.up.wait()
            try:
                yield Served(rig, listener.getsockname()[1])
            finally:
                server.should_exit = True
                await task
    finally:
        if home is not None:
            await home.close()
