"""Adds no-op runs to a store of Chimes at a steady rate, as an application does.

    python nodes/producer.py URL COUNT SECONDS BEGIN

Adds COUNT runs evenly over SECONDS, in batches, beginning at BEGIN (seconds since 1970). A batch
that is late is not skipped.
"""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import datetime

import uvloop
from suite.chimes_tables import open_store, queued_run

from chimes.model.ids import manual_run_id
from chimes.model.run import Run

BATCH_SECONDS = 0.05


def make_run(number: int, now: datetime) -> Run:
    return queued_run(manual_run_id(now), number, now)


async def main(url: str, count: int, seconds: float, begin: float) -> None:
    store = open_store(url)
    await store.open()
    batches = round(seconds / BATCH_SECONDS)
    size = count // batches
    for batch in range(batches):
        await asyncio.sleep(max(0.0, begin + batch * BATCH_SECONDS - time.time()))
        now = await store.now()
        numbers = range(batch * size, (batch + 1) * size)
        await store.add_runs([make_run(number, now) for number in numbers])
    await store.close()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])))
