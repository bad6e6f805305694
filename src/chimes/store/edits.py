"""Changes of several schedules that belong together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from chimes.model.audit import AuditEntry
from chimes.model.ids import ScheduleId
from chimes.model.run import Run
from chimes.model.schedule import Schedule


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleEdit:
    """What `change_schedule` is told, but for quotas."""

    schedule_id: ScheduleId
    change: Callable[[Schedule, datetime], Schedule]
    audit: AuditEntry | None = None
    runs: Callable[[Schedule, datetime], Sequence[Run]] | None = None


class ScheduleEdits(Protocol):
    async def change_schedules(self, edits: Sequence[ScheduleEdit]) -> tuple[Schedule, ...]:
        """`change_schedule` for each of them, in ONE transaction: all of it happens or nothing
        does (C16). No id may be there twice. The audit entries follow each other as given.
        NotFound if one is not there or deleted; whatever a change raises is raised."""
