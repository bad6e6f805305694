"""What the engine costs per run: no-op runs from the queue to their verdict, in one process.

    python -m bench.engine_overhead [--store handy|memory|postgresql://...] [--profile]

`handy` is a store that costs next to nothing, so that what is left is the engine; the others add
their own work. Prints runs per second and CPU microseconds per run, the median of the rounds.
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
from chimes.model.change import replace
from chimes.model.ids import NodeId, RunId, manual_run_id
from chimes.model.listing import Page, RunQuery
from chimes.model.node import HeartbeatResult, Node
from chimes.model.policy import Policy
from chimes.model.run import AttemptEnd, Completion, Origin, Outcome, Run, claim
from chimes.model.target import TaskTarget
from chimes.store.port import ClaimRequest, CompletionResult, Store
from chimes.store.wakeup import Wakeup
from chimes.targets.base import Call

DONE = Outcome(end=AttemptEnd.SUCCEEDED)
POLICY = Policy()
TARGET = TaskTarget(name="noop")


class NoOp:
    kind = "task"
    resumable = False
    places = None
    capabilities = frozenset({TARGET.requirement})

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        return None

    async def execute(self, call: Call) -> Outcome:
        return DONE


class HandyStore:
    """Only what a worker asks for, without any bookkeeping."""

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
        self, node_id: NodeId, lease: timedelta, *, clock: datetime
    ) -> HeartbeatResult:
        return HeartbeatResult(alive=True, now=await self.now())

    async def rescue(self, *, limit: int) -> tuple[Run, ...]:
        return ()

    async def prune_runs(self, *, before: datetime, limit: int) -> int:
        return 0

    async def list_schedules(self, query: object) -> Page[object]:
        return Page((), None)

    async def list_runs(self, query: RunQuery) -> Page[Run]:
        # Asked by the oversight only; it looks once in a while and must find nothing strange.
        await asyncio.sleep(3600)
        return Page((), None)

    async def next_available(self) -> datetime | None:
        return self.queue[0].available_at if self.queue else None

    async def claim(self, places: ClaimRequest) -> tuple[Run, ...]:
        now = await self.now()
        count = min(places.free, len(self.queue))
        return tuple(claim(self.queue.popleft(), places.node_id, now) for _ in range(count))

    async def finish(self, verdicts: Sequence[Completion]) -> CompletionResult:
        return CompletionResult(accepted=tuple(_ended(verdict) for verdict in verdicts))

    async def release(self, holds: Sequence[tuple[RunId, int]]) -> None:
        return None


def _ended(verdict: Completion) -> Run:
    return replace(_SAMPLE, id=verdict.run_id, status=verdict.status)


def _run(now: datetime) -> Run:
    return Run(
        id=manual_run_id(now),
        schedule_id=None,
        origin=Origin.MANUAL,
        target=TARGET,
        policy=POLICY,
        created_at=now,
        planned_at=now,
        available_at=now,
    )


_SAMPLE = _run(datetime.now(UTC))


async def _filled(store: Store, runs: Sequence[Run]) -> None:
    for start in range(0, len(runs), 5000):
        await store.add_runs(runs[start : start + 5000])


async def one_round(name: str, count: int, workers: int) -> tuple[float, float]:
    """Seconds and CPU seconds for so many runs."""
    left, done = count, asyncio.Event()

    def listen(event: object) -> None:
        nonlocal left
        if isinstance(event, RunEnded):
            left -= 1
            if not left:
                done.set()

    store, handy = await _opened(name)
    now = await store.now()
    runs = [_run(now) for _ in range(count)]
    if handy is not None:
        handy.queue.extend(runs)
    else:
        await _filled(store, runs)
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
    if handy is None:
        await store.close()
    return took, cpu


async def _opened(name: str) -> tuple[Store, HandyStore | None]:
    if name == "handy":
        handy = HandyStore()
        return cast(Store, handy), handy
    if name == "memory":
        from chimes.store.memory import MemoryStore

        return MemoryStore(), None
    from chimes.store.sql import open_postgres

    store = open_postgres(name)
    await store.open()
    return store, None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", default="handy")
    parser.add_argument("--runs", type=int, default=50_000)
    parser.add_argument("--workers", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    if given.profile:
        profile = cProfile.Profile()
        profile.runcall(asyncio.run, one_round(given.store, given.runs, given.workers))
        pstats.Stats(profile, stream=sys.stdout).sort_stats("tottime").print_stats(35)
        return
    measured = [
        asyncio.run(one_round(given.store, given.runs, given.workers)) for _ in range(given.rounds)
    ]
    rate = statistics.median(given.runs / took for took, _ in measured)
    cpu = statistics.median(cpu / given.runs * 1e6 for _, cpu in measured)
    print(f"{given.store}: {rate:,.0f} runs/s, {cpu:.1f} us CPU per run ({given.rounds} rounds)")


if __name__ == "__main__":
    main()
