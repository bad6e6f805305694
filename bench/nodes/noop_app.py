"""The application of the benchmark's nodes: one task that does nothing but look at the clock.

When the node ends it writes every call into the file that BENCH_CALLS names, a line `number time`
each; the clock is the machine's, which is also that of the database server.
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
    where = os.environ.get("BENCH_CALLS")
    if where and _calls:
        lines = "".join(f"{number} {moment!r}\n" for number, moment in _calls)
        Path(where).write_text(lines, encoding="ascii")


atexit.register(_write)
