"""Faults: the plan, generated from the seed, and its execution."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.system.torture.nodes import LEASE, TortureNode
from tests.system.torture.stores import StoreRunner

#: Faults are injected in windows with quiet periods between them.
WINDOW, QUIET = 8.0, 1.6
STORE = -1
#: Failpoints at which a node is killed, suspended past its lease, or loses an answer.
FAILPOINTS = (
    "fire.before_commit@{turn}:kill",
    "fire.after@{turn}:kill",
    "fire.after@{turn}:drop_answer",
    "claim.after:kill",
    "claim.after:drop_answer",
    "run.claimed@{turn}:kill",
    "run.started@{turn}:kill",
    "run.before_effect@{turn}:stop:{long}",
    "run.before_record@{turn}:stop:{long}",
    "run.before_record@{turn}:kill",
    "run.after_record@{turn}:kill",
)
#: Weights of the kinds of faults; those with a server or proxy are left out without one.
ANYWHERE = {"kill9": 4, "stop_long": 3, "stop_short": 3, "failpoint": 6, "sigterm": 1}
WITH_PROXY = {"cut": 3, "ambiguous": 4, "blackhole": 2, "delay": 2, "truncate": 1, "clock": 2}
WITH_SERVER = ("restart_fast", "restart_crash", "store_pause")
EVERY_STORE_FAULT = 25.0


@dataclass(frozen=True)
class Fault:
    at: float
    kind: str
    node: int
    seconds: float
    #: Failpoints, or the offset of a clock.
    detail: str = ""


def make_plan(
    seed: int, *, seconds: float, nodes: int, rate: float, server: bool, kinds: Sequence[str] = ()
) -> list[Fault]:
    """About `rate` faults per second. At most nodes - 1 nodes have a fault at once, and none
    during a fault of the store. `kinds` restricts the kinds."""
    rng = random.Random(seed)
    weights = dict(ANYWHERE) | (WITH_PROXY if server else {"lock": 2})
    if kinds:
        weights = dict.fromkeys(kinds, 1)
    plan: list[Fault] = []
    start, since_store = 0.0, 0.0
    while start < seconds - 1:
        end = min(start + WINDOW, seconds)
        free = [start] * nodes
        at = start + rng.uniform(0, 1 / rate)
        whole = end == start + WINDOW
        if server and not kinds and whole and start - since_store >= EVERY_STORE_FAULT / 2:
            kind = WITH_SERVER[len(plan) % len(WITH_SERVER)]
            seconds_down = round(rng.uniform(0.5, 2.0), 3)
            plan.append(Fault(round(start + 0.1, 3), kind, STORE, seconds_down))
            since_store, at = start + EVERY_STORE_FAULT / 2, start + 3.5
            free = [at] * nodes
        while at < end:
            fault = _fault(rng, weights, at, nodes, free, end)
            if fault is not None:
                plan.append(fault)
                free[fault.node] = at + fault.seconds + _recovery(fault)
            at += rng.expovariate(rate * (WINDOW + QUIET) / WINDOW)
        start = end + QUIET
    return plan


def _fault(
    rng: random.Random,
    weights: dict[str, int],
    at: float,
    nodes: int,
    free: list[float],
    end: float,
) -> Fault | None:
    healthy = [node for node in range(nodes) if free[node] <= at]
    if nodes > 1 and len(healthy) < 2:
        return None
    if not healthy:
        return None
    for _ in range(4):
        kind = rng.choices(list(weights), list(weights.values()))[0]
        seconds = _seconds(rng, kind)
        if at + seconds <= end + 0.5 * QUIET:
            break
    else:
        return None
    detail = ""
    if kind == "failpoint":
        point = rng.choice(FAILPOINTS)
        detail = point.format(turn=rng.randint(2, 12), long=f"{2 * LEASE:.1f}")
    elif kind == "clock":
        detail = str(rng.choice((-3600, -600, -5, 5, 600, 3600)))
    elif kind == "delay":
        detail = f"{rng.uniform(0.02, 0.4):.3f}"
    elif kind == "truncate":
        detail = str(rng.randint(200, 20_000))
    return Fault(round(at, 3), kind, rng.choice(healthy), round(seconds, 3), detail)


def _seconds(rng: random.Random, kind: str) -> float:
    """Duration of a fault: longer or shorter than the lease where that matters."""
    shares = {"stop_long": (1.1, 1.6), "blackhole": (1.1, 1.6), "stop_short": (0.1, 0.7)}
    if kind in shares:
        return rng.uniform(*shares[kind]) * LEASE
    spans = {"delay": (1.0, 2.0), "truncate": (0.5, 1.5), "lock": (0.3, 1.5), "ambiguous": (1, 1)}
    return rng.uniform(*spans.get(kind, (0.1, 0.8)))


def _recovery(fault: Fault) -> float:
    """Approximate time until the node has recovered."""
    if fault.kind == "failpoint":
        return 3.5 + (2 * LEASE if "stop" in fault.detail else 0)
    return 1.5 if fault.kind in ("kill9", "sigterm", "clock") else 0.3


def save(plan: Sequence[Fault], path: Path) -> None:
    path.write_text(json.dumps([asdict(fault) for fault in plan], indent=1) + "\n")


def read(path: Path) -> list[Fault]:
    return [Fault(**entry) for entry in json.loads(path.read_text())]


class Nemesis:
    def __init__(
        self,
        plan: Sequence[Fault],
        nodes: Sequence[TortureNode],
        store: StoreRunner,
        note: Callable[..., None],
    ) -> None:
        self._plan = plan
        self._nodes = nodes
        self._store = store
        self._note = note
        #: At least one node stays healthy.
        self._victims = asyncio.Semaphore(max(1, len(nodes) - 1))

    async def run(self, seconds: float) -> None:
        """Executes the plan and returns after the last fault has ended. Faults that could not begin
        in time are left out."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.TaskGroup() as faults:
            for number, fault in enumerate(self._plan):
                await asyncio.sleep(max(0.0, began + fault.at - loop.time()))
                faults.create_task(self._execute(number, fault, began + seconds))

    async def _execute(self, number: int, fault: Fault, end: float) -> None:
        if fault.node == STORE:
            self._begins(number, fault)
            await self._store.harm(fault.kind, fault.seconds)
            self._note("fault over", number=number)
            return
        node = self._nodes[fault.node]
        async with node.lock, self._victims:
            if asyncio.get_running_loop().time() > end:
                return
            self._begins(number, fault)
            if fault.kind == "lock":
                await self._store.lock(fault.seconds)
            else:
                await self._inject(fault, node)
            self._note("fault over", number=number)

    def _begins(self, number: int, fault: Fault) -> None:
        self._note("fault", number=number, kind=fault.kind, node=fault.node, detail=fault.detail)

    async def _inject(self, fault: Fault, node: TortureNode) -> None:
        match fault.kind:
            case "kill9" | "failpoint" | "clock":
                await node.kill()
                await asyncio.sleep(fault.seconds)
                await self._restart(node, fault)
            case "sigterm":
                await node.terminate()
                await asyncio.sleep(fault.seconds)
                await self._restart(node, fault)
            case "stop_long" | "stop_short":
                node.send(signal.SIGSTOP)
                await asyncio.sleep(fault.seconds)
                node.send(signal.SIGCONT)
            case mode:
                assert node.proxy is not None
                node.proxy.set(mode, float(fault.detail or 0))
                await asyncio.sleep(fault.seconds)
                node.proxy.set("pass")

    async def keep(self) -> None:
        """Restarts dead nodes until it is cancelled."""
        while True:
            for node in self._nodes:
                if not node.running and not node.lock.locked():
                    async with node.lock:
                        await node.start()
                        await node.ready()
            await asyncio.sleep(0.2)

    async def _restart(self, node: TortureNode, fault: Fault) -> None:
        failpoints = fault.detail if fault.kind == "failpoint" else ""
        clock = float(fault.detail) if fault.kind == "clock" else 0.0
        await node.start(failpoints=failpoints, clock=clock)
        if "kill" in failpoints and await node.ready():
            # The failpoint ends it, and `keep` restarts it.
            await node.exits_within(within=3.5)
        else:
            await node.ready()
