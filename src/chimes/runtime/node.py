"""A node in this process: the engine, its runners, and the timing of declared schedules."""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from chimes import __version__
from chimes.config import Settings
from chimes.engine.engine import Engine
from chimes.engine.events import EventLogger, Events, Listener
from chimes.engine.maintenance import CheckpointCleaner
from chimes.engine.metrics import Metrics
from chimes.engine.poller import Duty, Poller
from chimes.errors import ChimesError, StoreError, StoreUnavailable
from chimes.i18n import _, joined
from chimes.model.policy import RunDefaults
from chimes.model.target import SyncTarget
from chimes.runtime.channels import LazyHttpRunner, build_senders, wait_for_schedule
from chimes.runtime.composition import Runtime, merge_capabilities
from chimes.runtime.health import FailingDuties
from chimes.sdk.declare import Mode
from chimes.sdk.flows import AppFlow
from chimes.sdk.memory_mode import Fallback, LocalSchedule, MemoryScheduler
from chimes.sdk.reconcile import Declarations
from chimes.services.schedules.rules import (
    action_capabilities,
    agent_capabilities,
    are_actions_available,
    connection_capabilities,
    is_agent_available,
    is_pair_available,
)
from chimes.targets.base import Call, TargetRunner
from chimes.targets.flow import FlowRunner
from chimes.targets.message import MessageRunner
from chimes.targets.python import PythonTask
from chimes.targets.python.context import TransactionalCompletion
from chimes.targets.python.registry import DEFAULT_QUEUE, Registry
from chimes.telemetry import find_provider

if TYPE_CHECKING:
    from chimes.engine.spans import RunTracing

logger = logging.getLogger("chimes.runtime")
_MAX_LISTED = 8
JSON_WORKERS, WORKERS = 4, 100


class Application(Protocol):
    """The parts of an application that a node uses."""

    registry: Registry
    declarations: Declarations

    @property
    def flows(self) -> Mapping[str, AppFlow[Any, Any]]: ...

    @property
    def capabilities(self) -> Mapping[str, RunDefaults]: ...


