"""Procrastinate: an async worker with a pool and high concurrency, jobs deferred in bulk."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta

import procrastinate
from harness import Calls, Options, parse_options
from procrastinate import PsycopgConnector

CONCURRENCY = 50
POOL = 10


def app_at(url: str) -> procrastinate.App:
    return procrastinate.App(connector=PsycopgConnector(conninfo=url, min_size=POOL, max_size=POOL))


async def run_worker(app: procrastinate.App, options: Options, calls: Calls) -> None:
    calls.begin()
    running = asyncio.create_task(
        app.run_worker_async(
            concurrency=CONCURRENCY, install_signal_handlers=False, shutdown_graceful_timeout=1
        )
    )
    await calls.wait(options.seconds, running)
    if options.what == "jobs":

        async def left() -> int:
            unfinished = "SELECT count(*) FROM procrastinate_jobs WHERE status <> 'succeeded'"
            row = await app.connector.execute_query_one_async(unfinished)
            return int(row["count"])

        await calls.wait_stored(left, options.seconds)
    calls.report()


async def schedules(options: Options, calls: Calls) -> None:
    app = app_at(options.url)

    @app.task(name="noop")
    async def noop(timestamp: int, number: int) -> None:
        calls.note(number)

    # A starting worker defers the periodic tasks of the last ten minutes: all are due at once.
    minute = datetime.now().astimezone() - timedelta(minutes=2)
    for number in range(options.count):
        app.periodic(
            cron=f"{minute.minute} {minute.hour} * * *",
            periodic_id=f"job-{number}",
            task_kwargs={"number": number},
        )(noop)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await run_worker(app, options, calls)


async def jobs(options: Options, calls: Calls) -> None:
    app = app_at(options.url)

    @app.task(name="noop")
    async def noop(number: int) -> None:
        calls.note(number)

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await noop.batch_defer_async(*({"number": number} for number in range(options.count)))
        await run_worker(app, options, calls)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    options = parse_options()
    calls = Calls(options.count)
    asyncio.run((schedules if options.what == "schedules" else jobs)(options, calls))
