"""APScheduler 4 (alpha): async scheduler and worker in one process on PostgreSQL."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from apscheduler import AsyncScheduler
from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore
from apscheduler.triggers.interval import IntervalTrigger
from harness import Calls, Options, parse_options
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

calls: Calls
CONCURRENCY = 100


async def noop() -> None:
    calls.note(len(calls.names))


async def schedules(options: Options) -> None:
    engine = create_async_engine(options.url.replace("postgresql:", "postgresql+asyncpg:"))
    async with AsyncScheduler(
        SQLAlchemyDataStore(engine), max_concurrent_jobs=CONCURRENCY
    ) as scheduler:
        due = datetime.now(UTC) - timedelta(seconds=5)
        await scheduler.add_schedule(noop, IntervalTrigger(hours=1, start_time=due), id="job-0")
        await fill(engine, options.count)
        calls.begin()
        await scheduler.start_in_background()
        await calls.wait(options.seconds)
        await check(engine)
        calls.report()


async def fill(engine, count: int) -> None:
    """Copies the first schedule: adding them one by one would take longer than the round."""
    async with engine.begin() as connection:
        found = await connection.execute(
            text(
                "SELECT column_name FROM information_schema.columns"
                " WHERE table_name = 'schedules' ORDER BY ordinal_position"
            )
        )
        names = [row[0] for row in found]
        values = ", ".join("'job-' || n" if name == "id" else name for name in names)
        await connection.execute(
            text(
                f"INSERT INTO schedules ({', '.join(names)}) SELECT {values}"
                f" FROM schedules, generate_series(1, {count - 1}) AS n"
            )
        )


async def check(engine) -> None:
    """A job does not know its schedule, so duplicates show only as more calls than slots."""
    async with engine.connect() as connection:
        due = await connection.execute(
            text("SELECT count(*) FROM schedules WHERE next_fire_time > now()")
        )
        moved = due.scalar_one()
    assert len(calls.names) <= moved, f"{len(calls.names)} calls of {moved} slots"


if __name__ == "__main__":
    options = parse_options()
    calls = Calls(options.count)
    asyncio.run(schedules(options))
