"""The HTTP server of a process: the listening socket, and uvicorn with all APIs."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

import uvicorn

from chimes import __version__
from chimes.config import Settings
from chimes.engine.metrics import Metrics
from chimes.errors import ChimesError, ConfigError
from chimes.i18n import _
from chimes.runtime.composition import LOOPBACK, Runtime, Services
from chimes.runtime.node import Node
from chimes.web.frame import MonitoredApp
from chimes.web.middleware import HeaderTimeoutProtocol
from chimes.web.requests import WebContext

if TYPE_CHECKING:
    from fastapi import FastAPI

    from chimes.runtime.telegram import Telegram


def check_bind_address(settings: Settings, services: Services) -> None:
    """Without a key only this machine may call. Raises ConfigError."""
    if services.access.open_mode and settings.host not in LOOPBACK:
        raise ConfigError(
            _(
                "refusing to listen on {host} without an API key: every client that reaches the "
                "port could run commands. Create a key with `chimes key create --role admin NAME` "
                "or set CHIMES_ADMIN_TOKEN, or listen on 127.0.0.1.",
                host=settings.host,
            ),
            key="host",
        )


def listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        details = {"host": settings.host, "port": settings.port, "why": error.strerror}
        raise ChimesError(
            _(
                "cannot listen on {host}:{port}: {why}; choose another port with --port or "
                "CHIMES_PORT, or stop the process that uses it",
                **details,
            )
            if error.errno == errno.EADDRINUSE
            else _("cannot listen on {host}:{port}: {why}", **details)
        ) from None
    listener.setblocking(False)
    return listener


def build_server(
    runtime: Runtime, node: Node, listener: socket.socket, telegram: Telegram | None = None
) -> Server:
    """Not started yet."""
    config = uvicorn.Config(
        build_asgi_app(runtime, node, port=listener.getsockname()[1], telegram=telegram),
        http=HeaderTimeoutProtocol,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # uvicorn believes the headers of every client on this machine; see `trusted_proxies`.
        proxy_headers=False,
        # The middleware sends it: uvicorn would wake up every second to update it.
        date_header=False,
        timeout_keep_alive=75,
        h11_max_incomplete_event_size=16 * 1024,
        timeout_graceful_shutdown=5,
    )
    return Server(config, [listener])


def build_asgi_app(
    runtime: Runtime, node: Node | None, *, port: int, telegram: Telegram | None = None
) -> MonitoredApp:
    """All APIs and the dashboard. `node`: the node of this process, if it has one."""
    services = runtime.services
    context = WebContext(
        schedules=services.schedules,
        runs=services.runs,
        access=services.access,
        store=services.store,
        sources=services.sources,
        settings=runtime.settings,
        origins=runtime.origins,
        clock=runtime.clock,
        metrics=Metrics().registry if node is None else node.metrics.registry,
        version=__version__,
        port=port,
        not_ready=lambda: "" if node is None else node.not_ready,
    )
    return MonitoredApp(context, lambda: _build_app(context, telegram))


def _build_app(context: WebContext, telegram: Telegram | None) -> FastAPI:
    """With the imports that it needs."""
    from chimes.web.compat.base import CompatRouter
    from chimes.web.compat.catbird.routes import catbird_router
    from chimes.web.compat.eventnative.routes import eventnative_router
    from chimes.web.compat.ksana.routes import ksana_router
    from chimes.web.compat.kweaver.routes import kweaver_router
    from chimes.web.compat.softnix.routes import softnix_router
    from chimes.web.server import build_app, dashboard_router

    compat: list[CompatRouter] = [
        ksana_router(context),
        catbird_router(context),
        eventnative_router(context),
        softnix_router(context),
        kweaver_router(context),
        dashboard_router(context),
    ]
    if telegram is not None:
        from chimes.telegram.routes import telegram_router

        compat.append(
            telegram_router(
                context,
                telegram.bot,
                telegram.polling,
                secret=telegram.secret,
                webhook=bool(telegram.webhook_url),
            )
        )
    app = build_app(context, compat=compat)
    app.state.telegram = telegram.bot if telegram is not None else None
    return app


class Server(uvicorn.Server):
    """uvicorn without its own signal handlers and its ten wake-ups per second: the process decides
    when it stops."""

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket]) -> None:
        super().__init__(config)
        self._listeners = sockets
        self._serving: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def start(self) -> None:
        self._serving = asyncio.create_task(self.serve(sockets=self._listeners))

    async def main_loop(self) -> None:
        await self._stopping.wait()

    async def stop(self) -> None:
        self.should_exit = True
        self._stopping.set()
        if self._serving is not None:
            await self._serving
