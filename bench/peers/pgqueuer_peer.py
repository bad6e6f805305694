"""PgQueuer: a pool of connections, uvloop, big batches, as its own benchmark tool does it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg
import uvloop
from measuring import Calls, Given, arguments
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.models import CronExpressionEntrypoint, Job, Schedule
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

POOL = 8
BATCH = 1000


async def schedules(given: Given, calls: Calls) -> None:
    async with asyncpg.create_pool(given.url, min_size=POOL, max_size=POOL) as pool:
        driver = AsyncpgPoolDriver(pool)
        await Queries(driver).install()
        pgq = PgQueuer(driver)
        for number in range(given.count):

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
        await calls.wait(given.seconds, running)
        calls.report()


async def jobs(given: Given, calls: Calls) -> None:
    async with asyncpg.create_pool(given.url, min_size=POOL, max_size=POOL) as pool:
        driver = AsyncpgPoolDriver(pool)
        queries = Queries(driver)
        await queries.install()
        for start in range(0, given.count, BATCH):
            size = min(BATCH, given.count - start)
            await queries.enqueue(["noop"] * size, [None] * size, [0] * size)
        manager = QueueManager(queries)

        @manager.entrypoint("noop")
        async def noop(job: Job) -> None:
            calls.note(job.id)

        calls.begin()
        running = asyncio.create_task(
            manager.run(batch_size=BATCH, mode=QueueExecutionMode.continuous)
        )
        await calls.wait(given.seconds, running)
        watching = await asyncpg.connect(given.url)

        async def left() -> int:
            return await watching.fetchval("SELECT count(*) FROM pgqueuer")

        await calls.stored(left, given.seconds)
        calls.report()


if __name__ == "__main__":
    given = arguments()
    calls = Calls(given.count)
    uvloop.run((schedules if given.what == "schedules" else jobs)(given, calls))
