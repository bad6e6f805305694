"""A run of a SyncTarget as seed 4 sees it: a task, with its own id, words and numbers (R4.6).

Pure, so that the Redis keys (R4.7, R4.10-R4.12) and the EventNative door say the same.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum

from chimes.model.ids import RunId
from chimes.model.run import Run, RunStatus
from chimes.model.target import SyncTarget

#: Run ids are UUIDs in their usual writing.
RUN_ID_LENGTH = 36
#: R4.8: higher class first, then older first. A class is worth more than any second.
CLASS_WEIGHT = 10**12


class TaskStatus(StrEnum):
    SCHEDULED = "SCHEDULED"
    RUNNING = "RUNNING"
    FAILED = "FAILED"
    SUCCESS = "SUCCESS"
    CANCELED = "CANCELED"


#: C10. What is not here is no task.
_STATUS = {
    RunStatus.QUEUED: TaskStatus.SCHEDULED,
    RunStatus.RUNNING: TaskStatus.RUNNING,
    RunStatus.SUCCEEDED: TaskStatus.SUCCESS,
    RunStatus.FAILED: TaskStatus.FAILED,
    RunStatus.TIMEOUT: TaskStatus.FAILED,
    RunStatus.UNKNOWN: TaskStatus.FAILED,
    RunStatus.CANCELED: TaskStatus.CANCELED,
}
#: The statuses of runs that are tasks.
TASK_RUN_STATUSES = tuple(_STATUS)


def is_task(run: Run) -> bool:
    """Whether seed 4 would call it one. A tick that was skipped or missed made no task."""
    return isinstance(run.target, SyncTarget) and run.status in _STATUS


def sync_target(run: Run) -> SyncTarget:
    assert isinstance(run.target, SyncTarget), "only runs of a SyncTarget are tasks"
    return run.target


def task_id(run: Run) -> str:
    target = sync_target(run)
    return f"{target.source}_{target.collection}_{run.id}"


def parse_task_id(text: str) -> tuple[str, RunId] | None:
    """`SOURCE_COLLECTION` and the run's id. Names may have a `_` themselves, so whoever loads the
    run checks that its `task_id` is the text. None: no task has such an id."""
    pair, run_id = text[:-RUN_ID_LENGTH], text[-RUN_ID_LENGTH:]
    if len(pair) < len("s_c_") or not pair.endswith("_"):
        return None
    return pair[:-1], RunId(run_id)


def task_status(run: Run) -> TaskStatus:
    """Of a run that `is_task`."""
    return _STATUS[run.status]


def run_statuses(status: TaskStatus) -> tuple[RunStatus, ...]:
    """Which runs a filter by the seed's word means."""
    return tuple(ours for ours, theirs in _STATUS.items() if theirs is status)


def task_priority(run: Run) -> int:
    """R4.8: also the score in the queue. Exact as a double up to class 9000."""
    return run.priority * CLASS_WEIGHT - created_unix(run)


def created_unix(run: Run) -> int:
    """R4.10: whole seconds."""
    return int(run.created_at.timestamp())


def task_time(moment: datetime | None) -> str:
    """C18: ISO with microseconds and Z; "" where there is none."""
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def task_fields(run: Run) -> dict[str, str | int]:
    """R4.6 and R4.11, in the seed's order."""
    target = sync_target(run)
    return {
        "id": task_id(run),
        "source": target.source,
        "collection": target.collection,
        "priority": task_priority(run),
        "created_at": task_time(run.created_at),
        "started_at": task_time(run.started_at),
        "finished_at": task_time(run.finished_at),
        "status": task_status(run).value,
    }
