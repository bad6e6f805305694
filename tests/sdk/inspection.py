"""Helpers to inspect the store of an application."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from chimes import Chimes
from chimes.config import Settings
from chimes.model.listing import AuditQuery, RunQuery
from chimes.model.run import Run, RunStatus
from chimes.model.schedule import Schedule

T = TypeVar("T")
QUICK = Settings(poll_interval=timedelta(seconds=0.2), shutdown_grace=timedelta(seconds=5))


async def runs_of(app: Chimes, name: str | None = None, *statuses: RunStatus) -> list[Run]:
    """Oldest first."""
    query = RunQuery(statuses=statuses, limit=None)
    found = (await app.runtime().services.store.list_runs(query)).items
    ours = [run for run in found if name is None or run.schedule_name == name]
    return sorted(ours, key=lambda run: (run.planned_at, run.created_at, run.id))


async def stored(app: Chimes, name: str) -> Schedule:
    info = await app.get_schedule(name)
    services = app.runtime().services
    return await services.schedules.get(app.runtime().actor, info.id)  # type: ignore[arg-type]


async def audited(app: Chimes) -> list[tuple[str, str, str]]:
    """(interface, actor, verb) of the audit entries, oldest first."""
    entries = await app.runtime().services.store.list_audit(AuditQuery(limit=500))
    return [(entry.interface, entry.actor, entry.verb) for entry in reversed(entries)]


async def eventually(
    question: Callable[[], Awaitable[T]], good: Callable[[T], object], within: float = 60.0
) -> T:
    async with asyncio.timeout(within):
        while True:
            answer = await question()
            if good(answer):
                return answer
            await asyncio.sleep(0.02)
