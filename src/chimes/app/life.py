"""The life of an application: which settings it has, its store open, a node of it running."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Self

from chimes.app.composition import build_services, build_store
from chimes.app.flows import AppFlow
from chimes.app.handles import RunHandle
from chimes.app.offers import AppOffers
from chimes.app.runtime import Runtime
from chimes.app.signals import loop_factory, signals, stop_or_hurry
from chimes.app.verbs import Verbs
from chimes.clock import Clock, SystemClock
from chimes.config import LoadedSettings, Settings, load_settings, store_location
from chimes.config.loading import DEFAULT
from chimes.errors import ChimesError
from chimes.log import configure_logging
from chimes.model.defaults import RunDefaults
from chimes.model.ids import RunId
from chimes.targets.python_task.printing import overhearing
from chimes.targets.python_task.registry import Registry
from chimes.wording import say

if TYPE_CHECKING:
    from chimes.app.node import Node


class Life(Verbs):
    registry: Registry
    flows: Mapping[str, AppFlow]

    def __init__(self, own: Settings, clock: Clock | None) -> None:
        self._own = own
        self._clock = clock or SystemClock()
        self._runtime: Runtime | None = None
        self._opened = 0
        self._node: Node | None = None

    # --- settings -----------------------------------------------------------------------------
    def load(
        self,
        *,
        flags: Mapping[str, object] = MappingProxyType({}),
        config_file: Path | None = None,
    ) -> LoadedSettings:
        """What the operator says (flags, environment, chimes.yaml), and where nobody says
        anything, what the code says."""
        loaded = load_settings(flags=flags, config_file=config_file)
        ours = {
            field.name: getattr(self._own, field.name)
            for field in fields(Settings)
            if loaded.origins[field.name] == DEFAULT
        }
        return replace(loaded, settings=replace(loaded.settings, **ours))

    @property
    def offers(self) -> Mapping[str, RunDefaults]:
        """What nodes of this application can carry out, and how."""
        return AppOffers(self.registry, self.flows)

    # --- the store ----------------------------------------------------------------------------
    def runtime(self) -> Runtime:
        if self._runtime is None:
            raise ChimesError(
                say(
                    "the application is not open: use it within `async with app:`, "
                    "or after `await app.start()`"
                )
            )
        return self._runtime

    def attach(self, runtime: Runtime) -> None:
        """Work on a store that somebody else has opened, and will close."""
        self._runtime = runtime
        self._opened += 1

    def detach(self) -> None:
        self._opened -= 1
        if not self._opened:
            self._runtime = None

    async def open(self, settings: Settings | None = None) -> Self:
        """The store, without a node: enough to enqueue, to use the verbs and to wait for results.
        Opened twice, it has to be closed twice. `settings`: instead of those of `load`."""
        if self._runtime is not None:
            self._opened += 1
            return self
        settings = settings or self.load().settings
        location = store_location(settings)
        store = build_store(location, self._clock)
        await store.open()
        try:
            services = await build_services(
                settings, store, self._clock, offers=lambda: self.offers
            )
        except BaseException:
            await store.close()
            raise
        self.attach(
            Runtime(settings=settings, location=location, clock=self._clock, services=services)
        )
        return self

    async def close(self) -> None:
        if self._opened == 1:
            store = self.runtime().services.store
            self.detach()
            await store.close()
        elif self._opened:
            self._opened -= 1

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def run_handle(self, run_id: str) -> RunHandle:
        """A handle on a run whose id was kept."""
        return RunHandle(RunId(run_id), self.runtime)

    # --- a node -------------------------------------------------------------------------------
    @property
    def node(self) -> Node | None:
        """The node that `start` made."""
        return self._node

    async def start(self, *, queues: Collection[str] | None = None) -> None:
        """A node in this process: writes what is declared, fires what is due, carries out what is
        queued. With `queues` only tasks of those."""
        if self._node is not None:
            raise ChimesError(say("the application has a node already"))
        for flow in self.flows.values():
            flow.complete()
        await self.open()
        from chimes.app.node import Node

        runtime = self.runtime()
        roles = tuple(role for role in runtime.settings.roles if role != "api")
        node = Node(
            replace(runtime, settings=replace(runtime.settings, roles=roles)), self, queues=queues
        )
        try:
            await node.start()
        except BaseException:
            await self.close()
            raise
        self._node = node

    async def stop(self) -> None:
        """Lets what runs come to its end, within the grace; then leaves (R3.39)."""
        node = self._node
        if node is None:
            return
        await node.drain()
        if self._node is node:
            self._node = None
            await self.close()

    def run(self, *, queues: Collection[str] | None = None) -> None:
        """`start`, until SIGINT or SIGTERM; then `stop`. A second signal ends the wait (F69)."""
        loaded = self.load()
        settings = loaded.settings
        configure_logging(settings.log_level, settings.log_format, secrets=loaded.secrets)
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(self._run(queues))

    async def _run(self, queues: Collection[str] | None) -> None:
        told = asyncio.Event()
        with overhearing(), signals(told.set):
            await self.start(queues=queues)
            await told.wait()
            told.clear()
            await stop_or_hurry(self.stop, told)
