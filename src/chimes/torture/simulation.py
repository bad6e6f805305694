"""A deterministic simulation: engines of several nodes in one process, on one memory store, under a
virtual clock.

The engines, the services and the store are those of the product. The simulation replaces what is
around them: the clock, the event loop, the connection between a node and the store, and the
receiver of calls. A seed decides the interleaving of the nodes, the latency of every store call,
the workload and the faults, so the same seed gives the same history.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from chimes.clock import SystemClock, to_micros
from chimes.config import Settings
from chimes.engine import Engine
from chimes.engine.events import (
    AttemptAbandoned,
    CompletionFenced,
    Event,
    NodeLost,
    RunEnded,
    RunRescued,
    RunRetrying,
)
from chimes.errors import ChimesError, StoreUnavailable
from chimes.model import replace
from chimes.model.access import SYSTEM_OWNER, Actor
from chimes.model.ids import NodeId, RunId, ScheduleId
from chimes.model.policy import Misfire, OnLost, Overlap, Policy
from chimes.model.run import AttemptEnd, Outcome, Run
from chimes.model.schedule import Schedule
from chimes.model.target import HttpTarget
from chimes.runtime.composition import Services, build_services
from chimes.store.codec.records import run_to_plain
from chimes.store.codec.values import schedule_to_plain
from chimes.store.memory import MemoryStore
from chimes.store.port import Store
from chimes.targets.base import Call
from chimes.torture.checker import Report, check
from chimes.torture.history import (
    Case,
    Effect,
    FaultSpan,
    ObservedRun,
    RunLogLine,
    Trigger,
    Version,
    run_from,
    schedule_from,
    version_from,
)
from chimes.torture.planted_bugs import planted
from chimes.torture.report import make_report
from chimes.torture.virtual_loop import VirtualLoop, context_of, current_node
from chimes.triggers import trigger_from_dict

START = datetime(2030, 1, 15, 9, 0, tzinfo=UTC)
LEASE = 6.0
SETTINGS = Settings(
    lease=timedelta(seconds=LEASE),
    poll_interval=timedelta(seconds=0.5),
    workers=12,
    shutdown_grace=timedelta(seconds=3),
)
ACTOR = Actor(owner=SYSTEM_OWNER)
#: Virtual seconds of faults, of the drain at most, and of an API call.
FAULT_SECONDS = 60.0
DRAIN_SECONDS = 600.0
CALL_SECONDS = 4.0
NODES = 3
SCHEDULES = 40
#: Mean virtual seconds between two faults and between two API calls.
FAULT_EVERY = 0.9
CALL_EVERY = 0.4
#: Weights of the faults.
FAULTS = {
    "crash": 4,
    "crash_before_commit": 4,
    "crash_after_commit": 4,
    "lost_answer": 6,
    "stall_short": 4,
    "stall_long": 3,
    "stall_after_commit": 3,
    "cut": 4,
    "blackhole": 2,
    "slow": 3,
    "clock": 3,
    "drain": 2,
    "store_cut": 1,
}
CLOCK_OFFSETS = (-3600.0, -600.0, -5.0, 0.0, 5.0, 600.0, 3600.0)


def _policy(**more: Any) -> Policy:
    return Policy(
        **{
            "misfire": Misfire.ALL,
            "overlap": Overlap.ALLOW,
            "timeout": timedelta(seconds=10),
            "max_retries": 0,
            **more,
        }
    )


#: What a call does, and the policy of its schedule.
BEHAVIOURS = (
    ("hook", _policy()),
    ("slow", _policy(overlap=Overlap.SKIP)),
    ("slow", _policy(overlap=Overlap.QUEUE)),
    ("long", _policy()),
    ("slow", _policy(on_lost=OnLost.STOP)),
    ("flaky", _policy(max_retries=2, retry_backoff=timedelta(milliseconds=200))),
    ("fail", _policy(max_retries=1, retry_backoff=timedelta(milliseconds=100))),
)
BEHAVIOUR_WEIGHTS = (12, 1, 1, 2, 1, 1, 1)
#: Verbs that write.
WRITES = ("fire_due", "claim", "start", "finish", "release", "join", "add_runs", "change_schedule")


class VirtualClock:
    """`offset`: by how many seconds it is wrong."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.offset = 0.0

    def now(self) -> datetime:
        return START + timedelta(seconds=self._loop.time() + self.offset)

    def monotonic(self) -> float:
        return self._loop.time()


