"""One torture run: boot, quiet baseline, faults, heal, drain, freeze, dump, check.

Its processes run in their own sessions and are ended by pid."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chimes.clock import SystemClock
from chimes.torture import faults, history
from chimes.torture.checker import Found, check
from chimes.torture.database import Database
from chimes.torture.faults import Fault, FaultInjector
from chimes.torture.nodes import Node
from chimes.torture.processes import Connection, Process, run_to_end
from chimes.torture.proxy import Proxy
from chimes.torture.report import (
    failpoint_hits,
    injected_faults,
    make_report,
    missing_counts,
    reached_events,
)
from chimes.torture.workload import Workload

DRAIN_SECONDS = 60.0
RSS_LIMIT, FILES_LIMIT = 300.0, 512
#: Schedules at the start, by kind of store: what one machine with two cores carries.
SCHEDULES = {"json": 20}
DEFAULT_SCHEDULES = 120
#: Faults and API calls per second.
FAULT_RATE = 3.0
CALL_RATE = 6.0


@dataclass(frozen=True, kw_only=True)
class TortureRequest:
    database: Database
    seconds: float
    nodes: int
    seed: int
    #: An empty directory for the files of the run.
    directory: Path
    schedules: int = 0
    fault_rate: float = FAULT_RATE
    call_rate: float = CALL_RATE
    baseline: float = 5.0
    #: Replaces the plan of the seed.
    plan: Sequence[Fault] | None = None
    bug: str = ""
    #: Milliseconds that every call takes; 0: the usual mix.
    slow: int = 0
    command: str = ""
    progress: Callable[[str], None] = field(default=lambda phase: None)


class TortureRun:
    def __init__(self, request: TortureRequest, forks: Connection) -> None:
        self._request = request
        self._forks = forks
        self._database = request.database
        self._directory = request.directory
        self._rng = random.Random(request.seed)  # noqa: S311
        self._history = (request.directory / history.HISTORY).open("w", buffering=1)
        self._nodes: list[Node] = []
        self._proxies: list[Proxy] = []
        self._largest: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}
        self._wrong: list[Found] = []

    async def run(self) -> dict[str, Any]:
        """The report. The database has been checked to be empty."""
        request, database = self._request, self._database
        plan = request.plan
        weights, store_kinds = faults.kinds_for(database), faults.store_kinds_for(database)
        if plan is None:
            plan = faults.make_plan(
                request.seed,
                seconds=request.seconds,
                nodes=request.nodes,
                rate=request.fault_rate,
                weights=weights,
                store_kinds=store_kinds,
            )
        (self._directory / history.NODES).mkdir()
        faults.save(plan, self._directory / "plan.json")
        began = SystemClock().now()
        version = await database.version()
        try:
            async with self._receiver() as receiver:
                await self._live(receiver, plan)
            await self._dump()
        finally:
            for node in self._nodes:
                await node.kill()
            for proxy in self._proxies:
                await proxy.stop()
            self._history.close()
        self._request.progress("check")
        checked = await asyncio.to_thread(
            lambda: check(history.load(self._directory), more=self._wrong)
        )
        injected = injected_faults(self._directory)
        ambiguous = sum(proxy.ambiguous for proxy in self._proxies)
        reached = reached_events(self._directory) | {"ambiguous_commits": ambiguous}
        counted = reached | {
            "slots": checked.targets["must"],
            "faults": injected.total(),
            "fault_classes": len(injected),
        }
        missing = missing_counts(
            request.seconds / 60,
            counted,
            nodes=request.nodes,
            readable=database.readable,
            classes=len(weights),
        )
        possible = {*weights, *store_kinds}
        every = {*faults.ANYWHERE, *faults.WITH_PROXY, *faults.WITH_READABLE_PROXY}
        return make_report(
            checked,
            store=version,
            faults=injected,
            reached=reached,
            missing=missing,
            facts={
                "began_at": began.isoformat(timespec="seconds"),
                "command": request.command,
                "kind": database.kind,
                "simulated": False,
                "seed": request.seed,
                "seed_gives": "the same workload and fault plan, not the same interleaving",
                "planted_bug": request.bug,
                "nodes": request.nodes,
                "seconds": dict(self._seconds),
                "not_injected": sorted({*every, *faults.OF_THE_STORE, faults.RESTART} - possible),
                "failpoints": failpoint_hits(self._directory),
                "resources": dict(self._largest),
                "not_checked": ["deliveries", "access of owners", "bounds of the lateness"],
            },
        )

    async def _live(self, receiver: int, plan: Sequence[Fault]) -> None:
        request = self._request
        with self._timed("boot"):
            await self._boot()
        await self._note_clock()
        watching = asyncio.create_task(self._watch_usage())
        count = request.schedules or SCHEDULES.get(self._database.kind, DEFAULT_SCHEDULES)
        async with Workload(
            request.seed + 1,
            self._nodes,
            receiver,
            self._note,
            schedules=count,
            calls=request.call_rate,
            slow=request.slow,
        ) as workload:
            self._phase("baseline")
            await workload.set_up()
            await asyncio.sleep(request.baseline)
            self._phase("faults")
            with self._timed("faults"):
                await self._inject(workload, plan)
            self._phase("heal")
            await self._heal()
            with self._timed("drain"):
                await self._drain(workload)
        watching.cancel()
        self._phase("freeze")
        await self._freeze()
        await self._note_clock()

    async def _boot(self) -> None:
        self._request.progress("boot")
        database = self._database
        for index in range(self._request.nodes):
            proxy, url = None, database.url
            if database.proxied:
                proxy = Proxy(database.port, database.watch, self._rng, host=database.host)
                await proxy.start()
                self._proxies.append(proxy)
                url = database.through(proxy.port)
            bug = self._request.bug
            node = Node(index, url, self._directory, self._forks, proxy=proxy, bug=bug)
            self._nodes.append(node)
        # The first node sets the store up.
        await self._up(self._nodes[:1])
        await self._up(self._nodes[1:])

    async def _up(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            await node.start()
        for node in nodes:
            if not await node.ready():
                raise RuntimeError(f"node {node.index} ended at its start:\n{node.log_tail()}")

    async def _inject(self, workload: Workload, plan: Sequence[Fault]) -> None:
        end = time.monotonic() + self._request.seconds
        injector = FaultInjector(plan, self._nodes, self._database, self._note)
        background = [
            asyncio.create_task(workload.run()),
            asyncio.create_task(injector.restart_dead()),
        ]
        injecting = asyncio.create_task(injector.run(self._request.seconds))
        try:
            # A background task that ends before the plan has failed.
            await asyncio.wait({injecting, *background}, return_when=asyncio.FIRST_COMPLETED)
            if not any(task.done() for task in background):
                await injecting
                await asyncio.wait(background, timeout=max(0.0, end - time.monotonic()))
        finally:
            for task in (injecting, *background):
                task.cancel()
            ended = await asyncio.gather(injecting, *background, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error

    async def _heal(self) -> None:
        for node in self._nodes:
            if node.proxy is not None:
                node.proxy.set("pass")
            node.send(signal.SIGCONT)
            if not node.running:
                await node.start()
        for node in self._nodes:
            # An armed failpoint may end it at its first step.
            if not await node.ready():
                await node.start()
                await node.ready()

    async def _drain(self, workload: Workload) -> None:
        # Failpoints may still be armed.
        injector = FaultInjector((), self._nodes, self._database, self._note)
        restarting = asyncio.create_task(injector.restart_dead())
        try:
            stubborn = await workload.wind_down(2 * DRAIN_SECONDS)
            if stubborn:
                self._wrong.append(("run_without_end", f"could not be paused: {stubborn}"))
            await self._finished(workload)
        finally:
            restarting.cancel()

    async def _finished(self, workload: Workload) -> None:
        """Waits until no run is left or none has ended for a while."""
        left, deadline = -1, 0.0
        seconds = DRAIN_SECONDS if not self._request.bug else DRAIN_SECONDS / 4
        while True:
            now = await workload.backlog()
            if now == 0:
                return
            if now is not None and now != left:
                left, deadline = now, time.monotonic() + seconds
            if left >= 0 and time.monotonic() > deadline:
                return
            await asyncio.sleep(0.1)

    async def _freeze(self) -> None:
        codes = await asyncio.gather(*(node.terminate() for node in self._nodes))
        for node, code in zip(self._nodes, codes, strict=True):
            if code != 0 and not (code == -9 and node.armed):
                what = f"node {node.index} ended with {code} when it was to stop"
                self._wrong.append(("node_exited", what))
            for unasked in node.exits:
                what = f"node {node.index} ended by itself with {unasked}"
                self._wrong.append(("node_exited", what))

    async def _dump(self) -> None:
        """Exports the store with `chimes store export`."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self._directory)}
        file = str(self._directory / history.DUMP)
        done = await asyncio.to_thread(
            run_to_end,
            self._forks,
            ["store", "export", file, "--store", self._database.url],
            cwd=self._directory,
            env=environment,
            timeout=300,
        )
        if done.returncode != 0:
            raise RuntimeError(f"the store could not be exported: {done.stdout}{done.stderr}")

    @contextlib.asynccontextmanager
    async def _receiver(self) -> AsyncIterator[int]:
        theirs, ours = os.pipe()
        heard, said = os.pipe()
        try:
            process = Process(
                self._forks,
                [str(self._directory / history.CALLS)],
                env={"PATH": os.environ["PATH"]},
                cwd=self._directory,
                files=(theirs, said, 2),
                module="chimes.torture.receiver",
            )
        finally:
            os.close(theirs)
            os.close(said)
        with os.fdopen(ours, "wb", buffering=0) as until, os.fdopen(heard, "rb") as output:
            async with asyncio.timeout(30):
                port = await asyncio.to_thread(output.readline)
            try:
                yield int(port)
            finally:
                until.close()
                try:
                    async with asyncio.timeout(10):
                        await process.ended()
                except TimeoutError:
                    process.kill()

    async def _watch_usage(self) -> None:
        while True:
            for node in self._nodes:
                usage = node.usage() if node.running else None
                if usage is not None:
                    self._largest["rss_max_mib"] = max(
                        self._largest["rss_max_mib"], round(usage[0])
                    )
                    self._largest["fds_max"] = max(self._largest["fds_max"], usage[1])
                    if usage[0] > RSS_LIMIT or usage[1] > FILES_LIMIT:
                        what = f"node {node.index}: {usage[0]:.0f} MiB, {usage[1]} open files"
                        self._wrong.append(("unbounded", what))
            await asyncio.sleep(1)

    @contextlib.contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self._seconds[name] = round(time.monotonic() - began, 1)

    def _phase(self, name: str) -> None:
        self._note("phase", phase=name)
        self._request.progress(name)

    async def _note_clock(self) -> None:
        self._note("clock", offset=await self._database.clock_offset())

    def _note(self, type: str, /, **facts: Any) -> None:
        entry = {"t": time.time_ns() // 1000, "type": type, **facts}
        self._history.write(json.dumps(entry) + "\n")
