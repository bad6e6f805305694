"""SAQ: one worker with high concurrency, on Redis."""

from __future__ import annotations

import asyncio
import logging

from measuring import Calls, Given, arguments
from saq import Queue, Worker

CONCURRENCY = 100


async def jobs(given: Given, calls: Calls) -> None:
    queue = Queue.from_url(given.url)
    await queue.connect()

    async def noop(_: object, *, number: int) -> None:
        calls.note(number)

    for start in range(0, given.count, CONCURRENCY):
        numbers = range(start, min(start + CONCURRENCY, given.count))
        await asyncio.gather(*(queue.enqueue("noop", number=number) for number in numbers))
    worker = Worker(queue, functions=[("noop", noop)], concurrency=CONCURRENCY)
    calls.begin()
    running = asyncio.create_task(worker.start())
    await calls.wait(given.seconds, running)
    calls.report()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    given = arguments()
    asyncio.run(jobs(given, Calls(given.count)))
