"""awa: its queue storage, jobs inserted by COPY, 500 workers on one queue.

More claimers or connections made it slower in trials on two cores, fewer workers too.
"""

from __future__ import annotations

from dataclasses import dataclass

import asyncpg
import uvloop
from awa import AsyncClient, Job
from harness import Calls, Options, offer, parse_options

QUEUE = "noop"
BATCH = 1000
WORKERS = [{"name": QUEUE, "max_workers": 500}]
CONNECTIONS = 10
COMPLETED = "SELECT coalesce(sum(completed_count), 0) FROM awa.receipt_completion_batches"


@dataclass
class Noop:
    number: int


async def install(url: str) -> None:
    """The first start of a worker activates the queue storage."""
    client = AsyncClient(url, max_connections=CONNECTIONS)
    await client.migrate()

    @client.task(Noop, queue=QUEUE)
    async def noop(job: Job[Noop]) -> None:
        raise AssertionError(job.id)

    await client.start(WORKERS)
    await client.shutdown()


def make_client(options: Options, calls: Calls) -> AsyncClient:
    client = AsyncClient(options.url, max_connections=CONNECTIONS)

    @client.task(Noop, queue=QUEUE)
    async def noop(job: Job[Noop]) -> None:
        calls.note(job.args.number)

    return client


async def add(client: AsyncClient, numbers: range) -> None:
    await client.enqueue_many_copy([Noop(number) for number in numbers], queue=QUEUE)


async def jobs(options: Options, calls: Calls) -> None:
    await install(options.url)
    client = make_client(options, calls)
    for start in range(0, options.count, BATCH):
        await add(client, range(start, min(start + BATCH, options.count)))
    calls.begin()
    await client.start(WORKERS)
    await calls.wait(options.seconds)
    monitor = await asyncpg.connect(options.url)

    async def left() -> int:
        return options.count - await monitor.fetchval(COMPLETED)

    await calls.wait_stored(left, options.seconds)
    calls.report()


async def work(options: Options, calls: Calls) -> None:
    await install(options.url)
    client = make_client(options, calls)
    await client.start(WORKERS)
    print("ready", flush=True)
    await calls.wait(options.seconds)
    calls.report()


async def offer_jobs(options: Options, calls: Calls) -> None:
    client = make_client(options, calls)
    await offer(options, lambda numbers: add(client, numbers))


MODES = {"jobs": jobs, "work": work, "offer": offer_jobs}

if __name__ == "__main__":
    options = parse_options()
    uvloop.run(MODES[options.what](options, Calls(options.count)))
