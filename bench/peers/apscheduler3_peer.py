"""APScheduler 3: asyncio scheduler with coroutine jobs; the URL `memory` means its memory store."""

from __future__ import annotations

import asyncio
import pickle
from datetime import UTC, datetime, timedelta

from apscheduler.job import Job
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.interval import IntervalTrigger
from harness import Calls, Options, parse_options

calls: Calls


async def noop(number: int) -> None:
    calls.note(number)


async def schedules(options: Options) -> None:
    if options.url == "memory":
        store = MemoryJobStore()
    else:
        store = SQLAlchemyJobStore(options.url.replace("postgresql:", "postgresql+psycopg:"))
    scheduler = AsyncIOScheduler(jobstores={"default": store}, timezone=UTC)
    due = datetime.now(UTC) - timedelta(seconds=1)
    job_options = {
        "coalesce": True,
        "misfire_grace_time": None,
        "max_instances": 1,
        "next_run_time": due,
    }
    if isinstance(store, MemoryJobStore):
        for number in range(options.count):
            trigger = IntervalTrigger(hours=1, timezone=UTC)
            scheduler.add_job(noop, trigger, args=(number,), id=f"job-{number}", **job_options)
    else:
        fill(store, scheduler, options.count, job_options)
    calls.begin()
    scheduler.start()
    await calls.wait(options.seconds)
    calls.report()


def fill(store: SQLAlchemyJobStore, scheduler: AsyncIOScheduler, count: int, job_options) -> None:
    """Writes the rows of `add_job` in one statement instead of one transaction each."""
    store.start(scheduler, "default")
    rows = []
    for number in range(count):
        job = Job(
            scheduler,
            id=f"job-{number}",
            func=noop,
            args=(number,),
            kwargs={},
            name="noop",
            trigger=IntervalTrigger(hours=1, timezone=UTC),
            executor="default",
            **job_options,
        )
        rows.append(
            {
                "id": job.id,
                "next_run_time": job.next_run_time.timestamp(),
                "job_state": pickle.dumps(job.__getstate__(), store.pickle_protocol),
            }
        )
    with store.engine.begin() as connection:
        connection.execute(store.jobs_t.insert(), rows)


if __name__ == "__main__":
    options = parse_options()
    calls = Calls(options.count)
    asyncio.run(schedules(options))
