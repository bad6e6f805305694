"""The application of the benchmark's nodes: one task that records the time of its call.

When the node stops, it writes the calls to the file named by BENCH_CALLS, one line `number time`
each. The database server uses the same clock.
"""

from __future__ import annotations

import atexit
import os
import time
from pathlib import Path

from chimes import Chimes

app = Chimes(os.environ["CHIMES_STORE"])
_calls: list[tuple[int, float]] = []


@app.task(name="noop")
async def noop(number: int) -> None:
    _calls.append((number, time.time()))


def _write() -> None:
    path = os.environ.get("BENCH_CALLS")
    if path and _calls:
        lines = "".join(f"{number} {moment!r}\n" for number, moment in _calls)
        Path(path).write_text(lines, encoding="ascii")


atexit.register(_write)
