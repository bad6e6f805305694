"""Helpers that inspect fire plans."""

from __future__ import annotations

from datetime import datetime

from chimes.model.ids import RunId
from chimes.model.planning import FireContext, FirePlan
from chimes.model.run import RunStatus
from tests.builders import MINUTE, NOW

FREE = FireContext()
QUEUED, MISSED, SKIPPED = RunStatus.QUEUED, RunStatus.MISSED, RunStatus.SKIPPED


def planned_runs(firing: FirePlan) -> list[tuple[RunStatus, datetime | None, bool]]:
    return [(run.status, run.slot, run.blocked) for run in firing.runs]


def minutes(*numbers: int) -> list[datetime]:
    return [NOW + number * MINUTE for number in numbers]


def with_active_runs(count: int) -> FireContext:
    return FireContext(admitted=tuple(RunId(f"active-{number}") for number in range(count)))
