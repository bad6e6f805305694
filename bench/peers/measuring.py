"""What every peer script does the same way: arguments in, calls counted, one JSON line out.

    python peers/NAME.py schedules|jobs URL COUNT SECONDS

`schedules`: COUNT recurring schedules are due at once; `jobs`: COUNT no-op jobs wait in the queue.
The clock starts when the peer begins to look and stops with the last call of the job's function, or
after SECONDS: a peer that is not through by then is rated by what it has done. For `jobs`, rated
from the queue to the stored result, it stops when the peer has written down that the last one is
done; for `schedules` that is not waited for, which favours the peers. Needs nothing but the
standard library.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

LOOK_EVERY = 0.005


@dataclass(frozen=True, slots=True)
class Given:
    what: str
    url: str
    count: int
    seconds: float


def arguments() -> Given:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("schedules", "jobs"))
    parser.add_argument("url")
    parser.add_argument("count", type=int)
    parser.add_argument("seconds", type=float)
    given = parser.parse_args()
    return Given(given.what, given.url, given.count, given.seconds)


@dataclass(slots=True)
class Calls:
    """Every call of the job's function: which job, and when."""

    wanted: int
    began: float = 0.0
    names: list[object] = field(default_factory=list)
    last: float = 0.0
    all_there: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self) -> None:
        """The first moment counts."""
        self.began = self.began or time.perf_counter()

    def note(self, name: object) -> None:
        self.names.append(name)
        self.last = time.perf_counter()
        if len(self.names) == self.wanted:
            self.all_there.set()

    async def wait(self, seconds: float, running: asyncio.Task[None] | None = None) -> None:
        """Until all are there or the time is up; a peer that ends by itself before has failed."""
        waiting = asyncio.ensure_future(self.all_there.wait())
        both = {waiting} if running is None else {waiting, running}
        await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if running is not None and running.done():
            running.result()

    async def stored(self, left: Callable[[], Awaitable[int]], seconds: float) -> None:
        """Until the peer has no job left that is not written down as done."""
        if not self.all_there.is_set():
            return
        end = time.perf_counter() + seconds
        while await left() and time.perf_counter() < end:  # noqa: ASYNC110 (nobody is told)
            await asyncio.sleep(LOOK_EVERY)
        self.last = time.perf_counter()

    def report(self) -> None:
        """And end: a peer's way of shutting down may take longer than the round."""
        complete = len(self.names) >= self.wanted
        answer = {
            "calls": len(self.names),
            "distinct": len(set(self.names)),
            "wanted": self.wanted,
            "seconds": self.last - self.began,
            "complete": complete,
        }
        print(json.dumps(answer), flush=True)
        os._exit(0)
