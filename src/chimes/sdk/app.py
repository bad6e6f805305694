"""The SDK application: `Chimes` declares tasks, flows and schedules and runs a node for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import fields, replace
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack, overload

from chimes.clock import Clock, SystemClock
from chimes.config import LoadedSettings, Settings, load_settings, store_location
from chimes.config.loader import DEFAULT
from chimes.errors import AlreadyExists, ChimesError, Conflict, NotFound
from chimes.i18n import _
from chimes.log import configure_logging
from chimes.model.access import Owner
from chimes.model.ids import DEFAULT_NAMESPACE, RunId, canonical_namespace
from chimes.model.listing import ScheduleQuery, ScheduleSort
from chimes.model.planning import manual_run
from chimes.model.policy import RunDefaults
from chimes.model.recipient import Recipient
from chimes.model.schedule import Schedule
from chimes.model.target import TaskTarget
from chimes.model.validation import check_priority, check_target, clean_name
from chimes.runtime.composition import Runtime, build_services, build_store
from chimes.runtime.signals import loop_factory, stop_gracefully, stop_signals
from chimes.sdk.arguments import Duration, Moment, parse_owner, to_datetime, to_enum
from chimes.sdk.capabilities import AppCapabilities
from chimes.sdk.declare import (
    Declaration,
    Mode,
    ModeWord,
    call_site,
    parse_bounds,
    parse_dependency,
    parse_policy,
    parse_recipients,
    parse_target,
    parse_trigger,
    with_prompt,
)
from chimes.sdk.flows import AppFlow, I_contra, O_co
from chimes.sdk.handles import RunHandle, ScheduleInfo, schedule_info
from chimes.sdk.reconcile import BackfillResult, Declarations, ScheduleReconciler
from chimes.sdk.tasks import (
    AppTask,
    EnqueueOptions,
    Enqueuer,
    TaskDecorator,
    TaskOptions,
    build_task,
    enqueue,
    enqueue_options,
)
from chimes.services.runs import RunRequest, traced
from chimes.services.schedules.rules import fallback_run_defaults
from chimes.targets.python.invocation import capture_prints
from chimes.targets.python.registry import DEFAULT_QUEUE, Registry
from chimes.triggers import Trigger, parse_zone

if TYPE_CHECKING:
    from chimes.runtime.node import Node

P = ParamSpec("P")
R = TypeVar("R")


class Chimes:
    """An application.

        app = Chimes("postgresql://localhost/shop")

        @app.task(retries=3)
        async def send_invoice(order: int) -> str: ...

        app.schedule("invoices", "0 9 * * 1-5", send_invoice, args={"order": 1})

    `url` has the form of CHIMES_STORE. Settings of the operator (flag, environment, chimes.yaml)
    take precedence over those in the code. Names of schedules are unique in `namespace`.
    `timezone` is the zone of schedules that name none.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        use_db_driven_scheduling: bool | None = None,
        timezone: str | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        code_settings = settings or Settings()
        if url is not None:
            code_settings = replace(code_settings, store=url)
            store_location(code_settings)
        if use_db_driven_scheduling is not None:
            code_settings = replace(
                code_settings, use_db_driven_scheduling=use_db_driven_scheduling
            )
        self._code_settings = code_settings
        self._clock = clock or SystemClock()
        self._runtime: Runtime | None = None
        self._open_count = 0
        self._node: Node | None = None
        self.url = url
        self.namespace = canonical_namespace(clean_name(namespace, "namespace"))
        self.timezone = None if timezone is None else parse_zone(timezone).name
        self.registry = Registry()
        self._flows: dict[str, AppFlow[Any, Any]] = {}
        self.flows: Mapping[str, AppFlow[Any, Any]] = self._flows
        self.declarations = Declarations(self.namespace, self.registry, self._flows)

    def __repr__(self) -> str:
        return f"<Chimes {self.namespace!r}: {len(self.registry)} tasks, {len(self.flows)} flows>"

    # --- tasks and flows ----------------------------------------------------------------------
    @overload
    def task(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AppTask[P, R, Coroutine[None, None, R]]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> AppTask[P, R, R]: ...

    @overload
    def task(self, function: None = None, /, **options: Unpack[TaskOptions]) -> TaskDecorator: ...

    def task(
        self, function: Callable[..., object] | None = None, /, **options: Unpack[TaskOptions]
    ) -> object:
        """Decorator that declares a function as a task; it can still be called as a function.

        docs/python.md describes the options. A duration is text such as `90s`, a timedelta, or a
        number of seconds.
        """

        def declare(function: Callable[..., object]) -> AppTask[..., object, object]:
            task = self.registry.add(build_task(function, **options))
            return AppTask(task, function, self._submit)

        return declare if function is None else declare(function)

    def flow(
        self,
        name: str,
        *,
        timeout: Duration | None = None,
        priority: int = 0,
        queue: str = DEFAULT_QUEUE,
    ) -> AppFlow[I_contra, O_co]:
        """Declares a flow, still without steps; `timeout` covers all steps together."""
        if name in self._flows:
            raise AlreadyExists(
                _("two flows are named {name!r}; give one of them another name", name=name)
            )
        check_priority(priority)
        flow: AppFlow[I_contra, O_co] = AppFlow(
            name,
            registry=self.registry,
            submit=self._submit,
            timeout=timeout,
            priority=priority,
            queue=queue,
        )
        self._flows[name] = flow
        return flow

    @property
    def capabilities(self) -> Mapping[str, RunDefaults]:
        """Capabilities of this application's nodes, with their run defaults."""
        return AppCapabilities(self.registry, self.flows)

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
        """Enqueues a task by name: one of this application, or one that a live node of another
        application executes, with the options that it has there."""
        options = enqueue_options(
            delay=delay, at=at, priority=priority, key=key, owner=owner, connection=connection
        )
        if task in self.registry:
            enqueuer: Enqueuer[..., object]
            enqueuer = Enqueuer(self.registry.get(task), self._submit, options)
            return await enqueuer.enqueue_with(args or {})
        target = TaskTarget(name=task, args=dict(args or {}))
        check_target(target)
        schedules = self.runtime().services.schedules
        defaults = await schedules.rules.get_run_defaults(target) or fallback_run_defaults(target)
        request = RunRequest(
            target=target, policy=defaults.policy, priority=defaults.priority, name=task
        )
        return await self._submit(request, options)

    async def _submit(self, request: RunRequest, options: EnqueueOptions) -> RunHandle:
        request = replace(request, namespace=self.namespace)
        return self.run_handle(await enqueue(self.runtime(), request, options))

    def run_handle(self, run_id: str) -> RunHandle:
        """A handle on a run from its id."""
        return RunHandle(RunId(run_id), self.runtime)

    # --- declaring schedules ------------------------------------------------------------------
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
        limits: Iterable[str] | None = None,
        auto_pause_after: int | None = None,
        end_after_successes: int | None = None,
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
        """Declares a schedule. It is written when the application starts, or by `sync`; invalid
        arguments raise InvalidInput at once.

        `trigger`: a cron expression, `every 5m`, a time, natural language (`ทุกวัน 09:00`), or a
        trigger object. `target`: a task or flow of this application or its name, a URL, a target
        object, or a target in the JSON form of the API. `delivery`: who is notified when runs end.

        When a new release declares it again, an unchanged trigger keeps its next_run_at, a changed
        one is planned from now. Everything else is replaced, except `enabled`, which counts only
        for a new schedule. A schedule that was edited elsewhere keeps its definition (ADR 33).
        """
        arguments = locals()
        bounds = parse_bounds(
            jitter=jitter, start_at=start_at, end_at=end_at, max_runs=max_runs, exclude=exclude
        )
        if priority is not None:
            check_priority(priority)
        run_target = parse_target(target, args, input, registry=self.registry, flows=self.flows)
        when, prompt = parse_trigger(trigger, timezone or self.timezone, bounds, self._clock.now())
        run_target = with_prompt(run_target, prompt)
        policy = parse_policy(run_target, arguments)
        if delivery is not None:
            policy["delivery"] = parse_recipients(delivery)
        self.declarations.add(
            Declaration(
                name=clean_name(name),
                trigger=when,
                target=run_target,
                mode=None if mode is None else to_enum(Mode, mode, "mode"),
                policy=policy,
                priority=priority,
                labels=dict(labels or {}),
                enabled=enabled,
                depends_on=parse_dependency(depends_on, depends_within),
                owner=None if owner is None else parse_owner(owner),
                at=call_site(),
            )
        )

    def with_scheduled_task(self, name: str, spec: str) -> None:
        """Schedules the task of this name with a cron expression, in the default mode."""
        self.schedule(name, spec, f"task:{name}")

    def with_scheduled_flow(self, name: str, spec: str) -> None:
        """Schedules the flow of this name with a cron expression, in the default mode."""
        self.schedule(name, spec, f"flow:{name}")

    def with_db_driven_schedule(self, name: str, spec: str) -> None:
        """Schedules the task or flow of this name with a cron expression, in mode db."""
        self.schedule(name, spec, name, mode="db")

    async def sync(self) -> list[ScheduleInfo]:
        """Writes the declared schedules of mode db and returns them. Several nodes may do it at
        once; unchanged schedules are not written."""
        return [schedule_info(each) for each in await self.declarations.sync(self.runtime())]

    async def backfill_schedules(
        self, *, confirm: bool = False, only: Iterable[str] | None = None
    ) -> list[BackfillResult]:
        """Writes the declared schedules of mode memory (or those named in `only`) into the store,
        unless their name is taken. Without `confirm` nothing is written; the result shows what
        would be."""
        return await self.declarations.backfill(self.runtime(), only, confirm=confirm)

    # --- schedules in the store ---------------------------------------------------------------
    async def list_schedules(self, *, everywhere: bool = False) -> list[ScheduleInfo]:
        """Schedules of the namespace, or of all namespaces, by next_run_at; those without come
        last."""
        runtime = self.runtime()
        query = ScheduleQuery(
            namespace=None if everywhere else self.namespace,
            sort=ScheduleSort.NEXT_RUN_AT,
            limit=None,
        )
        page = await runtime.services.schedules.find(runtime.actor, query)
        return [schedule_info(each) for each in page.items]

    async def get_schedule(self, name: str) -> ScheduleInfo:
        return schedule_info(await self._get_stored(name))

    async def trigger_schedule(self, name: str) -> RunHandle:
        """Enqueues a run now, also of a paused schedule; next_run_at does not change."""
        runtime = self.runtime()
        if self._in_memory(name) and await self._reconciler().find(name) is None:
            store = runtime.services.store
            schedule = await self.declarations.memory_schedule(runtime, name)
            run = traced(manual_run(schedule, await store.now()))
            return self.run_handle((await store.add_runs([run]))[0].id)
        stored = await self._get_stored(name)
        run = await runtime.services.manual_runs.run_now(runtime.actor, stored.id)
        return self.run_handle(run.id)

    async def reschedule_for(self, name: str, time: Moment) -> ScheduleInfo:
        """Moves the next run to `time`; a past time means now. Conflict while paused."""
        runtime = self.runtime()
        to = to_datetime(time, "time")
        stored = await self._get_stored(name)
        schedules = runtime.services.schedules
        return schedule_info(await schedules.reschedule(runtime.actor, stored.id, to))

    async def set_schedule_enabled(self, name: str, enabled: bool) -> ScheduleInfo:
        """Pauses or resumes a schedule; a resumed one fires from its first slot after now."""
        runtime = self.runtime()
        schedules = runtime.services.schedules
        stored = await self._get_stored(name)
        change = schedules.resume if enabled else schedules.pause
        return schedule_info(await change(runtime.actor, stored.id))

    async def delete_schedule(self, name: str) -> bool:
        """False if there is none. A declared schedule is created again by the next sync."""
        runtime = self.runtime()
        stored = await self._reconciler().find(name)
        if stored is None:
            return False
        try:
            await runtime.services.schedules.delete(runtime.actor, stored.id)
        except NotFound:
            return False
        return True

    async def _get_stored(self, name: str) -> Schedule:
        if self._in_memory(name) and await self._reconciler().find(name) is None:
            raise Conflict(
                _(
                    "schedule {name!r} is timed in memory, so it cannot be read or changed in the "
                    "store; declare it with mode='db'",
                    name=name,
                ),
                code="in_memory",
            )
        return await self._reconciler().get(name)

    def _in_memory(self, name: str) -> bool:
        return self.declarations.modes(self.runtime()).get(name) is Mode.MEMORY

    def _reconciler(self) -> ScheduleReconciler:
        runtime = self.runtime()
        return ScheduleReconciler(runtime.services, runtime.actor, self.namespace)

    # --- waiting flows ------------------------------------------------------------------------
    async def send_event(
        self, name: str, data: object = None, *, key: str = "", event_id: str = ""
    ) -> tuple[str, ...]:
        """Sends an event to flows that wait for it, or were started and come to their wait within a
        day. A repeated `event_id` is the same event. Returns the ids of the runs of the steps that
        received it now."""
        from chimes.services.waits import FlowEvents

        runtime = self.runtime()
        _event, run_ids = await FlowEvents(runtime.services.store).send(
            runtime.actor, name, key=key, data=data, event_id=event_id
        )
        return run_ids

    async def approve(self, approval_id: str, *, reason: str = "") -> None:
        """Lets a waiting flow go on. Conflict if the approval was decided or has expired."""
        await self._decide(approval_id, "approve", reason)

    async def reject(self, approval_id: str, *, reason: str = "") -> None:
        """Rejects the step of a waiting flow; Conflict likewise."""
        await self._decide(approval_id, "reject", reason)

    async def _decide(self, approval_id: str, decision: str, reason: str) -> None:
        from chimes.model.wait import Decision
        from chimes.services.waits import ApprovalService

        runtime = self.runtime()
        await ApprovalService(runtime.services.store).decide(
            runtime.actor, approval_id, Decision(decision), reason=reason
        )

    # --- lifecycle: settings, store, node -----------------------------------------------------
    def load(
        self,
        *,
        flags: Mapping[str, object] = MappingProxyType({}),
        config_file: Path | None = None,
    ) -> LoadedSettings:
        """Settings of the operator (flags, environment, chimes.yaml), completed by those in the
        code."""
        loaded = load_settings(flags=flags, config_file=config_file)
        unset = {
            field.name: getattr(self._code_settings, field.name)
            for field in fields(Settings)
            if loaded.origins[field.name] == DEFAULT
        }
        return replace(loaded, settings=replace(loaded.settings, **unset))

    def runtime(self) -> Runtime:
        """The open runtime. ChimesError if the application is not open."""
        if self._runtime is None:
            raise ChimesError(
                _(
                    "the application is not open: use it within `async with app:`, "
                    "or after `await app.start()`"
                )
            )
        return self._runtime

    @property
    def is_open(self) -> bool:
        return self._runtime is not None

    def attach(self, runtime: Runtime) -> None:
        """Uses a runtime that the caller opened and will close."""
        self._runtime = runtime
        self._open_count += 1

    def detach(self) -> None:
        self._open_count -= 1
        if not self._open_count:
            self._runtime = None

    async def open(self, settings: Settings | None = None) -> Self:
        """Opens the store without a node: enough to enqueue, to manage schedules and to wait for
        results. Nested calls are counted. `settings` replaces those of `load`."""
        if self._runtime is not None:
            self._open_count += 1
            return self
        settings = settings or self.load().settings
        location = store_location(settings)
        store = build_store(location, self._clock)
        await store.open()
        try:
            services = await build_services(
                settings, store, self._clock, capabilities=lambda: self.capabilities
            )
        except BaseException:
            await store.close()
            raise
        self.attach(
            Runtime(settings=settings, location=location, clock=self._clock, services=services)
        )
        return self

    async def close(self) -> None:
        if self._open_count == 1:
            store = self.runtime().services.store
            self.detach()
            await store.close()
        elif self._open_count:
            self._open_count -= 1

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def node(self) -> Node | None:
        """The node that `start` created."""
        return self._node

    async def start(self, *, queues: Collection[str] | None = None) -> None:
        """Starts a node in this process: it writes the declarations, fires due schedules and
        executes runs. With `queues`, only tasks of these queues."""
        if self._node is not None:
            raise ChimesError(_("the application has a node already; call stop() first"))
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
        """Drains the node: waits for running tasks up to the shutdown grace, then leaves."""
        node = self._node
        if node is None:
            return
        await node.drain()
        if self._node is node:
            self._node = None
            await self.close()

    def run(self, *, queues: Collection[str] | None = None) -> None:
        """Runs `start` until SIGINT or SIGTERM, then `stop`; a second signal stops at once."""
        loaded = self.load()
        settings = loaded.settings
        configure_logging(settings.log_level, settings.log_format, secrets=loaded.secrets)
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(self._run_until_signal(queues))

    async def _run_until_signal(self, queues: Collection[str] | None) -> None:
        signaled = asyncio.Event()
        with capture_prints(), stop_signals(signaled.set):
            await self.start(queues=queues)
            await signaled.wait()
            signaled.clear()
            await stop_gracefully(self.stop, signaled)
