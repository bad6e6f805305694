"""PgQueuer: connection pool, uvloop and large batches, as in its own benchmark tool."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg
import uvloop
from harness import Calls, Options, parse_options
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


if __name__ == "__main__":
    options = parse_options()
    calls = Calls(options.count)
    uvloop.run((schedules if options.what == "schedules" else jobs)(options, calls))