class Link:
    """The connection of one node to the store: adds latency and faults to every call."""

    def __init__(self, world: Simulation, node: SimulatedNode) -> None:
        self._world = world
        self._node = node
        #: `pass`, `cut`, `blackhole` or `slow`.
        self.mode = "pass"
        #: The writing call from now on at which the fault happens; 0: none.
        self.turn = 0
        self.fault = ""

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._world.store, name)
        if name == "wait_for_work" or not asyncio.iscoroutinefunction(verb):
            return verb

        async def call(*args: Any, **named: Any) -> Any:
            return await self._call(name, verb, args, named)

        setattr(self, name, call)
        return call

    async def _call(
        self, name: str, verb: Callable[..., Awaitable[Any]], args: Any, named: Any
    ) -> Any:
        world, rng = self._world, self._world.rng
        fault = self._due_fault(name)
        seconds = rng.uniform(0.0002, 0.004) if self.mode != "slow" else rng.uniform(0.1, 1.5)
        if self.mode == "cut":
            raise StoreUnavailable("the connection was closed")
        if self.mode == "blackhole":
            await self._node.healed.wait()
            raise StoreUnavailable("no answer")
        # The latency is before or after the transaction: a node can stall or die on both sides.
        before = rng.random() < 0.5
        if before:
            await asyncio.sleep(seconds)
        if fault == "crash_before_commit":
            await self._die()
        answer = await world.execute(self._node, verb, args, named)
        if fault == "crash_after_commit":
            await self._die()
        if fault == "stall_after_commit":
            world.stall(self._node)
            await asyncio.sleep(0)  # continues when the node does
        if fault == "lost_answer":
            world.reached["lost_answers"] += 1
            raise StoreUnavailable("the answer was lost")
        if not before:
            await asyncio.sleep(seconds)
        if self.mode == "cut":
            raise StoreUnavailable("the connection was closed")
        return answer

    def _due_fault(self, name: str) -> str:
        if not self.turn or name not in WRITES:
            return ""
        self.turn -= 1
        return "" if self.turn else self.fault

    async def _die(self) -> None:
        self._world.reached["crashes_in_calls"] += 1
        self._node.die()
        await asyncio.Event().wait()  # a dead node never continues


class Receiver:
    """The target of all calls: records them and answers as the URL says."""

    kind = "http"
    resumable = False
    permits = None
    capabilities = frozenset({"http"})

    def __init__(self, world: Simulation) -> None:
        self._world = world

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def execute(self, call: Call) -> Outcome:
        world, run = self._world, call.run
        await asyncio.sleep(world.rng.uniform(0.0005, 0.02))
        assert isinstance(run.target, HttpTarget)
        *_, behaviour, schedule_id = run.target.url.split("/")
        world.effects.append(
            Effect(
                at=world.now(),
                began=to_micros(call.triggered_at),
                run_id=run.id,
                schedule_id=schedule_id,
                slot=to_micros(run.slot or run.planned_at),
                fence=run.fence,
                attempt=run.attempt,
                node=str(current_node()),
                path=f"/{behaviour}/{schedule_id}",
            )
        )
        seconds = {"slow": 0.9, "long": 4.0}.get(behaviour, 0.01) * world.rng.uniform(0.5, 1.5)
        await asyncio.sleep(seconds)
        if behaviour == "fail" or (behaviour == "flaky" and run.attempt == 1):
            return Outcome(end=AttemptEnd.FAILED, retryable=True, error="500", code="http_500")
        return Outcome(end=AttemptEnd.SUCCEEDED, result={"status": 200})


class SimulatedNode:
    """A node: one engine after the other, each with an identity of its own."""

    def __init__(self, world: Simulation, index: int) -> None:
        self.world = world
        self.index = index
        self.number = 0
        self.alive = False
        self.busy = False
        self.clock = VirtualClock(world.loop)
        self.healed = asyncio.Event()
        self.link = Link(world, self)
        self.engine: Engine | None = None
        self.services: Services | None = None
        self._ids = 0

    def start(self) -> None:
        self.number = self.world.new_number()
        self.alive = True
        self.healed = asyncio.Event()
        self.link = Link(self.world, self)
        self.engine = self.services = None
        self.world.loop.create_task(self._boot(), context=context_of(self.number))

    async def _boot(self) -> None:
        world = self.world
        while True:
            try:
                engine = Engine(
                    cast(Store, self.link),
                    {"http": Receiver(world)},
                    settings=SETTINGS,
                    clock=self.clock,
                    roles=("scheduler", "worker"),
                    node_id=self._new_id(),
                    node_ids=self._new_id,
                    version="simulated",
                    listeners=[world.listen],
                    rng=random.Random(world.rng.random()),  # noqa: S311
                    heartbeat_thread=False,
                )
                await engine.start()
                self.services = await build_services(SETTINGS, cast(Store, self.link), self.clock)
                self.engine = engine
                return
            except StoreUnavailable:
                await asyncio.sleep(0.5)

    def _new_id(self) -> NodeId:
        self._ids += 1
        return NodeId(f"node-{self.number}-{self._ids}")

    def die(self) -> None:
        self.alive = False
        self.services = None
        self.world.loop.kill(self.number)

    async def drain(self) -> None:
        engine, self.services = self.engine, None
        if engine is not None:
            await self.world.on_node(self, engine.drain(), within=60.0)
        self.die()


