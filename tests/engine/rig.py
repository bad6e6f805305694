"""Engines on a real store, with a scripted target in this process."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar, cast

from chimes.clock import Clock, SystemClock
from chimes.config import Settings
from chimes.engine import Engine
from chimes.engine.events import Event, Events
from chimes.engine.membership import Membership, StoreClock
from chimes.engine.scheduler import Scheduler
from chimes.model.ids import RunId, ScheduleId
from chimes.model.listing import RunQuery
from chimes.model.run import AttemptEnd, Outcome, Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.notifications.base import Sender
from chimes.store.port import Planner, Store
from chimes.targets.base import Call, TargetRunner
from chimes.triggers import Every
from tests.builders import a_schedule

SUCCESS = Outcome(end=AttemptEnd.SUCCEEDED, result={"status": 200})
FAILURE = Outcome(end=AttemptEnd.FAILED, retryable=True, error="it did not work", code="http_500")
FAR = timedelta(days=365)
E = TypeVar("E")


async def until(condition: Callable[[], object], *, within: float = 60.0) -> None:
    """Waits until the condition holds."""
    async with asyncio.timeout(within):
        while True:
            if condition():
                return
            await asyncio.sleep(0.005)


async def eventually(
    question: Callable[[], Awaitable[E]], good: Callable[[E], object], *, within: float = 60.0
) -> E:
    async with asyncio.timeout(within):
        while True:
            answer = await question()
            if good(answer):
                return answer
            await asyncio.sleep(0.02)


class Recording:
    """A target that records its calls and answers by script: one outcome (or behaviour) per call,
    the last one for all further calls."""

    resumable = False
    permits = None

    def __init__(self, kind: str = "http") -> None:
        self.kind = kind
        self.capabilities = frozenset({kind})
        self.calls: list[Call] = []
        self.script: list[Outcome | Callable[[Call], Awaitable[Outcome]]] = [SUCCESS]
        self.gate = asyncio.Event()
        self.stopped: list[RunId] = []
        self.opened = self.closed = False

    async def open(self) -> None:
        self.opened = True

    async def close(self) -> None:
        self.closed = True

    async def execute(self, call: Call) -> Outcome:
        self.calls.append(call)
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        try:
            return step if isinstance(step, Outcome) else await step(call)
        except asyncio.CancelledError:
            self.stopped.append(call.run.id)
            raise

    async def wait(self, call: Call) -> Outcome:
        """A behaviour: waits until the gate opens."""
        await self.gate.wait()
        return SUCCESS

    def called(self, run_id: RunId) -> list[int]:
        """The fences with which a run was called."""
        return [call.run.fence for call in self.calls if call.run.id == run_id]


class Faults:
    """A store with a faulty connection. `down` fails all operations, `failing` single operations
    before they happen, `answer_lost` after they have; `hanging` verbs are never answered, and
    `unanswered` ones happen without an answer."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.down: Exception | None = None
        self.failing: dict[str, Exception] = {}
        self.answer_lost: dict[str, Exception] = {}
        self.hanging: set[str] = set()
        self.freed = asyncio.Event()
        self.unanswered: set[str] = set()
        self.count: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if not asyncio.iscoroutinefunction(verb):
            return verb

        async def disturbed(*args: Any, **named: Any) -> Any:
            self.count[name] += 1
            if name in self.hanging:
                await self.freed.wait()
            if self.down is not None:
                raise self.down
            if name in self.failing:
                raise self.failing[name]
            answer = await verb(*args, **named)
            if name in self.unanswered:
                await asyncio.Event().wait()
            if name in self.answer_lost:
                raise self.answer_lost.pop(name)
            return answer

        return disturbed

    @property
    def store(self) -> Store:
        return cast(Store, self)


class Rig:
    def __init__(self, store: Store, kind: str) -> None:
        self.store = store
        self.kind = kind
        self.runner = Recording()
        self.events: list[Event] = []
        self.engines: list[Engine] = []
        self.settings = Settings(
            workers=10,
            poll_interval=timedelta(seconds=0.2),
            shutdown_grace=timedelta(seconds=5),
        )

    async def engine(
        self,
        *,
        store: Store | None = None,
        runner: Recording | None = None,
        clock: Clock | None = None,
        roles: tuple[str, ...] = ("scheduler", "worker"),
        runners: Sequence[TargetRunner] = (),
        senders: Sequence[Sender] = (),
        **settings: Any,
    ) -> Engine:
        engine = Engine(
            store or self.store,
            {each.kind: each for each in (runner or self.runner, *runners)},
            settings=replace(self.settings, **settings),
            clock=clock,
            roles=roles,
            version="test",
            listeners=[self.events.append],
            senders=senders,
        )
        await engine.start()
        self.engines.append(engine)
        return engine

    async def scheduler(self, planner: Planner) -> Scheduler:
        """A scheduler without an engine, for single passes."""
        clock, events = SystemClock(), Events([self.events.append])
        time = StoreClock(self.store, clock)
        member = Membership(
            self.store,
            clock=clock,
            time=time,
            events=events,
            lease=timedelta(seconds=30),
            version="test",
            roles=("scheduler",),
            capacity=0,
        )
        await member.join()
        return Scheduler(
            self.store,
            member,
            clock=clock,
            time=time,
            events=events,
            poll=self.settings.poll_interval,
            planner=planner,
        )

    async def close(self) -> None:
        for engine in self.engines:
            await engine.drain(timedelta(0))

    def emitted(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    async def now(self) -> datetime:
        return await self.store.now()

    async def once_at(self, slot: datetime, **given: Any) -> Schedule:
        """A schedule with its next slot at `slot`, and the following one far away."""
        values = {"trigger": Every(FAR, anchor=slot), "next_slot": slot, "next_run_at": slot}
        return await self.store.add_schedule(a_schedule(**(values | given)))

    async def due_now(self, **given: Any) -> Schedule:
        return await self.once_at(await self.now(), **given)

    async def every(self, seconds: float, first: datetime, **given: Any) -> Schedule:
        trigger = Every(timedelta(seconds=seconds), anchor=first)
        values = {"trigger": trigger, "next_slot": first, "next_run_at": first}
        return await self.store.add_schedule(a_schedule(**(values | given)))

    async def runs(self, schedule: Schedule | None = None, *statuses: RunStatus) -> list[Run]:
        """Oldest slot first."""
        query = RunQuery(
            schedule_id=schedule.id if schedule else None, statuses=statuses, limit=None
        )
        found = (await self.store.list_runs(query)).items
        return sorted(found, key=lambda run: (run.planned_at, run.created_at, run.id))

    async def run(self, run_id: RunId) -> Run:
        run = await self.store.get_run(run_id)
        assert run is not None
        return run

    async def ended(self, schedule: Schedule, count: int = 1) -> list[Run]:
        """Its runs, once `count` of them have ended."""
        return await eventually(
            lambda: self.runs(schedule),
            lambda runs: sum(run.status.terminal for run in runs) >= count,
        )

    async def reached(self, run_id: RunId, status: RunStatus) -> Run:
        return await eventually(lambda: self.run(run_id), lambda run: run.status is status)

    async def schedule(self, schedule_id: ScheduleId) -> Schedule:
        found = await self.store.get_schedule(schedule_id)
        assert found is not None
        return found


class FrozenClock(SystemClock):
    """The clock of a suspended process: no time passes."""

    def __init__(self) -> None:
        super().__init__()
        self._frozen: float | None = None

    def freeze(self) -> None:
        self._frozen = super().monotonic()

    def monotonic(self) -> float:
        return super().monotonic() if self._frozen is None else self._frozen
