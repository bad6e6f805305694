"""How late do runs start? One schedule alone, then a crowd that is due at the same instant.

    python bench/lateness.py [--store memory|sqlite|json] [--fires 100] [--crowd 1000]

Measured inside one process with the whole engine on a real store: lateness is the moment at which
the target is called less the planned moment, both on this machine's clock. The target does nothing,
so the numbers are those of Chimes. Run it on an idle machine, several times; the spread is printed
with the numbers because a busy disk or core shows at once.
"""

from __future__ import annotations

import argparse
import asyncio
import platform
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from chimes.config import Settings
from chimes.engine import Engine, Event
from chimes.engine.events import RunEnded, SchedulesFired
from chimes.engine.metrics import Metrics
from chimes.model.ids import ScheduleId
from chimes.model.run import AttemptEnd, Outcome
from chimes.model.schedule import Schedule
from chimes.model.target import HttpTarget
from chimes.store.jsonfile import JsonFileStore
from chimes.store.memory import MemoryStore
from chimes.store.port import Store
from chimes.store.sql import open_sqlite
from chimes.targets.base import Call
from chimes.triggers import Every

DONE = Outcome(end=AttemptEnd.SUCCEEDED)
FAR = timedelta(days=365)


class Stopwatch:
    """A target that only looks at the clock."""

    kind = "http"
    offers = frozenset({"http"})

    def __init__(self) -> None:
        self.lateness: list[float] = []

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        return None

    async def execute(self, call: Call) -> Outcome:
        self.lateness.append((datetime.now(UTC) - call.run.planned_at).total_seconds())
        return DONE


class Ends:
    def __init__(self) -> None:
        self.count = 0
        self.fired_at = 0.0
        self.last = 0.0
        self._wanted = 0
        self._reached = asyncio.Event()

    async def reached(self, count: int) -> None:
        self._wanted = count
        await self._reached.wait()

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunEnded):
            self.count += 1
            self.last = time.monotonic()
            if self.count == self._wanted:
                self._reached.set()
        elif isinstance(event, SchedulesFired):
            self.fired_at = time.monotonic()


def schedule(number: int, every: timedelta, first: datetime) -> Schedule:
    return Schedule(
        id=ScheduleId(f"bench-{number:06d}"),
        name=f"bench {number}",
        trigger=Every(every, anchor=first),
        target=HttpTarget(url="http://127.0.0.1:9/"),
        next_slot=first,
        next_run_at=first,
        created_at=first,
        updated_at=first,
    )


def make_store(kind: str, directory: Path) -> Store:
    if kind == "memory":
        return MemoryStore()
    return open_sqlite(directory / "bench.db") if kind == "sqlite" else JsonFileStore(directory)


async def measured(kind: str, every: timedelta, crowd: int, fires: int) -> tuple[Stopwatch, Ends]:
    """All lateness values of `fires` fires of each of `crowd` schedules, and when they ended."""
    with tempfile.TemporaryDirectory() as directory:
        store = make_store(kind, Path(directory))
        await store.open()
        watch, ends = Stopwatch(), Ends()
        engine = Engine(store, {"http": watch}, settings=Settings(), listeners=[ends, Metrics()])
        first = await store.now() + timedelta(seconds=1 + crowd / 2000)
        await store.load([schedule(number, every, first) for number in range(crowd)])
        await engine.start()
        begin = time.monotonic() + (first - await store.now()).total_seconds()
        await ends.reached(crowd * fires)
        ends.last -= begin
        ends.fired_at -= begin
        await engine.drain(timedelta(0))
        await store.close()
        return watch, ends


def show(name: str, lateness: list[float]) -> None:
    ordered = sorted(lateness)

    def at(share: float) -> str:
        return f"{ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000:8.2f} ms"

    print(f"{name:<34} n={len(ordered):<6} p50 {at(0.5)}  p99 {at(0.99)}  max {at(1.0)}")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=("memory", "sqlite", "json"), default="sqlite")
    parser.add_argument("--fires", type=int, default=100)
    parser.add_argument("--crowd", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    print(f"store {given.store}, Python {platform.python_version()}, {platform.machine()}")
    watch, _ = await measured(given.store, timedelta(seconds=0.2), 1, given.fires)
    show("one schedule, every 200 ms", watch.lateness)
    for _ in range(given.rounds):
        watch, ends = await measured(given.store, FAR, given.crowd, 1)
        show(f"{given.crowd} schedules at one instant", watch.lateness)
        print(
            f"    all rows {ends.fired_at:.3f} s, all verdicts {ends.last:.3f} s after the instant"
            f" ({given.crowd / ends.last:,.0f} runs/s)"
        )


if __name__ == "__main__":
    asyncio.run(main())
