"""One torture run: boot, quiet baseline, chaos, heal, drain, freeze, dump, check. Its processes
run in their own sessions and are ended by pid."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.forking import Forked
from tests.system.torture import collector, nemesis
from tests.system.torture.checker import check
from tests.system.torture.nemesis import Fault, Nemesis
from tests.system.torture.nodes import TortureNode
from tests.system.torture.profiles import Profile
from tests.system.torture.proxy import Proxy
from tests.system.torture.slots import Found
from tests.system.torture.stores import StoreRunner
from tests.system.torture.summary import summary
from tests.system.torture.workload import Workload

DRAIN_SECONDS = 60.0
RSS_LIMIT, FILES_LIMIT = 300.0, 512


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    store: str
    seed: int
    nodes: int
    seconds: float
    profile: Profile
    out: Path
    plan: Sequence[Fault]
    mutant: str = ""


class Conductor:
    def __init__(self, request: RunRequest) -> None:
        self._request = request
        self._out = request.out
        self._rng = random.Random(request.seed)
        self._history = (request.out / collector.HISTORY).open("w", buffering=1)
        self._nodes: list[TortureNode] = []
        self._proxies: list[Proxy] = []
        self._store = StoreRunner(request.store, request.out)
        self._largest: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}
        self._wrong: list[Found] = []

    async def run(self) -> dict[str, Any]:
        request = self._request
        (self._out / collector.NODES).mkdir()
        nemesis.save(request.plan, self._out / "plan.json")
        await asyncio.to_thread(self._store.start)
        version = await asyncio.to_thread(self._store.describe)
        try:
            async with self._sink() as sink:
                await self._live(sink)
            await collector.dump(self._store.url, self._out)
        finally:
            for node in self._nodes:
                await node.kill()
            for proxy in self._proxies:
                await proxy.stop()
            self._history.close()
            await asyncio.to_thread(self._store.stop)
        report = check(collector.load(self._out), more=self._wrong)
        return summary(
            request,
            version,
            report,
            self._seconds,
            ambiguous=sum(proxy.ambiguous for proxy in self._proxies),
            largest=self._largest,
        )

    async def _live(self, sink: int) -> None:
        request, profile = self._request, self._request.profile
        with self._timed("boot"):
            await self._boot()
        watching = asyncio.create_task(self._watch_usage())
        async with Workload(
            request.seed + 1,
            self._nodes,
            sink,
            self._note,
            schedules=profile.schedules,
            calls=profile.calls,
        ) as workload:
            self._phase("baseline")
            await workload.set_up()
            await asyncio.sleep(profile.baseline)
            self._phase("chaos")
            with self._timed("chaos"):
                await self._chaos(workload)
            self._phase("heal")
            await self._heal()
            with self._timed("drain"):
                await self._drain(workload)
        watching.cancel()
        self._phase("freeze")
        await self._freeze()

    async def _boot(self) -> None:
        for index in range(self._request.nodes):
            proxy, url = None, self._store.url
            if self._store.server is not None:
                proxy = Proxy(self._store.server.port, self._store.watch, self._rng)
                await proxy.start()
                self._proxies.append(proxy)
                url = self._store.through(proxy.port)
            node = TortureNode(index, url, self._out, proxy=proxy, mutant=self._request.mutant)
            self._nodes.append(node)
        # The first node sets the store up.
        await self._up(self._nodes[:1])
        await self._up(self._nodes[1:])

    async def _up(self, nodes: Sequence[TortureNode]) -> None:
        for node in nodes:
            await node.start()
        for node in nodes:
            if not await node.ready():
                raise RuntimeError(f"node {node.index} ended at its start:\n{node.log_tail()}")

    async def _chaos(self, workload: Workload) -> None:
        end = time.monotonic() + self._request.seconds
        fiend = Nemesis(self._request.plan, self._nodes, self._store, self._note)
        background = [asyncio.create_task(workload.run()), asyncio.create_task(fiend.keep())]
        harm = asyncio.create_task(fiend.run(self._request.seconds))
        try:
            # A background task that ends before the plan has failed.
            await asyncio.wait({harm, *background}, return_when=asyncio.FIRST_COMPLETED)
            await harm
            await asyncio.wait(background, timeout=max(0.0, end - time.monotonic()))
        finally:
            for task in (harm, *background):
                task.cancel()
            ended = await asyncio.gather(harm, *background, return_exceptions=True)
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
        keeper = asyncio.create_task(
            Nemesis((), self._nodes, self._store, self._note).keep()
        )  # failpoints may still be armed
        try:
            stubborn = await workload.wind_down(2 * DRAIN_SECONDS)
            if stubborn:
                self._wrong.append(("run_without_end", f"could not be paused: {stubborn}"))
            await self._finished(workload)
        finally:
            keeper.cancel()

    async def _finished(self, workload: Workload) -> None:
        """Waits until no run is left or none has ended for a minute."""
        left, deadline = -1, 0.0
        while True:
            now = await workload.backlog()
            if now == 0:
                return
            if now is not None and now != left:
                left, deadline = now, time.monotonic() + DRAIN_SECONDS
            if left >= 0 and time.monotonic() > deadline:
                return
            await asyncio.sleep(0.1)

    async def _freeze(self) -> None:
        codes = await asyncio.gather(*(node.terminate() for node in self._nodes))
        for node, code in zip(self._nodes, codes, strict=True):
            if code != 0 and not (code == -9 and node.armed):
                self._wrong.append(
                    ("node_exited", f"node {node.index} ended with {code}, asked to stop")
                )
            for unasked in node.exits:
                self._wrong.append(
                    ("node_exited", f"node {node.index} ended by itself with {unasked}")
                )

    @contextlib.asynccontextmanager
    async def _sink(self) -> AsyncIterator[int]:
        theirs, ours = os.pipe()
        heard, said = os.pipe()
        try:
            process = Forked(
                [str(self._out / collector.SINK)],
                env={"PATH": os.environ["PATH"]},
                cwd=self._out,
                files=(theirs, said, 2),
                module="tests.system.torture.sink",
            )
        finally:
            os.close(theirs)
            os.close(said)
        with os.fdopen(ours, "wb", buffering=0) as until, os.fdopen(heard, "rb") as output:
            port = await asyncio.wait_for(asyncio.to_thread(output.readline), 30)
            try:
                yield int(port)
            finally:
                until.close()
                try:
                    await asyncio.wait_for(process.ended(), 10)
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
    def _timed(self, name: str) -> Any:
        began = time.monotonic()
        yield
        self._seconds[name] = round(time.monotonic() - began, 1)

    def _phase(self, name: str) -> None:
        self._note("phase", phase=name)

    def _note(self, type: str, /, **facts: Any) -> None:
        entry = {"t": time.time_ns() // 1000, "type": type, **facts}
        self._history.write(json.dumps(entry) + "\n")
