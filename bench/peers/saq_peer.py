"""SAQ: one worker with high concurrency on Redis."""

from __future__ import annotations

import asyncio
import logging

from harness import Calls, Options, parse_options
from saq import Queue, Worker

CONCURRENCY = 100


async def jobs(options: Options, calls: Calls) -> None:
    queue = Queue.from_url(options.url)
    await queue.connect()

    async def noop(_: object, *, number: int) -> None:
        calls.note(number)

    for start in range(0, options.count, CONCURRENCY):
        numbers = range(start, min(start + CONCURRENCY, options.count))
        await asyncio.gather(*(queue.enqueue("noop", number=number) for number in numbers))
    worker = Worker(queue, functions=[("noop", noop)], concurrency=CONCURRENCY)
    calls.begin()
    running = asyncio.create_task(worker.start())
    await calls.wait(options.seconds, running)
    calls.report()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    options = parse_options()
    asyncio.run(jobs(options, Calls(options.count)))
