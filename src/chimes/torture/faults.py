"""Faults of a torture run: the plan, generated from the seed, and its execution."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from chimes.torture.database import Database
from chimes.torture.nodes import LEASE, Node

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
#: Weights of the kinds of faults. Short ones are frequent.
ANYWHERE = {"kill9": 4, "stop_long": 1, "stop_short": 5, "failpoint": 4, "sigterm": 1}
WITH_PROXY = {"cut": 6, "blackhole": 1, "delay": 4, "truncate": 3, "clock": 1}
#: Needs a proxy that can read what is sent.
WITH_READABLE_PROXY = {"ambiguous": 5}
#: Faults of the store: all connections of all nodes at once, or a restart of the server.
OF_THE_STORE = ("store_cut", "store_blackhole")
RESTART = "restart"
SECONDS_BETWEEN_STORE_FAULTS = 12.5


@dataclass(frozen=True)
class Fault:
    at: float
    kind: str
    node: int
    seconds: float
    #: Failpoints, or the offset of a clock.
    detail: str = ""


def kinds_for(database: Database) -> dict[str, int]:
    """The kinds of faults of a node that can be injected, with their weights."""
    weights = dict(ANYWHERE)
    if database.proxied:
        weights |= WITH_PROXY
    if database.readable:
        weights |= WITH_READABLE_PROXY
    if database.kind == "sqlite":
        weights["lock"] = 2
    return weights


def store_kinds_for(database: Database) -> tuple[str, ...]:
    found = OF_THE_STORE if database.proxied else ()
    return (*found, RESTART) if database.restart_command else found


def make_plan(
    seed: int,
    *,
    seconds: float,
    nodes: int,
    rate: float,
    weights: dict[str, int],
    store_kinds: Sequence[str] = (),
) -> list[Fault]:
    """About `rate` faults per second. At most nodes - 1 nodes have a fault at once, and none
    during a fault of the store. It begins with faults that reach a late completion for any
    seed."""
    rng = random.Random(seed)  # noqa: S311
    plan: list[Fault] = []
    start, since_store, count = 0.0, 0.0, 0
    while start < seconds - 1:
        end = min(start + WINDOW, seconds)
        free = [start] * nodes
        at = start + rng.uniform(0, 1 / rate)
        whole = end == start + WINDOW
        due = start - since_store >= SECONDS_BETWEEN_STORE_FAULTS
        if start == 0 and nodes > 1 and "failpoint" in weights:
            for node in range(min(2, nodes - 1)):
                first = Fault(0.3 + 0.3 * node, "failpoint", node, 0.1, _late(4 + 2 * node))
                plan.append(first)
                free[node] = end
        if store_kinds and whole and due:
            kind = store_kinds[count % len(store_kinds)]
            seconds_down = round(rng.uniform(0.3, 2.0), 3)
            plan.append(Fault(round(start + 0.1, 3), kind, STORE, seconds_down))
            count, since_store, at = count + 1, start, start + seconds_down + 0.5
            free = [at] * nodes
        while at < end:
            fault = _fault(rng, weights, at, nodes, free, end)
            if fault is not None:
                plan.append(fault)
                free[fault.node] = at + fault.seconds + _recovery(fault)
            at += rng.expovariate(rate * (WINDOW + QUIET) / WINDOW)
        start = end + QUIET
    return sorted(plan, key=lambda fault: fault.at)


def _late(turn: int) -> str:
    return f"run.before_record@{turn}:stop:{1.5 * LEASE:.1f}"


def _fault(
    rng: random.Random,
    weights: dict[str, int],
    at: float,
    nodes: int,
    free: list[float],
    end: float,
) -> Fault | None:
    healthy = [node for node in range(nodes) if free[node] <= at]
    if not healthy or (nodes > 1 and len(healthy) < 2):
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
        detail = point.format(turn=rng.randint(2, 12), long=f"{1.5 * LEASE:.1f}")
    elif kind == "clock":
        detail = str(rng.choice((-3600, -600, -5, 5, 600, 3600)))
    elif kind == "delay":
        detail = f"{rng.uniform(0.02, 0.3):.3f}"
    elif kind == "truncate":
        detail = str(rng.randint(200, 20_000))
    return Fault(round(at, 3), kind, rng.choice(healthy), round(seconds, 3), detail)


def _seconds(rng: random.Random, kind: str) -> float:
    """Duration of a fault: longer or shorter than the lease where that matters."""
    shares = {"stop_long": (1.1, 1.6), "blackhole": (1.1, 1.6), "stop_short": (0.03, 0.4)}
    if kind in shares:
        return rng.uniform(*shares[kind]) * LEASE
    spans = {"delay": (0.3, 1.2), "truncate": (0.3, 0.9), "cut": (0.05, 0.4), "ambiguous": (1, 1)}
    return rng.uniform(*spans.get(kind, (0.1, 0.6)))


def _recovery(fault: Fault) -> float:
    """Approximate time until the node has recovered."""
    if fault.kind == "failpoint":
        return 2.5 + (1.5 * LEASE if "stop" in fault.detail else 0)
    return 1.0 if fault.kind in ("kill9", "sigterm", "clock") else 0.15


def save(plan: Sequence[Fault], path: Path) -> None:
    path.write_text(json.dumps([asdict(fault) for fault in plan], indent=1) + "\n")


def read(path: Path) -> list[Fault]:
    return [Fault(**entry) for entry in json.loads(path.read_text())]


class FaultInjector:
    def __init__(
        self,
        plan: Sequence[Fault],
        nodes: Sequence[Node],
        database: Database,
        note: Callable[..., None],
    ) -> None:
        self._plan = plan
        self._nodes = nodes
        self._database = database
        self._note = note
        #: At least one node stays healthy.
        self._harmed = asyncio.Semaphore(max(1, len(nodes) - 1))

    async def run(self, seconds: float) -> None:
        """Executes the plan and returns after the last fault has ended. Faults that could not begin
        in time are left out."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.TaskGroup() as faults:
                for number, fault in enumerate(self._plan):
                    await asyncio.sleep(max(0.0, began + fault.at - loop.time()))
                    faults.create_task(self._execute(number, fault, began + seconds))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _execute(self, number: int, fault: Fault, end: float) -> None:
        if fault.node == STORE:
            self._begins(number, fault)
            await self._harm_store(fault)
            self._note("fault over", number=number)
            return
        node = self._nodes[fault.node]
        async with node.lock, self._harmed:
            if asyncio.get_running_loop().time() > end:
                return
            self._begins(number, fault)
            if fault.kind == "lock":
                await self._database.lock(fault.seconds)
            else:
                await self._inject(fault, node)
            self._note("fault over", number=number)

    def _begins(self, number: int, fault: Fault) -> None:
        self._note("fault", number=number, kind=fault.kind, node=fault.node, detail=fault.detail)

    async def _harm_store(self, fault: Fault) -> None:
        if fault.kind == RESTART:
            await self._database.restart()
            return
        proxies = [node.proxy for node in self._nodes if node.proxy is not None]
        for proxy in proxies:
            proxy.set(fault.kind.removeprefix("store_"))
        await asyncio.sleep(fault.seconds)
        for proxy in proxies:
            proxy.set("pass")

    async def _inject(self, fault: Fault, node: Node) -> None:
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
                if mode == "ambiguous":
                    await node.proxy.answer_lost(fault.seconds)
                else:
                    await asyncio.sleep(fault.seconds)
                node.proxy.set("pass")

    async def restart_dead(self) -> None:
        """Restarts dead nodes until it is cancelled."""
        while True:
            for node in self._nodes:
                if not node.running and not node.lock.locked():
                    async with node.lock:
                        await node.start()
                        await node.ready()
            await asyncio.sleep(0.2)

    async def _restart(self, node: Node, fault: Fault) -> None:
        failpoints = fault.detail if fault.kind == "failpoint" else ""
        clock = float(fault.detail) if fault.kind == "clock" else 0.0
        await node.start(failpoints=failpoints, clock=clock)
        if "kill" in failpoints and await node.ready():
            # The failpoint ends it, and `restart_dead` restarts it.
            await node.exits_within(within=2.5)
        else:
            await node.ready()
