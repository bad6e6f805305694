"""Runs one Chimes process: store, engine and HTTP server, from start to drain."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import random
import socket
import sys
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from chimes import __version__
from chimes.clock import Clock, SystemClock
from chimes.config import LoadedSettings, Settings, StoreLocation, store_location
from chimes.errors import StoreLost, StoreUnavailable, message_of
from chimes.i18n import ENGLISH, _, in_language, joined
from chimes.log import configure_logging
from chimes.model.access import Actor
from chimes.runtime.apply_config import PairCapabilities, SourceFile, SourceSchedules
from chimes.runtime.composition import Runtime, build_services, build_store, merge_capabilities
from chimes.runtime.health import watch_keys
from chimes.runtime.node import Node
from chimes.runtime.service_manager import ServiceManager
from chimes.runtime.signals import loop_factory, reload_signal, stop_gracefully, stop_signals
from chimes.sdk.app import Chimes
from chimes.services.single_sign_on import check_settings as check_single_sign_on
from chimes.targets.python.invocation import capture_prints
from chimes.targets.python.registry import DEFAULT_QUEUE
from chimes.telemetry import configure as configure_tracing

if TYPE_CHECKING:
    from chimes.runtime.http_server import Server


T = TypeVar("T")
logger = logging.getLogger("chimes.runtime")

#: Seconds to wait for a database server at startup: a crashed one needs some to recover.
STARTUP_TIMEOUT = 20.0
#: Seconds between two tries.
MIN_PAUSE, MAX_PAUSE = 0.1, 1.0


async def retry_startup(
    location: StoreLocation, clock: Clock, work: Callable[[], Awaitable[T]]
) -> T:
    """Repeats `work` while the database server is unavailable, so that node and server may start
    in any order. An error of a local file is raised immediately."""
    timeout = STARTUP_TIMEOUT if location.server else 0.0
    began, pause = clock.monotonic(), MIN_PAUSE
    while True:
        try:
            return await work()
        except StoreLost:
            raise
        except StoreUnavailable as error:
            if clock.monotonic() - began + pause > timeout:
                raise
            if pause == MIN_PAUSE:
                logger.warning(
                    "the store is unavailable; retrying",
                    extra={"error": message_of(error), "seconds": timeout},
                )
        await asyncio.sleep(random.uniform(pause / 2, pause))  # noqa: S311 - only spreads retries
        pause = min(pause * 1.5, MAX_PAUSE)


def serve(
    loaded: LoadedSettings,
    app: Chimes | None = None,
    *,
    queues: Collection[str] | None = None,
    language: str = ENGLISH,
    demo: bool = False,
) -> int:
    """Runs until a stop signal; returns the exit code. Store errors are raised, the command line
    maps them to exit codes. `queues`: the task queues to serve; None: all. `language`: of the
    start message. `demo`: with example schedules."""
    settings = loaded.settings
    clock = SystemClock()
    sources = SourceFile(loaded, clock)
    configure_logging(settings.log_level, settings.log_format, secrets=sources.secrets)
    for warning in sources.warnings:
        logger.warning(warning)
    flush_traces = configure_tracing()
    if demo:
        app = with_demo(app)
    if app is not None:
        for flow in app.flows.values():
            flow.complete()
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_serve(settings, clock, app, queues, sources, language, demo))
    finally:
        if flush_traces is not None:
            flush_traces()


async def _serve(
    settings: Settings,
    clock: Clock,
    app: Chimes | None,
    queues: Collection[str] | None,
    sources: SourceFile,
    language: str,
    demo: bool,
) -> int:
    location = store_location(settings)
    store = build_store(location, clock)
    pairs = PairCapabilities(sources.known)
    capabilities = pairs if app is None else merge_capabilities(app.capabilities, pairs)
    build = partial(
        build_services,
        store=store,
        clock=clock,
        capabilities=lambda: capabilities,
        sources=sources.known,
    )
    if not store.keyring.can_seal and store.keyring.durable:
        logging.getLogger(__name__).warning(
            "CHIMES_SECRET_KEY is not set: secrets that the store has are in plain text, and new "
            "ones are refused"
        )
    retry = partial(retry_startup, location, clock)
    await retry(store.open)
    try:
        services = await retry(partial(build, settings))
        listener = None
        if "api" in settings.roles:
            from chimes.runtime.http_server import check_bind_address, listen

            check_bind_address(settings, services)
            check_single_sign_on(settings)
            listener = listen(settings)
            settings = replace(settings, port=listener.getsockname()[1])
            services = await retry(partial(build, settings))
        runtime = Runtime(
            settings=settings,
            location=location,
            clock=clock,
            services=services,
            origins=sources.origins,
        )
        if app is not None:
            app.attach(runtime)
        syncs = queues is None or DEFAULT_QUEUE in queues
        node = Node(runtime, app, queues=queues, capabilities=capabilities, syncs=syncs)
        sources.attach(
            SourceSchedules(services, settings),
            announce=node.engine.announce,
            own_node=lambda: node.engine.node_id,
        )
        if demo:
            await load_demo(runtime)
        return await _Process(runtime, node, listener, sources, language).run()
    finally:
        await store.close()


def tune_garbage_collector() -> None:
    """Objects that exist after the start live until the end, and a run leaves next to no cycles:
    collecting them again and again took a quarter of the time that ending a run costs. Only for
    processes of our own, not for applications that embed Chimes."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


