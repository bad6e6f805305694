"""The Python SDK: an application that has tasks and flows and declares when they run."""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields, replace
from datetime import datetime, timedelta
from pathlib import Path, PurePath
from types import FrameType, MappingProxyType, TracebackType
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar, Unpack, overload

from chimes.clock import Clock, SystemClock
from chimes.config import LoadedSettings, Settings, load_settings, store_location
from chimes.config.loader import DEFAULT
from chimes.errors import AlreadyExists, ChimesError, Conflict, NotFound
from chimes.i18n import _
from chimes.log import configure_logging
from chimes.model.access import Owner
from chimes.model.ids import RunId
from chimes.model.listing import ScheduleQuery, ScheduleSort
from chimes.model.planning import manual_run
from chimes.model.policy import RunDefaults
from chimes.model.recipient import Recipient
from chimes.model.schedule import Schedule
from chimes.model.target import TaskTarget
from chimes.model.validation import check_target
from chimes.runtime.composition import Runtime, build_services, build_store
from chimes.runtime.signals import loop_factory, signals, stop_or_hurry
from chimes.sdk.arguments import Duration, Moment, moment_of, word_of
from chimes.sdk.declarations import AppOffers, Backfilled, Declarations
from chimes.sdk.declare import (
    Declared,
    Mode,
    ModeWord,
    Syncing,
    read_bounds,
    read_delivery,
    read_dependency,
    read_policy,
    read_target,
    read_trigger,
    with_task,
)
from chimes.sdk.flows import AppFlow
from chimes.sdk.handles import RunHandle, ScheduleInfo, info_of
from chimes.sdk.tasks import (
    AppTask,
    EnqueueOptions,
    Enqueuer,
    TaskOptions,
    owner_of,
    read_options,
    task_of,
)
from chimes.sdk.transactions import enqueue
from chimes.services.run_requests import RunRequest
from chimes.services.validation import check_priority, clean_name, usual_defaults
from chimes.targets.python.call import overhearing
from chimes.targets.python.registry import DEFAULT_QUEUE, Registry
from chimes.triggers import Trigger, parse_zone

if TYPE_CHECKING:
    from chimes.runtime.node import Node


# @@ What an application can do with the schedules of its namespace, by name.


class Verbs(ABC):
    namespace: str
    declarations: Declarations

    @abstractmethod
    def runtime(self) -> Runtime:
        """What an opened application works with."""

    @abstractmethod
    def run_handle(self, run_id: str) -> RunHandle: ...

    async def list_schedules(self, *, everywhere: bool = False) -> list[ScheduleInfo]:
        """R2.19: those of the namespace in the store, or all, by next_run_at; those without come
        last."""
        runtime = self.runtime()
        query = ScheduleQuery(
            namespace=None if everywhere else self.namespace,
            sort=ScheduleSort.NEXT_RUN_AT,
            limit=None,
        )
        page = await runtime.services.schedules.find(runtime.actor, query)
        return [info_of(each) for each in page.items]

    async def get_schedule(self, name: str) -> ScheduleInfo:
        return info_of(await self._stored(name))

    async def trigger_schedule(self, name: str) -> RunHandle:
        """R2.21, C7: a run now; next_run_at stays, and a paused schedule may be run too."""
        runtime = self.runtime()
        schedules = runtime.services.schedules
        if self._in_memory(name) and await self._syncing().find(name) is None:
            store = runtime.services.store
            schedule = await self.declarations.memory_schedule(runtime, name)
            run = manual_run(schedule, await store.now())
            return self.run_handle((await store.add_runs([run]))[0].id)
        found = await self._stored(name)
        return self.run_handle((await schedules.run_now(runtime.actor, found.id)).id)

    async def reschedule_for(self, name: str, time: Moment) -> ScheduleInfo:
        """R2.22: the next run is at `time`; the past means now. Conflict while paused."""
        runtime = self.runtime()
        to = moment_of(time, "time")
        found = await self._stored(name)
        return info_of(await runtime.services.schedules.reschedule(runtime.actor, found.id, to))

    async def set_schedule_enabled(self, name: str, enabled: bool) -> ScheduleInfo:
        """R2.23, C8: no runs until it is enabled again; then from the first slot after now on."""
        runtime = self.runtime()
        schedules = runtime.services.schedules
        found = await self._stored(name)
        verb = schedules.resume if enabled else schedules.pause
        return info_of(await verb(runtime.actor, found.id))

    async def delete_schedule(self, name: str) -> bool:
        """Whether there was one. One that is declared comes back with the next sync."""
        runtime = self.runtime()
        found = await self._syncing().find(name)
        if found is None:
            return False
        try:
            await runtime.services.schedules.delete(runtime.actor, found.id)
        except NotFound:
            return False
        return True

    async def _stored(self, name: str) -> Schedule:
        if self._in_memory(name) and await self._syncing().find(name) is None:
            raise Conflict(
                _(
                    "schedule {name!r} is timed in memory: the store cannot show or change it; "
                    "declare it with mode='db'",
                    name=name,
                ),
                code="in_memory",
            )
        return await self._syncing().get(name)

    def _in_memory(self, name: str) -> bool:
        return self.declarations.modes(self.runtime()).get(name) is Mode.MEMORY

    def _syncing(self) -> Syncing:
        runtime = self.runtime()
        return Syncing(runtime.services, runtime.actor, self.namespace)