class Simulation:
    def __init__(self, seed: int, *, nodes: int = NODES, bug: str = "") -> None:
        self.seed = seed
        self.rng = random.Random(seed)  # noqa: S311
        self.loop = VirtualLoop(seed)
        self._clock = VirtualClock(self.loop)
        self._node_clock = bug == "node_clock"
        self.store = MemoryStore(self._clock)
        self._numbers = 0
        self.nodes = [SimulatedNode(self, index) for index in range(nodes)]
        self.effects: list[Effect] = []
        self.reached: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self._fault_spans: list[FaultSpan] = []
        self._log_lines: list[RunLogLine] = []
        self._observed: list[ObservedRun] = []
        self._versions: list[Version] = []
        self._triggers: dict[str, Trigger] = {}
        self._idle: list[str] = []
        self._doubtful: set[str] = set()
        #: Requests without an answer yet, and their nodes.
        self._requests: dict[asyncio.Task[Any], int] = {}
        self._made = 0
        self._healed = 0

    # --- used by nodes ------------------------------------------------------------------------
    def now(self) -> int:
        return to_micros(START) + round(self.loop.time() * 1_000_000)

    def new_number(self) -> int:
        self._numbers += 1
        return self._numbers

    async def execute(
        self, node: SimulatedNode, verb: Callable[..., Awaitable[Any]], args: Any, named: Any
    ) -> Any:
        """One transaction; no other step comes in between."""
        if self._node_clock:
            self._clock.offset = node.clock.offset
        try:
            return await verb(*args, **named)
        finally:
            self._clock.offset = 0.0

    def stall(self, node: SimulatedNode) -> None:
        """Suspends the node for longer than its lease."""
        self.reached["stalls_in_calls"] += 1
        self.loop.suspend(node.number)
        seconds = LEASE * self.rng.uniform(1.05, 1.6)
        self.loop.call_later(seconds, self.loop.resume, node.number, context=context_of(0))

    def listen(self, event: Event) -> None:
        match event:
            case RunEnded():
                self._log("run ended", event.run)
            case RunRescued():
                self.reached["takeovers"] += 1
                self._log("rescued", event.run)
            case CompletionFenced():
                self.reached["fenced_writes"] += 1
            case RunRetrying():
                self.reached["retries"] += 1
            case NodeLost():
                self.reached["leases_lost"] += 1
            case AttemptAbandoned():
                self.reached["trust_stops"] += 1

    def _log(self, event: str, run: Run) -> None:
        line = RunLogLine(
            at=self.now(), event=event, run_id=run.id, fence=run.fence, status=run.status
        )
        self._log_lines.append(line)

    async def on_node(self, node: SimulatedNode, work: Any, *, within: float = CALL_SECONDS) -> Any:
        """Runs a coroutine as part of a node; None without an answer in time."""
        done = asyncio.Event()
        task = self.loop.create_task(work, context=context_of(node.number))
        self._requests[task] = node.number

        def end(task: asyncio.Task[Any]) -> None:
            del self._requests[task]
            done.set()

        task.add_done_callback(end, context=context_of(0))
        try:
            # Not `wait_for`: in Python 3.11 it drops a cancellation that comes with the answer.
            async with asyncio.timeout(within):
                await done.wait()
        except TimeoutError:
            return None
        error = task.exception()
        if error is None:
            return task.result()
        if isinstance(error, ChimesError):
            return error
        raise error

    # --- phases -------------------------------------------------------------------------------
    def run(self) -> Case:
        collecting = gc.isenabled()
        # Collection would run the clean-up of dead nodes at a time that the seed does not decide.
        gc.disable()
        try:
            return self.loop.run(self._run())
        finally:
            if collecting:
                gc.enable()

    async def _run(self) -> Case:
        for node in self.nodes:
            node.start()
        await asyncio.sleep(1)
        for _ in range(SCHEDULES):
            await self._create()
        background = [
            asyncio.create_task(self._call_often()),
            asyncio.create_task(self._observe()),
        ]
        await self._inject()
        await self._stop_clients(background)
        self._healed = self.now()
        await self._wind_down()
        await self._finished()
        if self.loop.errors:
            raise RuntimeError(self.loop.errors[0])
        return await self._case()

    async def _stop_clients(self, clients: Sequence[asyncio.Task[None]]) -> None:
        """Waits for the nodes' answers, too: a request that takes effect later could undo a pause
        of the wind-down."""
        for client in clients:
            client.cancel()
        for ended in await asyncio.gather(*clients, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended
        end = self.loop.time() + DRAIN_SECONDS
        while self.loop.time() < end:
            alive = {node.number for node in self.nodes if node.alive}
            if alive.isdisjoint(self._requests.values()):
                break
            await asyncio.sleep(0.1)

    async def _wind_down(self) -> None:
        left = sorted({*self._idle, *self._doubtful})
        end = self.loop.time() + DRAIN_SECONDS
        while left and self.loop.time() < end:
            left = [each for each in left if not await self._pause(each)]

    async def _pause(self, schedule_id: str) -> bool:
        services = self._some_services()
        if services is None:
            await asyncio.sleep(0.5)
            return False
        node, found = services
        answer = await self.on_node(
            node, found.schedules.pause(ACTOR, ScheduleId(schedule_id), note="the end")
        )
        if isinstance(answer, Schedule):
            self._known(answer)
        return answer is not None and not isinstance(answer, StoreUnavailable)

    async def _finished(self) -> None:
        """Until no run is left, or none can end any more."""
        end = self.loop.time() + DRAIN_SECONDS
        while self.loop.time() < end:
            counts = (await self.store.counts()).runs
            if not any(count for status, count in counts.items() if not status.terminal):
                break
            await asyncio.sleep(1)
        await asyncio.sleep(1)

    async def _case(self) -> Case:
        schedules, runs = {}, []
        async for item in self.store.dump():
            if isinstance(item, Schedule):
                found = schedule_from(schedule_to_plain(item))
                schedules[found.id] = found
            elif isinstance(item, Run):
                runs.append(run_from(run_to_plain(item)))
        return Case(
            versions=tuple(self._versions),
            triggers=tuple(self._triggers.values()),
            log_lines=tuple(self._log_lines),
            observed=tuple(self._observed),
            fault_spans=tuple(self._fault_spans),
            effects=tuple(self.effects),
            schedules=schedules,
            runs=tuple(runs),
            healed=self._healed,
            stopped=self.now(),
            aftermath=round((LEASE + 1.5) * 1_000_000),
        )

    # --- faults -------------------------------------------------------------------------------
    async def _inject(self) -> None:
        end = self.loop.time() + FAULT_SECONDS
        pending: set[asyncio.Task[None]] = set()
        while True:
            await asyncio.sleep(self.rng.expovariate(1 / FAULT_EVERY))
            if self.loop.time() >= end:
                break
            kind = self.rng.choices(list(FAULTS), list(FAULTS.values()))[0]
            task = asyncio.create_task(self._fault(kind))
            pending.add(task)
            task.add_done_callback(pending.discard)
        while pending:
            await asyncio.wait(set(pending))

    async def _fault(self, kind: str) -> None:
        healthy = [node for node in self.nodes if not node.busy]
        if kind == "store_cut":
            chosen = healthy
        else:
            # One node stays healthy.
            chosen = [self.rng.choice(healthy)] if len(healthy) > 1 else []
        if not chosen:
            return
        begin = self.now()
        self.faults[kind] += 1
        for node in chosen:
            node.busy = True
        try:
            await asyncio.gather(*(self._harm(node, kind) for node in chosen))
        finally:
            for node in chosen:
                node.busy = False
        span = FaultSpan(kind=kind, node=chosen[0].index, begin=begin, end=self.now())
        self._fault_spans.append(span)

    async def _harm(self, node: SimulatedNode, kind: str) -> None:
        rng, loop = self.rng, self.loop
        match kind:
            case "crash":
                node.die()
            case "crash_before_commit" | "crash_after_commit" | "lost_answer":
                node.link.fault, node.link.turn = kind, rng.randint(1, 12)
                await asyncio.sleep(rng.uniform(0.5, 2.0))
                node.link.turn = 0
            case "stall_after_commit":
                node.link.fault, node.link.turn = kind, rng.randint(1, 12)
                await asyncio.sleep(2.0 + 1.6 * LEASE)
                node.link.turn = 0
            case "stall_short" | "stall_long":
                share = (0.02, 0.6) if kind == "stall_short" else (1.05, 1.6)
                loop.suspend(node.number)
                await asyncio.sleep(LEASE * rng.uniform(*share))
                loop.resume(node.number)
            case "clock":
                # The planted bug would make up for an hour of slots.
                offsets = (-5.0, 5.0) if self._node_clock else CLOCK_OFFSETS
                node.clock.offset = rng.choice(offsets)
                await asyncio.sleep(0.1)
            case "drain":
                await node.drain()
            case _:
                node.link.mode = kind.removeprefix("store_")
                long = 1.5 * LEASE if kind == "blackhole" else LEASE / 2
                await asyncio.sleep(rng.uniform(0.05, long))
                node.link.mode = "pass"
                node.healed.set()
                node.healed = asyncio.Event()
        if not node.alive:
            await asyncio.sleep(rng.uniform(0.1, 2.0))
            node.start()

    # --- workload -----------------------------------------------------------------------------
    async def _call_often(self) -> None:
        while True:
            await asyncio.sleep(self.rng.expovariate(1 / CALL_EVERY))
            verb = self.rng.choices(
                ("run", "edit", "pause", "resume", "create", "delete", "read"),
                (4, 3, 2, 3, 2, 1, 2),
            )[0]
            if verb == "create":
                await self._create()
            elif verb == "read":
                await self._read()
            elif self._idle:
                await self._change(verb, self._idle.pop(self.rng.randrange(len(self._idle))))

    async def _create(self) -> None:
        self._made += 1
        schedule_id = f"s{self._made:04}"
        draft = self._draft(schedule_id)
        self._doubtful.add(schedule_id)
        await self._ask(lambda services: services.schedules.create(ACTOR, draft))

    async def _change(self, verb: str, schedule_id: str) -> None:
        known = ScheduleId(schedule_id)
        self._doubtful.add(schedule_id)
        if verb == "run":
            run_id = RunId(f"manual-{len(self._triggers):04}")
            trigger = Trigger(schedule_id=schedule_id, key=run_id)
            self._triggers[run_id] = trigger
            for _ in range(3):
                answer = await self._ask(
                    lambda services: services.manual_runs.run_now(ACTOR, known, run_id=run_id)
                )
                if isinstance(answer, Run):
                    self._triggers[run_id] = replace_trigger(trigger, answer.id)
                    break
            self._doubtful.discard(schedule_id)
            self._idle.append(schedule_id)
            return
        trigger_now = trigger_from_dict(self._timing())
        calls: Mapping[str, Callable[[Services], Awaitable[Any]]] = {
            "edit": lambda services: services.schedules.change(
                ACTOR, known, lambda before: replace(before, trigger=trigger_now)
            ),
            "pause": lambda services: services.schedules.pause(ACTOR, known),
            "resume": lambda services: services.schedules.resume(ACTOR, known),
            "delete": lambda services: services.schedules.delete(ACTOR, known),
        }
        await self._ask(calls[verb])

    async def _read(self) -> None:
        """Finds out what became of a change without an answer."""
        if self._doubtful:
            chosen = ScheduleId(self.rng.choice(sorted(self._doubtful)))
            await self._ask(
                lambda services: services.schedules.get(ACTOR, chosen), acknowledged=False
            )

    async def _ask(
        self, request: Callable[[Services], Awaitable[Any]], *, acknowledged: bool = True
    ) -> Any:
        services = self._some_services()
        if services is None:
            return None
        node, found = services
        answer = await self.on_node(node, request(found))
        if isinstance(answer, Schedule):
            self._known(answer, acknowledged=acknowledged)
        return answer

    def _some_services(self) -> tuple[SimulatedNode, Services] | None:
        ready = [node for node in self.nodes if node.alive and node.services is not None]
        if not ready:
            return None
        node = self.rng.choice(ready)
        assert node.services is not None
        return node, node.services

    def _known(self, schedule: Schedule, *, acknowledged: bool = True) -> None:
        found = version_from(schedule_to_plain(schedule), acknowledged=acknowledged)
        self._versions.append(found)
        self._doubtful.discard(schedule.id)
        if schedule.deleted_at is None and schedule.id not in self._idle:
            self._idle.append(schedule.id)

    async def _observe(self) -> None:
        """Records ended runs, which must not change."""
        while True:
            await asyncio.sleep(5)
            for run in self.store._state.runs.values():
                if run.status.terminal:
                    seen = ObservedRun(
                        at=self.now(), run_id=run.id, status=run.status, fence=run.fence
                    )
                    self._observed.append(seen)

    def _draft(self, schedule_id: str) -> Schedule:
        behaviour, policy = self.rng.choices(BEHAVIOURS, BEHAVIOUR_WEIGHTS)[0]
        return Schedule(
            id=ScheduleId(schedule_id),
            name=f"simulated {schedule_id}",
            trigger=trigger_from_dict(self._timing()),
            target=HttpTarget(url=f"http://127.0.0.1:9/{behaviour}/{schedule_id}"),
            policy=policy,
            created_at=START,
            updated_at=START,
        )

    def _timing(self) -> dict[str, Any]:
        if self.rng.random() < 0.25:
            seconds = self.rng.choice(("*/2", "*/3", "*/5", "1-59/4", "0,7,20,33,46", "*"))
            return {"kind": "cron", "expression": f"{seconds} * * * * *", "timezone": "UTC"}
        every = self.rng.choice((1000, 1500, 2000, 2500, 3000, 4000, 5000))
        anchor = START - timedelta(milliseconds=self.rng.randrange(10_000))
        return {"kind": "every", "every": f"{every}ms", "anchor": anchor.isoformat()}


def replace_trigger(trigger: Trigger, run_id: str) -> Trigger:
    return Trigger(schedule_id=trigger.schedule_id, key=trigger.key, run_id=run_id)


def simulate(seed: int, *, nodes: int = NODES, bug: str = "") -> tuple[Report, Simulation, str]:
    """The checked history of a seed, and its digest: equal for equal seeds."""
    with planted(bug):
        world = Simulation(seed, nodes=nodes, bug=bug)
        case = world.run()
    return check(case), world, digest(case)


def simulate_seeds(
    seeds: Sequence[int],
    *,
    nodes: int = NODES,
    bug: str = "",
    command: str = "",
    progress: Callable[[int], None] = lambda seed: None,
) -> dict[str, Any]:
    """The report of several seeds: the counts are sums, the lateness is the worst of them."""
    began = SystemClock().now()
    faults: Counter[str] = Counter()
    reached: Counter[str] = Counter()
    digests = hashlib.sha256()
    merged: Report | None = None
    for seed in seeds:
        found, world, history = simulate(seed, nodes=nodes, bug=bug)
        merged = found if merged is None else _sum(merged, found)
        faults += world.faults
        reached += world.reached
        digests.update(history.encode())
        progress(seed)
    assert merged is not None, "no seeds"
    wanted = ("takeovers", "fenced_writes", "lost_answers", "crashes_in_calls")
    missing = [f"{name}: 0 of 1" for name in wanted if not reached[name]]
    return make_report(
        merged,
        store="memory",
        faults=faults,
        reached=reached,
        missing=missing,
        facts={
            "began_at": began.isoformat(timespec="seconds"),
            "command": command,
            "kind": "simulation",
            "simulated": True,
            "seeds": f"{seeds[0]}-{seeds[-1]}",
            "seed_gives": "the same history",
            "digest": digests.hexdigest(),
            "planted_bug": bug,
            "nodes": nodes,
        },
    )


def _sum(one: Report, other: Report) -> Report:
    def added(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
        return {name: a[name] + b[name] for name in a}

    late = {name: max(one.latency_s[name], other.latency_s[name]) for name in one.latency_s}
    return Report(
        violations={kind: one.violations[kind] + other.violations[kind] for kind in one.violations},
        targets=added(one.targets, other.targets),
        runs=added(one.runs, other.runs),
        effects=added(one.effects, other.effects),
        latency_s=late,
    )


def digest(case: Case) -> str:
    lines: Iterable[str] = (
        *(repr(effect) for effect in case.effects),
        *(repr(run) for run in sorted(case.runs, key=lambda run: run.id)),
        *(repr(line) for line in case.log_lines),
        *(repr(version) for version in case.versions),
        *(repr(span) for span in case.fault_spans),
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