class _Process:
    def __init__(
        self,
        runtime: Runtime,
        node: Node,
        listener: socket.socket | None,
        sources: SourceFile,
        language: str,
    ) -> None:
        self._runtime = runtime
        self._node = node
        self._listener = listener
        self._sources = sources
        self._language = language
        self._signaled = asyncio.Event()

    async def run(self) -> int:
        with (
            capture_prints(),
            stop_signals(self._signaled.set),
            reload_signal(self._sources.reload_on_signal),
        ):
            retry = partial(retry_startup, self._runtime.location, self._runtime.clock)
            await retry(self._sources.begin)
            await retry(self._node.start)
            server = telegram = None
            if self._listener is not None:
                from chimes.runtime.http_server import build_server

                if self._runtime.settings.telegram_token:
                    from chimes.runtime.telegram import build_telegram

                    telegram = build_telegram(self._runtime.settings, self._runtime.services)
                server = build_server(self._runtime, self._node, self._listener, telegram)
                await server.start()
            self._print_banner()
            tune_garbage_collector()
            manager = ServiceManager()
            manager.ready(f"node {self._node.engine.node_id}")
            # Not one of the duties: a node that drains is alive.
            alive = asyncio.create_task(manager.report_alive())
            duties = [
                asyncio.create_task(watch_keys(self._runtime.services)),
                asyncio.create_task(self._sources.reconcile()),
            ]
            if telegram is not None:
                duties.append(asyncio.create_task(telegram.run()))
            await self._signaled.wait()
            manager.stopping()
            for duty in duties:
                duty.cancel()
            # They close their resources when canceled.
            await asyncio.gather(*duties, return_exceptions=True)
            await self._stop(server)
            alive.cancel()
        return 0

    async def _stop(self, server: Server | None) -> None:
        """Stops accepting requests, waits for running work, flushes and leaves. A second signal
        ends the wait."""
        self._signaled.clear()
        stopping = asyncio.create_task(stop_gracefully(self._node.drain, self._signaled))
        if server is not None:
            await server.stop()
        await stopping

    def _print_banner(self) -> None:
        lines: list[str] = [
            _("Chimes {version} is running, pid {pid}", version=__version__, pid=os.getpid())
        ]
        if self._listener is not None:
            host, port = self._listener.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            url = f"http://{shown}:{port}"
            lines.append(_("  Pages  {url}/ui/", url=url))
            lines.append(_("  API    {url}/api/v1   (docs: {url}/docs)", url=url))
        location, settings = self._runtime.location, self._runtime.settings
        lines.append(_("  Data   {place} ({kind})", place=location.display, kind=location.kind))
        lines.append(_("  Zone   {zone}", zone=settings.default_timezone))
        lines.append(_("  Roles  {roles}", roles=", ".join(settings.roles)))
        if tasks := self._node.tasks:
            lines.append(_("  Tasks  {names}", names=tasks))
        if prompts := self._node.prompts:
            lines.append(_("  Agent  {where}", where=prompts))
        if actions := self._node.actions:
            lines.append(_("  Actions {where}", where=actions))
        if commands := self._node.commands:
            lines.append(_("  Commands {labels}", labels=commands))
        if found := self._sources.known.now.by_id:
            lines.append(_("  Sources {names}", names=", ".join(found)))
        if self._listener is not None:
            open_mode = self._runtime.services.access.open_mode
            lines.append(
                _("  Access open: every user of this machine")
                if open_mode
                else _("  Access by key")
            )
        lines.append(_("Press Ctrl-C to stop."))
        with contextlib.suppress(OSError):
            greeting = in_language(joined("\n", lines), self._language)
            print(greeting, file=sys.stderr, flush=True)  # noqa: T201 - the banner


async def work(seconds: float, fails: bool = False) -> str:
    """The task of the demo schedules; it only waits."""
    from chimes.services.demo import LONGEST, MADE_UP

    await asyncio.sleep(min(max(seconds, 0.0), LONGEST))
    if fails:
        raise RuntimeError(MADE_UP)
    return MADE_UP


def with_demo(app: Chimes | None) -> Chimes:
    """Adds the demo task to the application, or to a new one."""
    from chimes.services.demo import TASK

    app = Chimes() if app is None else app
    app.task(name=TASK)(work)
    return app


async def load_demo(runtime: Runtime) -> int:
    """Adds the demo schedules as the operator of the node; returns how many, 0 if they exist."""
    from chimes.services.demo import DemoService

    return await DemoService(runtime.services.store).load(Actor(interface="cli"), live=True)
