"""Factory of ended runs, for tests of statistics."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from chimes.model.ids import NodeId
from chimes.model.run import Attempt, AttemptEnd, Origin, Run, RunStatus
from chimes.model.schedule import Schedule
from tests.builders import SECOND, a_run

_NOT_STARTED = (RunStatus.MISSED, RunStatus.SKIPPED)


def ended(
    planned_at: datetime,
    status: RunStatus = RunStatus.SUCCEEDED,
    schedule: Schedule | None = None,
    *,
    lag: timedelta = timedelta(0),
    took: timedelta = SECOND,
    node: str = "node-1",
    **given: Any,
) -> Run:
    good = status is RunStatus.SUCCEEDED
    begun = None if status in _NOT_STARTED else planned_at + lag
    finished = (begun or planned_at) + took
    attempt = Attempt(
        number=1,
        fence=1,
        node=NodeId(node),
        started_at=begun or planned_at,
        finished_at=finished,
        end=AttemptEnd.SUCCEEDED if good else AttemptEnd.FAILED,
        error="" if good else 'it said "no" \\ น้ำ',
    )
    values: dict[str, Any] = {
        "origin": Origin.SCHEDULE,
        "status": status,
        "slot": planned_at if schedule else None,
        "created_at": planned_at,
        "planned_at": planned_at,
        "available_at": planned_at,
        "started_at": begun,
        "finished_at": finished,
        "attempt": 1 if begun else 0,
        "fence": 1 if begun else 0,
        "attempts": (attempt,) if begun else (),
    }
    return a_run(schedule, **(values | given))
