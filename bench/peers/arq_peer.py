"""arq: one worker with high concurrency on Redis, without a delay between polls."""

from __future__ import annotations

import asyncio
import logging

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker, func
from harness import Calls, Options, parse_options

CONCURRENCY = 100


async def jobs(options: Options, calls: Calls) -> None:
    pool = await create_pool(RedisSettings.from_dsn(options.url))

    async def noop(_: object, number: int) -> None:
        calls.note(number)

    for start in range(0, options.count, CONCURRENCY):
        numbers = range(start, min(start + CONCURRENCY, options.count))
        await asyncio.gather(*(pool.enqueue_job("noop", number) for number in numbers))
    worker = Worker(
        functions=[func(noop, name="noop")],
        redis_pool=pool,
        max_jobs=CONCURRENCY,
        handle_signals=False,
        poll_delay=0.0,
    )
    calls.begin()
    running = asyncio.create_task(worker.main())
    await calls.wait(options.seconds, running)
    calls.report()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    options = parse_options()
    asyncio.run(jobs(options, Calls(options.count)))
