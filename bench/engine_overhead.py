"""Cost of the engine per run: no-op runs from the queue to their completion, in one process.

    python -m bench.engine_overhead [--store stub|memory|postgresql://...] [--profile]

`stub` is a store that does almost nothing, so the engine is what remains; other stores add their
cost. Prints the medians of runs per second and CPU microseconds per run.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import statistics
import sys
import time
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import cast

from chimes.config import Settings
from chimes.engine import Engine
from chimes.engine.events import RunEnded
from chimes.engine.metrics import Metrics
from chimes.model import replace
from chimes.model.ids import NodeId, RunId, manual_run_id
from chimes.model.listing import Page, RunQuery
from chimes.model.node import HeartbeatResult, Node, NodeReport
from chimes.model.policy import Policy
from chimes.model.run import AttemptEnd, Completion, Origin, Outcome, Run, RunDefinition, claim
from chimes.model.target import TaskTarget
from chimes.store.port import ClaimRequest, CompletionResult, Store, Wakeup
from chimes.targets.base import Call

DONE = Outcome(end=AttemptEnd.SUCCEEDED)
POLICY = Policy()
TARGET = TaskTarget(name="noop")


class NoOp:
    kind = "task"
    resumable = False
    permits = None
    capabilities = frozenset({TARGET.requirement})

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        return None

    async def execute(self, call: Call) -> Outcome:
        return DONE


class StubStore:
    """The verbs that a worker calls, without any bookkeeping."""

    def __init__(self) -> None:
        self._wakeup = Wakeup()
        self.queue: deque[Run] = deque()

    async def now(self) -> datetime:
        return datetime.now(UTC)

    def changes(self) -> int:
        return self._wakeup.count

    def wake(self) -> None:
        self._wakeup.wake()

    async def wait_for_work(self, since: int, until: datetime | None) -> None:
        seconds = None if until is None else max(0.0, (until - await self.now()).total_seconds())
        await self._wakeup.wait(since, seconds)

    async def join(self, node: Node, lease: timedelta) -> Node:
        return node

    async def leave(self, node_id: NodeId) -> None:
        return None

    async def heartbeat(
        self,
        node_id: NodeId,
        lease: timedelta,
        *,
        clock: datetime,
        report: NodeReport | None = None,
    ) -> HeartbeatResult:
        return HeartbeatResult(alive=True, now=await self.now())

    async def nodes(self) -> tuple[Node, ...]:
        # The first call of the maintenance, which has nothing to do here.
        await asyncio.sleep(3600)
        return ()

    async def rescue(self, *, limit: int) -> tuple[Run, ...]:
        return ()

    async def prune_runs(self, *, before: datetime, limit: int) -> int:
        return 0

    async def list_schedules(self, query: object) -> Page[object]:
        return Page((), None)

    async def list_runs(self, query: RunQuery) -> Page[Run]:
        # Only the reconciler calls it, and it must not see the stub's runs.
        await asyncio.sleep(3600)
        return Page((), None)

    async def next_available(self) -> datetime | None:
        return self.queue[0].available_at if self.queue else None

    async def claim(self, request: ClaimRequest) -> tuple[Run, ...]:
        now = await self.now()
        count = min(request.free, len(self.queue))
        return tuple(claim(self.queue.popleft(), request.node_id, now) for _ in range(count))

    async def finish(self, completions: Sequence[Completion]) -> CompletionResult:
        return CompletionResult(
            accepted=tuple(_completed(completion) for completion in completions)
        )

    async def release(self, claims: Sequence[tuple[RunId, int]]) -> None:
        return None


def _completed(completion: Completion) -> Run:
    return replace(_SAMPLE, id=completion.run_id, status=completion.status)


def _run(now: datetime) -> Run:
    return Run(
        id=manual_run_id(now),
        definition=RunDefinition(target=TARGET, policy=POLICY),
        origin=Origin.MANUAL,
        created_at=now,
        planned_at=now,
        available_at=now,
    )


_SAMPLE = _run(datetime.now(UTC))


async def _fill(store: Store, runs: Sequence[Run]) -> None:
    for start in range(0, len(runs), 5000):
        await store.add_runs(runs[start : start + 5000])


async def one_round(name: str, count: int, workers: int) -> tuple[float, float]:
    """Seconds and CPU seconds for `count` runs."""
    left, done = count, asyncio.Event()

    def listen(event: object) -> None:
        nonlocal left
        if isinstance(event, RunEnded):
            left -= 1
            if not left:
                done.set()

    store, stub = await _open_store(name)
    now = await store.now()
    runs = [_run(now) for _ in range(count)]
    if stub is not None:
        stub.queue.extend(runs)
    else:
        await _fill(store, runs)
    engine = Engine(
        store,
        {"task": NoOp()},
        settings=Settings(workers=workers, lease=timedelta(seconds=60)),
        roles=("worker",),
        listeners=[Metrics(), listen],
    )
    began, cpu = time.perf_counter(), time.process_time()
    await engine.start()
    async with asyncio.timeout(300):
        await done.wait()
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    await engine.drain(timedelta(0))
    if stub is None:
        await store.close()
    return took, cpu


async def _open_store(name: str) -> tuple[Store, StubStore | None]:
    if name == "stub":
        stub = StubStore()
        return cast(Store, stub), stub
    if name == "memory":
        from chimes.store.memory import MemoryStore

        return MemoryStore(), None
    from chimes.store.sql import open_postgres

    store = open_postgres(name)
    await store.open()
    return store, None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", default="stub")
    parser.add_argument("--runs", type=int, default=50_000)
    parser.add_argument("--workers", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    if options.profile:
        profile = cProfile.Profile()
        profile.runcall(asyncio.run, one_round(options.store, options.runs, options.workers))
        pstats.Stats(profile, stream=sys.stdout).sort_stats("tottime").print_stats(35)
        return
    measured = [
        asyncio.run(one_round(options.store, options.runs, options.workers))
        for _ in range(options.rounds)
    ]
    rate = statistics.median(options.runs / took for took, _ in measured)
    cpu = statistics.median(cpu / options.runs * 1e6 for _, cpu in measured)
    print(
        f"{options.store}: {rate:,.0f} runs/s, {cpu:.1f} us CPU per run ({options.rounds} rounds)"
    )


if __name__ == "__main__":
    main()
