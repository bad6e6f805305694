"""PgQueuer: connection pool, uvloop and large batches, as in its own benchmark tool."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg
import uvloop
from harness import Calls, Options, offer, parse_options
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.models import CronExpressionEntrypoint, Job, Schedule
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

POOL = 8
BATCH = 1000


async def schedules(options: Options, calls: Calls) -> None:
    async with asyncpg.create_pool(options.url, min_size=POOL, max_size=POOL) as pool:
        driver = AsyncpgPoolDriver(pool)
        await Queries(driver).install()
        pgq = PgQueuer(driver)
        for number in range(options.count):

            @pgq.schedule(f"job-{number}", "* * * * *")
            async def noop(schedule: Schedule) -> None:
                calls.note(schedule.entrypoint)

        due: dict[CronExpressionEntrypoint, timedelta] = dict.fromkeys(
            pgq.sm.registry, timedelta(seconds=-1)
        )
        await pgq.sm.queries.insert_schedule(due)
        fetch = pgq.sm.queries.fetch_schedule

        async def timed(entrypoints: dict[CronExpressionEntrypoint, timedelta]) -> list[Schedule]:
            calls.begin()
            return await fetch(entrypoints)

        pgq.sm.queries.fetch_schedule = timed
        running = asyncio.create_task(pgq.sm.run())
        await calls.wait(options.seconds, running)
        calls.report()


async def jobs(options: Options, calls: Calls) -> None:
    async with asyncpg.create_pool(options.url, min_size=POOL, max_size=POOL) as pool:
        driver = AsyncpgPoolDriver(pool)
        queries = Queries(driver)
        await queries.install()
        for start in range(0, options.count, BATCH):
            size = min(BATCH, options.count - start)
            await queries.enqueue(["noop"] * size, [None] * size, [0] * size)
        manager = QueueManager(queries)

        @manager.entrypoint("noop")
        async def noop(job: Job) -> None:
            calls.note(job.id)

        calls.begin()
        running = asyncio.create_task(
            manager.run(batch_size=BATCH, mode=QueueExecutionMode.continuous)
        )
        await calls.wait(options.seconds, running)
        monitor = await asyncpg.connect(options.url)

        async def left() -> int:
            return await monitor.fetchval("SELECT count(*) FROM pgqueuer")

        await calls.wait_stored(left, options.seconds)
        calls.report()


async def work(options: Options, calls: Calls) -> None:
    async with asyncpg.create_pool(options.url, min_size=POOL, max_size=POOL) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        await queries.install()
        manager = QueueManager(queries)

        @manager.entrypoint("noop")
        async def noop(job: Job) -> None:
            assert job.payload is not None
            calls.note(int(job.payload))

        running = asyncio.create_task(
            manager.run(batch_size=BATCH, mode=QueueExecutionMode.continuous)
        )
        print("ready", flush=True)
        await calls.wait(options.seconds, running)
        calls.report()


async def offer_jobs(options: Options, _: Calls) -> None:
    async with asyncpg.create_pool(options.url, min_size=1, max_size=1) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))

        async def add(numbers: range) -> None:
            payloads = [str(number).encode() for number in numbers]
            await queries.enqueue(["noop"] * len(numbers), payloads, [0] * len(numbers))

        await offer(options, add)


MODES = {"schedules": schedules, "jobs": jobs, "work": work, "offer": offer_jobs}

if __name__ == "__main__":
    options = parse_options()
    uvloop.run(MODES[options.what](options, Calls(options.count)))