# @@ The life of an application: which settings it has, its store open, a node of it running.


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
                _(
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
            raise ChimesError(_("the application has a node already"))
        for flow in self.flows.values():
            flow.complete()
        await self.open()
        from chimes.runtime.node import Node

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


# @@ Where in the application's code a call stands.

_OURS = __name__.rpartition(".")[0]


def calling_code() -> str:
    """Of the nearest caller that is not this package, as `shop/tasks.py:12`: as much of the path
    as its module's name has parts, so that it is the same on every machine. Empty: not known."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _module_of(frame).startswith(f"{_OURS}."):
        frame = frame.f_back
    if frame is None:
        return ""
    return f"{short_path(frame.f_code.co_filename, _module_of(frame))}:{frame.f_lineno}"


def short_path(path: str, module: str) -> str:
    """`/srv/shop/tasks.py` of the module `shop.tasks` is `shop/tasks.py`."""
    parts = PurePath(path).parts
    count = module.count(".") + 1 + (PurePath(path).stem == "__init__")
    return "/".join(parts[-count:])


def _module_of(frame: FrameType) -> str:
    name = frame.f_globals.get("__name__")
    return name if isinstance(name, str) else ""


P = ParamSpec("P")
R = TypeVar("R")


class Chimes(Life):
    """An application.

        app = Chimes("postgresql://localhost/shop")

        @app.task(retries=3)
        async def send_invoice(order: int) -> str: ...

        app.schedule("invoices", "0 9 * * 1-5", send_invoice, args={"order": 1})

    `url` is what CHIMES_STORE would say; what the operator sets (flag, environment, chimes.yaml)
    wins over what the code says. Names of schedules are unique in `namespace`. `timezone` is for
    schedules that name none.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str = "catbird",
        use_db_driven_scheduling: bool | None = None,
        timezone: str | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        own = settings or Settings()
        if url is not None:
            own = replace(own, store=url)
            store_location(own)
        if use_db_driven_scheduling is not None:
            own = replace(own, use_db_driven_scheduling=use_db_driven_scheduling)
        super().__init__(own, clock)
        self.url = url
        self.namespace = clean_name(namespace, "namespace")
        self.timezone = None if timezone is None else parse_zone(timezone).name
        self.registry = Registry()
        self._flows: dict[str, AppFlow] = {}
        self.flows = self._flows
        self.declarations = Declarations(self.namespace, self.registry, self._flows)

    def __repr__(self) -> str:
        return f"<Chimes {self.namespace!r}: {len(self.registry)} tasks, {len(self.flows)} flows>"

    # --- tasks and flows ----------------------------------------------------------------------
    @overload
    def task(self, function: Callable[P, R], /) -> AppTask[P, R]: ...

    @overload
    def task(
        self, function: None = None, /, **options: Unpack[TaskOptions]
    ) -> Callable[[Callable[P, R]], AppTask[P, R]]: ...

    def task(
        self, function: Callable[..., object] | None = None, /, **options: Unpack[TaskOptions]
    ) -> object:
        """The function becomes a task, and can be called as before. Options as in docs/python.md;
        durations are text such as `90s`, a timedelta, or seconds."""

        def declare(function: Callable[..., object]) -> AppTask[..., object]:
            task = self.registry.add(task_of(function, **options))
            return AppTask(task, function, self._submit)

        return declare if function is None else declare(function)

    def flow(
        self,
        name: str,
        *,
        timeout: Duration | None = None,
        priority: int = 0,
        queue: str = DEFAULT_QUEUE,
    ) -> AppFlow:
        """A flow without steps yet; `timeout` is for all of them together."""
        if name in self._flows:
            raise AlreadyExists(
                _("two flows are named {name!r}; give one of them another name", name=name)
            )
        check_priority(priority)
        self._flows[name] = AppFlow(
            name,
            registry=self.registry,
            submit=self._submit,
            timeout=timeout,
            priority=priority,
            queue=queue,
        )
        return self._flows[name]

    async def enqueue(
        self,
        task: str,
        args: Mapping[str, object] | None = None,
        *,
        delay: Duration | None = None,
        at: Moment | None = None,
        priority: int | None = None,
        key: str | None = None,
        owner: Owner | str | None = None,
        connection: object = None,
    ) -> RunHandle:
        """A task by its name: one of this application, or one that a living node offers, with the
        options that it has there."""
        options = read_options(
            delay=delay, at=at, priority=priority, key=key, owner=owner, connection=connection
        )
        if task in self.registry:
            known = Enqueuer(self.registry.get(task), self._submit, options)
            return await known.enqueue_with(args or {})
        target = TaskTarget(name=task, args=dict(args or {}))
        check_target(target)
        own = await self.runtime().services.schedules.defaults_of(target) or usual_defaults(target)
        order = RunRequest(target=target, policy=own.policy, priority=own.priority, name=task)
        return await self._submit(order, options)

    async def _submit(self, order: RunRequest, options: EnqueueOptions) -> RunHandle:
        order = replace(order, namespace=self.namespace)
        return self.run_handle(await enqueue(self.runtime(), order, options))

    # --- schedules ----------------------------------------------------------------------------
    def schedule(
        self,
        name: str,
        trigger: Trigger | str,
        target: object,
        *,
        mode: ModeWord | None = None,
        args: Mapping[str, object] | None = None,
        input: Mapping[str, object] | None = None,
        timezone: str | None = None,
        catch_up: str | None = None,
        misfire_grace: Duration | None = None,
        catch_up_limit: int | None = None,
        overlap: str | None = None,
        max_concurrent_runs: int | None = None,
        burst_allowed: bool | None = None,
        retries: int | None = None,
        retry_backoff: Duration | None = None,
        backoff: str | None = None,
        timeout: Duration | None = None,
        on_lost: str | None = None,
        priority: int | None = None,
        labels: Mapping[str, str | None] | None = None,
        depends_on: str | None = None,
        depends_within: Duration | None = None,
        enabled: bool = True,
        jitter: str | timedelta | None = None,
        start_at: datetime | str | None = None,
        end_at: datetime | str | None = None,
        max_runs: int | None = None,
        exclude: Iterable[object] | None = None,
        owner: Owner | str | None = None,
        delivery: Iterable[Recipient | Mapping[str, object]] | None = None,
    ) -> None:
        """Declares a schedule; it is written when the application starts, or by `sync`. What is
        wrong with it is said at once.

        `trigger`: cron, `every 5m`, a moment, words (`ทุกวัน 09:00`), or a trigger. `target`: a
        task or flow of this application or its name, a URL, an HttpTarget, an AgentTarget (whose
        prompt may stand in the words), an ActionTarget, or a target as the API has it. `delivery`:
        who is told how runs end. Declared again (a new release), the same trigger keeps its
        next_run_at, a changed one is planned anew; the rest is replaced, except `enabled`, which
        only counts for a new schedule. One that somebody edited elsewhere stays as it is (ADR 33).
        """
        bounds = read_bounds(
            jitter=jitter, start_at=start_at, end_at=end_at, max_runs=max_runs, exclude=exclude
        )
        if priority is not None:
            check_priority(priority)
        found = read_target(target, args, input, registry=self.registry, flows=self.flows)
        when, task = read_trigger(trigger, timezone or self.timezone, bounds, self._clock.now())
        found = with_task(found, task)
        policy = read_policy(
            found,
            catch_up=catch_up,
            misfire_grace=misfire_grace,
            catch_up_limit=catch_up_limit,
            overlap=overlap,
            max_concurrent_runs=max_concurrent_runs,
            burst_allowed=burst_allowed,
            retries=retries,
            retry_backoff=retry_backoff,
            backoff=backoff,
            timeout=timeout,
            on_lost=on_lost,
        )
        if delivery is not None:
            policy["delivery"] = read_delivery(delivery)
        self.declarations.add(
            Declared(
                name=clean_name(name),
                trigger=when,
                target=found,
                mode=None if mode is None else word_of(Mode, mode, "mode"),
                policy=policy,
                priority=priority,
                labels=dict(labels or {}),
                enabled=enabled,
                depends_on=read_dependency(depends_on, depends_within),
                owner=None if owner is None else owner_of(owner),
                at=calling_code(),
            )
        )

    def with_scheduled_task(self, name: str, spec: str) -> None:
        """R2.17: the task of this name, on this cron spec, in the usual mode."""
        self.schedule(name, spec, f"task:{name}")

    def with_scheduled_flow(self, name: str, spec: str) -> None:
        self.schedule(name, spec, f"flow:{name}")

    def with_db_driven_schedule(self, name: str, spec: str) -> None:
        """The task or flow of this name, always timed by the store."""
        self.schedule(name, spec, name, mode="db")

    async def sync(self) -> list[ScheduleInfo]:
        """Write what is declared in mode db; those schedules as they are now. Several nodes may
        do it at once, and where nothing has changed nothing is written."""
        return [info_of(each) for each in await self.declarations.sync(self.runtime())]

    async def backfill_schedules(
        self, *, confirm: bool = False, only: Iterable[str] | None = None
    ) -> list[Backfilled]:
        """R2.7, R2.34: schedules that are timed in memory (or those named in `only`) into the
        store, where it has none of the name. Without `confirm` nothing is written: the answer
        says what would be."""
        return await self.declarations.insert(self.runtime(), only, confirm=confirm)
