"""The Python SDK: an application that has tasks and flows and declares when they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import ParamSpec, TypeVar, Unpack, overload

from chimes.app.calling import calling_code
from chimes.app.declarations import Backfilled, Declarations
from chimes.app.declared import Declared, Mode, ModeWord
from chimes.app.declaring import (
    read_bounds,
    read_delivery,
    read_dependency,
    read_policy,
    read_target,
    read_trigger,
    with_task,
)
from chimes.app.enqueuing import enqueue
from chimes.app.flows import AppFlow
from chimes.app.handles import RunHandle
from chimes.app.info import ScheduleInfo, info_of
from chimes.app.life import Life
from chimes.app.reading import Duration, Moment, word_of
from chimes.app.tasks import (
    AppTask,
    EnqueueOptions,
    Enqueuer,
    TaskOptions,
    owner_of,
    read_options,
    task_of,
)
from chimes.clock import Clock
from chimes.config import Settings, store_location
from chimes.errors import AlreadyExists
from chimes.model.access import Owner
from chimes.model.recipient import Recipient
from chimes.model.target import TaskTarget
from chimes.model.target_rules import check_target
from chimes.service.orders import Order
from chimes.service.rules import check_priority, clean_name
from chimes.service.targets import usual_defaults
from chimes.targets.python_task.registry import (
    DEFAULT_QUEUE,
    Registry,
)
from chimes.triggers import Trigger, parse_zone
from chimes.wording import say

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
                say("two flows are named {name!r}; give one of them another name", name=name)
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
        order = Order(target=target, policy=own.policy, priority=own.priority, name=task)
        return await self._submit(order, options)

    async def _submit(self, order: Order, options: EnqueueOptions) -> RunHandle:
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