class Node:
    """The engine of this process with its runners and listeners; `app` is None for a server without
    an application."""

    def __init__(
        self,
        runtime: Runtime,
        app: Application | None = None,
        *,
        queues: Collection[str] | None = None,
        listeners: Iterable[Listener] = (),
        capabilities: Mapping[str, RunDefaults] | None = None,
        syncs: bool = False,
    ) -> None:
        """`capabilities`: published to other nodes; None: those of the application. `syncs`: it
        executes the sync tasks of its configured sources."""
        settings = runtime.settings
        workers = settings.workers or (JSON_WORKERS if runtime.location.kind == "json" else WORKERS)
        self._runtime = runtime
        self._app = app
        self.metrics = Metrics()
        self.failing_duties = FailingDuties()
        self.fallback = Fallback(lambda event: self._events.emit(event))
        self._checkpoint_cleaner = CheckpointCleaner(runtime.services.store)
        tracing: RunTracing | None = None
        if find_provider() is not None:
            from chimes.engine.spans import build_run_tracing

            tracing = build_run_tracing(__version__)
        all_listeners: list[Listener] = [
            self.metrics,
            EventLogger(trace_id=None if tracing is None else tracing.trace_id),
            self.failing_duties,
            self.fallback,
            self._checkpoint_cleaner,
            runtime.run_waiters,
            *(() if tracing is None else (tracing,)),
            *listeners,
        ]
        self.runners = _build_runners(runtime, workers, app, queues)
        if settings.connections:
            from chimes.runtime.connections import EngineReleaser

            all_listeners.append(EngineReleaser(self.runners.values()))
        if syncs and settings.sync_workers:
            sync = _build_sync_runner(runtime)
            self.runners[sync.kind] = sync
        if capabilities is None:
            capabilities = {} if app is None else app.capabilities
        self.engine = Engine(
            runtime.services.store,
            self.runners,
            settings=replace(settings, workers=workers),
            clock=runtime.clock,
            version=__version__,
            listeners=all_listeners,
            defaults=merge_capabilities(capabilities, _published_capabilities(settings)),
            senders=build_senders(settings, runtime.services.egress),
            queues=queues or (),
            tracing=tracing,
        )
        self._events = Events(all_listeners)
        self._timer: Poller | None = None
        self._cleaner_poller: Poller | None = None

    @property
    def not_ready(self) -> str:
        """Why the node is not ready for requests; empty if it is."""
        if self.engine.draining:
            return _("draining")
        if not self.engine.trusted:
            return _("this node has no valid lease")
        return joined("; ", filter(None, (self.failing_duties.reason, self.fallback.reason)))

    @property
    def tasks(self) -> str:
        """The tasks and flows that this node executes, for display."""
        if self._app is None:
            return ""
        capabilities = frozenset().union(*(each.capabilities for each in self.runners.values()))
        names = sorted(
            each for each in capabilities if each.startswith(("task:", "flow:")) and "/" not in each
        )
        shown = [each.removeprefix("task:") for each in names]
        if not shown:
            return _("none")
        listed = ", ".join(shown[:_MAX_LISTED])
        if len(shown) <= _MAX_LISTED:
            return listed
        return _("{names} and {count} more", names=listed, count=len(shown) - _MAX_LISTED)

    @property
    def prompts(self) -> str:
        """The agent pipeline, for display; empty: none."""
        settings = self._runtime.settings
        if not agent_capabilities(settings):
            return ""
        where = settings.agent_url.rpartition("@")[2] or settings.agent_url
        return _("{pipeline} at {url}", pipeline=settings.agent_pipeline, url=where)

    @property
    def commands(self) -> str:
        """Whether it executes commands, and for which labels, for display; empty: no."""
        if not {"command"} <= self.runners.keys():
            return ""
        labels = ", ".join(f"{name}={value}" for name, value in self._runtime.settings.labels)
        return labels or _("allowed")

    @property
    def actions(self) -> str:
        """The URL of the action service, for display; empty: none."""
        settings = self._runtime.settings
        return settings.action_url if action_capabilities(settings) else ""

    async def start(self) -> None:
        """Writes the declared schedules before the first slot can be due."""
        timed = await self._write_declarations() if self._app is not None else ()
        await self.engine.start()
        self._cleaner_poller = self._poller(self._checkpoint_cleaner)
        self._cleaner_poller.start()
        at_work = {"scheduler", "worker"} & {*self._runtime.settings.roles}
        if self._app is not None and self._app.declarations and at_work:
            self._timer = self._build_timer(self._app, timed)
            self._timer.start()

    async def drain(self) -> None:
        """A second call ends the grace period."""
        timer, self._timer = self._timer, None
        if timer is not None:
            await timer.stop()
        await self.engine.drain()
        poller, self._cleaner_poller = self._cleaner_poller, None
        if poller is not None:
            await poller.stop()
            with contextlib.suppress(StoreError):
                await self._checkpoint_cleaner.clean()

    async def _write_declarations(self) -> Sequence[LocalSchedule]:
        assert self._app is not None
        declarations, runtime = self._app.declarations, self._runtime
        in_memory = declarations.in_mode(runtime, Mode.MEMORY)
        if in_memory:
            logger.warning(
                "schedules timed in memory: they are not listed, cannot be paused, and are missed "
                "while no worker runs; mode='db' (use_db_driven_scheduling) stores them",
                extra={"count": len(in_memory), "schedules": in_memory[:20]},
            )
        try:
            await declarations.sync(runtime)
            return await declarations.local_schedules(runtime)
        except ChimesError:
            raise
        except Exception as error:
            # The store answers but cannot schedule.
            self.fallback.failed("declarations", error)
            return await declarations.local_schedules_from_runs(runtime)

    def _build_timer(self, app: Application, timed: Sequence[LocalSchedule]) -> Poller:
        runtime = self._runtime
        store = runtime.services.store
        timer = MemoryScheduler(
            store,
            load=partial(app.declarations.local_schedules, runtime),
            initial=timed,
            fallback=self.fallback,
            clock=runtime.clock,
            events=self._events,
            poll=runtime.settings.poll_interval,
        )
        return self._poller(timer)

    def _poller(self, duty: Duty) -> Poller:
        rng = random.Random()  # noqa: S311 - spreads retries, guards nothing
        return Poller(duty, store=self._runtime.services.store, events=self._events, rng=rng)


def _published_capabilities(settings: Settings) -> dict[str, RunDefaults]:
    found = agent_capabilities(settings) | action_capabilities(settings)
    return found | connection_capabilities(settings) if "worker" in settings.roles else found


def _completion_factory(runtime: Runtime) -> Callable[[Call], TransactionalCompletion] | None:
    if runtime.location.kind not in ("sqlite", "postgresql", "mariadb"):
        return None

    def complete(call: Call) -> TransactionalCompletion:
        # At first use, because it imports the ORM of SQLAlchemy.
        from chimes.sdk.transactions import TaskCompletion

        return TaskCompletion(call, runtime)

    return complete


