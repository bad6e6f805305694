"""One process of Chimes: store, engine and doors, from start to drain."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import uvicorn

from chimes import __version__
from chimes.app.composition import LOOPBACK, Services, build_services, build_store
from chimes.app.watching import Troubles, watch_keys
from chimes.clock import Clock, SystemClock
from chimes.config import LoadedSettings, Settings, StoreLocation, store_location
from chimes.doors.compat.ksana.routes import ksana_door
from chimes.doors.connections import PunctualProtocol
from chimes.doors.context import Doorway
from chimes.doors.server import build_app
from chimes.engine.engine import Engine
from chimes.engine.metrics import Metrics
from chimes.engine.reports import Reports
from chimes.errors import ChimesError, ConfigError
from chimes.log import configure_logging
from chimes.targets.http_callback import HttpCallback

logger = logging.getLogger("chimes.app")
OK = 0
JSON_WORKERS, WORKERS = 4, 100


def serve(loaded: LoadedSettings) -> int:
    """Run until a signal says stop. Store errors are raised: the command line knows their codes."""
    settings = loaded.settings
    configure_logging(settings.log_level, settings.log_format, secrets=loaded.secrets)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_serve(settings, SystemClock()))


async def _serve(settings: Settings, clock: Clock) -> int:
    location = store_location(settings)
    store = build_store(location, clock)
    await store.open()
    try:
        services = await build_services(settings, store, clock)
        listener = None
        if "api" in settings.roles:
            refuse_unsafe_bind(settings, services)
            listener = listen(settings)
            settings = replace(settings, port=listener.getsockname()[1])
            services = await build_services(settings, store, clock)
        return await _Node(settings, location, services, clock, listener).run()
    finally:
        await store.close()


def refuse_unsafe_bind(settings: Settings, services: Services) -> None:
    """RELIABILITY 8: without a key only this machine may call (S62)."""
    if services.access.open_mode and settings.host not in LOOPBACK:
        raise ConfigError(
            f"refusing to listen on {settings.host} without a key: anybody who reaches the port "
            "could run anything. Make one with `chimes key create --role admin NAME` or set "
            "CHIMES_ADMIN_TOKEN, or listen on 127.0.0.1.",
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
        what_to_do = (
            "; choose another with --port or CHIMES_PORT, or stop what listens there"
            if error.errno == errno.EADDRINUSE
            else ""
        )
        raise ChimesError(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror}{what_to_do}"
        ) from None
    listener.setblocking(False)
    return listener


class _Node:
    def __init__(
        self,
        settings: Settings,
        location: StoreLocation,
        services: Services,
        clock: Clock,
        listener: socket.socket | None,
    ) -> None:
        self._settings = settings
        self._location = location
        self._services = services
        self._clock = clock
        self._listener = listener
        self._metrics = Metrics()
        self._troubles = Troubles()
        self._told = asyncio.Event()
        self._draining = False
        workers = settings.workers or (JSON_WORKERS if location.kind == "json" else WORKERS)
        callbacks = HttpCallback(
            egress=services.egress,
            user_agent=f"Chimes/{__version__}",
            max_connections=workers,
        )
        self._engine = Engine(
            services.store,
            {callbacks.kind: callbacks},
            settings=replace(settings, workers=workers),
            clock=clock,
            version=__version__,
            listeners=[self._metrics, Reports(), self._troubles],
        )

    async def run(self) -> int:
        with _signals(self._told.set):
            await self._engine.start()
            server = None
            if self._listener is not None:
                server = _Server(self._config(self._listener), [self._listener])
                await server.start()
            self._say_hello()
            keys = asyncio.create_task(watch_keys(self._services))
            await self._told.wait()
            keys.cancel()
            await self._stop(server)
        return OK

    def _config(self, listener: socket.socket) -> uvicorn.Config:
        services, settings = self._services, self._settings
        doorway = Doorway(
            schedules=services.schedules,
            runs=services.runs,
            access=services.access,
            store=services.store,
            settings=settings,
            clock=self._clock,
            metrics=self._metrics.registry,
            version=__version__,
            port=listener.getsockname()[1],
            not_ready=self._not_ready,
        )
        return uvicorn.Config(
            build_app(doorway, compat=[ksana_door(doorway)]),
            http=PunctualProtocol,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=75,
            h11_max_incomplete_event_size=16 * 1024,
            timeout_graceful_shutdown=5,
        )

    def _not_ready(self) -> str:
        if self._draining:
            return "draining"
        if not self._engine.trusted:
            return "the lease of this node is not alive"
        return self._troubles.reason

    async def _stop(self, server: _Server | None) -> None:
        """R3.39: stop accepting, wait for what runs, flush, leave. A second signal ends the wait
        (F69)."""
        self._draining = True
        self._told.clear()
        drain = asyncio.create_task(self._engine.drain())
        if server is not None:
            await server.stop()
        again = asyncio.create_task(self._told.wait())
        await asyncio.wait({drain, again}, return_when=asyncio.FIRST_COMPLETED)
        again.cancel()
        if not drain.done():
            logger.warning("second signal: leaving at once")
            await self._engine.drain()
        await drain

    def _say_hello(self) -> None:
        lines = [f"Chimes {__version__} is running, pid {os.getpid()}"]
        if self._listener is not None:
            host, port = self._listener.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            lines.append(
                f"  API    http://{shown}:{port}/api/v1   (docs: http://{shown}:{port}/docs)"
            )
        lines.append(f"  Data   {self._location.shown} ({self._location.kind})")
        lines.append(f"  Zone   {self._settings.default_timezone}")
        lines.append(f"  Roles  {', '.join(self._settings.roles)}")
        open_mode = self._services.access.open_mode
        access = "open: anybody on this machine" if open_mode else "by key"
        lines.append(f"  Access {access}")
        lines.append("Press Ctrl-C to stop.")
        with contextlib.suppress(OSError):
            print("\n".join(lines), file=sys.stderr, flush=True)  # noqa: T201 - the banner


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers: the node decides in which order things stop."""

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket]) -> None:
        super().__init__(config)
        self._listeners = sockets
        self._serving: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def start(self) -> None:
        self._serving = asyncio.create_task(self.serve(sockets=self._listeners))

    async def stop(self) -> None:
        self.should_exit = True
        if self._serving is not None:
            await self._serving


@contextlib.contextmanager
def _signals(handler: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    names = (signal.SIGINT, signal.SIGTERM)
    try:
        for name in names:
            loop.add_signal_handler(name, handler)
    except NotImplementedError:  # Windows
        for name in names:
            signal.signal(name, lambda *_: loop.call_soon_threadsafe(handler))
        yield
        return
    try:
        yield
    finally:
        for name in names:
            loop.remove_signal_handler(name)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
