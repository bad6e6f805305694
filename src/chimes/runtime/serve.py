"""One process of Chimes: store, engine and doors, from start to drain."""

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
from chimes.runtime.apply_config import PairDefaults, SourceFile, SourceSchedules
from chimes.runtime.composition import JoinedOffers, Runtime, build_services, build_store
from chimes.runtime.health import watch_keys
from chimes.runtime.node import Node
from chimes.runtime.signals import loop_factory, on_hangup, signals, stop_or_hurry
from chimes.sdk.app import Chimes
from chimes.services.demo import LONGEST, MADE_UP, TASK, DemoService
from chimes.targets.python.call import overhearing
from chimes.targets.python.registry import DEFAULT_QUEUE

if TYPE_CHECKING:
    from chimes.runtime.http_server import Server


# @@ A node that starts while its server is being started again waits for it: whoever restarts
# both at once, or a node in the middle of a fail-over, would have to get the order right (F21).

T = TypeVar("T")
logger = logging.getLogger("chimes.runtime")

#: A crashed server needs some seconds to recover; who has mistyped its address is told at once.
PATIENCE = 20.0
#: Seconds between two tries.
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0


async def once_there(location: StoreLocation, clock: Clock, work: Callable[[], Awaitable[T]]) -> T:
    """What the work answers; it is done again while a server is away. What is wrong with a file
    does not pass by waiting."""
    patience = PATIENCE if location.server else 0.0
    began, pause = clock.monotonic(), FIRST_PAUSE
    while True:
        try:
            return await work()
        except StoreLost:
            raise
        except StoreUnavailable as error:
            if clock.monotonic() - began + pause > patience:
                raise
            if pause == FIRST_PAUSE:
                logger.warning(
                    "the store cannot be used yet; trying again",
                    extra={"error": message_of(error), "seconds": patience},
                )
        await asyncio.sleep(random.uniform(pause / 2, pause))  # noqa: S311 spreads, hides nothing
        pause = min(pause * 1.5, LONGEST_PAUSE)


OK = 0


def serve(
    loaded: LoadedSettings,
    app: Chimes | None = None,
    *,
    queues: Collection[str] | None = None,
    language: str = ENGLISH,
    demo: bool = False,
) -> int:
    """Run until a signal says stop. Store errors are raised: the command line knows their codes.
    With `queues` only the tasks of those are carried out. `language`: of the greeting. `demo`:
    with example schedules."""
    settings = loaded.settings
    clock = SystemClock()
    sources = SourceFile(loaded, clock)
    configure_logging(settings.log_level, settings.log_format, secrets=sources.secrets)
    for warning in sources.warnings:
        logger.warning(warning)
    if demo:
        app = with_demo(app)
    if app is not None:
        for flow in app.flows.values():
            flow.complete()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_serve(settings, clock, app, queues, sources, language, demo))


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
    pairs = PairDefaults(sources.known)
    offers = pairs if app is None else JoinedOffers(app.offers, pairs)
    build = partial(
        build_services, store=store, clock=clock, offers=lambda: offers, sources=sources.known
    )
    there = partial(once_there, location, clock)
    await there(store.open)
    try:
        services = await there(partial(build, settings))
        listener = None
        if "api" in settings.roles:
            from chimes.runtime.http_server import listen, refuse_unsafe_bind

            refuse_unsafe_bind(settings, services)
            listener = listen(settings)
            settings = replace(settings, port=listener.getsockname()[1])
            services = await there(partial(build, settings))
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
        node = Node(runtime, app, queues=queues, offers=offers, syncs=syncs)
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


def settle_garbage() -> None:
    """What is there after the start stays until the end, and a run leaves next to no cycles: the
    collector would walk through all of it again and again, for a quarter of the time that the
    end of a run costs. Only for processes of our own: a library leaves its host's alone."""
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
        self._told = asyncio.Event()

    async def run(self) -> int:
        with overhearing(), signals(self._told.set), on_hangup(self._sources.reload_and_tell):
            there = partial(once_there, self._runtime.location, self._runtime.clock)
            await there(self._sources.begin)
            await there(self._node.start)
            server = telegram = None
            if self._listener is not None:
                from chimes.runtime.http_server import server_of

                if self._runtime.settings.telegram_token:
                    from chimes.runtime.telegram import telegram_of

                    telegram = telegram_of(self._runtime.settings, self._runtime.services)
                server = server_of(self._runtime, self._node, self._listener, telegram)
                await server.start()
            self._say_hello()
            settle_garbage()
            duties = [
                asyncio.create_task(watch_keys(self._runtime.services)),
                asyncio.create_task(self._sources.keep_up()),
            ]
            if telegram is not None:
                duties.append(asyncio.create_task(telegram.run()))
            await self._told.wait()
            for duty in duties:
                duty.cancel()
            # So that they close what they have opened.
            await asyncio.gather(*duties, return_exceptions=True)
            await self._stop(server)
        return OK

    async def _stop(self, server: Server | None) -> None:
        """R3.39: stop accepting, wait for what runs, flush, leave. A second signal ends the wait
        (F69)."""
        self._told.clear()
        stopping = asyncio.create_task(stop_or_hurry(self._node.drain, self._told))
        if server is not None:
            await server.stop()
        await stopping

    def _say_hello(self) -> None:
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
        lines.append(_("  Data   {place} ({kind})", place=location.shown, kind=location.kind))
        lines.append(_("  Zone   {zone}", zone=settings.default_timezone))
        lines.append(_("  Roles  {roles}", roles=", ".join(settings.roles)))
        if tasks := self._node.tasks:
            lines.append(_("  Tasks  {names}", names=tasks))
        if prompts := self._node.prompts:
            lines.append(_("  Agent  {where}", where=prompts))
        if actions := self._node.actions:
            lines.append(_("  Actions {where}", where=actions))
        if found := self._sources.known.now.by_id:
            lines.append(_("  Sources {names}", names=", ".join(found)))
        if self._listener is not None:
            open_mode = self._runtime.services.access.open_mode
            lines.append(
                _("  Access open: anybody on this machine") if open_mode else _("  Access by key")
            )
        lines.append(_("Press Ctrl-C to stop."))
        with contextlib.suppress(OSError):
            greeting = in_language(joined("\n", lines), self._language)
            print(greeting, file=sys.stderr, flush=True)  # noqa: T201 - the banner


# @@ `serve --demo`: example schedules, loaded once, and the task that they run: it calls nobody.


async def work(seconds: float, fails: bool = False) -> str:
    """What an example does: it takes its time."""
    await asyncio.sleep(min(max(seconds, 0.0), LONGEST))
    if fails:
        raise RuntimeError(MADE_UP)
    return MADE_UP


def with_demo(app: Chimes | None) -> Chimes:
    """The application, which carries out the examples as well; one of its own if there is none."""
    found = Chimes() if app is None else app
    found.task(name=TASK)(work)
    return found


async def load_demo(runtime: Runtime) -> int:
    """How many schedules were added; 0: they are there already. Whoever starts a node may do
    everything on its store."""
    return await DemoService(runtime.services.store).load(Actor(interface="cli"), live=True)