def _build_runners(
    runtime: Runtime, workers: int, app: Application | None, queues: Collection[str] | None
) -> dict[str, TargetRunner]:
    runners: list[TargetRunner] = []
    if queues is None or DEFAULT_QUEUE in queues:
        store = runtime.services.store
        runners += [
            LazyHttpRunner(
                lambda: _load_http_runner(runtime, workers),
                lambda: wait_for_schedule(store, "http"),
            ),
            _build_agent_runner(runtime),
            _build_action_runner(runtime),
            MessageRunner(),
        ]
        if runtime.settings.allow_commands:
            runners.append(_build_command_runner(runtime))
        if runtime.settings.connections:
            from chimes.runtime.connections import build_connection_runners

            runners += build_connection_runners(runtime.settings, store)
    if app is not None:
        runners.append(
            PythonTask(
                app.registry,
                queues=queues,
                threads=workers,
                app=runtime.settings.app,
                completion_factory=_completion_factory(runtime),
            )
        )
        flows = [
            flow.complete() for flow in app.flows.values() if queues is None or flow.queue in queues
        ]
        if flows:
            runners.append(FlowRunner(flows))
    return {runner.kind: runner for runner in runners}


def _load_http_runner(runtime: Runtime, workers: int) -> TargetRunner:
    from chimes.targets.http import HttpCallback

    return HttpCallback(
        egress=runtime.services.egress,
        user_agent=f"Chimes/{__version__}",
        max_connections=workers,
    )


def _build_agent_runner(runtime: Runtime) -> TargetRunner:
    settings = runtime.settings
    if not agent_capabilities(settings):
        from chimes.targets.base import NO_PIPELINE, NotConfigured

        elsewhere = _or_unknown(lambda: is_agent_available(runtime.services.store))
        return NotConfigured("agent", "no_pipeline", NO_PIPELINE, elsewhere)
    from chimes.targets.agent import AgentConfig, AgentPrompt
    from chimes.targets.agent.service import checked_config

    config = AgentConfig(
        pipeline=settings.agent_pipeline,
        url=settings.agent_url,
        model=settings.agent_model,
        api_key=settings.agent_api_key,
        max_tokens=settings.agent_max_tokens or None,
        input_price=settings.agent_input_price,
        output_price=settings.agent_output_price,
        callback_url=settings.agent_callback_url,
    )
    return AgentPrompt(checked_config(config), user_agent=f"Chimes/{__version__}")


def _build_action_runner(runtime: Runtime) -> TargetRunner:
    settings = runtime.settings
    if not action_capabilities(settings):
        from chimes.targets.base import NO_ACTION_SERVICE, NotConfigured

        elsewhere = _or_unknown(lambda: are_actions_available(runtime.services.store))
        return NotConfigured("action", "no_action_service", NO_ACTION_SERVICE, elsewhere)
    from chimes.targets.action import ActionConfig, ActionRunner
    from chimes.targets.action.service import checked_config

    config = ActionConfig(
        url=settings.action_url,
        headers=settings.action_headers,
        timeout=settings.action_timeout,
    )
    return ActionRunner(
        checked_config(config),
        egress=runtime.services.egress,
        user_agent=f"Chimes/{__version__}",
    )


def _build_command_runner(runtime: Runtime) -> TargetRunner:
    from chimes.targets.command import CommandRunner

    settings = runtime.settings
    return CommandRunner(
        dict(settings.labels), permits=settings.command_workers, clock=runtime.clock
    )


def _or_unknown(check: Callable[[], Awaitable[bool]]) -> Callable[[], Awaitable[bool]]:
    """Whether another node can execute it; True while the store is unavailable, because releasing
    a run loses nothing."""

    async def checked() -> bool:
        try:
            return await check()
        except StoreUnavailable:
            return True

    return checked


def _build_sync_runner(runtime: Runtime) -> TargetRunner:
    from chimes.targets.sync.runner import SyncRunner

    services, settings = runtime.services, runtime.settings

    async def elsewhere(target: SyncTarget) -> bool:
        return await _or_unknown(lambda: is_pair_available(services.store, target))()

    return SyncRunner(
        lambda: services.sources.now,
        egress=services.egress.now,
        permits=settings.sync_workers,
        stall_after=settings.sync_stall_after,
        clock=runtime.clock,
        elsewhere=elsewhere,
    )
