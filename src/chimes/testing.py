"""Test support for Chimes and applications: a clock that tests control, and a harness that runs an
application under it. docs/guides/testing.md shows how to use them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import TracebackType

    from chimes.config import Settings
    from chimes.model.run import Run
    from chimes.runtime.composition import Runtime
    from chimes.sdk.app import Chimes
    from chimes.sdk.flows import AppFlow
    from chimes.sdk.tasks import AppTask
    from chimes.store.port import Store

#: An ordinary Tuesday in every zone.
DEFAULT_NOW = datetime(2030, 1, 15, 9, 0, tzinfo=UTC)


class SettableClock:
    """Time passes only by `advance`. `set` changes the wall clock but not the monotonic clock."""

    def __init__(self, now: datetime = DEFAULT_NOW) -> None:
        self._now = _utc(now)
        self._monotonic = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, by: timedelta | float) -> datetime:
        """Advance by a timedelta or seconds, never backwards; returns the new time."""
        step = by if isinstance(by, timedelta) else timedelta(seconds=by)
        if step < timedelta(0):
            raise ValueError("cannot advance backwards; use set() to change the wall clock")
        self._now += step
        self._monotonic += step.total_seconds()
        return self._now

    def set(self, moment: datetime) -> None:
        self._now = _utc(moment)


def _utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("an aware datetime is required")
    return moment.astimezone(UTC)


#: Seconds without a change of the store after which nothing is left to do: a flow needs less to
#: enqueue its next steps.
_QUIET_SECONDS = 0.05
#: Seconds between two looks at the store while runs are in progress.
_LOOK_SECONDS = 0.02
#: Moments that `run_until` stops at, at most.
_MAX_STEPS = 10_000


class AppHarness:
    """An application on a store of its own, under a clock that stands still.

        async with AppHarness(app) as chimes:
            await welcome.options(delay="1h").enqueue("ann")
            await chimes.assert_enqueued(welcome, args={"name": "ann"})
            await chimes.run_until("1h")

    Runs are executed by a real node, which exists only during `run_due` and `run_until`: no lease
    can end while a test moves the clock.
    """

    def __init__(
        self,
        app: Chimes,
        *,
        store: str = "memory://",
        now: datetime = DEFAULT_NOW,
        settings: Settings | None = None,
    ) -> None:
        """`store`: `memory://` or `sqlite:///path`, whose time is that of the clock. `settings`:
        others than the defaults; those of the environment and of the application do not apply."""
        from chimes.config import Settings
        from chimes.errors import InvalidInput
        from chimes.i18n import _

        if not store.startswith(("memory://", "sqlite://")):
            raise InvalidInput(
                _(
                    "a test store is memory:// or sqlite:///path, not {store!r}: "
                    "a database server has a clock of its own",
                    store=store,
                ),
                field="store",
            )
        self.app = app
        self.clock = SettableClock(now)
        self._settings = replace(
            settings or Settings(poll_interval=timedelta(seconds=0.1)),
            store=store,
            roles=("scheduler", "worker"),
            # A flow that waits for a later retry of a step goes back to the queue at once.
            shutdown_grace=timedelta(0),
        )
        self._runtime: Runtime | None = None

    async def __aenter__(self) -> Self:
        from chimes.config import store_location
        from chimes.errors import ChimesError
        from chimes.i18n import _
        from chimes.runtime.composition import Runtime, build_services, build_store

        if self.app.is_open:
            raise ChimesError(
                _("the application is open already; the test store needs a closed one")
            )
        location = store_location(self._settings)
        store = build_store(location, self.clock)
        await store.open()
        try:
            services = await build_services(
                self._settings, store, self.clock, capabilities=lambda: self.app.capabilities
            )
            self._runtime = Runtime(
                settings=self._settings, location=location, clock=self.clock, services=services
            )
            self.app.attach(self._runtime)
            await self.app.sync()
        except BaseException:
            await store.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        store = self._store
        self.app.detach()
        self._runtime = None
        await store.close()

    @property
    def _store(self) -> Store:
        return self.app.runtime().services.store

    # --- executing ----------------------------------------------------------------------------
    async def run_due(self, *, check: bool = False, within: float = 60.0) -> list[Run]:
        """Fires due schedules and executes due runs until nothing is left that is due now, and
        returns the runs that ended, in the order of their ends.

        Retries that wait, delayed runs and runs of tasks that the application does not have stay.
        `check`: raises RunFailed for the first run that did not succeed. `within`: real seconds,
        after which TimeoutError names what is still running.
        """
        ended_before = {run.id for run in await self.runs() if run.status.terminal}
        await self.app.start()
        try:
            await self._wait_until_idle(within)
        finally:
            await self.app.stop()
        ended = [
            run for run in await self.runs() if run.status.terminal and run.id not in ended_before
        ]
        ended.sort(key=lambda run: (run.finished_at or self.clock.now(), run.planned_at, run.id))
        if check:
            from chimes.model.run import RunStatus
            from chimes.sdk.handles import raise_error

            for run in ended:
                if run.status is not RunStatus.SUCCEEDED:
                    raise_error(run)
        return ended

    async def run_until(
        self, until: datetime | timedelta | str, *, check: bool = False, within: float = 60.0
    ) -> list[Run]:
        """Lets time pass until the moment, or for the duration (`1h`, a timedelta), as if a worker
        was up: stops the clock at every moment at which something is due and runs it. Returns the
        runs that ended. `check`, `within` (for each moment) as in `run_due`.

        `clock.advance` jumps instead, as in an outage: missed slots follow the misfire policy.
        """
        from chimes.triggers.values import parse_duration

        target = until
        if isinstance(target, str):
            target = parse_duration(target, allow_zero=True)
        if isinstance(target, timedelta):
            target = self.clock.now() + target
        ended = await self.run_due(check=check, within=within)
        for _step in range(_MAX_STEPS):
            following = await self._next_due()
            if following is None or following > target:
                self.clock.advance(max(timedelta(0), target - self.clock.now()))
                return ended
            self.clock.advance(following - self.clock.now())
            ended += await self.run_due(check=check, within=within)
        raise TimeoutError(f"more than {_MAX_STEPS} moments until {target}")

    async def _next_due(self) -> datetime | None:
        """The first moment after now at which a schedule, a run or a notification is due."""
        from chimes.model.listing import DeliveryQuery, ScheduleQuery
        from chimes.model.notification import DeliveryState
        from chimes.model.run import SUSPENDED_PREFIX, RunStatus

        now, store = self.clock.now(), self._store
        schedules = await store.list_schedules(ScheduleQuery(enabled=True, limit=None))
        pending = DeliveryQuery(states=(DeliveryState.PENDING,), limit=None)
        moments = [
            *(each.next_run_at for each in schedules.items if each.next_run_at is not None),
            *(
                run.available_at
                for run in await self.runs(status=RunStatus.QUEUED)
                # A flow that only waits is due when its waits are.
                if not run.reason.startswith(SUSPENDED_PREFIX)
            ),
            *(each.available_at for each in (await store.list_deliveries(pending)).items),
        ]
        return min((moment for moment in moments if moment > now), default=None)

    async def _wait_until_idle(self, within: float) -> None:
        store, quiet_since = self._store, 0.0
        loop = asyncio.get_running_loop()
        deadline, seen = loop.time() + within, store.changes()
        while True:
            busy = await self._busy()
            changed, seen = store.changes() != seen, store.changes()
            if busy or changed or not quiet_since:
                quiet_since = loop.time()
            elif loop.time() - quiet_since >= _QUIET_SECONDS:
                return
            if loop.time() > deadline:
                raise TimeoutError(f"still due or running after {within:g} s: {', '.join(busy)}")
            await asyncio.sleep(_LOOK_SECONDS)

    async def _busy(self) -> list[str]:
        """What is due or running, for display."""
        from chimes.model.listing import DeliveryQuery
        from chimes.model.notification import DeliveryState
        from chimes.model.recipient import CHANNEL_SETTINGS
        from chimes.model.run import RunStatus

        now, store = self.clock.now(), self._store
        due = await store.next_due()
        busy = ["schedules"] if due is not None and due <= now else []
        node = self.app.node
        assert node is not None
        offered = frozenset().union(*(each.capabilities for each in node.runners.values()))
        active = [run for run in await self.runs() if not run.status.terminal]
        waiting_parents = {
            run.parent_id
            for run in active
            if run.status is RunStatus.QUEUED and (run.available_at > now or run.blocked)
        }
        for run in active:
            if run.status is RunStatus.QUEUED:
                is_due = run.available_at <= now and not run.blocked
                if not is_due or run.target.requirement not in offered:
                    continue
            elif run.target.kind == "flow" and run.id in waiting_parents:
                # It waits for the retry of a step.
                continue
            busy.append(f"{run.target.requirement} {run.id}")
        pending = DeliveryQuery(states=(DeliveryState.PENDING,), limit=None)
        busy += [
            f"notification {each.id}"
            for each in (await store.list_deliveries(pending)).items
            if each.available_at <= now and each.recipient.channel not in CHANNEL_SETTINGS
        ]
        return busy

    # --- looking and asserting ----------------------------------------------------------------
    async def runs(
        self,
        task: AppTask[..., Any, Any] | AppFlow[Any, Any] | str | None = None,
        *,
        status: str | None = None,
    ) -> list[Run]:
        """The runs in the store, oldest first: all, or those of a task or flow (a name: either),
        with this status."""
        from chimes.model.listing import RunQuery
        from chimes.model.run import RunStatus

        statuses = () if status is None else (RunStatus(status),)
        found = (await self._store.list_runs(RunQuery(statuses=statuses, limit=None))).items
        ours = [run for run in found if task is None or run.target.requirement in _keys(task)]
        return sorted(ours, key=lambda run: (run.created_at, run.planned_at, run.id))

    async def assert_enqueued(
        self,
        task: AppTask[..., Any, Any] | AppFlow[Any, Any] | str,
        *,
        args: Mapping[str, object] | None = None,
        count: int | None = None,
    ) -> list[Run]:
        """Raises AssertionError unless runs of the task or flow wait in the queue, also those for
        a later time. `args`: with these arguments (of a flow: this input), in their JSON form.
        `count`: exactly so many; None: at least one. Returns the runs."""
        waiting = await self.runs(task, status="queued")
        found = [run for run in waiting if args is None or arguments_of(run) == dict(args)]
        if len(found) != count if count is not None else not found:
            wanted = "a run" if count is None else f"{count} runs"
            given = "" if args is None else f" with {dict(args)!r}"
            queued = [
                f"{run.target.requirement} {arguments_of(run)!r}"
                for run in await self.runs()
                if run.status == "queued"
            ]
            raise AssertionError(
                f"expected {wanted} of {_label(task)}{given} in the queue, found {len(found)}; "
                f"the queue has: {', '.join(queued) or 'nothing'}"
            )
        return found

    async def assert_not_enqueued(
        self,
        task: AppTask[..., Any, Any] | AppFlow[Any, Any] | str,
        *,
        args: Mapping[str, object] | None = None,
    ) -> None:
        """Raises AssertionError if such a run waits in the queue."""
        await self.assert_enqueued(task, args=args, count=0)


def arguments_of(run: Run) -> dict[str, object]:
    """The arguments of a run of a task, or the input of a run of a flow."""
    from chimes.model.target import FlowTarget, TaskTarget

    match run.target:
        case TaskTarget(args=args):
            return dict(args)
        case FlowTarget(input=input):
            return dict(input)
        case _:
            return {}


def result_of(run: Run) -> object:
    """What the task of a run returned, in its JSON form."""
    result = run.result
    return result["value"] if result is not None and "value" in result else result


def _keys(task: AppTask[..., Any, Any] | AppFlow[Any, Any] | str) -> tuple[str, ...]:
    from chimes.sdk.flows import AppFlow

    if isinstance(task, str):
        return f"task:{task}", f"flow:{task}", task
    return (f"flow:{task.name}",) if isinstance(task, AppFlow) else (f"task:{task.name}",)


def _label(task: AppTask[..., Any, Any] | AppFlow[Any, Any] | str) -> str:
    return task if isinstance(task, str) else task.name
