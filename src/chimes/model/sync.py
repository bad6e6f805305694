"""Data sources and collections of `chimes.yaml`, and their sync runs as EventNative tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from msgspec import Struct, field

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import SYSTEM_OWNER, Owner
from chimes.model.ids import RunId, manual_run_id
from chimes.model.policy import Misfire, Overlap, Policy
from chimes.model.run import Origin, Run, RunDefinition, RunStatus
from chimes.model.target import SyncTarget
from chimes.triggers import Trigger

#: Namespace of the schedules and runs of collections.
SYNC_NAMESPACE = "sync"
#: Priority classes: by default a scheduled task is HIGH and a manual one is NOW.
LOW, HIGH, NOW = 100, 200, 300
#: Default timeout of a collection.
SYNC_TIMEOUT = timedelta(hours=1)
MAX_SYNC_TIMEOUT = timedelta(days=7)


class Collection(Struct, frozen=True, kw_only=True):
    name: str
    #: None: only manual runs.
    trigger: Trigger | None = None
    #: Priority class of its scheduled tasks.
    priority: int = HIGH
    timeout: timedelta = SYNC_TIMEOUT
    #: Retries of a failed task, and the first pause between them.
    max_retries: int = 0
    retry_backoff: timedelta = timedelta(seconds=30)


class Source(Struct, frozen=True, kw_only=True):
    id: str
    #: `python`, `command`, `http_json`.
    driver: str
    #: Configuration of the driver; may contain secrets and is never shown.
    config: Mapping[str, object] = field(default_factory=dict)
    collections: tuple[Collection, ...] = ()

    def __repr__(self) -> str:
        """Without the configuration: it may contain secrets."""
        return f"Source({self.id!r})"

    def collection(self, name: str) -> Collection | None:
        return next((each for each in self.collections if each.name == name), None)


class Sources(Struct, frozen=True):
    """All sources of one file."""

    by_id: Mapping[str, Source] = field(default_factory=dict)
    #: Directory of the file, for imports and relative paths.
    directory: str = ""

    def get(self, source: str, collection: str) -> Collection | None:
        found = self.by_id.get(source)
        return None if found is None else found.collection(collection)

    def pairs(self) -> Iterator[tuple[SyncTarget, Collection]]:
        for source in self.by_id.values():
            for each in source.collections:
                yield SyncTarget(source=source.id, collection=each.name), each


def task_name(target: SyncTarget) -> str:
    """The name of its schedule and runs."""
    return f"{target.source}/{target.collection}"


def task_policy(
    target: SyncTarget,
    *,
    timeout: timedelta = SYNC_TIMEOUT,
    misfire_grace: timedelta = timedelta(seconds=60),
    max_retries: int = 0,
    retry_backoff: timedelta = timedelta(seconds=30),
) -> Policy:
    """Late slots and slots during an active task of the pair are skipped. Failures are retried if
    the collection says so; lost runs always are."""
    return Policy(
        misfire=Misfire.SKIP,
        misfire_grace=misfire_grace,
        overlap=Overlap.SKIP,
        max_concurrent_runs=1,
        concurrency_key=target.key,
        max_retries=max_retries,
        retry_backoff=retry_backoff,
        timeout=timeout,
    )


def collection_policy(
    target: SyncTarget,
    collection: Collection,
    misfire_grace: timedelta = timedelta(seconds=60),
) -> Policy:
    """The policy of the tasks of a collection in the file."""
    return task_policy(
        target,
        timeout=collection.timeout,
        misfire_grace=misfire_grace,
        max_retries=collection.max_retries,
        retry_backoff=collection.retry_backoff,
    )


def task_run(
    target: SyncTarget,
    collection: Collection | None,
    now: datetime,
    *,
    priority: int = NOW,
    owner: Owner = SYSTEM_OWNER,
    run_id: RunId | None = None,
) -> Run:
    """A manual task, for `Store.add_unless_active`. `collection` is None if it is not in this
    node's file."""
    found = Collection(name=target.collection) if collection is None else collection
    return Run(
        id=run_id or manual_run_id(now),
        definition=RunDefinition(
            schedule_name=task_name(target),
            namespace=SYNC_NAMESPACE,
            owner=owner,
            target=target,
            policy=collection_policy(target, found),
        ),
        origin=Origin.MANUAL,
        priority=priority,
        concurrency_key=target.key,
        concurrency_limit=1,
        created_at=now,
        planned_at=now,
        available_at=now,
    )


# --- EventNative tasks: the id, status and numbers of a sync run, shared by the EventNative API and
# the Redis keys

#: Run ids are UUIDs in canonical form.
RUN_ID_LENGTH = 36
#: Higher class first, then older first: a class outweighs any timestamp.
CLASS_WEIGHT = 10**12


class TaskStatus(StrEnum):
    SCHEDULED = "SCHEDULED"
    RUNNING = "RUNNING"
    FAILED = "FAILED"
    SUCCESS = "SUCCESS"
    CANCELED = "CANCELED"


#: Runs with another status are no tasks.
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
    """Whether EventNative shows it as a task; skipped and missed slots are no tasks."""
    return isinstance(run.target, SyncTarget) and run.status in _STATUS


def sync_target(run: Run) -> SyncTarget:
    assert isinstance(run.target, SyncTarget), "only runs of a SyncTarget are tasks"
    return run.target


def task_id(run: Run) -> str:
    target = sync_target(run)
    return f"{target.source}_{target.collection}_{run.id}"


def parse_task_id(text: str) -> tuple[str, RunId] | None:
    """`SOURCE_COLLECTION` and the run id, or None. Names may contain `_`, so callers must compare
    the `task_id` of the loaded run with the text."""
    pair, run_id = text[:-RUN_ID_LENGTH], text[-RUN_ID_LENGTH:]
    if len(pair) < len("s_c_") or not pair.endswith("_"):
        return None
    return pair[:-1], RunId(run_id)


def task_status(run: Run) -> TaskStatus:
    """Of a run that `is_task`."""
    return _STATUS[run.status]


def run_statuses(status: TaskStatus) -> tuple[RunStatus, ...]:
    """The run statuses of a task status."""
    return tuple(ours for ours, theirs in _STATUS.items() if theirs is status)


def task_priority(run: Run) -> int:
    """Also the score in the queue; exact as a double up to class 9000."""
    return run.priority * CLASS_WEIGHT - created_unix(run)


def created_unix(run: Run) -> int:
    """In whole seconds."""
    return int(run.created_at.timestamp())


def task_time(moment: datetime | None) -> str:
    """ISO 8601 with microseconds and Z; empty for None."""
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def task_fields(run: Run) -> dict[str, str | int]:
    """The fields of a task, in EventNative's order."""
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


# --- at most one active run per pair of source and collection


def require_exclusive(policy: Policy, target: SyncTarget) -> Policy:
    """The policy with the key and limit of the pair. InvalidInput if it requires more than one run
    at a time or another key."""
    for name, wrong, wanted in (
        ("overlap", policy.overlap is not Overlap.SKIP, "skip"),
        ("max_concurrent_runs", policy.max_concurrent_runs not in (None, 1), "1"),
        ("burst_allowed", policy.burst_allowed, "false"),
        ("concurrency_key", policy.concurrency_key not in (None, target.key), target.key),
    ):
        if wrong:
            raise InvalidInput(
                _(
                    "{field} must be {wanted} for a sync target: one run of each pair at a time",
                    field=name,
                    wanted=wanted,
                ),
                field=f"policy.{name}",
                code="one_at_a_time",
            )
    return replace(policy, concurrency_key=target.key, max_concurrent_runs=1)
