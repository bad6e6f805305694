"""Shared by the peer scripts: command line, counting of calls, result as one line of JSON.

    python peers/NAME.py schedules|jobs|work|offer URL COUNT SECONDS [--begin TIME]

`schedules`: COUNT recurring schedules are due at once; `jobs`: COUNT no-op jobs wait in the queue.
`work` and `offer` are two processes: one executes COUNT jobs while the other adds them evenly over
SECONDS, beginning at TIME (seconds since 1970). `work` prints a line when it is ready and writes
its calls to the file BENCH_CALLS, one line `number time` each.

Time starts when the peer first polls and stops with the last call of the job's function, or after
SECONDS: a peer that is not finished by then is rated by the calls so far. For `jobs` it stops when
the peer has stored the last completion; for `schedules` it does not wait for that, which favours
the peers. Uses the standard library only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

POLL_SECONDS = 0.005
#: Between two batches of offered jobs.
OFFER_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Options:
    what: str
    url: str
    count: int
    seconds: float
    begin: float = 0.0


def parse_options() -> Options:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("schedules", "jobs", "work", "offer"))
    parser.add_argument("url")
    parser.add_argument("count", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--begin", type=float, default=0.0)
    return Options(**vars(parser.parse_args()))


async def offer(options: Options, add: Callable[[range], Awaitable[object]]) -> None:
    """Calls `add` with the numbers of each batch at its time. A batch that is late is not skipped:
    its jobs count as offered at their time."""
    batches = round(options.seconds / OFFER_SECONDS)
    size = options.count // batches
    for batch in range(batches):
        moment = options.begin + batch * OFFER_SECONDS
        await asyncio.sleep(max(0.0, moment - time.time()))
        await add(range(batch * size, (batch + 1) * size))


@dataclass(slots=True)
class Calls:
    """Records the calls of the job's function: names of the jobs, first and last time."""

    wanted: int
    began: float = 0.0
    names: list[object] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    last: float = 0.0
    all_called: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self) -> None:
        """Starts the time; later calls change nothing."""
        self.began = self.began or time.perf_counter()

    def note(self, name: object) -> None:
        self.names.append(name)
        self.times.append(time.time())
        self.last = time.perf_counter()
        if len(self.names) == self.wanted:
            self.all_called.set()

    async def wait(self, seconds: float, running: asyncio.Task[None] | None = None) -> None:
        """Waits for all calls or the time limit; raises the error of a peer that ended before."""
        waiting = asyncio.ensure_future(self.all_called.wait())
        both = {waiting} if running is None else {waiting, running}
        await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if running is not None and running.done():
            running.result()

    async def wait_stored(self, left: Callable[[], Awaitable[int]], seconds: float) -> None:
        """Waits until `left`, the number of jobs without a stored completion, returns 0."""
        if not self.all_called.is_set():
            return
        end = time.perf_counter() + seconds
        while await left() and time.perf_counter() < end:  # noqa: ASYNC110 (there is no event)
            await asyncio.sleep(POLL_SECONDS)
        self.last = time.perf_counter()

    def report(self) -> None:
        """Prints the result and exits at once, because the shutdown of a peer may be slow."""
        if path := os.environ.get("BENCH_CALLS"):
            calls = zip(self.names, self.times, strict=True)
            lines = "".join(f"{name} {moment!r}\n" for name, moment in calls)
            Path(path).write_text(lines, encoding="ascii")
        complete = len(self.names) >= self.wanted
        result = {
            "calls": len(self.names),
            "distinct": len(set(self.names)),
            "wanted": self.wanted,
            "seconds": self.last - self.began,
            "complete": complete,
        }
        print(json.dumps(result), flush=True)
        os._exit(0)
